"""S1-S3: no device, capacity or counter is given out twice."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.invariants.finding import Finding
from tests.invariants.objects import (
    Device,
    Object,
    device_of,
    full_name,
    is_admin,
    is_shared,
    nanos,
    results,
)
from tests.invariants.pools import published

Counter = tuple[str, str, str, str]


def held(claim: Object) -> Iterator[tuple[Device, Object]]:
    """Devices of a claim, admin access left out."""
    for result in results(claim):
        if not is_admin(result):
            yield device_of(result), result


def exclusive(claims: Iterable[Object], rule: str = "S1") -> Iterator[Finding]:
    """A device with an exclusive holder has no other holder, of either kind; shares have IDs of their own."""
    holders: dict[Device, list[tuple[str, Object]]] = defaultdict(list)
    for claim in claims:
        for device, result in held(claim):
            holders[device].append((full_name(claim), result))
    for device, found in sorted(holders.items(), key=lambda each: each[0]):
        if len(found) < 2:
            continue
        names = ", ".join(sorted(called for called, _ in found))
        if not all(is_shared(result) for _, result in found):
            yield Finding(rule, "/".join(device), f"is held by {names}")
        elif len({result["shareID"] for _, result in found}) < len(found):
            yield Finding("S2", "/".join(device), f"one shareID is held twice, by {names}")


def over_capacity(
    claims: Iterable[Object], slices: Iterable[Object], about: Object
) -> Iterator[Finding]:
    """S2: what shares of a device consume together is within its capacity, for the devices that `about` shares."""
    concerned = {device for device, result in held(about) if is_shared(result)}
    if not concerned:
        return
    devices = published(slices).devices
    used: dict[tuple[Device, str], int] = defaultdict(int)
    for claim in claims:
        for device, result in held(claim):
            if device in concerned:
                for capacity, amount in (result.get("consumedCapacity") or {}).items():
                    used[device, capacity] += nanos(amount)
    for device in sorted(concerned):
        found = devices.get(device)
        if found is None:
            yield Finding("S2", "/".join(device), "is not published")
            continue
        if not found.get("allowMultipleAllocations"):
            yield Finding("S2", "/".join(device), "is shared, and may not be")
        for capacity, amount in (found.get("capacity") or {}).items():
            if used[device, capacity] > nanos(amount["value"]):
                yield Finding(
                    "S2", "/".join(device), f"more of {capacity} is given out than there is"
                )


def over_counters(
    claims: Iterable[Object],
    slices: Iterable[Object],
    about: Object,
    *,
    whole_pool: bool = False,
) -> Iterator[Finding]:
    """S3: what distinct devices draw on a counter is within it, for the counters that `about` draws on.

    Args:
        claims: all that draw.
        slices: all.
        about: the claim that is looked at, one of `claims`.
        whole_pool: whether a counter that is overdrawn spoils all of its pool, as it does for upstream.
    """
    known = published(slices)
    concerned: dict[Counter, Device] = {}
    for device, _ in held(about):
        for counter, amount in _draws(device, known.devices.get(device)).items():
            if amount > 0:
                concerned[counter] = device
                if whole_pool:
                    pool = device[0], device[1]
                    every = known.counters.get((pool, known.generations[device]), {})
                    concerned |= dict.fromkeys(((*pool, *each) for each in every), device)
    if not concerned:
        return
    used: dict[Counter, int] = defaultdict(int)
    for device in {device for claim in claims for device, _ in held(claim)}:
        for counter, amount in _draws(device, known.devices.get(device)).items():
            used[counter] += amount
    for counter, device in sorted(concerned.items()):
        limit = known.limit(device, counter[2], counter[3])
        if limit is None or used[counter] > nanos(limit):
            text = f"more is drawn than there is, with {full_name(about)}"
            yield Finding("S3", "/".join(counter), text)


def _draws(device: Device, published_device: Object | None) -> Mapping[Counter, int]:
    drawn: dict[Counter, int] = defaultdict(int)
    for consumed in (published_device or {}).get("consumesCounters") or ():
        for counter, amount in consumed["counters"].items():
            drawn[device[0], device[1], consumed["counterSet"], counter] += nanos(amount["value"])
    return drawn
