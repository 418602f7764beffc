"""Quick tests first: with `-x` a broken rule is found by the table that names it, before the properties."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_properties" in item.nodeid)
