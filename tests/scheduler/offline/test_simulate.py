"""Whole clusters in manifests: what goes where, on which devices, and why not."""

import json

import pytest

from allocator.features import Features
from tests.scheduler.offline.cluster import (
    GPU,
    NIC,
    claim,
    device,
    device_class,
    gpus,
    node,
    pod,
    request,
    run,
    slice_,
    template,
    workload,
)

CLASS = device_class()
NIC_CLASS = device_class("nic", f"device.driver == '{NIC}'")


def fleet(nodes=100):
    """Nodes with 8 GPUs each: model, numa node, memory, driver version."""
    objects = []
    for index in range(nodes):
        name = f"node-{index:03}"
        model = "H100" if index < 10 else "A100"
        memory = "80Gi" if index % 2 == 0 else "40Gi"
        objects.append(node(name))
        objects.append(
            slice_(
                name,
                *(
                    device(
                        f"gpu-{gpu}",
                        memory,
                        attributes={
                            "model": model,
                            "numa": gpu // 4,
                            "driverVersion": {"version": "550.54.15"},
                        },
                    )
                    for gpu in range(8)
                ),
            )
        )
    return objects


FLEET = fleet()


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (f"device.driver == '{GPU}'", "node-000"),
        (f"device.attributes['{GPU}'].model == 'A100'", "node-010"),
        (f"device.capacity['{GPU}'].memory.compareTo(quantity('40Gi')) >= 0", "node-000"),
        (f"device.capacity['{GPU}'].memory == quantity('80Gi')", "node-000"),
        (f"device.capacity['{GPU}'].memory == quantity('40Gi')", "node-001"),
        (f"device.attributes['{GPU}'].driverVersion.isGreaterThan(semver('550.0.0'))", "node-000"),
        (
            f"device.attributes['{GPU}'].model == 'A100' && device.capacity['{GPU}'].memory == quantity('40Gi')",
            "node-011",
        ),
        (f"device.attributes['{GPU}'].model == 'B200'", None),
    ],
)
def test_selectors_in_class_or_claim_choose_the_first_node_that_has_the_device(expression, want):
    in_class = run(*FLEET, device_class("gpu", expression), claim("c"), pod("p", claims=["c"]))
    in_claim = run(
        *FLEET, CLASS, claim("c", request("gpu", "gpu", expression)), pod("p", claims=["c"])
    )
    assert in_class.placed == in_claim.placed == {"p": want}


def test_every_device_is_used_exactly_once():
    answer = run(
        *fleet(25),
        CLASS,
        template("t"),
        workload("Job", "j", {"parallelism": 201}, templates=["t"]),
    )
    placed = [name for name, where in answer.placed.items() if where is not None]
    used = {(answer.placed[name], *answer.devices(name)) for name in placed}
    assert len(placed) == len(used) == 200
    assert [answer.kind(name) for name, where in answer.placed.items() if where is None] == [
        "DevicesInUse"
    ]


