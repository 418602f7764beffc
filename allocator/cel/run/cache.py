"""Remembers compiled expressions."""

import contextlib
from collections import OrderedDict

from allocator.cel.run.program import Program, compile_derived, compile_selector
from allocator.errors import CelCompileError


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
            with contextlib.suppress(KeyError):  # another thread has dropped it
                self._cache.move_to_end(key)
        if isinstance(found, CelCompileError):
            # A fresh one: a raised exception collects tracebacks.
            raise CelCompileError(found.message)
        return found
