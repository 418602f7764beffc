"""What cannot be read stays what it was: held devices held, running pods counted, pools shut, taints on (fault core 03)."""

from typing import Any

import orjson
import pytest

from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.api.decode import PageDecoder, decode_event
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.framework.events import Event, events_of
from scheduler.framework.status import Status
from scheduler.model import Change, Kind, UnreadableClaim, UnreadablePod
from tests.scheduler.world import environment

DRIVER = "gpu.example.com"


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", **more}


def claim(name: str, *devices: str, **spec: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    results = [{"request": "r", "driver": DRIVER, "pool": "n1", "device": each} for each in devices]
    return {
        "metadata": meta(name, namespace="default"),
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}, **spec},
        "status": {"allocation": {"devices": {"results": results}}} if devices else {},
    }


def pod(name: str, node: str = "", cpu: Any = "1", **status: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    return {
        "metadata": meta(name, namespace="default"),
        "spec": {
            "nodeName": node,
            "schedulerName": "dra-scheduler",
            "containers": [{"name": "main", "resources": resources}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
        },
        "status": {"phase": "Running" if node else "Pending", **status},
    }


def node(name: str = "n1", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "8", "pods": "110"}
    return {"metadata": meta(name), "spec": spec, "status": {"allocatable": allocatable}}


def slice_of(
    name: str = "n1", *devices: Any, generation: int = 1, count: int = 1
) -> dict[str, Any]:
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": count}
    named = [{"name": each} if isinstance(each, str) else each for each in devices]
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": named}
    return {"metadata": meta(name), "spec": spec}


def device_class(**spec: Any) -> dict[str, Any]:
    return {"metadata": meta("gpu"), "spec": spec}


def rule(**spec: Any) -> dict[str, Any]:
    taint = {"key": "sick", "effect": "NoSchedule"}
    return {
        "metadata": meta("rule"),
        "spec": {"deviceSelector": {"device": "x"}, "taint": taint} | spec,
    }


class Fed:
    """A cache, filled with JSON as a reflector fills it."""

    def __init__(self) -> None:
        self.cache = ClusterCache()
        self.version = 0
        self.changes: list[Change] = []
        self.cache.subscribe(self.changes.append)

    def _versioned(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**obj, "metadata": {"resourceVersion": str(self.version), **obj["metadata"]}}

    def take(self, kind: Kind, obj: dict[str, Any], type_: str = "MODIFIED") -> None:
        line = orjson.dumps({"type": type_, "object": self._versioned(obj)})
        event = decode_event(kind, line)
        assert event.resource_version == str(self.version)
        type_of = EventType(type_) if event.object is not None else EventType.BOOKMARK
        self.cache.apply(WatchEvent(kind, type_of, event.object, self.version))

    def listed(self, kind: Kind, *objects: dict[str, Any]) -> None:
        """A list that replaces everything; `resourceVersion` is kept where it is given."""
        items = [self._versioned(each) for each in objects]
        body = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        page = PageDecoder(kind, orjson.dumps(body)).page()
        remains = [each.remains for each in page.refused if each.remains is not None]
        self.cache.replace(kind, [*page.items, *remains], self.version)

    @property
    def held(self) -> set[str]:
        """Devices that nobody else can have."""
        pools = self.cache.snapshot().devices.allocated.pools
        return {device for usage in pools.values() for device in usage.devices}

    def attempt(self, name: str, mode: Mode = Mode.STANDALONE) -> str | None:
        """Where a pod would go; or why not, as the text of a refusal with its kind."""
        waiting = self.cache.pod_by_name("default", name)
        assert waiting is not None
        state = cycle.pre_filter(waiting, self.cache, environment(mode))
        if isinstance(state, Status):
            assert state.reason is not None
            return f"{state.reason.kind}: {state.message}"
        assert isinstance(state, CycleState)
        result = cycle.filter_nodes(state)
        if result.failure is not None:
            reason = result.failure.reason
            return f"{ReasonKind.UNSUPPORTED if reason is None else reason.kind}: {result.failure.message}"
        return next(iter(result.fitting))


@pytest.fixture
def fed() -> Fed:
    """One node with devices x and y, and a pod that waits for one of them."""
    made = Fed()
    made.take(Kind.NODE, node())
    made.take(Kind.DEVICE_CLASS, device_class())
    made.take(Kind.RESOURCE_SLICE, slice_of("n1", "x", "y"))
    made.take(Kind.RESOURCE_CLAIM, claim("waiting-gpu"))
    made.take(Kind.POD, pod("waiting"))
    assert made.attempt("waiting") == "n1"
    return made


# --- claims ---------------------------------------------------------------------------------------------------------------

WRONG_STATUS: Any = [
    {"allocation": 7},
    {"allocation": {"devices": {"results": 7}}},
    {"allocation": {"devices": {"results": [{"device": 7, "driver": DRIVER, "pool": "n1"}]}}},
    7,
]


@pytest.mark.parametrize("status", WRONG_STATUS)
def test_what_a_claim_held_before_it_could_not_be_read_stays_held(fed, status):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    bad = {**claim("a"), "status": status}
    fed.take(Kind.RESOURCE_CLAIM, bad)
    assert "x" in fed.held
    assert fed.cache.unreadable_count() == 1
    fed.listed(Kind.RESOURCE_CLAIM, claim("waiting-gpu"), bad)
    assert "x" in fed.held
    assert fed.cache.recount() == []
    fed.cache.rebuild()
    assert "x" in fed.held

    fed.take(Kind.RESOURCE_CLAIM, claim("a"))  # readable again, and free
    assert (fed.held, fed.cache.unreadable_count()) == (set(), 0)


def test_what_a_claim_holds_that_was_never_seen_before_is_held_as_far_as_it_can_be_read(fed):
    results = [*claim("a", "x")["status"]["allocation"]["devices"]["results"], {"device": 7}]
    bad = {**claim("a"), "status": {"allocation": {"devices": {"results": results}}}}
    fed.listed(Kind.RESOURCE_CLAIM, bad, claim("waiting-gpu"))
    assert "x" in fed.held
    fed.take(Kind.RESOURCE_CLAIM, bad, "DELETED")
    assert (fed.held, fed.cache.unreadable_count()) == (set(), 0)


def test_a_claim_whose_spec_is_wrong_holds_what_its_status_says_now(fed):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "y", devices=7))
    assert fed.held == {"y"}
    fed.take(Kind.RESOURCE_CLAIM, claim("a", devices=7))
    assert fed.held == set()


