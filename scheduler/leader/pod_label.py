"""The label that our own pod carries while we lead."""

import asyncio
import logging
from typing import Final

import msgspec

from scheduler.client import MERGE_PATCH, ApiClient, Committed
from scheduler.model import DOMAIN

_log = logging.getLogger(__name__)

LEADER_LABEL: Final = f"{DOMAIN}/leader"


class PodLabel:
    """The label by which a Service finds the leader. Best effort: a wrong label costs an answer 503, nothing else."""

    def __init__(self, client: ApiClient, pod: tuple[str, str] | None) -> None:
        self._client = client
        self._pod = pod
        self._task: asyncio.Task[None] | None = None

    def put(self) -> None:
        """Mark our pod, in the background: an election does not wait for a label."""
        self._begin("true")

    def remove(self) -> None:
        """Unmark our pod, in the background."""
        self._begin(None)

    async def settled(self) -> None:
        """Wait until the last change has been tried."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _begin(self, value: str | None) -> None:
        if self._pod is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._patch(*self._pod, value), name="leader label")

    async def _patch(self, namespace: str, name: str, value: str | None) -> None:
        body = msgspec.json.encode({"metadata": {"labels": {LEADER_LABEL: value}}})
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        outcome = await self._client.write("PATCH", path, body, content_type=MERGE_PATCH)
        if not isinstance(outcome, Committed):
            _log.warning(
                "the leader label of pod %s/%s could not be set: %s", namespace, name, outcome
            )
