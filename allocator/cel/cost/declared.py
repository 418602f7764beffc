"""How large the parts of a device may be, as its declaration says.

Source: k8s.io/dynamic-resource-allocation/cel (newCompiler, sizeEstimator).
"""

from typing import Final

from allocator.cel.cost.ranges import Range

Path = tuple[str, ...]
# What the device declares: path -> largest size.
_SIZES: Final[dict[Path, int]] = {
    ("device",): 0,
    ("device", "driver"): 63,
    ("device", "allowMultipleAllocations"): 1,
    ("device", "attributes"): 32,
    ("device", "attributes", "@keys"): 63,
    ("device", "attributes", "@values"): 32,
    ("device", "attributes", "@values", "@keys"): 32,
    ("device", "attributes", "@values", "@values"): 64,
    ("device", "capacity"): 32,
    ("device", "capacity", "@keys"): 63,
    ("device", "capacity", "@values"): 32,
    ("device", "capacity", "@values", "@keys"): 32,
    ("device", "capacity", "@values", "@values"): 0,
}
_INNER_ATTRIBUTES: Final = ("device", "attributes", "@values")


def declared_size(path: Path | None) -> Range | None:
    """The size of what a path of the device leads to, or None if it is not declared."""
    if not path or path[0] != "device":
        return None
    known: Path = ("device",)
    for name in path[1:]:
        step = "@values" if name == "@items" else name
        following = (*known, step)
        if following not in _SIZES:
            # The values of one domain's attributes have a declared size whatever their name; nothing else has.
            if known != _INNER_ATTRIBUTES:
                return None
            following = (*known, "@values")
        known = following
    return Range(0, _SIZES[known])
