"""`cel` in both forms."""

import json
from pathlib import Path

import pytest

GOOD = str(Path(__file__).parents[2] / "data" / "manifests" / "gpu-cluster.yaml")
EXPR = "device.driver == 'gpu.example.com' && device.capacity['gpu.example.com'].memory.compareTo(quantity('60Gi')) >= 0"


def test_the_clause_that_was_false_is_shown_with_the_value_found(command):
    done = command("cel", EXPR, "-f", GOOD)
    assert done.code == 0
    assert "gpu.example.com/node-a/gpu-0  false" in done.out
    assert "memory.compareTo(quantity('60Gi')) >= 0 is false (found 40Gi)" in done.out
    assert "gpu.example.com/node-a/gpu-1  true" in done.out
    assert "1 of 2 devices match." in done.out


def test_a_failure_on_a_device_is_shown(command):
    done = command(
        "cel",
        "device.attributes['gpu.example.com'].driverVersion.major() == 550",
        "-f",
        GOOD,
        "-o",
        "json",
    )
    assert done.code == 0
    first, second = json.loads(done.out)["devices"]
    assert (first["device"], first["result"], first["clauses"]) == ("gpu-0", "true", [])
    assert (second["result"], second["message"]) == ("runtime_error", "no such key: driverVersion")


def test_an_expression_that_does_not_compile_is_exit_code_1(command):
    done = command("cel", "device.nope", "-f", GOOD)
    assert (done.code, done.out) == (1, "")
    assert "undefined field 'nope'" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cel"], "error: EXPR is required, or --jsonl"),
        (["cel", "true"], "error: no input"),
        (["cel", "true", "--jsonl"], "error: --jsonl reads standard input"),
    ],
)
def test_bad_usage(command, arguments, message):
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)


def test_slices_that_cannot_be_read_are_named_and_left_out(command, write):
    bad = write(
        "bad.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: x}\nspec: {devices: 3}\n",
    )
    done = command("cel", "true", "-f", bad, "-f", GOOD)
    assert "ResourceSlice/x: spec.devices: expected a list, got a whole number" in done.err
    assert "2 of 2 devices match." in done.out


def line(id_, expr, **device):
    return json.dumps({"id": id_, "expr": expr, "device": {"driver": "d", **device}})


def test_batch_answers_line_by_line(command):
    questions = [
        line(1, "device.driver == 'd'"),
        line("b", "device.attributes['d'].x > 1", attributes={"x": {"int": 1}}),
        line(3, "device.nope"),
        line(4, "device.attributes['d'].y"),
        line(5, "device.allowMultipleAllocations", allowMultipleAllocations=True),
    ]
    done = command("cel", "--jsonl", stdin="\n".join(questions) + "\n\n")
    answers = [json.loads(text) for text in done.out.splitlines()]
    assert done.code == 0
    assert [(answer["id"], answer["result"]) for answer in answers] == [
        (1, "true"),
        ("b", "false"),
        (3, "compile_error"),
        (4, "runtime_error"),
        (5, "true"),
    ]
    assert [bool(answer["message"]) for answer in answers] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "error: line 1: it is not JSON"),
        ("{}", "error: line 1: expr: expected text"),
        (
            '{"expr":"true","device":{"attributes":[]}}',
            "error: line 1: device.attributes: expected an object, got a list",
        ),
        ('{"expr":"true","device":3}', "error: line 1: device.expected an object"),
    ],
)
def test_a_line_that_cannot_be_read_is_exit_code_2(command, text, message):
    done = command("cel", "--jsonl", stdin=text)
    assert done.code == 2
    assert done.err.startswith(message)


def test_two_hundred_and_fifty_levels_compile(command):
    done = command("cel", "--jsonl", stdin=line(1, "!" * 248 + "true"))
    assert json.loads(done.out)["result"] == "true"
