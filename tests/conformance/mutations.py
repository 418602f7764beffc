"""Do the tests notice? Breaks the allocator in one place at a time: `python -m tests.conformance.mutations [TESTS...]`.

Each mutation is one text replacement in a copy of the tree; `pytest -x tests/allocator` has to fail within 30 seconds of CPU
time. Prints a table; exit code 1 when a mutation survives.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_TESTS = ("tests/allocator",)
_SECONDS = 30
_CAUGHT = "caught"
_TOO_LONG = "NOT CAUGHT IN TIME"  # the tests run on, or never end
_VERDICTS = {0: "SURVIVED", 1: _CAUGHT, -signal.SIGXCPU: _TOO_LONG, -signal.SIGKILL: _TOO_LONG}
_COPIED = ("allocator", "scheduler", "tests", "pyproject.toml")


class Mutation(NamedTuple):
    """Replace `old`, which is there exactly once, by `new`."""

    what: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation("binding conditions do not move a pool", "pools.py", "(pool.waits and not rules.stable, pool.id)", "(False, pool.id)"),
    Mutation("an empty list of conditions does not move a pool", "pools.py",
             "c.device.binding_conditions is not None for", "bool(c.device.binding_conditions) for"),
    Mutation("slices keep input order", "pools.py", "sorted(kept, key=lambda prepared: prepared.name)", "list(kept)"),
    Mutation("a newer generation elsewhere is not noticed", "pools.py", "if generation > first.generation:", "if generation > 10**9:"),
    Mutation("more slices than announced are complete", "pools.py",
             "if len(whole) == first.resource_slice_count", "if len(whole) >= first.resource_slice_count"),
    Mutation("an older generation replaces the newer", "pools.py", "elif generation > current:", "elif generation < current:"),
    Mutation("unknown counters are not noticed", "pools.py",
             "_collect_counter_sets(counters, counter_sets) or _unknown_counter(",
             "_collect_counter_sets(counters, counter_sets) and _unknown_counter("),
    Mutation("perDeviceNodeSelection: false passes a closed gate", "pools.py",
             "spec.per_device_node_selection is not None", "spec.per_device_node_selection"),
    Mutation("a constraint on the parent request is forgotten", "requests.py", "or plain in constraint.requests", "or not plain"),
    Mutation("32 devices are too many", "requests.py", "if least > MAX_RESULTS - total:", "if least >= MAX_RESULTS - total:"),
    Mutation("selectors of the request come first", "requests.py", "expressions=of_class + own", "expressions=own + of_class"),
    Mutation("the stable allocator minds capacity requests", "requests.py",
             "if self._features.consumable_capacity or self._stable:", "if self._features.consumable_capacity:"),
    Mutation("the limit ends the attempt one device early", "search.py",
             "if needed - k > MAX_RESULTS - len(self._placement.results[c]):", "if needed - k >= MAX_RESULTS - len(self._placement.results[c]):"),
    Mutation("a request may take a shareable device twice", "search.py", "frame.position = place + 1\n                return (\n"
             "                    alternative.claim,\n                    alternative.request,\n                    alternative.index,\n"
             "                    frame.number + 1,\n                    place + 1,",
             "frame.position = place + 1\n                return (\n"
             "                    alternative.claim,\n                    alternative.request,\n                    alternative.index,\n"
             "                    frame.number + 1,\n                    place,"),
    Mutation("one claim takes a device twice for admins", "placement.py",
             "if not shareable and self._taken.get(place, 0) & bit:", "if shareable and self._taken.get(place, 0) & bit:"),
    Mutation("all takes devices of other claims", "placement.py",
             "        elif place in self.exclusive or place in self._taken:\n            return IN_USE", "        elif place in self._taken:\n            return IN_USE"),
    Mutation("a refused device is not taken back", "placement.py",
             "            self.trail.undo_to(mark)\n            if not must", "            if not must"),
    Mutation("going back takes nothing back", "search.py", "self._placement.trail.undo_to(frame.mark)", "self._placement.trail.mark()"),
    Mutation("a share known by its id pays counters again", "placement.py", "or place in self._shared or place in self._sharing", "or place in self._sharing"),
    Mutation("devices of other nodes use no counters", "placement.py", "for prepared in (*pool.slices, *pool.elsewhere):", "for prepared in pool.slices:"),
    Mutation("all is content with nothing", "search.py", "if alternative.all_devices and not needed:", "if alternative.all_devices and needed < 0:"),
    Mutation("all overlooks incomplete pools", "search.py", "if not pool.is_usable:", "if pool.state is PoolState.INVALID:"),
    Mutation("taints are ignored", "placement.py", "and self._taints_on\n", "and not self._taints_on\n"),
    Mutation("counters may not be used up", "counters.py", "all(amount <= amounts[key]", "all(amount < amounts[key]"),
    Mutation("an overdrawn counter set blocks nobody", "counters.py", "if available.overdrawn:", "if not available.amounts:"),
    Mutation("a device without groups joins any", "counters.py", "return state == WITHOUT_GROUPS", "return True"),
    Mutation("lists are compared with the latest only", "constraints.py", "(state[0], common) if common", "(state[0], values[1]) if common"),
    Mutation("lists of other types are compared", "constraints.py", "state[1] & values[1] if state[0] == values[0] else None", "state[1] & values[1]"),
    Mutation("any domain is the driver's", "constraints.py", "if not slash or domain != driver:", "if not slash:"),
    Mutation("a toleration covers every effect", "taints.py",
             "if toleration.effect and toleration.effect != taint.effect:", "if toleration.effect and toleration.effect == '-':"),
    Mutation("an empty operator tolerates nothing", "taints.py", 'in ("", "Equal")', 'in ("Equal",)'),
    Mutation("a capacity may not be used up", "capacity.py", "if total > capacities[name].value.nanos:", "if total >= capacities[name].value.nanos:"),
    Mutation("amounts are rounded down to the step", "capacity.py", "steps = -((minimum - requested) // step)", "steps = (requested - minimum) // step"),
    Mutation("amounts below the minimum stay", "capacity.py", "            return valid.min, False\n", "            return requested, False\n"),
    Mutation("the default of a policy is ignored", "capacity.py", "            return policy.default, False\n", "            return capacity.value, False\n"),
    Mutation("negative amounts pass", "capacity.py", "if amount.nanos < 0:", "if amount.nanos < -(10**40):"),
    Mutation("requirements with other order of values are kept twice", "result.py",
             "and set(known.values or ()) == values", "and known.values == requirement.values"),
    Mutation("bindsToNode is ignored", "result.py", "(rules.binds and device.binds_to_node)", "(rules.binds and not rules.binds)"),
    Mutation("configuration for some is for all", "result.py", "if entry.requests and all(", "if entry.requests and any("),
    Mutation("configuration of other alternatives is kept", "result.py", "if not config.requests or any(", "if config.requests is not None or any("),
    Mutation("binding conditions do not need the incubating allocator", "features.py",
             "or self.fractional_capacity_range or self.binding:", "or self.fractional_capacity_range:"),
    Mutation("an invalid pool is no node error", "allocate.py", "if any(pool.state is PoolState.INVALID for pool in pools):",
             "if all(pool.state is PoolState.INVALID for pool in pools) and not pools:"),
    Mutation("admin access of others occupies devices", "snapshot.py", "                if result.admin_access:\n", "                if result.admin_access is False:\n"),
    Mutation("only the last share of a device counts", "snapshot.py",
             "consumed[name] = consumed[name] + amount if name in consumed else amount", "consumed[name] = amount"),
    Mutation("gate of the prioritized list ignored", "requests.py",
             "if request.first_available and not self._features.prioritized_list:", "if request.first_available is ...:"),
    Mutation("gate of derived attributes ignored", "requests.py", "self._experimental and self._features.derived_attributes\n",
             "self._experimental\n"),
    Mutation("gate of admin access ignored", "requests.py", "and not self._features.admin_access\n", "and spec is None\n"),
    Mutation("gate of list attributes ignored", "requests.py",
             "lists = self._experimental and self._features.list_type_attributes", "lists = self._experimental"),
    Mutation("gate of fractional ranges ignored", "placement.py", "self._fractional = features.fractional_capacity_range",
             "self._fractional = True"),
    Mutation("gate of fractional ranges never open", "placement.py", "self._fractional = features.fractional_capacity_range",
             "self._fractional = False"),
    Mutation("gate of binding conditions ignored by the search", "placement.py", "self._binding = features.binding",
             "self._binding = True"),
    Mutation("gate of groups hides no pool", "pools.py", "return not rules.groups and facts_of(prepared).uses_groups", "return False"),
    Mutation("gate of partitions ignored by pools", "pools.py", "    if not rules.partitionable:\n        spec =",
             "    if rules is None:\n        spec ="),
    Mutation("gate of optional node operations ignored", "placement.py",
             "if not self._prepared.features.optional_node_operations:", "if self._prepared is None:"),
    Mutation("binding conditions need one gate only", "features.py", "return self.device_binding_conditions and self.resource_claim_device_status",
             "return self.device_binding_conditions"),
)  # fmt: skip


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))


def _run(tree: Path, tests: Sequence[str], *, limited: bool = True) -> tuple[int, float]:
    """Run the tests in a tree: exit code, and CPU seconds (wall time says more about the machine than about the tests)."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-x", "-q", *tests]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, check=False,
        preexec_fn=_limit_cpu if limited else None,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(tests: Sequence[str]) -> int:
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in _COPIED:
            source = _ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "oracle")
                )
            else:
                shutil.copy(source, tree / name)
        code, seconds = _run(tree, tests, limited=False)
        if code:
            print(f"the tests fail without any mutation (exit code {code}, {seconds:.1f} s)")
            return 1
        print(f"{'no mutation: all tests pass':<72} {seconds:6.1f} s", flush=True)
        for number, mutation in enumerate(MUTATIONS, 1):
            path = tree / "allocator" / mutation.file
            text = path.read_text()
            if text.count(mutation.old) != 1:
                print(
                    f"{mutation.what}: its text is there {text.count(mutation.old)} times in {mutation.file}"
                )
                survived.append(mutation.what)
                continue
            path.write_text(text.replace(mutation.old, mutation.new))
            code, seconds = _run(tree, tests)
            path.write_text(text)
            verdict = _VERDICTS.get(code, f"tests did not run (exit code {code})")
            counted = f"{number:2} of {len(MUTATIONS)}"
            print(f"{counted} {mutation.what:<63} {seconds:6.1f} s  {verdict}", flush=True)
            if verdict != _CAUGHT:
                survived.append(mutation.what)
    print(
        f"{len(MUTATIONS) - len(survived)} of {len(MUTATIONS)} mutations caught, {len(survived)} survived"
    )
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or _TESTS))
