"""The search: depth first over claims, requests, alternatives and devices; the first full solution comes first.

What may be placed, and what that uses up, is `placement`'s; this module decides what is tried next. The stack is
explicit: a pod with many claims does not run into Python's recursion limit, and a search can stop anywhere.

Source: allocateOne in structured/internal/*/allocator_*.go; docs/design/allocator.md#search.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from allocator.model.nodes import Node
from allocator.outcome import Fatal, ReasonKind
from allocator.placement import Placement
from allocator.pools import Candidate, Pool
from allocator.report import NULL_REPORTER, Reporter
from allocator.requests import (
    MAX_RESULTS,
    Alternative,
    FatalError,
    PreparedClaims,
    PreparedRequest,
    too_many,
)
from allocator.result import ChosenDevice, ChosenRequest
from allocator.snapshot import AllocatedState
from allocator.stages import (
    CAPACITY,
    CONSTRAINED,
    IN_USE,
    NO_MATCH,
    PLACED,
    describe,
    pool_reason,
    reason_of,
)

_STOP_EVERY: Final = 64  # candidates between two questions whether to stop


class Solution(msgspec.Struct, frozen=True):
    """Devices and alternatives for every claim, in the order of the claims."""

    devices: tuple[tuple[ChosenDevice, ...], ...]
    requests: tuple[tuple[ChosenRequest, ...], ...]


class Limits(msgspec.Struct, frozen=True):
    """Limits of a search.

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
    """The next device for an ExactCount request: any device after the previous one."""

    __slots__ = ()


