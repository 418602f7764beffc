"""What a request says: its query, its body. Everything a client can get wrong before any object is touched."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from scheduler.api.wire import WireError
from scheduler.client import JSON, PROTOBUF
from scheduler.lab.apiserver import opaque, protobuf
from scheduler.lab.apiserver.errors import (
    StatusError,
    bad_request,
    forbidden_value,
    invalid,
    required,
    too_large,
    unsupported_media_type,
    unsupported_value,
)
from scheduler.lab.apiserver.objects import Json, without_nulls
from scheduler.lab.apiserver.registry import DeleteOptions, Manager
from scheduler.lab.apiserver.resources import Target
from scheduler.lab.apiserver.shapes import conformed
from scheduler.lab.apiserver.versions import to_stored

BODY_LIMIT_BYTES = 3 * 1024 * 1024

_MATCHES = ("Exact", "NotOlderThan")
_PROPAGATIONS = ("Background", "Foreground", "Orphan")
_TRUE = frozenset({"true", "1"})


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request without its transport.

    Attributes:
        method: upper case.
        path: without query.
        query: last value of each parameter.
        body: as sent.
        content_type: of the body, without parameters.
        agent: who sends it; names the manager of a write that names none.
        accept: the formats that are wanted, the best one first.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    agent: str = "unknown"
    accept: str = JSON

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        return self.query.get(name, "") in _TRUE

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be written."""
        return self.query.get("dryRun") == "All"

    def whole_number(self, name: str) -> int | None:
        """A parameter that is a number; None if it is not there.

        Raises:
            StatusError: 400, it is something else.
        """
        text = self.query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()):
            raise bad_request(f"{name}: Invalid value: {text!r}: must be a whole number")
        return int(text)

    def document(self, kind: str) -> Json:
        """The body as a JSON object.

        Args:
            kind: whose shape it has.

        Raises:
            StatusError: 400 or 413.
        """
        if len(self.body) > BODY_LIMIT_BYTES:
            raise too_large(BODY_LIMIT_BYTES)
        try:
            decoded = opaque.decode(kind, self.body)
        except ValueError as error:
            raise bad_request(f"couldn't get an object from the body: {error}") from None
        if not isinstance(decoded, dict):
            raise bad_request("couldn't get an object from the body: it is no JSON object")
        return decoded

    def obj(self, target: Target, kind: str = "") -> Json:
        """The body as an object for a path, in the stored shape.

        Args:
            target: what the path names.
            kind: what is expected there, if not the path's own kind.

        Raises:
            StatusError: 400, 413 or 415.
        """
        if self.content_type == PROTOBUF and target.message and not kind:
            return as_stored(self._protobuf(target.message), target)
        if self.content_type != JSON:
            raise unsupported_media_type(self.content_type)
        return as_stored(self.document(kind or target.resource.kind), target, kind)

    def _protobuf(self, message: str) -> Json:
        if len(self.body) > BODY_LIMIT_BYTES:
            raise too_large(BODY_LIMIT_BYTES)
        try:
            return protobuf.decode(message, self.body)
        except WireError as error:
            raise bad_request(f"couldn't get an object from the body: {error}") from None

    def manager(self) -> Manager:
        """Who applies.

        Raises:
            StatusError: 422, the request does not say.
        """
        name = self.query.get("fieldManager", "")
        if not name:
            cause = required("fieldManager", "is required for apply patch")
            raise invalid("meta.k8s.io", "PatchOptions", "", [cause])
        return Manager(name, self.flag("force"))

    def delete_options(self) -> DeleteOptions:
        """Options of a DELETE, from the body; from the query when there is none.

        Raises:
            StatusError: 400 or 422.
        """
        body = conformed("DeleteOptions", self.document("DeleteOptions")) if self.body else {}
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise bad_request(f"the object provided is no DeleteOptions but a {body['kind']}")
        if self.body:
            grace = body.get("gracePeriodSeconds")
            propagation = body.get("propagationPolicy") or ""
        else:
            grace = self.whole_number("gracePeriodSeconds")
            propagation = self.query.get("propagationPolicy", "")
        if propagation and propagation not in _PROPAGATIONS:
            cause = unsupported_value("propagationPolicy", propagation, _PROPAGATIONS)
            raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
        wanted = body.get("preconditions") or {}
        return DeleteOptions(
            grace_period_seconds=grace,
            uid=wanted.get("uid") or "",
            resource_version=wanted.get("resourceVersion") or "",
            propagation=propagation,
        )


def as_stored(document: Json, target: Target, kind: str = "") -> Json:
    """Check that a document is of the kind that a path serves, and bring it into the stored shape.

    Raises:
        StatusError: 400.
    """
    expected = kind or target.resource.kind
    api_version = target.api_version if not kind else "v1"
    given = (document.pop("apiVersion", None), document.pop("kind", None))
    if given[0] not in (None, "", api_version) or given[1] not in (None, "", expected):
        raise bad_request(
            f"the object provided ({given[0]}, {given[1]}) is not of the kind that is served here "
            f"({api_version}, {expected})"
        )
    obj = without_nulls(document)
    obj.setdefault("metadata", {})
    stored = to_stored(target.resource, target.version, obj)
    stored.pop("apiVersion", None)
    return conformed(expected, stored)


@dataclass(frozen=True, slots=True)
class ListPlan:
    """Which page of which state a list request asks for.

    Attributes:
        revision: as of which revision; None: now.
        after: key that the page starts behind; empty: the first page.
        limit: most items; 0: all.
        not_before: the state may not be older than this.
    """

    revision: int | None
    after: str
    limit: int
    not_before: int


def plan_list(request: Request) -> ListPlan:
    """Read the parameters of a list.

    Raises:
        StatusError: 400 or 422, when they contradict each other.
    """
    limit = request.whole_number("limit") or 0
    version = request.query.get("resourceVersion", "")
    match = request.query.get("resourceVersionMatch", "")
    token = request.query.get("continue", "")
    if match:
        _check_match(match, version, token)
    if token:
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = decode_continue(token)
        return ListPlan(revision, after, limit, revision)
    number = revision_number(version)
    exact = match == "Exact" or (not match and limit > 0 and number > 0)
    return ListPlan(number if exact else None, "", limit, number)


def _check_match(match: str, version: str, token: str) -> None:
    path = "resourceVersionMatch"
    causes = []
    if token:
        text = "resourceVersionMatch is forbidden when continue is provided"
        causes.append(forbidden_value(path, text))
    if not version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(forbidden_value(path, text))
    if match not in _MATCHES:
        causes.append(unsupported_value(path, match, _MATCHES))
    elif match == "Exact" and version == "0":
        text = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        causes.append(forbidden_value(path, text))
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)


def revision_number(version: str) -> int:
    """A resourceVersion as a number; empty is 0.

    Raises:
        StatusError: 400, it is no number.
    """
    if not version:
        return 0
    if not (version.isascii() and version.isdecimal()):
        raise bad_request(f"resourceVersion: Invalid value: {version!r}: no number")
    return int(version)


def encode_continue(revision: int, after: str) -> str:
    """The token for the page behind a key."""
    token: dict[str, Any] = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\x00"}
    return base64.urlsafe_b64encode(orjson.dumps(token)).decode().rstrip("=")


def decode_continue(token: str) -> tuple[int, str]:
    """Revision and last key of the page before.

    Raises:
        StatusError: 400, no such token was handed out.
    """
    refused: StatusError = bad_request("continue key is not valid")
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        raise refused from None
    match decoded:
        case {"rv": int(revision), "start": str(start)} if revision > 0:
            return revision, start.removesuffix("\x00")
        case _:
            raise refused
