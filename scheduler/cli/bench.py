"""`bench`: how fast the engine decides, on a synthetic cluster or on one's own manifests, and where the time goes.

`-o json` prints one object; times are milliseconds unless the name says seconds:

    {"python": "3.11.7",
     "cluster": {"source": "synthetic" | "manifests", "nodes": 500, "devices": 4000, "pods": 1000},
     "startup": {"seconds": 0.2, "decodeSeconds": 0.1, "indexSeconds": 0.1, "objects": 3001},
     "filter": {"nodes": 500, "viewsMs": 60.2, "firstMs": 4.1, "againMs": {"p50": 0.6, "p99": 0.9, "worst": 1.0},
                "calls": 100, "lookups": 50500, "searches": 600, "fromMemory": 49900} | null,
     "decisions": {"pods": 1000, "placed": 1000, "refused": 0, "failed": 0, "perSecond": 2500.0,
                   "ms": {"p50": 0.3, "p99": 0.9, "worst": 30.0},
                   "lookups": 100000, "searches": 1100, "fromMemory": 98900},
     "peakRssBytes": 104857600 | null,
     "profile": {"file": "bench.folded", "samples": 400, "seconds": 2.1,
                 "hottest": [{"function": "allocator.search:…", "self": 0.31, "cumulative": 0.5}]} | null,
     "errors": [{"file", "document", "object", "path", "message"}], "notes": []}

`filter` is null if no pod could be asked about. `self` and `cumulative` are shares of all samples.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING, CliError
from scheduler.cli.options import (
    DEFAULT_VERSION,
    Files,
    Gates,
    MoreFiles,
    Version,
    features,
    read_manifests,
)
from scheduler.cli.progress import progress_bar
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from scheduler.offline.bench import Figures, Times, Work, Workload
    from scheduler.offline.simulate import SimulationOptions
    from scheduler.profiler import Profile

NODES: Final = 500
DEVICES: Final = 8
PODS: Final = 1000
_MOST_NODES: Final = 20_000
_MOST_DEVICES: Final = 128  # of one slice
_MOST_PODS: Final = 200_000
_HOTTEST: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    files: Files = None,
    more: MoreFiles = None,
    nodes: Annotated[
        int | None, typer.Option(help=f"Nodes; {NODES} by default.", show_default=False)
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(help=f"Devices on each node; {DEVICES} by default.", show_default=False),
    ] = None,
    pods: Annotated[
        int | None,
        typer.Option(
            help=f"Pending pods, each asking for one device; {PODS} by default.", show_default=False
        ),
    ] = None,
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Output format.")
    ] = TableOrJson.TABLE,
    profile: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Profile the run: write collapsed stacks to this file and list the hottest functions.",
            show_default=False,
        ),
    ] = "",
    policy: Annotated[
        str, typer.Option(help="Policy that chooses among devices that fit.")
    ] = "FirstFit",
    kubernetes_version: Version = DEFAULT_VERSION,
    feature_gates: Gates = "",
) -> int:
    """Measure decisions, filter calls and start-up in this process, on a synthetic cluster or on manifests (-f)."""
    from allocator.policies import POLICIES
    from scheduler.offline.simulate import SimulationOptions

    if policy not in POLICIES:
        raise CliError(f"--policy: unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    options = SimulationOptions(features=features(kubernetes_version, feature_gates), policy=policy)
    shape = {"--nodes": nodes, "--devices": devices, "--pods": pods}
    if files or more:
        given = [flag for flag, value in shape.items() if value is not None]
        if given:
            raise CliError(f"{given[0]}: describes a synthetic cluster; cannot be combined with -f")
        workload = _from_manifests(files, more, options)
    else:
        workload = _synthetic(
            _size("--nodes", nodes, NODES, _MOST_NODES),
            _size("--devices", devices, DEVICES, _MOST_DEVICES),
            _size("--pods", pods, PODS, _MOST_PODS),
        )
    with _opened(profile) as file:
        figures, taken = _measured(workload, options, profiled=file is not None)
        if file is not None and taken is not None:
            file.write(taken.collapsed())
    if output is TableOrJson.JSON:
        render.print_data(_tree(workload, figures, taken, profile), Output.JSON)
    else:
        _print_table(workload, figures)
        if taken is not None:
            _print_profile(taken, profile)
    return FOUND_SOMETHING if workload.errors else DONE


def _size(flag: str, given: int | None, default: int, most: int) -> int:
    if given is None:
        return default
    if not 1 <= given <= most:
        raise CliError(f"{flag}: must be from 1 to {most}, is {given}")
    return given


def _synthetic(nodes: int, devices: int, pods: int) -> "Workload":
    from scheduler.offline.bench import Workload
    from scheduler.offline.synthetic import synthetic_lists

    return Workload(source="synthetic", lists=synthetic_lists(nodes, devices, pods))


def _from_manifests(
    files: list[str] | None, more: list[str] | None, options: "SimulationOptions"
) -> "Workload":
    from scheduler.model import Kind
    from scheduler.offline.bench import workload_of

    workload = workload_of(read_manifests(files, more), options)
    for kind, what in ((Kind.NODE, "nodes"), (Kind.POD, "pods")):
        if not workload.lists[kind]:
            _complain_of(workload)
            raise CliError(f"the manifests hold no {what}: nothing to measure")
    return workload


@contextmanager
def _opened(path: str) -> Iterator[TextIO | None]:
    """Open the file up front, so that an unwritable path fails before the measurement and not after it."""
    if not path:
        yield None
        return
    try:
        file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115  # closed below; an error of the body is not ours
    except OSError as error:
        raise CliError(f"--profile: {path}: {error.strerror}") from None
    with file:
        yield file


def _measured(
    workload: "Workload", options: "SimulationOptions", *, profiled: bool
) -> "tuple[Figures, Profile | None]":
    from scheduler.offline.bench import measure
    from scheduler.profiler import Sampler

    with progress_bar() as progress:
        if not profiled:
            return measure(workload, options, time.perf_counter, progress), None
        sampler = Sampler(time.perf_counter)
        sampler.start()
        try:
            figures = measure(workload, options, time.perf_counter, progress)
        finally:
            taken = sampler.stop()
        return figures, taken


def _tree(
    workload: "Workload", figures: "Figures", profile: "Profile | None", file: str
) -> dict[str, Any]:
    from scheduler.offline.bench import as_tree

    taken = profile and {
        "file": file,
        "samples": profile.samples,
        "seconds": round(profile.seconds, 3),
        "hottest": [
            {
                "function": each.name,
                "self": round(each.own, 4),
                "cumulative": round(each.cumulative, 4),
            }
            for each in profile.hottest(_HOTTEST)
        ],
    }
    return {
        **as_tree(figures),
        "profile": taken,
        "errors": [asdict(error) for error in workload.errors],
        "notes": list(workload.notes),
    }


def _print_table(workload: "Workload", figures: "Figures") -> None:
    out = render.console()
    out.print(
        f"{figures.nodes:,} nodes, {figures.devices:,} devices, {figures.pods:,} pods"
        f" ({figures.source}), {_mebibytes(figures.peak_rss_bytes)}\n"
    )
    rows = render.table("WHAT", "RESULT")
    for what, result in _rows(figures):
        rows.add_row(what, render.cell([result]))
    out.print(rows)
    for note in workload.notes:
        out.print(f"note: {note}")
    _complain_of(workload)


def _rows(figures: "Figures") -> Iterator[tuple[str, str]]:
    startup, filtered, decisions = figures.startup, figures.filter, figures.decisions
    yield (
        "start-up",
        f"{startup.seconds:.2f} s for {startup.objects:,} objects"
        f" (decode {startup.decode_seconds:.2f}, index {startup.index_seconds:.2f})",
    )
    if filtered is not None:
        yield (
            "filter, first question",
            f"{filtered.first_ms:.1f} ms for {filtered.nodes:,} nodes"
            f" (deriving their views at start-up: {filtered.views_ms:.0f} ms)",
        )
        yield "filter, one node changed", f"{_text(filtered.again)}, {filtered.calls} calls"
        yield "  answers", _answers(filtered.work)
    yield "decisions", f"{decisions.per_second:,.0f} a second"
    yield "  one decision", _text(decisions.one)
    yield "  answers", _answers(decisions.work)
    yield (
        "  pods",
        f"{decisions.placed:,} placed, {decisions.refused:,} do not fit, {decisions.failed:,} failed",
    )


def _text(times: "Times") -> str:
    return f"p50 {times.p50:.2f} ms, p99 {times.p99:.2f} ms, worst {times.worst:.2f} ms"


def _answers(work: "Work") -> str:
    share = work.from_memory / work.lookups if work.lookups else 0.0
    return f"{work.searches:,} searched, {work.from_memory:,} from memory ({share:.1%})"


def _mebibytes(size: int | None) -> str:
    return "memory unknown" if size is None else f"{size / 2**20:,.0f} MiB peak"


def _print_profile(profile: "Profile", file: str) -> None:
    out = render.console()
    out.print(f"\n{profile.samples:,} samples in {profile.seconds:.1f} s, written to {file}")
    rows = render.table("SELF", "CUMULATIVE", "FUNCTION")
    for each in profile.hottest(_HOTTEST):
        rows.add_row(f"{each.own:.1%}", f"{each.cumulative:.1%}", render.cell([each.name]))
    out.print(rows)


def _complain_of(workload: "Workload") -> None:
    for error in workload.errors:
        where = f"{error.object}: {error.path}" if error.path else error.object
        render.complain(f"error: {error.file}, document {error.document}: {where}: {error.message}")
