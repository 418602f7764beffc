"""A cluster read as a scheduler reads it when it starts: lists in pages of JSON, decoded and indexed, then events on top."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from allocator.model.devices import ResourceSlice
from allocator.model.hooks import enc_hook
from scheduler.api.decode import decode_list
from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.model import ClaimRecord, Kind, NodeObject, Watched

PAGE_SIZE: Final = 500
FIRST_VERSION: Final = 1
Lists = dict[Kind, list[bytes]]
Timer = Callable[[], float]
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)
_TOUCHED: Final = "dra-scheduler.dev/touched"
_API_VERSIONS: Final = {Kind.NODE: "v1", Kind.POD: "v1"}


def pages(kind: Kind, objects: Iterable[Any]) -> list[bytes]:
    """List answers as the API server gives them, from API objects or plain data with `resourceVersion` 1."""
    items = list(objects)
    head = {
        "kind": f"{kind}List",
        "apiVersion": _API_VERSIONS.get(kind, "resource.k8s.io/v1"),
        "metadata": {"resourceVersion": str(FIRST_VERSION)},
    }
    return [
        _ENCODER.encode({**head, "items": items[start : start + PAGE_SIZE]})
        for start in range(0, len(items), PAGE_SIZE)
    ]


class ListedCluster:
    """The cache of a cluster, filled from lists.

    Attributes:
        cache: the cluster.
        names: of its nodes, in list order.
        objects: how many objects the lists held.
        devices: how many devices the slices held.
        decode_seconds: from bytes to objects.
        index_seconds: from objects to a snapshot that decisions can be made on.
    """

    def __init__(
        self,
        lists: Mapping[Kind, list[bytes]],
        timer: Timer,
        *,
        consumable_capacity: bool = True,
        counts_claims: bool = False,
    ) -> None:
        """Read the lists.

        Args:
            lists: pages by kind; emptied on the way, so that text and objects are not held together.
            timer: seconds, for measuring.
            consumable_capacity: the gate.
            counts_claims: the gate of node-allocatable resources.

        Raises:
            ValueError: an object cannot be read.
        """
        self.cache = ClusterCache(
            consumable_capacity=consumable_capacity,
            counts_claims=counts_claims,
            silent_is_unlimited=True,
        )
        self.names: list[str] = []
        self.objects = self.devices = 0
        self.decode_seconds = self.index_seconds = 0.0
        self._slices: dict[str, ResourceSlice] = {}
        self._reduced: set[str] = set()
        self._version = FIRST_VERSION
        for kind, left in lists.items():
            items = self._decode(kind, left, timer)
            self._note(items)
            began = timer()
            self.cache.replace(kind, items, FIRST_VERSION)
            self.index_seconds += timer() - began
        began = timer()
        self.cache.snapshot()
        self.index_seconds += timer() - began

    def _decode(self, kind: Kind, left: list[bytes], timer: Timer) -> list[Watched]:
        items: list[Watched] = []
        left.reverse()
        while left:
            body = left.pop()
            began = timer()
            page = decode_list(kind, body)
            self.decode_seconds += timer() - began
            if page.refused:
                raise page.refused[0]
            items.extend(page.items)
        self.objects += len(items)
        return items

    def _note(self, items: Iterable[Watched]) -> None:
        for item in items:
            match item:
                case NodeObject():
                    self.names.append(item.metadata.name)
                case ResourceSlice():
                    self.devices += len(item.spec.devices or ())
                    if item.spec.node_name:
                        self._slices[item.spec.node_name] = item
                case _:
                    pass

    def add(self, kind: Kind, item: Watched) -> None:
        """A watch event: an object was made, or is another now."""
        self._version += 1
        self.cache.apply(WatchEvent(kind, EventType.ADDED, self._dated(item), self._version))

    def _dated(self, item: Watched) -> Watched:
        """The object with the version of this event."""
        if isinstance(item, ClaimRecord):
            return ClaimRecord(cast("Any", self._dated(cast("Watched", item.claim))), item.raw)
        metadata = msgspec.structs.replace(item.metadata, resource_version=str(self._version))
        return cast("Watched", msgspec.structs.replace(item, metadata=metadata))

    def set_devices(self, node: str, count: int | None) -> None:
        """Publish the node's slice anew with its first devices only; None: with all it had at first.

        Raises:
            KeyError: the node has no slice of its own.
        """
        first = self._slices[node]
        devices = (first.spec.devices or ())[:count]
        spec = msgspec.structs.replace(first.spec, devices=devices)
        self.add(Kind.RESOURCE_SLICE, msgspec.structs.replace(first, spec=spec))

    def touch(self, node: str) -> None:
        """Change what devices a node has: its slice loses its last device, or has it again. Without slice: its labels."""
        is_whole = node not in self._reduced
        self._reduced ^= {node}
        if node in self._slices:
            count = len(self._slices[node].spec.devices or ())
            self.set_devices(node, max(0, count - 1) if is_whole else None)
            return
        known = self.cache.node(node)
        if known is None:
            raise KeyError(node)
        labels = dict(known.metadata.labels or {})
        labels.pop(_TOUCHED, None)
        if is_whole:
            labels[_TOUCHED] = "true"
        metadata = msgspec.structs.replace(known.metadata, labels=labels)
        self.add(Kind.NODE, msgspec.structs.replace(known, metadata=metadata))

    def restore(self) -> None:
        """Make all nodes as they were at first."""
        for node in sorted(self._reduced):
            self.touch(node)
