"""What every decision of this process has in common: features, limits, policy, and the collaborators it may ask."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from allocator.cel import Compiler
from allocator.features import Features
from allocator.result import NewShareID


class Mode(Enum):
    """Which scheduler checks the predicates other than devices."""

    STANDALONE = "standalone"  # we do, all of them (also offline); what we cannot check is refused
    EXTENDER = "extender"  # kube-scheduler has done so; we look at devices alone


class ShouldStop(Protocol):
    """Whether the time for one search is over."""

    def __call__(self) -> bool:
        """True from the deadline on."""
        ...


def _never() -> bool:
    return False


def no_deadline() -> ShouldStop:
    """A deadline that never comes: offline and in tests."""
    return _never


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Settings and collaborators of decisions. One for the life of a process; two are never equal by accident.

    Attributes:
        features: gates of the cluster.
        cel: compiles and remembers CEL selectors.
        budget: candidate devices one search may try; 0: no limit.
        policy: name of the policy that chooses among solutions.
        device_strategy: name of the scoring strategy that tells nodes apart whose alternatives are equally preferred.
        explain: whether reasons also tell about every device.
        on_node_error: `reject` the node, or `abort` the attempt as in-tree does.
        mode: who looks at the other predicates.
        new_share_id: makes a fresh share id.
        start_deadline: starts the time that one search on one node may take.
        hands_over_searches: whether a search whose time is over is to be run again elsewhere, for as long as it takes,
            instead of counting as given up: in an event loop, which no search may hold up.
        now: wall-clock time, for binding timeouts, which compare with a written timestamp.
        binding_timeout_seconds: how long binding conditions may take.
    """

    features: Features
    cel: Compiler
    now: Callable[[], datetime]
    new_share_id: NewShareID
    budget: int = 1_000_000
    policy: str = "FirstFit"
    device_strategy: str = "MostAllocated"
    explain: bool = False
    on_node_error: str = "reject"
    mode: Mode = Mode.STANDALONE
    start_deadline: Callable[[], ShouldStop] = no_deadline
    hands_over_searches: bool = False
    binding_timeout_seconds: float = 600.0
