"""Each rule of safety: a history that keeps it has no findings, one that breaks it has just this one."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.invariants.objects import FINALIZER, Object
from tests.invariants.story import OTHER, US, Story, device, request, result

Tell = Callable[[Story], Any]
SHARED = device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "10Gi"}})


def share(amount: str, number: int) -> Object:
    return result("gpu-0", shareID=f"share-{number}", consumedCapacity={"memory": amount})


def asking(amount: str) -> Object:
    return request(capacity={"requests": {"memory": amount}})


def two_shares(first: str, second: str) -> Tell:
    def tell(story: Story) -> None:
        story.cluster(devices=[SHARED])
        for number, amount in enumerate((first, second)):
            story.claim(f"c{number}", asking(amount))
            story.pod(f"p{number}", f"c{number}")
            story.allocate(f"c{number}", share(amount, number), pod=f"p{number}")
            story.bind(f"p{number}")

    return tell


def partition(name: str, amount: str) -> Object:
    consumed = {"counterSet": "card", "counters": {"memory": {"value": amount}}}
    return device(name, consumesCounters=[consumed])


def two_partitions(first: str, second: str) -> Tell:
    def tell(story: Story) -> None:
        story.cluster()
        pool = {"name": "n1", "generation": 2, "resourceSliceCount": 2}
        story.slice("n1", [partition("a", first), partition("b", second)], pool=pool)
        counters = {"name": "card", "counters": {"memory": {"value": "8Gi"}}}
        story.put(
            "ResourceSlice",
            {
                "metadata": {"name": "n1-counters"},
                "spec": {
                    "driver": "gpu.example.com",
                    "nodeName": "n1",
                    "pool": pool,
                    "sharedCounters": [counters],
                },
            },
        )
        story.wait(60.0)
        for number, name in enumerate("ab"):
            story.claim(f"c{number}")
            story.pod(f"p{number}", f"c{number}")
            story.allocate(f"c{number}", result(name), pod=f"p{number}")

    return tell


def two_claims(first: str, second: str, **fields: Any) -> Tell:
    """Two pods, each with a claim that got this device."""

    def tell(story: Story) -> None:
        story.cluster()
        for number, name in enumerate((first, second)):
            story.claim(f"c{number}")
            story.pod(f"p{number}", f"c{number}")
            story.allocate(f"c{number}", result(name, **fields), pod=f"p{number}")

    return tell


def one_claim(
    *requests: Object, results: Any, change: Any = lambda _: None, devices: Any = (), **spec: Any
) -> Tell:
    """One pod with one claim that is answered so."""

    def tell(story: Story) -> None:
        story.cluster(devices=devices)
        story.wait(60.0)
        story.claim("c", *requests, **spec)
        story.pod("p", "c")
        story.allocate("c", *results, change=change)

    return tell


def bound(before: Tell, *, node: str = "n1", **spec: Any) -> Tell:
    """A pod that is served and bound, after something was done to it."""

    def tell(story: Story) -> None:
        story.cluster("n1", "n2")
        story.wait(60.0)
        story.claim("c")
        story.pod("p", "c", **spec)
        story.allocate("c", result("gpu-0"))
        before(story)
        story.bind("p", node)

    return tell


def nothing(_: Story) -> None:
    pass


def cordoned(story: Story) -> None:
    story.node("n1", unschedulable=True)
    story.wait(60.0)


def reserved_twice(story: Story) -> None:
    one_claim(results=[result("gpu-0")])(story)
    reserve_again(story)


def refused_again_and_again(story: Story) -> None:
    for _ in range(4):
        story.sent("PUT", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c", 422)


def unasked(story: Story) -> None:
    story.call("filter", {"NodeNames": ["n1"]}, {"NodeNames": ["n1"]})
    one_claim(results=[result("gpu-0")])(story)


def numa(name: str, value: int) -> Object:
    return device(name, attributes={"numa": {"int": value}})


MATCH = [{"matchAttribute": "gpu.example.com/numa"}]
DISTINCT = [{"distinctAttribute": "gpu.example.com/numa"}]
OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}
FROM_CLAIM = {"source": "FromClaim", **OPAQUE}
TWO = request(count=2)
PAIR = (result("gpu-0"), result("gpu-1"))


def with_config(obj: Object) -> None:
    obj["status"]["allocation"]["devices"]["config"] = [FROM_CLAIM]


KEPT: dict[str, Tell] = {
    "S1 two devices": two_claims("gpu-0", "gpu-1"),
    "S2 within capacity": two_shares("4Gi", "6Gi"),
    "S3 within counters": two_partitions("4Gi", "4Gi"),
    "S4 one device": one_claim(results=[result("gpu-0")]),
    "S4 two devices": one_claim(TWO, results=PAIR),
    "S4 all devices": one_claim(request(allocationMode="All"), results=PAIR),
    "S4 same numa": one_claim(
        TWO, results=PAIR, devices=[numa("gpu-0", 1), numa("gpu-1", 1)], constraints=MATCH
    ),
    "S4 distinct numa": one_claim(
        TWO, results=PAIR, devices=[numa("gpu-0", 1), numa("gpu-1", 2)], constraints=DISTINCT
    ),
    "S4 configuration": one_claim(results=[result("gpu-0")], change=with_config, config=[OPAQUE]),
    "S5 bound": bound(nothing),
    "S6 tolerated": bound(
        lambda story: story.node("n1", taints=[{"key": "k", "effect": "NoSchedule"}]),
        tolerations=[{"key": "k", "operator": "Exists"}],
    ),
}


@pytest.mark.parametrize("tell", KEPT.values(), ids=KEPT.keys())
def test_a_history_that_keeps_the_rules_has_no_findings(tell: Tell) -> None:
    story = Story()
    tell(story)
    assert story.findings() == []


def reserve_again(story: Story) -> None:
    """Somebody else's device is taken by a claim that is allocated already."""
    story.change(
        "ResourceClaim",
        "c",
        lambda obj: obj["status"]["reservedFor"].append(
            {"resource": "pods", "name": "q", "uid": "q"}
        ),
        US,
    )


