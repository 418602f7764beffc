"""The search: depth first over claims, requests, alternatives and devices; the first full solution comes first.

All that changes while searching lies in a few containers that only `Trail` writes, so going back is one call. The
stack is explicit: a pod with many claims does not run into Python's recursion limit, and a search can stop anywhere.

Source: allocateOne, allocateDevice in structured/internal/*/allocator_*.go; dra-allocator 3.3 to 3.8.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from allocator.capacity import Consumption, add_amounts, fits
from allocator.constraints import REJECTED
from allocator.counters import (
    Available,
    CounterKey,
    GroupState,
    admits_groups,
    available_counters,
    charge,
    join_groups,
)
from allocator.model.devices import DeviceAttribute, DeviceCounterConsumption, DeviceID
from allocator.model.nodes import Node
from allocator.outcome import DeviceReason, Fatal, Reason, ReasonKind
from allocator.pools import Candidate, Pool, PoolState, facts_of
from allocator.report import NULL_REPORTER, Reporter
from allocator.requests import (
    MAX_RESULTS,
    Alternative,
    FatalError,
    PreparedClaims,
    PreparedRequest,
    consumption_of,
    too_many,
)
from allocator.result import ChosenDevice, ChosenRequest
from allocator.snapshot import NOTHING_USED, AllocatedState, PoolUsage
from allocator.taints import first_untolerated

STAGES: Final = (
    ReasonKind.NO_MATCHING_DEVICE,
    ReasonKind.FEATURE_DISABLED,
    ReasonKind.NODE_FEATURE_MISSING,
    ReasonKind.DEVICES_IN_USE,
    ReasonKind.CAPACITY_EXHAUSTED,
    ReasonKind.COUNTERS_EXHAUSTED,
    ReasonKind.INCOMPATIBLE_GROUP,
    ReasonKind.DEVICE_TAINTED,
    ReasonKind.CONSTRAINT_UNSATISFIED,
)
"""How far a device came, by stage number."""
PLACED: Final = -1
(
    NO_MATCH,
    GATED,
    NODE_LACKS,
    IN_USE,
    CAPACITY,
    COUNTERS,
    GROUPS,
    TAINTED,
    CONSTRAINED,
) = range(len(STAGES))

_FOR_GOOD: Final = frozenset((GATED, NODE_LACKS, TAINTED))
"""Stages that depend on device, request and node alone, so that trying again ends there again."""

DEVICE_TEXTS: Final = (
    "class, selectors or node do not match",
    "needs a feature gate that is off",
    "the node lacks a feature that the device needs",
    "in use",
    "not enough capacity left",
    "not enough shared counters left",
    "its compatibility groups do not go with the devices beside it",
    "a taint is not tolerated",
    "a constraint of the claim is not satisfied",
)
"""What a device failed on, by stage number."""

NODE_OPERATIONS_FEATURE: Final = "DRAOptionalNodeOperations"
_STOP_EVERY: Final = 64  # candidates between two questions whether to stop

_ABSENT: Final[Any] = object()
_APPENDED: Final[Any] = object()


class Trail:
    """Writes containers and remembers how they were; `undo_to` takes the latest changes back first."""

    __slots__ = ("_log",)

    def __init__(self) -> None:
        self._log: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        """Where to go back to."""
        return len(self._log)

    def put(self, target: dict[Any, Any], key: object, value: object) -> None:
        """Set an entry of a dict."""
        self._log.append((target, key, target.get(key, _ABSENT)))
        target[key] = value

    def replace(self, target: list[Any], index: int, value: object) -> None:
        """Set an item of a list."""
        self._log.append((target, index, target[index]))
        target[index] = value

    def append(self, target: list[Any], item: object) -> None:
        """Add an item to a list."""
        self._log.append((target, _APPENDED, None))
        target.append(item)

    def undo_to(self, mark: int) -> None:
        """Take back everything after a mark."""
        log = self._log
        while len(log) > mark:
            target, key, old = log.pop()
            if key is _APPENDED:
                target.pop()
            elif old is _ABSENT:
                del target[key]
            else:
                target[key] = old


class Solution(msgspec.Struct, frozen=True):
    """Devices and alternatives for every claim, in the order of the claims."""

    devices: tuple[tuple[ChosenDevice, ...], ...]
    requests: tuple[tuple[ChosenRequest, ...], ...]


class Limits(msgspec.Struct, frozen=True):
    """How far a search goes.

    Attributes:
        budget: candidate devices after which it gives up; None for no limit.
        should_stop: asked now and then; true ends it.
        shortcuts: leave out what cannot lead to a solution nor to an error; off only to count steps as upstream does.
    """

    budget: int | None = None
    should_stop: Callable[[], bool] | None = None
    shortcuts: bool = True


class _Frame:
    """A decision that can be revised.

    Attributes:
        alternative: of the decision.
        number: which device of the request, for devices.
        position: the next device to try, or the alternative being tried.
        mark: the trail before the decision.
        exceeded: every alternative so far would exceed the claim's limit, for choices.
    """

    __slots__ = ("alternative", "exceeded", "mark", "number", "position")

    def __init__(self, alternative: Alternative, number: int, position: int, mark: int) -> None:
        self.alternative = alternative
        self.number = number
        self.position = position
        self.mark = mark
        self.exceeded = True


class _Exact(_Frame):
    """The next device of a request that counts: any device after the one before."""

    __slots__ = ()


class _Next(_Frame):
    """The next device of a request for all: only that one will do."""

    __slots__ = ()


class _Choice(_Frame):
    """An alternative of a request."""

    __slots__ = ()


_BORDER: Final = None  # on the stack between two claims: a limit exceeded in the later claim is a plain failure there

_Todo = tuple[int, int, int | None, int, int]
"""Claim, request, chosen alternative, device number, first device to try."""
_SOLVED: Final[_Todo] = (-1, -1, None, 0, 0)


class Search:
    """One search on one node. Make a new one each time; `solutions` yields them in upstream's order.

    Attributes:
        steps: solver steps so far, counted as upstream counts them.
        tried: candidate devices looked at so far.
        reached: the furthest claim and request that the search entered.
        stages: (claim, request) -> furthest stage that a refused device reached.
        limited: requests that would have exceeded the claim's limit at some point.
        taken_from: (claim, request) -> places of devices that it could not have because the pod took them itself.
    """

    def __init__(
        self,
        prepared: PreparedClaims,
        node: Node,
        pools: Sequence[Pool],
        allocated: AllocatedState,
        limits: Limits,
        reporter: Reporter = NULL_REPORTER,
    ) -> None:
        features = prepared.features
        self._prepared = prepared
        self._node = node
        self._pools = pools
        self._allocated = allocated
        self._budget = sys.maxsize if limits.budget is None else limits.budget
        self._should_stop = limits.should_stop
        self._ask_stop = None if limits.should_stop is None else self._check_stop
        self._pause_at = min(self._budget, _STOP_EVERY) + 1
        self._shortcuts = limits.shortcuts
        self._went_back = False
        self._asked_for_hope: set[tuple[int, int]] = set()
        self._reporter: Reporter | None = None if reporter is NULL_REPORTER else reporter
        self._selectors = prepared.selectors
        self._consumable = features.consumable_capacity
        self._fractional = features.fractional_capacity_range
        self._binding = features.binding
        self._partitionable = features.partitionable_devices
        self._taints_on = features.device_taints
        self._groups_on = prepared.rules.groups

        self._candidates, self._bases = _flatten(pools)
        self._exclusive: set[int] = set()
        self._shared: set[int] = set()
        self._consumed_by_others: dict[int, Any] = {}
        self._usage: dict[int, PoolUsage] = {}
        self._note_usage()

        self._stack: list[_Frame | None] = []
        self._exceeded = False
        self._trail = Trail()
        self._results: list[list[ChosenDevice]] = [[] for _ in prepared.claims]
        self._selected: dict[tuple[int, int], int] = {}
        self._taken: dict[int, int] = {}  # place of a device -> claims it is taken for, a bit each
        self._sharing: dict[int, Any] = {}  # place of a device -> amounts consumed in this call
        self._counters: dict[int, dict[CounterKey, int]] = {}  # pool index -> taken in this call
        self._groups: dict[tuple[int, str], GroupState] = {}
        self._states: list[list[Any]] = [[None] * len(c.constraints) for c in prepared.claims]

        self._answers: dict[tuple[tuple[int, int], int], list[Any]] = {}
        self._attributes: dict[tuple[str, int], DeviceAttribute | None] = {}
        self._available: dict[int, Available] = {}
        self._group_baseline: dict[int, dict[str, GroupState]] = {}
        self._all: dict[tuple[int, int, int], tuple[int, ...]] = {}

        self.steps = 0
        self.tried = 0
        self.reached = (0, 0)
        self.stages: dict[tuple[int, int], int] = {}
        self.limited: set[tuple[int, int]] = set()
        self.taken_from: dict[tuple[int, int], set[int]] = {}

    def _note_usage(self) -> None:
        """Translate what other claims hold into places of candidates."""
        base = 0
        for index, pool in enumerate(self._pools):
            if not pool.candidates:
                continue
            usage = self._allocated.usage(pool.id)
            if usage is not NOTHING_USED:
                self._usage[index] = usage
                positions = pool.positions
                for name in usage.devices:
                    if name in positions:
                        self._exclusive.add(base + positions[name])
                if self._consumable:
                    for name in usage.shares:
                        if name in positions:
                            self._shared.add(base + positions[name])
                    for name, amounts in usage.consumed.items():
                        if name in positions:
                            self._consumed_by_others[base + positions[name]] = amounts
            base += len(pool.candidates)

    # Preparation of mode All

    def prepare_all(self) -> None:
        """List the devices of every request in mode All and check the limits that depend on them.

        Raises:
            FatalError: a pool is incomplete or invalid, a selector fails, an amount is not representable, or a claim
                would hold too many devices.
        """
        claims = self._prepared.claims
        for claim in claims:
            total = 0
            depends_on_node = False
            for request in claim.requests:
                least = None
                for alternative in request.alternatives:
                    if alternative.all_devices:
                        depends_on_node = True
                        self._all[_key(alternative)] = self._list_all(alternative)
                    needed = self._needed(alternative)
                    least = needed if least is None else min(least, needed)
                unfinished = claim is claims[-1] and request is claim.requests[-1]
                if least is None or (unfinished and self._prepared.incomplete):
                    return
                if least > MAX_RESULTS - total:
                    raise FatalError(Fatal(too_many(claim.claim, request.name), depends_on_node))
                total += least

    def _list_all(self, alternative: Alternative) -> tuple[int, ...]:
        """Collect what a request for all means here, pool by pool.

        Differs from what one expects: a broken pool of an unrelated driver ends the attempt as well.
        """
        found: list[int] = []
        base = 0
        for pool in self._pools:
            if not pool.is_usable:
                raise FatalError(Fatal(_all_refused(alternative, pool), depends_on_node=True))
            end = base + len(pool.candidates)
            for place in range(base, end):
                if place % _STOP_EVERY == 0:
                    self._check_stop(alternative)
                if self._is_wanted(alternative, place):
                    found.append(place)
            base = end
        return tuple(found)

    def _is_wanted(self, alternative: Alternative, place: int) -> bool:
        """Say whether a device is one of "all": selectable, and large enough when nobody uses it."""
        answer = self._answers_to(alternative)[place] = self._judge(alternative, place)
        if answer.__class__ is int:
            self._refuse(alternative, place, answer)
            return False
        if self._consumable and not answer.fits_empty:
            self._refuse(alternative, place, CAPACITY)
            return False
        return True

    # The search

    def solutions(self) -> Iterator[Solution]:
        """Search; solutions come in upstream's order.

        Raises:
            FatalError: what upstream answers with an error, an exceeded budget or a stop.
        """
        todo: _Todo | None = (0, 0, None, 0, 0)
        try:
            while self._run(todo):
                yield self._solution()
                todo = None
        finally:
            if self._reporter is not None:
                self._reporter.finished(self.steps, self.tried)

    def is_clean(self) -> bool:
        """Say whether nothing is placed, as before the search and after one that found nothing more."""
        running = (
            self._selected,
            self._taken,
            self._sharing,
            self._groups,
            *self._counters.values(),
        )
        return not (
            any(running)
            or any(self._results)
            or any(state is not None for states in self._states for state in states)
        )

    def _solution(self) -> Solution:
        requests = tuple(
            tuple(self._chosen(c, r, request) for r, request in enumerate(claim.requests))
            for c, claim in enumerate(self._prepared.claims)
        )
        return Solution(tuple(tuple(devices) for devices in self._results), requests)

    def _chosen(self, c: int, r: int, request: PreparedRequest) -> ChosenRequest:
        alternative = request.alternatives[self._selected.get((c, r), 0)]
        name = alternative.result_name if request.first_available else None
        return ChosenRequest(request.name, name, alternative.device_class)

    def _run(self, todo: _Todo | None) -> bool:
        """Search from a position, or (None) from the latest decision on; true at a solution."""
        while True:
            if todo is None:
                todo = self._back()
                if todo is None:
                    return False
            todo = self._enter(*todo)
            if todo is _SOLVED:
                self._exceeded = False
                return True

    def _enter(  # noqa: PLR0911 - one return a rule, in upstream's order
        self, c: int, r: int, choice: int | None, k: int, start: int
    ) -> _Todo | None:
        """Take one step down: what to do next, `_SOLVED`, or None when this way leads nowhere."""
        self.steps += 1
        claims = self._prepared.claims
        if c >= len(claims):
            return _SOLVED
        requests = claims[c].requests
        if r >= len(requests):
            self._stack.append(_BORDER)
            return c + 1, 0, None, 0, 0
        if (c, r) > self.reached:
            self.reached = (c, r)
        request = requests[r]
        alternative = request.alternatives[choice or 0]
        if self._should_stop is not None:
            self._check_stop(alternative)
        if choice is None and request.first_available:
            self._stack.append(_Choice(alternative, 0, 0, self._trail.mark()))
            self._trail.put(self._selected, (c, r), 0)
            return c, r, 0, 0, 0
        needed = self._needed(alternative)
        if alternative.all_devices and not needed:
            return None
        if k >= needed:
            return c, r + 1, None, 0, 0
        if needed - k > MAX_RESULTS - len(self._results[c]):
            self._exceeded = True
            self.limited.add((c, r))
            return None
        mark = self._trail.mark()
        if alternative.all_devices:
            self.tried += 1
            if self.tried >= self._pause_at:
                self._pause(alternative)
            if not self._place(alternative, self._all[_key(alternative)][k], must=True):
                return None
            self._stack.append(_Next(alternative, k, 0, mark))
            return c, r, choice, k + 1, 0
        frame = _Exact(alternative, k, start, mark)
        self._stack.append(frame)
        return self._advance(frame)

    def _back(self) -> _Todo | None:
        """Revise the latest decision that still has options; None when there is none.

        A limit that was exceeded skips the other devices of the requests before, up to the next alternative.
        """
        stack = self._stack
        self._went_back = True
        while stack:
            frame = stack[-1]
            if frame is _BORDER:
                self._exceeded = False
            else:
                self._trail.undo_to(frame.mark)
                if isinstance(frame, _Choice):
                    todo = self._next_alternative(frame)
                elif isinstance(frame, _Exact) and not self._exceeded:
                    todo = self._advance(frame)
                else:
                    todo = None
                if todo is not None:
                    return todo
                if isinstance(frame, _Exact) and not self._exceeded and self._is_hopeless(frame):
                    self._trail.undo_to(0)
                    stack.clear()
                    return None
            stack.pop()
        return None

    def _next_alternative(self, frame: _Choice) -> _Todo | None:
        if not self._exceeded:
            frame.exceeded = False
        first = frame.alternative
        position = frame.position + 1
        request = self._prepared.claims[first.claim].requests[first.request]
        if position >= len(request.alternatives):
            self._exceeded = frame.exceeded
            return None
        frame.position = position
        self._exceeded = False
        self._trail.put(self._selected, (first.claim, first.request), position)
        return first.claim, first.request, position, 0, 0

    def _advance(self, frame: _Exact) -> _Todo | None:
        """Place the next device that will do, from the frame's position on."""
        alternative = frame.alternative
        answers = self._answers_to(alternative)
        end = len(answers)
        last = end - 1
        if self._went_back and self._shortcuts and not alternative.derived:
            last = self._last_start(alternative, frame, answers)
        for place in range(frame.position, end):
            answer = answers[place]
            if place > last and answer is not None:
                continue
            self.tried += 1
            if self.tried >= self._pause_at:
                self._pause(alternative)
            if self._is_busy(alternative, place):
                self._refuse_busy(alternative, place)
                continue
            if answer is None:
                answer = answers[place] = self._judge(alternative, place)
            if answer.__class__ is int:
                self._refuse(alternative, place, answer)
            elif self._consumable and not self._has_room(answer, place):
                self._refuse(alternative, place, CAPACITY)
            elif place <= last and self._place(alternative, place, must=False):
                frame.position = place + 1
                return (
                    alternative.claim,
                    alternative.request,
                    alternative.index,
                    frame.number + 1,
                    place + 1,
                )
        frame.position = end
        return None

    def _is_busy(self, alternative: Alternative, place: int) -> bool:
        if alternative.admin_access:
            return bool(self._taken.get(place, 0) & 1 << alternative.claim)
        return place in self._exclusive or place in self._taken

    # Shortcuts: a search without them finds the same solutions in the same order, and the same errors.
    # Errors of selectors and amounts come from judging a device, so every device that would be judged still is.

    def _last_start(self, alternative: Alternative, frame: _Exact, answers: list[Any]) -> int:
        """The last place where the next device may be, so that enough devices for the rest come after it; -1 for none."""
        missing = alternative.count - frame.number
        for place in range(len(answers) - 1, frame.position - 1, -1):
            if self._may_serve(alternative, place, answers[place]):
                missing -= 1
                if missing == 0:
                    return place
        return -1

    def _may_serve(self, alternative: Alternative, place: int, answer: Any) -> bool:
        """Say whether a device could still be placed, now or with more devices placed than now."""
        if answer.__class__ is int or self._is_busy(alternative, place):
            return False
        if answer is None:
            return True
        constraints = self._prepared.claims[alternative.claim].constraints
        states = self._states[alternative.claim]
        for number in alternative.constraints:
            constraint = constraints[number]
            attribute = self._attribute(alternative, place, constraint.attribute)
            # What a constraint rejects it goes on rejecting when more devices are there.
            if attribute is None or constraint.extend(states[number], attribute) is REJECTED:
                return False
        return True

    def _is_hopeless(self, frame: _Exact) -> bool:
        """Say whether no choice of earlier requests can help a failed one: there are too few devices for it at all.

        Asked once a request. Where judging a device would be an error the answer is no, and the search goes on to find
        out whether that device is ever judged.
        """
        alternative = frame.alternative
        if frame.number or not self._shortcuts or alternative.key in self._asked_for_hope:
            return False
        self._asked_for_hope.add(alternative.key)
        earlier = [
            request
            for claim in self._prepared.claims[: alternative.claim + 1]
            for request in claim.requests
            if request.alternatives[0].key <= alternative.key
        ]
        if any(
            request.first_available or a.derived or a.all_devices
            for request in earlier
            for a in request.alternatives
        ):
            return False
        if not all(self._can_judge_all(request.alternatives[0]) for request in earlier):
            return False
        left = sum(
            answer.__class__ is not int
            and (alternative.admin_access or place not in self._exclusive)
            for place, answer in enumerate(self._answers_to(alternative))
        )
        return left < alternative.count

    def _can_judge_all(self, alternative: Alternative) -> bool:
        """Judge every device that may be free at some time; false when one of them is an error."""
        answers = self._answers_to(alternative)
        for place, answer in enumerate(answers):
            if answer is None and (alternative.admin_access or place not in self._exclusive):
                try:
                    answers[place] = self._judge(alternative, place)
                except FatalError:
                    return False
        return True

    def _needed(self, alternative: Alternative) -> int:
        if alternative.all_devices:
            return len(self._all[_key(alternative)])
        return alternative.count

    # One device

    def _answers_to(self, alternative: Alternative) -> list[Any]:
        """What `_judge` said of each device for an alternative; None where it was not asked."""
        key = (alternative.key, alternative.index)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = [None] * len(self._candidates)
        return answers

    def _judge(self, alternative: Alternative, place: int) -> Any:
        """What no other placement changes: a stage, or what the request consumes of the device (True: nothing)."""
        candidate = self._candidates[place]
        if candidate.waits and not self._binding:
            return GATED
        if not self._selectors.selects(alternative, candidate, self._node, self._ask_stop):
            return NO_MATCH
        if not self._consumable:
            return True
        amounts = consumption_of(alternative, candidate, fractional=self._fractional)
        return CAPACITY if amounts is None else amounts

    def _has_room(self, amounts: Consumption, place: int) -> bool:
        """Say whether a device has the capacity left."""
        others, own = self._consumed_by_others.get(place), self._sharing.get(place)
        if others is None and own is None:
            return amounts.fits_empty
        capacities = self._candidates[place].device.capacity or {}
        return fits(amounts.amounts, capacities, others or {}, own or {})

    def _place(self, alternative: Alternative, place: int, *, must: bool) -> bool:
        """Place a device, or change nothing. `must`: a constraint in the way ends the attempt (mode All)."""
        mark = self._trail.mark()
        stage = self._try(alternative, place, must=must)
        if stage == PLACED:
            return True
        self._trail.undo_to(mark)
        self._refuse(alternative, place, stage)
        if not must and stage in _FOR_GOOD:
            self._answers_to(alternative)[place] = stage
        if must and stage == CONSTRAINED:
            raise FatalError(
                Fatal(
                    _reason(
                        alternative,
                        ReasonKind.CONSTRAINT_UNSATISFIED,
                        "cannot add a device because a claim constraint would not be satisfied",
                    ),
                    depends_on_node=True,
                )
            )
        return False

    def _try(  # noqa: PLR0911 - one return a check, in upstream's order
        self, alternative: Alternative, place: int, *, must: bool
    ) -> int:
        """Place a device step by step: `PLACED`, or the stage it failed at with the steps so far still done."""
        candidate = self._candidates[place]
        shareable = candidate.shareable and self._consumable
        bit = 1 << alternative.claim
        if alternative.admin_access:
            # Differs from what one expects: admin access ignores the users in other claims, nothing else.
            if not shareable and self._taken.get(place, 0) & bit:
                return IN_USE
        elif place in self._exclusive or place in self._taken:
            return IN_USE
        if candidate.skips:
            stage = self._skip_operations()
            if stage != PLACED:
                return stage
        if candidate.consumes:
            stage = self._try_counters(candidate, place, shareable=shareable)
            if stage != PLACED:
                return stage
        if (
            candidate.blocking_taints
            and self._taints_on
            and first_untolerated(candidate.blocking_taints, alternative.tolerations or ())
        ):
            return TAINTED
        if alternative.constraints and not self._try_constraints(alternative, place):
            return CONSTRAINED
        if (
            must  # otherwise it was looked at before
            and self._consumable
            and not self._has_room(self._answers_to(alternative)[place], place)
        ):
            return CAPACITY
        self._commit(alternative, candidate, place, shareable=shareable)
        return PLACED

    def _skip_operations(self) -> int:
        """Say whether a device whose slice skips node operations may be used here."""
        if not self._prepared.experimental:
            return PLACED  # the other allocators do not know the field
        if not self._prepared.features.optional_node_operations:
            return GATED
        return PLACED if NODE_OPERATIONS_FEATURE in self._node.declared_features else NODE_LACKS

    def _try_counters(self, candidate: Candidate, place: int, *, shareable: bool) -> int:
        if not self._partitionable:
            return GATED
        if shareable and (
            place in self._consumed_by_others or place in self._shared or place in self._sharing
        ):
            return PLACED  # its first share has paid
        index = bisect_right(self._bases, place) - 1
        if self._groups_on and not self._join(index, candidate):
            return GROUPS
        available = self._available.get(index)
        if available is None:
            available = available_counters(
                self._pools[index].counter_sets, self._allocated_consumers(index)
            )
            self._available[index] = available
        taken = self._counters.setdefault(index, {})
        changed = charge(candidate.consumes, taken, available)
        if changed is None:
            return COUNTERS
        for key, amount in changed.items():
            self._trail.put(taken, key, amount)
        return PLACED

    def _allocated_consumers(self, index: int) -> Iterator[tuple[DeviceCounterConsumption, ...]]:
        """Counters taken by allocated devices of a pool, for any node, as the slices now say."""
        usage = self._usage.get(index, NOTHING_USED)
        names = set(usage.devices)
        if not self._prepared.rules.stable:
            names.update(usage.shares, usage.consumed)
        if not names:
            return
        pool = self._pools[index]
        for prepared in (*pool.slices, *pool.elsewhere):
            for candidate in facts_of(prepared).candidates:
                if candidate.consumes and candidate.name in names:
                    yield candidate.consumes

    def _join(self, index: int, candidate: Candidate) -> bool:
        """Add a device to the compatibility groups of its counter sets."""
        baseline = self._group_baseline.get(index)
        if baseline is None:
            baseline = {}
            for consumes in self._allocated_consumers(index):
                for entry in consumes:
                    name = entry.counter_set
                    baseline[name] = join_groups(baseline.get(name), entry.compatibility_groups)
            self._group_baseline[index] = baseline
        for entry in candidate.consumes:
            key = (index, entry.counter_set)
            state = self._groups.get(key)
            if state is None:
                state = baseline.get(entry.counter_set)
            if not admits_groups(state, entry.compatibility_groups):
                return False
            self._trail.put(self._groups, key, join_groups(state, entry.compatibility_groups))
        return True

    def _try_constraints(self, alternative: Alternative, place: int) -> bool:
        constraints = self._prepared.claims[alternative.claim].constraints
        states = self._states[alternative.claim]
        for number in alternative.constraints:
            constraint = constraints[number]
            attribute = self._attribute(alternative, place, constraint.attribute)
            if attribute is None:
                return False
            state = constraint.extend(states[number], attribute)
            if state is REJECTED:
                return False
            self._trail.replace(states, number, state)
        return True

    def _attribute(self, alternative: Alternative, place: int, name: str) -> DeviceAttribute | None:
        if alternative.derived:
            return self._selectors.attribute(alternative, self._candidates[place], name)
        key = (name, place)
        if key not in self._attributes:
            found = self._selectors.attribute(alternative, self._candidates[place], name)
            self._attributes[key] = found
        return self._attributes[key]

    def _commit(
        self, alternative: Alternative, candidate: Candidate, place: int, *, shareable: bool
    ) -> None:
        consumed = None
        if shareable:
            consumed = self._answers_to(alternative)[place].amounts
            own = self._sharing.get(place)
            self._trail.put(
                self._sharing, place, consumed if own is None else add_amounts(own, consumed)
            )
        else:
            # Differs from what one expects: an admin placement makes the device "in use" for later requests.
            bits = self._taken.get(place, 0) | 1 << alternative.claim
            self._trail.put(self._taken, place, bits)
        self._trail.append(
            self._results[alternative.claim],
            ChosenDevice(
                alternative.result_name,
                candidate,
                alternative.admin_access,
                alternative.tolerations,
                consumed,
            ),
        )

    # Giving up, and saying why

    def _pause(self, alternative: Alternative) -> None:
        """Every now and then: is the budget used up, is the time over."""
        if self.tried > self._budget:
            raise FatalError(
                Fatal(
                    _reason(
                        alternative,
                        ReasonKind.SEARCH_BUDGET_EXCEEDED,
                        f"the search for devices was given up after {self._budget} candidate devices",
                    ),
                    depends_on_node=True,
                )
            )
        self._pause_at = min(self._budget + 1, self.tried + _STOP_EVERY)
        self._check_stop(alternative)

    def _check_stop(self, alternative: Alternative) -> None:
        if self._should_stop is not None and self._should_stop():
            raise FatalError(
                Fatal(
                    _reason(
                        alternative,
                        ReasonKind.DEADLINE_EXCEEDED,
                        "the search for devices was given up: its time is over",
                    ),
                    depends_on_node=True,
                )
            )

    def _refuse_busy(self, alternative: Alternative, place: int) -> None:
        """Note a device in use; its selectors were not asked, as upstream does not ask them."""
        key = alternative.key
        if place not in self._exclusive or alternative.admin_access:
            self.taken_from.setdefault(key, set()).add(place)
        self._refuse(alternative, place, IN_USE)

    def _refuse(self, alternative: Alternative, place: int, stage: int) -> None:
        key = alternative.key
        if stage > self.stages.get(key, -1):
            self.stages[key] = stage
        if self._reporter is not None:
            candidate = self._candidates[place]
            self._reporter.rejected(
                *key, candidate.id, stage, self._describe(alternative, candidate, stage)
            )

    def _describe(self, alternative: Alternative, candidate: Candidate, stage: int) -> str:
        """Say in a sentence what a device failed on."""
        if stage == TAINTED:
            taint = first_untolerated(candidate.blocking_taints, alternative.tolerations or ())
            if taint is not None:
                value = f"={taint.value}" if taint.value else ""
                return f"taint {taint.key}{value}:{taint.effect} is not tolerated"
        if stage == CAPACITY and alternative.capacity:
            wanted = ", ".join(f"{name} {q}" for name, q in sorted(alternative.capacity.items()))
            return f"{DEVICE_TEXTS[stage]} ({wanted})"
        if stage == COUNTERS:
            sets = ", ".join(sorted({entry.counter_set for entry in candidate.consumes}))
            return f"{DEVICE_TEXTS[stage]} (counter sets {sets})"
        return DEVICE_TEXTS[stage]

    # Afterwards

    def shortage(self, request: tuple[int, int]) -> int:
        """The furthest stage of a failed request's devices; asks the selectors of devices in use, which nobody did yet."""
        stage = self.stages.get(request, NO_MATCH)
        if stage != IN_USE:
            return stage
        places = set(self.taken_from.get(request, ()))
        if not self._alternatives(request)[0].admin_access:
            places |= self._exclusive
        if any(self.would_select(request, self._candidates[place]) for place in sorted(places)):
            return IN_USE
        return NO_MATCH

    def would_select(self, request: tuple[int, int], candidate: Candidate) -> bool:
        """Say whether any alternative of a request selects a device; errors count as no."""
        for alternative in self._alternatives(request):
            try:
                if self._selectors.selects(alternative, candidate, self._node):
                    return True
            except FatalError:
                continue
        return False

    def _alternatives(self, request: tuple[int, int]) -> tuple[Alternative, ...]:
        return self._prepared.claims[request[0]].requests[request[1]].alternatives


