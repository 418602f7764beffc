"""The reference of reason kinds: every kind of the closed list, what it means, and what to do about it."""

from typing import Final

from allocator.outcome import ReasonKind
from allocator.stages import STAGES
from docs.gen.markdown import anchor, table

_STAGES: Final = ", ".join(f"`{kind.value}`" for kind in STAGES)
_INTRO: Final = f"""# Reasons

Every refusal has a **kind** from the closed list below, a **message** and, where devices were examined, **details**.

- The kind is what metrics (`dra_scheduler_refusals_total`), JSON output and tables show. Kinds are never renamed.
- The message is what events and the pod's `PodScheduled` condition show. It holds no counts of devices, no times and no device
  names: in kube-scheduler a condition that changes puts the pod back into the queue at once.
- Details tell for each device what it failed on. `simulate`, `explain pod` and JSON output have them; events never do, so
  that they do not show one tenant's names to another.

## Which reason

*On one node*: the first request, in the order of the pod's claims, that cannot be served; and of its devices the furthest stage that any
of them reached, in the order {_STAGES}. So `DevicesInUse` means: some devices do match, and all of those are
taken.

*For the pod*: a reason that concerns the pod as a whole, if there is one; an error, if a node had one; else the kind that most of
the nodes gave, leaving out nodes that already fail a predicate that is not about devices. Ties go to the kind that comes first in the list.

"""

