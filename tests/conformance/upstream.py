"""The oracle as a subprocess: build it, keep it open, ask it in batches."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.objects import Json

_BUILD = Path(__file__).parent / "oracle" / "build.sh"


def build(program: str = "oracle") -> Path:
    """Build a program into the cache (nothing to do when it is there) and return its path."""
    done = subprocess.run([str(_BUILD), program], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


class Process(AbstractContextManager["Process"]):
    """A long-lived process that reads JSON lines and writes one for each, in the same order."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "GOGC": "400"},
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def ask(self, question: Json) -> Json:
        """Ask one question."""
        return next(self.ask_all([question]))

    def ask_all(self, questions: Iterable[Json]) -> Iterator[Json]:
        """Ask questions one after the other; the caller works while the oracle does (see `ask_ahead`)."""
        for question in questions:
            self.send(question)
            yield self.receive()

    def send(self, question: Json) -> None:
        """Write a question without waiting for its answer."""
        stdin = self._process.stdin
        if stdin is None:
            raise RuntimeError("the oracle has no input")
        stdin.write(json.dumps(question, separators=(",", ":")).encode() + b"\n")
        stdin.flush()

    def receive(self) -> Json:
        """Read the next answer."""
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the oracle has no output")
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle ended with code {self._process.wait(timeout=10)}")
        answer: Json = json.loads(line)
        if answer.get("outcome") == "bad_question" or answer.get("result") == "bad_question":
            raise ValueError(
                f"the oracle does not understand {answer.get('id')!r}: {answer['message']}"
            )
        return answer


class Oracle(Process):
    """One long-lived oracle process."""

    def __init__(self, *arguments: str, program: str = "oracle") -> None:
        super().__init__([str(build(program)), *arguments])