def deleting(obj: Object) -> None:
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def taken_from(story: Story) -> None:
    story.cluster()
    story.served()
    story.change("ResourceClaim", "c0", lambda obj: obj.update(status={}), US)


def of_another_pod(story: Story) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "q", "controller": True}
    story.change("ResourceClaim", "c", lambda obj: obj["metadata"].update(ownerReferences=[owner]))


def drop(field: str) -> Callable[[Object], Any]:
    return lambda obj: obj["status"].pop(field)


def twice_bound(story: Story) -> None:
    story.cluster("n1", "n2")
    story.pod("p")
    story.bind("p", "n1")
    story.change("Pod", "p", lambda obj: obj["spec"].update(nodeName=""), OTHER)
    story.change("Pod", "p", lambda obj: obj["spec"].update(nodeName="n1"), OTHER)


def conditions(story: Story) -> None:
    story.cluster()
    story.claim()
    story.pod("p", "c")
    story.allocate("c", result("gpu-0", bindingConditions=["ready"]))
    story.bind()


def rewritten(story: Story) -> None:
    story.cluster()
    story.claim()
    story.change("ResourceClaim", "c", lambda obj: obj["spec"].update(devices={}), US)


def full_node(story: Story) -> None:
    story.cluster()
    resources = {"requests": {"cpu": "3"}}
    for name in ("a", "b"):
        story.pod(name, containers=[{"name": "main", "resources": resources}])
        story.bind(name)


def older_epoch(story: Story) -> None:
    story.cluster()
    for number in (0, 1):
        story.claim(f"c{number}")
        story.pod(f"p{number}", f"c{number}")
    story.allocate("c0", result("gpu-0"), pod="p0", epoch="2")
    story.allocate("c1", result("gpu-1"), pod="p1", epoch="1")


