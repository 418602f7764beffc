"""What kube-scheduler hears when a call cannot be served: it shows the `Error` of an answer with status 200, and of any
other answer the status alone. So every reason comes in a form that reaches the pod's owner, and does no harm."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson
import pytest

from allocator.outcome import Reason, ReasonKind
from scheduler.api.extender_v1 import BindArgs
from scheduler.binder import BindOutcome
from scheduler.engine import Attempt, Engine, LongSearch
from scheduler.extender.app import ExtenderApp
from scheduler.extender.complaints import QUIET_SECONDS, Complaints, pod_of
from scheduler.extender.service import ExtenderService
from scheduler.framework.environment import ShouldStop
from scheduler.framework.status import Status
from scheduler.metrics import Metrics
from scheduler.model import ClusterReader, Pod
from tests.fakes import FakeClock
from tests.scheduler.embedded import World, claims_path, pods_path, world
from tests.scheduler.extender.test_extender import Extender

VERBS = ("filter", "prioritize", "preempt", "bind")
NAMES_ONLY = "node objects are not accepted: set nodeCacheCapable: true"


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        await made.cluster(("node-1", 1), ("node-2", 2))
        await made.claim("c")
        await made.pod("p", "c")
        await made.settled()
        yield made


def refusal(verb: str, text: str) -> Any:
    """The answer that says so, as far as it can, and lets nothing happen."""
    match verb:
        case "filter":
            nothing: dict[str, str] = {}
            return {
                "NodeNames": None,
                "FailedNodes": nothing,
                "FailedAndUnresolvableNodes": nothing,
                "Error": text,
            }
        case "prioritize":
            return []
        case "preempt":
            return {"NodeNameToMetaVictims": {}}
        case _:
            return {"Error": text}


async def bodies(here: World) -> dict[str, dict[str, Any]]:
    """What kube-scheduler sends."""
    pod = await here.get(pods_path("p"))
    victims = {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}
    return {
        "filter": {"Pod": pod, "Nodes": None, "NodeNames": ["node-1", "node-2"]},
        "prioritize": {"Pod": pod, "Nodes": None, "NodeNames": ["node-1"]},
        "preempt": {
            "Pod": pod,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {"node-1": victims},
        },
        "bind": {
            "PodName": "p",
            "PodNamespace": "default",
            "PodUID": pod["metadata"]["uid"],
            "Node": "node-1",
        },
    }


async def is_untouched(here: World) -> bool:
    """Nothing was written, nothing is held, and the pod has no node."""
    await here.settled()
    return (
        here.client.writes == []
        and here.cache.in_flight_claims == 0
        and not (await here.get(pods_path("p")))["spec"].get("nodeName")
        and not (await here.get(claims_path("c"))).get("status")
    )


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", [ReasonKind.NOT_LEADER, ReasonKind.NOT_READY])
async def test_who_may_not_write_says_why_and_lets_nothing_happen(
    here: World, verb: str, kind: ReasonKind
) -> None:  # fault behaviour 06
    extender = Extender(here)
    extender.reason = Reason(kind=kind, message="this extender is elsewhere with its thoughts")

    response = await extender.post(verb, (await bodies(here))[verb])

    assert response.status_code == 200
    assert response.json() == refusal(verb, extender.reason.message)
    assert await is_untouched(here)


@pytest.mark.parametrize("verb", ["filter", "bind"])
async def test_a_reason_without_text_is_still_no_success(here: World, verb: str) -> None:
    """For kube-scheduler an empty `Error` of bind is a pod that is bound."""
    extender = Extender(here)
    extender.reason = Reason(kind=ReasonKind.NOT_LEADER, message="")

    response = await extender.post(verb, (await bodies(here))[verb])

    assert response.json()["Error"]


class MuteService:
    """A bind has failed, and nobody knows why."""

    async def bind(self, _args: BindArgs) -> BindOutcome:
        return BindOutcome(Reason(kind=ReasonKind.NOT_READY, message=""))


async def test_a_failed_bind_without_reason_is_no_success(here: World) -> None:
    extender = Extender(here)
    service: Any = MuteService()
    app = ExtenderApp(service, unavailable=lambda: None, clock=here.clock).create()
    extender.http._transport.app = app  # type: ignore[attr-defined]

    response = await extender.post("bind", (await bodies(here))["bind"])

    assert response.json()["Error"]


def with_nodes(body: dict[str, Any]) -> dict[str, Any]:
    """As kube-scheduler sends it without nodeCacheCapable."""
    if "NodeNameToMetaVictims" in body:
        return {
            **body,
            "NodeNameToMetaVictims": None,
            "NodeNameToVictims": {"node-1": {"Pods": []}},
        }
    return {**body, "NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "node-1"}}]}}


def with_large_nodes(body: dict[str, Any]) -> dict[str, Any]:
    """The same of a large cluster: more than we read."""
    nodes = {"items": [{"metadata": {"name": "node-1", "annotations": {"a": "x" * 5_000_000}}}]}
    return {**body, "NodeNames": None, "Nodes": nodes}


def with_many_values(body: dict[str, Any]) -> dict[str, Any]:
    """The same with more values than we look at."""
    return {**body, "NodeNames": None, "Nodes": {"items": [[0] * 210_000]}}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize("change", [with_nodes, with_large_nodes, with_many_values])
async def test_a_missing_node_cache_capable_is_named_however_large_the_cluster(
    here: World,
    verb: str,
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:  # fault behaviour 06
    extender = Extender(here)
    body = change((await bodies(here))[verb])

    response = await extender.post(verb, body)

    assert response.status_code == 200
    told = response.json()
    if verb == "filter":
        assert NAMES_ONLY in told["Error"]
    assert told == refusal(verb, told["Error"] if verb == "filter" else "")
    assert await is_untouched(here)


ODD: dict[str, dict[str, Any]] = {
    "no pod": {"Pod": None, "PodUID": ""},
    "a pod that cannot be read": {"Pod": {"spec": {"priority": "high"}}, "PodName": 7},
    "a node twice": {"NodeNames": ["n", "n"], "NodeNameToMetaVictims": 3, "Node": ""},
    "too deep": {"x": orjson.loads(b'{"a":' * 70 + b"1" + b"}" * 70)},
    "too many nodes": {
        "NodeNames": [f"n{number}" for number in range(10_001)],
        "NodeNameToMetaVictims": {f"n{number}": {} for number in range(10_001)},
        "Node": "n" * 300,
    },
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_object_that_cannot_be_served_is_refused_in_the_verbs_own_form(
    here: World, verb: str, odd: dict[str, Any]
) -> None:
    extender = Extender(here)
    body = {**(await bodies(here))[verb], **odd}

    response = await extender.post(verb, body)

    assert response.status_code == 200
    told = response.json()
    text = told["Error"] if verb in ("filter", "bind") else ""
    assert told == refusal(verb, text)
    assert text or verb in ("prioritize", "preempt")
    assert await is_untouched(here)


class SlowEngine(Engine):
    """Every decision needs a search that is over only when its time is."""

    def stale(self, attempt: Attempt, names: Sequence[str]) -> list[str]:
        return list(names)

    def refresh(self, attempt: Attempt, names: Sequence[str]) -> bool | LongSearch:
        return LongSearch(attempt, "node-1")

    def search(self, slow: LongSearch, should_stop: ShouldStop) -> Any:
        while not should_stop():
            pass
        return super().search(slow, should_stop)


class BrokenEngine(Engine):
    """No decision comes to an end; no search either."""

    def pre_filter(self, pod: Pod, reader: ClusterReader) -> Attempt | Status:
        raise ZeroDivisionError("a secret")


def with_engine(here: World, kind: type[Engine], **options: Any) -> Extender:
    extender = Extender(here, **options)
    extender.service._engine.__class__ = kind
    return extender


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_search_whose_time_is_over_is_said(here: World, verb: str) -> None:
    """All three look at nodes in steps, each of which may come to a slow search."""
    extender = with_engine(here, SlowEngine, search_seconds=0.05)

    response = await extender.post(verb, (await bodies(here))[verb])

    text = "the search for devices timed out"
    assert response.status_code == 200
    assert response.json() == refusal(verb, text)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_defect_is_said_without_its_words(here: World, verb: str) -> None:
    extender = with_engine(here, BrokenEngine)

    response = await extender.post(verb, (await bodies(here))[verb])

    assert response.status_code == 200
    assert response.json() == refusal(verb, "internal error")


class FailingSearch(SlowEngine):
    """The search in the thread meets a defect."""

    def search(self, slow: LongSearch, should_stop: ShouldStop) -> Any:
        raise KeyError("rows")


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_defect_in_the_search_thread_is_said_too(here: World, verb: str) -> None:
    extender = with_engine(here, FailingSearch)

    response = await extender.post(verb, (await bodies(here))[verb])

    assert response.status_code == 200
    assert response.json() == refusal(verb, "internal error")


async def test_a_call_that_comes_while_the_process_ends_is_told_so(here: World) -> None:
    extender = with_engine(here, SlowEngine)
    extender.service.close()

    response = await extender.post("filter", (await bodies(here))["filter"])

    assert response.json()["Error"] == "this extender is shutting down"


async def test_a_bind_that_is_stopped_is_an_error_for_its_caller(here: World) -> None:
    extender = Extender(here)
    release = asyncio.Event()

    async def hold(_method: str, path: str, _body: bytes) -> None:
        if path.endswith("/binding"):
            await release.wait()

    here.client.faults.append(hold)
    calls = [asyncio.create_task(extender.bind("p", "node-1")) for _ in range(2)]
    while not here.binder.open_chains:
        await asyncio.sleep(0)
    await here.settled()
    [chain] = here.binder._chains.values()
    chain.task.cancel()

    assert await asyncio.gather(*calls) == ["the bind was stopped before its end"] * 2


# --- what is said besides ----------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """The values in the lines about calls that were not served."""
    return [
        record.args
        for record in caplog.records
        if record.name == "scheduler.extender.complaints" and isinstance(record.args, tuple)
    ]


@pytest.mark.parametrize("verb", VERBS)
async def test_each_reason_is_logged_with_its_pod_and_counted(
    here: World, verb: str, caplog: pytest.LogCaptureFixture
) -> None:  # fault behaviour 06
    metrics = Metrics()
    service = ExtenderService(
        cache=here.cache,
        binder=here.binder,
        engine=Engine(here.environment),
        clock=here.clock,
        wakeup=None,
    )
    reason = Reason(kind=ReasonKind.NOT_LEADER, message="not the leader")
    extender = Extender(here)
    app = ExtenderApp(
        service,
        unavailable=lambda: reason,
        clock=here.clock,
        refused=metrics.webhook_refused,
    ).create()
    extender.http._transport.app = app  # type: ignore[attr-defined]

    for _ in range(3):
        await extender.post(verb, (await bodies(here))[verb])

    assert [args[:3] for args in lines(caplog)] == [(verb, "default/p", "not the leader")]
    labels = {"verb": verb, "cause": "unavailable"}
    value = metrics.registry.get_sample_value("dra_scheduler_webhook_refusals_total", labels)
    assert value == 3


def test_a_reason_is_repeated_only_after_a_while_and_then_with_what_came_in_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock = FakeClock()
    complaints = Complaints(clock)
    for seconds in (0.0, 1.0, 1.0, QUIET_SECONDS, 1.0):
        clock.skip(seconds)
        complaints.tell("filter", "one", b"{}")
    complaints.tell("filter", "another", b"{}")
    complaints.tell("bind", "one", b"{}")

    said = [(args[0], args[2]) for args in lines(caplog)]
    assert said == [("filter", "one"), ("filter", "one"), ("filter", "another"), ("bind", "one")]
    assert "2 times more" in str(lines(caplog)[1][3])


def test_reasons_that_a_caller_makes_up_do_not_fill_the_memory() -> None:
    complaints = Complaints(FakeClock())
    for number in range(1_000):
        complaints.tell("filter", f"reason {number}", b"{}")

    assert len(complaints._said) <= 100


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"Pod": {"metadata": {"name": "p", "namespace": "ns"}}}', "ns/p"),
        (b'{"PodName": "p-0.x", "PodNamespace": "ns", "Node": "n"}', "ns/p-0.x"),
        (b'{"Pod": {"metadata": {"name": "p\\n[forged]", "namespace": "ns"}}}', "(unknown)"),
        (b'{"Pod": {"metadata": {"name": 7}}}', "(unknown)"),
        (b'{"Pod": {"metadata": null}}', "(unknown)"),
        (b'{"Pod": 3}', "(unknown)"),
        (b'{"PodName": "' + b"a" * 300 + b'", "PodNamespace": "ns"}', "(unknown)"),
        (b"", "(unknown)"),
        (b"[" * 100_000, "(unknown)"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_the_pod_of_a_call_is_named_if_it_can_be_a_pod(body: bytes, expected: str) -> None:
    assert pod_of(body) == expected


# --- and whether it is true --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "preempt"])
async def test_a_wrong_memory_is_noticed_before_it_is_answered_from(here: World, verb: str) -> None:
    extender = Extender(here)
    engine = extender.service._engine
    sent = (await bodies(here))[verb]
    right = (await extender.post(verb, sent)).json()
    [question] = [question for question, _ in engine.memo._entries.values()]
    refused = {"NodeNames": ["node-3"], "NodeNameToMetaVictims": {"node-3": {"Pods": []}}}
    await here.node("node-3")
    await here.settled()
    assert (await extender.post(verb, {**sent, **refused})).status_code == 200
    question.keep("node-1", question.answers["node-3"])
    engine._check_every = 1

    assert (await extender.post(verb, sent)).json() == right
    assert engine.mismatches == 1
