"""`extender` and `run`: settings from flags and file, then the service until it is told to stop."""

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from scheduler.cli.errors import DONE
from scheduler.cli.options import parse_bool, parse_gates


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command(
        "extender", help="Run as a kube-scheduler extender: filter, prioritize, preempt, bind."
    )(_command("run_extender"))
    app.command("run", help="Run as a stand-alone scheduler for pods that name it.")(
        _command("run_standalone")
    )


def _command(entry: str) -> Callable[..., int]:
    """Make a command that starts one of the services of `scheduler.bootstrap`; both take the same flags."""

    def serve(
        config: Annotated[str, typer.Option(help="Configuration file.")] = "",
        write_config_to: Annotated[
            str,
            typer.Option(
                help="Write all settings, including defaults, to this file (- for standard output) and exit."
            ),
        ] = "",
        kubeconfig: Annotated[
            str | None,
            typer.Option(help="Path to a kubeconfig; default: $KUBECONFIG, else in-cluster."),
        ] = None,
        scheduler_name: Annotated[
            str | None, typer.Option(help="Schedule pods with this schedulerName.")
        ] = None,
        bind_address: Annotated[
            str | None, typer.Option(help="HOST:PORT to serve the webhooks on.")
        ] = None,
        health_address: Annotated[
            str | None,
            typer.Option(help="HOST:PORT to serve /livez, /readyz, /startupz and /metrics on."),
        ] = None,
        enable_profiling: Annotated[
            bool | None,
            typer.Option(
                "--enable-profiling/--no-enable-profiling",
                help="Serve /debug/profile on the health address. Off by default.",
                show_default=False,
            ),
        ] = None,
        enable_flight_recorder: Annotated[
            bool | None,
            typer.Option(
                "--enable-flight-recorder/--no-enable-flight-recorder",
                help="Keep the last decisions with their inputs; serve /debug/recording at the health address. Off by default.",
                show_default=False,
            ),
        ] = None,
        leader_elect: Annotated[
            str | None, typer.Option(metavar="true|false", help="Take part in leader election.")
        ] = None,
        follow_lease: Annotated[
            str | None,
            typer.Option(
                help="NAMESPACE/NAME of the Lease held by the kube-scheduler in the same pod; write only while it holds it."
            ),
        ] = None,
        tls_cert_file: Annotated[
            str | None, typer.Option(help="Serving certificate for the webhooks (PEM).")
        ] = None,
        tls_private_key_file: Annotated[
            str | None, typer.Option(help="Private key for the serving certificate (PEM).")
        ] = None,
        client_ca_file: Annotated[
            str | None,
            typer.Option(help="CA bundle (PEM) that client certificates must be signed by."),
        ] = None,
        profile: Annotated[
            str | None,
            typer.Option(
                metavar="safe|fast",
                help="Profile that kube-scheduler is configured with (see scheduler-config).",
            ),
        ] = None,
        policy: Annotated[
            str | None, typer.Option(help="Policy that chooses among devices that fit.")
        ] = None,
        kubernetes_version: Annotated[
            str | None,
            typer.Option(
                help="Kubernetes version whose feature gate defaults apply; default: the server's."
            ),
        ] = None,
        feature_gates: Annotated[
            str | None,
            typer.Option(help="Feature gates to change, as NAME=true|false, separated by commas."),
        ] = None,
        logging_format: Annotated[
            str | None, typer.Option(metavar="text|json", help="Log format.")
        ] = None,
        verbosity: Annotated[
            int, typer.Option("-v", count=True, help="Log more; can be repeated.")
        ] = 0,
    ) -> int:
        from scheduler.cli.config_file import load_settings, write_settings

        elect = parse_bool("--leader-elect", leader_elect)
        if elect is None and follow_lease:
            elect = False
        flags: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "schedulerName": scheduler_name,
            "bindAddress": bind_address,
            "healthAddress": health_address,
            "enableProfiling": enable_profiling,
            "enableFlightRecorder": enable_flight_recorder,
            "leaderElection.enabled": elect,
            "leaderElection.followLease": follow_lease,
            "tls.certFile": tls_cert_file,
            "tls.keyFile": tls_private_key_file,
            "tls.clientCaFile": client_ca_file,
            "extender.profile": profile,
            "allocation.policy": policy,
            "allocation.kubernetesVersion": kubernetes_version,
            "allocation.featureGates": None
            if feature_gates is None
            else parse_gates(feature_gates),
            "loggingFormat": logging_format,
            "verbosity": verbosity or None,
        }
        given = {path: value for path, value in flags.items() if value is not None}
        settings = load_settings(config, given)
        if write_config_to:
            write_settings(settings, write_config_to)
            return DONE
        start: Callable[..., int] = getattr(import_module("scheduler.bootstrap"), entry)
        return start(settings)

    return serve
