"""What a search in a thread shares with the event loop stands any switch between the two."""

from allocator import pools
from allocator.allocate import allocate
from allocator.cel import Compiler
from allocator.cel.library.regex import compile_regex
from allocator.features import Features
from allocator.outcome import Allocated
from allocator.pools import PoolRules, facts_of, gather_pools
from allocator.snapshot import AllocatedState, PreparedSlice, SliceIndex, Snapshot
from tests.builders import claim, device, device_class, node, request, resource_slice, share_id_of
from tests.threads import at_once

RULES = PoolRules(partitionable=True, groups=True, stable=False)


def prepared() -> PreparedSlice:
    return PreparedSlice(resource_slice("s", *[device(f"d{i}", model="a") for i in range(4)]))


def test_answers_of_many_questions_fall_out_in_both_threads() -> None:  # fault core 10
    facts = facts_of(prepared())

    def ask(who: str) -> None:
        for number in range(200_000):
            row = facts.row((who, number))
            assert len(row) == 4

    at_once(lambda: ask("loop"), lambda: ask("thread"))

    assert len(facts.rows) <= pools._MOST_ROWS + 1


def test_both_threads_see_the_same_devices_of_a_slice() -> None:
    for _ in range(3_000):
        one = prepared()
        seen: list[object] = []
        at_once(*[lambda one=one, seen=seen: seen.append(facts_of(one))] * 2)
        assert seen[0] is seen[1]
        assert facts_of(one) is seen[0]


def test_pools_gathered_in_both_threads_have_the_same_devices() -> None:
    for _ in range(1_000):
        slices = SliceIndex.build([resource_slice("s", device("d"), pool="p", node="n1")])
        seen: list[object] = []

        def gather(slices: SliceIndex = slices, seen: list[object] = seen) -> None:
            [pool] = gather_pools(node("n1"), slices, RULES)
            seen.append(pool.candidates[0])

        at_once(gather, gather)
        assert seen[0] is seen[1]


def test_values_and_problems_of_devices_are_the_same_in_both_threads() -> None:
    for _ in range(300):
        facts = facts_of(
            PreparedSlice(
                resource_slice("s", *[device(f"d{i}", version="1.2.3") for i in range(20)])
            )
        )

        def read(facts: pools.SliceFacts = facts) -> None:
            for index, candidate in enumerate(facts.candidates):
                assert candidate.problem is None
                assert facts.values(index, hide_sharing=False).error is None
                assert facts.values(index, hide_sharing=True).env[3] is False

        at_once(read, read)


def test_a_compiler_is_shared() -> None:
    compiler = Compiler(size=2)

    def compile_many(who: int) -> None:
        for number in range(150):
            program = compiler.selector(f"device.driver == 'd{who}-{number % 5}'")
            assert program.expression.endswith(f"{number % 5}'")

    at_once(lambda: compile_many(1), lambda: compile_many(2))


def test_patterns_are_shared() -> None:
    def search(who: int) -> None:
        for number in range(2_500):
            assert compile_regex(f"^{who}.*{number}$").search(f"{who}x{number}")

    at_once(lambda: search(1), lambda: search(2))


def test_whole_searches_beside_each_other_answer_as_one_alone() -> None:
    """Tenants bring new selectors all the time, in the loop and in the thread."""
    devices = [device(f"d{i}", model="ab"[i % 2], size=i) for i in range(6)]
    slices = [
        resource_slice("own", *devices[:3], pool="own", node="n1"),
        resource_slice("shared", *devices[3:], pool="shared", node=None, all_nodes=True),
    ]
    snapshot = Snapshot(
        slices=SliceIndex.build(slices),
        classes={"gpu": device_class()},
        allocated=AllocatedState({}),
    )

    def search(who: str) -> None:
        compiler = Compiler()
        for number in range(400):
            wanted = number % 6
            text = (
                f"device.attributes['gpu.example.com'].size == {wanted}"
                f" && '{who}{number}' != '' && device.driver.matches('^gpu.*{number % 10}?')"
            )
            outcome = allocate(
                [claim("c", request("r", text))],
                node("n1"),
                snapshot,
                features=Features(),
                cel=compiler,
                new_share_id=share_id_of,
            )
            assert isinstance(outcome, Allocated)
            [result] = outcome.allocations[0].devices.results or ()
            assert result.device == f"d{wanted}"

    at_once(lambda: search("loop"), lambda: search("thread"))
