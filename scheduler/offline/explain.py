"""Explains one pod: where it runs or would run, or for every node and device why not.

With manifests, the pods before it in the order of `simulate` are placed first. With a live cluster, `alone`: nothing else
that is pending moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from allocator.outcome import Reason
from scheduler import cycle
from scheduler.conclusion import conclude, summary
from scheduler.framework.plan import plan_of
from scheduler.framework.status import Status
from scheduler.model import Pod
from scheduler.offline.cluster import OfflineCluster, PodClaimResult
from scheduler.offline.inventory import InputError, take_inventory
from scheduler.offline.manifests import Manifest
from scheduler.offline.simulate import (
    Scheduling,
    SimulationOptions,
    environment_of,
    in_order,
    is_daemon_eligible,
)
from scheduler.offline.trees import claim_tree, reason_tree
from scheduler.plugins import dynamic_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of one pod.

    Attributes:
        namespace: of the pod.
        name: of the pod.
        node: where it runs, or would run now; None: nowhere.
        is_running: whether it has that node already.
        claims: its claims with their devices, if it has a node.
        reason: why there is no node.
        nodes: node → why not, devices included, or None where it would fit; none for a pod that runs.
        errors: objects left out.
        notes: what else a person should know.
    """

    namespace: str
    name: str
    node: str | None
    is_running: bool = False
    claims: tuple[PodClaimResult, ...] = ()
    reason: Reason | None = None
    nodes: Mapping[str, Reason | None] = field(default_factory=dict)
    errors: tuple[InputError, ...] = ()
    notes: tuple[str, ...] = ()


def explain_pod(
    manifests: Sequence[Manifest],
    options: SimulationOptions,
    namespace: str,
    name: str,
    *,
    alone: bool = False,
) -> Explanation | None:
    """Explain a pod of the manifests; None if it is not among them."""
    environment = environment_of(options)
    inventory = take_inventory(
        manifests, options.features, partial(is_daemon_eligible, environment)
    )
    pod = next((each for each in inventory.pods if each.key == f"{namespace}/{name}"), None)
    if pod is None:
        return None
    scheduling = Scheduling(inventory, options)
    if pod.spec.node_name:
        explanation = _running(pod, scheduling.cluster)
    else:
        for other in () if alone else in_order(inventory.pods):
            if other is pod:
                break
            scheduling.schedule(other)
        explanation = _pending(pod, scheduling)
    return replace(explanation, errors=tuple(inventory.errors), notes=tuple(scheduling.notes))


def _running(pod: Pod, cluster: OfflineCluster) -> Explanation:
    claims = dynamic_resources.resolve_claims(pod, cluster.cache)
    found = () if isinstance(claims, Status) else claims
    return Explanation(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        is_running=True,
        claims=tuple(
            PodClaimResult(each.entry, each.claim, each.claim.status.allocation)
            for each in found
            if each.claim.status.allocation is not None
        ),
    )


def _pending(pod: Pod, scheduling: Scheduling) -> Explanation:
    cluster, environment = scheduling.cluster, scheduling.engine.environment
    state = cycle.pre_filter(pod, cluster.cache, replace(environment, explain=True))
    namespace, name = pod.metadata.namespace, pod.metadata.name
    if isinstance(state, Status):
        return Explanation(namespace=namespace, name=name, node=None, reason=state.reason)
    nodes = state.snapshot.nodes
    verdicts = {each: cycle.filter_node(state, nodes[each]) for each in cluster.node_names}
    result = conclude(verdicts, total=len(verdicts))
    node = cycle.select_node(state, result.fitting)
    claims = () if node is None else cluster.bind(plan_of(state, node, verdicts[node]))
    return Explanation(
        namespace=namespace,
        name=name,
        node=node,
        claims=claims,
        reason=summary(result) if node is None else None,
        nodes={each: verdict.status.reason for each, verdict in verdicts.items()},
    )


def explanation_tree(explanation: Explanation) -> dict[str, Any]:
    """The explanation as plain data."""
    return {
        "namespace": explanation.namespace,
        "name": explanation.name,
        "node": explanation.node,
        "running": explanation.is_running,
        "claims": [claim_tree(each) for each in explanation.claims],
        "reason": None if explanation.reason is None else reason_tree(explanation.reason),
        "nodes": {
            name: None if reason is None else reason_tree(reason)
            for name, reason in explanation.nodes.items()
        },
        "notes": list(explanation.notes),
    }