# Kind -> what it means; what to do. In the order of the enum, which decides ties.
TEXTS: Final[dict[ReasonKind, tuple[str, str]]] = {
    ReasonKind.CLAIM_NOT_FOUND: (
        "A claim that the pod names does not exist.",
        "Create it; the pod is tried again as soon as it exists.",
    ),
    ReasonKind.CLAIM_NOT_CREATED: (
        "The claim controller has not made the claim from its template yet.",
        "Usually a matter of milliseconds. If it stays: does the template exist, does kube-controller-manager run?",
    ),
    ReasonKind.CLAIM_BEING_DELETED: (
        "The claim has a deletion timestamp.",
        "Wait until it is deleted, and create it again.",
    ),
    ReasonKind.CLAIM_NOT_OWNED: (
        "The claim made for the pod belongs to another pod.",
        "Delete the pod; its replacement gets a claim of its own.",
    ),
    ReasonKind.INVALID_CLAIM: (
        "The claim or its allocation cannot be used as it is written.",
        "The message names the field. `dra-scheduler validate` checks manifests before they are applied.",
    ),
    ReasonKind.ALLOCATION_PENDING: (
        "Another pod that shares the claim is having it allocated right now.",
        "Nothing: the pod is woken when the allocation is written.",
    ),
    ReasonKind.DEVICE_CLASS_NOT_FOUND: (
        "A DeviceClass that the claim names does not exist.",
        "Install the driver's classes, or correct the name.",
    ),
    ReasonKind.POOL_INCOMPLETE: (
        "A pool is being republished by its driver: not all of its slices are there.",
        "Usually gone in seconds. If it stays, compare `resourceSliceCount` with the slices of the newest generation.",
    ),
    ReasonKind.POOL_INVALID: (
        "A pool contradicts itself: a device name twice, or a counter that no set defines.",
        "A fault of the driver. `dra-scheduler validate -f slices.yaml` names the slice.",
    ),
    ReasonKind.NO_MATCHING_DEVICE: (
        "No device, or fewer than asked for, satisfies class and selectors on this node.",
        "`dra-scheduler cel EXPRESSION -f slices.yaml` shows for each device which clause is false.",
    ),
    ReasonKind.DEVICES_IN_USE: (
        "Devices match, and other claims hold them.",
        "`dra-scheduler top claims` shows who. The pod is tried again when one is freed.",
    ),
    ReasonKind.CAPACITY_EXHAUSTED: (
        "Shared devices match, and too little of their capacity is left, or the amount exceeds what the policy allows.",
        "`dra-scheduler top devices` shows what is left; ask for less, or wait.",
    ),
    ReasonKind.COUNTERS_EXHAUSTED: (
        "The partition is free, and other partitions have used up the counters of its card.",
        "Wait, or ask for a smaller partition.",
    ),
    ReasonKind.INCOMPATIBLE_GROUP: (
        "The partition cannot exist together with those in use: their compatibility groups exclude each other.",
        "Wait until the card is free of the others, or ask for the kind it is used as.",
    ),
    ReasonKind.DEVICE_TAINTED: (
        "Devices match and are free, and have a taint that the request does not tolerate.",
        "Look at the taint's reason (the device may be unhealthy); a toleration in the request accepts it.",
    ),
    ReasonKind.CONSTRAINT_UNSATISFIED: (
        "Single devices would do, and no combination satisfies `matchAttribute` or `distinctAttribute`.",
        "Is the attribute published by all drivers concerned, under that name and with the same type?",
    ),
    ReasonKind.TOO_MANY_DEVICES: (
        "The claim would hold more than 32 devices.",
        "Split it into several claims.",
    ),
    ReasonKind.SELECTOR_ERROR: (
        "A CEL expression does not compile, failed on a device, or cost too much.",
        'The message has the expression\'s error. Guard attributes that not all devices have: `device.attributes["d"].?x.orValue(0)`.',
    ),
    ReasonKind.ADMIN_ACCESS_DENIED: (
        "Admin access is asked for where it is not allowed. Today the API server refuses such a claim by itself.",
        'Label the namespace `resource.kubernetes.io/admin-access: "true"`.',
    ),
    ReasonKind.ALLOCATED_ELSEWHERE: (
        "The claim has its devices already, and they cannot be used on this node.",
        "If no other pod uses the claim, it is released automatically when no node fits; otherwise the pod has to run where the devices are.",
    ),
    ReasonKind.TOO_MANY_CONSUMERS: (
        "256 pods use the claim already, or it cannot be shared at all.",
        "Use more claims, for instance one for each pod from a template.",
    ),
    ReasonKind.BINDING_CONDITIONS_PENDING: (
        "The devices are allocated, and their driver has not reported them ready.",
        "Look at `status.devices` of the claim: the driver sets the conditions there.",
    ),
    ReasonKind.BINDING_FAILED: (
        "The driver reported that the devices cannot be made ready, or took longer than the binding timeout.",
        "The claim is released and other devices are tried; look at the driver's conditions for the cause.",
    ),
    ReasonKind.FEATURE_DISABLED: (
        "The claim uses a field whose feature gate is off.",
        "Turn the gate on in the cluster and here ([Features](features.md)), or do without.",
    ),
    ReasonKind.SEARCH_BUDGET_EXCEEDED: (
        "No answer was found within `allocation.budget` candidate devices.",
        "Claims with many equal devices and a constraint across requests can cause this; simplify the claim or raise the budget.",
    ),
    ReasonKind.DEADLINE_EXCEEDED: (
        "Deciding or binding took longer than it may.",
        "It is tried again. If it persists, look at `dra_scheduler_decision_seconds` and at the API server's latency.",
    ),
    ReasonKind.NODE_FEATURE_MISSING: (
        "The devices can be used only on nodes whose kubelet declares a feature, and this node does not.",
        "Upgrade the node, or select others.",
    ),
    ReasonKind.NODE_UNSCHEDULABLE: ("The node is cordoned.", "`kubectl uncordon` it."),
    ReasonKind.NODE_TAINTED: (
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration to the pod, or remove the taint.",
    ),
    ReasonKind.NODE_AFFINITY_MISMATCH: (
        "The node does not match the pod's `nodeSelector` or required node affinity.",
        "Check the node's labels.",
    ),
    ReasonKind.INSUFFICIENT_RESOURCES: (
        "Too little cpu, memory or another resource is left on the node, or it runs its maximum of pods.",
        "Request less, or add nodes.",
    ),
    ReasonKind.PORT_CONFLICT: (
        "A host port of the pod is taken on the node.",
        "Do without host ports, or use other ones.",
    ),
    ReasonKind.TOPOLOGY_SPREAD: (
        "The node would violate a topology spread constraint. With the extender kube-scheduler says so itself.",
        "See kube-scheduler's message.",
    ),
    ReasonKind.POD_AFFINITY: (
        "A pod on the node, or in its topology domain, does not want this pod there (anti-affinity).",
        "Check the labels that its term selects.",
    ),
    ReasonKind.VOLUME_UNAVAILABLE: (
        "A volume cannot be used on the node. With the extender kube-scheduler says so itself.",
        "See kube-scheduler's message.",
    ),
    ReasonKind.SCHEDULING_GATED: (
        "The pod has scheduling gates.",
        "The controller that set the gates has to remove them.",
    ),
    ReasonKind.UNSUPPORTED: (
        "The pod asks for something that this scheduler does not check, and would otherwise silently not get.",
        "Let another scheduler have the pod, or use extender mode. [Predicates](predicates.md#refused-constraints) has the list.",
    ),
    ReasonKind.NO_NODES: (
        "There is no node to try, or the chosen node no longer exists.",
        "Add nodes.",
    ),
    ReasonKind.WRITE_CONFLICT: (
        "The pod or a claim changed between the decision and the write.",
        "Nothing: it is tried again on the new state. If it repeats, look for a second scheduler (`ForeignAllocation` events).",
    ),
    ReasonKind.API_UNAVAILABLE: (
        "The API server did not answer, or answered with an error.",
        "It is tried again; devices stay held until the outcome of the write is known.",
    ),
    ReasonKind.PERMISSION_DENIED: (
        "The API server refused a write for lack of a permission; the message names it.",
        "Compare the ClusterRole with `deploy/base/rbac.yaml`. Since 1.36 `resourceclaims/binding` is needed cluster-wide.",
    ),
    ReasonKind.NOT_LEADER: (
        "Another replica writes.",
        "Nothing: kube-scheduler or the queue tries again. If it persists, look at `dra_scheduler_leader`.",
    ),
    ReasonKind.NOT_READY: (
        "This process has not read the cluster yet, is shutting down, or hit an internal error.",
        "It is tried again. If it persists, `/readyz` and the log say what is missing.",
    ),
}


def page() -> str:
    """The whole page; every kind must have a text."""
    missing = set(ReasonKind) - set(TEXTS)
    if missing:
        raise AssertionError(f"docs/gen/reasons.py: no text for {sorted(missing)}")
    rows = [(f"{anchor(kind.lower())}`{kind.value}`", *TEXTS[kind]) for kind in ReasonKind]
    return _INTRO + "## All kinds\n\n" + table(("Kind", "Meaning", "What to do"), rows)
