"""A state machine that drives the simulated world: Hypothesis chooses what happens next, and shrinks what goes wrong.

`DRA_SIMULATION_EXAMPLES=2000` tries more, drawn at random. Source: docs/contributing/testing.md#levels.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from copy import copy
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scheduler.framework.environment import Mode
from scheduler.lab.apiserver.requests import Request
from tests.simulation.chaos import PHASES, ReplicaFaults, status_response, write_name
from tests.simulation.faults import Verdict
from tests.simulation.network import Wire
from tests.simulation.plan import Plan
from tests.simulation.replicas import Replica
from tests.simulation.world import World, collect_garbage, quiet_interpreter

EXAMPLES = int(os.environ.get("DRA_SIMULATION_EXAMPLES", "0"))
WRITES = ("finalizer", "allocate", "release", "bind", "lease")
FATES = ("lost", "done unheard", "done late", "sent twice", "refused", "error", "conflict", *PHASES)
VERDICTS = {
    "lost": Verdict(loses_request=True, patience=1.0),
    "done unheard": Verdict(loses_answer=True, patience=1.0),
    "done late": Verdict(delay_up=4.0, loses_answer=True, patience=0.1),
    "sent twice": Verdict(after=lambda _: status_response(409, "Conflict", "modified")),
    "refused": Verdict(instead=status_response(403, "Forbidden", "denied")),
    "error": Verdict(instead=status_response(503, "Unavailable", "injected")),
}
KINDS = ("Pod", "Node", "ResourceClaim", "ResourceSlice")
seconds = st.sampled_from((0.01, 0.2, 1.0, 5.0, 20.0))
which = st.integers(min_value=0, max_value=5)


class Fates(ReplicaFaults):
    """Does to the next write of a kind what was chosen for it."""

    def on_request(self, wire: Wire, request: Request) -> Verdict:
        world = self.world
        if not isinstance(world, MachineWorld) or world.is_healed:
            return Verdict()
        name = write_name(request)
        fates = world.fates.get(name)
        if not fates:
            return Verdict()
        return self._verdict(fates.popleft(), request)

    def _verdict(self, fate: str, request: Request) -> Verdict:
        if fate in PHASES:
            return self.crash_in(fate)
        verdict = copy(VERDICTS.get(fate) or Verdict(before=lambda: self._touch(request)))
        verdict.fault = fate
        return verdict


class MachineWorld(World):
    """A world without faults of its own."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.fates: dict[str, deque[str]] = {}

    def faults_of(self, replica: Replica) -> Fates:
        return Fates(self, replica)


