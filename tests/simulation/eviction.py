"""The device-taint-eviction controller: pods that use a device with a NoExecute taint that they do not tolerate are deleted."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.invariants.answers import Question, questions
from tests.invariants.objects import Object, device_of, node_of, reserved_for, results, tolerates
from tests.invariants.pools import published, taints_of
from tests.simulation.tenants import pods_path

if TYPE_CHECKING:
    from tests.simulation.world import World


def evict(world: "World") -> None:
    """Look at all claims once."""
    devices = published(world.objects("resource.k8s.io/resourceslices")).devices
    rules = list(world.objects("resource.k8s.io/devicetaintrules"))
    pods = {pod["metadata"]["uid"]: pod for pod in world.objects("/pods")}
    for claim in list(world.objects("resource.k8s.io/resourceclaims")):
        asked = {each.name: each for _, every in questions(claim) for each in every}
        if any(_is_sick(result, asked, devices, rules) for result in results(claim)):
            for pod in _users(claim, pods):
                meta = pod["metadata"]
                world.do("DELETE", f"{pods_path(meta['namespace'])}/{meta['name']}")
                world.note("evicted")


def _is_sick(
    result: Object,
    asked: Mapping[str, Question],
    devices: Mapping[tuple[str, str, str], Object],
    rules: list[Object],
) -> bool:
    device = devices.get(device_of(result))
    question = asked.get(result["request"])
    if device is None or question is None:
        return False
    tolerations = question.spec.get("tolerations") or ()
    return any(
        taint.get("effect") == "NoExecute"
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints_of(device_of(result), device, rules)
    )


def _users(claim: Object, pods: Mapping[str, Object]) -> Iterator[Object]:
    for entry in reserved_for(claim):
        pod = pods.get(entry["uid"])
        if pod is not None and node_of(pod) and not pod["metadata"].get("deletionTimestamp"):
            yield pod
