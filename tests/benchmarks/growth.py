"""`growth`: decisions a second with nobody writing, at 5,000 nodes over 500."""

from tests.benchmarks.inmemory import decide
from tests.benchmarks.row import Row

PODS = 1_000


async def growth(repetitions: int) -> list[Row]:
    """The cost of a decision must not grow with the cluster."""
    small = [decide(500, PODS).per_second for _ in range(repetitions)]
    big = [decide(5_000, PODS) for _ in range(repetitions)]
    return [
        Row(
            "growth",
            f"{PODS} template pods, 5,000 nodes x 8 over 500 x 8, null client",
            [each.per_second for each in big],
            small,
            "decisions/s",
            reach=0.7,
            notes={"worst_decision_ms": round(max(each.worst_seconds for each in big) * 1000, 1)},
        )
    ]
