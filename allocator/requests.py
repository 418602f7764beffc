"""Claims made ready for the search: classes looked up, gates and limits checked, alternatives numbered.

`prepare_claims` runs once a pod; what it makes serves all nodes. Nothing compiles a selector before a device is tested,
so a broken expression goes unnoticed where there is no device, as upstream.

Source: Allocate, validateDeviceRequest in structured/internal/*/allocator_*.go; KEP-4381, KEP-4816, KEP-5018.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from allocator.capacity import CapacityError, Consumption, consumption
from allocator.cel import Compiler, Program, Read, names_in_objects
from allocator.constraints import Constraint, DistinctAttribute, MatchAttribute, lookup_attribute
from allocator.errors import CelCompileError, CelError
from allocator.features import Features
from allocator.model.claims import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from allocator.model.devices import DeviceAttribute, DeviceClass, DeviceID, DeviceSelector
from allocator.model.nodes import Node, NodeSelectorError
from allocator.outcome import DeviceReason, Fatal, Reason, ReasonKind
from allocator.pools import Candidate, PoolRules, node_matches
from allocator.quantity import Quantity

MAX_RESULTS: Final = 32
"""Devices that one claim can hold (AllocationResultsMaxSize)."""

_NOTHING: Final[frozenset[object]] = frozenset()
_MISSING: Final = DeviceAttribute()
_ASKED_AT_FIRST: Final = 16  # devices that are evaluated before looking up is worth its price
_MOST_KNOWN: Final = 4_096  # different devices whose selector results are remembered for a question


class FatalError(Exception):
    """Ends the attempt; carries the outcome up to `allocate`, which returns it."""

    def __init__(self, outcome: Fatal) -> None:
        super().__init__(outcome.reason.message)
        self.outcome = outcome


class Alternative(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One way to serve a request: the request itself, or one entry of `firstAvailable`.

    Attributes:
        claim: index of the claim.
        request: index of the request in the claim.
        index: index among the alternatives; 0 for a plain request.
        claim_name: `namespace/name` of the claim.
        result_name: what results carry, `name` or `request/name`.
        device_class: its class.
        expressions: selectors of the class, then of the request; None for one that is not CEL.
        class_selectors: how many of them come from the class.
        all_devices: mode All; else `count` devices.
        count: devices needed in mode ExactCount.
        admin_access: shares devices with their users.
        tolerations: copied to every result.
        capacity: raw capacity name -> amount wanted.
        derived: fully qualified name -> expression, seen by constraints of this alternative alone.
        constraints: indexes of the claim's constraints that apply.
        key: claim and request index.
        selector_question: key of the selector answers in a slice.
        capacity_question: key of the capacity answers in a slice.
    """

    claim: int
    request: int
    index: int
    claim_name: str
    result_name: str
    device_class: DeviceClass
    expressions: tuple[str | None, ...]
    class_selectors: int
    all_devices: bool
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...] | None
    capacity: Mapping[str, Quantity] | None
    derived: Mapping[str, str]
    constraints: tuple[int, ...]
    key: tuple[int, int]
    selector_question: object
    capacity_question: object

    @property
    def where(self) -> str:
        """Name claim and request, for messages."""
        return f"claim {self.claim_name}, request {self.result_name}"


class PreparedRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request: alternatives in order of preference; `first_available` tells one alternative from a plain request."""

    name: str
    first_available: bool
    alternatives: tuple[Alternative, ...]


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A claim, its requests and its constraints."""

    claim: ResourceClaim
    requests: tuple[PreparedRequest, ...]
    constraints: tuple[Constraint, ...]


