"""What claims count in resources of a node is written to the pod before it is bound, and taken back if it is not."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from allocator.outcome import ReasonKind
from allocator.quantity import Quantity
from scheduler import cycle
from scheduler.binder import BindOutcome
from scheduler.client import MERGE_PATCH, Committed, Rejected, WriteOutcome
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plan import plan_of
from scheduler.model import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
)
from tests.scheduler.embedded import LOST, World, claims_path, pods_path, world

Demand = Sequence[NodeAllocatableResourceClaimStatus]
STATUSES = "nodeAllocatableResourceClaimStatuses"


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world(DRANodeAllocatableResources=True) as made:
        await made.cluster(("node-1", 2), ("node-2", 2))
        await made.claim("c")
        await made.pod("p", "c")
        yield made


def counting(cpu: str = "2", *, is_mapped: bool = True) -> Demand:
    amount = Quantity.parse(cpu)
    mapping = (NodeAllocatableMappedResources(name="cpu", quantity=amount),)
    overhead = (NodeAllocatableOverheadResources(name="cpu", per_pod=amount),)
    return (
        NodeAllocatableResourceClaimStatus(
            resource_claim_name="c",
            containers=("main",),
            mapping=mapping if is_mapped else None,
            overhead=None if is_mapped else overhead,
        ),
    )


MAPPED = {
    "resourceClaimName": "c",
    "containers": ["main"],
    "mapping": [{"name": "cpu", "quantity": "2"}],
}


async def bind(here: World, demand: Demand, name: str = "p", node: str = "node-1") -> BindOutcome:
    pod = await here.known_pod(name)
    state = cycle.pre_filter(pod, here.cache, here.environment)
    assert isinstance(state, CycleState), state
    verdict = cycle.filter_node(state, state.snapshot.nodes[node])
    assert verdict.fits, verdict.status
    chain = here.binder.start(plan_of(state, node, replace(verdict, demand=tuple(demand))))
    return await here.binder.wait(chain)


async def told(here: World, name: str = "p") -> Any:
    return (await here.get(pods_path(name)))["status"].get(STATUSES)


async def patch_status(here: World, statuses: Any, name: str = "p") -> None:
    body = orjson.dumps({"status": {STATUSES: statuses}})
    path = pods_path(name, "status")
    answer = await here.admin.write("PATCH", path, body, content_type=MERGE_PATCH)
    assert isinstance(answer, Committed), answer
    await here.settled()


def cpu_in_use(here: World, node: str = "node-1") -> int:
    return here.cache.snapshot().nodes[node].requested.get("cpu", 0)


def refuse(here: World, ending: str, answer: WriteOutcome) -> None:
    here.client.faults.append(
        lambda _method, path, _body: answer if path.endswith(ending) else None
    )


async def test_the_status_is_written_after_the_claim_and_before_the_binding(here: World) -> None:
    assert (await bind(here, counting())).is_bound

    assert here.client.writes == [
        ("PUT", claims_path("c")),
        ("PUT", claims_path("c", "status")),
        ("PATCH", pods_path("p", "status")),
        ("POST", pods_path("p", "binding")),
    ]
    assert await told(here) == [MAPPED]


async def test_a_pod_whose_claims_count_nothing_costs_no_request_more(here: World) -> None:
    assert (await bind(here, ())).is_bound

    assert here.client.writes == [
        ("PUT", claims_path("c")),
        ("PUT", claims_path("c", "status")),
        ("POST", pods_path("p", "binding")),
    ]


async def test_what_claims_count_is_in_use_from_the_decision_on(here: World) -> None:
    seen: dict[str, int] = {}

    def look(_method: str, path: str, _body: bytes) -> None:
        seen[path.rpartition("/")[2]] = cpu_in_use(here)

    here.client.faults.append(look)
    await bind(here, counting())
    await here.settled()

    assert set(seen.values()) == {2000}
    assert cpu_in_use(here) == 2000
    assert here.cache.recount() == []


async def test_a_pod_seen_anew_while_it_is_bound_counts_what_was_decided(here: World) -> None:
    counted: list[int] = []

    async def overwrite() -> None:
        """Somebody takes the status away before the Binding."""
        await patch_status(here, [])
        counted.append(cpu_in_use(here))

    here.before_once("POST", "binding", overwrite)

    assert (await bind(here, counting())).is_bound
    assert counted == [2000]


async def test_a_refused_binding_takes_the_status_back_as_an_empty_list(here: World) -> None:
    refuse(here, "/binding", Rejected(403, "Forbidden", "no pods/binding"))

    outcome = await bind(here, counting())
    await here.settled()

    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.PERMISSION_DENIED
    assert not await told(here)
    assert here.client.writes[-1] == ("PATCH", pods_path("p", "status"))
    assert not (await here.get(claims_path("c")))["status"].get("allocation")
    assert cpu_in_use(here) == 0


async def test_a_refused_status_ends_the_bind_and_leaves_nothing(here: World) -> None:
    refuse(here, "p/status", Rejected(403, "Forbidden", "no pods/status"))

    outcome = await bind(here, counting())
    await here.settled()

    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.PERMISSION_DENIED
    assert ("POST", pods_path("p", "binding")) not in here.client.writes
    assert not (await here.get(claims_path("c")))["status"].get("allocation")


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "not committed"])
async def test_a_lost_answer_is_written_again(here: World, *, commit: bool) -> None:
    pending = [True]

    async def lose(method: str, path: str, body: bytes) -> WriteOutcome | None:
        if not pending or method != "PATCH":
            return None
        pending.clear()
        if commit:
            await here.client.send(method, path, body, content_type=MERGE_PATCH)
        return LOST

    here.client.faults.append(lose)

    assert (await bind(here, counting())).is_bound
    assert await told(here) == [MAPPED]
    assert here.client.writes.count(("PATCH", pods_path("p", "status"))) == 2


async def test_what_an_earlier_attempt_left_behind_is_replaced(here: World) -> None:
    await patch_status(here, [MAPPED | {"mapping": [{"name": "cpu", "quantity": "7"}]}])

    assert (await bind(here, counting())).is_bound
    await here.settled()

    assert await told(here) == [MAPPED]
    assert cpu_in_use(here) == 2000


async def test_what_an_earlier_attempt_left_behind_is_cleared_if_nothing_counts_now(
    here: World,
) -> None:
    await patch_status(here, [MAPPED])

    assert (await bind(here, ())).is_bound
    await here.settled()

    assert not await told(here)
    assert cpu_in_use(here) == 0


@pytest.mark.parametrize("is_mapped", [True, False], ids=["mapping", "overhead alone"])
async def test_two_pods_that_decide_at_once_share_a_claim_only_if_it_stands_for_nothing(
    here: World, *, is_mapped: bool
) -> None:
    await bind(here, counting(is_mapped=is_mapped))
    await here.pod("q", "c")
    await here.settled()

    outcome = await bind(here, counting(is_mapped=is_mapped), "q")

    assert outcome.is_bound is not is_mapped
    if outcome.reason is not None:
        assert outcome.reason.kind is ReasonKind.TOO_MANY_CONSUMERS
        users = (await here.get(claims_path("c")))["status"]["reservedFor"]
        assert [each["name"] for each in users] == ["p"]


async def test_the_server_refuses_claims_that_are_not_the_pods(here: World) -> None:
    wrong = [MAPPED | {"resourceClaimName": "other"}]
    body = orjson.dumps({"status": {STATUSES: wrong}})

    answer = await here.admin.write(
        "PATCH", pods_path("p", "status"), body, content_type=MERGE_PATCH
    )

    assert isinstance(answer, Rejected)
    assert answer.status == 422
