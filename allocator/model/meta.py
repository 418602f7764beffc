"""Object metadata and the base of all API types.

API types are frozen msgspec structs in the shape of `resource.k8s.io/v1` (camelCase in JSON). Go writes `null` for
empty lists and maps, so every list and map may be None; readers use `x or ()`. Lists are tuples. Unknown fields are
dropped on decode: whoever writes an object back starts from its raw bytes.
"""

import msgspec


class ApiStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True
):
    """Base of all API types: immutable, keyword-only, camelCase on the wire, defaults left out when written."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """An owner of an object; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """The metadata that scheduling looks at. Timestamps stay RFC 3339 text."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None
