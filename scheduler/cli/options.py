"""Options that several commands share, and how their texts are read."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.features import LATEST_VERSION, FeatureGateError, Features
from scheduler.cli.errors import CliError

if TYPE_CHECKING:
    from scheduler.offline.manifests import Manifest

Files = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--filename",
        help="File, folder, or - for standard input. Can be repeated.",
        show_default=False,
    ),
]
MoreFiles = Annotated[
    list[str] | None, typer.Argument(help="More files or folders.", show_default=False)
]
Version = Annotated[
    str,
    typer.Option(
        "--kubernetes-version", help="Kubernetes version whose feature gate defaults apply."
    ),
]
Gates = Annotated[
    str,
    typer.Option(
        "--feature-gates", help="Feature gates to change, as NAME=true|false, separated by commas."
    ),
]
Kubeconfig = Annotated[
    str,
    typer.Option(
        help="Kubeconfig of the cluster to read if there is no -f; default: $KUBECONFIG, else in-cluster."
    ),
]
VersionOfServer = Annotated[
    str,
    typer.Option(
        "--kubernetes-version",
        help="Kubernetes version whose feature gate defaults apply; default: the server's.",
    ),
]
DEFAULT_VERSION = LATEST_VERSION


def parse_gates(text: str) -> dict[str, bool]:
    """Read `A=true,B=false`.

    Raises:
        CliError: an entry is not of this form.
    """
    gates = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        if not equals or value.lower() not in ("true", "false"):
            raise CliError(f"--feature-gates: {entry!r} is not NAME=true or NAME=false")
        gates[name.strip()] = value.lower() == "true"
    return gates


def features(version: str, gates: str) -> Features:
    """Feature gates from the two options.

    Raises:
        CliError: unknown version or gate, or a locked gate.
    """
    try:
        return Features.for_version(version, parse_gates(gates))
    except FeatureGateError as error:
        raise CliError(str(error)) from None


def read_manifests(files: Sequence[str] | None, more: Sequence[str] | None) -> "list[Manifest]":
    """Read all input of a command.

    Raises:
        CliError: there is none, or it cannot be read.
    """
    from scheduler.offline.manifests import ManifestError, load_manifests

    paths = [*(files or ()), *(more or ())]
    if not paths:
        raise CliError("no input: give -f FILE, a folder, or - for standard input")
    try:
        return load_manifests(paths, sys.stdin)
    except ManifestError as error:
        raise CliError(str(error)) from None


def parse_bool(flag: str, text: str | None) -> bool | None:
    """Read `true` or `false`, as Go's flags write them; None stays None.

    Raises:
        CliError: it is something else.
    """
    if text is None:
        return None
    values: dict[str, Any] = {"true": True, "1": True, "false": False, "0": False}
    value = values.get(text.lower())
    if value is None:
        raise CliError(f"{flag}: {text!r} is neither true nor false")
    return bool(value)


def read_live(kubeconfig: str, version: str, gates: str) -> "tuple[list[Manifest], Features]":
    """Read everything that matters from the API server.

    Raises:
        CliError: there is no usable kubeconfig, or the server does not answer or refuses.
    """
    import asyncio

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
