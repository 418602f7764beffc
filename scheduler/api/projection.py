"""What the cache keeps of pods and nodes: the fields that somebody reads there, declared once, and nothing else.

Clusters have tens of thousands of pods that run or have ended. Those that run count for what they request, and can repel
others; those that have ended only hold claims until they are gone. A test runs every reader of such pods on whole and on
projected objects and records what it reads, so a field that is read and not declared here makes it fail.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from operator import attrgetter, is_
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec.structs import FieldInfo, fields, replace

from scheduler.model import NodeObject, Pod, Watched

_METADATA: Final = frozenset(
    {
        "metadata.name",
        "metadata.generate_name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resource_version",
        "metadata.generation",
        "metadata.creation_timestamp",
        "metadata.deletion_timestamp",
        "metadata.labels",
        "metadata.owner_references",
        "metadata.finalizers",
    }
)
_CLAIMS_OF_POD: Final = frozenset(
    {
        "spec.node_name",
        "spec.scheduler_name",
        "spec.resource_claims",
        "status.phase",
        "status.resource_claim_statuses",
        "status.extended_resource_claim_status",
    }
)
_CONTAINER: Final = frozenset({"name", "resources", "ports", "restart_policy"})

OF_NODES: Final = _METADATA | {"spec", "status"}
OF_WAITING_PODS: Final = OF_NODES
OF_ENDED_PODS: Final = _METADATA | _CLAIMS_OF_POD
OF_RUNNING_PODS: Final = (
    _METADATA
    | _CLAIMS_OF_POD
    | {f"spec.containers.{name}" for name in _CONTAINER}
    | {f"spec.init_containers.{name}" for name in _CONTAINER}
    | {
        "spec.priority",
        "spec.priority_class_name",
        "spec.preemption_policy",
        "spec.affinity",
        "spec.overhead",
        "spec.resources",
        "spec.host_network",
        "status.conditions[PodResizePending]",  # an infeasible resize: what is asked for does not count
        "status.nominated_node_name",
        "status.container_statuses",
        "status.init_container_statuses",
        "status.allocated_resources",
        "status.resources",
        "status.node_allocatable_resource_claim_statuses",
    }
)
"""Paths of attributes; a path keeps all that is below it. In brackets: only list elements of these types."""

T = TypeVar("T", bound=msgspec.Struct)
_Keep = Callable[[Any], Any]


def projection(type_: type[T], kept: Iterable[str]) -> Callable[[T], T]:
    """Make a function that takes away all other fields of a struct; it returns the very object if there is none to take."""
    here = {field.name: field for field in fields(type_)}
    below: dict[str, set[str]] = {}
    for path in kept:
        name, _, rest = path.partition(".")
        name, _, types = name.partition("[")
        if name not in here:
            raise ValueError(f"{type_.__name__} has no field {name}")
        below.setdefault(name, set()).add(f"[{types}" if types else rest)
    dropped = {name: _default(field) for name, field in here.items() if name not in below}
    partly = {name: _part(here[name].type, rest) for name, rest in below.items() if "" not in rest}
    return _projector(dropped, partly)


def _projector(dropped: Mapping[str, Any], partly: Mapping[str, _Keep]) -> Callable[[T], T]:
    """One function for tens of thousands of objects: it looks at all fields to drop at once."""
    names = (*dropped, *dropped)[: max(2, len(dropped))]  # attrgetter has a tuple for two and more
    values = attrgetter(*names) if dropped else None
    defaults = tuple(dropped[name] for name in names)
    parts = tuple(partly.items())

    def project(value: T) -> T:
        changes: dict[str, Any] | None = None
        if values is not None and values(value) != defaults:
            changes = dict(dropped)
        for name, keep in parts:
            before = getattr(value, name)
            if before is None:
                continue
            after = keep(before)
            if after is not before:
                if changes is None:
                    changes = {}
                changes[name] = after
        return value if changes is None else replace(value, **changes)

    return project


def _part(type_: Any, kept: set[str]) -> _Keep:
    """Keep a part of a field: some fields of a struct or of each struct of a list, or some elements of a list."""
    types = {path.strip("[]") for path in kept if path.startswith("[")}
    inner, is_list = _inner(type_)
    if types:
        return partial(_of_types, types)
    project = projection(inner, kept)
    return partial(_each, project) if is_list else project


def _of_types(types: Set[str], value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    found = tuple([each for each in value if each.type in types])
    return value if found and len(found) == len(value) else found or None


def _each(project: _Keep, value: tuple[Any, ...]) -> tuple[Any, ...]:
    projected = tuple([project(each) for each in value])
    return value if all(map(is_, projected, value)) else projected


def _inner(type_: Any) -> tuple[Any, bool]:
    """The struct in an optional or a tuple, and whether it is a tuple."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_, False
    inner = next(each for each in get_args(type_) if each not in (type(None), Ellipsis))
    found, is_list = _inner(inner)
    return found, is_list or Ellipsis in get_args(type_)


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


_node: Final = projection(NodeObject, OF_NODES)
_waiting: Final = projection(Pod, OF_WAITING_PODS)
_running: Final = projection(Pod, OF_RUNNING_PODS)
_ended: Final = projection(Pod, OF_ENDED_PODS)


def without_unread(item: Watched) -> Watched:
    """An object without what the cache is never asked for."""
    if isinstance(item, NodeObject):
        return _node(item)
    if not isinstance(item, Pod):
        return item
    if item.is_terminal:
        return _ended(item)
    return _running(item) if item.spec.node_name else _waiting(item)
