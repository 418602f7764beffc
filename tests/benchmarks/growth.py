"""`growth`: what a larger cluster costs. Decisions a second with nobody writing, and pods a second on the real API server."""

import sys
from pathlib import Path

from tests.benchmarks.backlog import SHAPES, add_nodes
from tests.benchmarks.inmemory import decide
from tests.benchmarks.plan import Plan, Series, report_all
from tests.benchmarks.plot import Line, Plot
from tests.benchmarks.row import Row
from tests.benchmarks.throughput import (
    LEVEL,
    OURS,
    Runner,
    bench_with,
    fitting_pods,
    in_tree,
    ours,
)

PODS = 1_000
SIZES = (100, 500, 1_000, 2_000, 5_000)
# What the table asks for: ours in a large cluster against in-tree in a small one.
SMALL, LARGE = 500, 5_000
SIDES: tuple[tuple[str, str, Runner], ...] = (
    ("in-tree", "in-tree", in_tree),
    ("ours", OURS, ours("run")),
)
SVG = Path(__file__).parents[2] / "docs" / "growth.svg"


async def growth(repetitions: int) -> list[Row]:
    """The cost of a decision must not grow with the cluster."""
    small = [decide(500, PODS).per_second for _ in range(repetitions)]
    big = [decide(5_000, PODS) for _ in range(repetitions)]
    return [
        Row(
            "growth",
            f"{PODS} template pods, 5,000 nodes x 8 over 500 x 8, null client",
            [each.per_second for each in big],
            small,
            "decisions/s",
            reach=0.7,
            notes={"worst_decision_ms": round(max(each.worst_seconds for each in big) * 1000, 1)},
        )
    ]


async def growth_plot(plan: Plan, sizes: tuple[int, ...], pods: int, svg: Path | None) -> None:
    """Pods a second on the real API server, in one cluster that grows.

    Args:
        plan: how.
        sizes: numbers of nodes, rising.
        pods: in a backlog, at most; fewer where there are not so many devices.
        svg: where a plot is written; None: nowhere, and only in-tree in the smallest cluster and ours in the largest are
            measured.
    """
    shape = SHAPES[0]
    small, large = SMALL if SMALL in sizes else sizes[0], sizes[-1]
    wanted = {"in-tree": small, "ours": large}
    series = Series("growth-plot")
    lines = {"ours": Line("dra-scheduler, stand-alone", []), "in-tree": Line("kube-scheduler", [])}
    async with bench_with(sizes[0]) as bench:
        there = sizes[0]
        for size in sizes:
            await add_nodes(bench.plane.admin, range(there, size))
            there = size
            count = fitting_pods(size, shape, pods)
            for repetition in range(plan.repetitions):
                for side, scheduler, go in SIDES:
                    if svg is not None or wanted[side] == size:
                        measured = bench.run(shape, count, scheduler, go)
                        await series.take(f"{side} {size}", repetition, measured)
            row = series.row(
                f"{size} nodes, {count} pods, {shape.name}, peer in-tree",
                f"ours {size}",
                f"in-tree {size}",
                notes=LEVEL,
            )
            report_all(plan, [row])
            for side, line in lines.items():
                line.add(size, series.of(f"{side} {size}"))
    flat = series.row(
        f"ours at {large} nodes, peer in-tree at {small} nodes, {shape.name}",
        f"ours {large}",
        f"in-tree {small}",
        bench="growth",
        reach=1.0,
        notes=LEVEL,
    )
    report_all(plan, [flat])
    if svg is not None and all(len(line.points) == len(sizes) for line in lines.values()):
        plot = Plot(
            title="Pods bound a second, backlog of pods with one device each",
            x_label="nodes, 8 devices each",
            y_label="pods a second",
            lines=list(lines.values()),
        )
        svg.parent.mkdir(parents=True, exist_ok=True)
        svg.write_text(plot.svg())
        print(f"wrote {svg}", file=sys.stderr)
    series.end()
