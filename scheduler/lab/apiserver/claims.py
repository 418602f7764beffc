"""Rules for the kinds of `resource.k8s.io` that need the old object; the others are `scheduler.validation`'s.

Source: pkg/registry/resource/*/strategy.go; docs/design/claims.md#api-server-rules.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from allocator.features import Features
from scheduler.api.defaults import with_defaults, without_disabled_fields
from scheduler.lab.apiserver import opaque
from scheduler.lab.apiserver.checks import causes_of
from scheduler.lab.apiserver.errors import Cause, invalid_value
from scheduler.lab.apiserver.objects import Json, at, namespace, same, spec, status
from scheduler.lab.apiserver.strategy import Lookup, Strategy, keep_metadata
from scheduler.validation import validate_claim_status


class DeviceStrategy(Strategy):
    """Any kind of the group: fields of disabled gates are dropped, defaults filled in."""

    kind = ""

    def __init__(self, features: Features) -> None:
        """Remember the gates."""
        self._features = features

    def default(self, obj: Json) -> None:
        """Fill in defaults."""
        obj.update(with_defaults(self.kind, obj))

    def prepare_for_create(self, obj: Json, lookup: Lookup) -> None:
        """Drop what is not served."""
        super().prepare_for_create(obj, lookup)
        obj.update(without_disabled_fields(self.kind, obj, self._features))


class ClaimStrategy(DeviceStrategy):
    """ResourceClaim."""

    kind = "ResourceClaim"
    has_status = True

    def prepare_for_status_update(self, new: Json, old: Json) -> None:
        """Leave spec and metadata alone; entries of devices that leave the allocation go with them."""
        super().prepare_for_status_update(new, old)
        keep_metadata(new, old)
        _drop_deallocated_devices(new, old)

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """The spec never changes."""
        yield from _check_immutable(new, old, "spec")

    def validate_status_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """Allocation, reservations and device statuses."""
        namespaces = {namespace(new): lookup.namespace_labels(namespace(new))}
        held, wanted = status(old).get("allocation"), status(new).get("allocation")
        if held and wanted:
            if not same(held, wanted):
                yield invalid_value("status.allocation", "field is immutable")
            # Spelled differently, or with fields that are not read here: still the same.
            old = {**old, "status": {**status(old), "allocation": wanted}}
        yield from _check_data(new)
        judged = (opaque.changed(self.kind, each, opaque.for_rules) for each in (old, new))
        yield from causes_of(validate_claim_status(*judged, namespaces=namespaces))


class TemplateStrategy(DeviceStrategy):
    """ResourceClaimTemplate."""

    kind = "ResourceClaimTemplate"

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """The spec never changes."""
        yield from _check_immutable(new, old, "spec")


class _TaintingStrategy(DeviceStrategy):
    """A kind with taints: sets `timeAdded` where it is missing."""

    def __init__(self, features: Features, now: Callable[[], str]) -> None:
        """Remember the gates, and how to ask for the time."""
        super().__init__(features)
        self._now = now

    def date(self, taints: Iterable[Json]) -> None:
        """Date taints, in place."""
        for taint in taints:
            taint.setdefault("timeAdded", self._now())


class SliceStrategy(_TaintingStrategy):
    """ResourceSlice."""

    kind = "ResourceSlice"

    def default(self, obj: Json) -> None:
        """Date the taints."""
        super().default(obj)
        for device in spec(obj).get("devices") or ():
            self.date(device.get("taints") or ())

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """A slice's node and driver are immutable."""
        yield from _check_immutable(new, old, "spec.driver", "spec.pool.name", "spec.nodeName")


class ClassStrategy(DeviceStrategy):
    """DeviceClass."""

    kind = "DeviceClass"


class TaintRuleStrategy(_TaintingStrategy):
    """DeviceTaintRule."""

    kind = "DeviceTaintRule"
    has_status = True

    def default(self, obj: Json) -> None:
        """Date the taint."""
        super().default(obj)
        if taint := spec(obj).get("taint"):
            self.date([taint])


def _check_data(claim: Json) -> Iterator[Cause]:
    """What a driver says of a device is an object, and not too long."""
    for index, device in enumerate(status(claim).get("devices") or ()):
        data = device.get("data")
        path = f"status.devices[{index}].data"
        if data is not None and opaque.for_rules(data) == "":
            yield invalid_value(path, "must be a valid JSON object")
        elif data is not None and len(data.raw) > opaque.MAX_BYTES:
            text = f"Too long: may not be more than {opaque.MAX_BYTES} bytes"
            yield Cause("FieldValueTooLong", path, text)


def _check_immutable(new: Json, old: Json, *paths: str) -> Iterator[Cause]:
    for path in paths:
        if not same(at(new, path), at(old, path)):
            yield invalid_value(path, "field is immutable")


def _allocated_keys(claim_status: Json) -> set[tuple[Any, ...]]:
    results = at(claim_status, "allocation.devices.results") or []
    return {_device_key(result) for result in results}


def _device_key(device: Json) -> tuple[Any, ...]:
    return tuple(device.get(field) for field in ("driver", "pool", "device", "shareID"))


def _drop_deallocated_devices(new: Json, old: Json) -> None:
    held = status(new)
    gone = _allocated_keys(status(old)) - _allocated_keys(held)
    if gone and held.get("devices"):
        held["devices"] = [device for device in held["devices"] if _device_key(device) not in gone]
