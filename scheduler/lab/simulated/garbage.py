"""Garbage collection by owner references, and the end of namespaces.

Source: the garbage collector and namespace controllers of kube-controller-manager, for the resources that live here.
"""

from scheduler.lab.simulated.mirror import (
    CLAIMS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    Controller,
    Json,
    collection,
    is_deleting,
    name,
    namespace,
    path_of,
    referents,
    uid,
)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

_OWNERS = {
    ("v1", "Node"): NODES,
    ("v1", "Pod"): PODS,
    ("batch/v1", "Job"): JOBS,
    ("apps/v1", "Deployment"): DEPLOYMENTS,
    ("resource.k8s.io/v1", "ResourceClaim"): CLAIMS,
}
_TYPES = {resource: kind for kind, resource in _OWNERS.items()}
_DEPENDENTS = (PODS, CLAIMS, SLICES)

# Everything a namespace may hold; what is not served is skipped.
_NAMESPACED = (
    PODS,
    CLAIMS,
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    JOBS,
    DEPLOYMENTS,
    "/api/v1/configmaps",
    "/apis/coordination.k8s.io/v1/leases",
    "/api/v1/events",
)


class GarbageCollector(Controller):
    """Deletes objects whose owners are all gone."""

    resources: tuple[str, ...] = (NODES, PODS, CLAIMS, SLICES, JOBS, DEPLOYMENTS)

    async def reconcile(self) -> None:
        """One pass over all dependents, then over owners that wait for theirs."""
        for resource in _DEPENDENTS:
            for obj in self.mirror.objects(resource):
                if not is_deleting(obj) and await self._is_orphan(obj):
                    await self.api.delete(
                        path_of(resource, obj), obj, {"propagationPolicy": "Background"}
                    )
        for resource in _TYPES:
            for obj in self.mirror.objects(resource):
                if is_deleting(obj):
                    await self._finish(resource, obj)

    async def _is_orphan(self, obj: Json) -> bool:
        owners = list(referents(obj))
        if not owners:
            return False
        for owner in owners:
            if await self._owner_exists(obj, owner):
                return False
        return True

    async def _owner_exists(self, obj: Json, owner: Json) -> bool:
        resource = _OWNERS.get((owner["apiVersion"], owner["kind"]))
        if resource is None:
            # Not ours to judge.
            return True
        in_namespace = "" if resource == NODES else namespace(obj)
        found = self.mirror.find(resource, in_namespace, owner["name"])
        if found is None or uid(found) != owner["uid"]:
            found = await self.api.get(f"{collection(resource, in_namespace)}/{owner['name']}")
        return found is not None and uid(found) == owner["uid"]

    async def _finish(self, resource: str, owner: Json) -> None:
        finalizers = owner["metadata"].get("finalizers") or ()
        dependents = [
            (kind, obj)
            for kind in _DEPENDENTS
            for obj in self.mirror.objects(kind)
            if any(reference["uid"] == uid(owner) for reference in referents(obj))
        ]
        if FOREGROUND in finalizers:
            for kind, obj in dependents:
                if not is_deleting(obj):
                    await self.api.delete(path_of(kind, obj), obj)
            if not dependents:
                await self._remove_finalizer(resource, owner, FOREGROUND)
        elif ORPHAN in finalizers:
            freed = [await self._free(kind, obj, owner) for kind, obj in dependents]
            if all(freed):
                await self._remove_finalizer(resource, owner, ORPHAN)

    async def _free(self, resource: str, obj: Json, owner: Json) -> bool:
        patch = {
            "metadata": {
                "uid": uid(obj),
                "ownerReferences": [{"$patch": "delete", "uid": uid(owner)}],
            }
        }
        written = await self.api.patch(path_of(resource, obj), patch)
        if written is not None:
            self.mirror.observe(resource, written)
        return written is not None

    async def _remove_finalizer(self, resource: str, obj: Json, finalizer: str) -> None:
        patch = {"metadata": {"uid": uid(obj), "$deleteFromPrimitiveList/finalizers": [finalizer]}}
        await self.api.patch(path_of(resource, obj), patch)


class NamespaceController(Controller):
    """Empties namespaces that are being deleted, then lets them go."""

    resources: tuple[str, ...] = (NAMESPACES,)

    async def reconcile(self) -> None:
        """One pass over all namespaces."""
        for obj in self.mirror.objects(NAMESPACES):
            if is_deleting(obj) and (obj["spec"].get("finalizers") or ()):
                await self._empty(obj)

    def next_due(self) -> float | None:
        """Pods end in their own time, which no namespace event tells."""
        return 0.5 if any(is_deleting(obj) for obj in self.mirror.objects(NAMESPACES)) else None

    async def _empty(self, obj: Json) -> None:
        left = 0
        for resource in _NAMESPACED:
            items, _ = await self.api.list(collection(resource, name(obj)))
            left += len(items)
            for item in items:
                if not is_deleting(item):
                    await self.api.delete(path_of(resource, item), item)
        if not left:
            body = {**obj, "apiVersion": "v1", "kind": "Namespace"}
            body["spec"] = {**obj["spec"], "finalizers": []}
            if await self.api.put(f"{path_of(NAMESPACES, obj)}/finalize", body) is not None:
                self.mirror.forget(NAMESPACES, obj)
