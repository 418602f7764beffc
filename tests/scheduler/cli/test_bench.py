"""`bench`: flags, forms of output, the profile, and exit codes."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import bench as bench_module

PAGE = Path(__file__).parents[3] / "docs" / "performance.md"
GOOD = str(Path(__file__).parents[2] / "data" / "manifests" / "gpu-cluster.yaml")
SMALL = ("--nodes", "3", "--devices", "2", "--pods", "4")
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
POD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
"""
BAD = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: NOT A NAME}
"""
TIMES = {"p50", "p99", "worst"}
WORK = {"lookups", "searches", "fromMemory"}


def measured(command, *arguments: str) -> dict[str, Any]:
    done = command("bench", *arguments, "-o", "json")
    assert (done.code, done.err) == (0, "")
    return dict(json.loads(done.out))


def test_the_documented_shape(command):
    tree = measured(command, *SMALL)
    assert set(tree) == {
        "python",
        "cluster",
        "startup",
        "filter",
        "decisions",
        "peakRssBytes",
        "profile",
        "errors",
        "notes",
    }
    assert tree["cluster"] == {"source": "synthetic", "nodes": 3, "devices": 6, "pods": 4}
    assert set(tree["startup"]) == {"seconds", "decodeSeconds", "indexSeconds", "objects"}
    assert set(tree["filter"]) == {"nodes", "viewsMs", "firstMs", "againMs", "calls", *WORK}
    assert set(tree["filter"]["againMs"]) == TIMES
    assert set(tree["decisions"]) == {
        "pods",
        "placed",
        "refused",
        "failed",
        "perSecond",
        "ms",
        *WORK,
    }
    assert set(tree["decisions"]["ms"]) == TIMES
    assert tree["decisions"]["placed"] == 4
    assert tree["decisions"]["perSecond"] > 0
    assert (tree["profile"], tree["errors"], tree["notes"]) == (None, [], [])


def shape(value: Any) -> Any:
    """Names alone, as deep as they go."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return None


def test_the_documentation_shows_this_shape(command):
    (text,) = re.findall(r"```json\n(\{\"python\".*?)```", PAGE.read_text(), re.DOTALL)
    assert shape(json.loads(text)) == shape(measured(command, *SMALL))


def test_the_docstring_shows_every_field(command, tmp_path):
    def fields(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(name for each in value.values() for name in fields(each))}
        if isinstance(value, list):
            return {name for each in value for name in fields(each)}
        return set()

    tree = measured(command, *SMALL, "--profile", str(tmp_path / "x"))
    shown = set(re.findall(r'"([A-Za-z0-9]+)"', bench_module.__doc__ or ""))
    assert fields(tree) <= shown


def test_the_table_is_for_a_person(command):
    done = command("bench", *SMALL)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("3 nodes, 6 devices, 4 pods (synthetic), ")
    for what in (
        "start-up",
        "filter, first question",
        "filter, one node changed",
        "decisions",
        "from memory",
        "4 placed, 0 do not fit, 0 failed",
    ):
        assert what in done.out


def test_without_flags_the_cluster_has_the_documented_size(command, monkeypatch):
    for name, value in (("NODES", 2), ("DEVICES", 3), ("PODS", 1)):
        monkeypatch.setattr(bench_module, name, value)
    assert measured(command)["cluster"] == {
        "source": "synthetic",
        "nodes": 2,
        "devices": 6,
        "pods": 1,
    }


def test_manifests_are_measured_as_they_are(command):
    tree = measured(command, "-f", GOOD)
    assert tree["cluster"]["source"] == "manifests"
    assert tree["decisions"]["placed"] > 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--nodes", "0"], "error: --nodes: must be from 1 to 20000, is 0\n"),
        (["--nodes", "20001"], "error: --nodes: must be from 1 to 20000, is 20001\n"),
        (["--devices", "0"], "error: --devices: must be from 1 to 128, is 0\n"),
        (["--devices", "129"], "error: --devices: must be from 1 to 128, is 129\n"),
        (["--pods", "-1"], "error: --pods: must be from 1 to 200000, is -1\n"),
        (["--pods", "many"], "Invalid value for '--pods': "),
        (["-o", "yaml"], "'yaml' is not one of 'table', 'json'"),
        (["--policy", "Best"], "--policy: unknown policy 'Best'; known: FirstFit"),
        (["--kubernetes-version", "1.30"], "1.30"),
        (["--feature-gates", "X=1"], "--feature-gates: 'X=1' is not NAME=true or NAME=false"),
        (
            ["-f", GOOD, "--nodes", "3"],
            "--nodes: describes a synthetic cluster; cannot be combined with -f",
        ),
        (["-f", GOOD, "--pods", "3"], "--pods: describes a synthetic cluster"),
        (["-f", "/nowhere.yaml"], "/nowhere.yaml: No such file or directory"),
        (["--profile", "/nowhere/x"], "--profile: /nowhere/x: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line(command, arguments, problem):
    done = command("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("text", "missing"), [(NODE, "pods"), (POD, "nodes")])
def test_manifests_without_anything_to_measure(command, write, text, missing):
    done = command("bench", "-f", write("x.yaml", text))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: the manifests hold no {missing}: nothing to measure\n"


def test_an_object_left_out_is_told_and_the_rest_measured(command, write):
    file = write("x.yaml", f"{NODE}---\n{POD}---\n{BAD}")
    done = command("bench", "-f", file)
    assert done.code == 1
    assert "1 placed, 0 do not fit, 0 failed" in done.out
    assert f"error: {file}, document 3: DeviceClass/NOT A NAME: metadata.name: " in done.err
    done = command("bench", "-f", file, "-o", "json")
    assert done.code == 1
    assert json.loads(done.out)["errors"][0]["object"] == "DeviceClass/NOT A NAME"


def test_a_profile_is_lines_that_flame_graphs_are_drawn_from(command, tmp_path):
    file = tmp_path / "bench.folded"
    done = command("bench", "--nodes", "60", "--pods", "150", "--profile", str(file))
    assert done.code == 0
    lines = file.read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"\S+(;\S+)* [1-9][0-9]*", line) for line in lines)
    assert any("scheduler.offline.bench:measure" in line for line in lines)
    assert f"written to {file}" in done.out
    hottest = done.out.split("FUNCTION")[1].split("\n")[1:]
    assert 1 <= len([line for line in hottest if line.strip()]) <= 10


def test_the_profile_is_in_the_json_too(command, tmp_path):
    file = str(tmp_path / "bench.folded")
    profile = measured(command, "--nodes", "60", "--pods", "150", "--profile", file)["profile"]
    assert profile["file"] == file
    assert profile["samples"] > 0
    assert 1 <= len(profile["hottest"]) <= 10
    assert set(profile["hottest"][0]) == {"function", "self", "cumulative"}


def test_progress_is_shown_on_a_terminal_and_not_in_what_a_script_reads(
    command, monkeypatch, capsys
):
    seen: list[str] = []

    class Terminal:
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            seen.append(text)
            return len(text)

        def flush(self) -> None:
            """Nothing is kept back."""

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    done = command("bench", *SMALL, "-o", "json")
    assert done.code == 0
    assert json.loads(done.out)["decisions"]["placed"] == 4
    shown = "".join(seen)
    for what in ("start-up", "filter", "decisions"):
        assert what in shown
