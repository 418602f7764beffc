"""What can go wrong on the way, as decisions about single requests and lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.lab.apiserver.requests import Request

if TYPE_CHECKING:
    from tests.simulation.network import Answer, WatchConnection, Wire


@dataclass(slots=True)
class Verdict:
    """What happens to one request.

    Attributes:
        fault: its name; empty: nothing.
        delay_up: before it arrives.
        delay_down: before its answer arrives.
        not_sent: the server cannot be reached.
        loses_request: it never arrives.
        loses_answer: it is carried out, and nobody hears.
        patience: after which the sender stops waiting; None: as usual.
        before: is done right before it is carried out.
        instead: is answered, and nothing is carried out.
        after: changes the answer.
        request: is carried out in its place.
    """

    fault: str = ""
    delay_up: float = 0.0
    delay_down: float = 0.0
    not_sent: bool = False
    loses_request: bool = False
    loses_answer: bool = False
    patience: float | None = None
    before: Callable[[], Any] | None = None
    instead: "Answer | None" = None
    after: "Callable[[Answer], Answer] | None" = None
    request: Request | None = None
    crash: str = ""


class Faults:
    """Decides; this one lets everything pass."""

    def on_request(self, wire: "Wire", request: Request) -> Verdict:
        """A request is about to be sent."""
        return Verdict()

    def on_commit(self, wire: "Wire", request: Request, answer: "Answer", verdict: Verdict) -> None:
        """A request has been carried out."""

    def on_answer(self, wire: "Wire", request: Request, verdict: Verdict) -> None:
        """An answer has come."""

    def on_line(
        self, connection: "WatchConnection", line: bytes, recent: Iterable[bytes]
    ) -> Iterable[bytes]:
        """A watch event is about to be sent."""
        return (line,)


NoFaults = Faults
