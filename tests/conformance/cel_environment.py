"""What upstream's environment for stored expressions declares, recorded: functions with their overloads, macros, variables."""

import json
import subprocess
from functools import cache
from pathlib import Path

from tests.conformance.objects import Json
from tests.conformance.upstream import build

RECORD = Path(__file__).parent / "recorded" / "cel-environment-1.37.json"


@cache
def recorded() -> Json:
    """`{"functions": {name: [{"id", "member", "args", "result"}]}, "macros": ["name:arguments:is a method"], "variables"}`."""
    environment: Json = json.loads(RECORD.read_text())
    return environment


def fresh() -> Json:
    """The same, from upstream."""
    done = subprocess.run([str(build()), "environment"], check=True, stdout=subprocess.PIPE)
    environment: Json = json.loads(done.stdout)
    return environment


def check() -> int:
    """Ask upstream afresh; returns the number of functions, macros and variables that are not as recorded."""
    known, now = recorded(), fresh()
    different: int = sum(
        known["functions"].get(name) != now["functions"].get(name)
        for name in known["functions"].keys() | now["functions"].keys()
    )
    for part in ("macros", "variables"):
        different += len(set(known[part]) ^ set(now[part]))
    print(
        f"CEL environment: {len(known['functions'])} functions, differences from the record: {different}"
    )
    return different


def write() -> None:
    """Write the record."""
    RECORD.write_text(json.dumps(fresh(), indent=0, sort_keys=True, ensure_ascii=False) + "\n")
