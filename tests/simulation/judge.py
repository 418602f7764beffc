"""Judges a stored history again: `python -m tests.simulation.judge TRACE`."""

import sys
from pathlib import Path

import msgspec

from tests.invariants import Mark, Terms, judge, read_trace


def terms_of(path: Path) -> Terms:
    """What may be expected of the run, as it says itself in its first entry."""
    for entry in read_trace(path):
        if isinstance(entry, Mark) and entry.name == "plan":
            return msgspec.convert(entry.facts["terms"], Terms)
    return Terms()


def main() -> int:
    """The command."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.simulation.judge TRACE", file=sys.stderr)
        return 2
    path = Path(sys.argv[1])
    findings = judge(read_trace(path), terms_of(path))
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
