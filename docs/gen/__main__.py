"""`python -m docs.gen [--check]`."""

import sys

from docs.gen import stale, write


def main(arguments: list[str]) -> int:
    """Write the generated files, or with `--check` only say which are out of date (exit code 1)."""
    if arguments == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path} is out of date: run python -m docs.gen", file=sys.stderr)  # noqa: T201
        return 1 if found else 0
    if arguments:
        print("usage: python -m docs.gen [--check]", file=sys.stderr)  # noqa: T201
        return 2
    for path in write():
        print(path)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
