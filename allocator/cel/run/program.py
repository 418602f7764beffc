"""Compiled expressions."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from allocator.cel import types
from allocator.cel.check.checker import check
from allocator.cel.check.environment import STORED, Environment
from allocator.cel.cost.bounds import cost_bound
from allocator.cel.cost.meter import LIMIT, Meter
from allocator.cel.library.regex import compile_regex
from allocator.cel.run.code import FIRST_SLOT, METER, Run
from allocator.cel.run.compiler import Compiler as TreeCompiler
from allocator.cel.run.device import DeviceValues, to_attribute
from allocator.cel.run.reads import Read, reads_of
from allocator.cel.syntax.parser import parse
from allocator.cel.syntax.tree import Ast, Call, Literal, Node
from allocator.cel.types import Type
from allocator.cel.values.limits import Stopped
from allocator.cel.values.names import native, type_name
from allocator.errors import CelCompileError, CelRuntimeError

_TOO_DEEP_TO_RUN: Final = "expression nests too deeply to be evaluated"
_TOO_DEEP: Final = "compilation failed: expression recursion limit exceeded: 250"
_QUICK: Final = (
    100_000  # bound of costs: two dozen comparisons, of which each might be one of lists
)
_MATCHING: Final = frozenset({"matches", "find", "findAll"})
_SCALARS: Final = frozenset(
    {types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER}
)


class Program:
    """A compiled expression. Immutable but for a note, and may be used from several threads.

    Attributes:
        expression: its text.
        ast: its checked tree.
        reads: what it reads of a device, or None if that may be anything. An error in the device's own values
            (`DeviceValues.error`) makes it fail whatever it reads.
    """

    __slots__ = ("_cheap", "_counted", "_fast", "_is_new", "_is_slow", "ast", "expression", "reads")

    def __init__(self, ast: Ast) -> None:
        self.expression = ast.source
        self.ast = ast
        self.reads: frozenset[Read] | None = reads_of(ast.root)
        # Cost is counted only where the limit can be reached: counting takes three times as long.
        bound = cost_bound(ast.root)
        self._cheap = bound <= LIMIT
        self._fast = _closures(ast, counting=not self._cheap)
        self._counted: _Closures | None = None if self._cheap else self._fast
        self._is_new = True  # making it took time that nobody has looked at
        self._is_slow = bound > _QUICK or _has_large_pattern(ast.root)

    def evaluate(self, device: DeviceValues, *, deadline: Callable[[], bool] | None = None) -> bool:
        """Whether the device matches.

        Args:
            device: the device.
            deadline: answers whether time is up; asked before the first evaluation, before each if it may take long,
                and in loops.

        Raises:
            CelRuntimeError: it fails on this device, its result is no bool, or it costs too much.
        """
        value = self._run(device, deadline)
        if value is True or value is False:
            return value
        held = native(value)  # what an optional holds
        if held is True or held is False:
            return held
        name = type_name(value)
        raise CelRuntimeError(
            f"CEL result of type {name} could not be converted to bool: unsupported type conversion from '{name}' to bool"
        )

    def evaluate_value(
        self, device: DeviceValues, *, deadline: Callable[[], bool] | None = None
    ) -> object:
        """The value of a derived attribute, as a `DeviceAttribute`.

        Raises:
            CelRuntimeError: it fails on this device, its result is no attribute value, or it costs too much.
        """
        return to_attribute(self._run(device, deadline))

    def _run(self, device: DeviceValues, deadline: Callable[[], bool] | None) -> Any:
        if device.error is not None:
            raise CelRuntimeError(device.error)
        try:
            if (self._is_slow or self._is_new) and deadline is not None:
                self._is_new = False
                if deadline():
                    raise Stopped("operation interrupted")
            if not self._cheap or device.oversized:
                return _metered(self._counting(), device, Meter(LIMIT, deadline))
            fast = self._fast
            return fast.run([*device.env, *fast.slots] if fast.slots else device.env)
        except Stopped as stopped:
            raise CelRuntimeError(str(stopped)) from None
        except RecursionError:
            raise CelRuntimeError(_TOO_DEEP_TO_RUN) from None

    def _counting(self) -> "_Closures":
        if self._counted is None:
            self._counted = _closures(self.ast, counting=True)
        return self._counted

    def cost(self, device: DeviceValues, *, limit: int = LIMIT) -> int:
        """What one evaluation costs by upstream's rules, whether or not it fails."""
        meter = Meter(limit)
        if device.error is None:
            with contextlib.suppress(
                CelRuntimeError, Stopped
            ):  # a failed evaluation has a cost too
                _metered(self._counting(), device, meter)
        return meter.cost


