"""The types of API objects and their decoders, made once."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from allocator.model.claims import ResourceClaim, ResourceClaimTemplate
from allocator.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from allocator.model.hooks import dec_hook
from allocator.quantity import Quantity
from scheduler.model import Kind, NodeObject, Pod

TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    Kind.NODE: NodeObject,
    Kind.POD: Pod,
    Kind.RESOURCE_CLAIM: ResourceClaim,
    Kind.RESOURCE_SLICE: ResourceSlice,
    Kind.DEVICE_CLASS: DeviceClass,
    Kind.DEVICE_TAINT_RULE: DeviceTaintRule,
    "ResourceClaimTemplate": ResourceClaimTemplate,
}
_QUANTITIES: Final = 4_096  # texts of quantities that are remembered

_parse_quantity: Final = lru_cache(_QUANTITIES)(Quantity.parse)


def _dec_hook(type_: type, obj: Any) -> Any:
    """As `dec_hook`; quantities are immutable and few of them differ, so equal texts become one object."""
    if type_ is Quantity and isinstance(obj, str):
        return _parse_quantity(obj)
    return dec_hook(type_, obj)


DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(type_, dec_hook=_dec_hook) for kind, type_ in TYPES.items()
}
