"""Kubelets without containers: they let a pod run when its claims are ready for it, and end it when its time is over.

Source: pkg/kubelet/cm/dra of Kubernetes 1.37; docs/design/claims.md#kubelet.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.client import ApiClient
from scheduler.clock import Clock, rfc3339
from scheduler.lab.simulated.mirror import (
    CLAIMS,
    NODES,
    PODS,
    Controller,
    Json,
    collection,
    controller_of,
    is_deleting,
    is_terminal,
    name,
    namespace,
    path_of,
    uid,
)

NOT_READY = "node.kubernetes.io/not-ready"

RunSeconds = Callable[[Json], float | None]


@dataclass(frozen=True, slots=True)
class DoubleUse:
    """A device that was prepared for two claims at once: what a scheduler must never bring about.

    Attributes:
        device: driver, pool and device.
        claims: UIDs of the two claims.
    """

    device: tuple[str, str, str]
    claims: tuple[str, str]


class Kubelets(Controller):
    """The kubelets of all nodes, or of some."""

    resources: tuple[str, ...] = (NODES, PODS, CLAIMS)

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        run_seconds: RunSeconds = lambda _: None,
        *,
        is_ours: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Say how long pods run.

        Args:
            client: of any API server.
            clock: for run times and timestamps.
            run_seconds: how long a pod runs before it succeeds; None: until it is told to (`finish`) or deleted.
            is_ours: which nodes, by name.
        """
        super().__init__(client, clock)
        self.waiting: dict[str, str] = {}  # pod UID -> why it cannot start yet
        self.double_uses: list[DoubleUse] = []
        self._run_seconds = run_seconds
        self._is_ours = is_ours
        self._ends_at: dict[str, float] = {}  # pod UID -> monotonic time
        self._started: set[str] = set()  # pod UIDs
        self._finished: set[str] = set()  # pod UIDs
        self._prepared: dict[str, set[str]] = {}  # claim UID -> pod UIDs
        self._devices: dict[tuple[str, str, str], str] = {}  # exclusive device -> claim UID

    def finish(self, pod_uid: str) -> None:
        """Let a running pod succeed at the next step."""
        self._finished.add(pod_uid)
        self.mirror.changed.set()

    def next_due(self) -> float | None:
        """Seconds until the next pod ends."""
        if not self._ends_at:
            return None
        return max(0.0, min(self._ends_at.values()) - self.clock.monotonic())

    async def reconcile(self) -> None:
        """One pass over all nodes and pods."""
        for node in self.mirror.objects(NODES):
            if self._is_ours(name(node)):
                await self._make_ready(node)
        present = set()
        for pod in self.mirror.objects(PODS):
            present.add(uid(pod))
            if self._is_ours(pod["spec"].get("nodeName") or "") and pod["spec"].get("nodeName"):
                await self._sync_pod(pod)
        self._forget_absent(present)

    async def _make_ready(self, node: Json) -> None:
        taints: list[Json] = node["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != NOT_READY]
        if len(kept) < len(taints):
            patch = {"metadata": {"uid": uid(node)}, "spec": {"taints": kept or None}}
            stored = await self.api.patch(path_of(NODES, node), patch)
            if stored is not None:
                self.mirror.observe(NODES, stored)

    async def _sync_pod(self, pod: Json) -> None:
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if is_deleting(pod):
            await self._end_deleted(pod)
        elif is_terminal(pod):
            self._unprepare(uid(pod))
        elif phase == "Running":
            await self._end_when_due(pod)
        elif why := await self._prepare(pod):
            self.waiting[uid(pod)] = why
        else:
            self.waiting.pop(uid(pod), None)
            await self._start(pod)

    async def _end_deleted(self, pod: Json) -> None:
        self._unprepare(uid(pod))
        gone = await self.api.delete(path_of(PODS, pod), pod, {"gracePeriodSeconds": 0})
        if gone and not pod["metadata"].get("finalizers"):
            self.mirror.forget(PODS, pod)

    async def _end_when_due(self, pod: Json) -> None:
        if uid(pod) not in self._started:
            # Started before this process was: its time starts again.
            await self._prepare(pod)
            self._schedule_end(pod)
        ends_at = self._ends_at.get(uid(pod))
        due = ends_at is not None and ends_at <= self.clock.monotonic()
        if due or uid(pod) in self._finished:
            # As the real one: unprepared before anybody hears that it has ended.
            self._unprepare(uid(pod))
            await self._set_phase(pod, "Succeeded", ready=False)

    async def _start(self, pod: Json) -> None:
        if await self._set_phase(pod, "Running", ready=True):
            self._schedule_end(pod)

    def _schedule_end(self, pod: Json) -> None:
        self._started.add(uid(pod))
        seconds = self._run_seconds(pod)
        if seconds is not None:
            self._ends_at[uid(pod)] = self.clock.monotonic() + seconds

    async def _set_phase(self, pod: Json, phase: str, *, ready: bool) -> bool:
        now = rfc3339(self.clock.now())
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": now,
        }
        status: Json = {"phase": phase, "conditions": [condition]}
        if ready:
            status["startTime"] = now
        patch = {"metadata": {"uid": uid(pod)}, "status": status}
        stored = await self.api.patch(f"{path_of(PODS, pod)}/status", patch)
        if stored is not None:
            self.mirror.observe(PODS, stored)
        return stored is not None

    async def _prepare(self, pod: Json) -> str:
        """Prepare all claims of a pod; says why not if one is not ready for it."""
        claims = []
        for entry in pod["spec"].get("resourceClaims") or ():
            claim_name, generated = _claim_name(pod, entry)
            if claim_name is None:
                return f"claim of entry {entry['name']} is not known yet"
            if not claim_name:
                continue
            # Kubelet asks the API server, not a cache.
            claim = await self.api.get(f"{collection(CLAIMS, namespace(pod))}/{claim_name}")
            if claim is None:
                return f"claim {claim_name} does not exist"
            if why := _not_ready(pod, claim, generated=generated):
                return why
            claims.append(claim)
        for claim in claims:
            self._note_prepared(pod, claim)
        return ""

    def _note_prepared(self, pod: Json, claim: Json) -> None:
        self._prepared.setdefault(uid(claim), set()).add(uid(pod))
        for result in claim["status"]["allocation"]["devices"].get("results") or ():
            if result.get("shareID") or result.get("adminAccess"):
                continue
            device = (result["driver"], result["pool"], result["device"])
            holder = self._devices.setdefault(device, uid(claim))
            if holder != uid(claim):
                self.double_uses.append(DoubleUse(device, (holder, uid(claim))))

    def _unprepare(self, pod_uid: str) -> None:
        self._ends_at.pop(pod_uid, None)
        self._started.discard(pod_uid)
        self._finished.discard(pod_uid)
        self.waiting.pop(pod_uid, None)
        for claim_uid, pods in list(self._prepared.items()):
            pods.discard(pod_uid)
            if not pods:
                del self._prepared[claim_uid]
        self._devices = {
            device: claim for device, claim in self._devices.items() if claim in self._prepared
        }

    def _forget_absent(self, present: set[str]) -> None:
        known = set().union(*self._prepared.values(), self._started, self._finished, self.waiting)
        for pod_uid in known - present:
            self._unprepare(pod_uid)


def _claim_name(pod: Json, entry: Json) -> tuple[str | None, bool]:
    """Name of an entry's claim (empty: none is needed; None: not known), and whether it was made for the pod."""
    if entry.get("resourceClaimName"):
        return entry["resourceClaimName"], False
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status["name"] == entry["name"]:
            return status.get("resourceClaimName") or "", True
    return None, True


def _not_ready(pod: Json, claim: Json, *, generated: bool) -> str:
    owner = controller_of(claim)
    status = claim.get("status") or {}
    if generated and (owner is None or owner["uid"] != uid(pod)):
        return f"claim {name(claim)} was not made for the pod"
    if not any(consumer["uid"] == uid(pod) for consumer in status.get("reservedFor") or ()):
        return f"claim {name(claim)} is not reserved for the pod"
    if not status.get("allocation"):
        return f"claim {name(claim)} is not allocated"
    return ""
