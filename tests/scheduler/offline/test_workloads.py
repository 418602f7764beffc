"""Workloads become their pods, template entries their claims."""

import pytest

from scheduler.offline.workloads import claim_base_name
from tests.scheduler.offline.cluster import (
    claim,
    device_class,
    gpus,
    node,
    pod,
    run,
    template,
    workload,
)


@pytest.mark.parametrize(
    ("kind", "spec", "names"),
    [
        ("Job", {}, ["w-0"]),
        ("Job", {"parallelism": 3}, ["w-0", "w-1", "w-2"]),
        ("Job", {"parallelism": 3, "completions": 2}, ["w-0", "w-1"]),
        ("Job", {"parallelism": 3, "suspend": True}, []),
        ("Job", {"parallelism": 0}, []),
        ("Deployment", {}, ["w-0"]),
        ("Deployment", {"replicas": 2}, ["w-0", "w-1"]),
        ("ReplicaSet", {"replicas": 0}, []),
        ("StatefulSet", {"replicas": 2, "ordinals": {"start": 5}}, ["w-5", "w-6"]),
    ],
)
def test_how_many_pods_a_workload_has_and_their_names(kind, spec, names):
    assert list(run(node("n"), workload(kind, "w", spec)).pods) == names


def test_finished_work_is_not_started_again():
    job = workload("Job", "w", {"parallelism": 2, "completions": 3})
    assert list(run(node("n"), job | {"status": {"succeeded": 2}}).pods) == ["w-0"]
    done = job | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert list(run(node("n"), done).pods) == []


def test_a_daemon_set_has_a_pod_for_each_eligible_node():
    objects = [
        node("a"),
        node("tainted", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        node(
            "cordoned",
            spec={
                "unschedulable": True,
                "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            },
        ),
        node("labelled", metadata={"labels": {"x": "y"}}),
    ]
    answer = run(*objects, workload("DaemonSet", "w", {}))
    assert answer.placed == {"w-0": "a", "w-2": "cordoned", "w-3": "labelled"}
    assert run(*objects, workload("DaemonSet", "w", {}, nodeSelector={"x": "y"})).placed == {
        "w-3": "labelled"
    }


OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "d-1",
    "uid": "",
    "controller": True,
}


def test_pods_that_the_manifests_hold_are_not_made_again():
    deployment = workload("Deployment", "d", {"replicas": 3})
    replica_set = workload("ReplicaSet", "d-1", {"replicas": 3})
    replica_set["metadata"]["ownerReferences"] = [{**OWNER, "kind": "Deployment", "name": "d"}]
    held = pod("d-1-x", metadata={"ownerReferences": [OWNER]})
    assert list(run(node("n"), deployment, replica_set, held).pods) == ["d-1-x"]
    assert list(run(node("n"), deployment, replica_set).pods) == ["d-1-0", "d-1-1", "d-1-2"]


def test_generated_pods_stand_where_their_workload_stands():
    assert list(run(node("n"), pod("a"), workload("Job", "w", {}), pod("b")).pods) == [
        "a",
        "w-0",
        "b",
    ]


def test_a_fault_in_a_pod_template_is_reported_once():
    job = workload("Job", "w", {"parallelism": 3})
    job["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "A_"}]
    answer = run(node("n"), job)
    assert {obj for obj, _ in answer.errors} == {"Pod/default/w-0"}
    assert answer.pods == {}


def test_a_pod_of_the_same_name_is_an_error():
    assert run(node("n"), pod("w-0"), workload("Job", "w", {})).errors == [
        ("Pod/default/w-0", "metadata.name")
    ]


@pytest.mark.parametrize(
    ("pod_name", "entry", "want"),
    [
        ("p", "gpu", "p-gpu"),
        ("a" * 40, "b" * 15, "a" * 40 + "-" + "b" * 15),
        ("a" * 40, "b" * 40, "a" * 27 + "-" + "b" * 27),
        ("a" * 60, "b" * 8, "a" * 48 + "-" + "b" * 6),
    ],
)
def test_claim_names_are_the_controllers_without_the_random_part(pod_name, entry, want):
    assert claim_base_name(pod_name, entry) == want


CLUSTER = [node("n"), gpus("n"), device_class(), template("t")]


def test_a_claim_of_the_same_name_that_is_somebody_elses_is_avoided():
    answer = run(*CLUSTER, claim("p-from-t"), pod("p", templates=["t"]))
    assert [each["name"] for each in answer.pods["p"]["claims"]] == ["p-from-t-2"]


def test_a_claim_that_was_made_for_the_pod_is_used():
    made = claim("p-from-t-abcde")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ]
    live = pod("p", templates=["t"], metadata={"uid": "u"}) | {
        "status": {
            "resourceClaimStatuses": [{"name": "from-t", "resourceClaimName": "p-from-t-abcde"}]
        }
    }
    answer = run(*CLUSTER, made, live)
    assert [each["name"] for each in answer.pods["p"]["claims"]] == ["p-from-t-abcde"]


def test_an_entry_that_needs_no_claim_gets_none():
    live = pod("p", templates=["t"]) | {
        "status": {"resourceClaimStatuses": [{"name": "from-t", "resourceClaimName": None}]}
    }
    answer = run(*CLUSTER, live)
    assert (answer.placed, answer.pods["p"]["claims"]) == ({"p": "n"}, [])
