"""What the README says of the code is what the code says."""

from pathlib import Path

from allocator.features import feature_table

ROOT = Path(__file__).parents[1]


def test_the_feature_table_is_the_codes_own() -> None:
    assert feature_table() in (ROOT / "README.md").read_text()
