"""The stamps of a new leader: on every claim that an older one might still allocate, or said to be missing."""

import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from scheduler.binder.claim_text import ClaimText
from scheduler.binder.outcome import LeaseLostError
from scheduler.binder.retry import PATIENCE_SECONDS
from scheduler.binder.takeover import sweep
from scheduler.client import Committed, ForbiddenError, Rejected, UnavailableError, Unknown
from scheduler.model import EPOCH_ANNOTATION, ClaimRecord
from tests.opaque import HIDDEN, UNUSUAL, claim_body
from tests.scheduler.binder.test_endings import Clock, Deaf
from tests.scheduler.embedded import LOST, World, claims_path, world

POLICY = Rejected(422, "Invalid", "ValidatingAdmissionPolicy 'p' denied request: no")


class Case:
    def __init__(self, here: World) -> None:
        self.here = here
        self.clock = Clock()
        self.client = here.client = Deaf(here.admin)
        self.told: list[str] = []

    async def records(self) -> list[ClaimRecord]:
        await self.here.settled()
        return list(self.here.cache.claim_records())

    async def sweep(self, records: Iterable[ClaimRecord], epoch: int = 7) -> int:
        return await sweep(
            records,
            epoch=epoch,
            client=self.client,
            clock=self.clock,
            rng=random.Random(5),
            may_write=lambda: self.here.may_write,
            assume=lambda record: self.told.append(record.claim.metadata.name),
        )

    async def stamp(self, name: str) -> str | None:
        meta = ClaimText.read(await self.here.admin.get(claims_path(name))).metadata
        return (meta.annotations or {}).get(EPOCH_ANNOTATION)

    def refuse(self, outcome: Any, *names: str, times: int = 1_000_000) -> None:
        left = [times]

        def fault(_method: str, path: str, _body: bytes) -> Any:
            if path.rpartition("/")[2] in names and left[0] > 0:
                left[0] -= 1
                return outcome
            return None

        self.client.faults.append(fault)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    async with world() as here:
        await here.cluster(("node-1", 2))
        yield Case(here)


async def test_unallocated_claims_are_stamped_and_told_of(case: Case) -> None:
    await case.here.claim("c", annotations={"example.com/note": "kept"})
    await case.here.claim("d")
    assert await case.sweep(await case.records()) == 2
    assert (await case.stamp("c"), await case.stamp("d")) == ("7", "7")
    assert sorted(case.told) == ["c", "d"]
    meta = (await case.here.get(claims_path("c")))["metadata"]
    assert meta["annotations"]["example.com/note"] == "kept"


@pytest.mark.parametrize("text", [*UNUSUAL.values(), *HIDDEN.values()], ids=[*UNUSUAL, *HIDDEN])
async def test_a_claim_is_stamped_whatever_its_parameters_are(case: Case, text: bytes) -> None:
    """Refused for its bytes, it was taken for gone (fault core 07)."""
    made = await case.here.admin.write("POST", claims_path(), claim_body("c", text))
    assert isinstance(made, Committed), made
    assert await case.sweep(await case.records()) == 1
    assert await case.stamp("c") == "7"


@pytest.mark.parametrize(
    "outcome", [POLICY, Rejected(403, "Forbidden", "no"), LOST, Rejected(0, "", "")]
)
async def test_what_is_refused_for_a_while_is_stamped_then(case: Case, outcome: Any) -> None:
    await case.here.claim("c")
    case.refuse(outcome, "c", times=4)
    assert await case.sweep(await case.records()) == 1
    assert await case.stamp("c") == "7"


@pytest.mark.parametrize(
    "outcome",
    [
        POLICY,
        Rejected(403, "Forbidden", "no"),
        Rejected(404, "NotFound", "no"),
        Rejected(409, "Conflict", "no"),
        Rejected(429, "TooManyRequests", "later"),
        Unknown("lost"),
        Committed(b'{"kind":"Status"}'),
    ],
)
async def test_what_is_refused_for_ever_is_given_up_and_costs_no_other_claim_its_stamp(
    case: Case, outcome: Any
) -> None:
    for name in ("a", "b", "c"):
        await case.here.claim(name)
    case.refuse(outcome, "b")
    assert await case.sweep(await case.records()) == 2
    assert [await case.stamp(name) for name in ("a", "b", "c")] == ["7", None, "7"]
    assert PATIENCE_SECONDS <= case.clock.offset <= 2 * PATIENCE_SECONDS


@pytest.mark.parametrize(
    "read", [UnavailableError("no"), ForbiddenError(403, "Forbidden", "no"), b"[]"]
)
async def test_a_claim_that_cannot_be_read_again_is_given_up(case: Case, read: Any) -> None:
    await case.here.claim("c")
    records = await case.records()
    case.refuse(POLICY, "c")
    case.client.reads["/apis"] = read
    assert await case.sweep(records) == 0
    assert case.clock.offset <= 2 * PATIENCE_SECONDS


async def test_a_claim_that_is_gone_or_another_one_by_now_is_done_with(case: Case) -> None:
    await case.here.claim("c")
    await case.here.claim("d")
    records = await case.records()
    await case.here.delete(claims_path("c"))
    await case.here.delete(claims_path("d"))
    await case.here.claim("d")
    assert await case.sweep(records) == 0
    assert await case.stamp("d") is None
    assert case.clock.offset < 1.0


async def test_a_claim_that_was_allocated_in_the_meantime_is_done_with(case: Case) -> None:
    await case.here.claim("c")
    records = await case.records()
    stored = await case.here.get(claims_path("c"))
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    stored["status"] = {"allocation": {"devices": {"results": [result]}}}
    await case.here.put(claims_path("c", "status"), stored)
    case.refuse(POLICY, "c")
    assert await case.sweep(records) == 0
    assert case.clock.offset < 1.0


async def test_a_lease_that_is_lost_ends_it(case: Case) -> None:
    await case.here.claim("c")
    case.here.may_write = False
    with pytest.raises(LeaseLostError):
        await case.sweep(await case.records())
    assert await case.stamp("c") is None
