"""What a reflector does next (R1-R6, F5-F8, F12, F13)."""

import random
from typing import Any

import pytest

from scheduler.reflectors.machine import (
    BACKOFF_CAP_SECONDS,
    Complete,
    Failure,
    ListPage,
    Machine,
    OpenWatch,
    Pause,
)

A: Any = "a"
B: Any = "b"


class Late(random.Random):
    """Always the longest wait."""

    def uniform(self, a, b):
        return b

    def randint(self, a, b):
        return b


@pytest.fixture
def machine():
    return Machine(Late())


def synced(machine, version=10):
    machine.next()
    machine.page([], version, "")
    machine.opened(0.0)
    return machine


def test_the_first_list_is_a_quorum_read_in_pages_and_the_watch_starts_where_it_ended(machine):
    assert machine.next().query() == {"limit": "500", "resourceVersion": ""}
    assert machine.page([A], 10, "more") is None
    assert machine.next().query() == {"limit": "500", "continue": "more"}
    assert machine.page([B], 10, "") == Complete([A, B], 10)
    assert machine.next().query() == {
        "resourceVersion": "10",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "600",
    }


def test_a_failed_page_discards_the_pages_before_it(machine):
    machine.page([A], 10, "more")
    machine.failed(Failure.UNREACHABLE, 0.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 500)
    assert machine.page([B], 11, "") == Complete([B], 11)


def test_an_expired_page_token_starts_the_list_again_and_at_last_asks_for_all_at_once(machine):
    machine.page([A], 10, "more")
    machine.failed(Failure.GONE, 0.0)
    assert machine.next() == ListPage("", "", 500)
    machine.page([A], 10, "more")
    machine.failed(Failure.GONE, 0.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 0)


def test_a_watch_that_ended_is_resumed_at_once_from_the_last_event_or_bookmark(machine):
    synced(machine)
    machine.heard(12, is_event=True)
    machine.heard(15, is_event=False)
    machine.ended(5.0)
    assert machine.next().resource_version == 15


def test_a_slow_reader_cut_off_right_after_an_event_resumes_without_waiting(machine):
    synced(machine)
    machine.heard(12, is_event=True)
    machine.ended(0.1)
    assert isinstance(machine.next(), OpenWatch)


def test_a_watch_that_ends_as_soon_as_it_opens_backs_off_twice_as_long_each_time(machine):
    synced(machine)
    pauses = []
    for _ in range(8):
        machine.opened(0.0)
        machine.ended(0.2)
        pauses.append(machine.next().seconds)
    assert pauses == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, BACKOFF_CAP_SECONDS, BACKOFF_CAP_SECONDS]


def test_a_server_that_was_down_for_long_is_noticed_soon_after_it_is_back(machine):
    synced(machine)
    pauses = []
    for _ in range(10):
        machine.failed(Failure.UNREACHABLE, 1.0)
        pauses.append(machine.next())
    assert pauses[-1] == Pause(15.0)


def test_two_healthy_minutes_end_the_back_off(machine):
    synced(machine)
    for _ in range(5):
        machine.failed(Failure.UNREACHABLE, 1.0)
        machine.next()
    machine.opened(10.0)
    machine.failed(Failure.UNREACHABLE, 131.0)
    assert machine.next() == Pause(0.8)


def test_a_broken_watch_backs_off_and_resumes_without_a_list(machine):
    synced(machine)
    machine.failed(Failure.UNREACHABLE, 1.0)
    assert machine.next() == Pause(0.8)
    assert machine.next() == OpenWatch(10, 600)


@pytest.mark.parametrize("failure", [Failure.OTHER, Failure.UNREADABLE, Failure.TOO_LARGE])
def test_another_error_of_a_watch_backs_off_and_lists(machine, failure):
    synced(machine)
    machine.failed(failure, 1.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("10", "", 500)


def test_a_version_gone_is_never_watched_again_but_listed_from(machine):
    synced(machine)
    machine.failed(Failure.GONE, 1.0)
    assert machine.next().query() == {
        "limit": "500",
        "resourceVersion": "10",
        "resourceVersionMatch": "NotOlderThan",
    }
    machine.page([], 30, "")
    assert machine.next().resource_version == 30


@pytest.mark.parametrize("failure", [Failure.GONE, Failure.TOO_LARGE])
def test_when_that_list_fails_too_a_quorum_list_follows(machine, failure):
    synced(machine)
    machine.failed(Failure.GONE, 1.0)
    machine.next()
    machine.failed(failure, 1.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 500)


def test_watches_that_keep_expiring_back_off(machine):
    synced(machine)
    machine.failed(Failure.GONE, 1.0)
    assert isinstance(machine.next(), ListPage)
    machine.page([], 10, "")
    machine.opened(1.0)
    machine.failed(Failure.GONE, 1.0)
    assert isinstance(machine.next(), Pause)


def test_a_list_older_than_what_has_been_seen_is_refused_and_asked_again(machine):
    synced(machine)
    machine.heard(40, is_event=True)
    machine.failed(Failure.GONE, 1.0)
    machine.next()
    assert machine.page([A], 39, "") is None
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 500)
    assert machine.page([B], 41, "") == Complete([B], 41)
