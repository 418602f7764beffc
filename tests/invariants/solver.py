"""Brute force: whether a pod could be placed as things are. Slow and simple; for a handful of nodes and devices.

It says yes only when it is sure: when a pool is being updated, or a selector fails on a device, it looks elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from tests.invariants import sharing
from tests.invariants.answers import (
    Question,
    View,
    constraint_problems,
    consumption,
    is_tolerated,
    questions,
    selectors,
)
from tests.invariants.cluster import Cluster
from tests.invariants.objects import (
    ADMIN_LABEL,
    Device,
    Object,
    allocation,
    controller,
    is_deleting,
    name,
    namespace,
    nanos,
    reserved_for,
    results,
    selector_matches,
    uid,
)
from tests.invariants.pods import refusals
from tests.invariants.pools import Pool, PoolName, gather, matches

MOST_TRIES = 20_000
MOST_CONSUMERS = 256


class _GiveUpError(Exception):
    """Too many possibilities, or a selector that fails."""


@dataclass(slots=True)
class _Search:
    """One node."""

    claims: Sequence[Object]
    everything: Sequence[Object]
    pools: Mapping[PoolName, Pool]
    view: View
    has_admin: bool
    tries: int = 0
    taken: set[Device] = field(default_factory=set)

    def possible(self) -> bool:
        """Whether there are devices for all claims together."""
        answers = [list(self._answers(claim)) for claim in self.claims]
        for chosen in product(*answers):
            self._count()
            made = [
                {**claim, "status": {"allocation": {"devices": {"results": list(found)}}}}
                for claim, found in zip(self.claims, chosen, strict=True)
            ]
            if self._go_together(made):
                return True
        return False

    def _go_together(self, made: Sequence[Object]) -> bool:
        if _repeats(result for claim in made for result in results(claim)):
            return False
        together = [*self.everything, *made]
        if any(True for _ in sharing.exclusive(together)):
            return False
        return not any(
            True
            for claim in made
            for _ in (
                *sharing.over_capacity(together, self.view.slices, claim),
                *sharing.over_counters(together, self.view.slices, claim, whole_pool=True),
            )
        )

    def _answers(self, claim: Object) -> Iterator[Sequence[Object]]:
        """Sets of results that answer one claim by itself."""
        per_request = [
            [found for question in alternatives for found in self._choices(question)]
            for _, alternatives in questions(claim)
        ]
        for parts in product(*per_request):
            self._count()
            found = [result for part in parts for result in part]
            if len(found) > 32 or _repeats(found):
                continue
            if not any(True for _ in constraint_problems(claim, found, self.pools)):
                yield found

    def _choices(self, question: Question) -> Iterator[Sequence[Object]]:
        found = list(self._candidates(question))
        if question.mode == "All":
            if found and all(free for _, free in found):
                yield [result for result, _ in found]
            return
        free = [result for result, is_free in found if is_free]
        for chosen in combinations(free, question.count):
            self._count()
            yield chosen

    def _candidates(self, question: Question) -> Iterator[tuple[Object, bool]]:
        """Selected devices as results, and whether each may be taken."""
        expressions = selectors(question, self.view)
        admin = bool(question.spec.get("adminAccess"))
        if expressions is None or (admin and not self.has_admin):
            return
        asked = (question.spec.get("capacity") or {}).get("requests") or {}
        for pool in self.pools.values():
            if pool.problem:
                if question.mode == "All":
                    raise _GiveUpError
                continue
            for called, device in pool.devices.items():
                answers = [matches(pool.name[0], device, each) for each in expressions]
                if None in answers:
                    raise _GiveUpError
                if not all(answers):
                    continue
                device_id = (*pool.name, called)
                result: Object = {
                    "request": question.name,
                    "driver": pool.name[0],
                    "pool": pool.name[1],
                    "device": called,
                }
                is_free = admin or device_id not in self.taken
                is_free = is_free and is_tolerated(question, device_id, device, self.view)
                capacities: Mapping[str, Object] = device.get("capacity") or {}
                is_free = is_free and all(
                    capacity in capacities and nanos(amount) <= nanos(capacities[capacity]["value"])
                    for capacity, amount in asked.items()
                )
                if admin:
                    # It may be charged for counters and capacity, in ways of its own (docs/design/allocator.md#search).
                    if device.get("consumesCounters") or device.get("allowMultipleAllocations"):
                        raise _GiveUpError
                    result["adminAccess"] = True
                elif device.get("allowMultipleAllocations") and is_free:
                    result["shareID"] = f"{id(result)}"
                    result["consumedCapacity"] = self._consumed(capacities, asked)
                if device.get("bindingConditions"):
                    raise _GiveUpError
                yield result, is_free

    @staticmethod
    def _consumed(capacities: Mapping[str, Object], asked: Mapping[str, str]) -> Object:
        consumed = {}
        for capacity, known in capacities.items():
            amount = consumption(known, asked.get(capacity))
            if amount is None:
                raise _GiveUpError
            highest = ((known.get("requestPolicy") or {}).get("validRange") or {}).get("max")
            if highest is not None and amount > nanos(highest):
                raise _GiveUpError
            consumed[capacity] = f"{amount}n"
        return consumed

    def _count(self) -> None:
        self.tries += 1
        if self.tries > MOST_TRIES:
            raise _GiveUpError


def _repeats(found: Iterable[Object]) -> bool:
    """Whether a device serves twice: not for one pod, admin access or not (docs/design/allocator.md#search)."""
    devices = [
        (each["driver"], each["pool"], each["device"]) for each in found if not each.get("shareID")
    ]
    return len(devices) > len(set(devices))


def can_be_placed(pod: Object, cluster: Cluster) -> bool:
    """Whether some node takes the pod and has the devices that its claims ask for, now."""
    claims = []
    for _, claim in cluster.claims_of(pod):
        if claim is None or is_deleting(claim):
            return False
        owner = controller(claim)
        if owner is not None and owner.get("kind") == "Pod" and owner["uid"] != uid(pod):
            return False
        consumers = {entry["uid"] for entry in reserved_for(claim)}
        if len(consumers - {uid(pod)}) >= MOST_CONSUMERS:
            return False
        if claim not in claims:
            claims.append(claim)
    if any(result.get("bindingConditions") for claim in claims for result in results(claim)):
        return False
    return any(_fits(pod, claims, node, cluster) for node in cluster.all("Node"))


def _fits(pod: Object, claims: Sequence[Object], node: Object, cluster: Cluster) -> bool:
    if any(
        True
        for _ in refusals({**pod, "spec": {**pod["spec"], "nodeName": name(node)}}, node, cluster)
    ):
        return False
    open_claims = []
    for claim in claims:
        allocated = allocation(claim)
        if allocated is None:
            open_claims.append(claim)
        elif not selector_matches(allocated.get("nodeSelector"), node):
            return False
    if not open_claims:
        return True
    view = View(
        list(cluster.all("ResourceSlice")),
        {name(each): each for each in cluster.all("DeviceClass")},
        list(cluster.all("DeviceTaintRule")),
    )
    owner = cluster.find("Namespace", "", namespace(pod)) or {"metadata": {}}
    everything = list(cluster.all("ResourceClaim"))
    search = _Search(
        open_claims,
        [claim for claim in everything if allocation(claim) is not None],
        gather(view.slices, node),
        view,
        (owner["metadata"].get("labels") or {}).get(ADMIN_LABEL) == "true",
        taken={
            device
            for claim in everything
            for device, result in sharing.held(claim)
            if result.get("shareID") is None
        },
    )
    try:
        return search.possible()
    except _GiveUpError:
        return False
