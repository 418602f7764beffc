"""What `simulate` prints for each folder of `examples/`: the `expected.txt` beside the manifests."""

import contextlib
import io
from pathlib import Path

from scheduler.cli.app import run


def expected(root: Path) -> dict[str, str]:
    """Path of each `expected.txt`, from the root, with its text."""
    folders = sorted(file.parent for file in root.glob("examples/*/workload.yaml"))
    return {
        str((folder / "expected.txt").relative_to(root)): simulated(folder) for folder in folders
    }


def simulated(folder: Path) -> str:
    """The table that `dra-scheduler simulate -f FOLDER` prints, without spaces at the ends of lines."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run("dra-scheduler", ["simulate", "-f", str(folder)])
    if code != 0:
        raise AssertionError(f"{folder}: simulate ended with {code}")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
