"""All behaviour cases, by topic."""

from tests.conformance.cases import output, pools, requests, resources, selection
from tests.conformance.cases.case import Case
from tests.conformance.objects import Json

CASES: list[Case] = [
    *pools.CASES,
    *requests.CASES,
    *selection.CASES,
    *resources.CASES,
    *output.CASES,
]


def questions() -> dict[str, Json]:
    """Every question by its id (`<case>.<variant>`)."""
    found = {question["id"]: question for entry in CASES for question in entry.questions.values()}
    if len(found) != sum(len(entry.questions) for entry in CASES):
        raise ValueError("two cases have the same name")
    return found
