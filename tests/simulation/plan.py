"""What a seed decides: the cluster, how we run, and which faults happen how often."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.framework.environment import Mode


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        text: for people.
        rate: the highest probability for one request, line or second.
        only: the mode in which it can happen; None: both.
        needs: replicas.
    """

    text: str
    rate: float
    only: Mode | None = None
    needs: int = 1


FAULTS: Final[dict[str, FaultKind]] = {
    # A request, with what comes back.
    "F1 conflict": FaultKind("the object is changed right before our write", 0.1),
    "F2 throttled": FaultKind("429 with Retry-After", 0.1),
    "F3 error": FaultKind("500 or 503, nothing done", 0.08),
    "F4 answer lost": FaultKind("done, and nobody hears of it", 0.08),
    "F4 late commit": FaultKind("done some seconds after the answer was given up", 0.05),
    "F4 resent": FaultKind("done, and the transport sends it again: 409", 0.05),
    "F4 request lost": FaultKind("never done, no answer", 0.05),
    "F5 broken body": FaultKind("an answer that is cut off", 0.05),
    "F12 page expired": FaultKind("small pages, and a continue token that has expired", 0.3),
    "F13 stale list": FaultKind("a list older than what was seen", 0.3),
    "refused": FaultKind("connection refused", 0.05),
    "F33 forbidden": FaultKind("403 for a while", 0.02),
    "refused for good": FaultKind("a webhook refuses every status of one claim", 0.06),
    # A line of a watch.
    "F5 garbage line": FaultKind("a line that is no event", 0.01),
    "F6 watch cut": FaultKind("connection reset", 0.02),
    "F6 watch ended": FaultKind("the server ends a watch early", 0.02),
    "F7 watch silent": FaultKind("a watch says nothing any more", 0.003),
    "F8 gone": FaultKind("410 in the middle of a watch", 0.01),
    "F9 lag": FaultKind("the watches of some kinds lag by seconds", 0.05),
    "F10 repeated": FaultKind("an older event comes again", 0.1),
    "F11 skipped": FaultKind("events are left out, then 410", 0.01),
    # Processes, by the second.
    "F14 clock": FaultKind("wall clocks jump, monotonic clocks run fast or slow", 0.05),
    "F15 lease blocked": FaultKind("lease writes are lost for a while", 0.02, needs=2),
    "F16 pause": FaultKind("a process stands still for a while", 0.02),
    "F17 crash": FaultKind("a process is killed between any two steps", 0.03),
    "F17 crash at a write": FaultKind("a process is killed in a phase of a write", 0.04),
    "stop": FaultKind("SIGTERM, and a new start", 0.02),
    "F18 two active": FaultKind("two replicas without election", 1.0, needs=2),
    "partition": FaultKind("one process is cut off, one way or both", 0.02),
    "slow machine": FaultKind("reading the clock takes long: searches leave the loop", 0.05),
    "lease lost": FaultKind("somebody deletes the lease, or takes it", 0.02, needs=2),
    # The server.
    "F19 server down": FaultKind("the API server restarts", 0.01),
    "F20 compaction": FaultKind("history is compacted", 0.05),
    "restored": FaultKind("the server comes back from a backup", 0.008),
    "slow server": FaultKind("answers take hundreds of milliseconds", 0.05),
    # The cluster.
    "F21 republish": FaultKind("a driver publishes a new generation, slice by slice", 0.08),
    "F21 incomplete": FaultKind("a driver stops in the middle of that", 0.04),
    "F22 shrink": FaultKind("devices, counters or capacity get less", 0.05),
    "driver restart": FaultKind("a driver deletes its slices and publishes again", 0.03),
    "invalid pool": FaultKind("a driver publishes what cannot be", 0.03),
    "taints": FaultKind("devices get taints, by slices and rules", 0.05),
    "attach failed": FaultKind("a device cannot be attached (binding conditions)", 0.4),
    "F23 claim deleted": FaultKind("a claim is deleted while its pod is bound", 0.1),
    "F24 pod deleted": FaultKind("a pod is deleted, or replaced, while it is bound", 0.1),
    "F25 node gone": FaultKind("a node is deleted or cordoned while a pod is bound", 0.05),
    "nodes": FaultKind("nodes come late, go, change labels", 0.05),
    "classes": FaultKind("device classes change, go, come", 0.03),
    "odd objects": FaultKind("tenants write odd but valid objects", 0.4),
    "F31 cel": FaultKind("selectors that fail or cost too much", 0.2),
    "F32 foreign": FaultKind("another scheduler allocates and binds, too", 0.1),
    # kube-scheduler.
    "F26 repeated call": FaultKind("webhooks are called twice, or late", 0.1, Mode.EXTENDER),
    "F27 kube-scheduler restart": FaultKind("it forgets what it did", 0.02, Mode.EXTENDER),
    "F28 malformed": FaultKind("webhooks get bodies that are no call", 0.05, Mode.EXTENDER),
}

