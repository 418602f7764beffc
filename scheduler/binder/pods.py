"""Writes of one pod: the Binding, its PodScheduled condition, and what its claims count in resources of the node.

A Binding carries the pod's UID, so it can never bind a pod of the same name that came later. One whose outcome is
unknown is repeated until it is definite; "already bound to this node" is then success. Who gets no answer for a minute
waits until nothing that was sent can commit any more, and looks once again.
Source: docs/design/claims.md#write-sequence, docs/design/extender.md#bind; docs/design/write-protocol.md#w4,
docs/design/failure-model.md#f24, docs/design/failure-model.md#f27.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from allocator.outcome import Reason, ReasonKind
from scheduler.api.decode import DecodeError, decode, tree_of
from scheduler.binder.outcome import BindError, LeaseLostError, UnreadableError
from scheduler.binder.retry import OPEN_SECONDS, Backoff, is_retryable
from scheduler.client import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    ApiClient,
    ApiError,
    Committed,
    NotFoundError,
    Rejected,
    UnavailableError,
    Unknown,
)
from scheduler.clock import Clock, rfc3339
from scheduler.model import Kind, NodeAllocatableResourceClaimStatus, Pod

MAX_REFUSALS: Final = 3


@dataclass(frozen=True, slots=True)
class PodWriter:
    """Binds pods; attributes as in `ClaimWriter`."""

    client: ApiClient
    clock: Clock
    rng: random.Random
    may_write: Callable[[], bool]

    async def bind(self, pod: Pod, node_name: str, *, is_expired: Callable[[], bool]) -> None:
        """Bind a pod to a node.

        Args:
            pod: whom; its UID decides.
            node_name: where.
            is_expired: whether the caller has stopped waiting; then nothing new is tried.

        Raises:
            BindError: it is not bound there, and nothing that was sent can still bind it there.
        """
        path = f"{pod_path(pod.metadata.namespace, pod.metadata.name)}/binding"
        body = orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "namespace": pod.metadata.namespace,
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
            }
        )
        backoff = Backoff(self.clock, self.rng)
        refusals = 0
        is_open = False  # a request without definite outcome may still commit
        open_until = float("-inf")
        while True:
            if not self.may_write():
                raise LeaseLostError(is_open=is_open)
            if is_expired() and not is_open:
                raise BindError(ReasonKind.DEADLINE_EXCEEDED, "the pod could not be bound in time")
            answer = await self.client.write("POST", path, body)
            if isinstance(answer, Committed):
                return
            if isinstance(answer, Unknown):
                is_open, open_until = True, self.clock.monotonic() + OPEN_SECONDS
            elif answer.status not in (0, 429):
                current = await self._unbound(pod, node_name, open_until)
                if current is None:
                    return
                refusals += 1
                # A pod that is being deleted refuses every Binding. Any other refusal (permission, a webhook) says
                # nothing of an earlier request that is still under way: that one has to be waited for.
                is_open = (
                    is_open
                    and current.metadata.deletion_timestamp is None
                    and self.clock.monotonic() < open_until
                )
                is_final = (
                    refusals >= MAX_REFUSALS
                    or answer.status in (403, 404, 422)
                    or current.is_terminal  # which the API server would bind all the same
                )
                if is_final and not is_open:
                    raise _refusal(answer)
            if backoff.is_over:
                await self._wait_until(open_until)
                if await self._unbound(pod, node_name, open_until) is None:
                    return
                raise BindError(
                    ReasonKind.API_UNAVAILABLE,
                    "the pod cannot be bound: the API server does not answer",
                )
            await backoff.pause(answer)

    async def _wait_until(self, moment: float) -> None:
        await self.clock.sleep(max(0.0, moment - self.clock.monotonic()))

    async def _unbound(self, pod: Pod, node_name: str, open_until: float) -> Pod | None:
        """Read the pod; None: it is bound to this node.

        Raises:
            BindError: it is gone, or bound elsewhere; or it cannot be read, and no Binding can commit any more.
        """
        try:
            current = await self.read(pod)
        except UnreadableError:
            await self._wait_until(open_until)
            raise
        if current.spec.node_name == node_name:
            return None
        if current.spec.node_name:
            raise BindError(
                ReasonKind.WRITE_CONFLICT, "the pod was bound to another node in the meantime"
            )
        return current

    async def read(self, pod: Pod) -> Pod:
        """The pod as it is now, waiting for the API server to answer, but not for ever.

        Raises:
            UnreadableError: it cannot be read.
            BindError: it is gone, or another pod has its name.
        """
        backoff = Backoff(self.clock, self.rng)
        while True:
            try:
                current = _named(
                    pod, await self.client.get(pod_path(pod.metadata.namespace, pod.metadata.name))
                )
            except NotFoundError as problem:
                raise BindError(ReasonKind.WRITE_CONFLICT, "the pod no longer exists") from problem
            except (ApiError, UnavailableError, DecodeError) as problem:
                if not self.may_write():
                    raise LeaseLostError from None
                is_forbidden = isinstance(problem, ApiError) and problem.status == 403
                if backoff.is_over or (is_forbidden and backoff.tries >= MAX_REFUSALS):
                    raise _unreadable(problem) from problem
                await backoff.pause()
                continue
            if current.metadata.uid != pod.metadata.uid:
                raise BindError(
                    ReasonKind.WRITE_CONFLICT,
                    "the pod was replaced by another pod of the same name",
                )
            return current

    async def write_demand(
        self,
        pod: Pod,
        demand: Sequence[NodeAllocatableResourceClaimStatus],
        *,
        is_expired: Callable[[], bool],
    ) -> None:
        """Write what a pod's claims count in resources of its node, instead of whatever is there.

        The patch names the whole list and the pod's UID, so it may be repeated, and never meets another pod. An empty
        list is written as such: leaving the field out means that it stays.

        Args:
            pod: whose status.
            demand: of its claims; empty: nothing counts any more.
            is_expired: whether the caller has stopped waiting; then nothing new is tried.

        Raises:
            BindError: it is not written, and nothing that was sent can still write it.
        """
        fields = {"nodeAllocatableResourceClaimStatuses": [tree_of(entry) for entry in demand]}
        body = orjson.dumps({"metadata": {"uid": pod.metadata.uid}, "status": fields})
        path = f"{pod_path(pod.metadata.namespace, pod.metadata.name)}/status"
        backoff = Backoff(self.clock, self.rng)
        refusals = 0
        open_until = float("-inf")
        while True:
            if not self.may_write():
                raise LeaseLostError(is_open=self.clock.monotonic() < open_until)
            if is_expired():
                # A request without an answer must not write later what the next attempt decides otherwise.
                await self.clock.sleep(max(0.0, open_until - self.clock.monotonic()))
                raise BindError(ReasonKind.DEADLINE_EXCEEDED, "the pod could not be bound in time")
            answer = await self.client.write("PATCH", path, body, content_type=MERGE_PATCH)
            if isinstance(answer, Committed):
                return
            if isinstance(answer, Unknown):
                open_until = self.clock.monotonic() + OPEN_SECONDS
            elif not is_retryable(answer):
                refusals += 1
                if answer.status != 409 or refusals >= MAX_REFUSALS:
                    await self.clock.sleep(max(0.0, open_until - self.clock.monotonic()))
                    raise _refusal(answer)
            await backoff.pause(answer)

    async def set_unscheduled(self, pod: Pod, reason: Reason, *, is_error: bool) -> bool:
        """Write PodScheduled=False with a reason, unless the pod says so already. One try: it is only a message.

        Returns:
            Whether it was written (or was there).
        """
        code = "SchedulerError" if is_error else "Unschedulable"
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and (
                condition.status,
                condition.reason,
                condition.message,
            ) == (
                "False",
                code,
                reason.message,
            ):
                return True
        if not self.may_write():
            return False
        condition_body = {
            "type": "PodScheduled",
            "status": "False",
            "reason": code,
            "message": reason.message,
            "lastTransitionTime": rfc3339(self.clock.now()),
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition_body]}}
        answer = await self.client.write(
            "PATCH",
            f"{pod_path(pod.metadata.namespace, pod.metadata.name)}/status",
            orjson.dumps(body),
            content_type=STRATEGIC_MERGE_PATCH,
        )
        return isinstance(answer, Committed)


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod in the API."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _named(pod: Pod, raw: bytes) -> Pod:
    """An answer as the pod of that name.

    Raises:
        DecodeError: it is none.
    """
    found = decode(Kind.POD, raw)
    if not isinstance(found, Pod) or found.metadata.name != pod.metadata.name:
        raise DecodeError(f"Pod/{pod.key}", "", "the answer is another object")
    return found


def _unreadable(problem: Exception) -> UnreadableError:
    if isinstance(problem, ApiError) and problem.status == 403:
        return UnreadableError(
            ReasonKind.PERMISSION_DENIED, f"the pod cannot be read: {problem.message}"
        )
    return UnreadableError(
        ReasonKind.API_UNAVAILABLE, "the pod cannot be read: the API server does not answer"
    )


def _refusal(answer: Rejected) -> BindError:
    if answer.status == 403:
        return BindError(ReasonKind.PERMISSION_DENIED, f"the pod cannot be bound: {answer.message}")
    if answer.status == 404:
        return BindError(ReasonKind.WRITE_CONFLICT, "the pod no longer exists")
    return BindError(
        ReasonKind.WRITE_CONFLICT, f"the pod cannot be bound: HTTP {answer.status} {answer.reason}"
    )
