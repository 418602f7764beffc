"""How a bench is run: how often, how large, and where its rows go. Figures are kept by side and repetition."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.benchmarks.row import Row

Report = Callable[[Row], None]


class BenchFailedError(Exception):
    """Some repetition failed; the rows that could be measured have been reported."""


@dataclass(frozen=True)
class Plan:
    """What the command line asks of a bench.

    Attributes:
        report: takes a row as soon as it is measured.
        repetitions: of everything.
        full: whether the run may take as long as it likes.
        pods: length of a backlog; None: as the bench thinks.
    """

    report: Report
    repetitions: int = 1
    full: bool = False
    pods: int | None = None

    def backlog(self, short: int, full: int) -> int:
        """How many pods a backlog has."""
        return self.pods or (full if self.full else short)


@dataclass
class Series:
    """Figures by side (`ours`, `in-tree`, ..) and repetition.

    A repetition that fails on one side is told on standard error and leaves a gap there; the others go on.

    Attributes:
        name: of the bench, for messages.
        failures: what went wrong.
    """

    name: str
    failures: list[str] = field(default_factory=list)
    _figures: dict[str, dict[int, float]] = field(default_factory=dict)

    async def take(self, side: str, repetition: int, measured: Awaitable[float]) -> bool:
        """Wait for a figure and keep it; False if there is none."""
        try:
            figure = await measured
        except Exception as error:
            notes = getattr(error, "__notes__", [])
            text = "; ".join([f"{type(error).__name__}: {error}", *notes])
            failure = f"{side}, repetition {repetition + 1}: {text}"
            self.failures.append(failure)
            _tell(f"{self.name}: {failure}")
            return False
        self.keep(side, repetition, figure)
        _tell(f"{self.name}: {side}: {figure:.4g}")
        return True

    def keep(self, side: str, repetition: int, figure: float) -> None:
        """Keep a figure."""
        self._figures.setdefault(side, {})[repetition] = figure

    def of(self, side: str) -> list[float]:
        """All figures of a side."""
        return list(self._figures.get(side, {}).values())

    def pairs(self, ours: str, peer: str) -> tuple[list[float], list[float]]:
        """Figures of two sides, of the repetitions in which both were measured."""
        mine, theirs = self._figures.get(ours, {}), self._figures.get(peer, {})
        both = [repetition for repetition in mine if repetition in theirs]
        return [mine[each] for each in both], [theirs[each] for each in both]

    def row(
        self,
        shape: str,
        ours: str,
        peer: str | None,
        unit: str = "pods/s",
        *,
        bench: str = "",
        better: str = "higher",
        reach: float | None = None,
        notes: dict[str, object] | None = None,
    ) -> Row | None:
        """A row of two sides, or of one without a peer; None if nothing was measured."""
        mine, theirs = (self.of(ours), None) if peer is None else self.pairs(ours, peer)
        if not mine:
            return None
        return Row(bench or self.name, shape, mine, theirs, unit, better, reach, notes or {})

    def end(self) -> None:
        """Say at the end whether something went wrong.

        Raises:
            BenchFailedError: something did.
        """
        if self.failures:
            raise BenchFailedError("; ".join(self.failures))


def report_all(plan: Plan, rows: "list[Row | None]") -> None:
    """Report those rows that could be measured."""
    for row in rows:
        if row is not None:
            plan.report(row)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
