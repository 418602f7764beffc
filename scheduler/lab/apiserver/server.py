"""The embedded API server: requests in, responses or watches out. Pure; transports are `client` (in process) and `app`.

It serves what this scheduler and the simulated parts use, with kube-apiserver's codes, reasons and order of checks.
There is no authentication, no authorization and no schema: unknown fields are kept, and kinds without rules here are
stored as they come. Only ResourceClaims are served as protobuf too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Self

import orjson

from allocator.features import Features
from scheduler.client import APPLY_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_MERGE_PATCH
from scheduler.clock import Clock, rfc3339
from scheduler.lab.apiserver import discovery, opaque, protobuf
from scheduler.lab.apiserver.checks import check_object
from scheduler.lab.apiserver.errors import (
    Cause,
    StatusError,
    bad_request,
    expired,
    method_not_allowed,
    not_acceptable,
    unsupported_media_type,
    version_ahead,
)
from scheduler.lab.apiserver.kinds import strategies
from scheduler.lab.apiserver.objects import Json, metadata, name, without_nulls
from scheduler.lab.apiserver.patches import merge_patch, strategic_merge_patch
from scheduler.lab.apiserver.pods import check_binding
from scheduler.lab.apiserver.registry import Registry, Written
from scheduler.lab.apiserver.requests import (
    ListPlan,
    Request,
    as_stored,
    encode_continue,
    plan_list,
    revision_number,
)
from scheduler.lab.apiserver.resources import (
    NAMESPACES,
    PRIORITY_CLASSES,
    Resource,
    Target,
    parse_path,
)
from scheduler.lab.apiserver.selectors import Selector, parse_selectors
from scheduler.lab.apiserver.store import DEFAULT_WINDOW, CompactedError, Store, Stored
from scheduler.lab.apiserver.versions import from_stored, is_stored_shape
from scheduler.lab.apiserver.watches import Watch, WatchRequest

DEFAULT_VERSION = "1.37.2"
DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_DELETED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
}


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response without its transport."""

    status: int
    body: bytes
    content_type: str = "application/json"


