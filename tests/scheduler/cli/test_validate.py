"""`validate`: errors, warnings, and their exit codes."""

import json
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "manifests"
GOOD = str(DATA / "gpu-cluster.yaml")
BAD = str(DATA / "invalid.yaml")


def test_good_manifests_have_nothing_to_report(command):
    done = command("validate", "-f", GOOD, "--strict")
    assert (done.code, done.out, done.err) == (0, "6 objects checked: 0 errors, 0 warnings.\n", "")


def test_errors_are_listed_with_rule_and_path(command):
    done = command("validate", "-f", BAD, "-o", "json")
    report = json.loads(done.out)
    assert done.code == 1
    assert [(error["document"], error["object"], error["rule"]) for error in report["errors"]] == [
        (1, "ResourceSlice/bad-device-name", "device-name"),
        (2, "ResourceClaim/default/bad-selector", "selectors"),
        (3, "ResourceClaim/default/bad-version", "version"),
        (4, "DeviceClass/bad-type", "type"),
    ]
    assert all(
        set(error) == {"file", "document", "object", "path", "rule", "message"}
        for error in report["errors"]
    )


def test_the_table_shows_the_same(command):
    done = command("validate", "-f", BAD)
    assert done.code == 1
    assert "4 errors, 0 warnings." in done.out
    assert "device-name" in done.out
    assert "undefined field 'nope'" in done.out


def test_warnings_count_only_when_strict(command, write):
    text = Path(GOOD).read_text().replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    file = write("incomplete.yaml", text)
    assert command("validate", "-f", file).code == 0
    done = command("validate", "-f", file, "--strict", "-o", "json")
    assert done.code == 1
    assert [warning["rule"] for warning in json.loads(done.out)["warnings"]] == ["pool-incomplete"]


def test_pod_templates_of_workloads_are_checked(command, write):
    text = Path(GOOD).read_text().replace("claims: [{name: gpu}]", "claims: [{name: other}]")
    report = json.loads(command("validate", "-f", write("x.yaml", text), "-o", "json").out)
    assert [(error["object"], error["path"]) for error in report["errors"]] == [
        ("Job/default/train", "spec.template.spec.containers[0].resources.claims[0].name")
    ]


def test_unknown_kinds_are_noted(command, write):
    done = command(
        "validate", "-f", write("x.yaml", "apiVersion: v1\nkind: Secret\n"), "-o", "json"
    )
    assert json.loads(done.out) == {
        "objects": 0,
        "errors": [],
        "warnings": [],
        "notes": ["Secret (v1): 1 not checked"],
    }


def test_simulate_refuses_the_same_objects_with_the_same_words(command):
    validated = json.loads(command("validate", "-f", BAD, "-o", "json").out)["errors"]
    simulated = json.loads(command("simulate", "-f", BAD, "-o", "json").out)["errors"]
    assert [{key: each[key] for key in simulated[0]} for each in validated] == simulated


def test_input_that_does_not_parse_is_exit_code_2_with_nothing_on_stdout(command):
    done = command("validate", "-f", "-", stdin="kind: [")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: stdin, document 1: line")
