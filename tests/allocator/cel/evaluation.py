"""One device and short ways to ask it something."""

from typing import Any

from allocator.cel import DeviceValues, compile_selector, prepare_device
from allocator.errors import CelCompileError, CelRuntimeError
from allocator.model.devices import Device, DeviceAttribute, DeviceCapacity
from allocator.quantity import Quantity

DRIVER = "d.example.com"
ERROR = "runtime error"
REFUSED = "compile error"


def attributes(**changes):
    """Attributes of every type; a keyword adds or replaces one (`string="x"`-style dicts)."""
    values: dict[str, dict[str, Any]] = {
        "model": {"string": "A100"},
        "count": {"int_": 4},
        "flag": {"bool_": True},
        "v": {"version": "1.10.0"},
        "pre": {"version": "1.10.0-rc.1"},
        "ints": {"ints": (3, 1, 2)},
        "names": {"strings": ("a", "b")},
        "versions": {"versions": ("1.0.0", "2.0.0")},
        "std.example.com/numa": {"int_": 1},
    }
    values.update(changes)
    return {name: DeviceAttribute(**value) for name, value in values.items()}


def device(*, capacity=None, multiple=None, **changes) -> DeviceValues:
    """A prepared device."""
    amounts = {"memory": "80Gi", "half": "500m", "exp": "1e3"} if capacity is None else capacity
    return prepare_device(
        DRIVER,
        Device(
            name="gpu-0",
            attributes=attributes(**changes),
            capacity={
                name: DeviceCapacity(value=Quantity.parse(text)) for name, text in amounts.items()
            },
            allow_multiple_allocations=multiple,
        ),
    )


def ask(expression, on=None):
    """True, False, ERROR or REFUSED."""
    try:
        program = compile_selector(expression)
    except CelCompileError:
        return REFUSED
    try:
        return program.evaluate(on or device())
    except CelRuntimeError:
        return ERROR


def failure(expression, on=None):
    """The message of an expression that fails on the device."""
    try:
        answer = compile_selector(expression).evaluate(on or device())
    except CelRuntimeError as error:
        return error.message
    raise AssertionError(f"{expression} is {answer}")


def refusal(expression):
    """The message of an expression that does not compile."""
    try:
        compile_selector(expression)
    except CelCompileError as error:
        return error.message
    raise AssertionError(f"{expression} compiles")
