"""Our CEL against upstream's recorded verdicts on random pairs that reach every library."""

import pytest

from allocator.cel import Compiler
from tests.conformance.ours_cel import ours
from tests.conformance.record_cel import LETTERS, PAIRS, questions, read

pytestmark = pytest.mark.conformance


def test_random_pairs_have_the_recorded_verdicts():
    compiler = Compiler()
    record = read()
    assert len(record) == PAIRS

    different = [
        asked["expr"]
        for asked, letter in zip(questions(), record, strict=True)
        if letter not in ("?", LETTERS.get(ours(asked, compiler)["result"], "v"))
    ]
    assert different == []
