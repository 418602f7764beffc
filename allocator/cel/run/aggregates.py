"""Closures for list, map and message literals."""

from typing import Any

from allocator.cel.run.code import METER, Code, Env, Run, constant
from allocator.cel.run.messages import make
from allocator.cel.values.scalars import Optional
from allocator.cel.values.selection import make_map
from allocator.errors import CelRuntimeError


def folded(build: Run) -> Code:
    """Fold a literal of constants; one that fails fails whenever it is evaluated."""
    try:
        return constant(build([]))
    except CelRuntimeError:
        return Code(build)


def list_builder(runs: list[Run], optionals: frozenset[int]) -> Run:
    """A list of elements, of which some are optionals: those without a value are left out."""
    if not optionals:
        return lambda env: [run(env) for run in runs]

    def build(env: Env) -> list[Any]:
        elements: list[Any] = []
        for at, run in enumerate(runs):
            value = run(env)
            if at in optionals:
                if value.__class__ is not Optional:
                    raise CelRuntimeError(
                        "cannot initialize optional list element from non-optional value"
                    )
                if not value.present:
                    continue
                value = value.value
            elements.append(value)
        return elements

    return build


def map_builder(entries: list[tuple[Run, Run, bool]]) -> Run:
    """A map of keys and values, of which some are optionals: those without a value are left out."""

    def build(env: Env) -> dict[object, object]:
        pairs: list[tuple[object, object]] = []
        for key_run, value_run, optional in entries:
            key = key_run(env)
            value = value_run(env)
            if optional:
                if value.__class__ is not Optional:
                    raise CelRuntimeError(
                        "cannot initialize optional entry from non-optional value"
                    )
                if not value.present:
                    pairs = [
                        pair
                        for pair in pairs
                        if pair[0] != key or pair[0].__class__ is not key.__class__
                    ]
                    continue
                value = value.value
            pairs.append((key, value))
        return make_map(pairs)

    return build


def message_builder(name: str, fields: list[tuple[str, Run, bool]]) -> Run:
    """A message of values for its fields, of which some are optionals: those without a value are left out."""

    def build(env: Env) -> Any:
        given: dict[str, Any] = {}
        for field, run, optional in fields:
            value = run(env)
            if optional:
                if value.__class__ is not Optional:
                    raise CelRuntimeError(
                        "cannot initialize optional entry from non-optional value"
                    )
                if not value.present:
                    given.pop(field, None)
                    continue
                value = value.value
            given[field] = value
        meter = env[METER]
        if meter is not None:
            meter.weigh(list(given.values()))
        return make(name, given)

    return build