def test_h100_is_preferred_and_a100_taken_when_there_is_none():
    wanted = {
        "name": "gpu",
        "firstAvailable": [
            {
                "name": model.lower(),
                "deviceClassName": "gpu",
                "selectors": [
                    {"cel": {"expression": f"device.attributes['{GPU}'].model == '{model}'"}}
                ],
            }
            for model in ("H100", "A100")
        ],
    }
    objects = [
        node("a"),
        gpus("a", 1, model="A100"),
        node("b"),
        gpus("b", 1, model="H100"),
        CLASS,
        template("t", wanted),
        workload("Job", "j", {"parallelism": 3}, templates=["t"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"j-0": "b", "j-1": "a", "j-2": None}
    assert [answer.results(name) for name in ("j-0", "j-1")] == [
        [("gpu/h100", "gpu-0")],
        [("gpu/a100", "gpu-0")],
    ]


def rooted(name, root, numa=0):
    return device(name, attributes={"numa": numa, "example.com/pcieRoot": root})


def test_two_gpus_of_one_numa_node_and_a_nic_of_the_same_root():
    objects = [
        node("n"),
        slice_("n", rooted("gpu-0", "r0", 0), rooted("gpu-1", "r1", 1), rooted("gpu-2", "r1", 1)),
        slice_("n", rooted("nic-0", "r0"), rooted("nic-1", "r1"), driver=NIC),
        CLASS,
        NIC_CLASS,
        claim(
            "c",
            request("gpus", "gpu", count=2),
            request("nic", "nic"),
            constraints=[
                {"requests": ["gpus"], "matchAttribute": f"{GPU}/numa"},
                {"requests": ["gpus", "nic"], "matchAttribute": "example.com/pcieRoot"},
            ],
        ),
        pod("p", claims=["c"]),
    ]
    answer = run(*objects)
    assert answer.results("p") == [("gpus", "gpu-1"), ("gpus", "gpu-2"), ("nic", "nic-1")]


def test_a_constraint_that_nothing_satisfies_is_named():
    objects = [
        node("n"),
        slice_("n", rooted("gpu-0", "r0"), rooted("gpu-1", "r1")),
        CLASS,
        claim(
            "c",
            request("gpus", "gpu", count=2),
            constraints=[{"matchAttribute": "example.com/pcieRoot"}],
        ),
        pod("p", claims=["c"]),
    ]
    assert run(*objects).kind("p") == "ConstraintUnsatisfied"


def partition(name, memory):
    return device(
        name,
        memory,
        consumesCounters=[{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}],
    )


def test_counters_in_a_slice_of_their_own_admit_one_of_two_partitions():
    objects = [
        node("n"),
        slice_("n", partition("mig-0", "6Gi"), partition("mig-1", "6Gi"), name="devices", slices=2),
        slice_(
            "n",
            name="counters",
            slices=2,
            sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}],
        ),
        CLASS,
        template("t"),
        workload("Job", "j", {"parallelism": 2}, templates=["t"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"j-0": "n", "j-1": None}
    assert answer.kind("j-1") == "CountersExhausted"
    failed = {
        each["device"]: each["kind"] for each in answer.pods["j-1"]["reason"]["details"]["devices"]
    }
    assert failed == {"mig-0": "DevicesInUse", "mig-1": "CountersExhausted"}


def test_a_card_of_eighty_units_is_shared_in_shares_of_ten():
    card = {
        "name": "card",
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {
                "value": "80",
                "requestPolicy": {"default": "10", "validRange": {"min": "10", "step": "10"}},
            }
        },
    }
    objects = [
        node("n"),
        slice_("n", card),
        CLASS,
        template("t", request("gpu", "gpu", capacity={"requests": {"memory": "10"}})),
        workload("Job", "j", {"parallelism": 9}, templates=["t"]),
    ]
    answer = run(*objects)
    assert [where for where in answer.placed.values() if where] == ["n"] * 8
    assert answer.kind("j-8") == "CapacityExhausted"
    result = answer.pods["j-0"]["claims"][0]["allocation"]["devices"]["results"][0]
    assert result["consumedCapacity"] == {"memory": "10"}
    ids = {
        each["claims"][0]["allocation"]["devices"]["results"][0]["shareID"]
        for each in answer.pods.values()
        if each["node"]
    }
    assert len(ids) == 8


def test_one_claim_is_shared_by_two_containers_and_two_pods():
    objects = [
        node("a"),
        node("b"),
        gpus("a", 1),
        CLASS,
        claim("c"),
        pod("p", claims=["c"], containers=2),
        pod("q", claims=["c"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"p": "a", "q": "a"}
    assert answer.devices("p") == answer.devices("q") == ["gpu-0"]


def test_the_second_pod_of_a_shared_claim_must_go_to_its_node():
    objects = [
        node("a"),
        node("b"),
        gpus("a", 1),
        CLASS,
        claim("c"),
        pod("p", claims=["c"]),
        pod("q", claims=["c"], nodeSelector={"x": "y"}),
        pod(
            "r",
            claims=["c"],
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["b"]}
                                ]
                            }
                        ]
                    }
                }
            },
        ),
    ]
    answer = run(*objects)
    assert (answer.kind("q"), answer.kind("r")) == ("NodeAffinityMismatch", "AllocatedElsewhere")
    assert answer.pods["r"]["nodes"]["a"]["kind"] == "NodeAffinityMismatch"


def test_each_pod_of_a_job_gets_a_claim_from_the_template():
    objects = [
        node("n"),
        gpus("n"),
        CLASS,
        template("t"),
        workload("Job", "j", {"parallelism": 2, "completions": 5}, templates=["t"]),
    ]
    answer = run(*objects)
    assert [
        (each["name"], each["entry"]) for pod_ in answer.pods.values() for each in pod_["claims"]
    ] == [
        ("j-0-from-t", "from-t"),
        ("j-1-from-t", "from-t"),
    ]
    assert [answer.devices(name) for name in ("j-0", "j-1")] == [["gpu-0"], ["gpu-1"]]


TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


def test_a_tainted_device_needs_a_toleration():
    objects = [
        node("n"),
        slice_("n", device("gpu-0", taints=[TAINT])),
        CLASS,
        claim("plain"),
        pod("p", claims=["plain"]),
        claim(
            "tolerating",
            request(
                "gpu", "gpu", tolerations=[{"key": "example.com/broken", "operator": "Exists"}]
            ),
        ),
        pod("q", claims=["tolerating"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"p": None, "q": "n"}
    assert answer.kind("p") == "DeviceTainted"


def test_a_taint_rule_taints_from_outside():
    rule = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": GPU, "device": "gpu-0"}, "taint": TAINT},
    }
    objects = [node("n"), gpus("n", 2), CLASS, claim("c"), pod("p", claims=["c"])]
    assert run(*objects, rule).devices("p") == ["gpu-1"]
    off = run(*objects, rule, features=Features.for_version("1.36"))
    assert off.devices("p") == ["gpu-0"]
    assert off.tree["notes"] == [
        "DeviceTaintRules are ignored: feature gate DRADeviceTaintRules is off"
    ]


def test_an_incomplete_pool_gives_nothing():
    objects = [
        node("n"),
        slice_("n", device("gpu-0"), slices=2),
        CLASS,
        claim("c"),
        pod("p", claims=["c"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"p": None}
    assert answer.kind("p") == "PoolIncomplete"


def test_a_claim_in_v1beta1_is_a_claim():
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
    }
    assert run(node("n"), gpus("n"), CLASS, old, pod("p", claims=["c"])).devices("p") == ["gpu-0"]


def test_a_missing_class_is_named():
    answer = run(node("n"), gpus("n"), claim("c"), pod("p", claims=["c"]))
    reason = answer.pods["p"]["reason"]
    assert reason["kind"] == "DeviceClassNotFound"
    assert "device class gpu does not exist" in reason["message"]


@pytest.mark.parametrize(
    ("objects", "kind"),
    [
        ([pod("p", claims=["c"])], "ClaimNotFound"),
        ([pod("p", templates=["t"])], "ClaimNotCreated"),
        ([pod("p", schedulingGates=[{"name": "g"}])], "SchedulingGated"),
        ([pod("p", nodeSelector={"a": "b"})], "NodeAffinityMismatch"),
        ([pod("p", schedulingGroup={"podGroupName": "x"})], "Unsupported"),
    ],
)
def test_pod_level_reasons(objects, kind):
    assert run(node("n"), gpus("n"), CLASS, *objects).kind("p") == kind


def test_no_nodes_at_all():
    assert run(CLASS, pod("p")).kind("p") == "NoNodes"


def test_allocated_claims_hold_their_devices():
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": GPU, "pool": "n", "device": "gpu-0"}]}
    }
    objects = [
        node("n"),
        gpus("n", 2),
        CLASS,
        claim("old", status={"allocation": allocation}),
        claim("c"),
        pod("p", claims=["c"]),
    ]
    assert run(*objects).devices("p") == ["gpu-1"]


def test_an_idle_claim_on_the_wrong_node_is_given_back():
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": GPU, "pool": "a", "device": "gpu-0"}]},
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
            ]
        },
    }
    objects = [
        node("a", spec={"unschedulable": True}),
        gpus("a", 1),
        node("b"),
        gpus("b", 1),
        CLASS,
        claim("c", status={"allocation": allocation}),
        pod("p", claims=["c"]),
    ]
    answer = run(*objects)
    assert answer.placed == {"p": "b"}
    assert any("unused allocation" in note for note in answer.tree["notes"])


def test_pods_with_a_node_run_there_and_are_not_listed():
    objects = [
        node("n", status={"allocatable": {"cpu": "1", "pods": "10"}}),
        pod("running", nodeName="n", containers=0)
        | {
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "800m"}}}],
            }
        },
        pod("p")
        | {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 0.5}}}]}},
    ]
    answer = run(*objects)
    assert answer.placed == {"p": None}
    assert answer.kind("p") == "InsufficientResources"