class PreparedClaims(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The claims of one pod, ready for any node.

    Attributes:
        claims: in order; when there is a problem, only what comes before it.
        problem: the first thing that makes the claims unusable on every node.
        features: the gates.
        rules: how pools are gathered.
        experimental: the newest of upstream's allocators answers.
        selectors: compiles and evaluates selectors.
        has_all: some alternative wants all devices, so that limits depend on the node.
        incomplete: the last request of `claims` lacks its later alternatives because of the problem.
    """

    claims: tuple[PreparedClaim, ...]
    problem: Reason | None
    features: Features
    rules: PoolRules
    experimental: bool
    selectors: "Selectors"
    has_all: bool
    incomplete: bool


class _ProblemError(Exception):
    def __init__(self, kind: ReasonKind, message: str, claim: str, request: str = "") -> None:
        super().__init__(message)
        self.reason = Reason(kind=kind, message=message, claim=claim, request=request)


def prepare_claims(
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    features: Features,
    cel: Compiler,
) -> PreparedClaims:
    """Make the claims of a pod ready; what is wrong with them is kept as the answer for every node."""
    implementation = features.implementation
    stable = implementation == "stable"
    experimental = implementation == "experimental"
    preparation = _Preparation(classes, features, stable=stable, experimental=experimental)
    for index, claim in enumerate(claims):
        if not preparation.add(index, claim):
            break
    return PreparedClaims(
        claims=tuple(preparation.claims),
        problem=preparation.problem,
        features=features,
        rules=rules_of(features),
        experimental=experimental,
        selectors=Selectors(cel, stable=stable),
        has_all=preparation.has_all,
        incomplete=preparation.incomplete,
    )


def rules_of(features: Features) -> PoolRules:
    """How pools are gathered with these gates."""
    implementation = features.implementation
    return PoolRules(
        partitionable=features.partitionable_devices,
        groups=implementation == "experimental" and features.device_compatibility_groups,
        stable=implementation == "stable",
    )


class _Preparation:
    """Collects prepared claims up to the first problem."""

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        features: Features,
        *,
        stable: bool,
        experimental: bool,
    ) -> None:
        self._classes = classes
        self._features = features
        self._stable = stable
        self._experimental = experimental
        self.claims: list[PreparedClaim] = []
        self.problem: Reason | None = None
        self.has_all = False
        self.incomplete = False

    def add(self, index: int, claim: ResourceClaim) -> bool:
        """Prepare a claim; false at the first problem."""
        requests: list[PreparedRequest] = []
        constraints: list[Constraint] = []
        specs = claim.spec.devices.constraints or ()
        try:
            total = 0
            for request in claim.spec.devices.requests or ():
                self._check_gates(claim, request)
                alternatives: list[Alternative] = []
                requests_done = len(requests)
                try:
                    self._alternatives(index, requests_done, claim, request, alternatives)
                finally:
                    if alternatives:
                        requests.append(
                            PreparedRequest(
                                name=request.name,
                                first_available=bool(request.first_available),
                                alternatives=tuple(alternatives),
                            )
                        )
                total = self._count(claim, requests[-1], total)
            if specs:
                constraints.extend([self._constraint(claim, spec) for spec in specs])
        except _ProblemError as error:
            self.problem = error.reason
        self.claims.append(
            PreparedClaim(claim=claim, requests=tuple(requests), constraints=tuple(constraints))
        )
        return self.problem is None

    def _check_gates(self, claim: ResourceClaim, request: DeviceRequest) -> None:
        if request.first_available and not self._features.prioritized_list:
            raise _ProblemError(
                ReasonKind.FEATURE_DISABLED,
                f"claim {claim.key}, request {request.name}: firstAvailable needs feature gate DRAPrioritizedList",
                claim.metadata.name,
                request.name,
            )
        if self._features.consumable_capacity or self._stable:
            # Differs from what one expects: the stable allocator ignores a capacity request.
            return
        wanted = [sub.capacity for sub in request.first_available or ()]
        if request.exactly is not None:
            wanted.append(request.exactly.capacity)
        if any(capacity is not None for capacity in wanted):
            raise _ProblemError(
                ReasonKind.FEATURE_DISABLED,
                f"claim {claim.key}, request {request.name}: a capacity request needs feature gate DRAConsumableCapacity",
                claim.metadata.name,
                request.name,
            )

    def _alternatives(
        self,
        claim_index: int,
        request_index: int,
        claim: ResourceClaim,
        request: DeviceRequest,
        into: list[Alternative],
    ) -> None:
        """Prepare the alternatives of a request one by one, so that those before a problem are there."""
        if request.first_available:
            specs: Sequence[ExactDeviceRequest | DeviceSubRequest] = request.first_available
        elif request.exactly is not None:
            specs = (request.exactly,)
        else:
            raise _ProblemError(
                ReasonKind.INVALID_CLAIM,
                f"claim {claim.key}, request {request.name}: neither exactly nor firstAvailable is set",
                claim.metadata.name,
                request.name,
            )
        self.incomplete = True
        for index, spec in enumerate(specs):
            name = (
                f"{request.name}/{spec.name}"
                if isinstance(spec, DeviceSubRequest)
                else request.name
            )
            into.append(self._alternative((claim_index, request_index, index), claim, name, spec))
        self.incomplete = False

    def _alternative(
        self,
        at: tuple[int, int, int],
        claim: ResourceClaim,
        name: str,
        spec: ExactDeviceRequest | DeviceSubRequest,
    ) -> Alternative:
        device_class = self._check(claim, name, spec)
        all_devices = spec.allocation_mode == "All"
        self.has_all = self.has_all or all_devices
        own = _expressions(spec.selectors)
        of_class = _expressions(device_class.spec.selectors)
        capacity = spec.capacity.requests if spec.capacity is not None else None
        if not self._features.consumable_capacity:
            capacity = None
        plain = name.partition("/")[0]
        return Alternative(
            claim=at[0],
            request=at[1],
            index=at[2],
            claim_name=claim.key,
            result_name=name,
            device_class=device_class,
            expressions=of_class + own,
            class_selectors=len(of_class),
            all_devices=all_devices,
            count=spec.count,
            admin_access=isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access),
            tolerations=spec.tolerations,
            capacity=capacity,
            derived={entry.name: entry.expression for entry in spec.derived_attributes or ()},
            constraints=()
            if not claim.spec.devices.constraints
            else tuple(
                number
                for number, constraint in enumerate(claim.spec.devices.constraints)
                if not constraint.requests
                or name in constraint.requests
                or plain in constraint.requests
            ),
            key=at[:2],
            selector_question=("selectors", self._stable, of_class + own),
            capacity_question=(
                "capacity",
                self._features.fractional_capacity_range,
                frozenset((key, q.nanos, q.format) for key, q in capacity.items())
                if capacity
                else _NOTHING,
            ),
        )

    def _check(
        self, claim: ResourceClaim, name: str, spec: ExactDeviceRequest | DeviceSubRequest
    ) -> DeviceClass:
        """Check one alternative in upstream's order and look up its class."""
        problem: tuple[ReasonKind, str] | None = None
        device_class = self._classes.get(spec.device_class_name)
        if spec.derived_attributes and not (
            self._experimental and self._features.derived_attributes
        ):
            problem = (
                ReasonKind.FEATURE_DISABLED,
                "derived attributes need feature gate DRADerivedAttributes",
            )
        elif spec.selectors and any(selector.cel is None for selector in spec.selectors):
            problem = (ReasonKind.INVALID_CLAIM, "a selector has no CEL expression")
        elif (
            isinstance(spec, ExactDeviceRequest)
            and spec.admin_access is not None
            and not self._features.admin_access
        ):
            problem = (ReasonKind.FEATURE_DISABLED, "adminAccess needs feature gate DRAAdminAccess")
        elif not spec.device_class_name:
            problem = (ReasonKind.INVALID_CLAIM, "deviceClassName is empty")
        elif device_class is None:
            problem = (
                ReasonKind.DEVICE_CLASS_NOT_FOUND,
                f"device class {spec.device_class_name} does not exist",
            )
        elif spec.allocation_mode not in ("ExactCount", "All"):
            problem = (
                ReasonKind.INVALID_CLAIM,
                f"unsupported count mode {spec.allocation_mode!r}",
            )
        if problem is not None or device_class is None:
            kind, text = problem or (ReasonKind.DEVICE_CLASS_NOT_FOUND, "")
            raise _ProblemError(
                kind, f"claim {claim.key}, request {name}: {text}", claim.metadata.name, name
            )
        return device_class

    def _count(self, claim: ResourceClaim, request: PreparedRequest, total: int) -> int:
        """Add what a request needs at least; with mode All only the node knows."""
        if any(alternative.all_devices for alternative in request.alternatives):
            return total
        least = min(alternative.count for alternative in request.alternatives)
        if least > MAX_RESULTS - total:
            reason = too_many(claim, request.name)
            raise _ProblemError(reason.kind, reason.message, reason.claim, reason.request)
        return total + least

    def _constraint(self, claim: ResourceClaim, spec: DeviceConstraint) -> Constraint:
        requests = frozenset(spec.requests or ())
        lists = self._experimental and self._features.list_type_attributes
        if spec.match_attribute is not None:
            return MatchAttribute(attribute=spec.match_attribute, requests=requests, lists=lists)
        # Differs from what one expects: the stable allocator does not know distinctAttribute.
        if spec.distinct_attribute is not None and not self._stable:
            return DistinctAttribute(
                attribute=spec.distinct_attribute, requests=requests, lists=lists
            )
        raise _ProblemError(
            ReasonKind.INVALID_CLAIM,
            f"claim {claim.key}: empty constraint (unsupported constraint type?)",
            claim.metadata.name,
        )


_MOST_TEXT: Final = 4096


def reads_of(prepared: PreparedClaims) -> frozenset[Read] | None:
    """What the search for some claims may read of a device's attributes; None if that may be anything.

    Of very long selectors nobody asks: to know it they have to be compiled, all at once, with no deadline to ask.
    """
    texts = {
        text or ""
        for claim in prepared.claims
        for request in claim.requests
        for alternative in request.alternatives
        for text in (*alternative.expressions, *alternative.derived.values())
    }
    if sum(map(len, texts)) > _MOST_TEXT:
        return None
    found: set[Read] = set()
    for claim in prepared.claims:
        for constraint in claim.constraints:
            domain, slash, name = constraint.attribute.partition("/")
            found.add(Read("attribute", domain if slash else "", name if slash else domain))
        for request in claim.requests:
            for alternative in request.alternatives:
                reads = prepared.selectors.reads(alternative)
                if reads is None:
                    return None
                found |= reads
    return frozenset(found)


def _expressions(selectors: Sequence[DeviceSelector] | None) -> tuple[str | None, ...]:
    if not selectors:
        return ()
    return tuple([None if s.cel is None else s.cel.expression for s in selectors])


def too_many(claim: ResourceClaim, request: str) -> Reason:
    """Say that a claim cannot hold the devices its requests need."""
    return Reason(
        kind=ReasonKind.TOO_MANY_DEVICES,
        message=f"claim {claim.key}, request {request}: exceeds the limit of {MAX_RESULTS} devices",
        claim=claim.metadata.name,
        request=request,
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    """A selector that failed on a device, or did not compile."""

    selector: int
    error: CelError


CheckStop = Callable[[Alternative], None]


class Selectors:
    """Answers the CEL questions of requests; answers are kept with the slices they are about."""

    __slots__ = (
        "_asked",
        "_compiled",
        "_compiler",
        "_derived",
        "_hide_sharing",
        "_known",
        "_names",
    )

    def __init__(self, compiler: Compiler, *, stable: bool) -> None:
        self._compiler = compiler
        self._hide_sharing = stable
        self._compiled: dict[str | None, Program | CelCompileError] = {}
        self._derived: dict[str, Program | CelCompileError] = {}
        self._asked = 0
        self._known: dict[object, bool | _Failure] = {}
        self._names: dict[object, tuple[tuple[str, ...], ...] | None] = {}

    def selects(
        self,
        alternative: Alternative,
        candidate: Candidate,
        node: Node,
        check_stop: CheckStop | None = None,
    ) -> bool:
        """Say whether a device is selectable by class, request and node, but for gates.

        Args:
            alternative: whose selectors.
            candidate: the device.
            node: for devices that choose their nodes.
            check_stop: asked in loops of costly expressions; raises when the search is to end. No answer is kept then.

        Raises:
            FatalError: a selector does not compile or fails on this device, or the device's own node selector cannot
                be parsed.
        """
        if alternative.expressions:
            row = candidate.facts.row(alternative.selector_question)
            answer = row[candidate.index]
            if answer is None:
                answer = row[candidate.index] = self._evaluate(alternative, candidate, check_stop)
            if answer is not True:
                if answer is False:
                    return False
                raise FatalError(_selector_outcome(alternative, candidate, answer))
        if candidate.selects_node:
            # Only now: an error of a selector on a device of another node counts.
            device = candidate.device
            try:
                return node_matches(node, device.node_name, device.all_nodes, device.node_selector)
            except NodeSelectorError as error:
                raise FatalError(_node_selector_outcome(alternative, candidate, error)) from error
        return True

    def _evaluate(
        self, alternative: Alternative, candidate: Candidate, check_stop: CheckStop | None
    ) -> bool | _Failure:
        self._asked += 1
        if self._asked <= _ASKED_AT_FIRST:
            return self._evaluated(alternative, candidate, check_stop)
        key = self._key(alternative, candidate)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known
        answer = self._evaluated(alternative, candidate, check_stop)
        if key is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = answer
        return answer

    def _key(self, alternative: Alternative, candidate: Candidate) -> object:
        """What the selectors of an alternative read of a device, and nothing else; None if that may be anything."""
        driver = candidate.id.driver
        where = (*alternative.key, alternative.index, driver)
        if where not in self._names:
            reads = self._reads([self._selector(each) for each in alternative.expressions])
            self._names[where] = (
                None
                if reads is None
                else tuple(
                    names_in_objects(reads, kind, driver) for kind in ("attribute", "capacity")
                )
            )
        names = self._names[where]
        if names is None or candidate.problem is not None:
            return None
        device = candidate.device
        attributes, capacity = device.attributes or {}, device.capacity or {}
        amounts = [each and each.value for each in map(capacity.get, names[1])]
        return (
            alternative.selector_question,
            driver,
            candidate.device.allow_multiple_allocations,
            *map(attributes.get, names[0]),
            *[each and (each.nanos, each.format, each.exponent, each.small) for each in amounts],
        )

    def _evaluated(
        self, alternative: Alternative, candidate: Candidate, check_stop: CheckStop | None
    ) -> bool | _Failure:
        deadline = None if check_stop is None else partial(_ask, check_stop, alternative)
        for number, expression in enumerate(alternative.expressions):
            try:
                program = self._program(expression)
                values = candidate.facts.values(candidate.index, hide_sharing=self._hide_sharing)
                if not program.evaluate(values, deadline=deadline):
                    return False
            except CelError as error:
                return _Failure(number, _bare(error))
        return True

    def _program(self, expression: str | None) -> Program:
        """Compile, or raise the same error again."""
        found = self._selector(expression)
        if isinstance(found, CelCompileError):
            raise CelCompileError(
                found.message
            )  # a fresh one: a raised exception collects tracebacks
        return found

    def _selector(self, expression: str | None) -> Program | CelCompileError:
        found = self._compiled.get(expression)
        if found is None:
            found = self._compiled[expression] = _compile(expression, self._compiler.selector)
        return found

    def _derivation(self, expression: str) -> Program | CelCompileError:
        found = self._derived.get(expression)
        if found is None:
            found = self._derived[expression] = _compile(expression, self._compiler.derived)
        return found

    def reads(self, alternative: Alternative) -> frozenset[Read] | None:
        """What the selectors, derived attributes and constraints of an alternative may read of a device; None: all of it.

        An expression that does not compile reads nothing.
        """
        programs = [self._selector(expression) for expression in alternative.expressions]
        programs += [self._derivation(expression) for expression in alternative.derived.values()]
        return self._reads(programs)

    @staticmethod
    def _reads(programs: Iterable[Program | CelCompileError]) -> frozenset[Read] | None:
        found: set[Read] = set()
        for program in programs:
            if isinstance(program, CelCompileError):
                continue
            if program.reads is None:
                return None
            found |= program.reads
        return frozenset(found)

    def attribute(
        self, alternative: Alternative, candidate: Candidate, name: str
    ) -> DeviceAttribute | None:
        """Find what a constraint compares: a derived attribute of this alternative, else one of the device.

        Raises:
            FatalError: a derived attribute does not compile, fails on this device or has a value of no attribute type.
        """
        expression = alternative.derived.get(name)
        if expression is None:
            row = candidate.facts.row(("attribute", name))
            known: DeviceAttribute | None = row[candidate.index]
            if known is None:
                attributes = candidate.device.attributes or {}
                known = lookup_attribute(attributes, candidate.id.driver, name) or _MISSING
                row[candidate.index] = known
            return None if known is _MISSING else known
        row = candidate.facts.row(("derived", expression))
        answer = row[candidate.index]
        if answer is None:
            answer = row[candidate.index] = self._derive(expression, candidate)
        if isinstance(answer, CelError):
            raise FatalError(_derived_outcome(alternative, candidate, name, answer))
        return answer  # type: ignore[no-any-return]

    def _derive(self, expression: str, candidate: Candidate) -> object:
        try:
            found = self._derivation(expression)
            if isinstance(found, CelCompileError):
                return found
            values = candidate.facts.values(candidate.index, hide_sharing=self._hide_sharing)
            return found.evaluate_value(values)
        except CelError as error:
            return _bare(error)


def _ask(check_stop: CheckStop, alternative: Alternative) -> bool:
    """A deadline for one evaluation that raises instead of returning true, so that CEL's error handling does not catch it."""
    check_stop(alternative)
    return False


def _bare(error: CelError) -> CelError:
    """The same error without traceback, which would keep whole searches alive."""
    return type(error)(error.message)


def _compile(
    expression: str | None, compiler: Callable[[str], Program]
) -> Program | CelCompileError:
    if expression is None:
        return CelCompileError("CEL expression empty (unsupported selector type?)")
    try:
        return compiler(expression)
    except CelCompileError as error:
        return CelCompileError(error.message)


def _selector_outcome(alternative: Alternative, candidate: Candidate, failure: _Failure) -> Fatal:
    number = failure.selector
    if number < alternative.class_selectors:
        whose = f"class {alternative.device_class.metadata.name}"
    else:
        whose = f"claim {alternative.claim_name}"
        number -= alternative.class_selectors
    return _cel_outcome(
        alternative,
        candidate.id,
        f"{alternative.where}: {whose}: selector #{number}",
        failure.error,
    )


def _derived_outcome(
    alternative: Alternative, candidate: Candidate, name: str, error: CelError
) -> Fatal:
    return _cel_outcome(
        alternative, candidate.id, f"{alternative.where}: derived attribute {name}", error
    )


def _cel_outcome(alternative: Alternative, device: DeviceID, what: str, error: CelError) -> Fatal:
    at_compile = isinstance(error, CelCompileError)
    stage = "CEL compile error" if at_compile else "CEL runtime error"
    reason = Reason(
        kind=ReasonKind.SELECTOR_ERROR,
        message=f"{what}: {stage}: {error.message}",
        claim=alternative.claim_name.partition("/")[2],
        request=alternative.result_name,
        devices=()
        if at_compile
        else (
            DeviceReason(
                device=device,
                kind=ReasonKind.SELECTOR_ERROR,
                message=f"{stage}: {error.message}",
            ),
        ),
    )
    return Fatal(reason, depends_on_node=not at_compile)


def _node_selector_outcome(
    alternative: Alternative, candidate: Candidate, error: NodeSelectorError
) -> Fatal:
    reason = Reason(
        kind=ReasonKind.POOL_INVALID,
        message=f"{alternative.where}: a device has a node selector that cannot be parsed: {error}",
        claim=alternative.claim_name.partition("/")[2],
        request=alternative.result_name,
        devices=(
            DeviceReason(device=candidate.id, kind=ReasonKind.POOL_INVALID, message=str(error)),
        ),
    )
    return Fatal(reason, depends_on_node=True)


def consumption_of(
    alternative: Alternative, candidate: Candidate, *, fractional: bool
) -> Consumption | None:
    """What a request consumes of a device, whatever else is in use; None when it can never serve the request.

    Raises:
        FatalError: an amount is negative or not representable.
    """
    row = candidate.facts.row(alternative.capacity_question)
    answer = row[candidate.index]
    if answer is None:
        try:
            answer = consumption(
                candidate.device.capacity or {}, alternative.capacity, fractional=fractional
            )
            if answer is None:
                answer = False
        except CapacityError as error:
            answer = error
        row[candidate.index] = answer
    if answer is False:
        return None
    if isinstance(answer, CapacityError):
        reason = Reason(
            kind=ReasonKind.CAPACITY_EXHAUSTED,
            message=f"{alternative.where}: {answer}",
            claim=alternative.claim_name.partition("/")[2],
            request=alternative.result_name,
            devices=(
                DeviceReason(
                    device=candidate.id, kind=ReasonKind.CAPACITY_EXHAUSTED, message=str(answer)
                ),
            ),
        )
        raise FatalError(Fatal(reason, depends_on_node=True))
    return answer  # type: ignore[no-any-return]