# With these, two processes may allocate at the same time, so that only S1b can hold.
TWO_ALLOCATORS: Final = frozenset(
    {
        "F18 two active",
        "F32 foreign",
        "F16 pause",
        "F14 clock",
        "restored",
        "lease lost",
        "slow machine",
    }
)


@dataclass(slots=True)
class Plan:
    """One run.

    Attributes:
        seed: decides everything else.
        mode: stand-alone or extender.
        liveness: whether faults stop at some time.
        replicas: of the application.
        election: whether they elect a leader.
        nodes: at the start.
        seconds: with faults.
        quiet_seconds: without, at the end.
        pods_a_second: that tenants create.
        faults: name -> rate.
        drivers: kinds of devices there are.
    """

    seed: int
    mode: Mode
    liveness: bool
    replicas: int
    election: bool
    nodes: int
    seconds: float
    quiet_seconds: float
    pods_a_second: float
    faults: dict[str, float] = field(default_factory=dict)
    drivers: tuple[str, ...] = ("gpu",)

    def rate(self, fault: str) -> float:
        """How often."""
        return self.faults.get(fault, 0.0)

    @property
    def one_allocator(self) -> bool:
        """Whether S1 can be demanded."""
        drawn = self.faults.keys()
        if drawn & {"F32 foreign", "restored"}:
            return False
        if self.replicas > 1:
            return not drawn & TWO_ALLOCATORS
        # Without an election nothing keeps what a dead process has under way from its successor.
        return self.election or not drawn & {"F17 crash", "F17 crash at a write"}


def make_plan(
    seed: int,
    *,
    liveness: bool,
    mode: Mode | None = None,
    replicas: int = 0,
    wanted: Iterable[str] = (),
) -> Plan:
    """Draw a plan.

    Args:
        seed: decides.
        liveness: whether faults stop, and what has to happen then is judged.
        mode: instead of the drawn one.
        replicas: at least.
        wanted: faults that are switched on in any case.
    """
    rng = random.Random(f"plan {seed} {liveness}")
    drawn_mode = rng.choice((Mode.STANDALONE, Mode.EXTENDER))
    mode = mode or drawn_mode
    replicas = max(replicas, rng.choice((1, 1, 2, 2, 3)))
    possible = [
        name
        for name, kind in FAULTS.items()
        if kind.only in (None, mode) and replicas >= kind.needs
    ]
    # A swarm: few kinds at a time find more than all at once; now and then none.
    share = rng.choice((0.0, 0.1, 0.2, 0.35, 0.6))
    faults = {
        name: FAULTS[name].rate * rng.choice((0.2, 0.5, 1.0))
        for name in possible
        if rng.random() < share
    }
    if "F18 two active" in faults and rng.random() < 0.5:
        del faults["F18 two active"]
    faults |= {name: FAULTS[name].rate for name in wanted}
    election = replicas > 1 or rng.random() < 0.5
    if "F18 two active" in faults:
        election = False
    drivers = rng.sample(("gpu", "shared", "mig", "net", "slow"), rng.randint(1, 3))
    return Plan(
        seed=seed,
        mode=mode,
        liveness=liveness,
        replicas=replicas,
        election=election,
        nodes=rng.randint(1, 4),
        seconds=rng.choice((20.0, 40.0, 60.0)),
        quiet_seconds=150.0,
        pods_a_second=rng.choice((0.3, 0.6, 1.5)),
        faults=faults,
        drivers=tuple(drivers),
    )
