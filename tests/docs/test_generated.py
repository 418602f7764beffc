"""What is generated from the code says what the code says: reference pages, and the outcome of every example."""

import pytest

from allocator.outcome import ReasonKind
from docs.gen import ROOT, generated
from docs.gen.configuration import attribute_texts
from docs.gen.metrics import metrics
from docs.gen.reasons import TEXTS
from scheduler.config import AllocationSettings

GENERATED = generated()


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_up_to_date(path):
    file = ROOT / path
    assert file.exists(), f"run python -m docs.gen to write {path}"
    assert file.read_text(encoding="utf-8") == GENERATED[path], "run python -m docs.gen"


def test_every_example_has_an_outcome_and_a_description():
    folders = {file.parent for file in (ROOT / "examples").glob("*/*.yaml")}
    assert len(folders) >= 5
    for folder in folders:
        assert str((folder / "expected.txt").relative_to(ROOT)) in GENERATED
        assert (folder / "README.md").exists()


def test_every_example_shows_a_pod_that_fits_and_one_that_does_not():
    for path, text in GENERATED.items():
        if path.endswith("expected.txt"):
            placed, _, of = text.splitlines()[-1].partition(" of ")
            assert 0 < int(placed) < int(of.split()[0]), path


def test_every_kind_of_reason_is_explained():
    assert set(TEXTS) == set(ReasonKind)


def test_an_attribute_text_may_go_over_several_lines():
    text = attribute_texts(AllocationSettings)["timeout_seconds"]
    assert "one node" in text


def test_metrics_kept_elsewhere_are_listed_too():
    names = {name for name, *_ in metrics()}
    assert {"dra_scheduler_searches_total", "dra_scheduler_leader"} <= names
    labels = {name: labels for name, _, labels, _ in metrics()}
    assert labels["dra_scheduler_refusals_total"] == ("kind",)
