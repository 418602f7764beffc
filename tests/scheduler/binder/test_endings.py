"""Every bind ends, whatever the API server answers for ever; and frees nothing that a request may still take (fault core 12)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from allocator.outcome import ReasonKind
from scheduler.binder import Binder, BindError, BindOutcome, ClaimWriter, PodWriter
from scheduler.binder.retry import OPEN_SECONDS, PATIENCE_SECONDS
from scheduler.client import (
    JSON,
    ApiError,
    Committed,
    ForbiddenError,
    Rejected,
    UnavailableError,
    Unknown,
    WriteOutcome,
)
from scheduler.clock import SystemClock
from scheduler.config import BindSettings
from scheduler.model import NodeAllocatableResourceClaimStatus
from scheduler.reflectors.barrier import ClaimBarrier
from tests.scheduler.binder.test_races import decide
from tests.scheduler.embedded import (
    CONFLICT,
    LOST,
    Faulty,
    World,
    claims_path,
    pods_path,
    world,
)

# What a chain may take in the worst of these cases: some series of tries, one after the other, each as long as allowed.
LONGEST_SECONDS = 6 * (PATIENCE_SECONDS + OPEN_SECONDS)
STEPS = 20_000

CLAIM, STATUS = claims_path("c"), claims_path("c", "status")
BINDING = pods_path("p", "binding")

# A proxy's answer, in the shape of one of the API server's.
SUCCESS = Committed(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}')
ANSWERS: Mapping[str, WriteOutcome] = {
    "lost": LOST,
    "unreachable": Rejected(0, "", "cannot reach the server"),
    "busy": Rejected(429, "TooManyRequests", "later", retry_after_seconds=0.5),
    "conflict": CONFLICT,
    "forbidden": Rejected(403, "Forbidden", "no"),
    "invalid": Rejected(422, "Invalid", "spec: field is immutable"),
    "bad request": Rejected(400, "BadRequest", "no"),
    "another object": SUCCESS,
}
READS: Mapping[str, bytes | Exception] = {
    "silence": UnavailableError("no answer"),
    "forbidden": ForbiddenError(403, "Forbidden", "no"),
    "error": ApiError(500, "InternalError", "no"),
    "another object": SUCCESS.body,
    "no object": b"[]",
}


PATHS = {"finalizer": CLAIM, "status": STATUS, "binding": BINDING}
# A Status is what the API server answers to a Binding.
ENDLESS = pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param(path, answer, id=f"{name}-{answer}")
        for name, path in PATHS.items()
        for answer in ANSWERS
        if (name, answer) != ("binding", "another object")
    ],
)


class Clock(SystemClock):
    """Pauses take no time but move the clock; `alarms` are rung at their time."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.alarms: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return super().monotonic() + self.offset

    async def sleep(self, seconds: float) -> None:
        until = self.offset + seconds
        for alarm in [each for each in self.alarms if each[0] <= until]:
            self.alarms.remove(alarm)
            self.offset = alarm[0]
            await alarm[1]()
        self.offset = until
        await asyncio.sleep(0)


class Deaf(Faulty):
    """A client that does not get all answers to its reads.

    Attributes:
        reads: beginning of a path -> what a read of it gets instead.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.reads: dict[str, bytes | Exception] = {}

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> bytes:
        for beginning, answer in self.reads.items():
            if path.startswith(beginning):
                await asyncio.sleep(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return await super().get(path, query, accept=accept)


class Case:
    """A pod `p` with a claim `c`, and a binder for which no time passes."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.clock = Clock()
        self.client = here.client = Deaf(here.admin)
        rng = random.Random(5)
        self.claims = ClaimWriter(
            self.client, here.cache, self.clock, rng, lambda: here.may_write, lambda: here.epoch
        )
        self.pods = PodWriter(self.client, self.clock, rng, lambda: here.may_write)
        self.binder = Binder(
            claims=self.claims,
            pods=self.pods,
            cache=here.cache,
            barrier=ClaimBarrier(here.cache),
            clock=self.clock,
            settings=BindSettings(budget_seconds=60.0),
            on_conflict=lambda *_: None,
            counts_claims=True,
        )
        self.held: list[int] = []
        self.sent_at: list[float] = []

    def answers(self, rules: Mapping[str, list[WriteOutcome | None]]) -> None:
        """Path -> outcomes of the writes to it, the last one for ever; None: as the API server says."""
        left = {path: list(outcomes) for path, outcomes in rules.items()}

        def fault(_method: str, path: str, _body: bytes) -> WriteOutcome | None:
            self.held.append(self.here.cache.in_flight_claims)
            outcomes = left.get(path)
            if outcomes is None:
                return None
            outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
            if isinstance(outcome, Unknown):
                self.sent_at.append(self.clock.offset)
            return outcome

        self.client.faults.append(fault)

    async def bind(self, name: str = "p") -> BindOutcome:
        chain = self.binder.start(await decide(self.here, name))
        for _ in range(STEPS):
            await asyncio.sleep(0)
            if chain.task.done():
                return chain.task.result()
        chain.task.cancel()
        raise AssertionError(
            f"not ended after {self.clock.offset:.0f} s, {len(self.client.writes)} writes"
        )

    async def check_end(self, name: str = "p") -> None:
        """It has ended in time, nothing hangs on it, and when all is well again the pod gets what it needs."""
        assert self.clock.offset <= LONGEST_SECONDS
        assert self.binder.open_chains == 0
        assert self.here.cache.in_flight_claims == 0
        if self.sent_at:
            assert self.clock.offset >= max(self.sent_at) + OPEN_SECONDS - 0.1
        self.client.faults.clear()
        self.client.reads.clear()
        await self.here.settled()
        assert (await self.bind(name)).is_bound


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    async with world() as here:
        await here.cluster(("node-1", 2))
        await here.claim("c")
        await here.pod("p", "c")
        yield Case(here)


