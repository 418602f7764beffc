"""One measured row: ours, the peer's, their ratio, and what was to be reached."""

from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

import orjson


@dataclass(frozen=True)
class Row:
    """A row of the table in docs/performance.md; printed as one JSON object a line.

    Attributes:
        bench: name, as for `make bench BENCH=`.
        shape: what was measured, in words and numbers.
        ours: our figures, one a repetition.
        peer: the peer's in the same run, or None if the row has no peer.
        unit: of both.
        better: `higher` or `lower`.
        reach: the ratio ours/peer (or the bare figure without a peer) to reach; None: printed only.
        notes: conditions that a reader must know.
    """

    bench: str
    shape: str
    ours: list[float]
    peer: list[float] | None
    unit: str
    better: str = "higher"
    reach: float | None = None
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Median of ours over median of the peer's."""
        return median(self.ours) / median(self.peer) if self.peer and median(self.peer) else None

    @property
    def is_ok(self) -> bool | None:
        """Whether `reach` was reached; None if there is nothing to reach."""
        if self.reach is None:
            return None
        value = self.ratio if self.peer is not None else median(self.ours)
        if value is None:
            return None
        return value >= self.reach if self.better == "higher" else value <= self.reach

    def line(self) -> str:
        """The row as JSON."""

        def rounded(value: float | None) -> float | None:
            return None if value is None else float(f"{value:.4g}")

        spread = max(self.ours) - min(self.ours)
        return orjson.dumps(
            {
                "bench": self.bench,
                "shape": self.shape,
                "ours": rounded(median(self.ours)),
                "peer": rounded(median(self.peer)) if self.peer else None,
                "unit": self.unit,
                "ratio": rounded(self.ratio),
                "better": self.better,
                "reach": self.reach,
                "ok": self.is_ok,
                "runs": [
                    {"ours": rounded(mine), "peer": rounded(theirs)}
                    for mine, theirs in zip_longest(self.ours, self.peer or [])
                ],
                "spread": rounded(spread),
                **({"notes": self.notes} if self.notes else {}),
            }
        ).decode()
