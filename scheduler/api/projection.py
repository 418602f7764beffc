"""What the cache keeps of pods and nodes: the fields that somebody reads there, declared once, and nothing else.

Clusters have tens of thousands of pods that run or have ended. Those that run count for what they request, and can repel
others; those that have ended only hold claims until they are gone. A test runs every reader of such pods on whole and on
projected objects and records what it reads, so a field that is read and not declared here makes it fail.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import FieldInfo, fields, force_setattr

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

_Strip = Callable[[Any], None]


def stripper(type_: type[msgspec.Struct], kept: Iterable[str]) -> _Strip:
    """Make a function that takes all other fields away from a struct that nobody else holds yet.

    It does so in place: making tens of thousands of objects anew takes longer than decoding what is dropped.
    """
    here = {field.name: field for field in fields(type_)}
    below: dict[str, set[str]] = {}
    for path in kept:
        name, _, rest = path.partition(".")
        name, _, types = name.partition("[")
        if name not in here:
            raise ValueError(f"{type_.__name__} has no field {name}")
        below.setdefault(name, set()).add(f"[{types}" if types else rest)
    dropped = {name: _default(field) for name, field in here.items() if name not in below}
    partly = [_part(here[name], rest) for name, rest in below.items() if "" not in rest]
    return _all_of([_dropping(dropped), *partly] if dropped else partly)


def _all_of(steps: Iterable[_Strip]) -> _Strip:
    every = tuple(steps)
    if len(every) == 1:
        return every[0]

    def strip(value: Any) -> None:
        for step in every:
            step(value)

    return strip


def _dropping(dropped: Mapping[str, Any]) -> _Strip:
    """Set fields to their defaults; a default object, which others share, has nothing to set."""
    names = (*dropped, *dropped)[: max(2, len(dropped))]  # attrgetter has a tuple for two and more
    values = attrgetter(*names)
    defaults = tuple(dropped[name] for name in names)

    def strip(value: Any) -> None:
        if values(value) != defaults:
            for name, default in dropped.items():
                force_setattr(value, name, default)

    return strip


def _part(field: FieldInfo, kept: set[str]) -> _Strip:
    """Keep a part of a field: some fields of a struct or of each struct of a list, or some elements of a list."""
    value_of = attrgetter(field.name)
    types = {path.strip("[]") for path in kept if path.startswith("[")}
    if types:

        def keep_types(value: Any) -> None:
            every = value_of(value)
            if every:
                found = tuple([each for each in every if each.type in types])
                force_setattr(value, field.name, found or None)

        return keep_types
    inner, is_list = _inner(field.type)
    strip = stripper(inner, kept)

    def strip_one(value: Any) -> None:
        part = value_of(value)
        if part is not None:
            strip(part)

    def strip_each(value: Any) -> None:
        for part in value_of(value) or ():
            strip(part)

    return strip_each if is_list else strip_one


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


_strip_node: Final = stripper(NodeObject, OF_NODES)
_strip_waiting: Final = stripper(Pod, OF_WAITING_PODS)
_strip_running: Final = stripper(Pod, OF_RUNNING_PODS)
_strip_ended: Final = stripper(Pod, OF_ENDED_PODS)


def strip_unread(item: Watched) -> None:
    """Take away what the cache is never asked for, from an object that has just been decoded."""
    if isinstance(item, Pod):
        if item.is_terminal:
            _strip_ended(item)
        elif item.spec.node_name:
            _strip_running(item)
        else:
            _strip_waiting(item)
    elif isinstance(item, NodeObject):
        _strip_node(item)