class ApiServer:
    """An API server as an object."""

    def __init__(self, store: Store, registry: Registry, version: str) -> None:
        """Remember the parts; see `create`."""
        self.store = store
        self.registry = registry
        self.version = version

    @classmethod
    def create(
        cls,
        clock: Clock,
        rng: Random,
        *,
        version: str = DEFAULT_VERSION,
        features: Features | None = None,
        taint_new_nodes: bool = False,
        window: int = DEFAULT_WINDOW,
    ) -> Self:
        """A server with the namespaces and priority classes that every cluster has, and nothing else.

        Args:
            clock: for timestamps.
            rng: for UIDs and generated names.
            version: of Kubernetes, that is claimed and whose gates apply.
            features: gates, if not that version's.
            taint_new_nodes: new nodes carry the not-ready taint, as where the node lifecycle controller runs.
            window: changes of a resource that are remembered for watches.
        """
        store = Store(window=window)
        gates = features or Features.for_version(version)

        def check(resource: Resource, obj: Json) -> Iterable[Cause]:
            return check_object(resource, obj, gates, registry.namespace_labels)

        rules = strategies(gates, lambda: rfc3339(clock.now()), taint_new_nodes=taint_new_nodes)
        registry = Registry(store, rules, check, clock, rng)
        for namespace in DEFAULT_NAMESPACES:
            target = Target(NAMESPACES, "v1", "", "", "")
            registry.create(target, {"metadata": {"name": namespace}})
        for class_name, value in _SYSTEM_PRIORITIES.items():
            # By-passes the rule that keeps these names from users.
            meta = {
                "name": class_name,
                "uid": f"{class_name}-uid",
                "creationTimestamp": rfc3339(clock.now()),
                "generation": 1,
            }
            obj = {"metadata": meta, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
            store.put(PRIORITY_CLASSES.collection, class_name, obj)
        store.compact()
        return cls(store, registry, version)

    def handle(self, request: Request) -> Response | Watch:
        """Answer a request; refusals are responses too."""
        try:
            return self._route(request)
        except StatusError as error:
            return Response(error.code, error.body())
        except RecursionError:
            refused = bad_request("the object is nested too deeply")
            return Response(refused.code, refused.body())

    def _route(self, request: Request) -> Response | Watch:
        if request.path in _HEALTH_PATHS:
            return Response(200, b"ok", "text/plain")
        if request.path == "/version":
            return _json(200, discovery.version_info(self.version))
        parts = [part for part in request.path.split("/") if part]
        if (found := discovery.discover(parts)) is not None:
            return _json(200, found)
        target = parse_path(request.path)
        if target.name:
            return self._on_object(request, target)
        return self._on_collection(request, target)

    def _on_collection(self, request: Request, target: Target) -> Response | Watch:
        match request.method:
            case "GET" if request.flag("watch"):
                return self._watch(request, target)
            case "GET":
                return self._list(request, target)
            case "POST" if not target.resource.namespaced or target.namespace:
                obj = request.obj(target)
                written = self.registry.create(target, obj, dry_run=request.dry_run)
                return self._object(target, written.stored, 201)
            case "DELETE":
                return self._delete_collection(request, target)
            case _:
                raise method_not_allowed()

    def _on_object(self, request: Request, target: Target) -> Response | Watch:
        if target.subresource == "binding":
            return self._bind(request, target)
        match request.method:
            case "GET" if request.flag("watch"):
                return self._watch(request, target)
            case "GET":
                self._check_not_ahead(revision_number(request.query.get("resourceVersion", "")))
                return self._shown(request, target, self.registry.get(target))
            case "PUT":
                return self._put(request, target)
            case "PATCH":
                return self._patch(request, target)
            case "DELETE" if not target.subresource:
                return self._delete(request, target)
            case _:
                raise method_not_allowed()

    def _put(self, request: Request, target: Target) -> Response:
        new = request.obj(target)
        _check_identity(target, new)
        if target.subresource == "finalize":
            written = self.registry.finalize(target, new, dry_run=request.dry_run)
            return self._object(target, written.stored, 200)
        if target.resource.create_on_update and not self._exists(target):
            written = self.registry.create(target, new, dry_run=request.dry_run)
        else:
            uid = metadata(new).get("uid", "")
            written = self.registry.update(target, lambda _: new, uid=uid, dry_run=request.dry_run)
        return self._written(target, written)

    def _patch(self, request: Request, target: Target) -> Response:
        match request.content_type:
            case content_type if content_type == APPLY_PATCH:
                applied = as_stored(request.document(target.resource.kind), target)
                _check_identity(target, applied)
                manager = request.manager()
                written = self.registry.apply(target, applied, manager, dry_run=request.dry_run)
                return self._written(target, written)
            case content_type if content_type == MERGE_PATCH:
                merge, rewrite = merge_patch, opaque.as_shown
            case content_type if content_type == STRATEGIC_MERGE_PATCH:
                merge, rewrite = strategic_merge_patch, opaque.as_decoded
            case _:
                raise unsupported_media_type(request.content_type)
        kind = target.resource.kind
        patch = opaque.changed(kind, request.document(kind), opaque.as_patch)

        def change(old: Json) -> Json:
            shown = opaque.changed(kind, from_stored(target.resource, target.version, old), rewrite)
            new = as_stored(without_nulls(merge(shown, patch)), target)
            _check_identity(target, new)
            return new

        return self._written(target, self.registry.update(target, change, dry_run=request.dry_run))

    def _delete(self, request: Request, target: Target) -> Response:
        options = request.delete_options()
        written = self.registry.delete(target, options, dry_run=request.dry_run)
        if not written.removed or target.resource.returns_deleted:
            return self._object(target, written.stored, 200)
        details = {
            "name": target.name,
            "group": target.resource.group,
            "kind": target.resource.plural,
            "uid": metadata(written.stored.obj)["uid"],
        }
        shown = {key: value for key, value in details.items() if value}
        return _json(200, {**_DELETED, "details": shown})

    def _delete_collection(self, request: Request, target: Target) -> Response:
        options = request.delete_options()
        doomed = self._selected(target, parse_selectors(target.resource, request.query), None)
        for stored in doomed:
            meta = metadata(stored.obj)
            one = Target(
                target.resource, target.version, meta.get("namespace", ""), meta["name"], ""
            )
            self.registry.delete(one, options, dry_run=request.dry_run)
        return Response(200, self._list_body(target, doomed, {}))

    def _bind(self, request: Request, target: Target) -> Response:
        if request.method != "POST":
            raise method_not_allowed()
        binding = request.obj(target, "Binding")
        if refused := check_binding(binding, target.name):
            raise refused
        self.registry.bind(target, binding, dry_run=request.dry_run)
        return _json(201, {**_DELETED, "code": 201})

    def _list(self, request: Request, target: Target) -> Response:
        selector = parse_selectors(target.resource, request.query)
        plan = plan_list(request)
        self._check_not_ahead(plan.not_before)
        items = self._selected_as_of(target, selector, plan)
        meta: Json = {"resourceVersion": str(plan.revision or self.store.revision)}
        if plan.after:
            items = [stored for stored in items if stored.key > plan.after]
        if plan.limit and len(items) > plan.limit:
            left = len(items) - plan.limit
            items = items[: plan.limit]
            meta["continue"] = encode_continue(plan.revision or self.store.revision, items[-1].key)
            if not selector.matchers:
                meta["remainingItemCount"] = left
        return Response(200, self._list_body(target, items, meta))

    def _selected_as_of(self, target: Target, selector: Selector, plan: ListPlan) -> list[Stored]:
        try:
            return self._selected(target, selector, plan.revision)
        except CompactedError as error:
            meta = {}
            if plan.after:
                # Go on from there, in the state of now: inconsistent, but complete for what did not change.
                meta["continue"] = encode_continue(self.store.revision, plan.after)
            raise expired(error.revision, error.oldest, meta) from None

    def _selected(self, target: Target, selector: Selector, revision: int | None) -> list[Stored]:
        prefix = _key_prefix(target)
        return [
            stored
            for stored in self.store.objects(target.resource.collection, revision)
            if stored.key.startswith(prefix) and selector.matches(stored.obj)
        ]

    def _watch(self, request: Request, target: Target) -> Watch:
        query: Mapping[str, str] = request.query
        if target.name:
            by_name = f"metadata.name={target.name}"
            query = {**query, "fieldSelector": by_name}
        selector = parse_selectors(target.resource, query)
        timeout = request.whole_number("timeoutSeconds")
        wanted = WatchRequest(
            collection=target.resource.collection,
            kind=target.resource.kind,
            api_version=target.api_version,
            key_prefix=_key_prefix(target),
            selector=selector,
            encode=lambda stored: self._encode(target, stored),
            bookmarks=request.flag("allowWatchBookmarks"),
            timeout_seconds=float(timeout) if timeout else None,
        )
        version = revision_number(query.get("resourceVersion", ""))
        initial = request.flag("sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request("sendInitialEvents requires resourceVersionMatch=NotOlderThan")
        if version and not initial:
            return Watch(self.store, wanted, version)
        self._check_not_ahead(version)
        listed = self._selected(target, selector, None)
        announce = initial and wanted.bookmarks
        return Watch(self.store, wanted, self.store.revision, listed, announce_initial_end=announce)

    def _check_not_ahead(self, revision: int) -> None:
        if revision > self.store.revision:
            raise version_ahead(revision, self.store.revision)

    def _exists(self, target: Target) -> bool:
        try:
            self.registry.get(target)
        except StatusError:
            return False
        return True

    def _written(self, target: Target, written: Written) -> Response:
        return self._object(target, written.stored, 201 if written.created else 200)

    def _object(self, target: Target, stored: Stored, status: int) -> Response:
        return Response(status, self._encode(target, stored))

    def _shown(self, request: Request, target: Target, stored: Stored) -> Response:
        """An object in the format that is wanted most, if it is spoken here; else as JSON, unless that is not wanted."""
        formats = [each.partition(";")[0].strip() for each in request.accept.split(",")]
        if formats[0] != PROTOBUF or not target.message:
            if formats == [PROTOBUF]:
                raise not_acceptable(request.accept)
            return self._object(target, stored, 200)
        kind, api_version = target.resource.kind, target.api_version
        obj = {"kind": kind, "apiVersion": api_version, **stored.obj}
        return Response(200, protobuf.encode(target.message, obj), PROTOBUF)

    def _encode(self, target: Target, stored: Stored) -> bytes:
        header = b'{"kind":"%b","apiVersion":"%b",' % (
            target.resource.kind.encode(),
            target.api_version.encode(),
        )
        return header + _raw(target, stored)[1:]

    def _list_body(self, target: Target, items: list[Stored], meta: Json) -> bytes:
        # Items of a typed list carry no kind and apiVersion: the list says them.
        return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
            target.resource.kind.encode(),
            target.api_version.encode(),
            orjson.dumps(meta),
            b",".join(_raw(target, stored) for stored in items),
        )


def _json(status: int, body: Json) -> Response:
    return Response(status, orjson.dumps(body))


def _raw(target: Target, stored: Stored) -> bytes:
    if is_stored_shape(target.resource, target.version):
        return stored.raw
    return opaque.encode(from_stored(target.resource, target.version, stored.obj))


def _key_prefix(target: Target) -> str:
    return f"{target.namespace}/" if target.namespace else ""


def _check_identity(target: Target, obj: Json) -> None:
    if target.name != (name(obj) or target.name):
        raise bad_request(
            f"the name of the object ({name(obj)}) does not match the name on the URL ({target.name})"
        )
    meta = obj["metadata"]
    meta.setdefault("name", target.name)
    if not target.resource.namespaced:
        return
    if meta.setdefault("namespace", target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
