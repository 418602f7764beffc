"""Another writer takes what we are about to give: nobody notices before both have written, and one has to give way.

fault core 08: the look after writing (W3) saw devices given twice, not counters, capacities and groups. What has to give
way is tried case by case in `tests/scheduler/cache/test_conflicts.py`; here is what a bind makes of it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.api.decode import decode_list
from scheduler.binder import BindOutcome
from scheduler.client import WriteOutcome
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import Plan, plan_of
from scheduler.model import FINALIZER, Kind
from tests.scheduler.embedded import DRIVER, NAMESPACE, World, claims_path, pods_path, world

Object = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def takes(memory: str, *groups: str) -> list[Object]:
    entry = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
    return [entry | ({"compatibilityGroups": list(groups)} if groups else {})]


def shared(value: str, default: str, **more: Any) -> Object:
    policy = {"default": default, "validRange": {"min": "1", "max": value}}
    return {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": value, "requestPolicy": policy}},
        **more,
    }


@dataclass(frozen=True, kw_only=True)
class Case:
    """Our pod gets the first device; the other writer takes `theirs`. `both`: there is enough for both."""

    id: str
    devices: list[Object]
    theirs: Object
    both: bool = False
    gates: dict[str, bool] = field(default_factory=dict)


ID = "00000000-0000-4000-8000-0000000000aa"
FIRST_OF_OURS = "00000000-0000-4000-8000-000000000001"
SHARE = {"shareID": ID, "consumedCapacity": {"memory": "6"}}
CASES = [
    Case(
        id="partitions of one card",
        devices=[
            {"name": "p0", "consumesCounters": takes("6")},
            {"name": "p1", "consumesCounters": takes("6")},
        ],
        theirs={"device": "p1"},
    ),
    Case(
        id="a partition, and the whole card",
        devices=[
            {"name": "p0", "consumesCounters": takes("1")},
            {"name": "whole", "consumesCounters": takes("10")},
        ],
        theirs={"device": "whole"},
    ),
    Case(
        id="partitions that fit",
        devices=[
            {"name": "p0", "consumesCounters": takes("6")},
            {"name": "p1", "consumesCounters": takes("4")},
        ],
        theirs={"device": "p1"},
        both=True,
    ),
    Case(
        id="partitions of different groups",
        devices=[
            {"name": "p0", "consumesCounters": takes("1", "x")},
            {"name": "p1", "consumesCounters": takes("1", "y")},
        ],
        theirs={"device": "p1"},
        gates={"DRADeviceCompatibilityGroups": True},
    ),
    Case(
        id="shares of one device",
        devices=[{"name": "d0", **shared("10", "6")}],
        theirs={"device": "d0", **SHARE},
    ),
    Case(
        id="shares that fit",
        devices=[{"name": "d0", **shared("12", "6")}],
        theirs={"device": "d0", **SHARE},
        both=True,
    ),
    Case(
        id="one share twice",
        devices=[{"name": "d0", **shared("12", "6")}],
        theirs={"device": "d0", **SHARE, "shareID": FIRST_OF_OURS},
    ),
    Case(
        id="a share, and all of it",
        devices=[{"name": "d0", **shared("12", "6")}],
        theirs={"device": "d0"},
    ),
    Case(
        id="a share that is a partition",
        devices=[
            {"name": "d0", **shared("99", "6", consumesCounters=takes("6"))},
            {"name": "p1", "consumesCounters": takes("6")},
        ],
        theirs={"device": "p1"},
    ),
    Case(
        id="two shares of one partition",
        devices=[{"name": "d0", **shared("99", "6", consumesCounters=takes("6"))}],
        theirs={"device": "d0", **SHARE},
        both=True,
    ),
    Case(
        id="shares of a device that stands for cpu",
        devices=[
            {
                "name": "d0",
                **shared("10", "6"),
                "nodeAllocatableResources": {
                    "cpu": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "100m"}}
                },
            }
        ],
        theirs={"device": "d0", **SHARE},
        gates={"DRANodeAllocatableResources": True},
    ),
    Case(
        id="without the gate a share is all of a device",
        devices=[{"name": "d0"}, {"name": "d1"}],
        theirs={"device": "d0", "shareID": ID},
        gates={"DRAConsumableCapacity": False},
    ),
]


async def publish(here: World, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-1",
            "pool": {"name": "card", "generation": 1, "resourceSliceCount": 2},
            **spec,
        },
    }
    await here.create(SLICES, body)


async def set_card(here: World, memory: str) -> None:
    """The driver publishes other counters."""
    found = await here.get(f"{SLICES}/counters")
    found["spec"]["sharedCounters"] = counters(memory)
    await here.put(f"{SLICES}/counters", found)


def counters(memory: str) -> list[Object]:
    return [{"name": "card", "counters": {"memory": {"value": memory}}}]


async def cluster(here: World, devices: list[Object]) -> None:
    await here.device_class()
    await here.node("node-1")
    await publish(here, "counters", sharedCounters=counters("10"))
    await publish(here, "parts", devices=devices)
    await here.settled()


async def decide(here: World, name: str) -> Plan:
    pod = await here.known_pod(name)
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState), state
    verdict = cycle.filter_node(state, state.snapshot.nodes["node-1"])
    assert verdict.fits, verdict.status
    return plan_of(state, "node-1", verdict)


async def carry_out(here: World, decision: Plan) -> BindOutcome:
    outcome = await here.binder.wait(here.binder.start(decision))
    await here.settled()
    return outcome


async def take(here: World, name: str, result: Object, pod: str = "") -> None:
    """The other writer allocates a claim; with a pod it reserves it too, and binds the pod."""
    stored = await here.get(claims_path(name))
    stored["metadata"]["finalizers"] = [FINALIZER]
    stored = await here.put(claims_path(name), stored)
    whole = {"request": "gpu", "driver": DRIVER, "pool": "card", **result}
    stored["status"] = {"allocation": {"devices": {"results": [whole]}}}
    if pod:
        uid = (await here.get(pods_path(pod)))["metadata"]["uid"]
        stored["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": uid}]
    await here.put(claims_path(name, "status"), stored)
    if pod:
        await bind_to(here, pod, "node-1")


async def bind_to(here: World, pod: str, node: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": NAMESPACE},
        "target": {"kind": "Node", "name": node},
    }
    await here.create(pods_path(pod, "binding"), body)


def after_allocating(here: World, claim: str, do: Callable[[], Awaitable[None]]) -> None:
    """Do something right after our allocation of a claim is written, before anybody here has seen it."""
    pending = [True]

    async def fault(method: str, path: str, body: bytes) -> WriteOutcome | None:
        if not (pending and method == "PUT" and path == claims_path(claim, "status")):
            return None
        pending.clear()
        answer = await here.client.send(method, path, body)
        await do()
        return answer

    here.client.faults.append(fault)


async def node_of(here: World, pod: str) -> str:
    found: str = (await here.get(pods_path(pod)))["spec"].get("nodeName", "")
    return found


async def allocation(here: World, name: str) -> Object | None:
    status: Object = (await here.get(claims_path(name))).get("status") or {}
    return status.get("allocation")


async def pods_and_claims(here: World, *names: str) -> None:
    """Claims, and a pod for each."""
    for name in names:
        await here.claim(name)
        await here.pod(f"pod-{name}", name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_who_wrote_later_gives_way(case: Case) -> None:
    async with world(**case.gates) as here:
        await cluster(here, case.devices)
        await pods_and_claims(here, "ours", "theirs")
        decision = await decide(here, "pod-ours")
        await take(here, "theirs", case.theirs, "pod-theirs")

        outcome = await carry_out(here, decision)
        assert outcome.is_bound is case.both
        assert await node_of(here, "pod-ours") == ("node-1" if case.both else "")
        assert (await allocation(here, "ours") is not None) is case.both
        assert await node_of(here, "pod-theirs") == "node-1"
        assert len(here.conflicts) == (0 if case.both else 1)
        if not case.both:
            assert outcome.reason is not None
            assert outcome.reason.kind is ReasonKind.WRITE_CONFLICT
            assert outcome.reason.claim == "ours"
            assert "theirs" not in outcome.reason.message
        assert here.cache.in_flight_claims == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_who_wrote_first_stays_and_says_that_the_other_is_one_too_many(case: Case) -> None:
    async with world(**case.gates) as here:
        await cluster(here, case.devices)
        await pods_and_claims(here, "ours", "theirs")
        after_allocating(here, "ours", lambda: take(here, "theirs", case.theirs))

        outcome = await carry_out(here, await decide(here, "pod-ours"))
        assert outcome.is_bound
        uid = (await here.get(claims_path("theirs")))["metadata"]["uid"]
        told = {(conflict.other_uid, conflict.other_is_earlier) for conflict in here.conflicts}
        assert told == (set() if case.both else {(uid, False)})
        seen = here.cache.double_allocations()
        assert {each.claim_uid for each in seen if each.other_is_earlier} == (
            set() if case.both else {uid}
        )


PARTS = [{"name": f"p{number}", "consumesCounters": takes("4")} for number in range(3)]
BIG = {"name": "p9", "consumesCounters": takes("9")}


async def test_of_three_writers_the_third_gives_way() -> None:
    async with world() as here:
        await cluster(here, PARTS)
        await pods_and_claims(here, "ours", "second", "third")
        decision = await decide(here, "pod-ours")
        await take(here, "second", {"device": "p1"}, "pod-second")
        await take(here, "third", {"device": "p2"}, "pod-third")
        assert not (await carry_out(here, decision)).is_bound
        assert await allocation(here, "ours") is None


LISTS = {
    Kind.NODE: "/api/v1/nodes",
    Kind.POD: "/api/v1/pods",
    Kind.RESOURCE_CLAIM: "/apis/resource.k8s.io/v1/resourceclaims",
    Kind.RESOURCE_SLICE: SLICES,
    Kind.DEVICE_CLASS: "/apis/resource.k8s.io/v1/deviceclasses",
}


async def list_all(here: World) -> None:
    for kind, path in LISTS.items():
        page = decode_list(kind, await here.admin.get(path))
        here.cache.replace(kind, page.items, int(page.resource_version))


async def test_a_list_in_between_hides_the_order_and_we_give_way() -> None:
    here = World()  # its cache sees lists, and no watch
    await cluster(here, [PARTS[0], BIG])
    await pods_and_claims(here, "ours", "theirs")
    await list_all(here)

    async def theirs_then_list() -> None:
        await take(here, "theirs", {"device": "p9"})
        await list_all(here)

    after_allocating(here, "ours", theirs_then_list)
    assert not (await carry_out(here, await decide(here, "pod-ours"))).is_bound
    assert await allocation(here, "ours") is None
    assert [conflict.other_is_earlier for conflict in here.conflicts] == [True]


async def test_a_second_pod_of_a_claim_is_no_second_user() -> None:
    async with world() as here:
        await cluster(here, PARTS[:1])
        await here.claim("c")
        await here.pod("one", "c")
        await here.pod("two", "c")
        assert (await carry_out(here, await decide(here, "one"))).is_bound
        assert (await carry_out(here, await decide(here, "two"))).is_bound
        assert here.conflicts == []


async def test_a_claim_that_another_writer_allocated_too_late_is_not_joined() -> None:
    """Its writer is about to take it back: whoever came to share it has to go too."""
    async with world() as here:
        await cluster(here, [PARTS[0], BIG])
        await pods_and_claims(here, "ours", "theirs")
        await take(here, "ours", {"device": "p9"}, "pod-ours")
        await take(here, "theirs", {"device": "p0"})
        assert not (await carry_out(here, await decide(here, "pod-theirs"))).is_bound
        assert await node_of(here, "pod-theirs") == ""


async def test_what_the_driver_does_not_offer_any_more_is_given_up() -> None:
    """Fault kind F22: nobody else is there, and it is nobody's foreign allocation."""
    async with world() as here:
        await cluster(here, PARTS[:1])
        await pods_and_claims(here, "ours")
        after_allocating(here, "ours", lambda: set_card(here, "3"))
        outcome = await carry_out(here, await decide(here, "pod-ours"))
        assert outcome.reason is not None
        assert outcome.reason.message == (
            "claim ours: more is in use than there is of counter memory of counter set card"
            f" in pool {DRIVER}/card"
        )
        assert here.conflicts == []
        assert await allocation(here, "ours") is None


