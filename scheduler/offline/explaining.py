"""Why a pod does not fit, told device by device: the plain search again, on nodes that the engine has refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from allocator.model.devices import DeviceID
from allocator.outcome import DeviceReason, Reason
from scheduler import cycle
from scheduler.framework.cycle_state import NodeVerdict
from scheduler.framework.environment import Environment
from scheduler.framework.status import Status
from scheduler.model import ClusterReader, Pod

MOST_DEVICES: Final = 256


def with_devices(
    pod: Pod,
    reason: Reason,
    verdicts: Mapping[str, NodeVerdict],
    reader: ClusterReader,
    environment: Environment,
) -> Reason:
    """A pod's reason with what is wrong with each device, as far as nodes failed on the same request.

    Looks at no more nodes than are needed for `MOST_DEVICES` devices.

    Args:
        pod: that fits nowhere.
        reason: that sums up why.
        verdicts: node name -> refusal.
        reader: the cluster it was refused on.
        environment: of the decision.
    """
    state = cycle.pre_filter(pod, reader, replace(environment, explain=True))
    if isinstance(state, Status):
        raise AssertionError(f"{pod.key} was refused by some nodes, now by all: {state.message}")  # noqa: TRY004
    nodes = state.snapshot.nodes
    devices: dict[tuple[str, str, DeviceID], DeviceReason] = {}
    for name, verdict in verdicts.items():
        refusal = verdict.status.reason
        if refusal is None or refusal.request != reason.request or name not in nodes:
            continue
        explained = cycle.filter_node(state, nodes[name]).status.reason
        for each in () if explained is None else explained.devices:
            devices.setdefault((refusal.claim, refusal.request, each.device), each)
        if len(devices) >= MOST_DEVICES:
            break
    return replace(reason, devices=tuple(devices.values())[:MOST_DEVICES]) if devices else reason
