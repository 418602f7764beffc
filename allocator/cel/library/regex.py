r"""Regular expressions with Go's semantics: RE2, unanchored, linear time.

The only module that knows google-re2. Plain literals, prefixes and suffixes become string methods: a search across
the language border costs twenty times as much.

Go has one instruction for a class of characters, RE2 one for every way to write them in UTF-8: more than a thousand for
`\pL`. A large pattern is therefore compiled for Latin-1 as well, which has few ways, and that program looks at ASCII
texts, on which both agree. Its size is also the measure of how long a search may take.

Source: Go's regexp/syntax; differences of google-re2 are refused or patched here.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

from allocator.cel.library.regex_height import is_too_high
from allocator.cel.values.limits import MAX_CHARACTERS, Stopped
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
_FOLDS: Final = re.compile(r"\(\?[A-Za-z]*i")
_BEYOND_ASCII: Final = re.compile("[^\x00-\x7f]")
_UNESCAPE: Final = re.compile(r"\\(.)")
# Differs from upstream: neither making a program nor a search can be interrupted, and nothing else runs while one is made.
# Go takes programs of some ten times this size, and needs as long for them.
_MOST_MEMORY: Final = 8 << 20
# Instructions of a program times characters of a text: what a search may take where repetition makes a pattern much
# larger than it is long. Where it does not, the costs of upstream see the work, and their limit is limit enough.
_MOST_WORK: Final = 3_000_000
_A_CHARACTER: Final = 4  # instructions that a character of a pattern stands for, without repetition
_SMALL: Final = 500  # instructions
_MAX_HEIGHT: Final = 1000
_MOST_LEVELS: Final = (
    4  # that one pair of parentheses adds: itself, a repetition, a sequence, alternatives
)


def _options(*, narrow: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    options.never_capture = True  # nobody asks for groups, and finding them takes ten times as long
    if narrow:
        options.encoding = re2.Options.Encoding.LATIN1
    return options


_OPTIONS: Final = _options(narrow=False)
_NARROW: Final = _options(narrow=True)


class Regex:
    """A compiled pattern.

    Attributes:
        search: whether there is a match somewhere in a text.
        is_small: whether a search in the text of an attribute takes next to no time.
    """

    __slots__ = ("_longest", "_narrow", "_whole", "_work", "is_small", "search")

    def __init__(
        self, pattern: str, whole: Any, narrow: Any, shortcut: Callable[[str], bool] | None
    ) -> None:
        self._whole = whole
        self._narrow = narrow
        size = (whole if narrow is None else narrow).programsize
        self._work: int = _MOST_WORK // size
        is_plain = size <= _A_CHARACTER * len(pattern) + _SMALL
        self._longest: int = MAX_CHARACTERS if is_plain else self._work
        self.is_small: bool = size <= _SMALL
        # `\\B` is true inside of a character's bytes, where Go never looks.
        if shortcut is not None:
            self.search = shortcut
        elif "\\B" in pattern:
            self.search = self._search_slowly
        else:
            self.search = self._search if narrow is None else self._search_either

    def _search(self, text: str) -> bool:
        if len(text) > self._longest:
            raise _too_large()
        return self._whole.search(text) is not None

    def _search_either(self, text: str) -> bool:
        program, data = self._program(text, self._longest)
        return program.search(data) is not None

    def _search_slowly(self, text: str) -> bool:
        return bool(self.find_all(text, 1))

    def _program(self, text: str, longest: int) -> tuple[Any, bytes]:
        """The program for a text, and the text's bytes.

        Raises:
            Stopped: a search may take long, or the pattern is too large for a text that is not ASCII.
        """
        if len(text) > longest:
            raise _too_large()
        program = self._narrow if self._narrow is not None and text.isascii() else self._whole
        if program is None:
            raise Stopped(
                "operation interrupted: the pattern is too large for other texts than ASCII"
            )
        # Bytes, once: what searches in a text encodes it, each time.
        return program, text.encode()

    def find(self, text: str) -> str:
        """The first match, or an empty string."""
        program, data = self._program(text, self._longest)
        match = program.search(data)
        return match.group().decode() if match is not None else ""

    def find_all(self, text: str, limit: int) -> list[str]:
        """Matches from left to right, at most `limit`; all if it is negative."""
        found: list[str] = []
        if limit == 0:
            return found
        program, data = self._program(text, self._work)
        pos, previous_end = 0, -1
        while pos <= len(data):
            match = program.search(data, pos)
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


def _too_large() -> Stopped:
    return Stopped("operation interrupted: the pattern is too large for a text of this size")


@lru_cache(maxsize=2048)
def compile_regex(pattern: str) -> Regex:
    """Compile a pattern.

    Raises:
        CelRuntimeError: it is no RE2 expression.
    """
    whole, problem = _compiled(pattern, _OPTIONS)
    if whole is None and "too large" not in problem:
        raise CelRuntimeError(f"error parsing regexp: {problem}")
    narrow = None
    if whole is None or whole.programsize > _SMALL:
        narrow, _ = _compiled(_for_ascii(pattern), _NARROW)
    if whole is None and narrow is None:
        raise CelRuntimeError(f"error parsing regexp: {problem}")
    _refuse(pattern)
    return Regex(pattern, whole, narrow, _shortcut(pattern))


def _for_ascii(pattern: str) -> bytes | None:
    """A pattern in Latin-1 that finds in ASCII texts what the pattern finds there, or None.

    Any character beyond ASCII will do for any other, but not where case is folded: two of them fold to ASCII letters.
    """
    if pattern.isascii():
        return pattern.encode()
    return None if _FOLDS.search(pattern) else _BEYOND_ASCII.sub("\xff", pattern).encode("latin-1")


def _compiled(pattern: str | bytes | None, options: Any) -> tuple[Any, str]:
    """A program, or None and what is wrong with the pattern in Go's words."""
    if pattern is None:
        return None, ""
    try:
        return re2.compile(pattern, options), ""
    except re2.error as error:
        text = error.args[0] if error.args else "invalid"
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        problem, _, part = shown.partition(": ")
        return None, f"{_PROBLEMS.get(problem, problem)}: `{part}`"


def _refuse(pattern: str) -> None:
    """Refuse what google-re2 takes and Go does not."""
    if "\\C" in pattern and re.search(r"(?<!\\)(?:\\\\)*\\C", pattern):
        raise CelRuntimeError("error parsing regexp: invalid escape sequence: `\\C`")
    if is_too_high(pattern):
        raise CelRuntimeError(f"error parsing regexp: expression nests too deeply: `{pattern}`")


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
