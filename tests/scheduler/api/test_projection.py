"""What the cache keeps of pods and nodes is what is read of them: found out by reading (fault core 06).

Every reader runs on whole and on stripped objects and must say the same, whatever is in them; and it runs on objects
that record what is read, which must have been declared. A reader that is not called here belongs into `READERS`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import cycle
from scheduler.api import projection
from scheduler.api.decode import PageDecoder, decode_event, decode_list
from scheduler.cache.cluster import ClusterCache, digest_of
from scheduler.cache.nodes import NodeIndex
from scheduler.cache.pods import PodIndex, claim_names, is_pending
from scheduler.cache.store import EventType, WatchEvent, key_of, meta_of
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.framework.events import events_of
from scheduler.framework.resources import assigned_pod_requests, host_ports, scoring_requests
from scheduler.framework.status import Status
from scheduler.model import Change, ClusterSnapshot, Kind, NodeObject, Pod
from scheduler.plugins import inter_pod_affinity
from scheduler.plugins.anti_affinity import required_terms
from tests.scheduler.world import environment

# --- pods and nodes with everything that may be in them -------------------------------------------------------------------

LABELS = st.sampled_from([{}, {"app": "a"}, {"app": "b", "tier": "x"}])
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1", "250m"]),
        "memory": st.sampled_from(["1Gi", "64Mi"]),
        "example.com/gpu": st.just("1"),
    },
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
NAMES = st.sampled_from(["main", "side"])


def containers(*, init: bool = False) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "image": st.just("registry.example.com/image:1"),
        "resources": RESOURCES,
        "ports": st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.just(80)}, optional={"hostPort": st.integers(80, 81)}
            ),
            max_size=2,
        ),
        "volumeMounts": st.just([{"name": "v", "mountPath": "/v", "bindMountOptions": ["x"]}]),
        "restartPolicyRules": st.just([{"action": "RestartAllContainers"}]),
    }
    if init:
        fields["restartPolicy"] = st.just("Always")
    one = st.fixed_dictionaries({"name": NAMES}, optional=fields)
    return st.lists(one, max_size=2, unique_by=lambda each: each["name"])


CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["PodResizePending", "PodScheduled", "Ready"]),
            "status": st.sampled_from(["True", "False"]),
            "reason": st.sampled_from(["Infeasible", "Deferred", ""]),
        }
    ),
    max_size=3,
)
STATUSES = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES}, optional={"allocatedResources": AMOUNTS, "resources": RESOURCES}
    ),
    max_size=2,
)
TERM = {
    "topologyKey": "zone",
    "labelSelector": {"matchLabels": {"app": "a"}},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = st.sampled_from(
    [
        {"podAntiAffinity": {REQUIRED: [TERM]}},
        {"podAffinity": {REQUIRED: [TERM]}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
    ]
)
CLAIMS = st.lists(
    st.sampled_from(
        [
            {"name": "one", "resourceClaimName": "c1"},
            {"name": "two", "resourceClaimTemplateName": "t"},
        ]
    ),
    max_size=2,
    unique_by=lambda each: each["name"],
)
SPEC = {
    "nodeName": st.sampled_from(["n0", "n1"]),
    "schedulerName": st.sampled_from(["dra-scheduler", "other"]),
    "priority": st.integers(0, 2),
    "priorityClassName": st.just("high"),
    "preemptionPolicy": st.just("Never"),
    "nodeSelector": st.just({"zone": "a"}),
    "affinity": AFFINITY,
    "tolerations": st.just([{"operator": "Exists"}]),
    "containers": containers(),
    "initContainers": containers(init=True),
    "overhead": AMOUNTS,
    "resources": RESOURCES,
    "resourceClaims": CLAIMS,
    "schedulingGates": st.just([{"name": "g"}]),
    "topologySpreadConstraints": st.just([{"maxSkew": 1}]),
    "volumes": st.just([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]),
    "schedulingGroup": st.just({"podGroupName": "g"}),
    "hostNetwork": st.booleans(),
    "hostUsers": st.booleans(),
    "os": st.just({"name": "linux"}),
}
STATUS = {
    "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    "conditions": CONDITIONS,
    "nominatedNodeName": st.just("n1"),
    "resourceClaimStatuses": st.just([{"name": "two", "resourceClaimName": "c2"}]),
    "extendedResourceClaimStatus": st.just({"resourceClaimName": "c3"}),
    "containerStatuses": STATUSES,
    "initContainerStatuses": STATUSES,
    "allocatedResources": AMOUNTS,
    "resources": RESOURCES,
    "nodeAllocatableResourceClaimStatuses": st.just(
        [{"resourceClaimName": "c1", "containers": ["main"], "resources": {"cpu": "2"}}]
    ),
}
META = {
    "labels": LABELS,
    "annotations": st.just({"note": "long"}),
    "creationTimestamp": st.just("2026-01-01T00:00:00Z"),
    "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
    "ownerReferences": st.just([{"kind": "Job", "name": "j", "uid": "j", "controller": True}]),
    "finalizers": st.just(["a/b"]),
}
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({}, optional=META),
        "spec": st.fixed_dictionaries({}, optional=SPEC),
        "status": st.fixed_dictionaries({}, optional=STATUS),
    }
)


def pod_json(drawn: dict[str, Any], number: int) -> dict[str, Any]:
    names = {"name": f"p{number}", "namespace": "ns", "uid": f"u{number}", "resourceVersion": "7"}
    return {**drawn, "metadata": {**drawn["metadata"], **names}}


def page(*objects: dict[str, Any]) -> bytes:
    return orjson.dumps({"metadata": {"resourceVersion": "9"}, "items": objects})


def both(kind: Kind, *objects: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Each object whole, and as it is kept."""
    whole = decode_list(kind, page(*objects)).items
    kept = PageDecoder(kind, page(*objects)).page().items
    return list(zip(whole, kept, strict=True))


