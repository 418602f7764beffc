"""Closures for calls."""

from collections.abc import Callable, Sequence
from typing import Any

from allocator.cel.cost.rules import FAILED, RULES_ON_RESULTS, CostRule
from allocator.cel.library.regex import Regex
from allocator.cel.run.code import METER, Code, Env, Run
from allocator.cel.values.comparison import equal
from allocator.cel.values.limits import Stopped
from allocator.cel.values.maps import map_key
from allocator.cel.values.names import native
from allocator.cel.values.scalars import UInt
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError

Method = Callable[..., object]


def plain(method: Method, args: Sequence[Code]) -> Run:
    """Call a function."""
    if len(args) == 1:
        first = args[0].run
        return lambda env: method(first(env))
    if len(args) == 2:
        first, second = args[0].run, args[1].run
        if args[1].is_constant:
            value = args[1].value
            return lambda env: method(first(env), value)
        return lambda env: method(first(env), second(env))
    runs = [arg.run for arg in args]
    return lambda env: method(*[run(env) for run in runs])


def counted(method: Method, runs: Sequence[Run], rule: CostRule, *, in_order: bool = False) -> Run:
    """Call a function and charge for it.

    With `in_order`, the first argument that fails ends the call, free of cost, before the others are evaluated; else
    both are evaluated, as upstream does for functions that it has resolved to one with two parameters.
    """
    needs_result = rule in RULES_ON_RESULTS
    last = len(runs) - 1
    in_order = in_order or len(runs) > 2

    def run(env: Env) -> object:
        values: list[Any] = []
        failure: CelRuntimeError | None = None
        for at, arg in enumerate(runs):
            try:
                values.append(arg(env))
            except CelRuntimeError as error:
                if in_order and at < last:
                    raise
                failure = failure or error
                values.append(FAILED)
        if failure is not None:
            env[METER].charge(rule(values, FAILED))
            raise failure
        meter = env[METER]
        meter.weigh(values)
        if not needs_result:
            # Before the work is done: some functions take the square of what they are given.
            meter.charge(rule(values, None))
            return method(*values)
        try:
            result = method(*values)
        except CelRuntimeError:
            meter.charge(rule(values, FAILED))
            raise
        meter.charge(rule(values, result))
        return result

    return run


def regex_method(function: str, regex: Regex) -> Method:
    """The function with its pattern compiled."""

    def method(value: Any, _pattern: Any, limit: Any = -1) -> object:
        # Behind a pattern that is known already, upstream takes anything that holds a text.
        text = native(value)
        if text.__class__ is not str or limit.__class__ is not int:
            raise CelRuntimeError("no such overload")
        if function == "matches":
            return regex.search(text)
        return regex.find(text) if function == "find" else regex.find_all(text, limit)

    return method


def regex_search(text: Run, search: Callable[[str], bool]) -> Run:
    """`text.matches(pattern)`."""

    def run(env: Env) -> bool:
        value = text(env)
        if value.__class__ is not str:
            value = native(value)
            if value.__class__ is not str:
                raise CelRuntimeError("no such overload")
        return search(value)

    return run


def equals_literal(left: Run, literal: Any, *, wanted: bool) -> Run:
    """`left == literal` or `left != literal`, where the literal is a string, int or bool."""
    cls = literal.__class__
    other = not wanted

    def run(env: Env) -> bool:
        value = left(env)
        if value.__class__ is cls:
            return wanted if value == literal else other
        result = equal(value, literal)
        if result is None:
            if wanted:
                raise CelRuntimeError("no such overload")
            return True
        return result is wanted

    return run


def in_set(left: Run, elements: Sequence[Any]) -> Run:
    """`left in [constants]`, as a set with the numbers of every numeric type that equal them."""
    texts = frozenset(element for element in elements if element.__class__ is str)
    marks = frozenset(mark for element in elements for mark in _marks(element))

    def run(env: Env) -> bool:
        value = left(env)
        cls = value.__class__
        if cls is str:
            return value in texts
        if cls is Semver or cls is bytes:
            raise Stopped("internal error: runtime error: hash of unhashable type")
        return map_key(value) in marks

    return run


def _marks(element: Any) -> list[object]:
    """The element, and the same number as int, uint and double where that is lossless or upstream rounds it."""
    cls = element.__class__
    marks = [map_key(element)]
    if cls is float:
        if element == element and abs(element) < 2**64 and element == int(element):  # NaN
            whole = int(element)
            if -(2**63) < whole < 2**63:
                marks.append(whole)
            if whole >= 0:
                marks.append(UInt(whole))
    elif cls is int:
        marks.append((float, float(element)))
        if element >= 0:
            marks.append(UInt(element))
    elif cls is UInt:
        marks.append((float, float(element.value)))
        if element.value < 2**63:
            marks.append(element.value)
    return marks
