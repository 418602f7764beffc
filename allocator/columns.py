"""A slice by what questions read of it: slices that a question cannot tell apart have the same key.

Devices of equal nodes differ, in name, uuid and PCI address for instance, and a question reads none of that. So each
attribute is a column of its own, and everything else is one frame. Equal columns and equal frames are one object, by an
interner, so that comparing them costs nothing.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from allocator.cel import attribute_problem
from allocator.model.devices import ResourcePool, ResourceSliceSpec
from allocator.quantity import Quantity
from allocator.snapshot import PreparedSlice

_NO_POOL: Final = ResourcePool()


def exactly(value: Any) -> str:
    """An encoder's hook: a quantity with all that arithmetic and expressions may see of it; its text alone does not tell 1.5 from 1500m."""
    if isinstance(value, Quantity):
        return f"{value.nanos} {value.format} {value.exponent} {value.small}"
    raise NotImplementedError(type(value).__name__)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=exactly)


def encoded(value: object) -> bytes:
    """API objects as bytes; equal bytes mean that no question can distinguish the objects."""
    return _ENCODER.encode(value)


class Interned:
    """Stands for a value; equal values of one interner are the same object.

    Attributes:
        value: what it stands for.
    """

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Hashable) -> None:
        self.value = value


class Interner:
    """Returns the same object for equal values, for as long as it is referenced."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Interned] = WeakValueDictionary()

    def of(self, value: Hashable) -> Interned:
        """The object that stands for a value."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = Interned(value)
        return found


class SliceColumns:
    """What can be read of a slice.

    Attributes:
        frame: all of it but names, the pool, the node it is for, and values of attributes.
        attributes: attribute name as written -> its values, one a device (None where it is not).
    """

    __slots__ = ("attributes", "frame")

    def __init__(self, frame: Interned, attributes: Mapping[str, Interned]) -> None:
        self.frame = frame
        self.attributes = attributes


def columns_of(prepared: PreparedSlice, interner: Interner) -> SliceColumns:
    """The columns of a slice, kept with it."""
    found: SliceColumns | None = prepared.memo.get(interner)
    if found is None:
        spec = prepared.slice.spec
        found = SliceColumns(
            interner.of(_frame(spec)),
            {name: interner.of(tuple(values)) for name, values in _values(spec).items()},
        )
        prepared.memo[interner] = found
    return found


def _frame(spec: ResourceSliceSpec) -> tuple[bytes, tuple[str | None, ...]]:
    """Everything that is not a column; an attribute without a valid value counts for every expression on its device."""
    devices = spec.devices or ()
    bare = tuple(msgspec.structs.replace(each, name="", attributes=None) for each in devices)
    rest = msgspec.structs.replace(spec, pool=_NO_POOL, node_name=None, devices=bare)
    problems = tuple(attribute_problem(each) for each in devices)
    return encoded(rest), problems


def _values(spec: ResourceSliceSpec) -> dict[str, list[Any]]:
    devices = spec.devices or ()
    columns: dict[str, list[Any]] = {}
    for index, device in enumerate(devices):
        for name, attribute in (device.attributes or {}).items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = [None] * len(devices)
            column[index] = attribute
    return columns
