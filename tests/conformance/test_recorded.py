"""Our allocator against upstream's recorded answers: every behaviour case and every kept regression."""

import random

import pytest

from allocator.cel import Compiler
from tests.conformance import generate, record
from tests.conformance.answers import difference
from tests.conformance.cases import CASES, questions
from tests.conformance.ours import ours

pytestmark = pytest.mark.conformance

_QUESTIONS = questions()
_RECORD = record.load()
_REGRESSIONS = {item["question"]["id"]: item for item in record.regressions()}


@pytest.fixture(scope="module")
def cel():
    return Compiler()


def _short(answer):
    """An answer as the cases write it: `nil`, `fatal`, `node_error`, or devices."""
    if answer["outcome"] != "allocated":
        return {"does_not_fit": "nil"}.get(answer["outcome"], answer["outcome"])
    return "|".join(
        " ".join(result["device"] for result in allocation["devices"].get("results") or ())
        for allocation in answer.get("results", ())
    )


def test_every_case_has_an_answer_to_its_present_question():
    assert _RECORD.keys() == _QUESTIONS.keys()
    for name, question in _QUESTIONS.items():
        assert _RECORD[name]["question"] == record.fingerprint(question), name


def test_every_numbered_behaviour_has_a_case():
    numbers = {int(entry.name[:3]) for entry in CASES if entry.name[:3].isdecimal()}
    # 83, that inputs are left as they are, is no question: tests/allocator/test_output.py has it.
    assert numbers == set(range(1, 83))


def test_the_generator_reaches_every_feature_of_its_table():
    found: set[str] = set()
    for number in range(400):
        found |= generate.tags(generate.question(random.Random(f"reach/{number}"), "x"))
    assert found == set(generate.all_tags())


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_upstream_answered_as_the_case_says(entry):
    for variant, question in entry.questions.items():
        assert _short(_RECORD[question["id"]]) == entry.expect[variant]


@pytest.mark.parametrize("name", sorted(_QUESTIONS))
def test_our_answer_is_the_recorded_one(name, cel):
    assert difference(_RECORD[name], ours(_QUESTIONS[name], cel)) is None


@pytest.mark.parametrize("name", sorted(_REGRESSIONS))
def test_a_difference_found_once_stays_fixed(name, cel):
    kept = _REGRESSIONS[name]
    assert difference(kept["answer"], ours(kept["question"], cel)) is None
