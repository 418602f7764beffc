"""Strict semantic versions.

Source: github.com/blang/semver/v4.
"""

from typing import Final, Self

from allocator.cel.values.scalars import MAX_UINT
from allocator.errors import CelRuntimeError


class Semver:
    """A semantic version.

    Attributes:
        key: orders versions; build metadata takes no part.
        text: canonical text.
    """

    __slots__ = ("key", "major", "minor", "patch", "text")

    def __init__(self, major: int, minor: int, patch: int, pre: tuple[str, ...], text: str) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        # A version without pre-release follows those with one; numeric identifiers precede textual ones.
        self.key = (
            major,
            minor,
            patch,
            not pre,
            tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre),
        )
        self.text = text

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a strict semantic version.

        Raises:
            CelRuntimeError: it is none; the message is upstream's.
        """
        if not text:
            raise CelRuntimeError("Version string empty")
        numbers = text.split(".", 2)
        if len(numbers) != 3:
            raise CelRuntimeError("No Major.Minor.Patch elements found")
        major = _number(numbers[0], "Major")
        minor = _number(numbers[1], "Minor")
        rest, plus, build = numbers[2].partition("+")
        patch_text, dash, pre_text = rest.partition("-")
        patch = _number(patch_text, "Patch")
        pre = tuple(pre_text.split(".")) if dash else ()
        for part in pre:
            _check_prerelease(part)
        for part in build.split(".") if plus else ():
            if not part:
                raise CelRuntimeError("Build meta data is empty")
            if not _IDENTIFIER.issuperset(part):
                raise CelRuntimeError(f'Invalid character(s) found in build meta data "{part}"')
        return cls(major, minor, patch, pre, text)


_DIGITS: Final = frozenset("0123456789")
_IDENTIFIER: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789")


def _number(text: str, what: str) -> int:
    if not _DIGITS.issuperset(text):
        raise CelRuntimeError(f'Invalid character(s) found in {what.lower()} number "{text}"')
    if not text:
        raise CelRuntimeError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 1 and text[0] == "0":
        raise CelRuntimeError(f'{what} number must not contain leading zeroes "{text}"')
    if len(text) > 20 or int(text) > MAX_UINT:
        raise CelRuntimeError(f'strconv.ParseUint: parsing "{text[:80]}": value out of range')
    return int(text)


def _check_prerelease(part: str) -> None:
    if not part:
        raise CelRuntimeError("Prerelease is empty")
    if _DIGITS.issuperset(part):
        if len(part) > 1 and part[0] == "0":
            raise CelRuntimeError(
                f'Numeric PreRelease version must not contain leading zeroes "{part}"'
            )
        if len(part) > 20 or int(part) > MAX_UINT:
            raise CelRuntimeError(f'strconv.ParseUint: parsing "{part[:80]}": value out of range')
    elif not _IDENTIFIER.issuperset(part):
        raise CelRuntimeError(f'Invalid character(s) found in prerelease "{part}"')
