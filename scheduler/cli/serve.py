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
        "extender", help="Answer kube-scheduler's webhooks: filter, prioritize, preempt, bind."
    )(_command("run_extender"))
    app.command("run", help="Schedule the pods that name this scheduler, without kube-scheduler.")(
        _command("run_standalone")
    )


def _command(entry: str) -> Callable[..., int]:
    """Make a command that starts one of the services of `scheduler.bootstrap`; both take the same flags."""

    def serve(
        config: Annotated[str, typer.Option(help="Configuration file.")] = "",
        write_config_to: Annotated[
            str,
            typer.Option(
                help="Write the settings, defaults included, to this file (or -) and end."
            ),
        ] = "",
        kubeconfig: Annotated[
            str | None, typer.Option(help="Else $KUBECONFIG, else in-cluster.")
        ] = None,
        scheduler_name: Annotated[
            str | None, typer.Option(help="Pods with this schedulerName are ours.")
        ] = None,
        bind_address: Annotated[str | None, typer.Option(help="HOST:PORT of the webhooks.")] = None,
        health_address: Annotated[
            str | None, typer.Option(help="HOST:PORT of /livez, /readyz, /startupz, /metrics.")
        ] = None,
        enable_profiling: Annotated[
            bool | None,
            typer.Option(
                "--enable-profiling/--no-enable-profiling",
                help="Serve /debug/profile at the health address; off by default.",
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
            str | None, typer.Option(metavar="true|false", help="Take part in a leader election.")
        ] = None,
        follow_lease: Annotated[
            str | None,
            typer.Option(help="NAMESPACE/NAME of the lease of the kube-scheduler in the same pod."),
        ] = None,
        tls_cert_file: Annotated[
            str | None, typer.Option(help="Certificate of the webhooks.")
        ] = None,
        tls_private_key_file: Annotated[str | None, typer.Option(help="Its private key.")] = None,
        client_ca_file: Annotated[
            str | None, typer.Option(help="CA whose clients may call; others are refused.")
        ] = None,
        profile: Annotated[
            str | None, typer.Option(metavar="safe|fast", help="As kube-scheduler is configured.")
        ] = None,
        policy: Annotated[
            str | None, typer.Option(help="How to choose among devices that fit.")
        ] = None,
        kubernetes_version: Annotated[
            str | None,
            typer.Option(help="Whose defaults of feature gates apply; else the server's."),
        ] = None,
        feature_gates: Annotated[
            str | None, typer.Option(help="NAME=true|false, separated by commas.")
        ] = None,
        logging_format: Annotated[
            str | None, typer.Option(metavar="text|json", help="Form of the log.")
        ] = None,
        verbosity: Annotated[
            int, typer.Option("-v", count=True, help="Say more; may be repeated.")
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
