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

from allocator.cel.values.limits import Stopped
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
# Differs from upstream: neither making a pattern nor matching it can be interrupted, and nothing else runs meanwhile. Go
# takes patterns of some ten times this size, and needs as long for them.
_MOST_MEMORY: Final = 8 << 20
_MOST_WORK: Final = 3_000_000
_SMALL: Final = 500  # instructions
"""Instructions of a pattern times characters of a text: what a search takes at most, when no shortcut helps."""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    options.never_capture = True  # nobody asks for groups, and finding them takes ten times as long
    return options


_OPTIONS: Final = _options()


class Regex:
    """A compiled pattern.

    Attributes:
        search: whether there is a match somewhere in a text.
        is_small: whether a search in the text of an attribute takes next to no time.
    """

    __slots__ = ("_compiled", "_longest", "is_small", "search")

    def __init__(self, compiled: Any, shortcut: Callable[[str], bool] | None) -> None:
        self._compiled = compiled
        self._longest: int = _MOST_WORK // compiled.programsize
        self.is_small: bool = compiled.programsize <= _SMALL
        # `\\B` is true inside of a character's bytes, where Go never looks.
        self.search = shortcut or (
            self._search_slowly if "\\B" in compiled.pattern else self._search
        )

    def _check(self, text: str) -> None:
        """Refuse what may take long.

        Raises:
            Stopped: the text is too long for a pattern of this size.
        """
        if len(text) > self._longest:
            raise Stopped("operation interrupted: the pattern is too large for a text of this size")

    def _search(self, text: str) -> bool:
        if len(text) > self._longest:
            self._check(text)
        return self._compiled.search(text) is not None

    def _search_slowly(self, text: str) -> bool:
        return bool(self.find_all(text, 1))

    def find(self, text: str) -> str:
        """The first match, or an empty string."""
        self._check(text)
        match = self._compiled.search(text)
        return match.group() if match is not None else ""

    def find_all(self, text: str, limit: int) -> list[str]:
        """Matches from left to right, at most `limit`; all if it is negative."""
        found: list[str] = []
        if limit == 0:
            return found
        self._check(text)
        data = text.encode()  # once: what searches in a text encodes it, each time
        pos, previous_end = 0, -1
        while pos <= len(data):
            match = self._compiled.search(data, pos)
            if match is None:
                break
            start, end = match.span()
            pos = end
            if start == end:
                pos = _next_character(data, end)
                # Inside of a character there is nothing to match, and directly behind a match no empty one, as in Go.
                if _is_inside(data, start) or start == previous_end:
                    continue
            found.append(data[start:end].decode())
            if len(found) == limit:
                break
            previous_end = end
        return found


def _is_inside(data: bytes, pos: int) -> bool:
    """Whether a position is behind the first byte of a character in UTF-8."""
    return pos < len(data) and data[pos] & 0xC0 == 0x80


def _next_character(data: bytes, pos: int) -> int:
    pos += 1
    while _is_inside(data, pos):
        pos += 1
    return pos


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
    return Regex(compiled, shortcut)


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
