"""`simulate`: will it fit, where, on which devices, and if not, why."""

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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
from scheduler.cli.render import Output

if TYPE_CHECKING:
    from scheduler.offline.simulate import PodResult, Simulation


class OnNodeError(StrEnum):
    """What an error that depends on a node does."""

    REJECT = "reject"
    ABORT = "abort"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    files: Files = None,
    more: MoreFiles = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    policy: Annotated[
        str, typer.Option(help="Policy that chooses among devices that fit.")
    ] = "FirstFit",
    on_node_error: Annotated[
        OnNodeError,
        typer.Option(
            help="What an error on one node's devices does: reject the node, or abort the pod's attempt as kube-scheduler does."
        ),
    ] = OnNodeError.REJECT,
    kubernetes_version: Version = DEFAULT_VERSION,
    feature_gates: Gates = "",
    all_nodes: Annotated[
        bool,
        typer.Option(
            "--all-nodes", help="Show for each pod which nodes fit and why the others do not."
        ),
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with code 1 if a pod does not fit.")
    ] = False,
) -> int:
    """Schedule the pods in manifests without a cluster; show where each goes, or why it does not fit."""
    from allocator.policies import POLICIES
    from scheduler.offline.simulate import SimulationOptions
    from scheduler.offline.simulate import simulate as run_simulation
    from scheduler.offline.trees import simulation_tree

    if policy not in POLICIES:
        raise CliError(f"--policy: unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    options = SimulationOptions(
        features=features(kubernetes_version, feature_gates),
        policy=policy,
        on_node_error=on_node_error.value,
        all_nodes=all_nodes,
    )
    with progress_bar() as progress:
        answer = run_simulation(read_manifests(files, more), options, progress)
    if output is Output.TABLE:
        _print_table(answer, all_nodes=all_nodes)
    else:
        render.print_data(simulation_tree(answer), output)
    does_not_fit = any(pod.node is None for pod in answer.pods)
    return FOUND_SOMETHING if answer.errors or (exit_code and does_not_fit) else DONE


def _print_table(answer: "Simulation", *, all_nodes: bool) -> None:
    out = render.console()
    if answer.pods:
        rows = render.table("POD", "NODE", "DEVICES OR REASON")
        for pod in answer.pods:
            rows.add_row(
                f"{pod.namespace}/{pod.name}",
                render.cell([pod.node or "-"], "green" if pod.node else "red"),
                render.cell(_devices(pod) if pod.node else _reasons(pod)),
            )
        out.print(rows)
        placed = sum(pod.node is not None for pod in answer.pods)
        out.print(f"\n{placed} of {len(answer.pods)} pods fit.")
    else:
        out.print("No pods to schedule.")
    if all_nodes:
        _print_nodes(answer)
    for note in answer.notes:
        out.print(f"note: {note}")
    for error in answer.errors:
        where = f"{error.object}: {error.path}" if error.path else error.object
        render.complain(f"error: {error.file}, document {error.document}: {where}: {error.message}")


def _devices(pod: "PodResult") -> list[str]:
    lines = []
    for each in pod.claims:
        for result in each.allocation.devices.results or ():
            consumed = ", ".join(
                f"{name}={amount}"
                for name, amount in sorted((result.consumed_capacity or {}).items())
            )
            lines.append(
                f"{each.entry}/{result.request}: {result.device_id}"
                + (f" ({consumed})" if consumed else "")
            )
    return lines or ["(no devices)"]


def _reasons(pod: "PodResult") -> list[str]:
    reason = pod.reason
    if reason is None:
        return []
    lines = [f"{reason.kind}: {reason.message}"]
    if reason.request:
        lines.append(f"  claim {reason.claim}, request {reason.request}")
    counts = Counter(
        f"{each.kind}: {each.message}" for each in pod.nodes.values() if each is not None
    )
    lines.extend(f"  {count} node(s): {text}" for text, count in sorted(counts.items()))
    stages = Counter(f"{each.kind}: {each.message}" for each in reason.devices)
    lines.extend(f"  {count} device(s): {text}" for text, count in sorted(stages.items()))
    return lines


def _print_nodes(answer: "Simulation") -> None:
    out = render.console()
    rows = render.table("POD", "NODE", "FITS", "REASON", title="\nNodes")
    for pod in answer.pods:
        for node, reason in pod.nodes.items():
            rows.add_row(
                f"{pod.namespace}/{pod.name}",
                node,
                "yes" if reason is None else "no",
                render.cell(["" if reason is None else f"{reason.kind}: {reason.message}"]),
            )
    out.print(rows)
