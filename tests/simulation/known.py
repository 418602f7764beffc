"""What the simulation has found and nobody has mended yet: each seed with what it shows.

Such a seed is run and told of like any other, but does not fail a run. An entry goes when the fault is mended: a seed
that shows nothing any more fails, so that none is forgotten here.
"""

from collections.abc import Mapping
from typing import Final

KNOWN: Final[Mapping[tuple[int, bool], str]] = {
    (
        70,
        True,
    ): "two active replicas: one takes a reservation back while the other binds the pod (S5)",
    (
        216,
        True,
    ): "a pod that fits nowhere is not told, after its condition was refused for a while (L2)",
}
"""(seed, whether it is one of liveness) -> the fault."""
