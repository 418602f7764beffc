"""The command line as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = str(Path(__file__).parents[2] / "data" / "manifests" / "gpu-cluster.yaml")


def test_help_lists_the_commands(command):
    done = command("--help")
    assert done.code == 0
    for name in ("simulate", "validate", "cel", "scheduler-config", "extender", "run"):
        assert f"  {name} " in done.out


def test_no_arguments_show_the_help(command):
    done = command()
    assert done.code == 2 or "Usage" in done.out


def test_unknown_commands_and_options_are_one_line(command):
    assert command("nope").err == "error: No such command 'nope'.\n"
    assert command("simulate", "--nope").code == 2


def test_an_unexpected_failure_is_one_line_without_a_traceback(command, monkeypatch):
    def broken(*_args):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("scheduler.cli.validate.read_manifests", broken)
    done = command("validate", "-f", "x")
    assert done.err == "internal error: RuntimeError: two lines\n"
    assert done.code == 70


def test_every_documented_command_is_there(command):
    listed = command("--help").out.split("Commands:")[1]
    commands = "demo simulate explain validate cel top bench scheduler-config extender run"
    for name in commands.split():
        assert f"\n  {name} " in listed


OFFLINE = [
    ["simulate", "-f", GOOD],
    ["simulate", "-f", GOOD, "-o", "json"],
    ["validate", "-f", GOOD],
    ["cel", "true", "-f", GOOD],
    ["bench", "--nodes", "2", "--pods", "2"],
    ["bench", "-f", GOOD, "-o", "json"],
    ["scheduler-config"],
]


@pytest.mark.parametrize("arguments", OFFLINE, ids=lambda arguments: " ".join(arguments[:1]))
def test_offline_commands_need_no_client_and_no_web_server(arguments):
    program = (
        "import sys\n"
        "from scheduler.cli.app import run\n"
        f"code = run('dra-scheduler', {arguments!r})\n"
        "heavy = {'kubernetes_asyncio', 'fastapi', 'aiohttp', 'uvicorn', 'starlette', 'prometheus_client'}\n"
        "sys.exit(code or sorted(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stderr) == (0, "")
