"""`crossings`: how often control passes from one of our modules to another, while one pod is decided in a small world.

A call counts when caller and callee are in different modules of `allocator` and `scheduler`; what lies between them
(builtins, other packages) is not looked at. The figures do not depend on the machine.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from allocator.features import Features
from scheduler import cycle
from scheduler.api.extender_v1 import FilterArgs
from scheduler.clock import SystemClock
from scheduler.engine import Engine
from scheduler.extender.service import ExtenderService
from scheduler.framework.environment import Mode
from scheduler.framework.status import Status
from scheduler.offline.manifests import Manifest
from scheduler.offline.simulate import SimulationOptions, simulate
from tests.benchmarks.latency import _NoBinds
from tests.benchmarks.row import Row
from tests.builders import claim
from tests.pods import pod
from tests.scheduler.offline import cluster as offline
from tests.scheduler.world import World, environment, gpu_nodes

ROOT = str(Path(cycle.__file__).parents[1])
OURS = tuple(f"{ROOT}/{package}/" for package in ("allocator", "scheduler"))
NODES = 3


class Crossings:
    """Counts calls between modules while it is entered.

    Attributes:
        between: (module of the caller, module of the callee) -> calls.
    """

    def __init__(self) -> None:
        self.between: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> "Crossings":
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def count(self) -> int:
        """All of them."""
        return self.between.total()

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        callee = frame.f_code.co_filename
        if not callee.startswith(OURS):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(OURS):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != callee:
            self.between[_module(caller.f_code.co_filename), _module(callee)] += 1


def _module(path: str) -> str:
    return path.removeprefix(f"{ROOT}/").removesuffix(".py").replace("/", ".")


def world() -> World:
    """Three equal nodes with two GPUs, and a pod that wants one of them."""
    here = World(*gpu_nodes(NODES), claim("c"))
    here.put(pod("p", claims=["c"]))
    return here


def of_engine() -> Crossings:
    """One stand-alone decision of an engine that knows nothing yet."""
    here, engine = world(), Engine(environment(), check_every=0)
    with Crossings() as counted:
        attempt = engine.pre_filter(pod("p", claims=["c"]), here.cache)
        if not isinstance(attempt, Status):
            engine.decide(attempt)
    return counted


def of_plain() -> Crossings:
    """The same by the plain cycle."""
    here = world()
    with Crossings() as counted:
        state = cycle.pre_filter(pod("p", claims=["c"]), here.cache, environment())
        if not isinstance(state, Status):
            cycle.select_node(state, cycle.filter_nodes(state).fitting)
    return counted


def of_filter() -> Crossings:
    """One filter call of the extender."""
    here = world()
    service = ExtenderService(
        cache=here.cache,
        binder=_NoBinds(),  # type: ignore[arg-type]  # nothing is bound here
        engine=Engine(environment(Mode.EXTENDER)),
        clock=SystemClock(),
        wakeup=None,
    )
    names = [f"n{number:02}" for number in range(NODES)]

    async def ask() -> Crossings:
        with Crossings() as counted:
            await service.filter(FilterArgs(pod("p", claims=["c"]), names))
        return counted

    return asyncio.run(ask())


def of_simulation() -> Crossings:
    """The same world as manifests, simulated."""
    names = [f"n{number:02}" for number in range(NODES)]
    objects: list[Any] = [
        offline.device_class(),
        offline.claim("c"),
        offline.pod("p", claims=["c"]),
    ]
    for name in names:
        objects += [offline.node(name), offline.gpus(name, 2)]
    manifests = [Manifest("in.yaml", number, obj) for number, obj in enumerate(objects, 1)]
    with Crossings() as counted:
        simulate(manifests, SimulationOptions(features=Features()))
    return counted


CASES: dict[str, Callable[[], Crossings]] = {
    "one stand-alone decision of the engine": of_engine,
    "one decision of the plain cycle": of_plain,
    "one filter call of the extender": of_filter,
    "a simulation": of_simulation,
}


async def crossings(_repetitions: int) -> list[Row]:
    """A count a case, in a world of three nodes."""
    return [
        Row("crossings", f"{name}, {NODES} nodes", [float(counted.count)], None, "calls", "lower")
        for name, case in CASES.items()
        # In a thread, where an event loop of its own may run.
        for counted in [await asyncio.to_thread(case)]
    ]
