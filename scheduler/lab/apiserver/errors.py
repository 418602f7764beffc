"""Refusals of the embedded API server, in the words and codes of kube-apiserver's `Status` object.

Clients act on `code` and `reason`; `message` is for people and is not promised to be the same text upstream uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong.

    Attributes:
        reason: `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`, `FieldValueNotSupported`,
            `FieldValueDuplicate`, `FieldValueTooLong` or `FieldValueTooMany`.
        field: JSON path such as `spec.devices[0].name`.
        message: what is wrong with it.
    """

    reason: str
    field: str
    message: str


def invalid_value(field: str, message: str) -> Cause:
    """The value breaks a rule."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {message}")


def required(field: str, message: str = "") -> Cause:
    """The value is missing."""
    return Cause("FieldValueRequired", field, f"Required value{': ' + message if message else ''}")


def forbidden_value(field: str, message: str) -> Cause:
    """The value may not be set, or not now."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {message}")


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> Cause:
    """The value is none of those that are known."""
    known = ", ".join(f'"{name}"' for name in supported)
    return Cause(
        "FieldValueNotSupported",
        field,
        f'Unsupported value: "{value}": supported values: {known}',
    )


def duplicate_value(field: str, value: object) -> Cause:
    """The value is there twice."""
    return Cause("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def too_many(field: str, actual: int, most: int) -> Cause:
    """The list is too long."""
    return Cause("FieldValueTooMany", field, f"Too many: {actual}: must have at most {most} items")


class StatusError(Exception):
    """A request was refused.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason of the Status object.
        message: text for people.
        details: `details` of the Status object, or empty.
        metadata: `metadata` of the Status object (a `continue` token, sometimes).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.metadata = metadata or {}

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"

    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body

    def body(self) -> bytes:
        """The Status object as JSON."""
        return orjson.dumps(self.status())


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in details.items() if value}


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404: no such object."""
    message = f'{_qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, plural, name))


def unknown_path() -> StatusError:
    """404: no such path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409: create of a name that is taken."""
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """409: the object is not what the caller thinks it is."""
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, plural, name))


def modified(group: str, plural: str, name: str) -> StatusError:
    """409: written with an old resourceVersion."""
    return conflict(
        group,
        plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403: admission refused."""
    message = f'{_qualified(group, plural)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _details(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object breaks rules.

    Args:
        group: API group of the object.
        kind: its kind (not the plural, as upstream).
        name: its name.
        causes: at least one.
    """
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{_qualified(group, kind)} "{name}" is invalid: {joined}'
    details = _details(group, kind, name)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return StatusError(422, "Invalid", message, details)


def bad_request(message: str) -> StatusError:
    """400: the request makes no sense."""
    return StatusError(400, "BadRequest", message)


def method_not_allowed() -> StatusError:
    """405: the path knows no such method."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def not_acceptable(accept: str) -> StatusError:
    """406: the answer is wanted in a format that is not spoken here."""
    message = f"the answer is not served as {accept}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(content_type: str) -> StatusError:
    """415: the body is in a format that is not spoken here."""
    message = f"the body of the request was in an unknown format: {content_type or 'none given'}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit_bytes: int) -> StatusError:
    """413: the body is too large."""
    message = f"Request entity too large: limit is {limit_bytes}"
    return StatusError(413, "RequestEntityTooLarge", message)


def expired(requested: int, oldest: int, metadata: dict[str, Any] | None = None) -> StatusError:
    """410: the history that was asked for is gone."""
    message = f"too old resource version: {requested} ({oldest})"
    return StatusError(410, "Expired", message, metadata=metadata)


def version_ahead(requested: int, current: int) -> StatusError:
    """504: a resourceVersion that does not exist yet."""
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, "Timeout", message, details)
