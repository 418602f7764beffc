"""cel-python, asked with the questions that upstream and we are asked: JSON lines in, one JSON line out for each.

`python -m tests.conformance.cel_python_worker`. A process of its own, because making an environment sets the recursion limit
of the whole process.
"""

import json
import sys
from typing import Any

import celpy
from celpy import celtypes

from tests.conformance.objects import Json

_NUMBERS = {
    "int": "int",
    "bool": "bool",
    "string": "string",
    "ints": "int",
    "bools": "bool",
    "strings": "string",
}


class _Domains(celtypes.MapType):  # type: ignore[misc]  # no types when cel-python is not installed
    """`device.attributes`: looking up an unknown domain gives an empty map."""

    def __missing__(self, key: object) -> object:
        return celtypes.MapType()


def device(body: Json) -> Any:
    """A device with the attributes that cel-python can hold: no versions, and no capacity."""
    driver = body.get("driver", "")
    domains: dict[str, Json] = {}
    for name, attribute in (body.get("attributes") or {}).items():
        domain, slash, id_ = name.partition("/")
        for kind, value in attribute.items():
            if kind in _NUMBERS:
                domains.setdefault(domain if slash else driver, {})[id_ if slash else name] = value
    attributes = _Domains(
        {
            celtypes.StringType(domain): celpy.json_to_cel(values)
            for domain, values in domains.items()
        }
    )
    return celtypes.MapType(
        {
            celtypes.StringType("driver"): celtypes.StringType(driver),
            celtypes.StringType("allowMultipleAllocations"): celtypes.BoolType(
                bool(body.get("allowMultipleAllocations"))
            ),
            celtypes.StringType("attributes"): attributes,
        }
    )


def answer(environment: Any, question: Json) -> Json:
    """`{"result": "true" | "false" | "error", "message"}`: without a type checker all errors are one."""
    try:
        program = environment.program(environment.compile(question["expr"]))
        value = program.evaluate({"device": device(question["device"])})
    except Exception as error:  # whatever it raises is its answer
        return {"result": "error", "message": f"{type(error).__name__}: {error}"[:600]}
    if not isinstance(value, celtypes.BoolType):
        return {"result": "error", "message": f"not a bool: {type(value).__name__}"}
    return {"result": "true" if value else "false"}


def main() -> None:
    """Answer until the input ends."""
    environment = celpy.Environment()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(environment, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
