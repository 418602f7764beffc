"""Create, read, update and delete objects as the generic registry of kube-apiserver does: in one place for all kinds.

Pure: clock and randomness are passed in. Objects go in and come out in the stored shape, without `kind` and `apiVersion`.
Source: apiserver pkg/registry/generic/registry/store.go and pkg/registry/rest.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from scheduler.clock import Clock, rfc3339
from scheduler.lab.apiserver import apply as ssa
from scheduler.lab.apiserver import opaque
from scheduler.lab.apiserver.errors import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified,
    not_found,
    required,
)
from scheduler.lab.apiserver.meta_rules import (
    carry_over,
    check_metadata,
    check_metadata_update,
    tidy,
)
from scheduler.lab.apiserver.objects import Json, copy, metadata, name, replace, same, spec, status
from scheduler.lab.apiserver.pods import bind
from scheduler.lab.apiserver.resources import NAMESPACES, PODS, PRIORITY_CLASSES, Resource, Target
from scheduler.lab.apiserver.store import Store, Stored
from scheduler.lab.apiserver.strategy import Strategy

# Upstream's: no vowels, so no words.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX = 5
_NAME_BASE_LIMIT = 58
_NAME_TRIES = 8

_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
_GARBAGE_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}

Checker = Callable[[Resource, Json], Iterable[Cause]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a DELETE.

    Attributes:
        grace_period_seconds: for pods; None: as the pod says.
        uid: only this object; empty: whichever has the name.
        resource_version: only in this version; empty: any.
        propagation: `Background`, `Foreground` or `Orphan`; empty: the default.
    """

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who applies."""

    name: str
    force: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Outcome of a write.

    Attributes:
        stored: the object afterwards; of a removed one its last state.
        created: whether there was none before.
        removed: whether there is none now.
    """

    stored: Stored
    created: bool = False
    removed: bool = False


