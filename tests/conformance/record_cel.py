"""Upstream's verdicts on random CEL pairs and on corners, recorded: the generator is the question, one letter the answer.

`python -m tests.conformance.record_cel` asks upstream afresh and writes the record (after a change of a generator, or of
upstream), and what its environment declares. Pairs on which upstream itself varies, or crashes, are marked `?`.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.conformance import cel_corners, cel_environment, cel_language
from tests.conformance.cel_corners import DEVICE
from tests.conformance.generate_cel import question
from tests.conformance.objects import Json
from tests.conformance.upstream import Oracle

_RECORDED = Path(__file__).parent / "recorded"
RECORDS = {
    "random": _RECORDED / "cel-random-1.37.txt",
    "corners": _RECORDED / "cel-corners-1.37.txt",
    "language": _RECORDED / "cel-language-1.37.txt",
}
_EXPRESSIONS = {"corners": cel_corners.expressions, "language": cel_language.expressions}
SEED = 20261129
PAIRS = 6_000
LETTERS = {"true": "t", "false": "f", "runtime_error": "r", "compile_error": "c"}
_REPEATS = 5


def questions(record: str) -> Iterator[Json]:
    """The questions of a record, always the same."""
    expressions = _EXPRESSIONS.get(record)
    if expressions is not None:
        for number, text in enumerate(expressions()):
            yield {"id": f"{record}-{number}", "expr": text, "device": DEVICE}
        return
    for number in range(PAIRS):
        yield question(random.Random(f"{SEED}/{number}"), f"recorded-{number}")


def read(record: str) -> str:
    """One letter a question."""
    return "".join(RECORDS[record].read_text().split())


def main() -> None:
    """Ask upstream."""
    cel_environment.write()
    for record, path in RECORDS.items():
        with Oracle("cel") as oracle:
            letters = [_letter(oracle, asked) for asked in questions(record)]
        lines = ["".join(letters[start : start + 100]) for start in range(0, len(letters), 100)]
        path.write_text("\n".join(lines) + "\n")


def _letter(oracle: Oracle, asked: Json) -> str:
    answers = {oracle.ask(asked)["result"] for _ in range(_REPEATS)}
    return "?" if len(answers) > 1 or answers == {"panic"} else LETTERS.get(answers.pop(), "v")


if __name__ == "__main__":
    main()
