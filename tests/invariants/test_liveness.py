"""Each rule of liveness: what has not happened by the end is found, and only what could have happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.invariants import read_trace, write_trace
from tests.invariants.objects import Object
from tests.invariants.story import OTHER, US, Story, device, request, result

Tell = Callable[[Story], None]
TOLD = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]


def end(story: Story, **facts: Any) -> set[str]:
    """Let the quiet time pass, and judge."""
    story.mark("healed")
    story.wait(150.0)
    story.mark("end", **facts)
    return story.rules()


def tell_why(story: Story, pod: str, text: str = "no") -> None:
    def do(obj: Object) -> None:
        obj["status"]["conditions"] = [{**TOLD[0], "message": text}]

    story.change("Pod", pod, do, US)


ONE_NUMA = [{"matchAttribute": "gpu.example.com/numa"}]


def numa(number: int) -> Object:
    return device(f"gpu-{number}", attributes={"numa": {"int": number}})


def waiting(
    *requests: Object, devices: Any = (), claims: int = 1, constraints: Any = (), **spec: Any
) -> Story:
    """A pod that waits, and knows why."""
    story = Story().cluster(devices=devices)
    names = [f"c{number}" for number in range(claims)]
    for name in names:
        story.claim(name, *requests, constraints=constraints)
    story.pod("p", *names, **spec)
    tell_why(story, "p")
    return story


def test_nothing_is_found_in_an_empty_cluster() -> None:
    assert end(Story().cluster()) == set()


CAN_BE_PLACED: dict[str, Story] = {
    "one device": waiting(),
    "two devices": waiting(request(count=2)),
    "two claims": waiting(claims=2),
    "all devices": waiting(request(allocationMode="All")),
    "no claims": waiting(claims=0),
}
CANNOT: dict[str, Story] = {
    "three devices": waiting(request(count=3)),
    "three claims": waiting(claims=3),
    "one device for two requests": waiting(
        request("a"), request("b"), constraints=ONE_NUMA, devices=[numa(0), numa(1)]
    ),
    "another label": waiting(nodeSelector={"zone": "b"}),
    "no such class": waiting(request(deviceClassName="x")),
    "no device is selected": waiting(
        request(selectors=[{"cel": {"expression": "false"}}]),
    ),
    "too much capacity": waiting(
        request(capacity={"requests": {"memory": "20Gi"}}),
        devices=[
            device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "10Gi"}})
        ],
    ),
    "a taint": waiting(devices=[device("gpu-0", taints=[{"key": "k", "effect": "NoExecute"}])]),
    "gated": waiting(schedulingGates=[{"name": "g"}]),
    "another scheduler's": waiting(schedulerName="x"),
}


@pytest.mark.parametrize("story", CAN_BE_PLACED.values(), ids=CAN_BE_PLACED.keys())
def test_a_pod_that_could_be_bound_must_be(story: Story) -> None:
    assert end(story) == {"L1"}


@pytest.mark.parametrize("story", CANNOT.values(), ids=CANNOT.keys())
def test_a_pod_that_cannot_be_bound_may_wait(story: Story) -> None:
    assert end(story) == set()


def test_devices_of_others_are_not_free() -> None:
    story = waiting(request(count=2))
    story.served(1)
    assert end(story) == set()


def test_a_pod_that_waits_must_be_told_why() -> None:
    story = Story().cluster()
    story.claim("c", request(count=3))
    story.pod("p", "c")
    assert end(story) == {"L2"}


def test_the_reason_does_not_change_while_nothing_else_does() -> None:
    story = waiting(request(count=3))
    story.mark("healed")
    for number in range(4):
        tell_why(story, "p", f"attempt {number}")
    story.wait(150.0)
    story.mark("end")
    assert story.rules() == {"L2"}


def test_the_reason_may_change_with_the_cluster() -> None:
    story = waiting(request(count=3))
    story.mark("healed")
    for number in range(4):
        story.node(f"more-{number}")
        tell_why(story, "p", f"0/{number} nodes")
    story.wait(150.0)
    story.mark("end")
    assert story.rules() == set()


def unused(story: Story) -> None:
    story.claim()
    story.pod("p", "c")
    story.allocate("c", result("gpu-0"))
    story.remove("Pod", "p")


def left_behind(story: Story) -> None:
    story.claim()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "q", "controller": True}
    story.change("ResourceClaim", "c", lambda obj: obj["metadata"].update(ownerReferences=[owner]))


@pytest.mark.parametrize("tell", [unused, left_behind])
def test_nothing_stays_for_pods_that_are_gone(tell: Tell) -> None:
    story = Story().cluster()
    tell(story)
    assert end(story) == {"L4"}


PROCESS = {"synced": True, "active": True}


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("L5", {"processes": {"a": {**PROCESS, "synced": False}}}),
        ("L5", {"processes": {"a": {**PROCESS, "inFlightClaims": 1}}}),
        ("L5", {"processes": {"a": {**PROCESS, "digest": {"POD": "x"}}}, "digest": {"POD": "y"}}),
        ("L6", {"processes": {"a": PROCESS, "b": PROCESS}}),
        ("L6", {"processes": {"a": {**PROCESS, "active": False}}}),
        ("L8", {"processes": {"a": {**PROCESS, "tasks": 500, "most_tasks": 100}}}),
    ],
)
def test_processes_are_as_they_should_be(rule: str, facts: Any) -> None:
    assert end(Story().cluster(), processes={"a": PROCESS}) == set()
    assert end(Story().cluster(), **facts) == {rule}


def requests_in_a_row(count: int, *, status: int = 200) -> Story:
    story = Story().cluster()
    story.mark("healed")
    story.wait(60.0)
    for _ in range(count):
        story.wait(90.0 / count)
        story.sent("GET", "/api/v1/nodes", status, fault="injected")
    story.wait(0.1)
    story.mark("end")
    return story


def test_nothing_is_asked_all_the_time_without_need() -> None:
    assert requests_in_a_row(10).rules() == set()
    assert requests_in_a_row(900).rules() == {"L7"}


def test_what_is_refused_for_good_is_not_asked_again_and_again() -> None:
    assert "L7" in requests_in_a_row(85, status=403).rules()


def test_a_trace_is_stored_and_judged_again(tmp_path: Path) -> None:
    story = waiting()
    story.call("filter", {"NodeNames": ["a"]}, {"NodeNames": ["b"]})
    found = end(story)
    path = tmp_path / "trace.jsonl"
    write_trace(path, story.entries)
    again = Story()
    again.entries = list(read_trace(path))
    assert again.findings() == story.findings()
    assert found == {"L1", "S14"}
    assert OTHER in path.read_text()
