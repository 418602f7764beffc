"""An independent check of finished allocations: what is wrong with them, if anything.

It shares no code with the search and takes no notice of how devices were found: it looks at the claims, the results and
the snapshot, and says which rules are broken. Tests, the binder (before it writes) and explanations use it.

What it does not say: whether these are the devices that Kubernetes would have chosen; another valid choice passes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import msgspec

from allocator.cel import Compiler, DeviceValues, prepare_device
from allocator.errors import CelError
from allocator.features import Features
from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from allocator.model.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceID,
    PoolID,
    ResourceSlice,
)
from allocator.model.nodes import Node, NodeSelector, NodeSelectorError, matches_node_selector
from allocator.quantity import NANOS_PER_UNIT, Quantity
from allocator.snapshot import Snapshot

_MAX_RESULTS: Final = 32
_Spec = ExactDeviceRequest | DeviceSubRequest


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
class _Found:
    """A device that a result names, and where it is."""

    device: Device
    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class _Placed:
    """A result with everything it refers to."""

    claim: int
    owner: ResourceClaim
    result: DeviceRequestAllocationResult
    spec: _Spec
    device_class: DeviceClass
    found: _Found

    @property
    def id(self) -> DeviceID:
        return self.result.device_id

    @property
    def is_admin(self) -> bool:
        return bool(self.result.admin_access)


def verify(
    claims: Sequence[ResourceClaim],
    allocations: Sequence[AllocationResult],
    node: Node,
    snapshot: Snapshot,
    *,
    features: Features,
    cel: Compiler,
) -> list[Violation]:
    """Check the allocations of a pod's claims for a node.

    Args:
        claims: the claims, in any order.
        allocations: one for each claim, in the same order.
        node: where the pod is to run.
        snapshot: the cluster *without* these allocations.
        features: the gates.
        cel: compiles selectors.

    Returns:
        The broken rules, in the order of claims and results; empty when all is well.
    """
    if len(claims) != len(allocations):
        return [
            Violation(
                "one-allocation-a-claim",
                "",
                f"{len(claims)} claims, {len(allocations)} allocations",
            )
        ]
    check = _Check(node, snapshot, features, cel)
    for index, (claim, allocation) in enumerate(zip(claims, allocations, strict=True)):
        check.claim(index, claim, allocation)
    check.together()
    return check.violations


@dataclass(slots=True)
class _Check:
    """Collects violations; `placed` are the results that could be resolved."""

    node: Node
    snapshot: Snapshot
    features: Features
    cel: Compiler
    violations: list[Violation] = field(default_factory=list)
    placed: list[_Placed] = field(default_factory=list)

    def fail(self, rule: str, claim: ResourceClaim | None, message: str) -> None:
        self.violations.append(Violation(rule, claim.metadata.name if claim else "", message))

    @property
    def is_stable(self) -> bool:
        return self.features.implementation == "stable"

    @property
    def is_experimental(self) -> bool:
        return self.features.implementation == "experimental"

    # One claim

    def claim(self, index: int, claim: ResourceClaim, allocation: AllocationResult) -> None:
        """Check one claim by itself."""
        results = allocation.devices.results or ()
        if len(results) > _MAX_RESULTS:
            self.fail("at-most-32-results", claim, f"{len(results)} results")
        mine = []
        for result in results:
            placed = self._resolve(index, claim, result)
            if placed is not None:
                mine.append(placed)
                self._device(placed)
        self.placed += mine
        chosen = self._counts(claim, results)
        for constraint in claim.spec.devices.constraints or ():
            self._constraint(claim, constraint, mine)
        self._config(claim, allocation, chosen)
        self._selector(claim, allocation, mine)
        self._twice_in_claim(claim, mine)

    def _resolve(
        self, index: int, claim: ResourceClaim, result: DeviceRequestAllocationResult
    ) -> _Placed | None:
        spec = _spec_of(claim, result.request)
        if spec is None:
            self.fail("request-exists", claim, f"no request {result.request}")
            return None
        device_class = self.snapshot.classes.get(spec.device_class_name)
        if device_class is None:
            self.fail("class-exists", claim, f"no device class {spec.device_class_name}")
            return None
        found = self._find(result.device_id)
        if found is None:
            self.fail(
                "device-exists", claim, f"{result.device_id} is not there for node {self.node.name}"
            )
            return None
        return _Placed(index, claim, result, spec, device_class, found)

    def _find(self, device_id: DeviceID) -> _Found | None:
        for one in _current(device_id.pool_id, self.node, self.snapshot, self.features):
            for device in one.spec.devices or ():
                if device.name == device_id.device:
                    return _Found(device, one)
        return None

    def _device(self, placed: _Placed) -> None:
        """Check one result against its request and its device."""
        result, device, owner = placed.result, placed.found.device, placed.owner
        pool = placed.id.pool_id
        problem = _pool_problem(pool, self.node, self.snapshot, self.features)
        if problem:
            self.fail("pool-usable", owner, f"pool {pool}: {problem}")
        if not self._is_here(placed.found):
            self.fail("device-on-node", owner, f"{placed.id} is for another node")
        self._selected(placed)
        self._gates(placed)
        if self.features.device_taints:
            for taint in device.taints or ():
                if taint.effect in {"NoSchedule", "NoExecute"} and not any(
                    _covers(toleration, taint) for toleration in placed.spec.tolerations or ()
                ):
                    self.fail("taints-tolerated", owner, f"{placed.id}: taint {taint.key}")
        if (result.tolerations or ()) != (placed.spec.tolerations or ()):
            self.fail("tolerations-copied", owner, f"{placed.id}: not those of the request")
        self._share(placed)
        self._copies(placed)
        usage = self.snapshot.allocated.usage(pool)
        if not placed.is_admin and device.name in usage.devices:
            self.fail("device-free", owner, f"{placed.id} is in use")

    def _is_here(self, found: _Found) -> bool:
        if not found.slice.spec.per_device_node_selection:
            return True
        return _is_for(self.node, found.device)

    def _selected(self, placed: _Placed) -> None:
        device = placed.found.device
        every = (*(placed.device_class.spec.selectors or ()), *(placed.spec.selectors or ()))
        for selector in every:
            text = selector.cel.expression if selector.cel else ""
            try:
                matches = self.cel.selector(text).evaluate(self._values(placed.id.driver, device))
            except CelError as error:
                self.fail("selectors-match", placed.owner, f"{placed.id}: {text}: {error}")
                continue
            if not matches:
                self.fail("selectors-match", placed.owner, f"{placed.id}: {text}")

    def _values(self, driver: str, device: Device) -> DeviceValues:
        if self.is_stable:  # its selectors do not see sharing
            device = msgspec.structs.replace(device, allow_multiple_allocations=None)
        return prepare_device(driver, device)

    def _gates(self, placed: _Placed) -> None:
        device, spec, features = placed.found.device, placed.spec, self.features
        wanted = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        if wanted != placed.is_admin:
            self.fail("admin-access-as-asked", placed.owner, f"{placed.id}: asked for {wanted}")
        if placed.is_admin and not features.admin_access:
            self.fail("admin-access-gate", placed.owner, f"{placed.id}: the gate is off")
        if device.consumes_counters and not features.partitionable_devices:
            self.fail("counters-gate", placed.owner, f"{placed.id}: the gate is off")
        if device.binding_conditions and not features.binding:
            self.fail("binding-gate", placed.owner, f"{placed.id}: the gates are off")
        if self.is_experimental and placed.found.slice.spec.skip_node_operations:
            if not features.optional_node_operations:
                self.fail("node-operations-gate", placed.owner, f"{placed.id}: the gate is off")
            elif "DRAOptionalNodeOperations" not in self.node.declared_features:
                self.fail(
                    "node-operations-feature", placed.owner, f"{placed.id}: the node lacks it"
                )

    def _copies(self, placed: _Placed) -> None:
        """Check what a result repeats of its device."""
        device, result = placed.found.device, placed.result
        pairs = [
            ("binding_conditions", device.binding_conditions if self.features.binding else None),
            (
                "binding_failure_conditions",
                device.binding_failure_conditions if self.features.binding else None,
            ),
            (
                "skip_node_operations",
                placed.found.slice.spec.skip_node_operations if self.is_experimental else None,
            ),
        ]
        for name, want in pairs:
            if (getattr(result, name) or ()) != (want or ()):
                self.fail(
                    name.replace("_", "-"), placed.owner, f"{placed.id}: not as the device says"
                )

    # Shares and capacity

    def _is_shareable(self, device: Device) -> bool:
        return self.features.consumable_capacity and bool(device.allow_multiple_allocations)

    def _share(self, placed: _Placed) -> None:
        device, result = placed.found.device, placed.result
        if not self.features.consumable_capacity:
            if result.share_id is not None or result.consumed_capacity is not None:
                self.fail("share-only-with-gate", placed.owner, f"{placed.id}")
            return
        shareable = self._is_shareable(device)
        if shareable != (result.share_id is not None):
            self.fail(
                "share-id-of-shareable", placed.owner, f"{placed.id}: shareable is {shareable}"
            )
        requested = (placed.spec.capacity.requests if placed.spec.capacity else None) or {}
        for name in requested:
            if name not in (device.capacity or {}):
                self.fail("capacity-exists", placed.owner, f"{placed.id} has no capacity {name}")
        recorded = result.consumed_capacity or {}
        if not shareable:
            if recorded:
                self.fail("consumed-only-by-shares", placed.owner, f"{placed.id}")
            self._filter(placed, requested)
            return
        if set(recorded) != set(device.capacity or {}):
            self.fail("every-capacity-recorded", placed.owner, f"{placed.id}: {sorted(recorded)}")
        for name, amount in recorded.items():
            capacity = (device.capacity or {}).get(name)
            if capacity is None:
                continue
            problem = self._amount_problem(amount, capacity, requested.get(name))
            if problem:
                self.fail("amount-as-policy-says", placed.owner, f"{placed.id}: {name}: {problem}")

    def _filter(self, placed: _Placed, requested: Mapping[str, Quantity]) -> None:
        """A device that is not shared must be large enough, that is all."""
        for name, amount in requested.items():
            capacity = (placed.found.device.capacity or {}).get(name)
            if capacity is not None and amount > capacity.value:
                self.fail("capacity-sufficient", placed.owner, f"{placed.id}: {name}")

    def _amount_problem(  # noqa: PLR0911 - one return a rule of the policy
        self, amount: Quantity, capacity: DeviceCapacity, requested: Quantity | None
    ) -> str:
        """Say what is wrong with a consumed amount, given what was asked for."""
        policy = capacity.request_policy
        if amount.nanos < 0:
            return "negative"
        if requested is None:
            default = policy.default if policy else None
            want = capacity.value if default is None else default
            return "" if amount == want else f"{amount} is not the default {want}"
        if policy is None or (amount == requested == policy.default):
            return "" if amount == requested else f"{amount} is not the {requested} asked for"
        if policy.valid_range is not None:
            highest = policy.valid_range.max
            if highest is not None and amount > highest and amount != policy.default:
                return f"{amount} is above the maximum"
            return self._range_problem(amount, policy.valid_range, requested)
        if policy.valid_values:
            fitting = [value for value in policy.valid_values if value >= requested]
            return (
                ""
                if fitting and amount == min(fitting)
                else f"{amount} is not the next valid value"
            )
        return "" if amount == requested else f"{amount} is not the {requested} asked for"

    def _range_problem(
        self, amount: Quantity, valid: CapacityRequestPolicyRange, requested: Quantity
    ) -> str:
        minimum = valid.min
        if minimum is None:
            return "" if amount == requested else f"{amount} is not the {requested} asked for"
        if requested < minimum or valid.step is None:
            want = max(requested, minimum)
            return "" if amount == want else f"{amount} is not {want}"
        unit = self._unit(valid)
        low, step, goal, got = (
            _units(quantity, unit) for quantity in (minimum, valid.step, requested, amount)
        )
        if (got - low) % step:
            return f"{amount} is no multiple of the step"
        if got < goal or got - step >= goal:
            return f"{amount} is not the next step after {requested}"
        return ""

    def _unit(self, valid: CapacityRequestPolicyRange) -> int:
        """Nano-units of the arithmetic of a range: thousandths when the gate is on and they are exact, else whole units."""
        milli = NANOS_PER_UNIT // 1000
        bounds = [bound for bound in (valid.min, valid.max, valid.step) if bound is not None]
        exact = all(bound.nanos % milli == 0 for bound in bounds)
        return milli if self.features.fractional_capacity_range and exact else NANOS_PER_UNIT

    # Requests

    def _counts(
        self, claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult]
    ) -> dict[str, str]:
        """Check how many devices each request got; returns request -> result name that was served."""
        chosen: dict[str, str] = {}
        for request in claim.spec.devices.requests or ():
            names = _result_names(request)
            served = [name for name in names if any(result.request == name for result in results)]
            if len(served) > 1:
                self.fail("one-alternative", claim, f"request {request.name}: {served}")
            free = [name for name in names if self._wants_none(claim, name)]
            if not served and not free:
                self.fail("every-request-served", claim, f"request {request.name} has no device")
                continue
            name = (served or free)[0]
            chosen[request.name] = name
            got = [result.device_id for result in results if result.request == name]
            self._count(claim, name, got)
        return chosen

    def _wants_none(self, claim: ResourceClaim, name: str) -> bool:
        spec = _spec_of(claim, name)
        return spec is not None and spec.allocation_mode == "ExactCount" and spec.count <= 0

    def _count(self, claim: ResourceClaim, name: str, got: Sequence[DeviceID]) -> None:
        spec = _spec_of(claim, name)
        if spec is None:
            return
        if spec.allocation_mode == "All":
            want = set(self._all(claim, spec))
            if want != set(got):
                missing = sorted(str(device) for device in want - set(got))
                self.fail("all-means-all", claim, f"request {name}: missing {missing}")
        elif len(got) != max(spec.count, 0):
            self.fail("count-as-asked", claim, f"request {name}: {len(got)} devices")
        if len(set(got)) != len(got):
            self.fail("no-device-twice-in-a-request", claim, f"request {name}")

    def _all(self, claim: ResourceClaim, spec: _Spec) -> Iterator[DeviceID]:
        """All devices here that a request selects and that are large enough."""
        device_class = self.snapshot.classes.get(spec.device_class_name)
        if device_class is None:
            return
        requested = (spec.capacity.requests if spec.capacity else None) or {}
        for pool in sorted(self.snapshot.slices.pools):
            if _is_obsolete(pool, self.node, self.snapshot, self.features):
                continue
            for one in _current(pool, self.node, self.snapshot, self.features):
                for device in one.spec.devices or ():
                    placed = _Placed(
                        0,
                        claim,
                        DeviceRequestAllocationResult(
                            driver=pool.driver, pool=pool.name, device=device.name
                        ),
                        spec,
                        device_class,
                        _Found(device, one),
                    )
                    if self._would_select(placed) and self._large_enough(device, requested):
                        yield placed.id

    def _would_select(self, placed: _Placed) -> bool:
        probe = _Check(self.node, self.snapshot, self.features, self.cel)
        probe._selected(placed)
        hidden = placed.found.device.binding_conditions and not self.features.binding
        return not probe.violations and self._is_here(placed.found) and not hidden

    def _large_enough(self, device: Device, requested: Mapping[str, Quantity]) -> bool:
        """Say whether a device could ever serve the amounts, with nobody else on it."""
        if not self.features.consumable_capacity:
            return True
        capacities = device.capacity or {}
        if any(name not in capacities for name in requested):
            return False
        return all(
            self._could_serve(capacity, requested.get(name))
            for name, capacity in capacities.items()
        )

    def _could_serve(  # noqa: PLR0911 - one return a rule of the policy
        self, capacity: DeviceCapacity, requested: Quantity | None
    ) -> bool:
        policy = capacity.request_policy
        if requested is None and policy is not None and policy.default is None:
            # API validation wants a default, then this does not happen.
            return self._allows_everything(capacity.value, policy)
        if requested is None:
            default = policy.default if policy else None
            return default is None or default <= capacity.value
        if policy is None:
            return requested <= capacity.value
        if policy.valid_range is not None:
            valid = policy.valid_range
            least = self._least_in_range(requested, valid)
            highest = valid.max
            # What stepping computed is never taken for the default, even where it is equal.
            stepped = valid.step is not None and valid.min is not None and requested >= valid.min
            is_default = (
                not stepped and policy.default is not None and least == policy.default.nanos
            )
            if highest is not None and least > Fraction(highest.nanos) and not is_default:
                return False
            return least <= capacity.value.nanos
        if policy.valid_values:
            if any(value >= requested for value in policy.valid_values):
                return any(requested <= value <= capacity.value for value in policy.valid_values)
            return policy.default == requested <= capacity.value
        return requested <= capacity.value

    def _allows_everything(self, value: Quantity, policy: CapacityRequestPolicy) -> bool:
        """Say whether a policy lets somebody have the whole of a capacity."""
        valid = policy.valid_range
        if valid is None:
            return not policy.valid_values or value in policy.valid_values
        if valid.max is not None and value > valid.max:
            return False
        if valid.step is None or valid.min is None:
            return True
        unit = self._unit(valid)
        return (_units(value, unit) - _units(valid.min, unit)) % _units(valid.step, unit) == 0

    def _least_in_range(self, requested: Quantity, valid: CapacityRequestPolicyRange) -> Fraction:
        """The amount, in nano-units, that a range makes of a request."""
        if valid.min is None:
            return Fraction(requested.nanos)
        if requested < valid.min or valid.step is None:
            return Fraction(max(requested, valid.min).nanos)
        unit = self._unit(valid)
        low, step, goal = (_units(q, unit) for q in (valid.min, valid.step, requested))
        steps = -(-(goal - low) // step)
        return Fraction((low + steps * step) * unit)

    def _twice_in_claim(self, claim: ResourceClaim, mine: Sequence[_Placed]) -> None:
        for left, right in combinations(mine, 2):
            if left.id == right.id and not self._is_shareable(left.found.device):
                self.fail("no-device-twice-in-a-claim", claim, f"{left.id}")

    # Constraints

    def _constraint(
        self, claim: ResourceClaim, constraint: DeviceConstraint, mine: Sequence[_Placed]
    ) -> None:
        names = constraint.requests or ()
        concerned = [
            placed
            for placed in mine
            if not names
            or placed.result.request in names
            or placed.result.request.partition("/")[0] in names
        ]
        attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        values = []
        for placed in concerned:
            try:
                value = self._attribute(placed, attribute)
            except CelError as error:
                self.fail("derived-attribute", claim, f"{placed.id}: {attribute}: {error}")
                return
            if value is None:
                self.fail("constraint-attribute-exists", claim, f"{placed.id} has no {attribute}")
                return
            values.append(value)
        lists = self.is_experimental and self.features.list_type_attributes
        if constraint.match_attribute is not None:
            if not _all_match(values, lists=lists):
                self.fail("match-attribute", claim, f"{attribute} differs")
        elif not _all_distinct(values, lists=lists):
            self.fail("distinct-attribute", claim, f"{attribute} repeats")

    def _attribute(self, placed: _Placed, name: str) -> DeviceAttribute | None:
        for derived in placed.spec.derived_attributes or ():
            if derived.name == name:
                values = self._values(placed.id.driver, placed.found.device)
                found = self.cel.derived(derived.expression).evaluate_value(values)
                return found if isinstance(found, DeviceAttribute) else None
        attributes = placed.found.device.attributes or {}
        if name in attributes:
            return attributes[name]
        prefix = f"{placed.id.driver}/"
        return attributes.get(name.removeprefix(prefix)) if name.startswith(prefix) else None

    # Configuration and node selector

    def _config(
        self, claim: ResourceClaim, allocation: AllocationResult, chosen: Mapping[str, str]
    ) -> None:
        want = list(self._expected_config(claim, chosen))
        got = list(allocation.devices.config or ())
        if want != got:
            self.fail(
                "config", claim, f"{len(got)} entries, expected {len(want)}, or other contents"
            )

    def _expected_config(
        self, claim: ResourceClaim, chosen: Mapping[str, str]
    ) -> Iterator[DeviceAllocationConfiguration]:
        by_class: dict[str, list[str]] = {}
        for name in chosen.values():
            spec = _spec_of(claim, name)
            if spec is not None:
                by_class.setdefault(spec.device_class_name, []).append(name)
        for class_name, names in by_class.items():
            device_class = self.snapshot.classes.get(class_name)
            for config in (device_class.spec.config or ()) if device_class else ():
                yield _entry("FromClass", names, config.opaque, chosen)
        live = {*chosen, *chosen.values()}
        for own in claim.spec.devices.config or ():
            if not own.requests or live & set(own.requests):
                yield _entry("FromClaim", own.requests or (), own.opaque, chosen)

    def _selector(
        self, claim: ResourceClaim, allocation: AllocationResult, mine: Sequence[_Placed]
    ) -> None:
        got = allocation.node_selector
        if got is not None and not _selects(got, self.node):
            self.fail("node-selector-matches-node", claim, "the node is not selected")
        local = any(self._is_local(placed) for placed in mine)
        if local:
            if not _is_only(got, self.node.name):
                self.fail("node-selector-only-this-node", claim, "a device is local")
            return
        want = {requirement for placed in mine for requirement in self._requirements(placed)}
        terms = got.node_selector_terms or () if got else ()
        have = {
            (kind, r.key, r.operator, frozenset(r.values or ()))
            for term in terms
            for kind, requirements in (
                ("field", term.match_fields),
                ("label", term.match_expressions),
            )
            for r in requirements or ()
        }
        if want != have or len(terms) > 1:
            self.fail("node-selector-of-devices", claim, "not what the devices' selectors say")

    def _where(self, placed: _Placed) -> Any:
        spec = placed.found.slice.spec
        return placed.found.device if spec.per_device_node_selection else spec

    def _is_local(self, placed: _Placed) -> bool:
        binds = bool(placed.found.device.binds_to_node) and not self.is_stable
        return binds or self._where(placed).node_name is not None

    def _requirements(self, placed: _Placed) -> Iterator[tuple[str, str, str, frozenset[str]]]:
        selector = self._where(placed).node_selector
        for term in (selector.node_selector_terms or ()) if selector else ():
            for kind, requirements in (
                ("field", term.match_fields),
                ("label", term.match_expressions),
            ):
                for r in requirements or ():
                    yield kind, r.key, r.operator, frozenset(r.values or ())

    # All claims together

    def together(self) -> None:
        """Check what claims may not do to one another."""
        self._exclusive_use()
        self._share_ids()
        self._capacity_left()
        self._counters_left()
        if self.is_experimental and self.features.device_compatibility_groups:
            self._groups_agree()

    def _exclusive_use(self) -> None:
        plain = [p for p in self.placed if not p.is_admin]
        for left, right in combinations(plain, 2):
            if (
                left.id == right.id
                and left.claim != right.claim
                and not self._is_shareable(left.found.device)
            ):
                self.fail("device-given-once", None, f"{left.id}")

    def _share_ids(self) -> None:
        seen: set[tuple[DeviceID, str]] = set()
        for placed in self.placed:
            share = placed.result.share_id
            if share is None:
                continue
            usage = self.snapshot.allocated.usage(placed.id.pool_id)
            if (placed.id, share) in seen or share in usage.shares.get(placed.id.device, ()):
                self.fail("share-id-fresh", placed.owner, f"{placed.id}: {share}")
            seen.add((placed.id, share))

    def _capacity_left(self) -> None:
        if not self.features.consumable_capacity:
            return
        for device_id in dict.fromkeys(placed.id for placed in self.placed):
            on_it = [placed for placed in self.placed if placed.id == device_id]
            usage = self.snapshot.allocated.usage(device_id.pool_id)
            others = usage.consumed.get(device_id.device, {})
            for name, capacity in (on_it[0].found.device.capacity or {}).items():
                total = others[name].nanos if name in others else 0
                for placed in on_it:
                    recorded = placed.result.consumed_capacity or {}
                    total += max(0, recorded[name].nanos) if name in recorded else 0
                if total > capacity.value.nanos:
                    self.fail("capacity-left", on_it[0].owner, f"{device_id}: {name}")

    def _counters_left(self) -> None:
        consuming = [p for p in self.placed if p.found.device.consumes_counters]
        for pool in dict.fromkeys(placed.id.pool_id for placed in consuming):
            total = {
                (counter_set.name, name): counter.value.nanos
                for one in _whole(pool, self.node, self.snapshot, self.features)
                for counter_set in one.spec.shared_counters or ()
                for name, counter in (counter_set.counters or {}).items()
            }
            if not self._charges_any(pool, consuming):
                continue
            for device in self._charged(pool, consuming):
                for entry in device.consumes_counters or ():
                    for name, counter in (entry.counters or {}).items():
                        key = (entry.counter_set, name)
                        total[key] = total.get(key, 0) - max(0, counter.value.nanos)
            for (set_name, name), left in total.items():
                if left < 0:
                    self.fail("counters-left", None, f"pool {pool}: {set_name}/{name}")

    def _is_allocated(self, pool: PoolID, name: str) -> bool:
        usage = self.snapshot.allocated.usage(pool)
        shared = name in usage.shares or name in usage.consumed
        return name in usage.devices or (shared and not self.is_stable)

    def _charges_any(self, pool: PoolID, consuming: Sequence[_Placed]) -> bool:
        return any(p.id.pool_id == pool and self._charges(p) for p in consuming)

    def _charges(self, placed: _Placed) -> bool:
        """Say whether a placement pays for counters: not if others share the device, they have paid."""
        if not self._is_shareable(placed.found.device):
            return True
        usage = self.snapshot.allocated.usage(placed.id.pool_id)
        return placed.id.device not in usage.shares and placed.id.device not in usage.consumed

    def _charged(self, pool: PoolID, consuming: Sequence[_Placed]) -> Iterator[Device]:
        for one in _whole(pool, self.node, self.snapshot, self.features):
            for device in one.spec.devices or ():
                if self._is_allocated(pool, device.name):
                    yield device
        paid: set[DeviceID] = set()
        for placed in consuming:
            if placed.id.pool_id != pool or not self._charges(placed) or placed.id in paid:
                continue
            yield placed.found.device
            if self._is_shareable(placed.found.device):
                paid.add(placed.id)

    def _groups_agree(self) -> None:
        for pool in dict.fromkeys(placed.id.pool_id for placed in self.placed):
            before: dict[str, list[frozenset[str]]] = {}
            for one in _whole(pool, self.node, self.snapshot, self.features):
                for device in one.spec.devices or ():
                    if self._is_allocated(pool, device.name):
                        _add_groups(before, device)
            after = {name: list(groups) for name, groups in before.items()}
            for placed in self.placed:
                if placed.id.pool_id == pool:
                    _add_groups(after, placed.found.device)
            for name, groups in after.items():
                if not _agree(groups) and _agree(before.get(name, [])):
                    self.fail("compatibility-groups", None, f"pool {pool}: counter set {name}")


def _add_groups(into: dict[str, list[frozenset[str]]], device: Device) -> None:
    for entry in device.consumes_counters or ():
        into.setdefault(entry.counter_set, []).append(frozenset(entry.compatibility_groups or ()))


def _agree(groups: Sequence[frozenset[str]]) -> bool:
    """Say whether devices may be together: none has groups, or all have one in common."""
    return not any(groups) or bool(frozenset.intersection(*groups))


def _spec_of(claim: ResourceClaim, name: str) -> _Spec | None:
    """Find the (sub)request that a result name means."""
    for request in claim.spec.devices.requests or ():
        if request.first_available:
            for alternative in request.first_available:
                if f"{request.name}/{alternative.name}" == name:
                    return alternative
        elif request.name == name:
            return request.exactly
    return None


def _result_names(request: DeviceRequest) -> list[str]:
    if request.first_available:
        return [f"{request.name}/{alternative.name}" for alternative in request.first_available]
    return [request.name]


def _covers(toleration: Any, taint: Any) -> bool:
    return (
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
        )
    )


def _units(quantity: Quantity, unit: int) -> int:
    """How many units a quantity needs."""
    return -(-quantity.nanos // unit)


def _entry(
    source: str, requests: Iterable[str], opaque: Any, chosen: Mapping[str, str]
) -> DeviceAllocationConfiguration:
    """An entry of the configuration; one that covers every request names none."""
    names = tuple(requests)
    everyone = all(name in names or result in names for name, result in chosen.items())
    return DeviceAllocationConfiguration(
        source=source, requests=None if everyone or not names else names, opaque=opaque
    )


def _selects(selector: NodeSelector, node: Node) -> bool:
    try:
        return matches_node_selector(selector, node.labels, node.name)
    except NodeSelectorError:
        return False


def _is_only(selector: NodeSelector | None, name: str) -> bool:
    """Say whether a selector is for one node, by name and nothing else."""
    terms = selector.node_selector_terms or () if selector else ()
    if len(terms) != 1 or terms[0].match_expressions:
        return False
    fields = terms[0].match_fields or ()
    return [(f.key, f.operator, f.values) for f in fields] == [("metadata.name", "In", (name,))]


def _is_for(node: Node, where: Any) -> bool:
    """Say whether a slice or device is for a node."""
    if where.node_name:
        return bool(where.node_name == node.name)
    if where.all_nodes:
        return True
    return where.node_selector is not None and _selects(where.node_selector, node)


# Slices and pools


def _in_pool(pool: PoolID, snapshot: Snapshot) -> Iterator[ResourceSlice]:
    for prepared in snapshot.slices.in_pool(pool):
        yield prepared.slice


def _is_usable(one: ResourceSlice, features: Features) -> bool:
    """Say whether the gates let a slice be seen."""
    spec = one.spec
    if not features.partitionable_devices and (
        spec.shared_counters or spec.per_device_node_selection is not None
    ):
        return False
    return not _has_hidden_groups(one, features)


def _has_hidden_groups(one: ResourceSlice, features: Features) -> bool:
    if features.device_compatibility_groups and features.implementation == "experimental":
        return False
    return any(
        entry.compatibility_groups
        for device in one.spec.devices or ()
        for entry in device.consumes_counters or ()
    )


def _counts_for(one: ResourceSlice, node: Node) -> bool:
    if one.spec.node_name or one.spec.all_nodes or one.spec.node_selector is not None:
        return _is_for(node, one.spec)
    return bool(one.spec.per_device_node_selection) and any(
        _is_for(node, device) for device in one.spec.devices or ()
    )


def _here(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> list[ResourceSlice]:
    """Slices of a pool that count for a node, of their newest generation; the node's own come first."""
    stable = features.implementation == "stable"
    seen = [
        one
        for one in _in_pool(pool, snapshot)
        if _is_usable(one, features)
        and (_counts_for(one, node) or (stable and one.spec.shared_counters))
    ]
    if not stable:
        seen.sort(key=lambda one: not one.spec.node_name)
    newest = max((one.spec.pool.generation for one in seen), default=0)
    return [one for one in seen if one.spec.pool.generation == newest]


