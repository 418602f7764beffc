"""Objects that note which of their attributes are read."""

import dataclasses
from typing import Any, get_args, get_type_hints

import msgspec

from scheduler.framework.pod_info import CLOSED, PodInfo
from scheduler.model import NodeInfo, Pod

WHOLE = "(whole)"
Log = dict[str, bool]  # path -> whether something was there, at least once


def _has_attributes(value: object) -> bool:
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value)


class Recorder:
    """Stands for an object, and tells of each attribute that is read by its path; elements of a tuple have its path."""

    __slots__ = ("_log", "_path", "_target")

    def __init__(self, target: object, log: Log, path: str = "") -> None:
        self._target, self._log, self._path = target, log, path

    def __getattr__(self, name: str) -> Any:
        target = self._target
        computed = getattr(type(target), name, None)
        if isinstance(computed, property) and computed.fget is not None:
            return computed.fget(self)
        value = getattr(target, name)
        path = f"{self._path}.{name}" if self._path else name
        if _has_attributes(value):
            return Recorder(value, self._log, path)
        if isinstance(value, tuple) and value and _has_attributes(value[0]):
            return tuple(Recorder(each, self._log, path) for each in value)
        self._log[path] = self._log.get(path, False) or value is not None
        return value

    def _whole(self) -> None:
        self._log[f"{self._path}{WHOLE}"] = True

    def __eq__(self, other: object) -> bool:
        self._whole()
        return self._target == other

    def __hash__(self) -> int:
        self._whole()
        return hash(self._target)

    def __repr__(self) -> str:
        self._whole()
        return repr(self._target)


def recorded_pod(pod: PodInfo, log: Log) -> PodInfo:
    """The same pod, whose reads are noted."""
    made = PodInfo(Pod(), pod.features, pod.facts)
    made.pod = Recorder(pod.pod, log)  # type: ignore[assignment]  # as good as a pod
    made.spec = made.pod.spec
    return made


def recorded_node(node: NodeInfo, log: Log) -> NodeInfo:
    """The same node, whose reads are noted."""
    return Recorder(node, log)  # type: ignore[return-value]  # as good as a node


def undeclared(log: Log, declared: tuple[str, ...]) -> set[str]:
    """What was read and is not declared; of what is None nobody reads more than that it is not there."""
    return {
        path
        for path, was_there in log.items()
        if not any(
            path == each
            or path.startswith(f"{each}.")
            or (not was_there and each.startswith(f"{path}."))
            for each in declared
        )
    }


def unread(log: Log, declared: tuple[str, ...]) -> set[str]:
    """What is declared and was never read."""
    return {each for each in declared if not any(f"{path}.".startswith(f"{each}.") for path in log)}


def closed(paths: Any) -> set[str]:
    """Those of some paths of a pod that plugins do not see."""
    return {path for path in paths if _is_closed(path)}


def _is_closed(path: str) -> bool:
    type_: Any = Pod
    for name in path.removesuffix(WHOLE).split("."):
        if name in CLOSED.get(type_, ()):
            return True
        type_ = _struct_in(get_type_hints(type_).get(name)) if isinstance(type_, type) else None
    return False


def _struct_in(hint: Any) -> type | None:
    """The model's type in `tuple[X, ...] | None`."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for each in get_args(hint) if (found := _struct_in(each))), None)
