"""Closures for `&&`, `||` and `?:`."""

from collections.abc import Sequence
from typing import Any

from allocator.cel.run.code import Env, Run
from allocator.errors import CelRuntimeError


def conjunction(terms: Sequence[Run]) -> Run:
    """`&&`: an error counts only if no term is false."""
    return _pair(*terms) if len(terms) == 2 else _connective(terms, decisive=False)


def _pair(first: Run, second: Run) -> Run:
    """`a && b`, the form most selectors have."""

    def run(env: Env) -> bool:
        try:
            one = first(env)
        except CelRuntimeError as error:
            if second(env) is False:
                return False
            raise error from None
        if one is False:
            return False
        other = second(env)
        if other is False:
            return False
        if one is True and other is True:
            return True
        raise CelRuntimeError("no such overload")

    return run


def disjunction(terms: Sequence[Run]) -> Run:
    """`||`: an error counts only if no term is true."""
    return _connective(terms, decisive=True)


def _connective(terms: Sequence[Run], *, decisive: bool) -> Run:
    def run(env: Env) -> bool:
        failure: CelRuntimeError | None = None
        for term in terms:
            try:
                value = term(env)
            except CelRuntimeError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive  # type: ignore[no-any-return]
            if value is not (not decisive):
                failure = failure or CelRuntimeError("no such overload")
        if failure is not None:
            raise failure
        return not decisive

    return run


def conditional(condition: Run, then: Run, other: Run) -> Run:
    """`c ? a : b`."""

    def run(env: Env) -> Any:
        value = condition(env)
        if value is True:
            return then(env)
        if value is False:
            return other(env)
        raise CelRuntimeError("no such overload")

    return run
