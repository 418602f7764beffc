"""Who may write, under clocks that jump and servers that fail.

H1-H5, H9; F14-F16; docs/decisions/0008-one-writer.md.
"""

import asyncio
import json
import random
from typing import Any

import pytest

from scheduler.client import (
    ApiError,
    Committed,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
)
from scheduler.config import LeaderElectionSettings
from scheduler.leader import (
    AlwaysLeader,
    FollowLease,
    LeaderElector,
    LeadershipLostError,
)
from scheduler.leader.lease import lease_path
from tests.fakes import FakeApiClient, FakeClock, settle

PATH = lease_path("dra-scheduler", "dra-scheduler")
SETTINGS = LeaderElectionSettings()


class LeaseServer:
    """The one lease, with resourceVersions; `failing` makes every request fail."""

    def __init__(self, path=PATH):
        self.path = path
        self.lease: Any = None
        self.version = 0
        self.failing: Any = None

    def get(self, _call):
        if self.failing is not None:
            return self.failing if isinstance(self.failing, Exception) else UnavailableError("down")
        return (
            NotFoundError(404, "NotFound", "")
            if self.lease is None
            else json.dumps(self.lease).encode()
        )

    def write(self, call):
        if self.failing is not None:
            return Unknown("down")
        body = json.loads(call.body)
        if call.method == "POST" and self.lease is not None:
            return Rejected(409, "AlreadyExists", "")
        if call.method == "PUT" and (
            self.lease is None
            or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            return Rejected(409, "Conflict", "")
        self.put(**body["spec"])
        return Committed(json.dumps(self.lease).encode())

    def put(self, **spec):
        self.version += 1
        metadata = {"name": "x", "uid": "uid-lease", "resourceVersion": str(self.version)}
        self.lease = {"metadata": metadata, "spec": spec}

    @property
    def spec(self):
        return self.lease["spec"]

    def serve(self, client):
        client.always("GET", self.path, self.get)
        client.always("PUT", self.path, self.write)
        client.always("POST", self.path.rpartition("/")[0], self.write)


class Candidate:
    """A process that takes part."""

    def __init__(self, server, clock, identity="me", pod=None):
        self.client = FakeApiClient()
        server.serve(self.client)
        self.elector = LeaderElector(self.client, SETTINGS, clock, random.Random(1), identity, pod)
        self.steps: list[str] = []
        self.task = asyncio.create_task(
            self.elector.run(self.lead, lambda: self.steps.append("stop"))
        )

    async def lead(self):
        self.steps.append("start")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.steps.append("cancelled")

    async def end(self):
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
def server():
    return LeaseServer()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def me(server, clock):
    candidate = Candidate(server, clock)
    yield candidate
    await candidate.end()


def held_by_another(server, transitions=4, renew="2020-01-01T00:00:00.000000Z", holder="other"):
    server.put(
        holderIdentity=holder,
        leaseDurationSeconds=15,
        acquireTime=renew,
        renewTime=renew,
        leaseTransitions=transitions,
    )


async def test_without_a_lease_it_is_made_and_led_at_once(me, server):
    await settle()
    assert me.elector.is_leader()
    assert me.steps == ["start"]
    assert server.spec["holderIdentity"] == "me"
    assert server.spec["renewTime"].endswith("Z")
    assert (me.elector.epoch, me.elector.needs_sweep) == (1, False)


async def test_a_lease_of_another_is_left_alone_until_it_has_stood_still_for_its_duration(
    me, server, clock
):
    held_by_another(server)
    await clock.advance(14)
    assert not me.elector.is_leader()
    assert server.spec["holderIdentity"] == "other"
    await clock.advance(4)
    assert me.elector.is_leader()
    assert (server.spec["holderIdentity"], server.spec["leaseTransitions"]) == ("me", 5)
    assert (me.elector.epoch, me.elector.needs_sweep) == (6, True)


async def test_times_in_the_record_are_not_believed(me, server, clock):
    """A holder whose clock is an hour behind renews; nobody takes its lease (F14)."""
    for second in range(40):
        held_by_another(server, renew=f"2020-01-01T00:00:{second:02}.000000Z")
        await clock.advance(1)
    assert not me.elector.is_leader()


async def test_a_released_lease_is_taken_at_once_and_needs_no_sweep(server, clock):
    held_by_another(server, holder="")
    me = Candidate(server, clock)
    await settle()
    assert me.elector.is_leader()
    assert (me.elector.epoch, me.elector.needs_sweep) == (6, False)
    await me.end()


async def test_renewing_keeps_it_with_the_same_epoch_and_one_write_a_period(me, server, clock):
    await clock.advance(60)
    assert me.elector.is_leader()
    assert me.elector.epoch == 1
    assert server.spec["leaseTransitions"] == 0
    assert 28 <= len(me.client.requests("PUT")) <= 30
    assert len(me.client.requests("GET")) == 1


async def test_the_deadline_counts_from_the_start_of_the_last_renewal(me, server, clock):
    async def slow(call):
        await clock.sleep(3)
        return server.write(call)

    await settle()
    me.client.script("PUT", PATH, slow)
    began = clock.monotonic() + 2.0
    await clock.advance(5.5)
    server.failing = True
    assert me.elector.can_write(began + 9.9)
    assert not me.elector.can_write(began + 10.0)


async def test_a_leader_that_cannot_renew_stops_before_others_may_start(me, server, clock):
    await settle()
    server.failing = True
    await clock.advance(9)
    assert me.elector.is_leader()
    assert me.steps == ["start"]
    await clock.advance(2)
    assert not me.elector.is_leader()
    assert me.steps == ["start", "stop", "cancelled"]
    with pytest.raises(LeadershipLostError):
        await me.task


async def test_a_leader_survives_errors_shorter_than_its_deadline(me, server, clock):
    await settle()
    for failure in (UnavailableError("x"), ApiError(500, "", "")):
        server.failing = failure
        await clock.advance(7)
        server.failing = None
        await clock.advance(5)
        assert me.elector.is_leader()


async def test_a_leader_whose_lease_is_taken_stops_at_once(me, server, clock):
    await settle()
    held_by_another(server)
    await clock.advance(2.1)
    assert me.steps[:2] == ["start", "stop"]
    with pytest.raises(LeadershipLostError):
        await me.task
    assert server.spec["holderIdentity"] == "other"


async def test_a_paused_leader_may_not_write_when_it_wakes_and_does_not_renew(me, server, clock):
    await settle()
    clock.skip(30)
    assert not me.elector.is_leader()
    before = len(me.client.calls)
    await clock.advance(0.1)
    with pytest.raises(LeadershipLostError):
        await me.task
    assert len(me.client.calls) == before


async def test_a_renewal_whose_answer_was_lost_is_found_out_by_reading(me, server, clock):
    def committed_unseen(call):
        server.write(call)
        return Unknown("no answer")

    await settle()
    me.client.script("PUT", PATH, committed_unseen)
    await clock.advance(2)
    assert me.elector.can_write(clock.monotonic() + 9.9)
    await clock.advance(30)
    assert me.elector.is_leader()


async def test_a_lease_deleted_while_we_lead_comes_back_with_no_lower_epoch(server, clock):
    held_by_another(server, holder="")
    me = Candidate(server, clock)
    await settle()
    server.lease = None
    await clock.advance(3)
    assert me.elector.is_leader()
    assert me.elector.epoch == 6
    await me.end()


async def test_two_candidates_never_lead_at_the_same_time_and_the_second_takes_over(server, clock):
    one, two = Candidate(server, clock, "one"), Candidate(server, clock, "two")
    await clock.advance(20)
    down, up = (one, two) if one.elector.is_leader() else (two, one)
    down.client.always("PUT", PATH, Unknown("cut off"))
    down.client.always("GET", PATH, UnavailableError("cut off"))
    for _ in range(160):
        await clock.advance(0.25)
        assert not (one.elector.is_leader() and two.elector.is_leader())
    assert up.elector.is_leader()
    assert up.elector.epoch == down.elector.epoch + 1
    await one.end()
    await two.end()


async def test_a_clean_end_releases_the_lease_and_the_next_leads_within_a_retry(server, clock):
    me = Candidate(server, clock)
    await settle()
    other = Candidate(server, clock, "other")
    await clock.advance(1)
    await me.end()
    assert me.steps == ["start", "stop", "cancelled"]
    assert me.elector.is_leader()  # the last writes may still end
    await me.elector.release()
    assert not me.elector.is_leader()
    assert server.spec["holderIdentity"] == ""
    await clock.advance(3)
    assert other.elector.is_leader()
    assert not other.elector.needs_sweep
    await other.end()


async def test_releasing_a_lease_that_is_lost_writes_nothing(me, server, clock):
    await settle()
    held_by_another(server)
    await clock.advance(3)
    before = server.version
    await me.elector.release()
    assert server.version == before


async def test_an_error_of_what_a_leader_does_ends_the_election(server, clock):
    client = FakeApiClient()
    server.serve(client)
    elector = LeaderElector(client, SETTINGS, clock, random.Random(1), "me")

    async def fail():
        raise RuntimeError("a bug")

    task = asyncio.create_task(elector.run(fail, lambda: None))
    await clock.advance(5)
    with pytest.raises(RuntimeError, match="a bug"):
        await task


async def test_the_leader_labels_its_pod_and_unlabels_it_on_release(server, clock):
    me = Candidate(server, clock, pod=("ns", "pod-1"))
    me.client.always("PATCH", "/api/v1/namespaces/ns/pods/pod-1", b"{}")
    await settle()
    await me.end()
    await me.elector.release()
    labels = [json.loads(call.body)["metadata"]["labels"] for call in me.client.requests("PATCH")]
    assert labels == [{"dra-scheduler.dev/leader": "true"}, {"dra-scheduler.dev/leader": None}]


async def test_a_label_that_cannot_be_set_does_not_end_leadership(server, clock):
    me = Candidate(server, clock, pod=("ns", "pod-1"))
    me.client.always("PATCH", "/api/v1/namespaces/ns/pods/pod-1", Rejected(403, "Forbidden", ""))
    await clock.advance(5)
    assert me.elector.is_leader()
    await me.end()


def test_times_that_leave_no_room_for_a_request_are_refused():
    settings = LeaderElectionSettings(lease_duration_seconds=10, renew_deadline_seconds=10)
    with pytest.raises(ValueError, match="leaseDuration"):
        LeaderElector(FakeApiClient(), settings, FakeClock(), random.Random(1), "me")


async def test_always_leader_leads_until_cancelled():
    leader = AlwaysLeader()
    steps = []

    async def lead():
        steps.append("start")

    task = asyncio.create_task(leader.run(lead, lambda: steps.append("stop")))
    await settle()
    assert leader.is_leader()
    assert leader.can_write(1e9)
    task.cancel()
    await asyncio.wait({task})
    assert steps == ["start", "stop"]


# Following the lease of kube-scheduler

FOLLOWED = lease_path("kube-system", "kube-scheduler")


class Follower:
    def __init__(self, server, clock):
        self.client = FakeApiClient()
        server.serve(self.client)
        settings = LeaderElectionSettings(enabled=False, follow_lease="kube-system/kube-scheduler")
        self.leadership = FollowLease(self.client, settings, clock, "host")
        self.steps: list[str] = []
        self.task = asyncio.create_task(
            self.leadership.run(self.lead, lambda: self.steps.append("stop"))
        )

    async def lead(self):
        self.steps.append(f"start {self.leadership.epoch}")
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def followed():
    return LeaseServer(FOLLOWED)


@pytest.fixture
async def follower(followed, clock):
    made = Follower(followed, clock)
    yield made
    made.task.cancel()
    await asyncio.wait({made.task})


def renew(server, clock, holder="host_1", transitions=0):
    held_by_another(server, transitions, renew=str(clock.monotonic()), holder=holder)


async def test_the_neighbours_first_lease_makes_us_the_writer(follower, followed, clock):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(1)
    assert follower.leadership.is_leader()
    assert follower.steps == ["start 1"]
    assert not follower.leadership.needs_sweep
    assert not follower.client.requests("PUT")


async def test_a_record_that_does_not_move_may_be_that_of_a_dead_neighbour(followed, clock):
    renew(followed, clock)
    follower = Follower(followed, clock)
    await clock.advance(5)
    assert not follower.leadership.is_leader()
    renew(followed, clock)
    await clock.advance(1)
    assert follower.leadership.is_leader()
    assert (
        follower.leadership.needs_sweep
    )  # whatever this pod ran before may have left writes under way
    follower.task.cancel()
    await asyncio.wait({follower.task})


@pytest.mark.parametrize("holder", ["other_1", "host2_1", "host", ""])
async def test_a_holder_elsewhere_keeps_us_from_writing(follower, followed, clock, holder):
    for _ in range(5):
        renew(followed, clock, holder)
        await clock.advance(1)
    assert not follower.leadership.is_leader()
    assert follower.steps == []


async def test_ten_seconds_without_renewal_end_it_and_a_renewal_brings_it_back(
    follower, followed, clock
):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(10.5)
    assert follower.leadership.is_leader()
    await clock.advance(1)
    assert not follower.leadership.is_leader()
    await clock.advance(1.5)
    assert follower.steps == ["start 1", "stop"]
    renew(followed, clock)
    await clock.advance(1)
    assert follower.steps == ["start 1", "stop", "start 1"]


async def test_a_lease_that_cannot_be_read_counts_as_not_renewed(follower, followed, clock):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(1)
    followed.failing = ApiError(500, "", "")
    await clock.advance(9)
    assert follower.leadership.is_leader()
    await clock.advance(2)
    assert not follower.leadership.is_leader()


async def test_losing_to_another_pod_stops_within_two_seconds_and_a_return_needs_a_sweep(
    follower, followed, clock
):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(1)
    renew(followed, clock, "elsewhere_9", 1)
    await clock.advance(2)
    assert follower.steps == ["start 1", "stop"]
    renew(followed, clock, "host_2", 2)
    await clock.advance(1)
    assert follower.steps == ["start 1", "stop", "start 3"]
    assert follower.leadership.needs_sweep


async def test_a_restarted_neighbour_is_a_new_epoch_without_sweep(follower, followed, clock):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(1)
    renew(followed, clock, "host_2", 1)
    await clock.advance(2)
    assert follower.steps == ["start 1", "stop", "start 2"]
    assert not follower.leadership.needs_sweep


async def test_a_holder_between_two_looks_is_known_by_the_count_of_transitions(
    follower, followed, clock
):
    await clock.advance(1)
    renew(followed, clock)
    await clock.advance(1)
    renew(followed, clock, "host_2", 2)
    await clock.advance(2)
    assert follower.steps == ["start 1", "stop", "start 3"]
    assert follower.leadership.needs_sweep


@pytest.mark.parametrize("text", ["", "a", "/b", "a/", "a/b/c"])
def test_a_lease_to_follow_is_namespace_and_name(text):
    with pytest.raises(ValueError, match="NAMESPACE/NAME"):
        FollowLease(FakeApiClient(), LeaderElectionSettings(follow_lease=text), FakeClock(), "host")
