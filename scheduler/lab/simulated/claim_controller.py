"""The resourceclaim controller: claims from templates, reservations of pods that are gone, deallocation.

Source: pkg/controller/resourceclaim in Kubernetes 1.37; docs/design/claims.md#claim-controller.
"""

from allocator.model.claims import ResourceClaimConsumerReference
from scheduler.binder.claim_text import ClaimText, UnreadableClaimError
from scheduler.binder.edits import Deallocation, Edit, Release, Reservation, Unmark
from scheduler.binder.requests import send_once
from scheduler.client import ApiError, Committed, UnavailableError
from scheduler.clock import rfc3339
from scheduler.lab.simulated import tolerant_json
from scheduler.lab.simulated.mirror import (
    CLAIMS,
    EVENTS,
    PODS,
    TEMPLATES,
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
from scheduler.model import FINALIZER, POD_CLAIM_NAME_ANNOTATION

MANAGER = "ResourceClaimController"

# The API server adds five characters, and a name of more than 63 would not do for all that is made from it.
_GENERATED_BASE_LIMIT = 57


def claim_base_name(pod_name: str, entry_name: str) -> str:
    """`generateName` of a claim: `<pod>-<entry>-`, both shortened in proportion when that is too long."""
    base = f"{pod_name}-{entry_name}-"
    if len(base) <= _GENERATED_BASE_LIMIT:
        return base
    room = _GENERATED_BASE_LIMIT - 2
    for_pod = max(1, room * len(pod_name) // (len(pod_name) + len(entry_name)))
    return f"{pod_name[:for_pod]}-{entry_name[: room - for_pod]}-"


def _status(obj: Json) -> Json:
    found: Json = obj.get("status") or {}
    return found


def _is_done(pod: Json) -> bool:
    """Whether a pod has ended or can never run."""
    return is_terminal(pod) or (is_deleting(pod) and not pod["spec"].get("nodeName"))


def _is_owned(claim: Json, pod: Json) -> bool:
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == uid(pod)


class ClaimController(Controller):
    """Makes, frees and deletes ResourceClaims."""

    resources: tuple[str, ...] = (PODS, CLAIMS, TEMPLATES)

    async def reconcile(self) -> None:
        """One pass over all pods and claims."""
        for pod in self.mirror.objects(PODS):
            if pod["spec"].get("resourceClaims") and not is_deleting(pod) and not is_terminal(pod):
                await self._sync_pod(pod)
        for claim in self.mirror.objects(CLAIMS):
            await self._sync_claim(claim)

    async def _sync_pod(self, pod: Json) -> None:
        known = {
            entry["name"]: entry.get("resourceClaimName")
            for entry in _status(pod).get("resourceClaimStatuses") or ()
        }
        wanted = dict(known)
        for entry in pod["spec"]["resourceClaims"]:
            if entry.get("resourceClaimTemplateName"):
                claim = await self._claim_for(pod, entry, known)
                if claim is not None:
                    wanted[entry["name"]] = name(claim)
        if wanted != known:
            await self._write_claim_statuses(pod, wanted)
        if pod["spec"].get("nodeName"):
            await self._reserve(pod, wanted)

    async def _claim_for(self, pod: Json, entry: Json, known: dict[str, str | None]) -> Json | None:
        """The claim of an entry that has a template, made if need be; None if none can be made now."""
        if entry["name"] in known:
            claim_name = known[entry["name"]]
            if claim_name is None:
                return None
            claim = self.mirror.find(CLAIMS, namespace(pod), claim_name)
            if claim is not None and _is_owned(claim, pod):
                return claim
        for claim in self.mirror.objects(CLAIMS):
            annotations = claim["metadata"].get("annotations") or {}
            if (
                namespace(claim) == namespace(pod)
                and _is_owned(claim, pod)
                and annotations.get(POD_CLAIM_NAME_ANNOTATION) == entry["name"]
                and not is_deleting(claim)
            ):
                return claim
        return await self._create_claim(pod, entry)

    async def _create_claim(self, pod: Json, entry: Json) -> Json | None:
        template_name = entry["resourceClaimTemplateName"]
        template = self.mirror.find(TEMPLATES, namespace(pod), template_name)
        if template is None:
            await self._report(pod, f'resourceclaimtemplate "{template_name}" not found')
            return None
        meta = template["spec"].get("metadata") or {}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name(pod),
            "uid": uid(pod),
            "controller": True,
            "blockOwnerDeletion": True,
        }
        annotations = {
            **(meta.get("annotations") or {}),
            POD_CLAIM_NAME_ANNOTATION: entry["name"],
        }
        claim = await self.api.create(
            collection(CLAIMS, namespace(pod)),
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "generateName": claim_base_name(name(pod), entry["name"]),
                    "labels": meta.get("labels") or {},
                    "annotations": annotations,
                    "ownerReferences": [owner],
                },
                "spec": template["spec"]["spec"],
            },
        )
        if claim is not None:
            self.mirror.observe(CLAIMS, claim)
        return claim

    async def _write_claim_statuses(self, pod: Json, wanted: dict[str, str | None]) -> None:
        entries = [
            {"name": entry, **({} if claim is None else {"resourceClaimName": claim})}
            for entry, claim in wanted.items()
        ]
        applied = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
            "status": {"resourceClaimStatuses": entries},
        }
        stored = await self.api.apply(f"{path_of(PODS, pod)}/status", applied, MANAGER)
        if stored is not None:
            self.mirror.observe(PODS, stored)

    async def _report(self, pod: Json, text: str) -> None:
        """Post an event about a pod; the name makes the same one a repetition, which is refused."""
        now = rfc3339(self.clock.now())
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace(pod),
            "name": name(pod),
            "uid": uid(pod),
        }
        await self.api.create(
            collection(EVENTS, namespace(pod)),
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name(pod)}.claim-creation-failed.{uid(pod)[:8]}"},
                "involvedObject": about,
                "reason": "FailedResourceClaimCreation",
                "message": f"PodResourceClaim creation failed: {text}",
                "source": {"component": "resource_claim"},
                "type": "Warning",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )

    async def _reserve(self, pod: Json, claim_names: dict[str, str | None]) -> None:
        """A pod that was put on a node without a scheduler is let in to claims that are allocated."""
        for entry in pod["spec"]["resourceClaims"]:
            claim_name = entry.get("resourceClaimName") or claim_names.get(entry["name"])
            claim = claim_name and self.mirror.find(CLAIMS, namespace(pod), claim_name)
            if not claim or not _status(claim).get("allocation") or is_deleting(claim):
                continue
            reserved = _status(claim).get("reservedFor") or []
            if any(consumer["uid"] == uid(pod) for consumer in reserved):
                continue
            consumer = ResourceClaimConsumerReference(resource="pods", name=name(pod), uid=uid(pod))
            await self._edit(claim, Reservation(consumer))

    async def _sync_claim(self, claim: Json) -> None:
        reserved = _status(claim).get("reservedFor") or []
        valid = [consumer for consumer in reserved if await self._is_valid(claim, consumer)]
        has_finalizer = FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(valid) < len(reserved):
            await self._drop_reservations(claim, valid, has_finalizer=has_finalizer)
        elif has_finalizer and is_deleting(claim) and not valid:
            await self._release(claim)
        if not valid and not is_deleting(claim):
            await self._delete_if_abandoned(claim)

    async def _is_valid(self, claim: Json, consumer: Json) -> bool:
        if consumer.get("apiGroup") or consumer["resource"] != "pods":
            # Nobody here knows when such a consumer has ended.
            return True
        pod = self.mirror.find(PODS, namespace(claim), consumer["name"])
        if pod is None or uid(pod) != consumer["uid"]:
            # The mirror of pods may be behind that of claims.
            path = f"{collection(PODS, namespace(claim))}/{consumer['name']}"
            pod = await self.api.get(path)
        return pod is not None and uid(pod) == consumer["uid"] and not _is_done(pod)

    async def _drop_reservations(
        self, claim: Json, valid: list[Json], *, has_finalizer: bool
    ) -> None:
        gone = {each["uid"] for each in _status(claim)["reservedFor"] if each not in valid}
        is_last = has_finalizer and not valid
        written = await self._edit(claim, Deallocation() if is_last else Release(gone))
        if written is not None and has_finalizer and not _status(written).get("allocation"):
            await self._remove_finalizer(written)

    async def _release(self, claim: Json) -> None:
        written: Json | None = claim
        if _status(claim).get("allocation"):
            written = await self._edit(claim, Deallocation())
        if written is not None:
            await self._remove_finalizer(written)

    async def _remove_finalizer(self, claim: Json) -> None:
        written = await self._edit(claim, Unmark(FINALIZER))
        if (
            written is not None
            and is_deleting(written)
            and not written["metadata"].get("finalizers")
        ):
            self.mirror.forget(CLAIMS, written)

    async def _edit(self, claim: Json, edit: Edit) -> Json | None:
        """Change a claim, if it is still as it was seen; what others wrote keeps its bytes.

        Returns:
            The claim as stored; None: it was not changed.
        """
        try:
            found = ClaimText.read(await self.api.client.get(path_of(CLAIMS, claim)))
            if found.metadata.resource_version != claim["metadata"]["resourceVersion"]:
                return None
            outcome = await send_once(self.api.client, found, edit)
        except (ApiError, UnavailableError, UnreadableClaimError):
            return None
        if not isinstance(outcome, Committed):
            return None
        written: Json = tolerant_json.loads(outcome.body)
        self.mirror.observe(CLAIMS, written)
        return written

    async def _delete_if_abandoned(self, claim: Json) -> None:
        owner = controller_of(claim)
        if owner is None or owner["kind"] != "Pod":
            return
        pod = self.mirror.find(PODS, namespace(claim), owner["name"])
        # A missing pod is the garbage collector's case.
        if pod is None or (uid(pod) == owner["uid"] and not _is_done(pod)):
            return
        current = self.mirror.find(CLAIMS, namespace(claim), name(claim))
        if current is not None and not _status(current).get("reservedFor"):
            await self.api.delete(path_of(CLAIMS, current), current)
