"""A line plot as SVG text: linear axes that begin at zero, numbers at them, a legend, a mark for each point."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from statistics import median
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 420
LEFT, RIGHT, TOP, BOTTOM = 70, 34, 52, 92
# Told apart without colours, too: by their dashes.
STYLES: Final = (("#1f5fbf", ""), ("#c2410c", "7 4"), ("#15803d", "2 3"), ("#6b21a8", "9 3 2 3"))
TICKS: Final = 6


@dataclass(frozen=True)
class Line:
    """A named row of points.

    Attributes:
        name: for the legend.
        points: x, and the figures measured there.
    """

    name: str
    points: list[tuple[float, tuple[float, ...]]]

    def add(self, x: float, figures: Sequence[float]) -> None:
        """Add a point, if anything was measured."""
        if figures:
            self.points.append((x, tuple(figures)))


def ticks(highest: float, about: int = TICKS) -> list[float]:
    """Round numbers from zero to the first that is not below `highest`; steps of 1, 2 or 5 times a power of ten."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / about
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    count = 1
    while count * step < highest * 0.999:
        count += 1
    return [round(index * step, 10) for index in range(count + 1)]


def number(value: float) -> str:
    """`5,000`, `0.5`."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


@dataclass(frozen=True)
class Plot:
    """What is drawn.

    Attributes:
        title: above.
        x_label: below the x axis.
        y_label: beside the y axis.
        lines: at least one point in all.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]

    def svg(self) -> str:
        """The whole file.

        Raises:
            ValueError: there is no point.
        """
        points = [point for line in self.lines for point in line.points]
        if not points:
            raise ValueError("nothing to draw")
        x_ticks = ticks(max(x for x, _ in points))
        y_ticks = ticks(max(max(figures) for _, figures in points))
        frame = _Frame(x_ticks[-1], y_ticks[-1])
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            _text(LEFT, 28, self.title, size=16, anchor="start"),
            *frame.axes(x_ticks, y_ticks),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 42, self.x_label),
            _text(20, (TOP + HEIGHT - BOTTOM) / 2, self.y_label, turned=True),
        ]
        for index, line in enumerate(self.lines):
            parts += frame.line(line, *STYLES[index % len(STYLES)])
        parts += self._legend()
        return "\n".join([*parts, "</svg>", ""])

    def _legend(self) -> list[str]:
        parts, x, y = [], float(LEFT), HEIGHT - 18
        for index, line in enumerate(self.lines):
            colour, dashes = STYLES[index % len(STYLES)]
            parts.append(_stroke(x, y - 4, x + 34, y - 4, colour, 2.5, dashes))
            parts.append(f'<circle cx="{x + 17:g}" cy="{y - 4}" r="4" fill="{colour}"/>')
            parts.append(_text(x + 42, y, line.name, anchor="start"))
            x += 42 + 8 * len(line.name) + 24
        return parts


@dataclass(frozen=True)
class _Frame:
    """Where numbers are on the page."""

    x_end: float
    y_end: float

    def x(self, value: float) -> float:
        return round(LEFT + value / self.x_end * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - value / self.y_end * (HEIGHT - TOP - BOTTOM), 1)

    def axes(self, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> list[str]:
        bottom, end = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = []
        for tick in y_ticks:
            parts.append(_stroke(LEFT, self.y(tick), end, self.y(tick), "#dddddd"))
            parts.append(_text(LEFT - 8, self.y(tick) + 4, number(tick), anchor="end"))
        for tick in x_ticks:
            parts.append(_stroke(self.x(tick), bottom, self.x(tick), bottom + 5, "#333333"))
            parts.append(_text(self.x(tick), bottom + 20, number(tick)))
        parts.append(_stroke(LEFT, bottom, end, bottom, "#333333"))
        parts.append(_stroke(LEFT, TOP, LEFT, bottom, "#333333"))
        return parts

    def line(self, line: Line, colour: str, dashes: str) -> list[str]:
        """The medians joined, and a bar from the lowest figure to the highest at each."""
        places = [(self.x(x), self.y(median(figures))) for x, figures in line.points]
        joined = " ".join(f"{x:g},{y:g}" for x, y in places)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts = [
            f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2.5"{dashed}/>'
        ]
        for (x, y), (at, figures) in zip(places, line.points, strict=True):
            if len(figures) > 1:
                parts.append(_stroke(x, self.y(min(figures)), x, self.y(max(figures)), colour))
            told = f"{line.name}: {median(figures):.4g} at {number(at)}"
            parts.append(
                f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"><title>{escape(told)}</title></circle>'
            )
            parts.append(_text(x, y - 9, f"{median(figures):.3g}", size=11, colour=colour))
        return parts


def _stroke(
    x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    anchor: str = "middle",
    colour: str = "#222222",
    turned: bool = False,
) -> str:
    turn = f' transform="rotate(-90 {x:g} {y:g})"' if turned else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}"{turn}>{escape(text)}</text>'
    )
