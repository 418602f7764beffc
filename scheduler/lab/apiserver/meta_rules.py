"""Rules for metadata, the same for every kind. Source: apimachinery pkg/api/validation/objectmeta.go."""

from collections.abc import Iterator
from typing import Any

from scheduler.lab.apiserver.errors import Cause, forbidden_value, invalid_value, required
from scheduler.lab.apiserver.objects import (
    Json,
    is_label_value,
    is_qualified_name,
    is_subdomain,
    metadata,
    same,
)

ANNOTATIONS_LIMIT_BYTES = 256 * 1024

_IMMUTABLE = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
# Members that are left out when empty.
_OMITTED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")


def tidy(obj: Json) -> None:
    """Leave out what the API leaves out of metadata when it is empty, in place."""
    held = obj.setdefault("metadata", {})
    for key in _OMITTED_WHEN_EMPTY:
        if key in held and not held[key]:
            del held[key]


def check_metadata(obj: Json, *, simple_name: bool = True) -> Iterator[Cause]:
    """What is wrong with the metadata by itself.

    Args:
        obj: any object; its name is generated already.
        simple_name: names must be DNS subdomains; otherwise any path segment will do.
    """
    meta = metadata(obj)
    name = meta.get("name") or ""
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif simple_name and not is_subdomain(name):
        yield invalid_value("metadata.name", f'"{name}": a lowercase RFC 1123 subdomain is needed')
    elif name in (".", "..") or "/" in name or "%" in name:
        yield invalid_value("metadata.name", f'"{name}": may not contain "/" or "%"')
    yield from _check_maps(meta)
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        if not is_qualified_name(finalizer):
            yield invalid_value(f"metadata.finalizers[{index}]", f'"{finalizer}": no such name')
    yield from _check_owners(meta.get("ownerReferences") or [])


def _check_maps(meta: Json) -> Iterator[Cause]:
    for key, value in (meta.get("labels") or {}).items():
        if not is_qualified_name(key):
            yield invalid_value("metadata.labels", f'"{key}": not a qualified name')
        if not is_label_value(value):
            yield invalid_value("metadata.labels", f'"{value}": not a label value')
    annotations = meta.get("annotations") or {}
    for key in annotations:
        if not is_qualified_name(key.lower()):
            yield invalid_value("metadata.annotations", f'"{key}": not a qualified name')
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
        yield Cause("FieldValueTooLong", "metadata.annotations", text)


def _check_owners(owners: list[Json]) -> Iterator[Cause]:
    controllers = 0
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
        controllers += owner.get("controller") is True
    if controllers > 1:
        yield invalid_value(
            "metadata.ownerReferences", "Only one reference can have Controller set to true"
        )


def check_metadata_update(new: Json, old: Json) -> Iterator[Cause]:
    """What of the metadata may not change that way."""
    after, before = metadata(new), metadata(old)
    for field in _IMMUTABLE:
        if not same(after.get(field), before.get(field)):
            yield invalid_value(f"metadata.{field}", f"{after.get(field)}: field is immutable")
    if before.get("deletionTimestamp"):
        added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            yield forbidden_value(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {sorted(added)}",
            )


def carry_over(new: Json, old: Json) -> None:
    """Restore what no update can change, in place: generation, times, a missing UID."""
    after: dict[str, Any] = new["metadata"]
    before = metadata(old)
    after.setdefault("uid", before.get("uid"))
    for field in ("creationTimestamp", "generation", "managedFields"):
        if field in before:
            after[field] = before[field]
        else:
            after.pop(field, None)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if before.get(field) is not None:
            after[field] = before[field]
        # Differs from what one expects: a deletionTimestamp that a client makes up is refused, not ignored,
        # since it is compared with the old one (absent) as an immutable field.