def test_old_and_new_devices_are_held_when_either_may_be_true(fed):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    results = [*claim("a", "y")["status"]["allocation"]["devices"]["results"], 7]
    fed.take(
        Kind.RESOURCE_CLAIM,
        {**claim("a"), "status": {"allocation": {"devices": {"results": results}}}},
    )
    assert fed.held == {"x", "y"}


def test_what_our_own_write_returned_counts_when_the_watch_brings_something_unreadable(fed):
    fed.take(Kind.RESOURCE_CLAIM, claim("a"))
    other = Fed()
    other.version = 99
    other.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    ours = other.cache.claim_by_uid("uid-a")
    assert ours is not None
    fed.cache.assume_claim(ours)
    fed.version = 200
    fed.take(Kind.RESOURCE_CLAIM, {**claim("a"), "status": {"allocation": 7}})
    assert "x" in fed.held


def test_another_claim_under_the_same_name_inherits_nothing(fed):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    new = {**claim("a"), "status": {"allocation": 7}}
    new["metadata"] = {**new["metadata"], "uid": "another"}
    fed.take(Kind.RESOURCE_CLAIM, new)
    assert fed.held == set()


@pytest.mark.parametrize("field", ["uid", "name", "namespace"])
@pytest.mark.parametrize("type_", ["MODIFIED", "DELETED"])
def test_an_event_without_readable_name_or_uid_is_about_the_claim_that_has_the_other(
    fed, field, type_
):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    bad = claim("a", "y")
    bad["metadata"][field] = 7
    fed.take(Kind.RESOURCE_CLAIM, bad, type_)
    assert fed.held == ({"y"} if type_ == "MODIFIED" else set())
    assert [each.metadata.name for each in fed.cache.claims()].count("a") == (type_ == "MODIFIED")


def test_an_event_about_nobody_changes_nothing_and_the_version_goes_on(fed):
    bad = claim("a", "x")
    bad["metadata"] = {"name": 7, "uid": 7}
    for type_ in ("ADDED", "DELETED"):
        fed.take(Kind.RESOURCE_CLAIM, bad, type_)
    assert fed.held == set()
    assert fed.cache.resource_version(Kind.RESOURCE_CLAIM) == fed.version


