"""Our CEL against upstream's recorded verdicts on random pairs, and on corners of every library."""

import pytest

from allocator.cel import Compiler
from tests.conformance.ours_cel import ours
from tests.conformance.record_cel import LETTERS, RECORDS, questions, read

pytestmark = pytest.mark.conformance

_UNHASHABLE = "upstream's lookup of an unhashable key in a constant map panics, and answers with an error; ours is false"
KNOWN_DIFFERENCES = {
    f"type(dyn({key}) in dyn({{'a': 1}})) != null_type": _UNHASHABLE
    for key in ("b'x'", "b'\\xff'", "semver('1.0.0')")
}


@pytest.mark.parametrize("record", RECORDS)
def test_verdicts_are_the_recorded_ones(record):
    compiler = Compiler()
    asked = list(questions(record))
    letters = read(record)
    assert len(letters) == len(asked)

    different = {
        each["expr"]
        for each, letter in zip(asked, letters, strict=True)
        if letter not in ("?", LETTERS.get(ours(each, compiler)["result"], "v"))
    }
    # Strict: a difference that is gone must leave the list.
    assert different == (set(KNOWN_DIFFERENCES) if record == "corners" else set())