# --- who reads them -------------------------------------------------------------------------------------------------------

WAITING: Any = decode_list(
    Kind.POD,
    page(pod_json({"metadata": {"labels": {"app": "a"}}, "spec": {}, "status": {}}, 99)),
).items[0]


def _indexed(pod: Pod, *, counts_claims: bool) -> Any:
    """What a node with this pod takes in, and gives back."""
    index = NodeIndex(counts_claims=counts_claims)
    index.set_node(NodeObject(metadata=msgspec.structs.replace(WAITING.metadata, name="n0")))
    index.put_pod(pod, "n0")
    info = index.infos()["n0"]
    before = dict(info.requested), info.ports
    index.remove_pod(pod.metadata.uid)
    return before, dict(index.infos()["n0"].requested)


def _by_claim(pod: Pod) -> Any:
    index = PodIndex()
    index.changed(None, pod)
    found = [index.by_claim("ns", name) for name in ("c1", "c2", "c3")]
    waiting = [each.metadata.uid for each in index.pending()]
    index.changed(pod, None)
    return found, waiting, index.by_claim("ns", "c1")


def _events(pod: Pod) -> Any:
    """What it means to waiting pods when it comes, changes and goes."""
    smaller = Pod(metadata=WAITING.metadata, spec=WAITING.spec, status=WAITING.status)
    changes = [(None, pod), (pod, None), (pod, smaller), (smaller, pod), (pod, pod)]
    return [events_of(Change(Kind.POD, old, new)) for old, new in changes]


READERS: dict[str, Callable[[Pod], Any]] = {
    "requests": assigned_pod_requests,
    "requests with devices": lambda pod: assigned_pod_requests(pod, counts_claims=True),
    "requests for scoring": scoring_requests,
    "requests for scoring with devices": lambda pod: scoring_requests(
        pod, pod.status.node_allocatable_resource_claim_statuses or ()
    ),
    "ports": host_ports,
    "repelling terms": lambda pod: len(required_terms(pod)),
    "who is repelled": lambda pod: inter_pod_affinity.repelled_from(
        WAITING, [(pod, {"zone": "a"})]
    ),
    "names of claims": lambda pod: sorted(claim_names(pod)),
    "index of nodes": lambda pod: _indexed(pod, counts_claims=False),
    "index of nodes with devices": lambda pod: _indexed(pod, counts_claims=True),
    "index of claims": _by_claim,
    "events": _events,
    "key": lambda pod: (pod.key, key_of(meta_of(pod)), is_pending(pod), pod.is_terminal),
    "digest": lambda pod: digest_of([pod]),
    # The stand-alone loop and the extender: whose it is, where it is, whether it is going.
    "owner": lambda pod: (
        pod.spec.scheduler_name,
        pod.spec.node_name,
        pod.metadata.deletion_timestamp,
        pod.spec.priority,
        pod.status.nominated_node_name,
    ),
}
# Of a pod that has ended only this is asked.
OF_ENDED = {"names of claims", "index of claims", "key", "digest"}


