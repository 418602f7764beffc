"""Our CEL against upstream's recorded verdicts: the corpus and every kept difference."""

import json
from pathlib import Path

import pytest

from allocator.cel import Compiler
from tests.conformance.ours_cel import ours

pytestmark = pytest.mark.conformance

_FOLDER = Path(__file__).parent / "cel"
_CORPUS = [json.loads(line) for line in (_FOLDER / "cel-corpus.jsonl").read_text().splitlines()]
_KEPT = [json.loads(line) for line in (_FOLDER / "regressions.jsonl").read_text().splitlines()]
_LIMITS = [json.loads(line) for line in (_FOLDER / "limits.jsonl").read_text().splitlines()]
# id -> why we differ; empty is the aim.
_KNOWN_DIFFERENCES: dict[str, str] = {}


@pytest.fixture(scope="module")
def compiler():
    return Compiler()


def test_the_corpus_is_whole():
    assert len(_CORPUS) == 589


def _case(case):
    # Cases about cost loop a million times: counting their lines says nothing and takes minutes.
    marks = [pytest.mark.no_cover] if case["kind"] == "cost" else []
    return pytest.param(case, id=f"{case['id']}-{case['kind']}", marks=marks)


@pytest.mark.parametrize("case", [_case(case) for case in _CORPUS])
def test_the_corpus_has_the_same_verdict(case, compiler):
    same = ours(case, compiler)["result"] == case["expected"]
    assert same is (case["id"] not in _KNOWN_DIFFERENCES)


@pytest.mark.no_cover
@pytest.mark.parametrize("case", _LIMITS, ids=lambda case: case["id"])
def test_the_cost_limit_is_met_at_the_same_size(case, compiler):
    assert ours(case, compiler)["result"] == case["expected"]


def test_differences_found_once_stay_fixed(compiler):
    for case in _KEPT:
        assert ours(case, compiler)["result"] == case["expected"], case["expr"]
