"""JSON objects as the server holds them: copies, comparison as the API means it, names and labels."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

Json = dict[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def is_label(text: str) -> bool:
    """Whether it is a DNS-1123 label."""
    return len(text) <= 63 and LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether it is a DNS-1123 subdomain."""
    return len(text) <= 253 and SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether it is a label key: a name with an optional DNS prefix."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= 63 and QUALIFIED_NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether it may be the value of a label."""
    return len(text) <= 63 and LABEL_VALUE.fullmatch(text) is not None


def copy(value: Json) -> Json:
    """A deep copy. Through JSON, which is fast, unless there is something in it that is kept as text."""
    try:
        duplicate: Json = orjson.loads(orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS))
    except orjson.JSONEncodeError:
        return {key: _copy(member) for key, member in value.items()}
    return duplicate


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return copy(value)
    return [_copy(item) for item in value] if isinstance(value, list) else value


def without_nulls(value: Any) -> Any:
    """Drop null members everywhere, as decoding into Go types does."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Equal as the API means it: absent, null, and an empty list or object are the same."""
    if isinstance(left, dict) or isinstance(right, dict):
        return _same_members(left or {}, right or {})
    if isinstance(left, list) or isinstance(right, list):
        mine, other = left or [], right or []
        return (
            isinstance(mine, list)
            and isinstance(other, list)
            and len(mine) == len(other)
            and all(map(same, mine, other))
        )
    # bool is an int in Python, but not in JSON.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _same_members(left: Any, right: Any) -> bool:
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return False
    return all(same(left.get(key), right.get(key)) for key in left.keys() | right.keys())


def metadata(obj: Mapping[str, Any]) -> Json:
    """The object's metadata (empty if it has none)."""
    found: Json | None = obj.get("metadata")
    return {} if found is None else found


def status(obj: Mapping[str, Any]) -> Json:
    """The object's status (empty if it has none)."""
    found: Json | None = obj.get("status")
    return {} if found is None else found


def spec(obj: Mapping[str, Any]) -> Json:
    """The object's spec (empty if it has none)."""
    found: Json | None = obj.get("spec")
    return {} if found is None else found


def name(obj: Mapping[str, Any]) -> str:
    """`metadata.name`, or empty."""
    found: str = metadata(obj).get("name") or ""
    return found


def namespace(obj: Mapping[str, Any]) -> str:
    """`metadata.namespace`, or empty."""
    found: str = metadata(obj).get("namespace") or ""
    return found


def at(obj: Mapping[str, Any], path: str) -> Any:
    """The member at a dotted path, or None."""
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def replace(obj: Json, key: str, source: Mapping[str, Any]) -> None:
    """Make one member of an object what it is in another one, present or not."""
    if source.get(key) is None:
        obj.pop(key, None)
    else:
        obj[key] = source[key]
