"""Asks upstream afresh and compares: `python -m tests.conformance.run --cases 20000`.

First every recorded case (the record must still be upstream's answer, and ours), then random cases; quantities, CEL
expressions and API validation in the same way. Prints what differs and how often each feature and outcome occurred. Exit code 1 on any difference, or when a
feature or outcome was too rare to mean anything.
"""

import argparse
import json
import sys

from allocator.cel import Compiler
from tests.conformance import (
    cel_environment,
    cel_second_opinion,
    fuzz,
    fuzz_cel,
    fuzz_quantity,
    fuzz_validate,
    record,
    record_cel,
)
from tests.conformance.answers import difference
from tests.conformance.cases import questions
from tests.conformance.ours import ours
from tests.conformance.upstream import Oracle

_NO_OBJECTS = -1


def check_record(oracle: Oracle) -> int:
    """Compare upstream's fresh answers to the record and to ours; returns the number of differences."""
    recorded, differences, cel = record.load(), 0, Compiler()
    for name, question in questions().items():
        answer = oracle.ask(question)
        known = recorded.get(name)
        if known is None or known["question"] != record.fingerprint(question):
            print(f"{name}: not recorded (run with --record)")
            differences += 1
        elif not record.same_answer(known, answer):
            print(f"{name}: the record says {known['outcome']}, upstream now {answer['outcome']}")
            differences += 1
        problem = difference(answer, ours(question, cel))
        if problem is not None:
            print(f"{name}: {problem}")
            differences += 1
    for kept in record.regressions():
        problem = difference(oracle.ask(kept["question"]), ours(kept["question"], cel))
        if problem is not None:
            print(f"regression {kept['question']['id']}: {problem}")
            differences += 1
    print(f"recorded cases: {len(recorded)}, differences: {differences}")
    return differences


def check_corpus(oracle: Oracle) -> int:
    """Ask the CEL corpus and the kept differences afresh; returns the number of wrong verdicts in the files."""
    differences = 0
    folder = fuzz_cel.KEPT.parent
    files = (folder / "cel-corpus.jsonl", folder / "limits.jsonl", fuzz_cel.KEPT)
    cases = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for case in cases:
        answer = oracle.ask(case)
        if answer["result"] != case["expected"]:
            print(
                f"{case['id']}: the corpus says {case['expected']}, upstream now {answer['result']}"
            )
            differences += 1
    print(f"CEL corpus: {len(cases)} cases, differences from the record: {differences}")
    return differences


def check_letters(oracle: Oracle) -> int:
    """Ask the recorded random pairs and corners afresh; returns the number of wrong letters in the record."""
    differences = total = 0
    for name in record_cel.RECORDS:
        for asked, letter in zip(record_cel.questions(name), record_cel.read(name), strict=True):
            total += 1
            if letter == "?":
                continue
            fresh = oracle.ask(asked)["result"]
            if record_cel.LETTERS.get(fresh, "v") != letter:
                print(
                    f"{asked['id']}: {asked['expr'][:200]}\n  the record says {letter}, upstream now {fresh}"
                )
                differences += 1
    print(f"recorded CEL verdicts: {total}, differences from the record: {differences}")
    return differences


def check_quantities(oracle: Oracle) -> int:
    """Ask the recorded quantities afresh; returns the number of wrong answers in the record."""
    entries = [json.loads(line) for line in fuzz_quantity.RECORD.read_text().splitlines()]
    wrong = [entry for entry in entries if oracle.ask(entry["question"]) != entry["answer"]]
    for entry in wrong:
        print(f"{entry['question']}: the record says {entry['answer']}, upstream now differs")
    print(f"recorded quantities: {len(entries)}, differences from the record: {len(wrong)}")
    return len(wrong)


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
    parser.add_argument("--objects", type=int, default=None,
                        help="random objects for validation (default: a tenth of the cases); -1: do not build that program, "
                             "which needs all of k8s.io/kubernetes")  # fmt: skip
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
            if options.objects != _NO_OBJECTS:
                with (
                    Oracle(program="validate") as validation,
                    fuzz_validate.alpha_oracle() as alpha,
                ):
                    fuzz_validate.write_record(validation, alpha)
            return 0
        failed = check_record(oracle) > 0
        failed |= not fuzz.run(oracle, Compiler(), options.cases, options.seed, options.keep_going)
    with Oracle("quantity") as oracle:
        failed |= check_quantities(oracle) > 0
        failed |= not fuzz_quantity.run(oracle, options.cases, options.seed, options.keep_going)
    with Oracle("cel") as oracle:
        pairs = options.cases if options.cel is None else options.cel
        failed |= cel_environment.check() > 0
        failed |= check_corpus(oracle) > 0
        failed |= check_letters(oracle) > 0
        failed |= cel_second_opinion.check(oracle) > 0
        failed |= not fuzz_cel.run(oracle, pairs, options.seed, options.keep_going)
    if options.objects != _NO_OBJECTS:
        objects = options.cases // 10 if options.objects is None else options.objects
        with Oracle(program="validate") as oracle, fuzz_validate.alpha_oracle() as alpha:
            failed |= fuzz_validate.check_record(oracle, alpha) > 0
            failed |= not fuzz_validate.run(
                oracle, alpha, objects, options.seed, options.keep_going
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
