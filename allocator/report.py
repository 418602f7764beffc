"""What the search reports to a listener; it neither logs nor measures by itself."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from allocator.model.devices import DeviceID


class Reporter(Protocol):
    """Receives the steps of a search. Called on the hot path: must be O(1)."""

    def rejected(
        self, claim: int, request: int, device: DeviceID, stage: int, message: str
    ) -> None:
        """Hear that a device was refused for a request; later stages are nearer to success."""
        ...

    def finished(self, steps: int, candidates: int) -> None:
        """Hear the work of the whole search: solver steps and candidate devices looked at."""
        ...


class NullReporter:
    """Ignores everything."""

    def rejected(
        self, claim: int, request: int, device: DeviceID, stage: int, message: str
    ) -> None:
        """Ignore it."""

    def finished(self, steps: int, candidates: int) -> None:
        """Ignore it."""


NULL_REPORTER: Final = NullReporter()


@dataclass(slots=True)
class Explanation:
    """Keeps the furthest stage of each device, by claim and request; `limit` devices a request.

    Attributes:
        limit: devices kept for one request.
        refused: (claim index, request index) -> device -> (stage, message).
        steps: solver steps of the last search.
        candidates: candidate devices of the last search.
    """

    limit: int = 256
    refused: dict[tuple[int, int], dict[DeviceID, tuple[int, str]]] = field(default_factory=dict)
    steps: int = 0
    candidates: int = 0

    def rejected(
        self, claim: int, request: int, device: DeviceID, stage: int, message: str
    ) -> None:
        """Keep it if it is the furthest stage this device reached."""
        devices = self.refused.setdefault((claim, request), {})
        known = devices.get(device)
        if known is None:
            if len(devices) < self.limit:
                devices[device] = (stage, message)
        elif stage > known[0]:
            devices[device] = (stage, message)

    def finished(self, steps: int, candidates: int) -> None:
        """Keep it."""
        self.steps = steps
        self.candidates = candidates
