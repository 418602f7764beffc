"""Differential fuzzing of CEL: random expressions over random devices, to upstream and to us.

What differs is kept in `cel/regressions.jsonl`. Not more than one pair in 5,000 may differ.
"""

import json
import random
from collections import Counter
from pathlib import Path

from allocator.cel import Compiler
from tests.conformance.generate_cel import question
from tests.conformance.objects import Json
from tests.conformance.ours_cel import admission, cost, ours
from tests.conformance.upstream import Oracle

KEPT = Path(__file__).parent / "cel" / "regressions.jsonl"
_ONE_IN = 5000
# Costs matter near the limit only: they are a figure, not a verdict.
_COST_EVERY = 10


def _same(answer: Json, mine: Json) -> bool:
    """Whether two answers agree: the verdict, or the value of a derived attribute."""
    if answer["result"] != mine["result"]:
        return False
    # An empty list is left out by Go's encoder.
    values = ({k: v for k, v in (a.get("value") or {}).items() if v != []} for a in (answer, mine))
    return next(values) == next(values)


def _smaller(asked: Json, oracle: Oracle, compiler: Compiler) -> Json:
    """Drop attributes and capacities of the device that do not matter."""
    for part in ("attributes", "capacity"):
        for key in list(asked["device"].get(part) or ()):
            rest = {name: value for name, value in asked["device"][part].items() if name != key}
            trial = {**asked, "device": {**asked["device"], part: rest}}
            if not _same(oracle.ask(trial), ours(trial, compiler)):
                asked = trial
    return asked


def _varies(oracle: Oracle, asked: Json, mine: Json) -> bool:
    """Whether upstream itself answers now one, now the other: it iterates over maps in random order."""
    return any(_same(oracle.ask(asked), mine) for _ in range(30))


def run(oracle: Oracle, pairs: int, seed: int, keep_going: int, *, keep: bool = True) -> bool:
    """Ask `pairs` random expressions; True when at most one in 5,000 differs."""
    compiler = Compiler()
    verdicts: Counter[str] = Counter()
    differences = admissions = undefined = costs = same_costs = 0
    for number in range(pairs):
        asked = question(random.Random(f"{seed}/{number}"), f"random-{seed}-{number}")
        oracle.send({**asked, "askAdmission": True})
        mine, said = ours(asked, compiler), admission(asked)
        answer = oracle.receive()
        if said != (answer["admission"], answer.get("admissionCost", 0)):
            admissions += 1
            print(f"{asked['id']}: {asked['expr']}\n  admission: upstream {answer['admission']} "
                  f"({answer.get('admissionCost', 0)}), ours {said}")  # fmt: skip
        verdicts[answer["result"]] += 1
        if _same(answer, mine):
            if number % _COST_EVERY == 0 and answer["result"] in ("true", "false"):
                costs += 1
                same_costs += cost(asked, compiler) == answer.get("cost")
            continue
        if _varies(oracle, asked, mine):
            undefined += 1
            continue
        differences += 1
        small = _smaller(asked, oracle, compiler)
        print(f"{asked['id']}: {small['expr']}\n  upstream {answer['result']} ({answer.get('message', '')[:200]})\n"
              f"  ours {mine['result']} {mine.get('value', '')} ({mine.get('message', '')[:200]})")  # fmt: skip
        if keep:
            with KEPT.open("a") as file:
                file.write(
                    json.dumps({**small, "expected": answer["result"]}, sort_keys=True) + "\n"
                )
        if differences >= keep_going:
            print(f"ended after {number + 1} of {pairs} pairs")
            break
    print(f"random CEL pairs: {pairs}, seed {seed}, {dict(verdicts)}, differences: {differences}; "
          f"different admissions: {admissions}; undefined upstream (map order): {undefined}; "
          f"same cost in {same_costs} of {costs}")  # fmt: skip
    return (differences + admissions) * _ONE_IN <= pairs
