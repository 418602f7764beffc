"""`explain pod` with manifests."""

import json
from pathlib import Path

GOOD = str(Path(__file__).parents[2] / "data" / "manifests" / "gpu-cluster.yaml")


def test_the_table_names_every_node_and_device(command):
    done = command("explain", "pod", "train-2", "-f", GOOD)
    assert done.code == 0
    assert done.out.startswith("Pod default/train-2 has no node. ")
    assert "gpu.example.com/node-a/gpu-0: in use" in done.out


def test_a_pod_that_fits(command):
    done = command("explain", "pod", "train-0", "-n", "default", "-f", GOOD)
    assert done.out.startswith("Pod default/train-0 would run on node node-a.\n")
    assert "claim train-0-gpu, request gpu: gpu.example.com/node-a/gpu-0" in done.out


def test_json(command):
    tree = json.loads(command("explain", "pod", "train-2", "-f", GOOD, "-o", "json").out)
    assert set(tree) == {
        "namespace",
        "name",
        "node",
        "running",
        "claims",
        "reason",
        "nodes",
        "notes",
    }


def test_an_unknown_pod_is_exit_code_1(command):
    done = command("explain", "pod", "x", "-n", "y", "-f", GOOD)
    assert (done.code, done.out, done.err) == (1, "", "error: there is no pod y/x\n")


def test_without_manifests_a_cluster_is_needed(command, write):
    done = command("explain", "pod", "x", "--kubeconfig", write("empty", "{}"))
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