async def test_a_claim_in_use_stays_and_is_shared_when_the_driver_offers_less() -> None:
    async with world() as here:
        await cluster(here, PARTS)
        await here.claim("c")
        await here.claim("more")
        await here.pod("one", "c")
        await here.pod("two", "c")
        await here.pod("three", "more")
        assert (await carry_out(here, await decide(here, "one"))).is_bound
        decision = await decide(here, "three")
        await set_card(here, "3")
        assert (await carry_out(here, await decide(here, "two"))).is_bound
        assert not (await carry_out(here, decision)).is_bound
        assert await allocation(here, "c") is not None
        assert await allocation(here, "more") is None


async def test_a_pod_that_another_writer_binds_elsewhere_is_not_bound_by_us() -> None:
    async with world() as here:
        await cluster(here, PARTS)
        await here.node("node-2")
        await pods_and_claims(here, "ours")
        here.before_once("POST", "/binding", lambda: bind_to(here, "pod-ours", "node-2"))
        outcome = await carry_out(here, await decide(here, "pod-ours"))
        assert outcome.reason is not None
        assert outcome.reason.message == "the pod was bound to another node in the meantime"
        assert await node_of(here, "pod-ours") == "node-2"
        assert await allocation(here, "ours") is not None  # not taken from a pod that is bound
        nodes = here.cache.snapshot().nodes
        assert (len(nodes["node-1"].pods), len(nodes["node-2"].pods)) == (0, 1)


async def test_a_pod_that_another_writer_binds_to_our_node_is_bound() -> None:
    async with world() as here:
        await cluster(here, PARTS)
        await pods_and_claims(here, "ours")
        here.before_once("POST", "/binding", lambda: bind_to(here, "pod-ours", "node-1"))
        assert (await carry_out(here, await decide(here, "pod-ours"))).is_bound


async def test_a_claim_that_others_fill_up_while_we_write_takes_no_257th() -> None:
    async with world() as here:
        await cluster(here, PARTS)
        await pods_and_claims(here, "ours")
        await take(here, "ours", {"device": "p0"})

        async def fill() -> None:
            stored = await here.get(claims_path("ours"))
            stored["status"]["reservedFor"] = [
                {"resource": "pods", "name": f"other-{number}", "uid": f"other-{number}"}
                for number in range(256)
            ]
            await here.put(claims_path("ours", "status"), stored)

        here.before_once("PUT", "ours/status", fill)
        outcome = await carry_out(here, await decide(here, "pod-ours"))
        assert outcome.reason is not None
        assert outcome.reason.kind is ReasonKind.TOO_MANY_CONSUMERS
        assert await node_of(here, "pod-ours") == ""
