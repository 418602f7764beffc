"""`simulate` leaves out exactly the objects that `validate` refuses, and says so in the same words."""

import pytest

from scheduler.offline.check import check_manifests
from scheduler.offline.inventory import take_inventory
from scheduler.offline.manifests import Manifest
from scheduler.validation import ERRORS
from tests.scheduler.validation.objects import edited
from tests.scheduler.validation.test_rules import IDS, ROWS, Row


def manifests(row: Row) -> list[Manifest]:
    """The broken object of a row, with the namespaces that the row knows."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (row.namespaces or {}).items()
    ]
    objects = [*namespaces, edited(row.base, row.bad)]
    return [Manifest("in.yaml", number, obj) for number, obj in enumerate(objects, 1)]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_simulate_refuses_what_validate_refuses_in_its_words(row):
    given = manifests(row)
    validated = check_manifests(given, row.features)
    simulated = take_inventory(given, row.features, lambda _pod, _node: True)

    def shown(errors):
        return [(each.file, each.document, each.object, each.path, each.message) for each in errors]

    assert shown(simulated.errors) == shown(validated.errors)
    assert bool(validated.errors) == (row.rule in ERRORS)
