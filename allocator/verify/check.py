"""What is being checked, and what has been found wrong so far."""

from dataclasses import dataclass, field

from allocator.cel import Compiler
from allocator.features import Features
from allocator.model.claims import (
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from allocator.model.devices import Device, DeviceClass, DeviceID, ResourceSlice
from allocator.model.nodes import Node
from allocator.snapshot import Snapshot

Spec = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        rule: a short, stable name.
        claim: name of the claim, or empty when it is about several.
        message: a sentence for people.
    """

    rule: str
    claim: str
    message: str


@dataclass(frozen=True, slots=True)
class Found:
    """A device that a result names, and where it is."""

    device: Device
    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class Placed:
    """A result with everything it refers to.

    Attributes:
        claim: position of the claim.
        owner: the claim.
        result: what its allocation says.
        spec: the request, or the alternative of it, that the result serves.
        device_class: of the request.
        found: the device.
    """

    claim: int
    owner: ResourceClaim
    result: DeviceRequestAllocationResult
    spec: Spec
    device_class: DeviceClass
    found: Found

    @property
    def id(self) -> DeviceID:
        """The device in the cluster."""
        return self.result.device_id

    @property
    def is_admin(self) -> bool:
        """Whether it occupies nothing."""
        return bool(self.result.admin_access)


@dataclass(slots=True)
class Check:
    """One check under way.

    Attributes:
        node: where the pod is to run.
        snapshot: the cluster without the allocations.
        features: the gates.
        cel: compiles selectors.
        violations: found so far.
        placed: the results that could be resolved.
    """

    node: Node
    snapshot: Snapshot
    features: Features
    cel: Compiler
    violations: list[Violation] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    def fail(self, rule: str, claim: ResourceClaim | None, message: str) -> None:
        """Note a broken rule; no claim: it is about several."""
        self.violations.append(Violation(rule, claim.metadata.name if claim else "", message))

    @property
    def is_stable(self) -> bool:
        """Whether the features are those of upstream's stable allocator."""
        return self.features.implementation == "stable"

    @property
    def is_experimental(self) -> bool:
        """Whether the features need upstream's experimental allocator."""
        return self.features.implementation == "experimental"
