"""`explain pod`: where a pod runs or would run, or for every node and device why not."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING, CliError
from scheduler.cli.options import Files, Gates, features, read_manifests
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from allocator.features import Features
    from allocator.outcome import Reason
    from scheduler.offline.explain import Explanation
    from scheduler.offline.manifests import Manifest

_MOST_DEVICES = 16


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(
        help="Say why: where a pod runs or would run, and what keeps it from every node."
    )
    group.command("pod")(pod)

    @group.callback()
    def root() -> None:
        """Say why: where a pod runs or would run, and what keeps it from every node."""

    app.add_typer(group, name="explain")


def pod(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pod.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Its namespace.")] = "default",
    files: Files = None,
    kubeconfig: Annotated[
        str, typer.Option(help="Without -f: the cluster to ask; else $KUBECONFIG, else in-cluster.")
    ] = "",
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Form of the answer.")
    ] = TableOrJson.TABLE,
    kubernetes_version: Annotated[
        str,
        typer.Option(
            "--kubernetes-version", help="Whose defaults of feature gates apply; else the server's."
        ),
    ] = "",
    feature_gates: Gates = "",
) -> int:
    """Explain one pod, with manifests (-f) or in a live cluster."""
    from allocator.features import LATEST_VERSION
    from scheduler.offline.explain import as_tree, explain_pod
    from scheduler.offline.simulate import SimulationOptions

    if files:
        manifests = read_manifests(files, None)
        gates = features(kubernetes_version or LATEST_VERSION, feature_gates)
    else:
        manifests, gates = _read_live(kubeconfig, kubernetes_version, feature_gates)
    options = SimulationOptions(features=gates, explain=False)
    explanation = explain_pod(manifests, options, namespace, name, alone=not files)
    if explanation is None:
        raise CliError(f"there is no pod {namespace}/{name}", FOUND_SOMETHING)
    if output is TableOrJson.JSON:
        render.print_data(as_tree(explanation), Output.JSON)
    else:
        _print_table(explanation)
    return DONE


def _read_live(kubeconfig: str, version: str, gates: str) -> "tuple[list[Manifest], Features]":
    """Read everything that matters from the API server.

    Raises:
        CliError: there is no usable kubeconfig, or the server does not answer or refuses.
    """
    from scheduler.client import ApiError, UnavailableError
    from scheduler.client.kube import ClientConfigError, KubeClient
    from scheduler.offline.live import read_cluster, read_version

    async def read() -> tuple[list["Manifest"], str]:
        client = await KubeClient.connect(kubeconfig)
        try:
            return await read_cluster(client), version or await read_version(client)
        finally:
            await client.aclose()

    try:
        manifests, found = asyncio.run(read())
    except (ApiError, UnavailableError, ClientConfigError) as error:
        raise CliError(str(error)) from None
    return manifests, features(found, gates)


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