def _current(
    pool: PoolID, node: Node, snapshot: Snapshot, features: Features
) -> list[ResourceSlice]:
    """Slices with devices that a node may use."""
    return [
        one
        for one in _here(pool, node, snapshot, features)
        if not (features.partitionable_devices and one.spec.shared_counters)
    ]


def _whole(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> list[ResourceSlice]:
    """All slices of the generation that a node uses, whichever node they are for."""
    here = _here(pool, node, snapshot, features)
    if not here or len(here) == here[0].spec.pool.resource_slice_count:
        return here
    generation = here[0].spec.pool.generation
    return [
        one
        for one in _in_pool(pool, snapshot)
        if one.spec.pool.generation == generation and not _has_hidden_groups(one, features)
    ]


def _is_obsolete(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> bool:
    """Say whether a newer generation, seen by other nodes only, hides what this node has of a pool."""
    here = _here(pool, node, snapshot, features)
    if not here or len(here) == here[0].spec.pool.resource_slice_count:
        return False
    generation = here[0].spec.pool.generation
    return any(one.spec.pool.generation > generation for one in _in_pool(pool, snapshot))


def _pool_problem(pool: PoolID, node: Node, snapshot: Snapshot, features: Features) -> str:
    """Say why the devices of a pool that has slices for the node may not be used."""
    want = _here(pool, node, snapshot, features)[0].spec.pool.resource_slice_count
    if _is_obsolete(pool, node, snapshot, features):
        return "a newer generation is there"
    whole = _whole(pool, node, snapshot, features)
    if len(whole) != want:
        return "it is incomplete"
    names = [
        device.name
        for one in _current(pool, node, snapshot, features)
        for device in one.spec.devices or ()
    ]
    if len(names) != len(set(names)):
        return "a device name is there twice"
    return _counter_problem(whole) if features.partitionable_devices else ""


def _counter_problem(whole: Sequence[ResourceSlice]) -> str:
    sets = [s for one in whole for s in one.spec.shared_counters or ()]
    known = {s.name: set(s.counters or ()) for s in sets}
    if len(known) != len(sets):
        return "a counter set is there twice"
    for one in whole:
        for device in one.spec.devices or ():
            for entry in device.consumes_counters or ():
                if not set(entry.counters or ()) <= known.get(entry.counter_set, set()):
                    return "a device consumes an unknown counter"
                if entry.counter_set not in known:
                    return "a device consumes from an unknown counter set"
    return ""


def _all_match(values: Sequence[DeviceAttribute], *, lists: bool) -> bool:
    if len(values) < 2 and not lists:
        return True
    sets = [_value_set(value, lists=lists) for value in values]
    return not sets or bool(frozenset.intersection(*sets))


def _all_distinct(values: Sequence[DeviceAttribute], *, lists: bool) -> bool:
    sets = [_value_set(value, lists=lists) for value in values]
    if any(not values for values in sets[0 if lists else 1 :]):
        return False
    return not any(left & right for left, right in combinations(sets, 2))


def _value_set(attribute: DeviceAttribute, *, lists: bool) -> frozenset[tuple[str, Any]]:
    """The values of an attribute, each with its type; lists count only with their gate."""
    if lists:
        for name in ("ints", "bools", "strings", "versions"):
            values = getattr(attribute, name)
            if values:
                return frozenset((name.removesuffix("s"), value) for value in values)
    order = (
        ("int_", "bool_", "string", "version") if lists else ("string", "int_", "bool_", "version")
    )
    for name in order:
        value = getattr(attribute, name)
        if value is not None:
            return frozenset({(name.removesuffix("_"), value)})
    return frozenset()