class Machine(RuleBasedStateMachine):
    """See above."""

    world: MachineWorld

    @initialize(
        seed=st.integers(min_value=0, max_value=2**16),
        mode=st.sampled_from((Mode.STANDALONE, Mode.EXTENDER)),
        replicas=st.sampled_from((1, 2)),
        drivers=st.sampled_from((("gpu",), ("mig", "shared"), ("net", "slow"))),
    )
    def begin(self, seed: int, mode: Mode, replicas: int, drivers: tuple[str, ...]) -> None:
        plan = Plan(
            seed=seed,
            mode=mode,
            liveness=True,
            replicas=replicas,
            election=True,
            nodes=2,
            seconds=0.0,
            quiet_seconds=130.0,
            pods_a_second=0.0,
            drivers=drivers,
            # Not drawn, but they may happen: the judge has to know.
            faults=dict.fromkeys(("F9 lag", "F16 pause", "partition", "F7 watch silent"), 0.0),
        )
        self.world = MachineWorld(plan)
        self.world.set_up()
        self._pass(4.0)

    def _pass(self, time: float) -> None:
        self.world.run_in_loop(asyncio.sleep(time))

    def _replica(self, number: int) -> Replica | None:
        replica = self.world.replicas[number % len(self.world.replicas)]
        return None if replica.is_down or not replica.starts else replica

    # --- tenants, drivers, nodes --------------------------------------------------------------------------------------

    @rule()
    def create_a_pod(self) -> None:
        self.world.tenants.make_pod()

    @rule(number=which)
    def delete_a_pod(self, number: int) -> None:
        pods = list(self.world.objects("/pods"))
        if pods:
            self.world.tenants.delete_pod(pods[number % len(pods)])

    @rule(number=which)
    def delete_a_claim(self, number: int) -> None:
        claims = [
            claim
            for claim in self.world.objects("resource.k8s.io/resourceclaims")
            if claim["metadata"]["namespace"] != "dra-scheduler"
        ]
        if claims:
            self.world.tenants.delete_claim(claims[number % len(claims)])

    @rule(number=which, pieces=st.integers(1, 3), spread=st.sampled_from((0.0, 3.0)))
    def publish_again(self, number: int, pieces: int, spread: float) -> None:
        pools = self.world.drivers.pools
        if pools:
            pool = pools[number % len(pools)]
            pool.generation += 1
            pool.pieces = pieces
            self.world.drivers.publish(pool, spread=spread)

    @rule(number=which, keep=st.integers(0, 3))
    def publish_less(self, number: int, keep: int) -> None:
        pools = self.world.drivers.pools
        if pools:
            pool = pools[number % len(pools)]
            pool.generation += 1
            pool.devices = pool.devices[:keep]
            self.world.drivers.publish(pool)

    @rule()
    def add_a_node(self) -> None:
        if len(list(self.world.objects("/nodes"))) < 4:
            self.world.chaos.add_node()

    @rule()
    def lose_a_node(self) -> None:
        self.world.chaos.lose_node()

    # --- our processes ------------------------------------------------------------------------------------------------

    @rule(write=st.sampled_from(WRITES), fate=st.sampled_from(FATES))
    def choose_the_fate_of_a_write(self, write: str, fate: str) -> None:
        self.world.fates.setdefault(write, deque()).append(fate)

    @rule(number=which)
    def crash(self, number: int) -> None:
        if (replica := self._replica(number)) is not None:
            replica.crash()

    @rule(number=which)
    def stop(self, number: int) -> None:
        if (replica := self._replica(number)) is not None:
            replica.stop()

    @rule(number=which, time=st.sampled_from((1.0, 12.0, 30.0)))
    def pause(self, number: int, time: float) -> None:
        if (replica := self._replica(number)) is not None:
            owner = replica.owner
            owner.pause()
            self.world.loop.later(time, lambda: self.world.loop.resume(owner))

    @rule(number=which, up=st.booleans(), time=seconds)
    def cut_off(self, number: int, time: float, *, up: bool) -> None:
        if (replica := self._replica(number)) is not None:
            wires = (replica.wire, replica.lease_wire)
            for wire in wires:
                wire.cut(up=up, down=not up)
                self.world.loop.later(time, partial(wire.cut, up=False, down=False))

    # --- watches and the server ---------------------------------------------------------------------------------------

    @rule(number=which, kind=st.sampled_from(KINDS), lag=st.sampled_from((0.0, 0.5, 15.0)))
    def lag(self, number: int, kind: str, lag: float) -> None:
        if (replica := self._replica(number)) is not None:
            replica.wire.lags[kind] = lag

    @rule(
        number=which,
        kind=st.sampled_from(KINDS),
        way=st.sampled_from(("reset", "end", "gone", "silent")),
    )
    def disturb_a_watch(self, number: int, kind: str, way: str) -> None:
        if (replica := self._replica(number)) is None:
            return
        for watch in [each for each in replica.wire.watches if each.kind == kind]:
            match way:
                case "reset":
                    watch.fail("the connection was reset")
                case "end":
                    watch.end()
                case "gone":
                    watch.send_error(410, "Expired")
                case _:
                    watch.fall_silent()

    @rule()
    def compact(self) -> None:
        self.world.server.store.compact()

    @rule(time=seconds)
    def server_down(self, time: float) -> None:
        net = self.world.net
        net.is_down = True
        for connection in tuple(net.connections):
            connection.fail("the connection was reset")

        def up() -> None:
            net.is_down = False

        self.world.loop.later(time, up)

    @rule(time=seconds)
    def let_time_pass(self, time: float) -> None:
        self._pass(time)

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def no_rule_is_broken(self) -> None:
        found = [*self.world.findings, *self.world.judge.findings]
        assert found == [], "\n".join(map(str, found))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.run_in_loop(self.world.quiet())
        self.world.close()
        self.no_rule_is_broken()
        collect_garbage()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with quiet_interpreter():
        yield


def test_whatever_happens_no_rule_is_broken_and_all_ends_well() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES or 6,
            stateful_step_count=100 if EXAMPLES else 25,
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
