"""`cel`: which devices a selector matches, and what was false or failed on the others; or many pairs, line by line."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli import render
from scheduler.cli.errors import DONE, FOUND_SOMETHING, CliError
from scheduler.cli.options import Files, MoreFiles, read_manifests
from scheduler.cli.render import Output, TableOrJson

if TYPE_CHECKING:
    from allocator.cel import Compiler
    from scheduler.views.selectors import DeviceMatch


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cel")(cel)


def cel(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="A device selector.", show_default=False)
    ] = None,
    more: MoreFiles = None,
    files: Files = None,
    output: Annotated[
        TableOrJson, typer.Option("-o", "--output", help="Output format.")
    ] = TableOrJson.TABLE,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help='Read {"id","expr","device"} lines from standard input, write {"id","result","message"} lines.',
        ),
    ] = False,
) -> int:
    """Evaluate a CEL device selector on the devices in manifests."""
    if jsonl:
        if expression is not None or files or more:
            raise CliError("--jsonl reads standard input; it takes neither EXPR nor files")
        _batch(sys.stdin.buffer)
        return DONE
    if not expression:
        raise CliError("EXPR is required, or --jsonl")
    return _one(expression, files, more, output)


def _one(
    expression: str, files: list[str] | None, more: list[str] | None, output: TableOrJson
) -> int:
    from allocator.cel import compile_selector
    from allocator.errors import CelCompileError
    from scheduler.offline.devices import slices_of
    from scheduler.views.selectors import as_tree, match_devices

    inventory, errors = slices_of(read_manifests(files, more))
    for error in errors:
        render.complain(f"error: {error}")
    try:
        program = compile_selector(expression)
    except CelCompileError as error:
        raise CliError(
            f"the expression does not compile: {error.message}", FOUND_SOMETHING
        ) from None
    matches = match_devices(program, inventory)
    if output is TableOrJson.JSON:
        render.print_data(as_tree(expression, matches), Output.JSON)
    else:
        _print_table(matches)
    return DONE


def _print_table(matches: "list[DeviceMatch]") -> None:
    out = render.console()
    styles = {"true": "green", "false": "red", "runtime_error": "yellow"}
    rows = render.table("DEVICE", "RESULT", "WHY")
    for each in matches:
        lines = [] if each.matches else [_clause(*clause) for clause in each.clauses]
        if each.message and not any(each.message in line for line in lines):
            lines.append(each.message)
        result = "error" if each.matches is None else each.result
        rows.add_row(
            str(each.device), render.cell([result], styles[each.result]), render.cell(lines)
        )
    if matches:
        out.print(rows)
        out.print("")
    count = sum(each.matches is True for each in matches)
    out.print(f"{count} of {len(matches)} devices match.")


def _clause(text: str, found: str, error: str) -> str:
    if error:
        return f"{text}: {error}"
    return f"{text} is false" + (f" (found {found})" if found else "")


def _batch(lines: Iterable[bytes]) -> None:
    from allocator.cel import Compiler
    from scheduler.api.numbers import encode_tree

    compiler = Compiler()
    for number, line in enumerate(lines, 1):
        if line.strip():
            answer = _answer(compiler, _question(line, number), number)
            render.write(encode_tree(answer).decode() + "\n")


def _question(line: bytes, number: int) -> dict[str, Any]:
    from scheduler.api.numbers import decode_tree

    try:
        question = decode_tree(line)
    except (ValueError, RecursionError) as error:
        raise CliError(f"line {number}: it is not JSON: {error}") from None
    if not isinstance(question, dict) or not isinstance(question.get("expr"), str):
        raise CliError(f"line {number}: expr: expected text")
    return question


def _answer(compiler: "Compiler", question: dict[str, Any], number: int) -> dict[str, Any]:
    from allocator.cel import prepare_device
    from allocator.errors import CelCompileError, CelRuntimeError
    from scheduler.api.walk import FieldError
    from scheduler.offline.devices import device_from_tree

    message = ""
    try:
        driver, device = device_from_tree(question.get("device") or {})
    except FieldError as error:
        raise CliError(f"line {number}: device.{error}") from None
    try:
        matches = compiler.selector(question["expr"]).evaluate(prepare_device(driver, device))
        result = "true" if matches else "false"
    except CelCompileError as error:
        result, message = "compile_error", error.message
    except CelRuntimeError as error:
        result, message = "runtime_error", error.message
    return {"id": question.get("id"), "result": result, "message": message}
