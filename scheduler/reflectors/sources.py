"""Where each kind is served: paths to try, newest API version first."""

from collections.abc import Mapping
from typing import Final

from scheduler.api.convert import KNOWN_VERSIONS
from scheduler.model import Kind

_PLURALS: Final = {
    Kind.RESOURCE_CLAIM: "resourceclaims",
    Kind.RESOURCE_SLICE: "resourceslices",
    Kind.DEVICE_CLASS: "deviceclasses",
    Kind.DEVICE_TAINT_RULE: "devicetaintrules",
}

PATHS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.NODE: ("/api/v1/nodes",),
    Kind.POD: ("/api/v1/pods",),
} | {
    kind: tuple(f"/apis/{version}/{plural}" for version in KNOWN_VERSIONS[kind])
    for kind, plural in _PLURALS.items()
}

# A cluster may not have these at all: then there are none.
OPTIONAL: Final = frozenset({Kind.DEVICE_TAINT_RULE})

# Objects of one page of a list. A slice may have 128 devices: a page of many is megabytes to look through at once.
PAGE_LIMITS: Final[Mapping[Kind, int]] = {Kind.RESOURCE_SLICE: 100}