@pytest.mark.parametrize("reader", READERS)
@given(drawn=PODS)
def test_every_reader_says_the_same_of_a_pod_as_it_is_kept(reader, drawn):
    ((whole, kept),) = both(Kind.POD, pod_json(drawn, 1))
    if whole.is_terminal and reader not in OF_ENDED:
        return
    assert READERS[reader](kept) == READERS[reader](whole)


@given(PODS)
def test_a_watch_keeps_of_a_pod_what_a_list_keeps(drawn):
    obj = pod_json(drawn, 1)
    ((_, kept),) = both(Kind.POD, obj)
    assert decode_event(Kind.POD, orjson.dumps({"type": "ADDED", "object": obj})).object == kept


@given(PODS)
def test_waiting_pods_are_kept_but_for_annotations(drawn):
    drawn["spec"].pop("nodeName", None)
    drawn["status"]["phase"] = "Pending"
    ((whole, kept),) = both(Kind.POD, pod_json(drawn, 1))
    assert (kept.spec, kept.status) == (whole.spec, whole.status)
    assert kept.metadata == msgspec.structs.replace(whole.metadata, annotations=None)


def test_an_infeasible_resize_of_a_running_pod_is_seen():
    """Its spec does not count: fault core 06."""
    asked, actual = {"requests": {"cpu": "100"}}, {"requests": {"cpu": "1"}}
    statuses = [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": actual}]
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
    ]
    obj = pod_json(
        {
            "metadata": {},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": asked}]},
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": statuses,
            },
        },
        1,
    )
    ((_, kept),) = both(Kind.POD, obj)
    assert assigned_pod_requests(kept) == {"cpu": 1000}
    assert [each.type for each in kept.status.conditions] == ["PodResizePending"]


# --- what they read -------------------------------------------------------------------------------------------------------


class Recorder:
    """A struct that notes which of its fields are read; it passes for the struct."""

    def __init__(self, wrapped: Any, path: str, reads: set[str]) -> None:
        self.__dict__.update(_wrapped=wrapped, _path=path, _reads=reads)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__dict__["_wrapped"])

    def __getattr__(self, name: str) -> Any:
        wrapped, reads = self.__dict__["_wrapped"], self.__dict__["_reads"]
        of_class = getattr(type(wrapped), name, None)
        if isinstance(of_class, property) and of_class.fget is not None:
            return of_class.fget(self)
        path = f"{self.__dict__['_path']}.{name}".lstrip(".")
        value = getattr(wrapped, name)
        if isinstance(value, msgspec.Struct):
            return Recorder(value, path, reads)
        if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            return tuple(Recorder(each, path, reads) for each in value)
        reads.add(path)
        return value

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return id(self)


def recorded(wrapped: Any, reads: set[str]) -> Any:
    """A struct that notes in `reads` which of its fields are read."""
    return Recorder(wrapped, "", reads)


def undeclared(reads: Iterable[str], declared: Iterable[str]) -> set[str]:
    """What was read and is not kept; a list or struct of which a part is kept may be looked into."""
    kept = [path.partition("[")[0] for path in declared]
    return {
        path
        for path in reads
        if not any(f"{path}.".startswith(f"{k}.") or k.startswith(f"{path}.") for k in kept)
    }


@pytest.mark.parametrize("reader", READERS)
@given(drawn=PODS)
def test_what_readers_read_of_a_pod_is_declared(reader, drawn):
    (whole,) = decode_list(Kind.POD, page(pod_json(drawn, 1))).items
    assert isinstance(whole, Pod)
    if not whole.spec.node_name or (whole.is_terminal and reader not in OF_ENDED):
        return
    reads: set[str] = set()
    READERS[reader](recorded(whole, reads))
    declared = projection.OF_ENDED_PODS if whole.is_terminal else projection.OF_RUNNING_PODS
    assert undeclared(reads, declared) == set()


NODES = [
    {
        "metadata": {
            "name": f"n{number}",
            "uid": f"n{number}",
            "resourceVersion": "5",
            "labels": {"zone": "ab"[number]},
            "annotations": {"note": "long"},
        },
        "spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
    }
    for number in range(2)
]


def cluster(*, is_whole: bool, pods: list[dict[str, Any]]) -> ClusterCache:
    cache = ClusterCache(counts_claims=True)
    for kind, objects in ((Kind.NODE, NODES), (Kind.POD, pods)):
        found = PageDecoder(kind, page(*objects), is_whole=is_whole).page()
        cache.replace(kind, found.items, 9)
    return cache


