"""The crash sweep: the process is killed at each of its writes, in each phase, and everything ends as if it had not been.

    python -m tests.simulation.crashes              all cases
    python -m tests.simulation.crashes bind         those whose name has this in it

A case is: which write, in which phase, extender or stand-alone, pods with one or three claims, and whether the same
replica starts again or another one takes over. Source: docs/contributing/testing.md#levels; the comparison is Sieve's.
"""

import argparse
import asyncio
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from scheduler.framework.environment import Mode
from scheduler.lab.apiserver.requests import Request
from tests.invariants import Finding
from tests.invariants.objects import claim_names, results
from tests.simulation.chaos import PHASES, ReplicaFaults, write_name
from tests.simulation.drivers import CLASSES, SLICES, driver_name
from tests.simulation.faults import Verdict
from tests.simulation.network import Answer, Wire
from tests.simulation.plan import Plan
from tests.simulation.replicas import Replica
from tests.simulation.run import with_fixed_hashes
from tests.simulation.tenants import claims_path, pods_path
from tests.simulation.world import Object, Outcome, World, collect_garbage, quiet_interpreter

WRITES: Final = ("finalizer", "allocate", "bind", "release", "lease", "pod status", "claim patch")
NODE: Final = "node-0"
DEVICES: Final = 8
MOST_SEEDS: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One crash.

    Attributes:
        write: at which write; empty: none, the run that the others are compared with.
        phase: in which phase of it.
        mode: of the application.
        claims: of each pod.
        takes_over: whether another replica stands by; else the killed one starts again.
    """

    write: str
    phase: str
    mode: Mode
    claims: int
    takes_over: bool

    def __str__(self) -> str:
        end = "another takes over" if self.takes_over else "starts again"
        return f"{self.mode.value}, {self.claims} claims, {self.write} {self.phase}, {end}"


def cases() -> Iterator[Case]:
    """All crashes there are to be tried."""
    for write, phase, mode, claims, takes_over in itertools.product(
        WRITES, PHASES, (Mode.STANDALONE, Mode.EXTENDER), (1, 3), (False, True)
    ):
        if write == "pod status" and mode is Mode.EXTENDER:
            continue  # kube-scheduler writes it
        if write == "claim patch" and mode is Mode.STANDALONE:
            continue  # nobody has to be woken
        yield Case(write, phase, mode, claims, takes_over)


class CrashAt(ReplicaFaults):
    """Kills its process at the first write of a kind, once in a run."""

    def on_request(self, wire: Wire, request: Request) -> Verdict:
        world = self.world
        if not isinstance(world, CrashWorld) or world.has_crashed:
            return Verdict()
        if world.case.write and write_name(request) == world.case.write and world.is_armed:
            world.has_crashed = True
            return self.crash_in(world.case.phase)
        return Verdict()

    def on_commit(self, wire: Wire, request: Request, answer: Answer, verdict: Verdict) -> None:
        super().on_commit(wire, request, answer, verdict)
        # As soon as it holds something, one of the pods goes: what was written has to be taken back.
        if write_name(request) == "allocate" and "/deleted-" in request.path:
            path = f"{pods_path('default')}/deleted"
            self.world.do("DELETE", path, {"gracePeriodSeconds": 0})


class CrashWorld(World):
    """A small cluster, in which each of our writes happens."""

    def __init__(self, case: Case, seed: int = 1) -> None:
        self.case = case
        self.has_crashed = False
        self.is_armed = False
        plan = Plan(
            seed=seed,
            mode=case.mode,
            liveness=True,
            replicas=2 if case.takes_over else 1,
            election=True,
            nodes=1,
            seconds=30.0,
            quiet_seconds=80.0,
            pods_a_second=0.0,
        )
        super().__init__(plan)

    def faults_of(self, replica: Replica) -> CrashAt:
        return CrashAt(self, replica)

    async def _main(self) -> None:
        self._set_up()
        for replica in self.replicas:
            replica.start()
        if self.kube_scheduler is not None:
            self._background(self.kube_scheduler.run())
        await asyncio.sleep(8.0)
        self.is_armed = True
        self._pod("first", self.case.claims)
        self._pod("deleted", self.case.claims)
        self._pod("too-big", 0, count=DEVICES + 1)
        await asyncio.sleep(1.5)
        self._slice(2, 2 * DEVICES)  # a pod that was rejected fits now
        await asyncio.sleep(10.0)
        self._pod("last", self.case.claims)
        if self.case.write == "lease":
            self.replicas[0].stop()
        await asyncio.sleep(10.0)
        self.is_healed = True
        self.mark("healed")
        await asyncio.sleep(self.plan.quiet_seconds)
        self.mark("end", **self._facts())

    def _set_up(self) -> None:
        self.do("POST", "/api/v1/namespaces", {"metadata": {"name": "dra-scheduler"}})
        sentinel = {"metadata": {"name": "dra-scheduler-wakeup"}, "spec": {"devices": {}}}
        self.do("POST", claims_path("dra-scheduler"), sentinel)
        selector = {"cel": {"expression": f'device.driver == "{driver_name("gpu")}"'}}
        self.do("POST", CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        self.do(
            "POST",
            "/api/v1/nodes",
            {
                "metadata": {"name": NODE},
                "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
            },
        )
        self._slice(1, DEVICES)
        self._start_controllers()

    def _slice(self, generation: int, devices: int) -> None:
        name = "gpus"
        status, found = self.do("GET", f"{SLICES}/{name}")
        body: Object = {
            "metadata": found["metadata"] if status == 200 else {"name": name},
            "spec": {
                "driver": driver_name("gpu"),
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{index}"} for index in range(devices)],
            },
        }
        if status == 200:
            self.do("PUT", f"{SLICES}/{name}", body)
        else:
            self.do("POST", SLICES, body)

    def _pod(self, name: str, claims: int, count: int = 1) -> None:
        entries = []
        for number in range(max(1, claims)):
            claim = f"{name}-{number}"
            request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
            self.do(
                "POST",
                claims_path("default"),
                {"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}},
            )
            entries.append({"name": f"e{number}", "resourceClaimName": claim})
        body = {
            "metadata": {"name": name},
            "spec": {
                "schedulerName": self.scheduler_name,
                "containers": [{"name": "m", "image": "x"}],
                "resourceClaims": entries,
            },
        }
        self.do("POST", pods_path("default"), body)

    def tenants_run_seconds(self, pod: Object) -> float | None:
        """For ever: what is bound stays, so that ends can be compared."""
        return None

    def end(self) -> dict[str, Any]:
        """How it all ended, without the names of devices."""
        found: dict[str, Any] = {}
        claims = {
            claim["metadata"]["name"]: claim
            for claim in self.objects("resource.k8s.io/resourceclaims")
        }
        for pod in self.objects("/pods"):
            held = [len(results(claims[called])) for called in claim_names(pod).values() if called]
            found[pod["metadata"]["name"]] = (pod["spec"].get("nodeName"), held)
        found["devices"] = sum(len(results(claim)) for claim in claims.values())
        return found


@cache
def _undisturbed(mode: Mode, claims: int, *, takes_over: bool) -> dict[str, Any]:
    """How it ends without a crash."""
    world = CrashWorld(Case("", "", mode, claims, takes_over))
    outcome = world.run()
    if outcome.findings:
        raise AssertionError(outcome.findings)
    return world.end()


def _crashed(case: Case) -> tuple[CrashWorld, Outcome]:
    """A run with the crash. Whether a write is made may hang on who is faster, we or the claim controller."""
    seeds = iter(range(1, MOST_SEEDS + 1))
    while True:
        world = CrashWorld(case, next(seeds))
        outcome = world.run()
        if world.has_crashed or world.plan.seed == MOST_SEEDS:
            return world, outcome


def run_case(case: Case) -> list[Finding]:
    """What is wrong with one case."""
    world, outcome = _crashed(case)
    found = list(outcome.findings)
    if not world.has_crashed:
        found.append(Finding("sweep", str(case), "the write never happened"))
    wanted = _undisturbed(case.mode, case.claims, takes_over=case.takes_over)
    if world.end() != wanted:
        text = f"ended as {world.end()}, without the crash as {wanted}"
        found.append(Finding("sweep", str(case), text))
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", nargs="?", default="", help="of the names of cases")
    part = parser.parse_args().part
    began = time.monotonic()
    counts: Counter[bool] = Counter()
    with quiet_interpreter():
        for number, case in enumerate(each for each in cases() if part in str(each)):
            found = run_case(case)
            counts[bool(found)] += 1
            for finding in found:
                print(f"FAILED: {case}\n    {finding}")
            if number % 20 == 19:
                collect_garbage()
    seconds = time.monotonic() - began
    print(f"{counts.total()} crashes, {counts[True]} failed, {seconds:.0f} s")
    return 1 if counts[True] or not counts else 0


if __name__ == "__main__":
    with_fixed_hashes()
    code = main()
    sys.stdout.flush()
    os._exit(code)
