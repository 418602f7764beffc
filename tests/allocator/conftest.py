"""Quick tests first: with `-x` a broken rule is found by the table that names it, before the properties and CEL's long runs."""

import pytest

_LATE = ("tests/allocator/cel/", "test_properties")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: any(part in item.nodeid for part in _LATE))