class Registry:
    """The objects of one server, under their kinds' rules."""

    def __init__(
        self,
        store: Store,
        strategies: Mapping[str, Strategy],
        check: Checker,
        clock: Clock,
        rng: Random,
    ) -> None:
        """Remember the collaborators.

        Args:
            store: holds the objects.
            strategies: key of a resource -> rules of its kind.
            check: what is wrong with an object by itself, by the rules that are the same at creation and update.
            clock: for timestamps.
            rng: for UIDs and generated names.
        """
        self.store = store
        self._strategies = strategies
        self._check = check
        self._clock = clock
        self._rng = rng

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace; empty if it does not exist."""
        found = self.store.get(NAMESPACES.collection, name)
        labels: dict[str, str] = metadata(found.obj).get("labels") or {} if found else {}
        return labels

    def priority_class(self, name: str) -> Json | None:
        """A PriorityClass by name."""
        found = self.store.get(PRIORITY_CLASSES.collection, name)
        return found.obj if found else None

    def default_priority_class(self) -> Json | None:
        """The PriorityClass marked globalDefault; of several the lowest, as upstream."""
        marked = [
            stored.obj
            for stored in self.store.objects(PRIORITY_CLASSES.collection)
            if stored.obj.get("globalDefault")
        ]
        return min(marked, key=lambda obj: obj["value"], default=None)

    def get(self, target: Target) -> Stored:
        """The object that a path names.

        Raises:
            StatusError: 404.
        """
        found = self.store.get(target.resource.collection, key_of(target))
        if found is None:
            raise _missing(target)
        return found

    def create(
        self, target: Target, obj: Json, *, manager: Manager | None = None, dry_run: bool = False
    ) -> Written:
        """Create an object; `obj` is taken over.

        Raises:
            StatusError: it exists, its namespace does not, or a rule is broken.
        """
        resource = target.resource
        strategy = self._strategies[resource.key]
        meta = obj["metadata"]
        self._admit_namespace(target, meta)
        if meta.get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "InternalError", text)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            meta.pop(field, None)
        if manager is not None:
            self._own(obj, manager, "", ssa.owned_paths(obj), target)
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        meta["creationTimestamp"] = self._now()
        meta.pop("generation", None)
        if resource.has_generation:
            meta["generation"] = 1
        self._generate_name(target, meta)
        strategy.default(obj)
        strategy.prepare_for_create(obj, self)
        tidy(obj)
        self._refuse_invalid(
            resource,
            obj,
            check_metadata(obj, simple_name=strategy.simple_names),
            strategy.validate(obj, self),
            self._check(resource, obj),
        )
        key = _key(meta.get("namespace", ""), meta["name"])
        if self.store.get(resource.collection, key) is not None:
            raise already_exists(resource.group, resource.plural, meta["name"])
        return Written(self._put(resource, key, obj, dry_run=dry_run), created=True)

    def update(
        self,
        target: Target,
        change: Callable[[Json], Json],
        *,
        uid: str = "",
        manager: Manager | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Change an object.

        Args:
            target: the object, and through which subresource.
            change: given a copy of the stored object, returns the wanted one.
            uid: only if the object has this UID; empty: any.
            manager: who applies, for server-side apply; `change` then returns the merged object.
            dry_run: check everything, write nothing.

        Raises:
            StatusError: 404, 409 on another version or UID, 422 on a broken rule.
        """
        resource = target.resource
        old = self.get(target)
        if uid and uid != metadata(old.obj)["uid"]:
            raise _precondition_failed(target, "UID", uid, metadata(old.obj)["uid"])
        new = change(copy(old.obj))
        self._check_version(target, new, old)
        self._prepare_update(target, new, old.obj)
        if manager is None and ssa.managed_entries(old.obj):
            self._disown(new, old.obj, "", target)
        new["metadata"]["resourceVersion"] = str(old.revision)
        if same(new, old.obj):
            return Written(old)
        if _is_finished(resource, new):
            return self._remove_updated(resource, old, new, dry_run=dry_run)
        return Written(self._put(resource, old.key, new, dry_run=dry_run))

    def apply(
        self, target: Target, applied: Json, manager: Manager, *, dry_run: bool = False
    ) -> Written:
        """Server-side apply; `applied` is taken over.

        Raises:
            StatusError: as for `create` and `update`; 409 when others set a field to something else, unless forced.
        """
        meta = applied["metadata"]
        meta["name"] = target.name
        if self.store.get(target.resource.collection, key_of(target)) is None:
            if target.subresource:
                raise _missing(target)
            return self.create(target, applied, manager=manager, dry_run=dry_run)
        _keep_for_subresource(target, applied)
        paths = ssa.owned_paths(applied)

        def change(live: Json) -> Json:
            mine = self._owned(live, manager, target)
            if not manager.force and (found := ssa.conflicts(live, applied, paths, mine)):
                raise _apply_conflict(target, found)
            merged = ssa.merge_applied(live, applied)
            ssa.remove_paths(merged, mine - paths - self._owned_by_others(live, manager, target))
            decoded: Json = opaque.changed(target.resource.kind, merged, opaque.as_decoded)
            return decoded

        return self._update_applied(target, change, manager, paths, dry_run=dry_run)

    def _update_applied(
        self,
        target: Target,
        change: Callable[[Json], Json],
        manager: Manager,
        paths: frozenset[ssa.Path],
        *,
        dry_run: bool,
    ) -> Written:
        resource = target.resource
        old = self.get(target)
        new = change(copy(old.obj))
        self._check_version(target, new, old)
        self._prepare_update(target, new, old.obj)
        self._disown(new, old.obj, manager.name, target)
        self._own(new, manager, target.subresource, paths, target)
        if same(_without_ownership_times(new), _without_ownership_times(old.obj)):
            return Written(old)
        return Written(self._put(resource, old.key, new, dry_run=dry_run))

    def bind(self, target: Target, binding: Json, *, dry_run: bool = False) -> None:
        """Bind a pod.

        Raises:
            StatusError: 404 or 409.
        """
        old = self.get(target)
        pod = copy(old.obj)
        bind(pod, binding, self._now())
        if ssa.managed_entries(old.obj):
            self._disown(pod, old.obj, "", target)
        self._put(PODS, old.key, pod, dry_run=dry_run)

    def delete(self, target: Target, options: DeleteOptions, *, dry_run: bool = False) -> Written:
        """Delete an object, or mark it as being deleted while finalizers or a grace period hold it.

        Raises:
            StatusError: 404, or 409 on another version or UID.
        """
        resource = target.resource
        old = self.get(target)
        meta = metadata(old.obj)
        if options.uid and options.uid != meta["uid"]:
            raise _precondition_failed(target, "UID", options.uid, meta["uid"])
        if options.resource_version and options.resource_version != meta["resourceVersion"]:
            version = meta["resourceVersion"]
            raise _precondition_failed(target, "ResourceVersion", options.resource_version, version)
        if resource is NAMESPACES:
            return self._delete_namespace(old, dry_run=dry_run)
        doomed = copy(old.obj)
        _set_garbage_finalizers(doomed, options.propagation)
        if resource is PODS:
            return self._delete_pod(old, doomed, options, dry_run=dry_run)
        if metadata(doomed).get("finalizers"):
            self._mark_deleting(resource, doomed, grace_seconds=0)
            if same(doomed, old.obj):
                return Written(old)
            return Written(self._put(resource, old.key, doomed, dry_run=dry_run))
        return Written(self._remove(resource, old, dry_run=dry_run), removed=True)

    def finalize(self, target: Target, wanted: Json, *, dry_run: bool = False) -> Written:
        """Change the finalizers in the spec of a namespace; without any left, one being deleted goes.

        Raises:
            StatusError: as for `update`.
        """
        old = self.get(target)
        self._check_version(target, wanted, old)
        new = copy(old.obj)
        new.setdefault("spec", {})["finalizers"] = spec(wanted).get("finalizers") or []
        if _is_finished(NAMESPACES, new):
            return self._remove_updated(NAMESPACES, old, new, dry_run=dry_run)
        return Written(self._put(NAMESPACES, old.key, new, dry_run=dry_run))

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    def _admit_namespace(self, target: Target, meta: Json) -> None:
        if not target.resource.namespaced:
            if meta.pop("namespace", None):
                raise bad_request("namespace may not be set on a cluster-scoped object")
            return
        wanted = meta.setdefault("namespace", target.namespace)
        if wanted != target.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        found = self.store.get(NAMESPACES.collection, target.namespace)
        if found is None:
            raise not_found("", NAMESPACES.plural, target.namespace)
        if metadata(found.obj).get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {wanted} because it is being terminated"
            )
            raise forbidden(
                target.resource.group, target.resource.plural, meta.get("name", ""), why
            )

    def _generate_name(self, target: Target, meta: Json) -> None:
        base = meta.get("generateName")
        if meta.get("name") or not base:
            return
        for _ in range(_NAME_TRIES):
            suffix = "".join(self._rng.choices(_NAME_ALPHABET, k=_NAME_SUFFIX))
            meta["name"] = base[:_NAME_BASE_LIMIT] + suffix
            key = _key(meta.get("namespace", ""), meta["name"])
            if self.store.get(target.resource.collection, key) is None:
                return

    def _check_version(self, target: Target, new: Json, old: Stored) -> None:
        resource = target.resource
        version = metadata(new).get("resourceVersion")
        if not version:
            if not resource.unconditional_update:
                cause = required("metadata.resourceVersion", "must be specified for an update")
                raise invalid(resource.group, resource.kind, target.name, [cause])
        elif version != str(old.revision):
            raise modified(resource.group, resource.plural, target.name)

    def _prepare_update(self, target: Target, new: Json, old: Json) -> None:
        resource = target.resource
        strategy = self._strategies[resource.key]
        strategy.default(new)
        carry_over(new, old)
        if target.subresource == "status":
            strategy.prepare_for_status_update(new, old)
            rules = strategy.validate_status_update(new, old, self)
        else:
            strategy.prepare_for_update(new, old)
            rules = (*strategy.validate_update(new, old, self), *self._check(resource, new))
            if resource.has_generation and strategy.spec_changed(new, old):
                new["metadata"]["generation"] = metadata(old).get("generation", 0) + 1
        tidy(new)
        self._refuse_invalid(
            resource,
            new,
            check_metadata_update(new, old),
            check_metadata(new, simple_name=strategy.simple_names),
            rules,
        )

    def _refuse_invalid(self, resource: Resource, obj: Json, *rules: Iterable[Cause]) -> None:
        causes = list(dict.fromkeys(cause for rule in rules for cause in rule))
        if causes:
            raise invalid(resource.group, resource.kind, name(obj), causes)

    def _put(self, resource: Resource, key: str, obj: Json, *, dry_run: bool) -> Stored:
        if dry_run:
            # As stored, but in a store that is thrown away.
            return Store(first_revision=self.store.revision).put(resource.collection, key, obj)
        return self.store.put(resource.collection, key, obj)

    def _remove(self, resource: Resource, old: Stored, *, dry_run: bool) -> Stored:
        return old if dry_run else self.store.delete(resource.collection, old.key)

    def _remove_updated(
        self, resource: Resource, old: Stored, new: Json, *, dry_run: bool
    ) -> Written:
        """The last finalizer is gone: the stored object is removed, and the caller sees the one it asked for."""
        last = self._remove(resource, old, dry_run=dry_run)
        scratch = Store(first_revision=last.revision - 1)
        return Written(scratch.put(resource.collection, old.key, new), removed=True)

    def _mark_deleting(self, resource: Resource, obj: Json, *, grace_seconds: int) -> None:
        meta = metadata(obj)
        if meta.get("deletionTimestamp"):
            return
        until = self._clock.now() + timedelta(seconds=grace_seconds)
        meta["deletionTimestamp"] = rfc3339(until)
        meta["deletionGracePeriodSeconds"] = grace_seconds
        if resource.has_generation:
            meta["generation"] = meta.get("generation", 0) + 1

    def _delete_pod(
        self, old: Stored, doomed: Json, options: DeleteOptions, *, dry_run: bool
    ) -> Written:
        meta = metadata(doomed)
        if not meta.get("deletionTimestamp"):
            self._mark_deleting(PODS, doomed, grace_seconds=_grace_seconds(doomed, options))
        elif held := meta.get("deletionGracePeriodSeconds"):
            wanted = options.grace_period_seconds
            if wanted is None or wanted >= held:
                return Written(old)
            # A grace period can only become shorter.
            meta["deletionGracePeriodSeconds"] = max(wanted, 0)
            meta["deletionTimestamp"] = self._now()
        marked = old
        if not same(doomed, old.obj):
            marked = self._put(PODS, old.key, doomed, dry_run=dry_run)
        if meta.get("finalizers") or meta["deletionGracePeriodSeconds"]:
            return Written(marked)
        return Written(self._remove(PODS, marked, dry_run=dry_run), removed=True)

    def _delete_namespace(self, old: Stored, *, dry_run: bool) -> Written:
        if old.key in _IMMORTAL:
            raise forbidden("", NAMESPACES.plural, old.key, "this namespace may not be deleted")
        doomed = copy(old.obj)
        if metadata(doomed).get("deletionTimestamp"):
            return Written(old)
        metadata(doomed)["deletionTimestamp"] = self._now()
        doomed["status"] = {**status(doomed), "phase": "Terminating"}
        if _is_finished(NAMESPACES, doomed):
            return Written(self._remove(NAMESPACES, old, dry_run=dry_run), removed=True)
        return Written(self._put(NAMESPACES, old.key, doomed, dry_run=dry_run))

    def _owned(self, obj: Json, manager: Manager, target: Target) -> frozenset[ssa.Path]:
        for entry in ssa.managed_entries(obj):
            if _is_entry_of(entry, manager.name, target.subresource):
                return ssa.from_fields(entry["fieldsV1"])
        return frozenset()

    def _owned_by_others(self, obj: Json, manager: Manager, target: Target) -> frozenset[ssa.Path]:
        return frozenset().union(
            *(
                ssa.from_fields(entry["fieldsV1"])
                for entry in ssa.managed_entries(obj)
                if not _is_entry_of(entry, manager.name, target.subresource)
            )
        )

    def _own(
        self,
        obj: Json,
        manager: Manager,
        subresource: str,
        paths: frozenset[ssa.Path],
        target: Target,
    ) -> None:
        entries = [
            entry
            for entry in ssa.managed_entries(obj)
            if not _is_entry_of(entry, manager.name, subresource)
        ]
        entry: Json = {
            "manager": manager.name,
            "operation": "Apply",
            "apiVersion": target.api_version,
            "time": self._now(),
            "fieldsType": "FieldsV1",
            "fieldsV1": ssa.to_fields(paths),
        }
        if subresource:
            entry["subresource"] = subresource
        obj["metadata"]["managedFields"] = [*entries, entry]

    def _disown(self, new: Json, old: Json, except_manager: str, target: Target) -> None:
        """Field managers lose ownership of fields that another client changed."""
        entries = []
        for entry in ssa.managed_entries(old):
            if _is_entry_of(entry, except_manager, target.subresource):
                entries.append(entry)
                continue
            before = ssa.from_fields(entry["fieldsV1"])
            if kept := ssa.still_owned(before, old, new):
                fields = entry["fieldsV1"] if kept == before else ssa.to_fields(kept)
                entries.append({**entry, "fieldsV1": fields})
        if entries:
            new["metadata"]["managedFields"] = entries
        else:
            new["metadata"].pop("managedFields", None)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def key_of(target: Target) -> str:
    """Key in the store of the object that a path names."""
    return _key(target.namespace, target.name)


