"""The begin of an attempt: what the pod needs, or why no node can do."""

from typing import Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.environment import Environment
from scheduler.framework.pod_info import PodInfo
from scheduler.framework.profile import Gather, Profile
from scheduler.framework.status import Status
from scheduler.model import ClusterReader, Pod
from scheduler.plugins import dynamic_resources

_LONG_VERSION: Final = 20  # digits; the API server's have 64 bits


def pre_filter(
    pod: Pod,
    reader: ClusterReader,
    environment: Environment,
    profile: Profile,
    gather: Gather | None,
) -> CycleState | Status:
    """Gather what one attempt needs; the claims are not prepared for the search yet.

    Args:
        pod: as the caller has it; the reader's version is taken unless this one is newer.
        reader: the cache.
        environment: settings and collaborators.
        profile: the plugins that run.
        gather: what facts need of the cluster; None: the caller looks them up.

    Returns:
        The state for all later steps, or why no node can do: a refusal (the pod waits for an event) or an error
        (retried with backoff).
    """
    pod = _newer(pod, reader.pod(pod.metadata.uid))
    refusal = profile.pre_filter(pod)
    if refusal is not None:
        return refusal
    claims = dynamic_resources.resolve_claims(pod, reader)
    if isinstance(claims, Status):
        return claims
    problem = dynamic_resources.check_claims(pod, claims, reader, environment)
    if problem is not None:
        return problem
    snapshot = reader.snapshot()
    facts = {} if gather is None else profile.look_up(pod, snapshot, gather)
    return CycleState(
        pod=pod,
        info=PodInfo(pod, environment.features, facts),
        profile=profile,
        environment=environment,
        snapshot=snapshot,
        now=environment.now(),
        claims=claims,
        allocated=tuple(c for c in claims if c.is_allocated),
        unallocated=tuple(c.claim for c in claims if not c.is_allocated),
    )


def _newer(pod: Pod, known: Pod | None) -> Pod:
    """The newer of two versions: the caller's copy may be old, and so may the cache when its watch is behind."""
    if known is None or _version(pod) > _version(known):
        return pod
    return known


def _version(pod: Pod) -> int:
    """The version as a number; 0 if it is none: a caller's pod is anybody's text."""
    text = pod.metadata.resource_version
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LONG_VERSION else 0
