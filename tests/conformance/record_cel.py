"""Upstream's verdicts on random CEL pairs, recorded: the generator is the question, one letter the answer.

`python -m tests.conformance.record_cel` asks upstream afresh and writes the record (after a change of the generator, or of
upstream). Pairs on which upstream itself varies are marked `?`.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.generate_cel import question
from tests.conformance.objects import Json
from tests.conformance.upstream import Oracle

RECORD = Path(__file__).parent / "recorded" / "cel-random-1.37.txt"
SEED = 20261129
PAIRS = 6_000
LETTERS = {"true": "t", "false": "f", "runtime_error": "r", "compile_error": "c"}
_REPEATS = 5


def questions(pairs: int = PAIRS) -> Iterator[Json]:
    """The recorded questions, always the same."""
    for number in range(pairs):
        yield question(random.Random(f"{SEED}/{number}"), f"recorded-{number}")


def read() -> str:
    """One letter a question."""
    return "".join(RECORD.read_text().split())


def main() -> None:
    """Ask upstream."""
    letters = []
    with Oracle("cel") as oracle:
        for asked in questions():
            answers = {oracle.ask(asked)["result"] for _ in range(_REPEATS)}
            letters.append(LETTERS.get(answers.pop(), "v") if len(answers) == 1 else "?")
    lines = ["".join(letters[start : start + 100]) for start in range(0, len(letters), 100)]
    RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
