"""`top pools|devices|claims`: what is free, used and fragmented."""

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE
from scheduler.cli.options import (
    Files,
    Gates,
    Kubeconfig,
    VersionOfServer,
    features,
    read_live,
    read_manifests,
)
from scheduler.cli.render import Output

if TYPE_CHECKING:
    from scheduler.offline.inventory import Inventory
    from scheduler.views.top import ClaimRow, DeviceRow, PoolRow

_HELP = "Show how full the cluster is: pools, devices, claims."
Form = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=_HELP, no_args_is_help=True)
    group.command("pools")(pools)
    group.command("devices")(devices)
    group.command("claims")(claims)
    app.add_typer(group, name="top")


def pools(
    files: Files = None,
    kubeconfig: Kubeconfig = "",
    output: Form = Output.TABLE,
    kubernetes_version: VersionOfServer = "",
    feature_gates: Gates = "",
) -> int:
    """Show pools, and for each driver how fragmented its free devices are."""
    from scheduler.views.top import device_rows, pool_rows, pools_tree

    inventory = _inventory(files, kubeconfig, kubernetes_version, feature_gates)
    rows = pool_rows(inventory.slices, device_rows(inventory.slices, inventory.claims.values()))
    if output is Output.TABLE:
        _print_pools(rows)
    else:
        render.print_data(pools_tree(rows), output)
    return DONE


def devices(
    files: Files = None,
    kubeconfig: Kubeconfig = "",
    output: Form = Output.TABLE,
    kubernetes_version: VersionOfServer = "",
    feature_gates: Gates = "",
) -> int:
    """Show devices: state, and which claims hold them."""
    from scheduler.views.top import device_rows, devices_tree

    inventory = _inventory(files, kubeconfig, kubernetes_version, feature_gates)
    rows = device_rows(inventory.slices, inventory.claims.values())
    if output is Output.TABLE:
        _print_devices(rows)
    else:
        render.print_data(devices_tree(rows), output)
    return DONE


def claims(
    files: Files = None,
    kubeconfig: Kubeconfig = "",
    output: Form = Output.TABLE,
    kubernetes_version: VersionOfServer = "",
    feature_gates: Gates = "",
) -> int:
    """Show claims: their devices, and who uses them."""
    from scheduler.views.top import claim_rows, claims_tree

    rows = claim_rows(
        _inventory(files, kubeconfig, kubernetes_version, feature_gates).claims.values()
    )
    if output is Output.TABLE:
        _print_claims(rows)
    else:
        render.print_data(claims_tree(rows), output)
    return DONE


def _inventory(files: list[str] | None, kubeconfig: str, version: str, gates: str) -> "Inventory":
    from allocator.features import LATEST_VERSION
    from scheduler.offline.inventory import take_inventory

    if files:
        manifests, chosen = read_manifests(files, None), features(version or LATEST_VERSION, gates)
    else:
        manifests, chosen = read_live(kubeconfig, version, gates)
    inventory = take_inventory(manifests, chosen, lambda _pod, _node: False)
    for error in inventory.errors:
        render.complain(
            f"error: {error.file}, document {error.document}: {error.object}: {error.path}: {error.message}"
        )
    return inventory


def _print_pools(rows: "list[PoolRow]") -> None:
    from scheduler.views.top import driver_rows

    out = render.console()
    shown = render.table("DRIVER", "POOL", "NODE", "DEVICES", "FREE", "USED", "SHARED", "COMPLETE")
    for row in rows:
        counts = (row.devices, row.free, row.used, row.shared)
        shown.add_row(
            row.pool.driver,
            row.pool.name,
            row.node or "-",
            *map(str, counts),
            "yes" if row.is_complete else "no",
        )
    out.print(shown)
    sums = render.table(
        "DRIVER", "DEVICES", "FREE", "LARGEST FREE POOL", "FRAGMENTATION", title="\nDrivers"
    )
    for each in driver_rows(rows):
        counts_of_driver = (each.devices, each.free, each.largest)
        sums.add_row(each.driver, *map(str, counts_of_driver), f"{each.fragmentation:.0%}")
    out.print(sums)


def _print_devices(rows: "list[DeviceRow]") -> None:
    shown = render.table("DEVICE", "NODE", "STATE", "CLAIMS", "LEFT", "TAINTS")
    for row in rows:
        left = ", ".join(f"{name}={amount}" for name, amount in row.left.items())
        shown.add_row(
            str(row.device),
            row.node or "-",
            row.state,
            render.cell(row.claims),
            left,
            render.cell(row.taints),
        )
    render.console().print(shown)


def _print_claims(rows: "list[ClaimRow]") -> None:
    shown = render.table("CLAIM", "STATE", "DEVICES", "CONSUMERS")
    for row in rows:
        shown.add_row(
            row.claim,
            row.state,
            render.cell([str(device) for device in row.devices]),
            render.cell(row.consumers),
        )
    render.console().print(shown)
