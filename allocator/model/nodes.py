"""Nodes as the allocator sees them, and node selectors.

Source: k8s.io/api/core/v1 NodeSelector; k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.model.meta import ApiStruct


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What device allocation reads of a node."""

    name: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """`key operator values`; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """All expressions (over labels) and all fields (only `metadata.name`) must hold; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """Terms are ORed; no terms match nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeSelectorError(ValueError):
    """A node selector cannot be parsed: bad operator or wrong number of values."""


_MAX_NAME: Final = 63
_MAX_PREFIX: Final = 253
_INT64_DIGITS: Final = 19
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def as_int64(text: str) -> int | None:
    """Read a whole number as Go's `strconv.ParseInt(text, 10, 64)`; None: it is none, or beyond 64 bits.

    A sign and any number of leading zeros are allowed; spaces and underscores are not.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if not (body.isascii() and body.isdigit()):
        return None
    digits = body.lstrip("0")
    if len(digits) > _INT64_DIGITS:
        return None
    number = int(digits or "0")
    if text[0] == "-":
        number = -number
    return number if -(2**63) <= number < 2**63 else None


def _check(requirement: NodeSelectorRequirement) -> None:
    values = requirement.values or ()
    operator = requirement.operator
    if not _is_label_key(requirement.key):
        raise NodeSelectorError(f"{requirement.key!r} is not a label key")
    for value in values:
        if value and (len(value) > _MAX_NAME or not _NAME.fullmatch(value)):
            raise NodeSelectorError(f"key {requirement.key!r}: {value!r} is not a label value")
    if operator in ("In", "NotIn"):
        if not values:
            raise NodeSelectorError(f"key {requirement.key!r}: operator {operator} needs values")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise NodeSelectorError(f"key {requirement.key!r}: operator {operator} takes no values")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or as_int64(values[0]) is None:
            raise NodeSelectorError(
                f"key {requirement.key!r}: operator {operator} needs one integer"
            )
    else:
        raise NodeSelectorError(f"key {requirement.key!r}: {operator!r} is not a valid operator")


def matches_requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Say whether the labels satisfy one (well-formed) requirement. NotIn is true for a missing label."""
    values = requirement.values or ()
    found = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return found is not None and found in values
        case "NotIn":
            return found is None or found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:
            number = None if found is None else as_int64(found)
            bound = as_int64(values[0])
            if number is None or bound is None:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound


def check_term(term: NodeSelectorTerm) -> None:
    """Check that a term can be evaluated.

    Raises:
        NodeSelectorError: bad operator, key or value, or a wrong number of values.
    """
    for requirement in term.match_expressions or ():
        _check(requirement)
    for requirement in term.match_fields or ():
        if requirement.operator not in ("In", "NotIn"):
            raise NodeSelectorError(f"{requirement.operator!r} is not a valid field operator")
        if len(requirement.values or ()) != 1:
            raise NodeSelectorError("a field selector needs exactly one value")


def matches_term(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    """Say whether a (well-formed) term matches; a term without expressions and fields never does."""
    if not term.match_expressions and not term.match_fields:
        return False
    for requirement in term.match_expressions or ():
        if not matches_requirement(requirement, labels):
            return False
    for requirement in term.match_fields or ():
        # Differs from what one expects: a field that nodes do not have is no error; its value is empty text.
        found = node_name if requirement.key == "metadata.name" else ""
        if (found in (requirement.values or ())) is (requirement.operator == "NotIn"):
            return False
    return True


def matches_node_selector(
    selector: NodeSelector, labels: Mapping[str, str], node_name: str
) -> bool:
    """Say whether a node selector matches a node.

    Raises:
        NodeSelectorError: any term cannot be parsed, also one that would not decide.
    """
    terms = selector.node_selector_terms or ()
    for term in terms:
        if term.match_expressions or term.match_fields:
            check_term(term)
    return any(matches_term(term, labels, node_name) for term in terms)
