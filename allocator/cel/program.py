"""Compiled expressions and the cache that holds them."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from allocator.cel import types
from allocator.cel.checker import check
from allocator.cel.code import FIRST_SLOT, METER, Run
from allocator.cel.compiler import Compiler as TreeCompiler
from allocator.cel.cost import LIMIT, Meter, Stopped
from allocator.cel.device import DeviceValues, to_attribute
from allocator.cel.parser import parse
from allocator.cel.reads import Read, can_be_costly, reads_of
from allocator.cel.syntax import Ast
from allocator.cel.types import Type
from allocator.cel.values import type_name
from allocator.errors import CelCompileError, CelRuntimeError

_TOO_DEEP: Final = "compilation failed: expression recursion limit exceeded: 250"
_SCALARS: Final = frozenset(
    {types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER}
)


class Program:
    """A compiled expression. Immutable, and may be used from several threads.

    Attributes:
        expression: its text.
        ast: its checked tree.
        reads: what it reads of a device, or None if that may be anything. An error in the device's own values
            (`DeviceValues.error`) makes it fail whatever it reads.
    """

    __slots__ = (
        "_costly",
        "_counted",
        "_counted_size",
        "_fast",
        "_size",
        "ast",
        "expression",
        "reads",
    )

    def __init__(self, ast: Ast) -> None:
        self.expression = ast.source
        self.ast = ast
        self.reads: frozenset[Read] | None = reads_of(ast.root)
        self._costly = can_be_costly(ast)
        # Cost is counted only where the limit can be reached; counting takes three times as long.
        self._fast, self._size = _closures(ast, counting=self._costly)
        self._counted: Run | None = self._fast if self._costly else None
        self._counted_size = self._size

    def evaluate(self, device: DeviceValues, *, deadline: Callable[[], bool] | None = None) -> bool:
        """Whether the device matches.

        Args:
            device: the device.
            deadline: answers whether time is up; asked in loops.

        Raises:
            CelRuntimeError: it fails on this device, its result is no bool, or it costs too much.
        """
        value = self._run(device, deadline)
        if value is True or value is False:
            return value
        raise CelRuntimeError(
            f"CEL result of type {type_name(value)} could not be converted to bool: "
            f"type conversion error from '{type_name(value)}' to 'bool'"
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
        if not self._costly:
            if self._size == FIRST_SLOT:
                return self._fast(device.env)
            return self._fast([*device.env, *[None] * (self._size - FIRST_SLOT)])
        return self._metered(self._fast, self._size, device, Meter(LIMIT, deadline))

    def _metered(self, run: Run, size: int, device: DeviceValues, meter: Meter) -> Any:
        env = [*device.env, *[None] * (size - FIRST_SLOT)]
        env[METER] = meter
        try:
            return run(env)
        except Stopped as stopped:
            raise CelRuntimeError(str(stopped)) from None
        except RecursionError:
            raise CelRuntimeError("expression nests too deeply to be evaluated") from None

    def cost(self, device: DeviceValues, *, limit: int = LIMIT) -> int:
        """What one evaluation costs by upstream's rules, whether or not it fails."""
        if self._counted is None:
            self._counted, self._counted_size = _closures(self.ast, counting=True)
        meter = Meter(limit)
        if device.error is None:
            with contextlib.suppress(CelRuntimeError):  # a failed evaluation has a cost too
                self._metered(self._counted, self._counted_size, device, meter)
        return meter.cost


def _closures(ast: Ast, *, counting: bool) -> tuple[Run, int]:
    compiler = TreeCompiler(counting=counting)
    try:
        run = compiler.compile(ast.root).run
    except RecursionError:
        raise CelCompileError(_TOO_DEEP) from None
    return run, compiler.size


def _checked(expression: str) -> tuple[Ast, Type]:
    ast = parse(expression)
    try:
        return ast, check(ast)
    except RecursionError:
        raise CelCompileError(_TOO_DEEP) from None


def compile_selector(expression: str) -> Program:
    """Compile a device selector.

    Raises:
        CelCompileError: it does not parse, does not type-check or cannot be a bool.
    """
    ast, type_ = _checked(expression)
    if type_ not in (types.BOOL, types.DYN):
        raise CelCompileError(f"must evaluate to bool or the unknown type, not {type_}")
    return Program(ast)


def compile_derived(expression: str) -> Program:
    """Compile a derived attribute: its result is a scalar or a list of scalars.

    Raises:
        CelCompileError: it does not parse, does not type-check or has another type.
    """
    ast, type_ = _checked(expression)
    inner = type_.params[0] if type_.kind == "list" else type_
    if inner not in _SCALARS:
        raise CelCompileError(
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, "
            f"not {type_}"
        )
    return Program(ast)


class Compiler:
    """Compiles and remembers: results and errors, least recently used out first."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._cache: OrderedDict[tuple[bool, str], Program | CelCompileError] = OrderedDict()

    def selector(self, expression: str) -> Program:
        """`compile_selector`, remembered.

        Raises:
            CelCompileError: as `compile_selector`.
        """
        return self._get(expression, derived=False)

    def derived(self, expression: str) -> Program:
        """`compile_derived`, remembered.

        Raises:
            CelCompileError: as `compile_derived`.
        """
        return self._get(expression, derived=True)

    def _get(self, expression: str, *, derived: bool) -> Program:
        key = (derived, expression)
        found = self._cache.get(key)
        if found is None:
            try:
                found = compile_derived(expression) if derived else compile_selector(expression)
            except CelCompileError as error:
                found = error
            self._cache[key] = found
            if len(self._cache) > self._size:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        if isinstance(found, CelCompileError):
            # A fresh one: a raised exception collects tracebacks.
            raise CelCompileError(found.message)
        return found