class Showing:
    """A cache that shows another snapshot."""

    def __init__(self, cache: ClusterCache, snapshot: ClusterSnapshot) -> None:
        self._cache = cache
        self._snapshot = snapshot

    def snapshot(self) -> ClusterSnapshot:
        return self._snapshot

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def decided(cache: ClusterCache, waiting: Pod, snapshot: ClusterSnapshot, mode: Mode) -> Any:
    """What each node is to a pod, and how good."""
    reader: Any = Showing(cache, snapshot)
    state = cycle.pre_filter(waiting, reader, environment(mode))
    if isinstance(state, Status):
        return state.message
    assert isinstance(state, CycleState)
    result = cycle.filter_nodes(state)
    texts = {name: verdict.status.message for name, verdict in result.verdicts.items()}
    return texts, cycle.score_nodes(state, result.fitting)


WANTS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"labels": LABELS}),
        "spec": st.fixed_dictionaries({"containers": containers()}),
        "status": st.just({}),
    }
)


@given(st.lists(PODS, max_size=4), WANTS, st.sampled_from(list(Mode)))
def test_decisions_are_those_of_a_cache_that_keeps_everything(drawn, wants, mode):
    pods = [pod_json(each, number) for number, each in enumerate(drawn)]
    (waiting,) = decode_list(Kind.POD, page(pod_json(wants, 50))).items
    assert isinstance(waiting, Pod)
    answers, facts = [], []
    for is_whole in (True, False):
        cache = cluster(is_whole=is_whole, pods=pods)
        snapshot = cache.snapshot()
        answers.append(decided(cache, waiting, snapshot, mode))
        infos = snapshot.nodes.values()
        facts.append([(info.requested, info.ports, sorted(info.pods)) for info in infos])
        facts[-1].append([pod.metadata.uid for pod in cache.pending_pods()])  # type: ignore[arg-type]
        assert cache.recount() == []
    assert answers[0] == answers[1]
    assert facts[0] == facts[1]


@given(st.lists(PODS, max_size=3), WANTS, st.sampled_from(list(Mode)))
def test_what_a_decision_reads_of_running_pods_and_nodes_is_declared(drawn, wants, mode):
    pods = [pod_json(each, number) for number, each in enumerate(drawn)]
    (waiting,) = decode_list(Kind.POD, page(pod_json(wants, 50))).items
    assert isinstance(waiting, Pod)
    cache = cluster(is_whole=True, pods=pods)
    snapshot = cache.snapshot()
    of_pods: set[str] = set()
    of_nodes: set[str] = set()
    nodes = {
        name: replace(
            info,
            node=recorded(info.node, of_nodes),
            pods={uid: recorded(pod, of_pods) for uid, pod in info.pods.items()},
        )
        for name, info in snapshot.nodes.items()
    }
    decided(cache, waiting, replace(snapshot, nodes=nodes), mode)
    assert undeclared(of_pods, projection.OF_RUNNING_PODS) == set()
    assert undeclared(of_nodes, projection.OF_NODES) == set()


# --- the projection itself ------------------------------------------------------------------------------------------------


def test_a_path_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="no field nonsense"):
        projection.stripper(Pod, {"spec.nonsense"})


def test_stripping_one_object_changes_no_other():
    """Defaults are shared by all structs that leave a field out."""
    bare = pod_json({"metadata": {}, "spec": {"nodeName": "n1"}, "status": {}}, 1)
    both(Kind.POD, bare)
    assert Pod() == Pod(metadata=Pod().metadata, spec=Pod().spec, status=Pod().status)
    assert Pod().spec == type(Pod().spec)()


def test_events_reach_the_cache_as_they_are_kept():
    obj = pod_json({"metadata": {}, "spec": {"nodeName": "n0", "volumes": [{}]}, "status": {}}, 1)
    cache = cluster(is_whole=False, pods=[])
    event = decode_event(
        Kind.POD,
        orjson.dumps(
            {
                "type": "ADDED",
                "object": {**obj, "metadata": {**obj["metadata"], "resourceVersion": "12"}},
            }
        ),
    )
    cache.apply(WatchEvent(Kind.POD, EventType.ADDED, event.object, 12))
    kept = cache.pod("u1")
    assert kept is not None
    assert kept.spec.volumes is None
