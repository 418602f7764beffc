"""Equal views have equal answers: what is found on one node, moved to its twin, is what a search there finds.

The twin's devices have other names and one more attribute each that nobody reads. Asked with every recorded question and
with random ones, so that every feature of upstream's allocators is among them.
"""

import json
import random
from typing import Any

import pytest

from allocator.allocate import allocated, solve
from allocator.cel import Compiler
from allocator.columns import Interner
from allocator.model.nodes import NodeSelectorError
from allocator.pools import gather_pools
from allocator.requests import prepare_claims, reads_of
from allocator.search import Solution
from allocator.view import Reads, UsageKeys, view_of
from scheduler.engine.answers import SearchResult
from scheduler.framework.cycle_state import NodeVerdict
from tests.conformance import generate
from tests.conformance.cases import questions
from tests.conformance.gates import features_of
from tests.conformance.objects import Json
from tests.conformance.ours import answer_of, decode, node_of, ours, share_ids, snapshot_of

pytestmark = pytest.mark.conformance

_RECORDED = questions()
_RANDOM = 400
_SUFFIX = "-twin"


@pytest.fixture(scope="module")
def cel():
    return Compiler()


def twin_of(question: Json) -> Json:
    """The same question about a node whose devices differ in names and in an attribute that is not read."""
    twin: Json = json.loads(json.dumps(question))  # nothing of it may be there twice by reference
    for each in twin.get("slices") or ():
        for number, device in enumerate(each["spec"].get("devices") or ()):
            device["name"] += _SUFFIX
            device.setdefault("attributes", {})["onlyOnTwins"] = {"string": f"{number}"}
    for holder in twin.get("allocated") or ():
        devices = ((holder.get("status") or {}).get("allocation") or {}).get("devices") or {}
        for result in devices.get("results") or ():
            result["device"] += _SUFFIX
    for rule in twin.get("taintRules") or ():
        selector = rule["spec"].get("deviceSelector") or {}
        if selector.get("device"):
            selector["device"] += _SUFFIX
    return twin


class Side:
    """A question, prepared, and the view of its node."""

    def __init__(self, question: Json, cel: Compiler, interner: Interner) -> None:
        self.typed = decode(question)
        features = features_of(self.typed.features)
        self.snapshot, self.node = snapshot_of(self.typed, features), node_of(self.typed.node)
        self.prepared = prepare_claims(self.typed.claims, self.snapshot.classes, features, cel)
        slices = self.snapshot.slices
        self.pools = gather_pools(self.node, slices, self.prepared.rules)
        self.view = view_of(
            self.node, self.pools, slices, self.snapshot.allocated, interner, UsageKeys()
        )

    def key(self) -> Any:
        reads = reads_of(self.prepared)
        return None if reads is None else self.view.key(Reads(reads))


def moved_answer(question: Json, twin: Json, cel: Compiler) -> Json | None:
    """The answer on the twin, without searching there; None where it must be searched."""
    interner = Interner()
    try:
        one, other = Side(question, cel, interner), Side(twin, cel, interner)
    except NodeSelectorError:
        return None
    if one.key() is None:
        return None
    assert one.key() == other.key()
    result = solve(one.prepared, one.node, one.pools, one.snapshot.allocated, budget=None)
    outcome = (
        allocated(one.prepared, result, one.node.name, share_ids())
        if isinstance(result, Solution)
        else result
    )
    found = SearchResult(
        one.view, result if isinstance(result, Solution) else None, outcome, NodeVerdict()
    )
    if not found.can_move:
        return None
    return answer_of(found.on(other.view, other.prepared, other.typed.claims, share_ids()))


@pytest.mark.parametrize("name", sorted(_RECORDED))
def test_a_recorded_answer_moves_to_a_twin(name, cel):
    twin = twin_of(_RECORDED[name])
    moved = moved_answer(_RECORDED[name], twin, cel)
    assert moved is None or moved == ours(twin, cel)


def test_random_answers_move_to_twins(cel):
    moved = 0
    outcomes = set()
    for number in range(_RANDOM):
        question = generate.question(random.Random(f"twins/{number}"), f"twins/{number}")
        twin = twin_of(question)
        answer = moved_answer(question, twin, cel)
        if answer is not None:
            moved += 1
            outcomes.add(answer["outcome"])
            assert answer == ours(twin, cel), question["id"]
    assert moved > _RANDOM / 2
    assert outcomes == {"allocated", "does_not_fit", "node_error", "fatal"}


@pytest.mark.parametrize("name", sorted(_RECORDED))
def test_selector_results_looked_up_by_what_is_read_are_those_evaluated(name, cel, monkeypatch):
    evaluated = ours(_RECORDED[name], cel)
    monkeypatch.setattr("allocator.requests._ASKED_AT_FIRST", 0)
    assert ours(_RECORDED[name], cel) == evaluated


def test_random_selector_results_are_the_same_looked_up(cel, monkeypatch):
    asked = [generate.question(random.Random(f"memo/{n}"), f"memo/{n}") for n in range(_RANDOM)]
    evaluated = [ours(question, cel) for question in asked]
    monkeypatch.setattr("allocator.requests._ASKED_AT_FIRST", 0)
    for question, answer in zip(asked, evaluated, strict=True):
        assert ours(question, cel) == answer, question["id"]
