"""Our CEL, asked with the same questions as upstream's."""

import msgspec

from allocator.cel import Compiler, DeviceValues, prepare_device
from allocator.cel.admission import check_new_expression
from allocator.errors import CelCompileError, CelError
from allocator.features import Features
from allocator.model.devices import Device
from allocator.model.hooks import dec_hook
from tests.conformance.objects import Json

_NEWEST = Features.for_version("1.37")


def values(question: Json) -> DeviceValues:
    """The device of a question."""
    body = dict(question["device"])
    driver = body.pop("driver", "")
    device = msgspec.convert({"name": "d", **body}, Device, dec_hook=dec_hook)
    return prepare_device(driver, device)


def admission(question: Json) -> tuple[str, int]:
    """What the API server says to it as a new expression, and the estimate of its cost."""
    said = check_new_expression(
        question["expr"], _NEWEST, "1.37", derived=bool(question.get("derived"))
    )
    return str(said.verdict), said.cost


def cost(question: Json, compiler: Compiler) -> int:
    """What the evaluation costs."""
    return compiler.selector(question["expr"]).cost(values(question))


def ours(question: Json, compiler: Compiler) -> Json:
    """`{"result": true|false|compile_error|runtime_error, "message"}` for an expression and a device.

    For a derived attribute the result is `value`, with the attribute as `value`.
    """
    try:
        if question.get("derived"):
            value = compiler.derived(question["expr"]).evaluate_value(values(question))
            return {"result": "value", "value": msgspec.json.decode(msgspec.json.encode(value))}
        program = compiler.selector(question["expr"])
        matches = program.evaluate(values(question))
    except CelCompileError as error:
        return {"result": "compile_error", "message": error.message}
    except CelError as error:
        return {"result": "runtime_error", "message": error.message}
    return {"result": "true" if matches else "false"}
