"""SchedulingGates: a pod with scheduling gates is not attempted."""

from typing import Final

from allocator.outcome import Reason, ReasonKind
from scheduler.framework.environment import Mode
from scheduler.framework.events import Event
from scheduler.framework.plugin import Plugin
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.model import Pod

NAME: Final = "SchedulingGates"


def pre_filter(pod: Pod, _mode: Mode) -> Status:
    """Refuse a pod that still has gates; the text names them in their order."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if not gates:
        return SUCCESS
    message = f"waiting for scheduling gates: [{' '.join(gates)}]"
    return unresolvable(Reason(kind=ReasonKind.SCHEDULING_GATED, message=message), NAME)


PLUGIN: Final = Plugin(name=NAME, pre_filter=pre_filter, events=Event.NOTHING)
