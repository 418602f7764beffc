"""How a bind ends."""

from dataclasses import dataclass

from allocator.outcome import Reason, ReasonKind


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """Bound, or why not. A reason's message is stable, so that it may go into a pod's condition."""

    reason: Reason | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the pod is bound to the node asked for."""
        return self.reason is None


BOUND = BindOutcome()


class BindError(Exception):
    """Stops a bind; what was written is undone by whoever catches it.

    Attributes:
        reason: for the pod.
        keep: whether claims stay as they are (binding conditions pending): nothing is undone.
        is_open: whether a request was sent whose outcome is not known and that may still commit.
    """

    def __init__(
        self,
        kind: ReasonKind,
        message: str,
        *,
        claim: str = "",
        keep: bool = False,
        is_open: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = Reason(kind=kind, message=message, claim=claim)
        self.keep = keep
        self.is_open = is_open


class UnreadableError(BindError):
    """It is not known whether the pod is bound. So nothing is undone: the pod's next attempt finds what it has."""

    def __init__(self, kind: ReasonKind, message: str) -> None:
        super().__init__(kind, message, keep=True)


class LeaseLostError(BindError):
    """This process may not write any more; whoever leads next finishes or undoes what is half done."""

    def __init__(self, *, is_open: bool = False) -> None:
        super().__init__(
            ReasonKind.NOT_LEADER,
            "this scheduler is not the leader any more",
            keep=True,
            is_open=is_open,
        )
