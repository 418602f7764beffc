"""The assume cache against a model that remembers everything: newest known wins, nothing comes back from the dead."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.cache.assume import AssumeCache
from scheduler.cache.store import EventType
from scheduler.model import ClaimRecord
from tests.scheduler.cache.objects import record

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)


def key(name):
    return f"default/{name}"


def test_what_a_write_returned_is_read_before_the_watch_shows_it():
    cache = AssumeCache()
    cache.replace([record("a", 5)], 10)
    written = record("a", 12, "d")
    cache.assume(written)
    assert cache.get(key("a")) is cache.by_uid("uid-a") is written
    cache.upsert(record("a", 11))
    assert cache.get(key("a")) is written


def test_a_late_answer_does_not_hide_what_the_watch_knows_already():
    cache = AssumeCache()
    cache.replace([record("a", 5)], 10)
    cache.upsert(record("a", 14))
    assert cache.assume(record("a", 12, "d")) == []
    cache.delete(record("a", 15))
    assert cache.assume(record("a", 14, "d")) == []
    assert cache.get(key("a")) is None


def test_a_bookmark_at_an_assumed_write_ends_it():
    cache = AssumeCache()
    cache.replace([], 10)
    cache.assume(record("a", 12, "d"))
    cache.progress(11)
    assert cache.assumed == ("uid-a",)
    cache.progress(12)
    assert cache.get(key("a")) is None
    assert not cache.assumed


def test_restoring_returns_to_what_the_watch_has_shown():
    cache = AssumeCache()
    watched = record("a", 5)
    cache.replace([watched], 10)
    cache.assume(record("a", 12, "d"))
    assert cache.restore("uid-a")
    assert cache.get(key("a")) is watched
    assert cache.restore("uid-a") == []


class AssumeMachine(RuleBasedStateMachine):
    """A server that writes, a watch that lags, answers that come late, lists, repetitions."""

    def __init__(self):
        super().__init__()
        self.cache = AssumeCache()
        self.version = 0
        self.stored = {}  # the server's truth: name -> record
        self.log = []  # every event: (version, type, name, record)
        self.delivered = 0  # how many of them the watch has shown
        self.answers = []  # of our writes, not yet assumed
        self.assumed = {}  # the model: name -> record
        self.mirror = {}  # what a listener that applies every change believes: uid -> record
        self.incarnation = 0

    def write(self, type_, name, item):
        self.log.append((self.version, type_, name, item))
        if type_ is EventType.DELETED:
            del self.stored[name]
        else:
            self.stored[name] = item

    def follow(self, changes):
        for old, new in changes:
            if old is not None:
                assert self.mirror.pop(old.claim.metadata.uid) is old
            if new is not None:
                assert new.claim.metadata.uid not in self.mirror
                self.mirror[new.claim.metadata.uid] = new

    @property
    def reached(self):
        return self.cache.resource_version

    def watched(self):
        state: dict[str, ClaimRecord] = {}
        for _, type_, name, item in self.log[: self.delivered]:
            if type_ is EventType.DELETED:
                state.pop(name, None)
            else:
                state[name] = item
        return state

    def forget_reached(self):
        self.assumed = {
            name: item
            for name, item in self.assumed.items()
            if int(item.claim.metadata.resource_version) > self.reached
        }

    @initialize()
    def start(self):
        self.follow(self.cache.replace([], 0))

    @rule(name=names)
    def create(self, name):
        if name not in self.stored:
            self.version += 1
            self.incarnation += 1
            self.write(
                EventType.ADDED, name, record(name, self.version, uid=f"uid-{self.incarnation}")
            )

    @rule(name=names, device=st.sampled_from(["", "d1", "d2"]), ours=st.booleans())
    def update(self, name, device, ours):
        if name in self.stored:
            self.version += 1
            uid = self.stored[name].claim.metadata.uid
            item = record(name, self.version, *([device] if device else []), uid=uid)
            self.write(EventType.MODIFIED, name, item)
            if ours:
                self.answers.append((name, item))

    @rule(name=names)
    def delete(self, name):
        if name in self.stored:
            self.version += 1
            uid = self.stored[name].claim.metadata.uid
            self.write(EventType.DELETED, name, record(name, self.version, uid=uid))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer_arrives(self, data):
        name, item = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        version = int(item.claim.metadata.resource_version)
        self.follow(self.cache.assume(item))
        before = self.assumed.get(name)
        is_newer = before is None or version > int(before.claim.metadata.resource_version)
        if version > self.reached and is_newer:
            self.assumed[name] = item

    @precondition(lambda self: self.delivered < len(self.log))
    @rule(count=st.integers(1, 3))
    def deliver(self, count):
        for _, type_, _, item in self.log[self.delivered : self.delivered + count]:
            self.delivered += 1
            take = self.cache.delete if type_ is EventType.DELETED else self.cache.upsert
            self.follow(take(item))
        self.forget_reached()

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def repeat(self, data):
        _, type_, _, item = self.log[data.draw(st.integers(0, self.delivered - 1))]
        take = self.cache.delete if type_ is EventType.DELETED else self.cache.upsert
        assert self.follow(take(item)) is None

    @rule()
    def relist(self):
        self.delivered = len(self.log)
        self.follow(self.cache.replace(list(self.stored.values()), self.version))
        self.forget_reached()

    @precondition(lambda self: self.delivered == len(self.log))
    @rule()
    def bookmark(self):
        self.follow(self.cache.progress(self.version))
        self.forget_reached()

    @precondition(lambda self: self.assumed)
    @rule(data=st.data())
    def restore(self, data):
        name = data.draw(st.sampled_from(sorted(self.assumed)))
        self.follow(self.cache.restore(self.assumed.pop(name).claim.metadata.uid))

    @invariant()
    def reads_the_newest_known(self):
        expected = {**self.watched(), **self.assumed}
        for name in NAMES:
            assert self.cache.get(key(name)) is expected.get(name)
        for item in expected.values():
            assert self.cache.by_uid(item.claim.metadata.uid) is item
        assert sorted(map(id, self.cache)) == sorted(map(id, expected.values()))

    @invariant()
    def whoever_follows_the_changes_sees_the_same(self):
        expected = {item.claim.metadata.uid: item for item in self.cache}
        assert {uid: id(item) for uid, item in self.mirror.items()} == {
            uid: id(item) for uid, item in expected.items()
        }


TestAssumeMachine = AssumeMachine.TestCase
TestAssumeMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
