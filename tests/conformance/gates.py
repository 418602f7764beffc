"""The gate sets that questions are asked with, by name."""

from collections.abc import Iterable

from allocator.features import GATES, VERSIONS, Features


def gates_of(features: Features) -> dict[str, bool]:
    """Features as upstream's gate names."""
    return {gate.name: bool(getattr(features, gate.field)) for gate in GATES if gate.field}


def features_of(gates: dict[str, bool]) -> Features:
    """The reverse: gates that are not named are off."""
    return Features(**{gate.field: gates.get(gate.name, False) for gate in GATES if gate.field})


def changed(
    base: dict[str, bool], on: Iterable[str] = (), off: Iterable[str] = ()
) -> dict[str, bool]:
    """A gate set with some gates switched."""
    unknown = {*on, *off} - base.keys()
    if unknown:
        raise KeyError(f"unknown gates {sorted(unknown)}")
    return {**base, **dict.fromkeys(on, True), **dict.fromkeys(off, False)}


DEFAULTS = {version: gates_of(Features.for_version(version)) for version in VERSIONS}
NEWEST = DEFAULTS[VERSIONS[-1]]
EVERYTHING = dict.fromkeys(NEWEST, True)
# The stable allocator with all that it knows.
STABLE = changed(
    NEWEST,
    off=(
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRAFractionalCapacityRange",
    ),
)
