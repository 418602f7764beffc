"""Closures for macros: one loop each, with the costs of upstream's expansion.

What a round costs follows from the expansion: reading the accumulator 1, `@not_strictly_false` 1, `!` 1, `+` 1, a list
with one element 10; constants and the accumulator as a branch of `?:` nothing.

Source: cel-go interpreter/interpretable.go (evalFold), parser/macro.go.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from allocator.cel.library.collections import insert
from allocator.cel.run.code import METER, Env, Run
from allocator.cel.values.maps import DomainMap, unmap_key
from allocator.cel.values.names import go_name
from allocator.errors import CelRuntimeError

_ALL_CONDITION, _EXISTS_CONDITION = 2, 3


def _no_tick() -> None:
    """Without a meter nothing is watched: the cost is known to be small."""


class Loop:
    """What a macro iterates over, and where its variables live.

    Attributes:
        counting: whether rounds charge the meter.
    """

    __slots__ = ("at", "counting", "iterated", "second")

    def __init__(self, iterated: Run, at: int, second: int | None, *, counting: bool) -> None:
        self.iterated = iterated
        self.at = at
        self.second = second
        self.counting = counting

    def elements(self, env: Env) -> Iterable[Any]:
        """The elements of a list or the keys of a map, for one variable and without counting.

        Raises:
            CelRuntimeError: the value is no list or map.
        """
        value = self.iterated(env)
        cls = value.__class__
        if cls is list:
            return value  # type: ignore[no-any-return]
        if cls is dict or cls is DomainMap:
            return map(unmap_key, value)
        raise CelRuntimeError(f"got '{go_name(value)}', expected iterable type")

    def rounds(self, env: Env) -> Iterator[None]:
        """Set the variables for each round in turn.

        Raises:
            CelRuntimeError: the value is no list or map.
            Stopped: time is up.
        """
        value = self.iterated(env)
        cls = value.__class__
        at = self.at
        second = self.second
        tick = env[METER].tick if self.counting else _no_tick
        if cls is list:
            if second is None:
                for element in value:
                    env[at] = element
                    tick()
                    yield
            else:
                for position, element in enumerate(value):
                    env[at] = position
                    env[second] = element
                    tick()
                    yield
        elif cls is dict or cls is DomainMap:
            for key, member in value.items():
                env[at] = unmap_key(key)
                if second is not None:
                    env[second] = member
                tick()
                yield
        elif second is None:
            raise CelRuntimeError(f"got '{go_name(value)}', expected iterable type")
        else:
            raise CelRuntimeError(f"unsupported comprehension range type: {go_name(value)}")


def quantifier(loop: Loop, predicate: Run, *, wanted: bool) -> Run:
    """`all` (false decides) and `exists` (true decides); an error counts only if nothing decides."""

    def run(env: Env) -> bool:
        failure: CelRuntimeError | None = None
        for _ in loop.rounds(env):
            try:
                value = predicate(env)
            except CelRuntimeError as error:
                failure = failure or error
                continue
            if value is wanted:
                return wanted  # type: ignore[no-any-return]
            if value is not (not wanted):
                failure = failure or CelRuntimeError("no such overload")
        if failure is not None:
            raise failure
        return not wanted

    if loop.counting:
        return _counted_quantifier(loop, predicate, wanted=wanted)
    return run if loop.second is not None else _simple_quantifier(loop, predicate, wanted=wanted)


def _simple_quantifier(loop: Loop, predicate: Run, *, wanted: bool) -> Run:
    """One variable, no counting."""
    at = loop.at

    def run(env: Env) -> bool:
        failure: CelRuntimeError | None = None
        for element in loop.elements(env):
            env[at] = element
            try:
                value = predicate(env)
            except CelRuntimeError as error:
                failure = failure or error
                continue
            if value is wanted:
                return wanted  # type: ignore[no-any-return]
            if value is not (not wanted):
                failure = failure or CelRuntimeError("no such overload")
        if failure is not None:
            raise failure
        return not wanted

    return run


def _counted_quantifier(loop: Loop, predicate: Run, *, wanted: bool) -> Run:
    condition = _EXISTS_CONDITION if wanted else _ALL_CONDITION

    def run(env: Env) -> bool:
        failure: CelRuntimeError | None = None
        decided = False
        charge = env[METER].charge
        for _ in loop.rounds(env):
            # The condition is evaluated once more, for the element behind the one that decided.
            charge(condition if decided else condition + 1)
            if decided:
                break
            try:
                value = predicate(env)
            except CelRuntimeError as error:
                failure = failure or error
                continue
            decided = value is wanted
            if not decided and value is not (not wanted):
                failure = failure or CelRuntimeError("no such overload")
        charge(1)
        if decided:
            return wanted
        if failure is not None:
            raise failure
        return not wanted

    return run


def exists_one(loop: Loop, predicate: Run) -> Run:
    """`exists_one`: no error is absorbed."""

    def run(env: Env) -> bool:
        count = 0
        for _ in loop.rounds(env):
            if _holds(predicate(env)):
                count += 1
        return count == 1

    if not loop.counting:
        return run

    def note(env: Env, found: list[Any]) -> None:
        found.append(None)

    counted = _counted(loop, predicate, note, list, cost=2, result_cost=2)
    return lambda env: len(counted(env)) == 1


def _holds(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise CelRuntimeError("no such overload")


def _counted(
    loop: Loop,
    predicate: Run | None,
    step: Callable[[Env, Any], None],
    make: Callable[[], Any],
    *,
    cost: int,
    result_cost: int = 1,
    failed_cost: int | None = None,
) -> Run:
    """A loop that makes something, with upstream's costs: it goes on after an error, which stays its result.

    Args:
        loop: what is iterated over.
        predicate: which rounds count; None for all.
        step: adds a round's part to what is made.
        make: makes an empty result.
        cost: what a round costs that counts.
        result_cost: what reading the result costs.
        failed_cost: what a round costs behind an error, if the step is not evaluated then.
    """

    def run(env: Env) -> Any:
        made = make()
        failure: CelRuntimeError | None = None
        charge = env[METER].charge
        for _ in loop.rounds(env):
            try:
                if predicate is not None and not _holds(predicate(env)):
                    continue
            except CelRuntimeError as error:
                failure = failure or error
                continue
            if failure is not None and failed_cost is not None:
                charge(failed_cost)
                continue
            try:
                step(env, made)
            except CelRuntimeError as error:
                failure = failure or error
            charge(cost)
        charge(result_cost)
        if failure is not None:
            raise failure
        return made

    return run


def mapped(loop: Loop, predicate: Run | None, transform: Run, cost: int) -> Run:
    """`map` and `transformList`, with or without predicate."""

    def run(env: Env) -> list[Any]:
        return [
            transform(env) for _ in loop.rounds(env) if predicate is None or _holds(predicate(env))
        ]

    def step(env: Env, made: list[Any]) -> None:
        made.append(transform(env))

    return _counted(loop, predicate, step, list, cost=cost) if loop.counting else run


_FILTER_COST: Final = 13


def filtered(loop: Loop, predicate: Run) -> Run:
    """`filter`."""
    at = loop.at

    def run(env: Env) -> list[Any]:
        # The predicate may hold a macro with a variable of the same name, but that has a place of its own.
        return [env[at] for _ in loop.rounds(env) if _holds(predicate(env))]

    def step(env: Env, made: list[Any]) -> None:
        made.append(env[at])

    return _counted(loop, predicate, step, list, cost=_FILTER_COST) if loop.counting else run


def transformed_map(loop: Loop, predicate: Run | None, transform: Run, *, whole: bool) -> Run:
    """`transformMap`, and `transformMapEntry` (`whole`) whose transform makes maps to be merged."""
    at = loop.at

    def step(env: Env, made: dict[object, object]) -> None:
        value = transform(env)
        if not whole:
            insert(made, env[at], value)
        elif value.__class__ is dict or value.__class__ is DomainMap:
            for key, member in value.items():
                insert(made, unmap_key(key), member)
        else:
            raise CelRuntimeError("no such overload: cel.@mapInsert")

    def run(env: Env) -> dict[object, object]:
        made: dict[object, object] = {}
        for _ in loop.rounds(env):
            if predicate is None or _holds(predicate(env)):
                step(env, made)
        return made

    if not loop.counting:
        return run
    if whole:
        return _counted(loop, predicate, step, dict, cost=2)
    return _counted(loop, predicate, step, dict, cost=3, failed_cost=1)
