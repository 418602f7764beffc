"""Label and field selectors of list, watch and delete-collection requests."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.lab.apiserver.errors import bad_request
from scheduler.lab.apiserver.objects import at, is_qualified_name, metadata
from scheduler.lab.apiserver.resources import Resource

Matcher = Callable[[Mapping[str, Any]], bool]

_SET_REQUIREMENT = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!]*?)\s*(?P<operator>==|!=|=)\s*(?P<value>.*)")
# A comma inside `in (a, b)` does not separate requirements.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a request is about.

    Attributes:
        matchers: all must hold; none: everything is selected.
    """

    matchers: tuple[Matcher, ...]

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object is selected."""
        return all(matcher(obj) for matcher in self.matchers)


def parse_selectors(resource: Resource, query: Mapping[str, str]) -> Selector:
    """Read `labelSelector` and `fieldSelector`.

    Raises:
        StatusError: 400, when one cannot be read or names a field that cannot be selected on.
    """
    labels = [_label_matcher(text) for text in _requirements(query.get("labelSelector", ""))]
    fields = [
        _field_matcher(resource, text) for text in _requirements(query.get("fieldSelector", ""))
    ]
    return Selector((*labels, *fields))


def _requirements(selector: str) -> list[str]:
    return [text for part in _COMMA.split(selector) if (text := part.strip())]


def _label_matcher(text: str) -> Matcher:
    if found := _SET_REQUIREMENT.fullmatch(text):
        values = frozenset(value.strip() for value in found["values"].split(","))
        wanted = found["operator"] == "in"
        return _on_label(found["key"], lambda value: (value in values) is wanted)
    if found := _EQUALITY.fullmatch(text):
        expected, equal = found["value"], found["operator"] != "!="
        return _on_label(found["key"], lambda value: (value == expected) is equal)
    if text.startswith("!"):
        return _on_label(text[1:].strip(), lambda value: value is None)
    return _on_label(text, lambda value: value is not None)


def _on_label(key: str, holds: Callable[[str | None], bool]) -> Matcher:
    if not is_qualified_name(key):
        raise bad_request(f"unable to parse requirement: invalid label key {key!r}")
    return lambda obj: holds((metadata(obj).get("labels") or {}).get(key))


def _field_matcher(resource: Resource, text: str) -> Matcher:
    found = _EQUALITY.fullmatch(text)
    if found is None:
        raise bad_request(f"invalid field selector: {text!r}; can't understand {text!r}")
    path = found["key"]
    known = {"metadata.name", *resource.fields}
    if resource.namespaced:
        known.add("metadata.namespace")
    if path not in known:
        raise bad_request(f"field label not supported: {path}")
    expected, equal = found["value"], found["operator"] != "!="
    return lambda obj: (_field_text(obj, path) == expected) is equal


def _field_text(obj: Mapping[str, Any], path: str) -> str:
    value = at(obj, path)
    if path == "source":
        value = at(obj, "source.component") or obj.get("reportingComponent")
    if path == "status.successful":
        value = at(obj, "status.succeeded") or 0
    if isinstance(value, bool) or (value is None and path in _BOOLEAN_FIELDS):
        return "true" if value else "false"
    return "" if value is None else str(value)


_BOOLEAN_FIELDS = frozenset({"spec.unschedulable", "spec.hostNetwork"})
