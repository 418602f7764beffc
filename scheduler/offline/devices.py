"""Devices from plain data: those of the slices among manifests, and single ones."""

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from allocator.model.devices import Device, ResourceSlice
from allocator.model.hooks import dec_hook
from scheduler.api.convert import UnknownVersionError, to_v1
from scheduler.api.decode import DecodeError, decode_tree_object
from scheduler.api.defaults import with_defaults
from scheduler.api.numbers import encode_tree
from scheduler.api.walk import FieldError, conform, json_type
from scheduler.offline.manifests import Manifest


def slices_of(manifests: Iterable[Manifest]) -> tuple[list[ResourceSlice], list[str]]:
    """The ResourceSlices, in input order, and what is wrong with those that cannot be read."""
    slices: list[ResourceSlice] = []
    errors: list[str] = []
    for manifest in manifests:
        if manifest.obj.get("kind") != "ResourceSlice":
            continue
        try:
            obj = with_defaults("ResourceSlice", to_v1("ResourceSlice", manifest.obj))
            slices.append(cast("ResourceSlice", decode_tree_object("ResourceSlice", obj)))
        except (DecodeError, UnknownVersionError) as error:
            errors.append(f"{manifest.file}, document {manifest.document}: {error}")
    return slices, errors


def device_from_tree(tree: Any) -> tuple[str, Device]:
    """A device with its driver: the fields of a device in a slice, and `driver` beside them.

    Raises:
        FieldError: a field has the wrong type.
    """
    if not isinstance(tree, dict):
        raise FieldError("", f"expected an object, got {json_type(tree)}")
    driver = tree.get("driver", "")
    if not isinstance(driver, str):
        raise FieldError("driver", f"expected text, got {json_type(driver)}")
    raw = encode_tree(conform(Device, {key: tree[key] for key in tree if key != "driver"}))
    return driver, msgspec.json.decode(raw, type=Device, dec_hook=dec_hook)
