"""What must hold, whoever schedules: a pure judge of recorded API objects, the same for every kind of test.

It reads plain JSON as the API server shows it, and never the process that is judged. Of the product it uses quantities,
and the CEL evaluator, which is tested against upstream's own.
"""

from tests.invariants.history import (
    Call,
    Change,
    Entry,
    Mark,
    Restored,
    Sent,
    read_trace,
    write_trace,
)
from tests.invariants.judge import Finding, Judge, Terms, judge

__all__ = [
    "Call",
    "Change",
    "Entry",
    "Finding",
    "Judge",
    "Mark",
    "Restored",
    "Sent",
    "Terms",
    "judge",
    "read_trace",
    "write_trace",
]
