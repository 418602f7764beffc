"""The cluster at a revision, and what it was a little earlier: whoever decides has seen it with a delay."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.invariants.objects import (
    ADMIN_LABEL,
    Object,
    claim_names,
    full_name,
    name,
    namespace,
    uid,
)

# Kinds that decisions are made from; their past is kept.
VIEWED = ("ResourceSlice", "DeviceClass", "DeviceTaintRule", "Node")


@dataclass(slots=True)
class Cluster:
    """All objects.

    Attributes:
        at: seconds, of the last change.
        revision: of the last change.
        objects: kind -> UID -> object.
        allocated_at: claim UID -> revision at which it got the allocation that it has.
        allocator: claim UID -> who wrote that allocation.
        seen_pods: UID -> every pod that there ever was, last state.
    """

    at: float = 0.0
    revision: int = 0
    objects: dict[str, dict[str, Object]] = field(default_factory=lambda: defaultdict(dict))
    allocated_at: dict[str, int] = field(default_factory=dict)
    allocator: dict[str, str] = field(default_factory=dict)
    written_at: dict[str, tuple[float, str]] = field(default_factory=dict)
    seen_pods: dict[str, Object] = field(default_factory=dict)
    gone_at: dict[str, float] = field(default_factory=dict)
    admin_namespaces: set[str] = field(default_factory=set)
    _past: dict[str, list[tuple[float, dict[str, Object]]]] = field(
        default_factory=lambda: {kind: [(float("-inf"), {})] for kind in VIEWED}
    )
    _by_name: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, kind: str, obj: Object) -> None:
        """An object is there, or is another now."""
        self.objects[kind][uid(obj)] = obj
        self._by_name[kind][full_name(obj)] = uid(obj)
        if kind == "Pod":
            self.seen_pods[uid(obj)] = obj
        elif kind == "Namespace" and _is_admin(obj):
            self.admin_namespaces.add(name(obj))
        self._note(kind)

    def remove(self, kind: str, obj: Object) -> None:
        """An object is gone."""
        self.objects[kind].pop(uid(obj), None)
        if self._by_name[kind].get(full_name(obj)) == uid(obj):
            del self._by_name[kind][full_name(obj)]
        if kind == "Pod":
            self.seen_pods[uid(obj)] = obj
        self.gone_at[uid(obj)] = self.at
        self._note(kind)

    def find(self, kind: str, in_namespace: str, called: str) -> Object | None:
        """An object by name."""
        key = f"{in_namespace}/{called}" if in_namespace else called
        found = self._by_name[kind].get(key)
        return None if found is None else self.objects[kind].get(found)

    def all(self, kind: str) -> Iterator[Object]:
        """All objects of a kind."""
        yield from tuple(self.objects[kind].values())

    def get(self, kind: str, object_uid: str) -> Object | None:
        """An object by UID."""
        return self.objects[kind].get(object_uid)

    def past(self, kind: str, seconds: float) -> Iterator[Mapping[str, Object]]:
        """What there was of a kind in the last seconds, newest first; the state at the beginning of that time included."""
        for at, state in reversed(self._past[kind]):
            yield state
            if at <= self.at - seconds:
                return

    def claims_of(self, pod: Object) -> Iterator[tuple[str, Object | None]]:
        """Entry -> claim of a pod, as its spec and status say."""
        for entry, called in claim_names(pod).items():
            yield (
                entry,
                None if called is None else self.find("ResourceClaim", namespace(pod), called),
            )

    def was_there(self, pod_uid: str, seconds: float) -> bool:
        """Whether a pod was there in the last seconds."""
        if pod_uid in self.objects["Pod"]:
            return True
        return self.gone_at.get(pod_uid, float("-inf")) >= self.at - seconds

    def _note(self, kind: str) -> None:
        if kind in self._past:
            self._past[kind].append((self.at, dict(self.objects[kind])))


def _is_admin(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(ADMIN_LABEL) == "true"
