"""What is refused rather than half-honoured, in both modes, with texts that never change."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from allocator.outcome import ReasonKind
from scheduler import cycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Mode
from scheduler.framework.status import Code
from scheduler.model import Affinity
from scheduler.plugins import unsupported
from tests.builders import device_class
from tests.pods import container, node_object, pod
from tests.scheduler.world import World, environment

TERM = [{"labelSelector": {}, "topologyKey": "zone"}]
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": TERM}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    spec: dict[str, Any] = field(default_factory=dict)
    standalone: str = ""
    extender: str = ""


def spread(when: str) -> dict[str, Any]:
    return {"topology_spread_constraints": ({"maxSkew": 1, "whenUnsatisfiable": when},)}


CASES = [
    Case(id="hard spread", spec=spread("DoNotSchedule"), standalone=unsupported.SPREAD),
    Case(id="soft spread is fine", spec=spread("ScheduleAnyway")),
    Case(
        id="required pod affinity",
        spec={"affinity": Affinity(pod_affinity=REQUIRED)},
        standalone=unsupported.AFFINITY,
    ),
    Case(id="preferred pod affinity is fine", spec={"affinity": Affinity(pod_affinity=PREFERRED)}),
    Case(
        id="required pod anti-affinity",
        spec={"affinity": Affinity(pod_anti_affinity=REQUIRED)},
        standalone=unsupported.ANTI_AFFINITY,
    ),
    Case(
        id="volume claim",
        spec={"volumes": ({"name": "v", "persistentVolumeClaim": {"claimName": "c"}},)},
        standalone=unsupported.VOLUMES,
    ),
    Case(
        id="ephemeral volume",
        spec={"volumes": ({"name": "v", "ephemeral": {}},)},
        standalone=unsupported.VOLUMES,
    ),
    Case(
        id="in-line disk",
        spec={"volumes": ({"name": "v", "awsElasticBlockStore": {"volumeID": "x"}},)},
        standalone=unsupported.INLINE_DISKS,
    ),
    Case(
        id="volumes without a place are fine",
        spec={"volumes": ({"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}})},
    ),
    Case(
        id="scheduling group",
        spec={"scheduling_group": {"podGroupName": "g"}},
        standalone=unsupported.GROUP,
        extender=unsupported.GROUP,
    ),
    Case(
        id="workload reference of 1.35",
        spec={"workload_ref": {"name": "w"}},
        standalone=unsupported.GROUP,
        extender=unsupported.GROUP,
    ),
    Case(
        id="user namespace on the host network",
        spec={"host_network": True, "host_users": False},
        standalone=unsupported.USER_NAMESPACES,
    ),
    Case(id="host network alone is fine", spec={"host_network": True}),
    Case(
        id="restart all containers",
        spec={
            "init_containers": [
                container("i", restart_policy_rules=({"action": "RestartAllContainers"},))
            ]
        },
        standalone=unsupported.RESTART_RULES,
    ),
    Case(
        id="other restart rules are fine",
        spec={"containers": [container("c", restart_policy_rules=({"action": "Restart"},))]},
    ),
    Case(
        id="bind mount options",
        spec={"containers": [container("c", volume_mounts=({"bindMountOptions": ["x"]},))]},
        standalone=unsupported.BIND_MOUNT_OPTIONS,
    ),
]


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_pods_are_refused_as_a_whole(case: Case, mode: Mode) -> None:
    answer = cycle.pre_filter(pod(**case.spec), World(node_object()).cache, environment(mode))

    want = case.standalone if mode is Mode.STANDALONE else case.extender
    if not want:
        assert isinstance(answer, CycleState)
        return
    assert not isinstance(answer, CycleState)
    assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert (answer.message, answer.reason and answer.reason.kind) == (want, ReasonKind.UNSUPPORTED)


EXPLICIT = msgspec.structs.replace(
    device_class("gpu"),
    spec=msgspec.structs.replace(
        device_class("gpu").spec, extended_resource_name="example.com/gpu"
    ),
)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("resource", "allocatable", "refused"),
    [
        ("example.com/gpu", {}, True),
        ("example.com/gpu", {"example.com/gpu": "0"}, True),
        ("example.com/gpu", {"example.com/gpu": "4"}, False),  # a device plugin's
        ("deviceclass.resource.kubernetes.io/gpu", {}, True),
        (
            "deviceclass.resource.kubernetes.io/other",
            {"deviceclass.resource.kubernetes.io/other": "1"},
            False,
        ),
        ("example.com/fpga", {"example.com/fpga": "1"}, False),
    ],
)
def test_extended_resources_backed_by_a_class_are_refused_where_the_node_has_none(
    resource: str, allocatable: dict[str, str], refused: bool, mode: Mode
) -> None:
    world = World(node_object("n1", allocatable={"pods": "9", **allocatable}), EXPLICIT)

    state = cycle.pre_filter(pod(requests={resource: "1"}), world.cache, environment(mode))
    assert isinstance(state, CycleState)
    result = cycle.filter_nodes(state)

    if refused:
        assert result.failure is not None
        assert result.failure.message == unsupported.EXTENDED_RESOURCE
    else:
        assert result.feasible == ("n1",)
