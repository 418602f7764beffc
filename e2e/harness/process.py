"""One child process: started with its output in a file, ended by its own id."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

POLL_SECONDS = 0.05

# What Kubernetes' components repeat for each of their caches at start.
NOISE = ("Caches populated", "Caches are synced", "Waiting for caches to sync")


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Runs in the child: nothing stays behind when the tests are killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProcessFailedError(Exception):
    """A component ended, or did not become ready; the message holds the end of its log."""


def free_port() -> int:
    """Returns a TCP port on 127.0.0.1 that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Process:
    """A component of the control plane, or the service under test."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Describes the process; `start` runs it.

        Args:
          name: How failures call it.
          argv: Program and arguments.
          log: File that its stdout and stderr are appended to.
          env: Added to a minimal environment (PATH, and HOME = the log's folder).
        """
        self.name = name
        self.log = log
        self._argv = [str(argument) for argument in argv]
        self._env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(log.parent),
            **(env or {}),
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id, or None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._env,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    async def wait_ready(
        self, probe: Callable[[], Awaitable[bool]], timeout_seconds: float = 60.0
    ) -> None:
        """Waits until `probe` says yes.

        Raises:
          ProcessFailedError: The process ended first, or the time is over.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not await probe():
                    if not self.running:
                        raise ProcessFailedError(self._failure(f"ended ({self.returncode})"))
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            text = self._failure(f"not ready after {timeout_seconds:g} s")
            raise ProcessFailedError(text) from None

    async def stop(self, patience_seconds: float = 20.0) -> int | None:
        """Ends it with SIGTERM, and with SIGKILL when that was not enough; returns its exit code."""
        if self._process is None:
            return None
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(patience_seconds):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()
        return self._process.returncode

    async def kill(self) -> None:
        """Ends it with SIGKILL: what a crash looks like to everybody else."""
        if self._process is not None and self.running:
            self._process.kill()
            await self._process.wait()

    def pause(self) -> None:
        """Lets it stand still (SIGSTOP): what a stalled machine looks like to everybody else."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on (SIGCONT)."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)

    def tail(self, lines: int = 40) -> str:
        """Returns the last lines of its output that say something."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(errors="replace")
        told = [line for line in text.splitlines() if not any(n in line for n in NOISE)]
        return "\n".join(told[-lines:])

    def _failure(self, what: str) -> str:
        return f"{self.name} {what}; its log ends:\n{self.tail()}"
