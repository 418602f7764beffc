"""One behaviour case: a question in several gate sets, and what docs/reference/behaviours.md says about its answer."""

from dataclasses import dataclass

from tests.conformance.gates import EVERYTHING, NEWEST, STABLE, changed
from tests.conformance.objects import ANY, Json, node

# i: defaults of the newest version (incubating); e: everything on (experimental); s: all the stable allocator knows.
_BASES = {"i": NEWEST, "e": EVERYTHING, "s": STABLE}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question and the expected answer in short form.

    Attributes:
        name: a sentence in dashes; the number before it is the one in docs/reference/behaviours.md, if any.
        expect: "nil", "node_error", "fatal", or device names in result order, claims separated by "|";
            one for all variants, or by variant.
        questions: variant -> question.
    """

    name: str
    expect: dict[str, str]
    questions: dict[str, Json]


def case(
    name: str,
    expect: str | dict[str, str],
    claims: list[Json],
    slices: list[Json],
    *,
    classes: list[Json] | None = None,
    allocated: list[Json] | None = None,
    on_node: Json | None = None,
    rules: list[Json] | None = None,
    on: tuple[str, ...] = (),
    off: tuple[str, ...] = (),
    variants: str = "ie",
) -> Case:
    """Make a case; `on` and `off` change the gates of every variant."""
    wanted = expect if isinstance(expect, dict) else dict.fromkeys(variants, expect)
    questions = {}
    for variant in wanted:
        question: Json = {
            "id": f"{name}.{variant}",
            "features": changed(_BASES[variant], on, off),
            "node": on_node or node(),
            "slices": slices,
            "classes": [ANY, *(classes or [])],
            "claims": claims,
        }
        if allocated:
            question["allocated"] = allocated
        if rules:
            question["taintRules"] = rules
        questions[variant] = question
    return Case(name=name, expect=wanted, questions=questions)
