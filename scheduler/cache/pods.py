"""Pods by UID, by the claims they name, and those that wait for a node.

Source: docs/design/claims.md#resolving (how a pod names its claims), docs/design/scheduling-cycle.md#which-pods.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.model import Pod

_NOBODY: Final[tuple[str, ...]] = ()


def claim_names(pod: Pod) -> frozenset[str]:
    """Names of the claims that a pod uses, as far as they are known: by name, generated, or for extended resources."""
    names = {entry.resource_claim_name for entry in pod.spec.resource_claims or ()}
    names.update(entry.resource_claim_name for entry in pod.status.resource_claim_statuses or ())
    if pod.status.extended_resource_claim_status is not None:
        names.add(pod.status.extended_resource_claim_status.resource_claim_name)
    return frozenset(name for name in names if name)


def is_pending(pod: Pod) -> bool:
    """Whether the API server has it without a node and it has not ended."""
    return not pod.spec.node_name and not pod.is_terminal


class PodIndex:
    """Indexes pods by the claims they use, and pods that wait for a node."""

    def __init__(self) -> None:
        self._by_claim: dict[str, tuple[str, ...]] = {}
        self._pending: dict[str, Pod] = {}

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        """Follow one change of one pod."""
        before = _claim_keys(old)
        after = _claim_keys(new)
        uid = (new or old).metadata.uid  # type: ignore[union-attr]
        for key in before - after:
            rest = tuple(other for other in self._by_claim[key] if other != uid)
            if rest:
                self._by_claim[key] = rest
            else:
                del self._by_claim[key]
        for key in after - before:
            self._by_claim[key] = (*self._by_claim.get(key, _NOBODY), uid)
        if new is not None and is_pending(new):
            self._pending[uid] = new
        else:
            self._pending.pop(uid, None)

    def by_claim(self, namespace: str, name: str) -> tuple[str, ...]:
        """UIDs of the pods that name a claim, in the order they came."""
        return self._by_claim.get(f"{namespace}/{name}", _NOBODY)

    def pending(self) -> Iterator[Pod]:
        """Pods without a node, in the order they came."""
        return iter(self._pending.values())


def _claim_keys(pod: Pod | None) -> frozenset[str]:
    if pod is None or not (pod.spec.resource_claims or pod.status.extended_resource_claim_status):
        return frozenset()
    namespace = pod.metadata.namespace
    return frozenset(f"{namespace}/{name}" for name in claim_names(pod))
