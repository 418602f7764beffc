"""What a reflector does next (R1-R6, F5-F8, F12, F13)."""

import random
from typing import Any

import pytest

from scheduler.reflectors.machine import (
    BACKOFF_CAP_SECONDS,
    FRUITLESS_WATCHES,
    MOST_FRUITLESS_WATCHES,
    RESTORED_LISTS,
    RESTORED_SECONDS,
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


# --- a watch that is wrong without saying so (faults behaviour 01 and 04, core 04) ---------------------------------------


def watches_until_list(machine, seconds, *, start=0.0):
    """How many watches that end in order after so long without a word are opened before a list is asked for."""
    count = 0
    while True:
        action = machine.next()
        if isinstance(action, ListPage):
            assert action == ListPage("", "", 500)  # a quorum list
            return count
        if isinstance(action, OpenWatch):
            count += 1
            machine.opened(start)
            machine.ended(start + seconds)


@pytest.mark.parametrize("lasted", [20.0, 119.0, 120.0, 7_200.0])
def test_the_pause_grows_and_stays_grown_after_however_long_a_watch(machine, lasted):
    """Health is that of an open watch: it is no excuse for those that cannot be opened after it."""
    synced(machine)
    machine.heard(11, is_event=True, now=1.0)
    now, pauses = lasted, []
    for _ in range(10):
        machine.failed(Failure.UNREACHABLE, now)
        pause = machine.next()
        pauses.append(pause.seconds)
        now += pause.seconds
        machine.next()
    assert pauses == sorted(pauses)
    assert pauses[6:] == [15.0] * 4


def test_only_two_minutes_of_a_watch_that_delivered_end_the_back_off(machine):
    synced(machine)
    for _ in range(5):
        machine.failed(Failure.UNREACHABLE, 1.0)
        machine.next()
    machine.opened(10.0)
    machine.heard(11, is_event=False, now=60.0)
    machine.failed(
        Failure.UNREACHABLE, 170.0
    )  # for more than two minutes open, but dead for most of them
    assert machine.next() == Pause(15.0)
    machine.opened(200.0)
    machine.heard(12, is_event=False, now=325.0)
    machine.failed(Failure.UNREACHABLE, 330.0)
    assert machine.next() == Pause(0.8)


def test_after_a_few_watches_without_a_word_a_quorum_list_is_asked_for(machine):
    synced(machine)
    assert watches_until_list(machine, 0.2) == FRUITLESS_WATCHES


def test_a_word_in_between_begins_the_count_anew(machine):
    synced(machine)
    for version in range(11, 30):
        assert isinstance(machine.next(), OpenWatch)
        machine.opened(0.0)
        if version % 2:
            machine.heard(version, is_event=True, now=1.0)
        machine.ended(20.0)


def test_lists_that_show_nothing_new_are_asked_for_less_and_less_often(machine):
    synced(machine)
    counts = []
    for version in range(20, 26):
        counts.append(watches_until_list(machine, 35.0))
        machine.page([], version, "")
        machine.compared(is_same=version < 25)
    assert counts == [
        3,
        6,
        12,
        MOST_FRUITLESS_WATCHES,
        MOST_FRUITLESS_WATCHES,
        MOST_FRUITLESS_WATCHES,
    ]
    assert watches_until_list(machine, 35.0) == FRUITLESS_WATCHES


def test_an_idle_kind_of_a_server_without_bookmarks_is_never_listed_for_its_silence(machine):
    synced(machine)
    for number in range(100):
        machine.opened(number * 100.0)
        if number % 2:
            machine.ended(number * 100.0 + 60.0)
        else:
            machine.failed(Failure.UNREACHABLE, number * 100.0 + 90.0)
            assert machine.next().seconds <= 0.8
        assert isinstance(machine.next(), OpenWatch)
        assert machine.is_trusted


def test_silence_where_bookmarks_have_come_before_is_a_dead_connection(machine):
    synced(machine)
    machine.heard(11, is_event=False, now=60.0)
    machine.failed(Failure.UNREACHABLE, 150.0)
    assert not machine.is_trusted
    for _ in range(2):
        machine.opened(0.0)
        machine.failed(Failure.UNREACHABLE, 90.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 500)


def test_watches_that_end_at_once_are_doubtful_until_one_lasts_or_says_something(machine):
    synced(machine)
    assert not machine.is_doubtful(0.0)
    for _ in range(FRUITLESS_WATCHES):
        machine.opened(0.0)
        machine.ended(1.0)
    assert machine.is_doubtful(1.0)
    machine.page([], 20, "")
    machine.compared(is_same=True)
    machine.opened(2.0)
    assert machine.is_doubtful(3.0)
    assert not machine.is_doubtful(12.0)
    machine.heard(21, is_event=True, now=3.0)
    assert not machine.is_doubtful(3.0)
    assert machine.is_trusted


def test_while_a_server_is_down_list_and_watch_are_tried_in_turn(machine):
    synced(machine)
    tried = []
    for _ in range(20):
        machine.failed(Failure.UNREACHABLE, 0.0)
        assert isinstance(machine.next(), Pause)
        tried.append(type(machine.next()))
    assert tried[3:].count(OpenWatch) in range(7, 10)
    assert tried[3:].count(ListPage) in range(7, 10)


def refused(machine, version):
    """A quorum list that is older than what has been seen; returns the pause after it."""
    assert machine.page([A], version, "") is None
    assert machine.is_refused
    pause = machine.next()
    assert machine.next() == ListPage("", "", 500)
    return pause.seconds


def test_quorum_lists_that_stay_older_for_long_enough_are_of_a_restored_server(machine):
    synced(machine, 1000)
    machine.failed(Failure.GONE, 1.0)
    refused(machine, 500)
    seconds, lists = 0.0, 0
    while seconds < RESTORED_SECONDS or lists < RESTORED_LISTS:
        seconds += refused(machine, 501 + lists)
        lists += 1
    assert machine.page([A], 600, "more") is None
    assert not machine.is_refused
    assert machine.page([B], 600, "") == Complete([A, B], 600, is_reset=True)
    assert machine.next().resource_version == 600


def test_a_stale_replica_that_is_gone_in_the_end_is_not_followed(machine):
    synced(machine, 1000)
    machine.failed(Failure.GONE, 1.0)
    for _ in range(RESTORED_LISTS):
        refused(machine, 900)
    assert machine.page([A], 1001, "") == Complete([A], 1001)


def test_older_lists_that_disagree_are_no_proof(machine):
    synced(machine, 1000)
    machine.failed(Failure.GONE, 1.0)
    for number in range(60):
        refused(machine, 500 - number % 2)


@pytest.mark.parametrize("failure", [Failure.BEHIND, Failure.MISSED])
def test_a_server_that_is_behind_and_a_watch_that_missed_something_lead_to_a_quorum_list(
    machine, failure
):
    synced(machine)
    machine.failed(failure, 1.0)
    assert isinstance(machine.next(), Pause)
    assert machine.next() == ListPage("", "", 500)