BROKEN: dict[str, tuple[str, Tell]] = {
    "S1 one device twice": ("S1", two_claims("gpu-0", "gpu-0")),
    "S1 twice in one claim": (
        "S1",
        one_claim(request("r"), request("s"), results=[result("gpu-0"), result("gpu-0", of="s")]),
    ),
    "S2 over capacity": ("S2", two_shares("6Gi", "6Gi")),
    "S2 not to be shared": ("S2", one_claim(results=[result("gpu-0", shareID="1")])),
    "S3 over counters": ("S3", two_partitions("6Gi", "6Gi")),
    "S4 too few": ("S4", one_claim(TWO, results=PAIR[:1])),
    "S4 too many": ("S4", one_claim(results=PAIR)),
    "S4 not all": ("S4", one_claim(request(allocationMode="All"), results=PAIR[:1])),
    "S4 no such request": ("S4", one_claim(results=[result("gpu-0", of="x")])),
    "S4 no such device": ("S4", one_claim(results=[result("gpu-9")])),
    "S4 of another node": ("S4", one_claim(results=[result("gpu-0", pool="n9")])),
    "S4 not selected": (
        "S4",
        one_claim(
            request(selectors=[{"cel": {"expression": 'device.driver == "x"'}}]),
            results=[result("gpu-0")],
        ),
    ),
    "S4 tainted": (
        "S4",
        one_claim(
            results=[result("gpu-0")],
            devices=[device("gpu-0", taints=[{"key": "k", "effect": "NoSchedule"}])],
        ),
    ),
    "S4 other numa": (
        "S4",
        one_claim(
            TWO, results=PAIR, devices=[numa("gpu-0", 1), numa("gpu-1", 2)], constraints=MATCH
        ),
    ),
    "S4 same numa": (
        "S4",
        one_claim(
            TWO, results=PAIR, devices=[numa("gpu-0", 1), numa("gpu-1", 1)], constraints=DISTINCT
        ),
    ),
    "S4 configuration": ("S4", one_claim(results=[result("gpu-0")], config=[OPAQUE])),
    "S5 no claim": ("S5", bound(lambda story: story.remove("ResourceClaim", "c"))),
    "S5 not allocated": (
        "S5",
        bound(lambda story: story.change("ResourceClaim", "c", drop("allocation"))),
    ),
    "S5 not reserved": (
        "S5",
        bound(lambda story: story.change("ResourceClaim", "c", drop("reservedFor"))),
    ),
    "S5 another node": ("S5", bound(nothing, node="n2")),
    "S5 another pod's claim": ("S5", bound(of_another_pod)),
    "S5 conditions": ("S5", conditions),
    "S6 no such node": ("S6", bound(nothing, node="n9")),
    "S6 cordoned": (
        "S6",
        bound(cordoned),
    ),
    "S6 label": ("S6", bound(nothing, nodeSelector={"zone": "b"})),
    "S6 full": ("S6", full_node),
    "S7 no finalizer": (
        "S7",
        one_claim(results=[result("gpu-0")], change=lambda obj: obj["metadata"].pop("finalizers")),
    ),
    "S8 unknown pod": (
        "S8",
        reserved_twice,
    ),
    "S8 deleting": ("S8", one_claim(results=[result("gpu-0")], change=deleting)),
    "S9 theft": ("S9", taken_from),
    "S10 bare": (
        "S10",
        one_claim(results=[result("gpu-0")], change=drop("reservedFor")),
    ),
    "S11 admin": (
        "S11",
        one_claim(request(adminAccess=True), results=[result("gpu-0", adminAccess=True)]),
    ),
    "S12 spec": ("S12", rewritten),
    "S12 verb": ("S12", lambda story: story.sent("DELETE", "/api/v1/namespaces/ns/pods/p")),
    "S12 forbidden": ("S12", lambda story: story.sent("GET", "/api/v1/pods", 403)),
    "S12 invalid": (
        "S12",
        refused_again_and_again,
    ),
    "S13 older epoch": ("S13", older_epoch),
    "S14 other nodes": (
        "S14",
        lambda story: story.call("filter", {"NodeNames": ["a"]}, {"NodeNames": ["a", "b"]}),
    ),
    "S14 score": (
        "S14",
        lambda story: story.call("prioritize", {"NodeNames": ["a"]}, [{"Host": "a", "Score": 11}]),
    ),
    "S14 nobody asked": (
        "S14",
        unasked,
    ),
    "time": (
        "timestamp",
        one_claim(
            results=[result("gpu-0")],
            change=lambda obj: obj["status"]["allocation"].pop("allocationTimestamp"),
        ),
    ),
}


@pytest.mark.parametrize(("rule", "tell"), BROKEN.values(), ids=BROKEN.keys())
def test_a_history_that_breaks_a_rule_has_a_finding(rule: str, tell: Tell) -> None:
    story = Story()
    tell(story)
    assert rule in story.rules()


@pytest.mark.parametrize(("rule", "tell"), BROKEN.values(), ids=BROKEN.keys())
def test_what_others_do_is_not_held_against_us(rule: str, tell: Tell) -> None:
    story = Story()
    tell(story)
    assert story.rules(ours=("nobody",)) == set()


def test_what_was_true_a_little_earlier_is_good_enough() -> None:
    story = Story().cluster()
    story.claim()
    story.pod("p", "c")
    story.remove("ResourceSlice", "n1-gpus")
    story.allocate("c", result("gpu-0"))
    assert story.findings(slack=5.0) == []
    assert story.rules(slack=1.0) == {"S4"}


def both_bound(first: str, second: str) -> Story:
    """Two claims hold one device; the pod of the later one is bound second."""
    story = Story()
    two_claims("gpu-0", "gpu-0")(story)
    story.bind(first)
    story.bind(second)
    return story


@pytest.mark.parametrize(("first", "second"), [("p0", "p1"), ("p1", "p0")])
def test_two_bound_pods_never_have_one_device_whoever_allocates(first: str, second: str) -> None:
    assert both_bound(first, second).rules(one_allocator=False) == {"S1b"}


def test_one_of_two_rivals_may_be_bound() -> None:
    story = Story()
    two_claims("gpu-0", "gpu-0")(story)
    story.bind("p0")
    assert story.rules(one_allocator=False) == set()


def test_counters_are_counted_over_bound_pods_too() -> None:
    story = Story()
    two_partitions("6Gi", "6Gi")(story)
    story.bind("p0")
    assert story.rules(one_allocator=False) == set()
    story.bind("p1")
    assert story.rules(one_allocator=False) == {"S3"}


def test_a_restored_server_is_judged_by_what_it_has() -> None:
    story = Story().cluster()
    story.served()
    backup = {
        kind: [obj for (other, _), obj in story.objects.items() if other == kind]
        for kind in ("Node", "ResourceSlice", "DeviceClass", "Namespace")
    }
    story.restored(backup)
    story.objects = {key: obj for key, obj in story.objects.items() if key[0] in backup}
    story.wait(60.0)
    story.served()
    assert story.findings() == []
    story.claim("again")
    story.pod("p", "again")
    story.allocate("again", result("gpu-0"))
    assert story.rules() == {"S1"}


def test_the_finalizer_is_the_one_that_upstream_uses() -> None:
    assert FINALIZER == "resource.kubernetes.io/delete-protection"
