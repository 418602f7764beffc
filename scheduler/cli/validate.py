"""`validate`: what the API server would reject, and what it accepts but later misbehaves."""

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING
from scheduler.cli.options import (
    DEFAULT_VERSION,
    Files,
    Gates,
    MoreFiles,
    Version,
    features,
    read_manifests,
)
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from scheduler.offline.check import Report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate")(validate)


def validate(
    files: Files = None,
    more: MoreFiles = None,
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Output format.")
    ] = TableOrJson.TABLE,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 on warnings too.")
    ] = False,
    kubernetes_version: Version = DEFAULT_VERSION,
    feature_gates: Gates = "",
) -> int:
    """Check manifests: errors are what the API server would reject, warnings what goes wrong later."""
    from scheduler.offline.check import as_tree, check_manifests

    gates = features(kubernetes_version, feature_gates)
    report = check_manifests(read_manifests(files, more), gates)
    if output is TableOrJson.JSON:
        render.print_data(as_tree(report), Output.JSON)
    else:
        _print_table(report)
    return FOUND_SOMETHING if report.errors or (strict and report.warnings) else DONE


def _print_table(report: "Report") -> None:
    out = render.console()
    findings = [*report.errors, *report.warnings]
    if findings:
        rows = render.table("SEVERITY", "WHERE", "OBJECT", "PATH", "PROBLEM", "RULE")
        for finding in findings:
            rows.add_row(
                render.cell([finding.severity], "red" if finding.severity == "error" else "yellow"),
                f"{finding.file}#{finding.document}",
                finding.object,
                finding.path,
                render.cell([finding.message]),
                finding.rule,
            )
        out.print(rows)
        out.print("")
    for note in report.notes:
        out.print(f"note: {note}")
    out.print(
        f"{report.objects} objects checked: {len(report.errors)} errors, {len(report.warnings)} warnings."
    )