def _has_large_pattern(root: Node) -> bool:
    """Whether a regular expression may take long; costs see the length of a pattern, not what it stands for."""
    pending = [root]
    while pending:
        node = pending.pop()
        children = node.children()
        if isinstance(node, Call) and node.function in _MATCHING and len(children) > 1:
            pattern = children[1]
            if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
                return True
            with contextlib.suppress(CelRuntimeError):  # it would not have been compiled
                if not compile_regex(pattern.value).is_small:
                    return True
        pending.extend(children)
    return False


class _Closures(NamedTuple):
    """A compiled tree, and empty places for its variables."""

    run: Run
    slots: list[None]


def _metered(closures: _Closures, device: DeviceValues, meter: Meter) -> Any:
    env = [*device.env, *closures.slots]
    env[METER] = meter
    return closures.run(env)


def _closures(ast: Ast, *, counting: bool) -> _Closures:
    compiler = TreeCompiler(counting=counting)
    run = compiler.compile_tree(ast.root).run
    return _Closures(run, [None] * (compiler.size - FIRST_SLOT))


def _checked(expression: str) -> tuple[Ast, Type]:
    ast = parse(expression)
    return ast, check(ast)


def _guarded(make: Callable[[str], Program], expression: str) -> Program:
    """Nested macros may need more Python frames than there are."""
    try:
        return make(expression)
    except RecursionError:
        raise CelCompileError(_TOO_DEEP) from None
    except Stopped as stopped:
        raise CelCompileError(f"program instantiation failed: {stopped}") from None


def compile_selector(expression: str) -> Program:
    """Compile a device selector.

    Raises:
        CelCompileError: it does not parse, does not type-check or cannot be a bool.
    """
    return _guarded(_selector, expression)


def _selector(expression: str) -> Program:
    ast, type_ = _checked(expression)
    check_selector_type(type_, STORED)
    return Program(ast)


def check_selector_type(type_: Type, environment: Environment) -> None:
    """Require a bool, or a value whose type is known only on a device.

    Raises:
        CelCompileError: another type.
    """
    if type_ not in (types.BOOL, environment.attribute):
        raise CelCompileError(f"must evaluate to bool or the unknown type, not {type_.declared}")


def compile_derived(expression: str) -> Program:
    """Compile a derived attribute: its result is a scalar or a list of scalars.

    Raises:
        CelCompileError: it does not parse, does not type-check or has another type.
    """
    return _guarded(_derived, expression)


def _derived(expression: str) -> Program:
    ast, type_ = _checked(expression)
    check_derived_type(type_, lists=True)
    return Program(ast)


def check_derived_type(type_: Type, *, lists: bool) -> None:
    """Require a scalar, or a list of scalars where lists are allowed.

    Raises:
        CelCompileError: another type.
    """
    inner = type_.params[0] if lists and type_.kind == "list" else type_
    if inner in _SCALARS:
        return
    scalars = "a primitive scalar (string, integer, boolean, semver)"
    raise CelCompileError(
        f"must evaluate to {scalars}{' or a list of these scalars' if lists else ''}, not {type_.declared}"
    )
