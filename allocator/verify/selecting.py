"""Whether the selectors of class and request, and the node, let a device be chosen."""

import msgspec

from allocator.cel import DeviceValues, prepare_device
from allocator.errors import CelError
from allocator.model.devices import Device
from allocator.verify.check import Check, Found, Placed
from allocator.verify.slices import is_for


def is_here(check: Check, found: Found) -> bool:
    """Whether a device is for the node."""
    if not found.slice.spec.per_device_node_selection:
        return True
    return is_for(check.node, found.device)


def check_selectors(check: Check, placed: Placed) -> None:
    """Check the selectors of class and request on a device."""
    device = placed.found.device
    every = (*(placed.device_class.spec.selectors or ()), *(placed.spec.selectors or ()))
    for selector in every:
        text = selector.cel.expression if selector.cel else ""
        try:
            matches = check.cel.selector(text).evaluate(values_of(check, placed.id.driver, device))
        except CelError as error:
            check.fail("selectors-match", placed.owner, f"{placed.id}: {text}: {error}")
            continue
        if not matches:
            check.fail("selectors-match", placed.owner, f"{placed.id}: {text}")


def values_of(check: Check, driver: str, device: Device) -> DeviceValues:
    """A device as selectors see it."""
    if check.is_stable:  # its selectors do not see sharing
        device = msgspec.structs.replace(device, allow_multiple_allocations=None)
    return prepare_device(driver, device)
