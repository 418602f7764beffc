"""Device taints and tolerations.

Source: resourceclaim/devicetoleration.go; KEP-5055.
"""

from collections.abc import Iterable

from allocator.model.claims import DeviceToleration
from allocator.model.devices import DeviceTaint


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Say whether one toleration covers one taint; `tolerationSeconds` is for eviction alone."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        # Differs from what one expects: `{}` covers only taints without value, not all.
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def first_untolerated(
    taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]
) -> DeviceTaint | None:
    """Return the first taint that no toleration covers. Only taints with a blocking effect are passed in."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