def _missing(target: Target) -> StatusError:
    return not_found(target.resource.group, target.resource.plural, target.name)


def _precondition_failed(target: Target, what: str, wanted: str, actual: str) -> StatusError:
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
    return conflict(target.resource.group, target.resource.plural, target.name, why)


def _apply_conflict(target: Target, paths: list[ssa.Path]) -> StatusError:
    fields = [".".join(element.removeprefix("f:") for element in path) for path in paths]
    count = f"{len(fields)} conflict{'s' if len(fields) > 1 else ''}"
    causes = [
        {"reason": "FieldManagerConflict", "message": "conflict", "field": f".{field}"}
        for field in fields
    ]
    details = {"causes": causes, "name": target.name, "kind": target.resource.plural}
    message = f"Apply failed with {count}: {', '.join(fields)}"
    return StatusError(409, "Conflict", message, details)


def _keep_for_subresource(target: Target, applied: Json) -> None:
    """What the path cannot write is not applied, and not owned."""
    applied.pop("status" if not target.subresource else "spec", None)
    if target.subresource:
        kept = ("name", "namespace", "uid", "resourceVersion")
        applied["metadata"] = {
            key: value for key, value in applied["metadata"].items() if key in kept
        }


def _is_entry_of(entry: Json, manager: str, subresource: str) -> bool:
    return bool(entry["manager"] == manager) and entry.get("subresource", "") == subresource


def _without_ownership_times(obj: Json) -> Json:
    entries = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in ssa.managed_entries(obj)
    ]
    return {**obj, "metadata": {**metadata(obj), "managedFields": entries}}


def _set_garbage_finalizers(obj: Json, propagation: str) -> None:
    if not propagation:
        return
    unwanted = set(_GARBAGE_FINALIZERS.values())
    kept = [item for item in metadata(obj).get("finalizers") or () if item not in unwanted]
    if propagation in _GARBAGE_FINALIZERS:
        kept.append(_GARBAGE_FINALIZERS[propagation])
    replace(metadata(obj), "finalizers", {"finalizers": kept or None})


def _grace_seconds(pod: Json, options: DeleteOptions) -> int:
    if not spec(pod).get("nodeName") or status(pod).get("phase") in ("Succeeded", "Failed"):
        return 0
    wanted = options.grace_period_seconds
    if wanted is None:
        wanted = spec(pod).get("terminationGracePeriodSeconds", 0)
    return 1 if wanted < 0 else int(wanted)


def _is_finished(resource: Resource, obj: Json) -> bool:
    """Whether nothing holds an object that is being deleted any more."""
    meta = metadata(obj)
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if resource is NAMESPACES:
        return not spec(obj).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")
