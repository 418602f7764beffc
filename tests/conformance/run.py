"""Asks upstream afresh and compares: `python -m tests.conformance.run --cases 20000`.

First every recorded case (the record must still be upstream's answer, and ours), then random cases, then random CEL
expressions. Prints what differs and how often each feature and outcome occurred. Exit code 1 on any difference, or when a
feature or outcome was too rare to mean anything.
"""

import argparse
import sys

from tests.conformance import fuzz, fuzz_cel, record
from tests.conformance.answers import difference
from tests.conformance.cases import questions
from tests.conformance.ours import ours
from tests.conformance.upstream import Oracle


def check_record(oracle: Oracle) -> int:
    """Compare upstream's fresh answers to the record and to ours; returns the number of differences."""
    recorded, differences = record.load(), 0
    for name, question in questions().items():
        answer = oracle.ask(question)
        known = recorded.get(name)
        if known is None or known["question"] != record.fingerprint(question):
            print(f"{name}: not recorded (run with --record)")
            differences += 1
        elif not record.same_answer(known, answer):
            print(f"{name}: the record says {known['outcome']}, upstream now {answer['outcome']}")
            differences += 1
        problem = difference(answer, ours(question))
        if problem is not None:
            print(f"{name}: {problem}")
            differences += 1
    for kept in record.regressions():
        problem = difference(oracle.ask(kept["question"]), ours(kept["question"]))
        if problem is not None:
            print(f"regression {kept['question']['id']}: {problem}")
            differences += 1
    print(f"recorded cases: {len(recorded)}, differences: {differences}")
    return differences


def write_record(oracle: Oracle) -> None:
    """Ask every case twice and write the record; an answer that varies cannot be recorded."""
    entries = []
    for name, question in questions().items():
        first, second = (record.entry(question, oracle.ask(question)) for _ in range(2))
        if first != second:
            raise SystemExit(f"{name}: upstream's answer varies")
        entries.append(first)
    record.save(entries)
    print(f"recorded {len(entries)} answers in {record.RECORD}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="random allocation questions")
    parser.add_argument(
        "--cel", type=int, default=None, help="random CEL pairs (default: as --cases)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--record", action="store_true", help="write the record instead of checking"
    )
    parser.add_argument(
        "--keep-going", type=int, default=10, help="end after this many differences"
    )
    options = parser.parse_args(arguments)
    with Oracle("allocate") as oracle:
        if options.record:
            write_record(oracle)
            return 0
        failed = check_record(oracle) > 0
        failed |= not fuzz.run(oracle, options.cases, options.seed, options.keep_going)
    with Oracle("cel") as oracle:
        pairs = options.cases if options.cel is None else options.cel
        failed |= not fuzz_cel.run(oracle, pairs, options.seed, options.keep_going)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