# --- answers that never change ----------------------------------------------------------------------------------------


@ENDLESS
async def test_an_answer_that_never_changes_ends_the_bind(
    case: Case, path: str, answer: str
) -> None:
    case.answers({path: [ANSWERS[answer]]})
    assert not (await case.bind()).is_bound
    await case.check_end()


@ENDLESS
async def test_after_a_lost_answer_everything_is_answered_alike_for_ever(
    case: Case, path: str, answer: str
) -> None:
    """Also the fence, and what takes everything back."""
    outcome = ANSWERS[answer]
    rules: dict[str, list[WriteOutcome | None]] = {path: [LOST, outcome]}
    if path == STATUS:
        rules[CLAIM] = [None, outcome]  # the finalizer is there before
    if path == BINDING:
        rules[STATUS] = [None, outcome]
    case.answers(rules)
    assert not (await case.bind()).is_bound
    await case.check_end()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("answer", ["lost", "conflict", "forbidden"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(
    "unread", ["/apis/resource", "/api/v1", "/"], ids=["claims", "pods", "all"]
)
async def test_reads_that_never_succeed_end_the_bind(
    case: Case, unread: str, path: str, answer: str, read: str
) -> None:
    case.answers({path: [ANSWERS[answer]]})
    case.client.reads[unread] = READS[read]
    assert not (await case.bind()).is_bound
    await case.check_end()


@pytest.mark.parametrize("answer", ["lost", "unreachable", "busy", "conflict", "forbidden"])
async def test_an_undo_that_never_succeeds_ends(case: Case, answer: str) -> None:
    case.answers({BINDING: [ANSWERS["forbidden"]], STATUS: [None, ANSWERS[answer]]})
    outcome = await case.bind()
    assert outcome.reason is not None
    assert outcome.reason.kind is ReasonKind.PERMISSION_DENIED
    assert case.here.cache.snapshot().devices.allocated.pools  # still taken, and known to be
    await case.check_end()


@pytest.mark.parametrize("answer", [each for each in ANSWERS if each != "another object"])
async def test_a_demand_that_is_never_written_ends_the_bind(case: Case, answer: str) -> None:
    case.answers({pods_path("p", "status"): [ANSWERS[answer]]})
    pod = await case.here.known_pod("p")
    demand = (NodeAllocatableResourceClaimStatus(resource_claim_name="c"),)
    ends = case.clock.monotonic() + 5.0
    with pytest.raises(BindError):
        await case.pods.write_demand(pod, demand, is_expired=lambda: case.clock.monotonic() >= ends)
    assert case.clock.offset <= 5.0 + PATIENCE_SECONDS
    if case.sent_at:
        assert case.clock.offset >= max(case.sent_at) + OPEN_SECONDS - 0.1


@pytest.mark.parametrize("read", READS)
async def test_reading_a_pod_ends(case: Case, read: str) -> None:
    case.client.reads["/api/v1"] = READS[read]
    with pytest.raises(BindError):
        await case.pods.read(await case.here.known_pod("p"))
    assert case.clock.offset <= 2 * PATIENCE_SECONDS


@pytest.mark.parametrize("read", READS)
async def test_giving_back_ends(case: Case, read: str) -> None:
    case.client.reads["/"] = READS[read]
    pod = await case.here.known_pod("p")
    held = case.here.cache.claim("default", "c")
    assert held is not None
    assert not await case.binder.give_back(held, pod)
    assert case.clock.offset <= LONGEST_SECONDS
    case.client.reads.clear()
    assert (await case.bind()).is_bound


async def test_nothing_is_taken_back_while_it_is_not_known_whether_the_pod_is_bound(
    case: Case,
) -> None:
    """Somebody else may have bound it, with the claim that was reserved for it."""
    await case.here.claim("d")
    await case.here.pod("q", "c", "d")
    case.answers({claims_path("d"): [ANSWERS["forbidden"]]})
    case.client.reads["/api/v1"] = READS["silence"]
    assert not (await case.bind("q")).is_bound
    status = (await case.here.get(claims_path("c")))["status"]
    assert [each["name"] for each in status["reservedFor"]] == ["q"]
    await case.check_end("q")


async def test_the_slots_are_free_again(case: Case) -> None:
    """One claim that the API server does not let anybody write costs no other pod anything."""
    here = case.here
    await here.claim("d")
    await here.pod("q", "d")
    case.binder._slots = asyncio.Semaphore(1)  # as with max_concurrent=1
    case.answers({CLAIM: [ANSWERS["invalid"]], STATUS: [LOST, ANSWERS["invalid"]]})
    first = case.binder.start(await decide(here, "p"))
    second = case.binder.start(await decide(here, "q"))
    await asyncio.wait({first.task, second.task}, timeout=10)
    assert not first.task.result().is_bound
    assert second.task.done()


# --- requests that commit late ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_deaf", [False, True], ids=["", "reads fail until then"])
@pytest.mark.parametrize("after_seconds", [0.5, 5.0, 9.5])
@pytest.mark.parametrize("answer", ["forbidden", "invalid", "lost", "busy", "unreachable"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_a_request_that_commits_late_is_not_given_up_before(
    case: Case, path: str, answer: str, after_seconds: float, *, is_deaf: bool
) -> None:
    """It lost its answer, and commits while everything else that is written is refused, or lost."""
    here, outcome = case.here, ANSWERS[answer]
    is_over: list[bool] = []

    async def fault(method: str, asked: str, body: bytes) -> WriteOutcome | None:
        if is_over or (asked != path and not case.clock.alarms):
            return None
        if not case.sent_at:
            case.sent_at.append(case.clock.offset)

            if is_deaf:
                case.client.reads["/"] = READS["silence"]

            async def commit() -> None:
                case.client.reads.clear()
                held = here.cache.in_flight_claims
                answer = await here.client.send(method, asked, body)
                await here.settled()
                is_over.append(isinstance(answer, Committed))
                case.held.append(held)

            case.clock.alarms.append((case.clock.offset + after_seconds, commit))
            return LOST
        return outcome

    case.client.faults.append(fault)
    outcome_of_bind = await case.bind()
    assert is_over == [True]
    assert case.held[-1] == 1  # held until it was known
    assert outcome_of_bind.is_bound, outcome_of_bind.reason
    status = (await here.get(claims_path("c")))["status"]
    assert [each["name"] for each in status["reservedFor"]] == ["p"]


# --- pods that have ended (fault behaviour 11) ------------------------------------------------------------------------


async def is_untouched(here: World) -> bool:
    await here.settled()
    status = (await here.get(claims_path("c"))).get("status") or {}
    return not status and not here.cache.snapshot().devices.allocated.pools


async def test_a_pod_that_has_ended_gets_nothing(case: Case) -> None:
    decision = await decide(case.here, "p")
    await case.here.end("p")
    await case.here.settled()
    outcome = await case.binder.wait(case.binder.start(decision))
    assert outcome.reason is not None
    assert outcome.reason.message == "the pod has ended"
    assert case.client.writes == []
    assert await is_untouched(case.here)


@pytest.mark.parametrize("path", [CLAIM, STATUS], ids=["finalizer", "status"])
async def test_a_pod_that_ends_while_its_claim_is_written_is_not_bound(
    case: Case, path: str
) -> None:
    case.here.before_once("PUT", path, lambda: case.here.end("p"))
    outcome = await case.bind()
    assert outcome.reason is not None
    assert outcome.reason.message == "the pod has ended"
    assert ("POST", BINDING) not in case.client.writes
    assert await is_untouched(case.here)


async def test_a_pod_that_ends_before_a_binding_that_is_refused_is_not_asked_for_again(
    case: Case,
) -> None:
    case.here.before_once("POST", "binding", lambda: case.here.end("p"))
    case.answers({BINDING: [CONFLICT, None]})
    assert not (await case.bind()).is_bound
    assert case.client.writes.count(("POST", BINDING)) == 1
    assert await is_untouched(case.here)


async def test_what_another_replica_finishes_meanwhile_is_not_taken_back(case: Case) -> None:
    """Two replicas are active: ours gives up, and while it waits to release the claim the other one binds the pod."""
    here = case.here
    case.answers({BINDING: [ANSWERS["invalid"]] * 3})
    releases = 0

    async def fault(method: str, path: str, body: bytes) -> Any:
        nonlocal releases
        if method == "PUT" and path == STATUS and b"reservedFor" not in body:
            releases += 1
            if releases == 1:
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": "p", "namespace": "default"},
                    "target": {"kind": "Node", "name": "node-1"},
                }
                await here.create(pods_path("p", "binding"), binding)
                return ANSWERS["busy"]
        return None

    case.client.faults.append(fault)
    await case.bind()
    status = (await here.get(claims_path("c")))["status"]
    assert releases == 1
    assert [each["name"] for each in status["reservedFor"]] == ["p"]
    assert status["allocation"]["devices"]["results"]
