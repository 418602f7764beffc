"""The answer of a plugin for one pod and node: a code as the scheduling framework has it, and a reason.

Source: k8s.io/kube-scheduler/framework Code.
"""

from dataclasses import dataclass
from enum import Enum

from allocator.outcome import Reason


class Code(Enum):
    """What a refusal means."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"  # evicting pods may help
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"  # it cannot
    ERROR = "Error"  # the attempt failed; retried with backoff


@dataclass(frozen=True, slots=True)
class Status:
    """A code and, unless it is success, why."""

    code: Code
    reason: Reason | None = None
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the pod may run there."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The stable text of the reason."""
        return self.reason.message if self.reason else ""


SUCCESS = Status(Code.SUCCESS)


def unresolvable(reason: Reason, plugin: str = "") -> Status:
    """A refusal that evicting pods cannot change."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, plugin)


def unschedulable(reason: Reason, plugin: str = "") -> Status:
    """A refusal that evicting pods may change."""
    return Status(Code.UNSCHEDULABLE, reason, plugin)


def error(reason: Reason, plugin: str = "") -> Status:
    """A failed attempt."""
    return Status(Code.ERROR, reason, plugin)
