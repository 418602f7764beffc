"""`scheduler-config`: the KubeSchedulerConfiguration of the kube-scheduler that calls the extender.

Source: docs/decisions/0007-two-profiles.md; docs/design/extender.md#profiles.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from allocator.features import LATEST_VERSION, FeatureGateError, minor_version
from scheduler.cli import render
from scheduler.cli.errors import DONE, CliError

FAST_FEATURE_GATES: Final = "SchedulerPopFromBackoffQ=false"
_DISABLED: Final = {"disabled": [{"name": "DynamicResources"}]}
_EXTENSION_POINTS: Final = {
    "safe": ("reserve", "preBind"),
    "fast": ("preFilter", "filter", "postFilter", "score", "reserve", "preBind"),
}


class Profile(StrEnum):
    """How much of DynamicResources stays with kube-scheduler."""

    SAFE = "safe"
    FAST = "fast"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scheduler-config")(scheduler_config)


def scheduler_config(
    kubernetes_version: Annotated[
        str, typer.Option(help="Version of the kube-scheduler, 1.34 to 1.37.")
    ] = LATEST_VERSION,
    profile: Annotated[
        Profile,
        typer.Option(
            help="safe: kube-scheduler filters nodes, the extender chooses devices; fast: the extender filters too."
        ),
    ] = Profile.SAFE,
    url_prefix: Annotated[str, typer.Option(help="URL of the extender.")] = "http://127.0.0.1:8888",
    tls_ca_file: Annotated[
        str, typer.Option(help="CA bundle that signed the extender's certificate.")
    ] = "",
    tls_cert_file: Annotated[
        str, typer.Option(help="Client certificate that kube-scheduler presents.")
    ] = "",
    tls_key_file: Annotated[str, typer.Option(help="Private key of the client certificate.")] = "",
    scheduler_name: Annotated[
        str, typer.Option(help="schedulerName of the pods to schedule.")
    ] = "dra-scheduler",
    lease: Annotated[
        str, typer.Option(help="NAMESPACE/NAME of the Lease that this kube-scheduler uses.")
    ] = "dra-scheduler/dra-kube-scheduler",
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig for kube-scheduler; default: in-cluster.")
    ] = "",
    flags: Annotated[
        bool,
        typer.Option(
            "--flags",
            help="Print the command-line flags that kube-scheduler needs instead of the configuration.",
        ),
    ] = False,
) -> int:
    """Print the configuration for a dedicated kube-scheduler in extender mode."""
    try:
        version = minor_version(kubernetes_version)
    except FeatureGateError as error:
        raise CliError(str(error)) from None
    if flags:
        if profile is Profile.FAST:
            render.write(f"--feature-gates={FAST_FEATURE_GATES}\n")
        return DONE
    from scheduler.offline.manifests import dump_yaml

    tls = {"caFile": tls_ca_file, "certFile": tls_cert_file, "keyFile": tls_key_file}
    config = kube_scheduler_configuration(
        version,
        profile,
        url_prefix=url_prefix,
        tls={key: value for key, value in tls.items() if value},
        scheduler_name=scheduler_name,
        lease=lease,
        kubeconfig=kubeconfig,
    )
    render.write(_heading(version, profile) + dump_yaml(config))
    return DONE


def _heading(version: str, profile: Profile) -> str:
    lines = [
        f"# For a dedicated kube-scheduler {version} with dra-scheduler as extender, profile {profile.value}."
    ]
    if profile is Profile.FAST:
        lines.append(
            f"# Start it with --feature-gates={FAST_FEATURE_GATES}: without it, pods that cannot fit"
        )
        lines.append("# are tried again and again and hold up those that can.")
    return "".join(f"{line}\n" for line in lines)


def kube_scheduler_configuration(
    version: str,
    profile: Profile,
    *,
    url_prefix: str,
    tls: dict[str, str],
    scheduler_name: str,
    lease: str,
    kubeconfig: str = "",
) -> dict[str, Any]:
    """Make the configuration.

    Args:
        version: minor version, `1.34` to `1.37`.
        profile: which extension points of DynamicResources stay on.
        url_prefix: of the extender; its scheme decides about TLS.
        tls: `caFile`, `certFile`, `keyFile` as far as they are needed.
        scheduler_name: of the only scheduler profile.
        lease: `NAMESPACE/NAME`.
        kubeconfig: of kube-scheduler; empty: in-cluster.

    Raises:
        CliError: the lease has no namespace, or HTTPS has no CA (kube-scheduler would not verify the certificate).
    """
    namespace, slash, name = lease.partition("/")
    if not slash or not namespace or not name:
        raise CliError(f"--lease: {lease!r} is not NAMESPACE/NAME")
    is_https = url_prefix.startswith("https://")
    if is_https and "caFile" not in tls:
        raise CliError("--tls-ca-file is required with https: kube-scheduler would verify nothing")
    if not is_https and tls:
        raise CliError("--url-prefix: certificates need https")
    points = [*_EXTENSION_POINTS[profile]]
    if profile is Profile.FAST and version not in ("1.34", "1.35", "1.36"):
        points.append("podGroupPostFilter")  # an unknown field before 1.37: decoding is strict
    is_fast = profile is Profile.FAST
    extender: dict[str, Any] = {
        "urlPrefix": url_prefix,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
    }
    if is_fast:
        # Without it kube-scheduler evicts pods for devices that their eviction does not free.
        extender["preemptVerb"] = "preempt"
    extender |= {"bindVerb": "bind", "weight": 2, "enableHTTPS": is_https}
    if is_https:
        extender["tlsConfig"] = tls
    extender |= {"httpTimeout": "15s", "nodeCacheCapable": True, "ignorable": False}
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceNamespace": namespace,
            "resourceName": name,
        },
    }
    connection: dict[str, Any] = {"kubeconfig": kubeconfig} if kubeconfig else {}
    if is_fast:
        connection |= {"qps": 5000, "burst": 5000}
        config |= {"percentageOfNodesToScore": 100, "podMaxBackoffSeconds": 20}
    if connection:
        config["clientConnection"] = connection
    config["profiles"] = [
        {"schedulerName": scheduler_name, "plugins": dict.fromkeys(points, _DISABLED)}
    ]
    config["extenders"] = [extender]
    return config
