"""Quantities against upstream's recorded answers."""

import json

import pytest

from tests.conformance.fuzz_quantity import RECORD, difference

pytestmark = pytest.mark.conformance

_ENTRIES = [json.loads(line) for line in RECORD.read_text().splitlines()]


@pytest.mark.parametrize(
    "entry", _ENTRIES, ids=lambda entry: f"{entry['question']['text']}-{entry['question']['other']}"
)
def test_a_quantity_reads_compares_adds_and_writes_as_upstream(entry):
    assert difference(entry["question"], entry["answer"]) is None
