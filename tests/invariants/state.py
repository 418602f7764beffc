"""A state of the cluster by itself: what must hold at any moment, when nothing is known of how it came about."""

from collections.abc import Iterable, Iterator, Sequence

from tests.invariants import claims as claim_rules
from tests.invariants import pods as pod_rules
from tests.invariants import sharing
from tests.invariants.cluster import Cluster
from tests.invariants.finding import Finding
from tests.invariants.objects import Object, allocation, full_name, is_live
from tests.invariants.pools import published


def wrong_in(
    pods: Sequence[Object],
    claims: Sequence[Object],
    nodes: Sequence[Object],
    slices: Sequence[Object],
) -> list[Finding]:
    """Everything that is wrong.

    Args:
        pods: those whose bindings are judged.
        claims: all of the cluster: a device is given once over all namespaces.
        nodes: all.
        slices: all.
    """
    cluster = Cluster()
    for kind, objects in (("Node", nodes), ("ResourceClaim", claims), ("Pod", pods)):
        for obj in objects:
            cluster.put(kind, obj)
    return [
        *sharing.exclusive(claims),
        *(found for claim in claims for found in claim_rules.in_form(claim)),
        *(found for claim in claims for found in claim_rules.timed(claim)),
        *_exist(claims, slices),
        *(found for pod in pods if is_live(pod) for found in _usable(pod, cluster)),
    ]


def _exist(claims: Iterable[Object], slices: Iterable[Object]) -> Iterator[Finding]:
    devices = published(slices).devices
    for claim in claims:
        for device, _ in sharing.held(claim):
            if device not in devices:
                yield Finding("S4", full_name(claim), f"{'/'.join(device)} is not published")


def _usable(pod: Object, cluster: Cluster) -> Iterator[Finding]:
    yield from pod_rules.legal_node(pod, None, cluster, 0.0, predicates=False)
    yield from pod_rules.usable(pod, cluster)


def newly_allocated(before: Object | None, after: Object) -> Iterator[Finding]:
    """S7, S10: what must hold at the moment at which a claim is allocated, whoever did it."""
    if before is None or allocation(before) is not None or allocation(after) is None:
        return
    yield from claim_rules.bare(after)
    yield from (found for found in claim_rules.in_form(after) if found.rule == "S7")
