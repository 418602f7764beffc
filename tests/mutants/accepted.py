"""Mutants that no test can notice, and why: they change nothing that anybody could see."""

from collections.abc import Mapping
from typing import Final

ACCEPTED: Final[Mapping[tuple[str, str], str]] = {}
"""(file, what) -> the reason."""
