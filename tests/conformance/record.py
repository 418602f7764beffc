"""Upstream's recorded answers: one JSON line a question, beside the cases, so that the tests need no Go."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tests.conformance.answers import canonical
from tests.conformance.objects import Json

RECORD = Path(__file__).parent / "recorded" / "allocate-1.37.jsonl"
REGRESSIONS = Path(__file__).parent / "regressions"


def fingerprint(question: Json) -> str:
    """Changes when the question does: a record for another question is no record."""
    body = {key: value for key, value in question.items() if key != "id"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def entry(question: Json, answer: Json) -> Json:
    """What is recorded of an answer; random share ids are left out."""
    recorded = {
        "id": question["id"],
        "question": fingerprint(question),
        "outcome": answer["outcome"],
    }
    for key in ("message", "results", "steps", "implementation", "version"):
        if key in answer:
            recorded[key] = answer[key]
    for allocation in recorded.get("results", ()):
        for result in allocation["devices"].get("results") or ():
            if "shareID" in result:
                result["shareID"] = "random"
    return recorded


def load() -> dict[str, Json]:
    """The record by question id."""
    entries = (json.loads(line) for line in RECORD.read_text().splitlines())
    return {item["id"]: item for item in entries}


def save(entries: Iterable[Json]) -> None:
    """Write the record, sorted by id, so that changes read well."""
    RECORD.parent.mkdir(exist_ok=True)
    lines = (
        json.dumps(item, sort_keys=True) for item in sorted(entries, key=lambda item: item["id"])
    )
    RECORD.write_text("\n".join(lines) + "\n")


def same_answer(recorded: Json, answer: Json) -> bool:
    """Whether a fresh answer is the recorded one; wording is upstream's business."""
    return canonical(recorded) == canonical(answer)


def regressions() -> list[Json]:
    """Kept cases: `{"question": .., "answer": .., "found": ..}`, smallest known form."""
    return [json.loads(path.read_text()) for path in sorted(REGRESSIONS.glob("*.json"))]
