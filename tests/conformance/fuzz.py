"""Differential fuzzing of the allocator: random questions to upstream and to us.

Anything that differs is made small and kept in `regressions/`, where the tests ask it for ever.
"""

import json
import random
import sys
from collections import Counter
from itertools import combinations

from allocator.cel import Compiler
from tests.conformance.answers import depends_on_node, difference
from tests.conformance.gates import features_of
from tests.conformance.generate import all_tags, question, tags
from tests.conformance.objects import Json
from tests.conformance.ours import faults, ours
from tests.conformance.record import REGRESSIONS, entry, fingerprint
from tests.conformance.shrink import shrink
from tests.conformance.upstream import Oracle

# Upstream takes some 0.2 s for these; they are the search's own growth and show nothing new.
_MAX_STEPS = 100_000
_RAREST = 0.01
_PROGRESS_EVERY = 5000


def _comparable(answer: Json) -> bool:
    """A crash or timeout of upstream says nothing, nor do searches of a size that tests should not have."""
    return answer["outcome"] not in ("panic", "timeout") and answer.get("steps", 0) <= _MAX_STEPS


def _has_random_order(asked: Json) -> bool:
    """Whether upstream visits pools in random order: the stable allocator iterates over a Go map."""
    specs = [entry["spec"] for entry in asked["slices"]]
    pools = {(spec["driver"], spec["pool"]["name"]) for spec in specs}
    return len(pools) > 1 and features_of(asked["features"]).implementation == "stable"


def _differs(asked: Json, answer: Json, mine: Json) -> str | None:
    """What differs; where upstream's order is random only whether there is a solution, and no errors."""
    if not _has_random_order(asked):
        return difference(answer, mine)
    outcomes = (answer["outcome"], mine["outcome"])
    if "fatal" in outcomes or outcomes[0] == outcomes[1]:
        return None
    return f"outcome: upstream {outcomes[0]}, ours {outcomes[1]} ({mine.get('message', '')})"


def compare(oracle: Oracle, asked: Json, cel: Compiler) -> str | None:
    """Ask both; what differs, or None."""
    try:
        answer = oracle.ask(asked)
    except ValueError:
        return None
    return _differs(asked, answer, ours(asked, cel)) if _comparable(answer) else None


def keep(oracle: Oracle, asked: Json, problem: str, cel: Compiler) -> str:
    """Make a differing question small and keep it with upstream's answer; returns its name."""
    kind = problem.split(":", maxsplit=1)[0]
    # The stable allocator takes pools in random order: what fails in another one must not shrink to it.
    implementation = features_of(asked["features"]).implementation

    def still_fails(smaller: Json) -> bool:
        if features_of(smaller["features"]).implementation != implementation:
            return False
        try:
            found = compare(oracle, smaller, cel)
        except (KeyError, TypeError, IndexError, AttributeError):
            return False
        return found is not None and found.startswith(kind)

    small = shrink(asked, still_fails)
    name = f"found-{fingerprint(small)}"
    small["id"] = name
    answer = entry(small, oracle.ask(small))
    REGRESSIONS.mkdir(exist_ok=True)
    body = {"found": compare(oracle, small, cel), "question": small, "answer": answer}
    (REGRESSIONS / f"{name}.json").write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")
    return name


class _Table:
    """How often what occurred."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter(
            {
                "allocated": 0,
                "does_not_fit": 0,
                "node_error": 0,
                "fatal, node": 0,
                "fatal, everywhere": 0,
            }
        )
        self.features: Counter[str] = Counter(dict.fromkeys(all_tags(), 0))
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.implementations: Counter[str] = Counter(
            {"stable": 0, "incubating": 0, "experimental": 0}
        )
        self.skipped = 0

    def add(self, asked: Json, answer: Json) -> None:
        outcome = answer["outcome"]
        if outcome == "fatal":
            on_node = depends_on_node(answer["message"])
            outcome = {True: "fatal, node", False: "fatal, everywhere", None: "fatal, either"}[
                on_node
            ]
        self.outcomes[outcome] += 1
        self.implementations[answer["implementation"]] += 1
        found = sorted(tags(asked))
        self.features.update(found)
        self.pairs.update(combinations(found, 2))

    def show(self) -> bool:
        """Print the table; False when something was too rare."""
        total = sum(self.outcomes.values())
        if not total:
            return True
        rare = []
        for title, counter in (
            ("outcome", self.outcomes), ("implementation", self.implementations), ("feature", self.features),
        ):  # fmt: skip
            for name, count in sorted(counter.items(), key=lambda item: -item[1]):
                print(f"  {title:<15} {name:<32} {count:>7} {count / total:7.2%}")
                if count < _RAREST * total and name != "fatal, either":
                    rare.append(name)
        kinds = len(self.features)
        print(f"  pairs of features met: {len(self.pairs)} of {kinds * (kinds - 1) // 2}")
        print(f"  too large or crashed upstream, not compared: {self.skipped}")
        if rare and total >= 1000:
            print(f"  rarer than {_RAREST:.0%}: {', '.join(rare)}")
            return False
        return True


def run(oracle: Oracle, cel: Compiler, cases: int, seed: int, keep_going: int) -> bool:
    """Ask `cases` random questions; True when nothing differs and nothing was too rare."""
    table, differences, faulty = _Table(), 0, 0
    for number in range(cases):
        if number and number % _PROGRESS_EVERY == 0:
            print(
                f"  {number} of {cases} cases, differences: {differences}",
                file=sys.stderr,
                flush=True,
            )
        asked = question(random.Random(f"{seed}/{number}"), f"random-{seed}-{number}")
        oracle.send(asked)
        answer = oracle.receive()
        if not _comparable(answer):
            table.skipped += 1
            continue
        table.add(asked, answer)
        found = faults(asked, answer, cel) if answer["outcome"] == "allocated" else []
        if found:
            faulty += 1
            print(f"{asked['id']}: verify: {'; '.join(found)[:300]}")
        problem = _differs(asked, answer, ours(asked, cel))
        if problem is not None:
            differences += 1
            name = keep(oracle, asked, problem, cel)
            print(f"{asked['id']}: {problem[:300]}\n  kept as {name}")
            if differences >= keep_going:
                print(f"ended after {number + 1} of {cases} cases")
                break
    print(f"allocations that verify finds a fault with: {faulty}")
    print(f"random allocations: {cases}, seed {seed}, differences: {differences}")
    return table.show() and not differences and not faulty
