"""Our API validation against upstream's recorded verdicts on objects with a few things changed."""

import pytest

from tests.conformance.fuzz_validate import difference, load_record, recorded_questions
from tests.conformance.record import fingerprint

pytestmark = pytest.mark.conformance

_RECORD = load_record()
_QUESTIONS = {question["id"]: question for question in recorded_questions()}


def test_every_object_has_a_verdict():
    assert _RECORD.keys() == _QUESTIONS.keys()
    for name, question in _QUESTIONS.items():
        assert _RECORD[name]["question"] == fingerprint(question), name


@pytest.mark.parametrize("name", sorted(_QUESTIONS))
def test_an_object_is_accepted_or_refused_as_upstream_does(name):
    assert difference(_QUESTIONS[name], _RECORD[name]) is None