def test_nodes_without_allocatable_are_unlimited_and_hand_written_ones_take_110_pods():
    big = pod("p") | {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000"}}}]}
    }
    assert run(node("n"), big).placed == {"p": "n"}
    answer = run(node("n", status={"allocatable": {"cpu": "1"}}), pod("q"))
    assert answer.placed == {"q": "n"}
    assert answer.tree["notes"] == ["Node/n: allocatable.pods is missing; assuming 110"]


def test_order_is_priority_then_age_then_file():
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 10,
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "normal"},
            "value": 5,
            "globalDefault": True,
        },
    ]
    objects = [
        pod("no-age"),
        pod("young", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}),
        pod("old", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
        pod("high", priorityClassName="high"),
        pod("low", priority=-1),
        pod("critical", priorityClassName="system-node-critical"),
        pod("lost", priorityClassName="nowhere"),
    ]
    answer = run(node("n"), *classes, *objects)
    assert [each["name"] for each in answer.tree["pods"]] == [
        "critical",
        "high",
        "old",
        "young",
        "no-age",
        "lost",
        "low",
    ]
    assert answer.tree["notes"] == [
        "Pod/default/lost: there is no PriorityClass 'nowhere'; using priority 0"
    ]


def test_among_equal_scores_the_first_node_of_the_file_wins():
    objects = [
        node("z"),
        node("a"),
        gpus("z", 1),
        gpus("a", 1),
        CLASS,
        claim("c"),
        pod("p", claims=["c"]),
    ]
    assert run(*objects).placed == {"p": "z"}


def test_scheduler_names_do_not_matter():
    assert run(node("n"), pod("p", schedulerName="other")).placed == {"p": "n"}


def test_finished_pods_play_no_part():
    done = pod("done") | {"status": {"phase": "Succeeded"}}
    assert run(node("n"), done).tree["pods"] == []


def test_objects_that_validation_refuses_are_left_out_with_the_words_of_validate():
    bad = gpus("n", 1)
    bad["spec"]["devices"][0]["name"] = "GPU_0"
    answer = run(node("n"), bad, CLASS, claim("c"), pod("p", claims=["c"]))
    (error,) = answer.tree["errors"]
    assert error == {
        "file": "in.yaml",
        "document": 2,
        "object": f"ResourceSlice/n-{GPU}",
        "path": "spec.devices[0].name",
        "message": "'GPU_0' is not a DNS label (lower-case letters, digits, '-' inside)",
    }
    assert answer.kind("p") == "NoMatchingDevice"


def test_a_selector_that_does_not_compile_leaves_the_claim_out():
    answer = run(
        node("n"),
        gpus("n"),
        CLASS,
        claim("c", request("gpu", "gpu", "device.nope")),
        pod("p", claims=["c"]),
    )
    assert answer.errors == [
        ("ResourceClaim/default/c", "spec.devices.requests[0].exactly.selectors[0].cel.expression")
    ]
    assert answer.kind("p") == "ClaimNotFound"


def test_a_known_kind_in_an_unknown_version_is_an_error_and_an_unknown_kind_a_note():
    answer = run(
        {**gpus("n"), "apiVersion": "resource.k8s.io/v2"},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "x"}},
    )
    assert answer.errors == [(f"ResourceSlice/n-{GPU}", "apiVersion")]
    assert answer.tree["notes"] == [
        "ConfigMap (v1): 1 object ignored: this kind does not affect scheduling",
        "Job (batch.volcano.sh/v1alpha1): 1 object ignored: this kind does not affect scheduling",
    ]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"metadata": {"name": "x"}}, "kind"),
        ({"kind": "Pod", "apiVersion": "v1"}, "metadata"),
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {}}, "metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "p"}}, "apiVersion"),
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": []}, "spec"),
        (
            {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "metadata": {"name": "j"},
                "spec": {"parallelism": "2"},
            },
            "spec.parallelism",
        ),
        (
            {
                "kind": "PriorityClass",
                "apiVersion": "scheduling.k8s.io/v1",
                "metadata": {"name": "p"},
                "value": "x",
            },
            "value",
        ),
        (
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "p", "labels": 3}},
            "metadata.labels",
        ),
    ],
)
def test_missing_and_wrong_fields_name_their_path(obj, path):
    assert [error["path"] for error in run(obj).tree["errors"]] == [path]


