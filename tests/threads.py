"""Several threads at once, which take turns as often as the interpreter can."""

import sys
import threading
from collections.abc import Callable


def at_once(*works: Callable[[], object]) -> None:
    """Run all at the same time; raises what one of them raises."""
    problems: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        try:
            work()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if problems:
        raise problems[0]
