"""The extender's wire format (kube-scheduler's `extender/v1`): Go field names as they stand, strict limits.

Requests are decoded from raw bytes into typed values; answers are built with plain `orjson`, no model on the hot path.
An error never repeats what the caller sent. Source: k8s.io/kube-scheduler/extender/v1; docs/design/extender.md#calls;
limits: docs/design/security.md#input-limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import orjson

from allocator.model.hooks import dec_hook
from scheduler.api.numbers import decode_tree, encode_tree
from scheduler.api.walk import FieldError, conform
from scheduler.model import Pod

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_BIND_BODY_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
MAX_NODES: Final = 10_000
MAX_NODE_NAME_LENGTH: Final = 253
MAX_PRIORITY: Final = 10

_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_OPENERS: Final = b"[{"
_NULL: Final = msgspec.Raw(b"null")


class RequestError(ValueError):
    """A request cannot be served as it is.

    Attributes:
        path: JSON path of the wrong field, or empty.
        problem: what is wrong; never text of the request.
        too_large: whether a size limit is exceeded.
    """

    def __init__(self, path: str, problem: str, *, too_large: bool = False) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem
        self.too_large = too_large

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """Arguments of filter and prioritize.

    Attributes:
        pod: the pod to place.
        node_names: candidates, unique, in the caller's order.
    """

    pod: Pod
    node_names: list[str]


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """Arguments of preempt.

    Attributes:
        pod: the pod that would evict others.
        victims: node → `{"Pods": [{"UID": ..}], "NumPDBViolations": n}`, as they are answered.
    """

    pod: Pod
    victims: dict[str, dict[str, Any]]


class BindArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of bind; all of them are set."""

    pod_name: str = msgspec.field(default="", name="PodName")
    pod_namespace: str = msgspec.field(default="", name="PodNamespace")
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = msgspec.field(default="", name="Node")


class _FilterRequest(msgspec.Struct, frozen=True):
    pod: Pod | None = msgspec.field(default=None, name="Pod")
    nodes: msgspec.Raw = msgspec.field(default=_NULL, name="Nodes")
    node_names: list[str] | None = msgspec.field(default=None, name="NodeNames")


class _MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, frozen=True):
    pods: tuple[_MetaPod, ...] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _PreemptRequest(msgspec.Struct, frozen=True):
    pod: Pod | None = msgspec.field(default=None, name="Pod")
    full: msgspec.Raw = msgspec.field(default=_NULL, name="NodeNameToVictims")
    meta: dict[str, _MetaVictims] | None = msgspec.field(default=None, name="NodeNameToMetaVictims")


_Request = TypeVar("_Request", _FilterRequest, _PreemptRequest, BindArgs)
_FILTER: Final = msgspec.json.Decoder(_FilterRequest, dec_hook=dec_hook)
_PREEMPT: Final = msgspec.json.Decoder(_PreemptRequest, dec_hook=dec_hook)
_BIND: Final = msgspec.json.Decoder(BindArgs)


def parse_filter(body: bytes) -> FilterArgs:
    """Parse the body of filter or prioritize.

    Raises:
        RequestError: no JSON, beyond a limit, a field of the wrong type, or full Node objects in place of names.
    """
    _check_size(body, MAX_BODY_BYTES)
    request = _decode(_FILTER, _FilterRequest, body)
    if request.pod is None:
        raise RequestError("Pod", "is required")
    if request.node_names is None and bytes(request.nodes) != b"null":
        raise RequestError("Nodes", "node objects are not accepted: set nodeCacheCapable: true")
    return FilterArgs(request.pod, _checked_names("NodeNames", request.node_names or []))


def parse_preempt(body: bytes) -> PreemptArgs:
    """Parse the body of preempt.

    Raises:
        RequestError: as `parse_filter`.
    """
    _check_size(body, MAX_BODY_BYTES)
    request = _decode(_PREEMPT, _PreemptRequest, body)
    if request.pod is None:
        raise RequestError("Pod", "is required")
    if request.meta is None and bytes(request.full) != b"null":
        raise RequestError(
            "NodeNameToVictims", "pod objects are not accepted: set nodeCacheCapable: true"
        )
    victims = request.meta or {}
    _checked_names("NodeNameToMetaVictims", list(victims))
    return PreemptArgs(
        request.pod,
        {
            node: {
                "Pods": [{"UID": pod.uid} for pod in entry.pods or ()],
                "NumPDBViolations": entry.violations,
            }
            for node, entry in victims.items()
        },
    )


def parse_bind(body: bytes) -> BindArgs:
    """Parse the body of bind.

    Raises:
        RequestError: as `parse_filter`, or a field is missing.
    """
    _check_size(body, MAX_BIND_BODY_BYTES)
    args = _decode(_BIND, BindArgs, body)
    for field in msgspec.structs.fields(BindArgs):
        text = getattr(args, field.name)
        if not text:
            raise RequestError(field.encode_name, "is required")
        if len(text) > MAX_NODE_NAME_LENGTH:
            raise RequestError(
                field.encode_name, f"is longer than {MAX_NODE_NAME_LENGTH} characters"
            )
    return args