def _flatten(pools: Sequence[Pool]) -> tuple[Sequence[Candidate], list[int]]:
    """All usable devices in search order, and the place where each pool's devices begin."""
    bases = []
    base = 0
    filled = None
    several = False
    for pool in pools:
        bases.append(base)
        if pool.candidates:
            several = filled is not None
            filled = pool.candidates if filled is None else filled
            base += len(pool.candidates)
    if not several:
        return filled or (), bases
    return [candidate for pool in pools for candidate in pool.candidates], bases


def _key(alternative: Alternative) -> tuple[int, int, int]:
    return alternative.claim, alternative.request, alternative.index


def _reason(alternative: Alternative, kind: ReasonKind, text: str) -> Reason:
    return Reason(
        kind=kind,
        message=f"{alternative.where}: {text}",
        claim=alternative.claim_name.partition("/")[2],
        request=alternative.result_name,
    )


def _all_refused(alternative: Alternative, pool: Pool) -> Reason:
    if pool.state is PoolState.INCOMPLETE:
        kind, problem = ReasonKind.POOL_INCOMPLETE, "is currently being updated"
    else:
        kind, problem = ReasonKind.POOL_INVALID, "is currently invalid"
    # Which pool is a detail: its name is often the node's, and the message must be the same on all nodes.
    detail = DeviceReason(
        device=DeviceID(pool.id.driver, pool.id.name, ""), kind=kind, message=pool.problem
    )
    reason = _reason(alternative, kind, f"asks for all devices, but a resource pool {problem}")
    return replace(reason, devices=(detail,))