def test_the_same_object_twice_is_a_note_and_a_different_one_an_error():
    answer = run(node("n"), node("n"), pod("p"), pod("p", priority=3))
    assert answer.errors == [("Pod/default/p", "metadata.name")]
    assert "Node/n: given twice (in.yaml, in.yaml)" in answer.tree["notes"]


def test_the_answer_is_the_same_byte_for_byte():
    card = {
        "name": "card",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80"}},
    }
    objects = [
        node("n"),
        slice_("n", card),
        CLASS,
        template("t"),
        workload("Deployment", "d", {"replicas": 3}, templates=["t"]),
    ]
    first, second = (json.dumps(run(*objects).tree) for _ in range(2))
    assert first == second
    assert "shareID" in first


def test_all_nodes_lists_nodes_of_pods_that_fit_too():
    objects = [node("a"), node("b"), gpus("a", 1), CLASS, claim("c"), pod("p", claims=["c"])]
    assert "nodes" not in run(*objects).pods["p"]
    nodes = run(*objects, all_nodes=True).pods["p"]["nodes"]
    assert nodes["a"] is None
    assert nodes["b"]["kind"] == "NoMatchingDevice"


def test_admin_access_follows_the_label_of_the_namespace():
    wanted = claim("c", request("gpu", "gpu", adminAccess=True, allocationMode="All"))
    objects = [node("n"), gpus("n", 2), CLASS, wanted, pod("p", claims=["c"])]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    labelled = {
        **namespace,
        "metadata": {"name": "default", "labels": {"resource.kubernetes.io/admin-access": "true"}},
    }
    assert run(*objects, namespace).errors == [
        ("ResourceClaim/default/c", "spec.devices.requests[0].exactly.adminAccess")
    ]
    assert run(*objects, labelled).devices("p") == ["gpu-0", "gpu-1"]


def broken_version(name):
    return slice_(name, device("gpu-0", attributes={"v": {"int": 1}}))


def test_an_error_on_one_node_rejects_that_node_or_aborts_as_told():
    selector = f"device.attributes['{GPU}'].x == 1"
    objects = [
        node("a"),
        slice_("a", device("gpu-0", attributes={"y": 1})),
        node("b"),
        slice_("b", device("gpu-0", attributes={"x": 1})),
        CLASS,
        claim("c", request("gpu", "gpu", selector)),
        pod("p", claims=["c"]),
    ]
    assert run(*objects).placed == {"p": "b"}
    aborted = run(*objects, on_node_error="abort")
    assert aborted.placed == {"p": None}
    assert aborted.kind("p") == "SelectorError"


def test_a_pod_placed_by_hand_with_an_unallocated_claim_is_noted():
    answer = run(
        node("n"),
        gpus("n"),
        CLASS,
        claim("c"),
        pod("p", claims=["c"], nodeName="n"),
        pod("q", nodeName="gone"),
    )
    assert len(answer.tree["notes"]) == 2
    assert "nobody allocates a claim" in answer.tree["notes"][0]
    assert "'gone', which is not there" in answer.tree["notes"][1]


def test_a_uid_that_is_there_twice_does_not_mix_two_objects_up():
    objects = [pod(name, claims=[name], metadata={"uid": "same"}) for name in ("p", "q")]
    claims = [claim(name) for name in ("p", "q")]
    for each in claims:
        each["metadata"]["uid"] = "same"
    answer = run(node("n"), gpus("n"), CLASS, *claims, *objects)
    assert (answer.devices("p"), answer.devices("q")) == (["gpu-0"], ["gpu-1"])
    assert len(answer.tree["notes"]) == 2


@pytest.mark.parametrize("is_on", [True, False])
def test_devices_that_count_in_resources_of_the_node_leave_less_for_the_next_pod(is_on):
    """Each of two pods would get a device that stands for 4 of 6 cpus."""
    counted = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
    cards = [device(f"cpu-{index}", nodeAllocatableResources=counted) for index in range(2)]
    answer = run(
        node("n", status={"allocatable": {"cpu": "6", "pods": "9"}}),
        slice_("n", *cards),
        CLASS,
        *(thing for name in ("a", "b") for thing in (claim(name), pod(name, claims=[name]))),
        features=Features.for_version("1.37", {"DRANodeAllocatableResources": is_on}),
    )

    assert answer.placed == {"a": "n", "b": None if is_on else "n"}
    if is_on:
        assert answer.pods["b"]["reason"]["kind"] == "InsufficientResources"
