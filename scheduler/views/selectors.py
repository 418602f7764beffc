"""Which devices a CEL selector matches, and for the others which clause was false or failed. Plain data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from allocator.cel import Clause, Program, explain, prepare_device
from allocator.errors import CelRuntimeError
from allocator.model.devices import DeviceID, ResourceSlice


@dataclass(frozen=True, slots=True)
class DeviceMatch:
    """What a selector says of one device.

    Attributes:
        device: the device.
        matches: true, false, or None if it fails.
        message: the error, or empty.
        clauses: the parts that were not true.
    """

    device: DeviceID
    matches: bool | None
    message: str = ""
    clauses: tuple[Clause, ...] = ()

    @property
    def result(self) -> str:
        """`true`, `false` or `runtime_error`."""
        if self.matches is None:
            return "runtime_error"
        return "true" if self.matches else "false"


def match_devices(program: Program, slices: Iterable[ResourceSlice]) -> list[DeviceMatch]:
    """Try a selector on every device, in order of slice and device."""
    matches = []
    for each in slices:
        for device in each.spec.devices or ():
            values = prepare_device(each.spec.driver, device)
            device_id = DeviceID(each.spec.driver, each.spec.pool.name, device.name)
            try:
                is_match = program.evaluate(values)
            except CelRuntimeError as error:
                clauses = explain(program, values)
                matches.append(DeviceMatch(device_id, None, error.message, clauses))
                continue
            clauses = () if is_match else explain(program, values)
            matches.append(DeviceMatch(device_id, is_match, "", clauses))
    return matches


def as_tree(expression: str, matches: Iterable[DeviceMatch]) -> dict[str, Any]:
    """The answer as plain data."""
    return {
        "expression": expression,
        "devices": [
            {
                "driver": each.device.driver,
                "pool": each.device.pool,
                "device": each.device.device,
                "result": each.result,
                "message": each.message,
                "clauses": [
                    {"text": clause.text, "found": clause.found, "error": clause.error}
                    for clause in each.clauses
                ],
            }
            for each in matches
        ],
    }