def _check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise RequestError("", f"the body is larger than {limit} bytes", too_large=True)
    _check_structure(body)


def _check_structure(body: bytes) -> None:
    """Refuse bodies that are nested too deeply or have too many values, before any object is made of them.

    Strings are cut out with C-speed operations: 5,000 node names cost about half a millisecond.
    """
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH and body.count(b",") < MAX_VALUES // 2:
        return
    escaped = b"\\" in body
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"") if escaped else body
    structure = b"".join(bare.split(b'"')[::2])
    brackets = structure.translate(None, _NOT_BRACKETS)
    if structure.count(b",") + len(brackets) // 2 + 1 > MAX_VALUES:
        raise RequestError("", f"the body has more than {MAX_VALUES} JSON values", too_large=True)
    depth = 0
    for bracket in brackets:
        if bracket in _OPENERS:
            depth += 1
            if depth > MAX_DEPTH:
                raise RequestError("", f"the body is nested deeper than {MAX_DEPTH} levels")
        else:
            depth -= 1


def _decode(
    decoder: "msgspec.json.Decoder[_Request]", type_: type[_Request], body: bytes
) -> _Request:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _decode_slowly(decoder, type_, body)


def _decode_slowly(
    decoder: "msgspec.json.Decoder[_Request]", type_: type[_Request], body: bytes
) -> _Request:
    """Forgive nulls as Go does; else say which field is wrong."""
    try:
        tree = decode_tree(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RequestError("", "the body is not JSON") from None
    try:
        return decoder.decode(encode_tree(conform(type_, tree)))
    except FieldError as error:
        raise RequestError(*_without_input(error)) from None
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        raise RequestError("", "the body is not what this call takes") from None


def _without_input(error: FieldError) -> tuple[str, str]:
    """Cut map keys and quoted values out of a message: they are the caller's text."""
    path = error.path.split('["', 1)[0]
    problem = "is not a quantity" if "is not a quantity" in error.problem else error.problem
    return path, "has a wrong key" if "key" in problem else problem


def _checked_names(path: str, names: list[str]) -> list[str]:
    if len(names) > MAX_NODES:
        raise RequestError(path, f"more than {MAX_NODES} nodes", too_large=True)
    if len(set(names)) != len(names):
        raise RequestError(path, "a node is named twice")
    lengths = set(map(len, names))
    if lengths and (0 in lengths or max(lengths) > MAX_NODE_NAME_LENGTH):
        raise RequestError(
            path, f"a node name is empty or longer than {MAX_NODE_NAME_LENGTH} characters"
        )
    return names


def filter_result(
    node_names: Sequence[str],
    failed: Mapping[str, str] | None = None,
    unresolvable: Mapping[str, str] | None = None,
) -> bytes:
    """Answer filter: nodes that fit, and texts for nodes that do not (unresolvable: eviction cannot help)."""
    return orjson.dumps(
        {
            "NodeNames": node_names,
            "FailedNodes": failed or {},
            "FailedAndUnresolvableNodes": unresolvable or {},
            "Error": "",
        }
    )


def filter_error(message: str) -> bytes:
    """Answer filter with an error: the attempt fails and is repeated with backoff."""
    return orjson.dumps(
        {
            "NodeNames": None,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": message,
        }
    )


def prioritize_result(nodes: Mapping[int, list[str]]) -> bytes:
    """Answer prioritize: score, 0..10 -> nodes. The order of nodes has no meaning for the caller.

    Raises:
        AssertionError: a score is outside 0..10.
    """
    parts = (_scored(names, score) for score, names in nodes.items() if names)
    return b"[%b]" % b",".join(parts)


def _scored(names: list[str], score: int) -> bytes:
    """`{"Host":..,"Score":..}` for each name, made of the list of names without an object for each.

    In encoded JSON `","` stands nowhere but between two strings: inside of one, a quote has a backslash before it.
    """
    if not 0 <= score <= MAX_PRIORITY:
        raise AssertionError(f"score {score} of {names[0]} is outside 0..{MAX_PRIORITY}")
    between = b'","Score":%d},{"Host":"' % score
    return b'{"Host":%b,"Score":%d}' % (orjson.dumps(names)[1:-1].replace(b'","', between), score)


def preempt_result(victims: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Answer preempt: the nodes kept, with their victims as they came."""
    return orjson.dumps({"NodeNameToMetaVictims": victims})


def bind_result(error: str = "") -> bytes:
    """Answer bind; an empty error means bound."""
    return orjson.dumps({"Error": error})
