"""Whatever happens, in whatever order: the indexes are what a count of plain dicts gives, and old snapshots hold."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocator.model.claims import DeviceRequestAllocationResult
from allocator.snapshot import AllocatedState
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.framework.resources import assigned_pod_requests
from scheduler.model import Kind, PodStatus
from tests.builders import allocated_claim, used
from tests.pods import node_object, pod
from tests.scheduler.cache.objects import allocation, at, record

CLAIMS, PODS, NODES = ("c1", "c2", "c3"), ("p1", "p2", "p3"), ("n1", "n2")
RESULTS = (
    used("d1"),
    used("d2"),
    used("d1", pool="pool-2"),
    used("d3", share="s1", consumed={"mem": "1Gi"}),
    used("d3", share="s2", consumed={"mem": "2Gi", "cores": "1"}),
    used("d2", admin=True),
)
results = st.lists(st.sampled_from(RESULTS), max_size=3, unique_by=id)
REQUESTS: tuple[dict[str, str], ...] = (
    {},
    {"cpu": "1"},
    {"cpu": "2", "memory": "1Gi"},
    {"example.com/x": "3"},
)


def freeze(snapshot):
    return (
        dict(snapshot.devices.allocated.pools),
        {
            name: (dict(info.pods), dict(info.requested), info.ports)
            for name, info in snapshot.nodes.items()
        },
    )


class ClusterMachine(RuleBasedStateMachine):
    """Claims and pods come, change, end and go; decisions are held, written, seen, given up."""

    def __init__(self):
        super().__init__()
        self.cache = ClusterCache()
        self.version = 0
        self.watched = {}  # claim name -> record
        self.assumed = {}  # claim name -> record
        self.held = {}  # pod name -> {claim name: results}
        self.pods = {}  # pod name -> pod
        self.placed = {}  # pod name -> node, decided and not seen
        self.nodes = {}
        self.taken = []  # (snapshot, what it was)

    def next(self):
        self.version += 1
        return self.version

    def apply(self, kind, type_, item):
        self.cache.apply(WatchEvent(kind, type_, item, self.version))

    def drop_reached_claims(self):
        self.assumed = {}  # every event of ours is newer than every write before it

    @rule(name=st.sampled_from(CLAIMS), held=results)
    def claim_event(self, name, held):
        self.watched[name] = record(name, self.next(), *held)
        self.apply(Kind.RESOURCE_CLAIM, EventType.MODIFIED, self.watched[name])
        self.drop_reached_claims()

    @rule(name=st.sampled_from(CLAIMS))
    def claim_deleted(self, name):
        self.next()
        self.watched.pop(name, None)
        self.apply(Kind.RESOURCE_CLAIM, EventType.DELETED, record(name, self.version))
        self.drop_reached_claims()

    @rule(name=st.sampled_from(CLAIMS), held=results)
    def claim_assumed(self, name, held):
        self.assumed[name] = record(name, self.next(), *held)
        self.cache.assume_claim(self.assumed[name])

    @rule(name=st.sampled_from(CLAIMS))
    def claim_restored(self, name):
        self.assumed.pop(name, None)
        self.cache.restore_claim(f"uid-{name}")

    @rule(keep=st.sets(st.sampled_from(CLAIMS)))
    def claims_listed(self, keep):
        self.watched = {name: item for name, item in self.watched.items() if name in keep}
        self.cache.replace(Kind.RESOURCE_CLAIM, list(self.watched.values()), self.next())
        self.drop_reached_claims()

    @rule(name=st.sampled_from(PODS), wanted=st.dictionaries(st.sampled_from(CLAIMS), results))
    def hold(self, name, wanted):
        self.held[name] = wanted
        self.cache.hold(
            f"uid-{name}",
            {f"uid-{c}": (record(c, 1).claim, allocation(*held)) for c, held in wanted.items()},
        )

    @rule(name=st.sampled_from(PODS))
    def release(self, name):
        self.held.pop(name, None)
        self.cache.release(f"uid-{name}")

    @rule(
        name=st.sampled_from(PODS),
        requests=st.sampled_from(REQUESTS),
        node=st.sampled_from(("", *NODES)),
        phase=st.sampled_from(("Pending", "Running", "Succeeded")),
    )
    def pod_event(self, name, requests, node, phase):
        item = at(
            pod(name, requests=requests, node_name=node, status=PodStatus(phase=phase)), self.next()
        )
        self.pods[name] = item
        if node or item.is_terminal:
            self.placed.pop(name, None)
        self.apply(Kind.POD, EventType.MODIFIED, item)

    @rule(name=st.sampled_from(PODS))
    def pod_deleted(self, name):
        self.next()
        self.pods.pop(name, None)
        self.placed.pop(name, None)
        self.apply(Kind.POD, EventType.DELETED, at(pod(name), self.version))

    @precondition(lambda self: any(not item.spec.node_name for item in self.pods.values()))
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def pod_assumed(self, data, node):
        waiting = [n for n, item in self.pods.items() if not item.spec.node_name]
        name = data.draw(st.sampled_from(sorted(waiting)))
        if not self.pods[name].is_terminal:
            self.placed[name] = node
            self.cache.assume_pod(self.pods[name], node)

    @rule(name=st.sampled_from(PODS))
    def pod_forgotten(self, name):
        self.placed.pop(name, None)
        self.cache.forget_pod(f"uid-{name}")

    @rule(name=st.sampled_from(NODES), is_there=st.booleans())
    def node_event(self, name, is_there):
        item = at(node_object(name), self.next())
        if is_there:
            self.nodes[name] = item
        else:
            self.nodes.pop(name, None)
        self.apply(Kind.NODE, EventType.MODIFIED if is_there else EventType.DELETED, item)

    @rule()
    def take_snapshot(self):
        snapshot = self.cache.snapshot()
        self.taken.append((snapshot, freeze(snapshot)))

    @invariant()
    def devices_in_use_are_those_of_the_claims(self):
        united: dict[str, dict[object, DeviceRequestAllocationResult]] = {}
        for name, item in {**self.watched, **self.assumed}.items():
            if item.claim.status.allocation is not None:
                united.setdefault(name, {}).update(
                    {
                        (r.device_id, r.share_id, r.admin_access): r
                        for r in item.claim.status.allocation.devices.results or ()
                    }
                )
        for wanted in self.held.values():
            for name, held in wanted.items():
                united.setdefault(name, {}).update(
                    {(r.device_id, r.share_id, r.admin_access): r for r in held}
                )
        expected = AllocatedState.from_claims(
            allocated_claim(name, *uses.values()) for name, uses in united.items()
        )
        assert dict(self.cache.snapshot().devices.allocated.pools) == dict(expected.pools)

    @invariant()
    def what_runs_on_nodes_is_that_of_the_pods(self):
        snapshot = self.cache.snapshot()
        assert list(snapshot.nodes) == sorted(self.nodes)
        for node_name, info in snapshot.nodes.items():
            here = {
                item.metadata.uid: item
                for name, item in self.pods.items()
                if (item.spec.node_name or self.placed.get(name)) == node_name
                and not item.is_terminal
            }
            total: dict[str, int] = {}
            for item in here.values():
                for resource, amount in assigned_pod_requests(item).items():
                    total[resource] = total.get(resource, 0) + amount
            assert info.pods == here
            assert dict(info.requested) == total

    @invariant()
    def waiting_pods_are_those_without_node_that_nobody_binds(self):
        assert {item.metadata.name for item in self.cache.pending_pods()} == {
            name
            for name, item in self.pods.items()
            if not item.spec.node_name and not item.is_terminal and name not in self.placed
        }

    @invariant()
    def old_snapshots_hold(self):
        for snapshot, was in self.taken[-5:]:
            assert freeze(snapshot) == was

    def teardown(self):
        assert self.cache.recount() == []


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
