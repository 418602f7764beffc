"""Files, folders, standard input; YAML as kubectl reads it; what cannot be read is named."""

import io
import json
from typing import Any

import pytest
import yaml

from scheduler.api.numbers import ExactNumber
from scheduler.offline.manifests import (
    ManifestError,
    dump_json,
    dump_yaml,
    load_manifests,
    parse_manifests,
)


def parse(text: str, file: str = "in.yaml") -> list[dict[str, Any]]:
    return [manifest.obj for manifest in parse_manifests(file, text)]


def value(scalar: str) -> Any:
    (obj,) = parse(f"v: {scalar}")
    return obj["v"]


@pytest.mark.parametrize(
    ("scalar", "want"),
    [
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("12", 12),
        ("0x10", 16),
        ("010", 8),
        ("-3", -3),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("'12'", "12"),
        ("1.2.3", "1.2.3"),
        ("80Gi", "80Gi"),
        ("1_000", 1000),
    ],
)
def test_scalars_are_read_as_kubectl_reads_them(scalar, want):
    assert value(scalar) == want
    assert type(value(scalar)) is type(want)


@pytest.mark.parametrize("scalar", ["0.1", "1.50", ".5", "5.", "1e3", "+1.5", "-0.25"])
def test_fractions_keep_their_text(scalar):
    number = value(scalar)
    assert type(number) is ExactNumber
    assert number.text == scalar


def test_documents_are_numbered_and_empty_ones_skipped():
    manifests = parse_manifests("f", "kind: A\n---\n# nothing\n---\nkind: B\n")
    assert [(each.document, each.obj["kind"]) for each in manifests] == [(1, "A"), (3, "B")]


def test_lists_stand_for_their_items():
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: List\n  items: [{kind: B}]\n"
    assert [obj["kind"] for obj in parse(text)] == ["A", "B"]


def test_items_of_typed_lists_inherit_kind_and_version():
    text = '{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p"}}]}'
    assert parse(text) == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]


def test_an_empty_list_is_nothing():
    assert parse("kind: List\nitems: null\n") == []


def test_json_documents_may_follow_one_another():
    assert parse('{"kind":"A"}\n{"kind":"B","v":1.50}\n', "in.json")[1]["v"].text == "1.50"


def test_flow_yaml_that_looks_like_json_is_yaml():
    assert parse("{kind: A}") == [{"kind": "A"}]


def test_keys_become_text():
    assert parse("a: {2: x, true: y, 1.5: z}") == [{"a": {"2": "x", "true": "y", "1.5": "z"}}]


@pytest.mark.parametrize(
    ("text", "file", "problem"),
    [
        (
            "a: b: c",
            "in.yaml",
            "in.yaml, document 1: line 1, column 5: mapping values are not allowed",
        ),
        ("kind: A\n---\na: [", "in.yaml", "in.yaml, document 2: line"),
        ("just text", "in.yaml", "in.yaml, document 1: expected an object, got text"),
        ("- kind: A", "in.yaml", "in.yaml, document 1: expected an object, got a list"),
        ('{"a": }', "in.json", "in.json: it is not JSON:"),
        ('{"a": NaN}', "in.json", "in.json: it is not JSON:"),
        (
            "kind: List\nitems: [3]",
            "in.yaml",
            "document 1: items[0]: expected an object, got a whole number",
        ),
        ("a: !!python/object/apply:os.system [x]", "in.yaml", "could not determine a constructor"),
        ("a: &a [*a]", "in.yaml", "an anchor contains itself"),
        ("? [1]\n: x", "in.yaml", "in.yaml, document 1:"),
        ("a: \x00", "in.yaml", "it is not YAML"),
        ("[" * 50_000, "in.json", "in.json: it is nested too deeply"),
    ],
)
def test_unreadable_input_names_file_document_and_place(text, file, problem):
    with pytest.raises(ManifestError) as caught:
        parse(text, file)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_yaml_is_an_error():
    with pytest.raises(ManifestError):
        parse("a: " + "[" * 20_000 + "]" * 20_000)


def test_anchors_that_grow_without_bound_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(ManifestError, match="anchors"):
        parse("\n".join(lines))


def test_folders_are_read_in_name_order_with_their_subfolders(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.json").write_text('{"kind":"B"}')
    (tmp_path / "a.yml").write_text("kind: A")
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.yaml").write_text("kind: X")
    manifests = load_manifests([str(tmp_path)], io.StringIO())
    assert [each.obj["kind"] for each in manifests] == ["A", "B"]


def test_a_dash_is_standard_input():
    (manifest,) = load_manifests(["-"], io.StringIO("kind: A"))
    assert (manifest.file, manifest.obj) == ("stdin", {"kind": "A"})


def test_files_and_folders_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ManifestError, match="No such file"):
        load_manifests([str(tmp_path / "gone.yaml")], io.StringIO())
    with pytest.raises(ManifestError, match="holds no"):
        load_manifests([str(tmp_path)], io.StringIO())
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ManifestError, match="UTF-8"):
        load_manifests([str(tmp_path / "x.yaml")], io.StringIO())


def test_a_byte_order_mark_does_not_matter(tmp_path):
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"kind":"A"}')
    assert load_manifests([str(tmp_path / "x.json")], io.StringIO())[0].obj == {"kind": "A"}


def test_output_keeps_order_and_numbers():
    data = {"b": ExactNumber("1.50"), "a": [{"x": None}], "c": "yes"}
    assert json.loads(dump_json(data)) == {"b": 1.5, "a": [{"x": None}], "c": "yes"}
    assert "1.50" in dump_json(data)
    assert dump_yaml(data) == "b: 1.50\na:\n- x: null\nc: 'yes'\n"
    shared = ["x"]
    assert yaml.safe_load(dump_yaml({"a": shared, "b": shared})) == {"a": ["x"], "b": ["x"]}
