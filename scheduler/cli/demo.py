"""`demo`: a mixed GPU and NIC workload scheduled in one process, with no cluster and no container."""

import asyncio
import time
from typing import Annotated, Final

import typer
from rich.console import Console

from allocator.outcome import Reason
from scheduler.cli.errors import DONE
from scheduler.cli.render import cell, console, table
from scheduler.views.placement import PlacedPod

_MOST_DEVICES: Final = 4


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        help="Schedule a mixed GPU and NIC workload in one process and show where each pod went.",
    )(demo)


def demo(
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Keep running afterwards and print a kubeconfig for the embedded API server.",
        ),
    ] = False,
) -> int:
    """Run the demo; returns the exit code."""
    from scheduler.bootstrap.logs import configure_logging

    configure_logging("text", 0)
    return asyncio.run(_run(serve=serve))


async def _run(*, serve: bool) -> int:
    from scheduler.lab.apiserver.app import kubeconfig
    from scheduler.lab.apiserver.app import serve as serve_api
    from scheduler.lab.demo import Demo

    out = console()
    cluster = Demo()
    started = time.perf_counter()
    async with cluster.running():
        out.print(
            "A cluster in this process: embedded API server, claim controller, drivers, kubelets, and dra-scheduler."
        )
        await cluster.create_workload()
        is_settled = await cluster.wait_until_settled()
        _show(out, cluster.placed(), time.perf_counter() - started)
        if not is_settled:
            out.print("Some pods were neither bound nor refused in time. This is a bug.")
            return 1
        if serve:
            async with serve_api(cluster.server, cluster.clock) as url:
                out.print(
                    f"\nThe API server is running at {url} until you press Ctrl-C. A kubeconfig for it:\n"
                )
                out.print(kubeconfig(url))
                await asyncio.get_running_loop().create_future()
    return DONE


def _show(out: Console, pods: list[PlacedPod], seconds: float) -> None:
    placed = table("POD", "NODE", "DEVICES")
    for pod in pods:
        if pod.node:
            placed.add_row(pod.name, pod.node, cell(pod.devices or ("-",)))
        else:
            placed.add_row(pod.name, cell(("Pending",), "yellow"), cell((pod.message,)))
    out.print()
    out.print(placed)
    bound = sum(1 for pod in pods if pod.node)
    out.print(f"\n{bound} of {len(pods)} pods bound in {seconds:.1f} s.")
    for pod in pods:
        if not pod.node:
            _explain(out, pod.name, dict(pod.reasons))


def _explain(out: Console, name: str, reasons: dict[str, Reason]) -> None:
    out.print(f"\nWhy {name} is Pending:")
    why = table("NODE", "REASON", "DEVICES")
    for node, reason in reasons.items():
        shown = [f"{each.device}: {each.message}" for each in reason.devices[:_MOST_DEVICES]]
        if len(reason.devices) > _MOST_DEVICES:
            shown.append(f"and {len(reason.devices) - _MOST_DEVICES} more")
        why.add_row(node, f"{reason.kind}: {reason.message}", cell(shown or ("-",)))
    out.print(why)
