"""Runs commands in this process, as a shell would see them."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from scheduler.cli.app import run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsys, monkeypatch) -> Command:
    """Call it with arguments, and optionally what stands on standard input."""

    def call(*arguments: str, stdin: str = "") -> Outcome:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        code = run("dra-scheduler", list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def put(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return put
