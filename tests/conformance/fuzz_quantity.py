"""Differential fuzzing of quantities: parsing, canonical text, rounding, comparing, adding."""

import random
from pathlib import Path

from allocator.errors import QuantityError
from allocator.quantity import Quantity
from tests.conformance.objects import Json
from tests.conformance.upstream import Oracle

_SUFFIXES = ("", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E3",
             "e-3", "e12", "E-9", "e", "K", "kk", "mi")  # fmt: skip
# Upstream's Value() and MilliValue() wrap around beyond this, and round some negative numbers the wrong way.
_WRAPS = 2**63 - 1


def text(rng: random.Random) -> str:
    """A quantity, or something that looks like one."""
    out = "".join(
        rng.choice("0123456789") for _ in range(rng.choice((1, 1, 2, 3, 4, 7, 12, 19, 22)))
    )
    if rng.random() < 0.3:
        out += "." + "".join(
            rng.choice("0123456789") for _ in range(rng.choice((0, 1, 1, 2, 3, 9, 10, 12)))
        )
    if rng.random() < 0.05:
        out = "." + out
    if rng.random() < 0.15:
        out = rng.choice("+-") + out
    if rng.random() < 0.02:
        out = out.replace("1", " ")
    return out + rng.choice(_SUFFIXES)


RECORD = Path(__file__).parent / "recorded" / "quantity-1.37.jsonl"


def question(rng: random.Random, name: str) -> Json:
    return {"id": name, "text": text(rng), "other": text(rng)}


def _parsed(written: str) -> Quantity | None:
    try:
        return Quantity.parse(written)
    except QuantityError:
        return None


def difference(asked: Json, answer: Json) -> str | None:
    """What differs between upstream's answer and ours, or None."""
    mine, other = _parsed(asked["text"]), _parsed(asked["other"])
    if (mine is None) != (answer["result"] == "error"):
        return f"{asked['text']!r}: upstream {answer['result']}, ours {mine!r}"
    if mine is None:
        return None
    pairs: Json = {"canonical": str(mine), "format": mine.format}
    if 0 <= mine.rounded_up() <= _WRAPS:
        pairs["value"] = mine.rounded_up()
    if 0 <= mine.milli_rounded_up() <= _WRAPS and mine.nanos >= 0:
        pairs["milli"] = mine.milli_rounded_up()
    if mine.nanos < 0:
        pairs.pop("value", None)
    if other is not None:
        pairs["sum"] = str(mine + other)
        pairs["compare"] = (mine > other) - (mine < other)
    wrong = {
        key: (answer.get(key), value) for key, value in pairs.items() if answer.get(key) != value
    }
    return f"{asked['text']!r} and {asked['other']!r}: {wrong} (upstream, ours)" if wrong else None


def run(oracle: Oracle, cases: int, seed: int, keep_going: int) -> bool:
    """Ask `cases` random questions; True when nothing differs."""
    differences = 0
    for number in range(cases):
        asked = question(random.Random(f"{seed}/{number}"), f"quantity-{seed}-{number}")
        problem = difference(asked, oracle.ask(asked))
        if problem is not None:
            differences += 1
            print(problem)
            if differences >= keep_going:
                break
    print(f"random quantities: {cases}, seed {seed}, differences: {differences}")
    return not differences
