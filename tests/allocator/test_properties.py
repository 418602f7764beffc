"""Properties of the allocator over small random clusters."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator import Allocated, DoesNotFit, Outcome, allocate, prepare_claims
from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from allocator.model.devices import Device, DeviceID
from allocator.pools import gather_pools
from allocator.requests import FatalError
from allocator.search import Limits, Search
from allocator.verify import verify
from tests.allocator.support import CEL, DEFAULTS
from tests.builders import NODE, claim, node, request, share_id_of
from tests.strategies import Cluster, claims, clusters

ON = node(NODE, zone="a")
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def answer(cluster: Cluster, wanted: Sequence[ResourceClaim], *slices) -> Outcome:
    return allocate(
        wanted,
        ON,
        cluster.snapshot(*slices),
        features=DEFAULTS,
        cel=CEL,
        new_share_id=share_id_of,
        budget=200_000,
    )


def problems(cluster: Cluster, wanted, allocations) -> set[str]:
    found = verify(wanted, allocations, ON, cluster.snapshot(), features=DEFAULTS, cel=CEL)
    return {violation.rule for violation in found}


@SLOW
@given(cluster=clusters(), wanted=claims())
def test_verify_finds_nothing_wrong_with_any_allocation(cluster, wanted) -> None:
    outcome = answer(cluster, wanted)

    if isinstance(outcome, Allocated):
        assert problems(cluster, wanted, outcome.allocations) == set()


@SLOW
@given(cluster=clusters(), wanted=claims(odd=False))
def test_no_exclusive_device_is_given_twice(cluster, wanted) -> None:
    outcome = answer(cluster, wanted)

    if isinstance(outcome, Allocated):
        exclusive = [
            result.device_id
            for allocation in outcome.allocations
            for result in allocation.devices.results or ()
            if result.share_id is None
        ]
        assert len(exclusive) == len(set(exclusive))


@SLOW
@given(cluster=clusters(), wanted=claims(), data=st.data())
def test_the_order_of_slices_does_not_change_whether_it_fits(cluster, wanted, data) -> None:
    shuffled = data.draw(st.permutations(cluster.slices))
    first, second = answer(cluster, wanted), answer(cluster, wanted, *shuffled)

    assert type(first) is type(second)
    assert first == second


@SLOW
@given(cluster=clusters(), wanted=claims())
def test_a_failed_search_leaves_its_state_as_it_was(cluster, wanted) -> None:
    world = cluster.snapshot()
    prepared = prepare_claims(wanted, world.classes, DEFAULTS, CEL)
    pools = gather_pools(ON, world.slices, prepared.rules)
    search = Search(prepared, ON, pools, world.allocated, Limits(budget=200_000))
    try:
        search.prepare_all()
        for _ in zip(range(20), search.solutions(), strict=False):
            pass
    except FatalError:
        return
    for _ in search.solutions():
        pass

    assert search.is_clean()


@SLOW
@given(cluster=clusters(), wanted=claims())
def test_solutions_are_all_valid_and_the_first_is_the_answer(cluster, wanted) -> None:
    world = cluster.snapshot()
    prepared = prepare_claims(wanted, world.classes, DEFAULTS, CEL)
    pools = gather_pools(ON, world.slices, prepared.rules)
    search = Search(prepared, ON, pools, world.allocated, Limits(budget=200_000))
    try:
        search.prepare_all()
        found = [
            tuple(tuple((d.request, d.candidate.id) for d in devices) for devices in one.devices)
            for _, one in zip(range(30), search.solutions(), strict=False)
        ]
    except FatalError:
        return
    outcome = answer(cluster, wanted)

    assert len(found) == len(set(found))
    assert bool(found) == isinstance(outcome, Allocated)
    if isinstance(outcome, Allocated):
        assert found[0] == tuple(
            tuple((r.request, r.device_id) for r in a.devices.results or ())
            for a in outcome.allocations
        )


@SLOW
@given(cluster=clusters(), wanted=claims(most=3))
def test_shortcuts_change_neither_solutions_nor_errors(cluster, wanted) -> None:
    world = cluster.snapshot()
    prepared = prepare_claims(wanted, world.classes, DEFAULTS, CEL)
    pools = gather_pools(ON, world.slices, prepared.rules)

    def everything(*, shortcuts: bool) -> list[object]:
        limits = Limits(budget=100_000, shortcuts=shortcuts)
        search = Search(prepared, ON, pools, world.allocated, limits)
        found: list[object] = []
        try:
            search.prepare_all()
            for _, one in zip(range(30), search.solutions(), strict=False):
                found.append([[(d.request, d.candidate.id) for d in ds] for ds in one.devices])
        except FatalError as error:
            found.append(error.outcome.reason.kind)
        return found

    assert everything(shortcuts=True) == everything(shortcuts=False)


# Brute force: every assignment of devices, judged by `verify`

JUDGED = {
    "selectors-match",
    "device-free",
    "device-given-once",
    "no-device-twice-in-a-claim",
    "no-device-twice-in-a-request",
    "taints-tolerated",
    "match-attribute",
    "distinct-attribute",
    "constraint-attribute-exists",
    "capacity-exists",
    "capacity-left",
    "capacity-sufficient",
    "counters-left",
    "pool-usable",
    "device-exists",
}


def choices(request: DeviceRequest, devices: Sequence[tuple[DeviceID, Device]]):
    """All ways to serve one request, as result lists."""
    specs: list[tuple[str, ExactDeviceRequest | DeviceSubRequest]]
    if request.first_available:
        specs = [(f"{request.name}/{sub.name}", sub) for sub in request.first_available]
    else:
        assert request.exactly is not None
        specs = [(request.name, request.exactly)]
    for name, spec in specs:
        for some in combinations(devices, spec.count):
            yield [result(name, spec, *one) for one in some]


def result(name: str, spec, device_id: DeviceID, device: Device) -> DeviceRequestAllocationResult:
    asked = (spec.capacity.requests if spec.capacity else None) or {}
    shared = bool(device.allow_multiple_allocations)
    amounts = {
        key: asked.get(key, capacity.value) for key, capacity in (device.capacity or {}).items()
    }
    return DeviceRequestAllocationResult(
        request=name,
        driver=device_id.driver,
        pool=device_id.pool,
        device=device_id.device,
        share_id=f"{name}-{device_id.device}" if shared else None,
        consumed_capacity=amounts if shared and amounts else None,
        tolerations=spec.tolerations,
    )


def assignments(cluster: Cluster, wanted) -> Iterator[list[AllocationResult]]:
    devices = [
        (DeviceID(one.spec.driver, one.spec.pool.name, card.name), card)
        for one in cluster.slices
        for card in one.spec.devices or ()
    ]
    requests = [(c, r) for c, one in enumerate(wanted) for r in one.spec.devices.requests or ()]
    for picked in product(*(list(choices(r, devices)) for _, r in requests)):
        results: list[list[DeviceRequestAllocationResult]] = [[] for _ in wanted]
        for (index, _), some in zip(requests, picked, strict=True):
            results[index] += some
        yield [
            AllocationResult(devices=DeviceAllocationResult(results=tuple(one))) for one in results
        ]


@pytest.mark.parametrize("most_claims", [1, 2])
def test_an_answer_exists_exactly_when_brute_force_finds_one(most_claims: int) -> None:
    fitting = []

    @SLOW
    @given(
        cluster=clusters(most_pools=2, most_devices=2),
        wanted=claims(odd=False, most=most_claims).filter(
            lambda made: sum(len(one.spec.devices.requests or ()) for one in made) <= 2
        ),
    )
    def agrees(cluster, wanted) -> None:
        outcome = answer(cluster, wanted)
        exists = any(
            not problems(cluster, wanted, some) & JUDGED for some in assignments(cluster, wanted)
        )

        assert isinstance(outcome, Allocated if exists else DoesNotFit)
        fitting.append(exists)

    agrees()
    assert {True, False} <= set(fitting)


@SLOW
@given(cluster=clusters())
def test_what_is_given_can_not_be_given_again(cluster) -> None:
    outcome = answer(cluster, (claim("c", request(count=1)),))
    if not isinstance(outcome, Allocated):
        return
    (given_result,) = outcome.allocations[0].devices.results or ()
    later = Cluster(cluster.slices, (*cluster.in_use, given_result))
    again = answer(later, (claim("d", request(count=1)),))

    if isinstance(again, Allocated):
        (second,) = again.allocations[0].devices.results or ()
        assert second.share_id is not None or second.device_id != given_result.device_id
