"""The named cases are what their names say, to our own allocator; upstream is asked by the bench."""

import pytest

from allocator.cel import Compiler
from tests.benchmarks import allocator as bench
from tests.conformance.ours import ours


def _devices(answer):
    return [result["device"] for result in answer["results"][0]["devices"]["results"]]


@pytest.mark.parametrize(
    ("case", "devices"),
    [
        (bench.one_node(), ["gpu-0"]),
        (bench.cluster(3), ["gpu-0"]),
        (bench.match_attribute(), ["gpu-6", "gpu-7", "nic-6", "nic-7"]),
        (bench.counters(), [*(f"gpu-0-part-{part}" for part in range(4)), "gpu-1", "gpu-2"]),
    ],
    ids=lambda value: value.name if isinstance(value, bench.Case) else "",
)
def test_a_case_has_the_answer_that_makes_it_worth_timing(case, devices):
    assert _devices(ours(case.question(), Compiler())) == devices


def test_the_unsatisfiable_case_is_64_devices_that_differ_in_one_attribute_of_three_values():
    [made] = bench.unsatisfiable().slices
    groups = {str(device["attributes"]) for device in made["spec"]["devices"]}
    assert (len(made["spec"]["devices"]), len(groups)) == (64, 3)


def test_a_compiler_of_a_case_knows_every_selector_before_the_clock_starts(monkeypatch):
    question = bench.counters().question()
    compiler = bench.compiled(question)
    monkeypatch.setattr(
        "allocator.cel.run.cache.compile_selector", lambda _: pytest.fail("compiled")
    )
    assert ours(question, compiler)["outcome"] == "allocated"


def test_in_a_whole_cluster_every_node_fits_to_the_end():
    asked = bench.Cluster(bench.cluster(3))
    for name in map(str, range(bench.DEVICES)):
        state, fitting, _ = asked.ask(asked.add_pod(name))
        assert fitting == 3
        asked.place(state)
