"""`explain pod`: where a pod runs or would run, or for every node and device why not."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING, CliError
from scheduler.cli.options import (
    Files,
    Gates,
    Kubeconfig,
    VersionOfServer,
    features,
    read_live,
    read_manifests,
)
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from allocator.outcome import Reason
    from scheduler.offline.explain import Explanation

_MOST_DEVICES = 16


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Show where a pod runs or would run, or what keeps it from each node.")
    group.command("pod")(pod)

    @group.callback()
    def root() -> None:
        """Show where a pod runs or would run, or what keeps it from each node."""

    app.add_typer(group, name="explain")


def pod(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the pod.")],
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of the pod.")
    ] = "default",
    files: Files = None,
    kubeconfig: Kubeconfig = "",
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Output format.")
    ] = TableOrJson.TABLE,
    kubernetes_version: VersionOfServer = "",
    feature_gates: Gates = "",
) -> int:
    """Explain one pod, from manifests (-f) or in a live cluster."""
    from allocator.features import LATEST_VERSION
    from scheduler.offline.explain import explain_pod, explanation_tree
    from scheduler.offline.simulate import SimulationOptions

    if files:
        manifests = read_manifests(files, None)
        gates = features(kubernetes_version or LATEST_VERSION, feature_gates)
    else:
        manifests, gates = read_live(kubeconfig, kubernetes_version, feature_gates)
    options = SimulationOptions(features=gates, explain=False)
    explanation = explain_pod(manifests, options, namespace, name, alone=not files)
    if explanation is None:
        raise CliError(f"there is no pod {namespace}/{name}", FOUND_SOMETHING)
    if output is TableOrJson.JSON:
        render.print_data(explanation_tree(explanation), Output.JSON)
    else:
        _print_table(explanation)
    return DONE


def _print_table(explanation: "Explanation") -> None:
    out = render.console()
    pod_name = f"{explanation.namespace}/{explanation.name}"
    if explanation.node is not None:
        verb = "runs" if explanation.is_running else "would run"
        out.print(f"Pod {pod_name} {verb} on node {explanation.node}.")
    elif explanation.reason is not None:
        out.print(
            f"Pod {pod_name} has no node. {explanation.reason.kind}: {explanation.reason.message}"
        )
    for each in explanation.claims:
        for result in each.allocation.devices.results or ():
            out.print(
                f"  claim {each.claim.metadata.name}, request {result.request}: {result.device_id}"
            )
    if explanation.nodes:
        rows = render.table("NODE", "FITS", "REASON", title="\nNodes")
        for node, reason in explanation.nodes.items():
            rows.add_row(node, "yes" if reason is None else "no", render.cell(_lines(reason)))
        out.print(rows)
    for note in explanation.notes:
        out.print(f"note: {note}")
    for error in explanation.errors:
        render.complain(
            f"error: {error.file}, document {error.document}: {error.object}: {error.path}: {error.message}"
        )


def _lines(reason: "Reason | None") -> list[str]:
    if reason is None:
        return [""]
    lines = [f"{reason.kind}: {reason.message}"]
    lines.extend(f"  {each.device}: {each.message}" for each in reason.devices[:_MOST_DEVICES])
    rest = reason.devices[_MOST_DEVICES:]
    lines.extend(
        f"  {count} more: {text}"
        for text, count in sorted(Counter(each.message for each in rest).items())
    )
    return lines
