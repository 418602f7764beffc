"""Regular expressions with Go's semantics: RE2, unanchored, linear time.

The only module that knows google-re2. Plain literals, prefixes and suffixes become string methods: a search across
the language border costs twenty times as much.

Source: Go's regexp/syntax; differences of google-re2 are refused or patched here.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

from allocator.errors import CelRuntimeError

_MAX_REPEAT: Final = 1000
_LITERAL: Final = re.compile(
    r"(\^)?((?:[A-Za-z0-9 _/:@%=~,;<>&#!\"'-]|\\[.\-/+*?()\[\]{}|^$\\])*)(\$)?", re.ASCII
)
_AROUND: Final = re.compile(r"\^?\.\*((?:[A-Za-z0-9 _/:@%=~,;-]|\\[.\-])+)\.\*\$?", re.ASCII)
# google-re2's words for what is wrong -> Go's.
_PROBLEMS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
}
_UNESCAPE: Final = re.compile(r"\\(.)")


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    return options


_OPTIONS: Final = _options()


class Regex:
    """A compiled pattern."""

    __slots__ = ("_compiled", "search")

    def __init__(self, compiled: Any, search: Callable[[str], bool]) -> None:
        self._compiled = compiled
        self.search = search

    def find(self, text: str) -> str:
        """The first match, or an empty string."""
        match = self._compiled.search(text)
        return match.group() if match is not None else ""

    def find_all(self, text: str, limit: int) -> list[str]:
        """Matches from left to right, at most `limit`; all if it is negative."""
        found: list[str] = []
        if limit == 0:
            return found
        pos = 0
        previous_end = -1
        while pos <= len(text):
            match = self._compiled.search(text, pos)
            if match is None:
                break
            start, end = match.span()
            # An empty match directly behind a match is none, as in Go.
            if start != end or start != previous_end:
                found.append(text[start:end])
                if len(found) == limit:
                    break
            previous_end = end
            pos = end if end > start else end + 1
        return found


@lru_cache(maxsize=2048)
def compile_regex(pattern: str) -> Regex:
    """Compile a pattern.

    Raises:
        CelRuntimeError: it is no RE2 expression.
    """
    shortcut = _shortcut(pattern)
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        text = error.args[0] if error.args else "invalid"
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        problem, _, part = shown.partition(": ")
        shown = f"{_PROBLEMS.get(problem, problem)}: `{part}`"
        raise CelRuntimeError(f"error parsing regexp: {shown}") from None
    _refuse(pattern)
    search = compiled.search

    def matches(text: str) -> bool:
        return search(text) is not None

    return Regex(compiled, shortcut or matches)


def _refuse(pattern: str) -> None:
    """Refuse what google-re2 takes and Go does not."""
    if "\\C" in pattern and re.search(r"(?<!\\)(?:\\\\)*\\C", pattern):
        raise CelRuntimeError("error parsing regexp: invalid escape sequence: `\\C`")


def _shortcut(pattern: str) -> Callable[[str], bool] | None:
    """A string method for patterns that are literals, perhaps anchored."""
    match = _LITERAL.fullmatch(pattern)
    if match is not None:
        literal = _UNESCAPE.sub(r"\1", match.group(2))
        return _anchored(literal, start=match.group(1) is not None, end=match.group(3) is not None)
    match = _AROUND.fullmatch(pattern)
    if match is not None and "^" not in pattern and "$" not in pattern:
        # Not with anchors: `.` does not match a newline, so `^.*x` is more than containing x.
        return _anchored(_UNESCAPE.sub(r"\1", match.group(1)), start=False, end=False)
    if match is not None:
        return _without_newlines(pattern, _UNESCAPE.sub(r"\1", match.group(1)))
    return None


def _anchored(literal: str, *, start: bool, end: bool) -> Callable[[str], bool]:
    if start and end:
        return literal.__eq__
    if start:
        return lambda text: text.startswith(literal)
    if end:
        return lambda text: text.endswith(literal)
    return lambda text: literal in text


def _without_newlines(pattern: str, literal: str) -> Callable[[str], bool]:
    """`^.*x.*$`: containing x, as long as the text has one line."""
    compiled = re2.compile(pattern, _OPTIONS)

    def matches(text: str) -> bool:
        if "\n" in text:
            return compiled.search(text) is not None
        return literal in text

    return matches
