"""`simulate` as a person and as a script sees it."""

import json
from pathlib import Path

import yaml

DATA = Path(__file__).parents[2] / "data" / "manifests"
GOOD = str(DATA / "gpu-cluster.yaml")
BAD = str(DATA / "invalid.yaml")


def test_the_table_says_what_went_where_and_why_not(command):
    done = command("simulate", "-f", GOOD)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["POD", "NODE", "DEVICES", "OR", "REASON"]
    assert lines[1].split() == [
        "default/train-0",
        "node-a",
        "gpu/gpu:",
        "gpu.example.com/node-a/gpu-0",
    ]
    assert "2 of 3 pods fit." in done.out
    assert "2 device(s): DevicesInUse: in use" in done.out
    assert "\x1b" not in done.out


def test_json_has_the_promised_shape(command):
    done = command("simulate", "-f", GOOD, "-o", "json")
    answer = json.loads(done.out)
    assert list(answer) == ["pods", "errors", "notes"]
    first, _, last = answer["pods"]
    assert list(first) == ["namespace", "name", "node", "claims", "reason"]
    assert first["reason"] is None
    assert list(first["claims"][0]) == ["entry", "name", "allocation"]
    assert first["claims"][0]["name"] == "train-0-gpu"
    assert list(last) == ["namespace", "name", "node", "claims", "reason", "nodes"]
    assert last["node"] is None
    assert set(last["reason"]) == {"kind", "message", "details"}
    assert set(last["reason"]["details"]) == {"claim", "request", "devices"}
    assert set(last["reason"]["details"]["devices"][0]) == {
        "driver",
        "pool",
        "device",
        "kind",
        "message",
    }
    assert {name: set(reason) for name, reason in last["nodes"].items()} == {
        "node-a": {"kind", "message"},
        "node-b": {"kind", "message"},
    }


def test_yaml_says_the_same_as_json(command):
    as_json = json.loads(command("simulate", "-f", GOOD, "-o", "json").out)
    assert yaml.safe_load(command("simulate", "-f", GOOD, "-o", "yaml").out) == as_json


def test_the_same_input_gives_the_same_bytes(command):
    assert command("simulate", "-f", GOOD, "-o", "json") == command(
        "simulate", "-f", GOOD, "-o", "json"
    )


def test_a_pod_that_does_not_fit_is_an_exit_code_only_on_demand(command):
    assert command("simulate", "-f", GOOD).code == 0
    assert command("simulate", "-f", GOOD, "--exit-code").code == 1


def test_standard_input_and_more_files(command):
    text = Path(GOOD).read_text()
    assert command("simulate", "-f", "-", stdin=text).out == command("simulate", GOOD).out


def test_all_nodes_lists_every_node(command):
    done = command("simulate", "-f", GOOD, "--all-nodes", "-o", "json")
    assert json.loads(done.out)["pods"][0]["nodes"]["node-a"] is None
    assert "node-b" in command("simulate", "-f", GOOD, "--all-nodes").out


def test_invalid_objects_are_listed_and_the_rest_is_simulated(command):
    done = command("simulate", "-f", GOOD, "-f", BAD, "-o", "json")
    answer = json.loads(done.out)
    assert done.code == 1
    assert [
        (error["file"], error["document"], error["object"], error["path"])
        for error in answer["errors"]
    ] == [
        (BAD, 1, "ResourceSlice/bad-device-name", "spec.devices[0].name"),
        (
            BAD,
            2,
            "ResourceClaim/default/bad-selector",
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (BAD, 3, "ResourceClaim/default/bad-version", "apiVersion"),
        (BAD, 4, "DeviceClass/bad-type", "spec.selectors"),
    ]
    assert len(answer["pods"]) == 3


def test_the_table_writes_errors_to_stderr(command):
    done = command("simulate", "-f", BAD)
    assert done.code == 1
    assert done.err.splitlines()[0].startswith(
        f"error: {BAD}, document 1: ResourceSlice/bad-device-name: spec.devices[0].name: 'GPU_0' is not"
    )


def test_bad_usage_is_one_line_and_exit_code_2(command, write):
    broken = write("broken.yaml", "a: b: c")
    for arguments, message in [
        (["simulate"], "error: no input: give -f FILE"),
        (
            ["simulate", "-f", "/nowhere/x.yaml"],
            "error: /nowhere/x.yaml: No such file or directory",
        ),
        (
            ["simulate", "-f", broken],
            f"error: {broken}, document 1: line 1, column 5: mapping values",
        ),
        (
            ["simulate", "-f", GOOD, "--policy", "Best"],
            "error: --policy: unknown policy 'Best'; known: FirstFit",
        ),
        (
            ["simulate", "-f", GOOD, "--kubernetes-version", "1.30"],
            "error: unknown Kubernetes version '1.30'",
        ),
        (["simulate", "-f", GOOD, "--feature-gates", "X=true"], "error: unknown feature gate 'X'"),
        (
            ["simulate", "-f", GOOD, "--feature-gates", "X"],
            "error: --feature-gates: 'X' is not NAME=true",
        ),
        (
            ["simulate", "-f", GOOD, "--on-node-error", "x"],
            "error: Invalid value for '--on-node-error'",
        ),
        (["simulate", "-f", GOOD, "-o", "xml"], "error: Invalid value for '-o'"),
    ]:
        done = command(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert done.err.startswith(message), done.err
        assert len(done.err.splitlines()) == 1


def test_a_body_of_ten_megabytes_is_read(command, write):
    text = json.dumps({"kind": "ConfigMap", "apiVersion": "v1", "data": {"x": "y" * 10_000_000}})
    done = command("simulate", "-f", write("big.json", text))
    assert done.code == 0
    assert "ConfigMap (v1): 1 object ignored" in done.out


def test_gates_and_versions_change_the_answer(command, write):
    tainted = write(
        "tainted.yaml",
        Path(GOOD)
        .read_text()
        .replace(
            "  - name: gpu-1\n", "  - name: gpu-1\n    taints: [{key: k, effect: NoSchedule}]\n"
        ),
    )

    def placed(*arguments: str) -> int:
        pods = json.loads(command("simulate", "-f", tainted, "-o", "json", *arguments).out)["pods"]
        return sum(pod["node"] is not None for pod in pods)

    assert placed() == 1
    assert placed("--feature-gates", "DRADeviceTaints=false") == 2
    assert placed("--kubernetes-version", "1.34") == 2
    assert placed("--kubernetes-version", "v1.34.4", "--feature-gates", "DRADeviceTaints=true") == 1
