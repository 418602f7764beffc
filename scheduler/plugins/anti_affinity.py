"""The required anti-affinity terms of pods, and the pods that run and have some."""

from collections.abc import Generator, Mapping
from typing import Any, Final

from scheduler.model import ClusterSnapshot, NodeInfo, Pod

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PODS_AT_ONCE: Final = 500  # looked at in one step
RepellingPod = tuple[Pod, Mapping[str, str]]
"""A running pod with anti-affinity, and the labels of its node."""


def required_terms(pod: Pod) -> tuple[dict[str, Any], ...]:
    """The required anti-affinity terms of a pod, as they came."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    terms = affinity.pod_anti_affinity.get(REQUIRED) or ()
    return tuple(term for term in terms if isinstance(term, dict))


def repelling_on(node: NodeInfo) -> list[RepellingPod]:
    """The pods of a node that have required anti-affinity terms. O(pods)."""
    labels = node.for_allocator.labels
    return [(pod, labels) for pod in node.pods.values() if required_terms(pod)]


def repelling_pods(snapshot: ClusterSnapshot) -> list[RepellingPod]:
    """All such pods. O(pods of the cluster)."""
    return [each for node in snapshot.nodes.values() for each in repelling_on(node)]


def repelling_pods_in_steps(
    snapshot: ClusterSnapshot,
) -> Generator[None, None, list[RepellingPod]]:
    """The same, in steps."""
    found: list[RepellingPod] = []
    looked_at = 0
    for node in snapshot.nodes.values():
        found += repelling_on(node)
        looked_at += 1 + len(node.pods)
        if looked_at >= _PODS_AT_ONCE:
            looked_at = 0
            yield
    return found