@pytest.mark.parametrize("mode", list(Mode))
def test_a_pod_that_needs_an_unreadable_claim_is_told_which_and_why_in_a_constant_text(fed, mode):
    bad = claim("waiting-gpu", devices={"requests": 7})
    text = (
        "InvalidClaim: resourceclaim 'waiting-gpu' cannot be read: spec.devices.requests:"
        " expected a list, got a whole number"
    )
    for _ in range(2):
        fed.take(Kind.RESOURCE_CLAIM, bad)
        assert fed.attempt("waiting", mode) == text
    assert isinstance(fed.cache.claim("default", "waiting-gpu"), UnreadableClaim)
    fed.changes.clear()
    fed.take(Kind.RESOURCE_CLAIM, claim("waiting-gpu"))
    assert fed.attempt("waiting", mode) == "n1"
    assert [events_of(change) for change in fed.changes] == [Event.CLAIM_CHANGED]


# --- pods -----------------------------------------------------------------------------------------------------------------


def requested(fed: Fed) -> dict[str, int]:
    return dict(fed.cache.snapshot().nodes["n1"].requested)


def test_a_running_pod_that_cannot_be_read_counts_what_it_counted(fed):
    fed.take(Kind.POD, pod("a", "n1", cpu="3"))
    for bad in (pod("a", "n1", cpu=True), {**pod("a", "n1"), "spec": 7}):
        fed.take(Kind.POD, bad)
        assert requested(fed) == {"cpu": 3000}
        assert [each.metadata.name for each in fed.cache.pods_by_claim("default", "a-gpu")] == ["a"]
    fed.listed(Kind.POD, pod("waiting"), {**pod("a", "n1"), "spec": 7})
    assert requested(fed) == {"cpu": 3000}
    assert fed.cache.recount() == []
    fed.take(Kind.POD, pod("a", "n1", cpu="2"))
    assert requested(fed) == {"cpu": 2000}


def test_a_running_pod_never_seen_before_counts_as_far_as_it_can_be_read(fed):
    bad = pod("a", "n1", cpu="3")
    bad["spec"]["containers"].append({"name": "other", "resources": {"requests": {"cpu": {}}}})
    fed.listed(Kind.POD, pod("waiting"), bad)
    assert requested(fed) == {"cpu": 3000}
    assert [each.metadata.name for each in fed.cache.pods_by_claim("default", "a-gpu")] == ["a"]


def test_a_pod_that_ended_or_went_counts_no_more_even_if_it_cannot_be_read(fed):
    for name in ("a", "b"):
        fed.take(Kind.POD, pod(name, "n1", cpu="3"))
    ended = pod("a", "n1", cpu=True, phase="Succeeded")
    fed.take(Kind.POD, ended)
    assert requested(fed) == {"cpu": 3000}
    fed.take(Kind.POD, pod("b", "n1", cpu=True), "DELETED")
    assert requested(fed) == {}


def test_a_pod_seen_bound_by_an_unreadable_event_counts_on_its_node(fed):
    fed.take(Kind.POD, {**pod("waiting", "n1"), "status": {"conditions": 7, "phase": "Running"}})
    assert requested(fed) == {"cpu": 1000}
    bad = pod("waiting", "n1")
    bad["spec"]["containers"] = 7
    fed.take(Kind.POD, bad)
    assert requested(fed) == {"cpu": 1000}


@pytest.mark.parametrize("mode", list(Mode))
def test_a_waiting_pod_that_cannot_be_read_is_not_placed_and_told_why(fed, mode):
    fed.take(Kind.POD, pod("waiting", cpu=True))
    assert isinstance(fed.cache.pod_by_name("default", "waiting"), UnreadablePod)
    assert fed.attempt("waiting", mode) == (
        'Unsupported: the pod cannot be read: spec.containers[0].resources.requests["cpu"]:'
        " expected a quantity, got a boolean"
    )


# --- nodes, slices, classes, rules ----------------------------------------------------------------------------------------


def test_nothing_is_put_on_a_node_that_cannot_be_read_and_its_pods_stay_counted(fed):
    fed.take(Kind.POD, pod("a", "n1", cpu="3"))
    for _ in range(2):
        fed.take(Kind.NODE, node(taints=7))
        assert fed.attempt("waiting") == "NoNodes: no nodes available to schedule pods"
    fed.listed(Kind.NODE, node(taints=7))
    assert fed.attempt("waiting") == "NoNodes: no nodes available to schedule pods"
    assert fed.cache.recount() == []
    fed.changes.clear()
    fed.take(Kind.NODE, node())
    assert fed.attempt("waiting") == "n1"
    assert requested(fed) == {"cpu": 3000}
    assert [events_of(change) for change in fed.changes] == [Event.NODE_ADDED]


