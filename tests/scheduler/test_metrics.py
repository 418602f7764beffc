"""Metrics are rendered with what was counted, and each process has its own."""

import asyncio

import pytest

from scheduler.metrics import Metrics
from tests.fakes import FakeClock


def test_what_was_counted_is_rendered():
    metrics = Metrics()
    metrics.attempt("scheduled")
    metrics.refused("DevicesInUse")
    metrics.pod_scheduled(0.2)
    metrics.decision(0.001)
    metrics.webhook("filter", 200, 0.003)
    metrics.bind("bound", 0.02)
    metrics.api_write("PUT", "unknown")
    metrics.queue_depths({"active": 3, "unschedulable": 7})
    metrics.relisted("Pod", "gone")
    metrics.watch_event("Pod")
    metrics.undecodable("ResourceSlice")
    metrics.recount_difference(2)
    metrics.cache_lag(0.01)
    metrics.foreign_allocation()
    metrics.event_dropped("queue_full")
    metrics.pod_shed()
    metrics.watch_value("in_flight_claims", "Claims decided and not yet written", lambda: 5)
    body, content_type = metrics.render()
    lines = body.decode().splitlines()
    assert content_type.startswith("text/plain")
    for expected in (
        'dra_scheduler_scheduling_attempts_total{result="scheduled"} 1.0',
        'dra_scheduler_refusals_total{kind="DevicesInUse"} 1.0',
        "dra_scheduler_pod_scheduling_seconds_count 1.0",
        "dra_scheduler_decision_seconds_count 1.0",
        'dra_scheduler_webhook_seconds_count{code="200",verb="filter"} 1.0',
        'dra_scheduler_bind_seconds_count{outcome="bound"} 1.0',
        'dra_scheduler_api_writes_total{outcome="unknown",verb="PUT"} 1.0',
        'dra_scheduler_queue_pods{queue="unschedulable"} 7.0',
        'dra_scheduler_relists_total{cause="gone",kind="Pod"} 1.0',
        'dra_scheduler_watch_events_total{kind="Pod"} 1.0',
        'dra_scheduler_undecodable_objects_total{kind="ResourceSlice"} 1.0',
        "dra_scheduler_recount_differences_total 2.0",
        "dra_scheduler_cache_lag_seconds_count 1.0",
        "dra_scheduler_foreign_allocation_total 1.0",
        'dra_scheduler_events_dropped_total{reason="queue_full"} 1.0',
        "dra_scheduler_pods_shed_total 1.0",
        "dra_scheduler_in_flight_claims 5.0",
    ):
        assert expected in lines


def test_a_count_kept_elsewhere_is_a_counter_with_its_value_of_now():
    metrics, kept = Metrics(), [3.0]
    metrics.watch_count("searches", "Searches run", lambda: kept[0])
    kept[0] = 5.0
    lines = metrics.render()[0].decode().splitlines()
    assert "# TYPE dra_scheduler_searches_total counter" in lines
    assert "dra_scheduler_searches_total 5.0" in lines


def test_a_name_is_counted_once():
    metrics = Metrics()
    metrics.watch_count("searches", "Searches run", lambda: 1.0)
    with pytest.raises(ValueError, match="searches is counted already"):
        metrics.watch_count("searches", "Searches run", lambda: 2.0)


def test_two_processes_worth_of_metrics_do_not_share_anything():
    one, two = Metrics(), Metrics()
    one.foreign_allocation()
    assert "dra_scheduler_foreign_allocation_total 0.0" in two.render()[0].decode()


async def test_a_late_event_loop_is_timed():
    metrics, clock = Metrics(), FakeClock()
    task = asyncio.create_task(metrics.watch_stalls(clock))
    await clock.advance(0.2)
    clock.skip(0.3)
    await clock.advance(0)
    task.cancel()
    await asyncio.wait({task})
    text = metrics.render()[0].decode()
    assert "dra_scheduler_loop_stall_seconds_count 1.0" in text
    assert 'dra_scheduler_loop_stall_seconds_bucket{le="0.1"} 0.0' in text
    assert 'dra_scheduler_loop_stall_seconds_bucket{le="0.5"} 1.0' in text
