"""The command line as a whole: which commands there are, and how they end.

A command is a module with `register(app)`. Heavy imports stay inside the commands, so that `simulate` needs no client
and no web server.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

from scheduler.cli.errors import BAD_USAGE, DONE, CliError
from scheduler.cli.render import complain

# In the order of the help.
COMMANDS: Final = (
    "demo",
    "simulate",
    "explain",
    "replay",
    "validate",
    "cel",
    "top",
    "bench",
    "scheduler_config",
    "serve",
)
# An expression may nest 250 levels deep, and checking a level takes several calls.
_RECURSION_LIMIT: Final = 4000
_INTERRUPTED: Final = 130
_INTERNAL_ERROR: Final = 70
# Bad usage of every kind; typer has brought its own copy of click since 0.26.
_ClickError: Final[type[Exception]] = typer.BadParameter.__mro__[2]


def create_app(modules: Sequence[str] = COMMANDS) -> typer.Typer:
    """Make the application with the commands of some modules; all by default."""
    app = typer.Typer(
        name="dra-scheduler",
        help="Schedules pods with ResourceClaims: chooses node and devices together, and explains every refusal.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def root() -> None:
        """Schedules pods with ResourceClaims: chooses node and devices together, and explains every refusal."""

    for name in modules:
        importlib.import_module(f"scheduler.cli.{name}").register(app)
    return app


def _modules_for(arguments: Sequence[str]) -> Sequence[str]:
    """The module of the command that is called, so that the others need not be loaded; all if that is not clear."""
    called = arguments[0].replace("-", "_") if arguments else ""
    called = "serve" if called in ("extender", "run") else called
    return (called,) if called in COMMANDS else COMMANDS


def run(program_name: str, arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        program_name: as shown in help and usage.
        arguments: without the program; by default those of the process.

    Returns:
        The exit code: 0 done, 1 found something wrong, 2 bad usage or unreadable input.
    """
    sys.setrecursionlimit(max(_RECURSION_LIMIT, sys.getrecursionlimit()))
    args = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(create_app(_modules_for(args)))
    try:
        code = command.main(args, prog_name=program_name, standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as `| head` does; nothing more may be written, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 (the last resort: a person gets one line, never a traceback)
        return _failed(error)
    return code if isinstance(code, int) else DONE


def _failed(error: Exception) -> int:
    if isinstance(error, CliError):
        complain(f"error: {error.message}")
        return error.exit_code
    if isinstance(error, _ClickError):
        return _bad_usage(error)
    complain(f"internal error: {type(error).__name__}: {' '.join(str(error).split())}")
    return _INTERNAL_ERROR


def _bad_usage(error: Exception) -> int:
    describe = getattr(error, "format_message", error.__str__)
    text = " ".join(str(describe()).split())
    if text:
        complain(f"error: {text}")
    return BAD_USAGE
