"""`replay`: make recorded decisions again, and say which come out otherwise."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING, CliError
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from scheduler.flight_recorder.replay import Replayed

_MOST_ROWS: Final = 50


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A recording, as /debug/recording gives it.")
    ],
    pod: Annotated[
        str,
        typer.Option(metavar="NAMESPACE/NAME", help="Show this pod only.", show_default=False),
    ] = "",
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Form of the answer.")
    ] = TableOrJson.TABLE,
) -> int:
    """Make the decisions of a recording again, from the recording alone; exits with 1 when one comes out otherwise."""
    from scheduler.flight_recorder.replay import ReplayError
    from scheduler.flight_recorder.replay import replay as made_again

    try:
        with Path(file).open("rb") as opened:
            decisions = [each for each in made_again(opened) if pod in ("", each.pod)]
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from None
    except ReplayError as error:
        raise CliError(f"{file}: {error}") from None
    different = [each for each in decisions if not each.is_same]
    if output is TableOrJson.JSON:
        tree = {
            "decisions": [{**asdict(each), "same": each.is_same} for each in decisions],
            "different": len(different),
        }
        render.print_data(tree, Output.JSON)
    else:
        _print_table(decisions, different)
    return FOUND_SOMETHING if different else DONE


def _print_table(decisions: "Sequence[Replayed]", different: "Sequence[Replayed]") -> None:
    out = render.console()
    rows = render.table("DECISION", "POD", "AGAIN", "OUTCOME")
    for each in (different or decisions)[-_MOST_ROWS:]:
        outcome = [each.recorded]
        if not each.is_same:
            outcome.append(f"now: {each.again}")
        rows.add_row(
            str(each.number),
            each.pod,
            render.cell(["same" if each.is_same else "different"], "" if each.is_same else "red"),
            render.cell(outcome),
        )
    if decisions:
        out.print(rows)
    out.print(f"{len(decisions) - len(different)} of {len(decisions)} decisions come out the same.")