class _Next(_Frame):
    """The next device for an All request: exactly this one."""

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
        self._prepared = prepared
        self._node = node
        self._pools = pools
        self._budget = sys.maxsize if limits.budget is None else limits.budget
        self._should_stop = limits.should_stop
        ask_stop = None if limits.should_stop is None else self._check_stop
        self._pause_at = min(self._budget, _STOP_EVERY) + 1
        self._shortcuts = limits.shortcuts
        self._went_back = False
        self._asked_for_hope: set[tuple[int, int]] = set()
        self._reporter: Reporter | None = None if reporter is NULL_REPORTER else reporter
        self._consumable = prepared.features.consumable_capacity

        self._placement = Placement(prepared, node, pools, allocated, ask_stop)
        self._stack: list[_Frame | None] = []
        self._exceeded = False
        self._selected: dict[tuple[int, int], int] = {}
        self._all: dict[tuple[int, int, int], tuple[int, ...]] = {}

        self.steps = 0
        self.tried = 0
        self.reached = (0, 0)
        self.stages: dict[tuple[int, int], int] = {}
        self.limited: set[tuple[int, int]] = set()
        self.taken_from: dict[tuple[int, int], set[int]] = {}

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
                raise FatalError(Fatal(pool_reason(alternative, pool), depends_on_node=True))
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
        answer = self._placement.answers_to(alternative)[place] = self._placement.judge(
            alternative, place
        )
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
        return not self._selected and self._placement.is_clean()

    def _solution(self) -> Solution:
        requests = tuple(
            tuple(self._chosen(c, r, request) for r, request in enumerate(claim.requests))
            for c, claim in enumerate(self._prepared.claims)
        )
        return Solution(tuple(tuple(devices) for devices in self._placement.results), requests)

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
            self._stack.append(_Choice(alternative, 0, 0, self._placement.trail.mark()))
            self._placement.trail.put(self._selected, (c, r), 0)
            return c, r, 0, 0, 0
        needed = self._needed(alternative)
        if alternative.all_devices and not needed:
            return None
        if k >= needed:
            return c, r + 1, None, 0, 0
        if needed - k > MAX_RESULTS - len(self._placement.results[c]):
            self._exceeded = True
            self.limited.add((c, r))
            return None
        mark = self._placement.trail.mark()
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
                self._placement.trail.undo_to(frame.mark)
                if isinstance(frame, _Choice):
                    todo = self._next_alternative(frame)
                elif isinstance(frame, _Exact) and not self._exceeded:
                    todo = self._advance(frame)
                else:
                    todo = None
                if todo is not None:
                    return todo
                if isinstance(frame, _Exact) and not self._exceeded and self._is_hopeless(frame):
                    self._placement.trail.undo_to(0)
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
        self._placement.trail.put(self._selected, (first.claim, first.request), position)
        return first.claim, first.request, position, 0, 0

    def _advance(self, frame: _Exact) -> _Todo | None:
        """Place the next device that will do, from the frame's position on."""
        alternative, placement = frame.alternative, self._placement
        answers = placement.answers_to(alternative)
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
            if placement.is_busy(alternative, place):
                self._refuse_busy(alternative, place)
                continue
            if answer is None:
                answer = answers[place] = placement.judge(alternative, place)
            if answer.__class__ is int:
                self._refuse(alternative, place, answer)
            elif self._consumable and not placement.has_room(answer, place):
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

    # Shortcuts: a search without them finds the same solutions in the same order, and the same errors.
    # Errors of selectors and amounts come from judging a device, so every device that would be judged still is.

    def _last_start(self, alternative: Alternative, frame: _Exact, answers: list[Any]) -> int:
        """The last place where the next device may be, so that enough devices for the rest come after it; -1 for none."""
        missing = alternative.count - frame.number
        for place in range(len(answers) - 1, frame.position - 1, -1):
            if self._placement.may_serve(alternative, place, answers[place]):
                missing -= 1
                if missing == 0:
                    return place
        return -1

    def _is_hopeless(self, frame: _Exact) -> bool:
        """Whether a failed request cannot be served whatever earlier requests take, because there are too few devices.

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
            and (alternative.admin_access or place not in self._placement.exclusive)
            for place, answer in enumerate(self._placement.answers_to(alternative))
        )
        return left < alternative.count

    def _can_judge_all(self, alternative: Alternative) -> bool:
        """Judge every device that may be free at some time; false when one of them is an error."""
        answers = self._placement.answers_to(alternative)
        for place, answer in enumerate(answers):
            if answer is None and (
                alternative.admin_access or place not in self._placement.exclusive
            ):
                try:
                    answers[place] = self._placement.judge(alternative, place)
                except FatalError:
                    return False
        return True

    def _needed(self, alternative: Alternative) -> int:
        if alternative.all_devices:
            return len(self._all[_key(alternative)])
        return alternative.count

    def _place(self, alternative: Alternative, place: int, *, must: bool) -> bool:
        """Place a device, or change nothing. `must`: a constraint in the way ends the attempt (mode All)."""
        stage = self._placement.place(alternative, place, must=must)
        if stage == PLACED:
            return True
        self._refuse(alternative, place, stage)
        if must and stage == CONSTRAINED:
            raise FatalError(
                Fatal(
                    reason_of(
                        alternative,
                        ReasonKind.CONSTRAINT_UNSATISFIED,
                        "cannot add a device because a claim constraint would not be satisfied",
                    ),
                    depends_on_node=True,
                )
            )
        return False

    # Giving up, and saying why

    def _pause(self, alternative: Alternative) -> None:
        """Every now and then: is the budget used up, is the time over."""
        if self.tried > self._budget:
            raise FatalError(
                Fatal(
                    reason_of(
                        alternative,
                        ReasonKind.SEARCH_BUDGET_EXCEEDED,
                        f"the search for devices stopped at its budget of {self._budget} candidate devices",
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
                    reason_of(
                        alternative,
                        ReasonKind.DEADLINE_EXCEEDED,
                        "the search for devices timed out",
                    ),
                    depends_on_node=True,
                )
            )

    def _refuse_busy(self, alternative: Alternative, place: int) -> None:
        """Note a device in use; its selectors were not asked, as upstream does not ask them."""
        key = alternative.key
        if place not in self._placement.exclusive or alternative.admin_access:
            self.taken_from.setdefault(key, set()).add(place)
        self._refuse(alternative, place, IN_USE)

    def _refuse(self, alternative: Alternative, place: int, stage: int) -> None:
        key = alternative.key
        if stage > self.stages.get(key, -1):
            self.stages[key] = stage
        if self._reporter is not None:
            candidate = self._placement.candidates[place]
            self._reporter.rejected(
                *key, candidate.id, stage, describe(alternative, candidate, stage)
            )

    # Afterwards

    def shortage(self, request: tuple[int, int]) -> int:
        """The furthest stage of a failed request's devices; asks the selectors of devices in use, which nobody did yet."""
        stage = self.stages.get(request, NO_MATCH)
        if stage != IN_USE:
            return stage
        places = set(self.taken_from.get(request, ()))
        if not self._alternatives(request)[0].admin_access:
            places |= self._placement.exclusive
        if any(
            self.would_select(request, self._placement.candidates[place])
            for place in sorted(places)
        ):
            return IN_USE
        return NO_MATCH

    def would_select(self, request: tuple[int, int], candidate: Candidate) -> bool:
        """Say whether any alternative of a request selects a device; errors count as no."""
        for alternative in self._alternatives(request):
            try:
                if self._prepared.selectors.selects(alternative, candidate, self._node):
                    return True
            except FatalError:
                continue
        return False

    def _alternatives(self, request: tuple[int, int]) -> tuple[Alternative, ...]:
        return self._prepared.claims[request[0]].requests[request[1]].alternatives


def _key(alternative: Alternative) -> tuple[int, int, int]:
    return alternative.claim, alternative.request, alternative.index
