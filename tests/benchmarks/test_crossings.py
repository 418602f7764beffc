"""The counter counts what it says; and small worlds of `indexed-job` share one question."""

from scheduler.clock import SystemClock
from tests.benchmarks.crossings import CASES, Crossings, of_engine
from tests.benchmarks.indexed_job import of_job, per_second, template


def test_a_call_into_another_module_is_counted_with_both_names() -> None:
    with Crossings() as counted:
        SystemClock().monotonic()  # from a test, which is no module of ours

    assert counted.count == 0
    assert ("scheduler.engine.engine", "scheduler.plugins.pre_filter") in of_engine().between


def test_every_case_decides() -> None:
    assert all(case().count > 0 for case in CASES.values())


def test_pods_of_an_indexed_job_ask_one_question() -> None:
    assert per_second(of_job, 3, 6) > 0
    assert per_second(template, 3, 6) > 0