UPDATING = (
    "PoolIncomplete: claim default/waiting-gpu, request r: a resource pool with matching devices is"
    " being updated"
)
WRONG_SLICES: Any = [
    slice_of("n1", "x", {"name": 7}),
    slice_of("n1", "x", "y", {"name": "z", "capacity": {"m": {}}}),
    {**slice_of("n1", "x"), "spec": 7},
    {**slice_of("n1", "x"), "spec": {**slice_of("n1", "x")["spec"], "pool": 7}},
    {**slice_of("n1", "x"), "spec": {**slice_of("n1", "x")["spec"], "nodeName": 7}},
]


@pytest.mark.parametrize("bad", WRONG_SLICES)
def test_nothing_new_comes_from_the_pool_of_a_slice_that_cannot_be_read(fed, bad):
    fed.take(Kind.RESOURCE_CLAIM, claim("a", "x"))
    for take in (fed.take, fed.listed):
        take(Kind.RESOURCE_SLICE, bad)
        assert fed.attempt("waiting") == UPDATING
        assert fed.held == {"x"}
    fed.take(Kind.RESOURCE_SLICE, slice_of("n1", "x", "y"))
    assert fed.attempt("waiting") == "n1"


def test_a_slice_never_seen_before_that_cannot_be_read_shuts_its_pool(fed):
    fed.take(Kind.RESOURCE_SLICE, slice_of("other", {"name": 7}, count=2))
    assert fed.attempt("waiting") == UPDATING
    fed.take(Kind.RESOURCE_SLICE, slice_of("other", {"name": 7}, count=2), "DELETED")
    assert fed.attempt("waiting") == "n1"


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_allocated_through_a_class_that_cannot_be_read(fed, mode):
    for take in (fed.take, fed.listed):
        take(Kind.DEVICE_CLASS, device_class(selectors=[{"cel": 7}]))
        assert fed.attempt("waiting", mode) == (
            "DeviceClassNotFound: request r: device class gpu cannot be read: spec.selectors[0].cel:"
            " expected an object, got a whole number"
        )
    fed.take(Kind.DEVICE_CLASS, device_class())
    assert fed.attempt("waiting", mode) == "n1"


def test_the_extended_resource_of_a_class_that_cannot_be_read_is_still_backed_by_it(fed):
    fed.take(Kind.DEVICE_CLASS, device_class(extendedResourceName="example.com/gpu"))
    fed.take(Kind.DEVICE_CLASS, device_class(extendedResourceName=7))
    classes = fed.cache.snapshot().devices.classes
    assert classes["gpu"].spec.extended_resource_name == "example.com/gpu"


def tainted(fed: Fed) -> list[str]:
    devices = fed.cache.snapshot().devices
    return [
        device.name
        for prepared in devices.slices
        for device in prepared.slice.spec.devices or ()
        if device.taints
    ]


@pytest.mark.parametrize(
    ("spec", "after"),
    [
        ({"taint": 7}, ["x"]),
        ({"taint": {"key": "sick", "effect": 7}}, ["x"]),
        ({"deviceSelector": 7}, ["x"]),
        ({"deviceSelector": {"device": 7}}, ["x", "y"]),
        ({"deviceSelector": {"device": "y"}, "taint": {"value": 7, "effect": "NoSchedule"}}, ["y"]),
    ],
)
def test_a_rule_that_cannot_be_read_untaints_nothing_that_it_may_be_meant_for(fed, spec, after):
    fed.take(Kind.DEVICE_TAINT_RULE, rule())
    assert tainted(fed) == ["x"]
    for take in (fed.take, fed.listed):
        take(Kind.DEVICE_TAINT_RULE, rule(**spec))
        assert tainted(fed) == after
    fed.take(Kind.DEVICE_TAINT_RULE, rule(**spec), "DELETED")
    assert tainted(fed) == []


def test_a_rule_never_seen_before_that_cannot_be_read_taints_all_it_may_be_meant_for(fed):
    fed.listed(Kind.DEVICE_TAINT_RULE, rule(deviceSelector=7))
    assert tainted(fed) == ["x", "y"]
    assert fed.attempt("waiting") == (
        "DeviceTainted: claim default/waiting-gpu, request r: matching devices have taints that are"
        " not tolerated"
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_an_unreadable_object_is_counted_until_it_heals_or_goes(kind):
    fed = Fed()
    bad = {"metadata": meta("a"), "spec": 7}
    fed.take(kind, bad)
    fed.listed(kind, bad)
    assert fed.cache.unreadable_count() == 1
    fed.take(kind, bad, "DELETED")
    assert fed.cache.unreadable_count() == 0
    fed.take(kind, bad)
    fed.take(kind, {"metadata": meta("a")})
    assert fed.cache.unreadable_count() == 0
    assert fed.cache.resource_version(kind) == fed.version
