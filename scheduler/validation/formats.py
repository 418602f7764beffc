"""Text formats of the API, each as `problem(text) -> str | None`: what is wrong, or nothing.

Source: k8s.io/apimachinery/pkg/util/validation; docs/design/api-versions.md#validation.
"""

import re
from typing import Final

from allocator.model.nodes import as_int64

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)

_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253
_MAX_IDENTIFIER: Final = 32
_MAX_LABEL_KEY_NAME: Final = 63


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_LABEL else f"{text[:60]}...")


def label(text: str) -> str | None:
    """Check a DNS-1123 label."""
    if not text:
        return "is required"
    if len(text) > _MAX_LABEL:
        return f"must have at most {_MAX_LABEL} characters"
    if not _LABEL.fullmatch(text):
        return f"{_shown(text)} is not a DNS label (lower-case letters, digits, '-' inside)"
    return None


def subdomain(text: str) -> str | None:
    """Check a DNS-1123 subdomain."""
    if not text:
        return "is required"
    if len(text) > _MAX_SUBDOMAIN:
        return f"must have at most {_MAX_SUBDOMAIN} characters"
    if not _SUBDOMAIN.fullmatch(text):
        return f"{_shown(text)} is not a DNS subdomain (lower-case labels joined by '.')"
    return None


def driver_name(text: str) -> str | None:
    """Check a driver name: a subdomain of at most 63 characters, upper case tolerated."""
    if len(text) > _MAX_LABEL:
        return f"must have at most {_MAX_LABEL} characters"
    return subdomain(text.lower())


def pool_name(text: str) -> str | None:
    """Check a pool name: subdomains joined by slashes."""
    if not text:
        return "is required"
    if len(text) > _MAX_SUBDOMAIN:
        return f"must have at most {_MAX_SUBDOMAIN} characters"
    for part in text.split("/"):
        if not part:
            return f"{_shown(text)} has an empty part between slashes"
        if problem := subdomain(part):
            return problem
    return None


def label_key(text: str) -> str | None:
    """Check the key of a label: a name with an optional DNS prefix."""
    if not text:
        return "is required"
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return f"the part before '/' in {_shown(text)} is not a DNS subdomain"
    if not name or len(name) > _MAX_LABEL_KEY_NAME or not _QUALIFIED.fullmatch(name):
        return f"{_shown(text)} is not a label key"
    return None


def label_value(text: str) -> str | None:
    """Check the value of a label; none is fine."""
    if text and (len(text) > _MAX_LABEL or not _QUALIFIED.fullmatch(text)):
        return f"{_shown(text)} is not a label value"
    return None


def identifier(text: str) -> str | None:
    """Check a C identifier of at most 32 characters."""
    if not text:
        return "the name after the domain must not be empty"
    if len(text) > _MAX_IDENTIFIER:
        return f"{_shown(text)} has more than {_MAX_IDENTIFIER} characters"
    if not _IDENTIFIER.fullmatch(text):
        return f"{_shown(text)} is not a C identifier (letters, digits, '_')"
    return None


def qualified_name(text: str) -> str | None:
    """Check the name of an attribute or capacity.

    Differs from what one expects: a name with two slashes passes, as upstream lets it.
    """
    if not text:
        return "a name is required"
    parts = text.split("/")
    match parts:
        case [name]:
            return identifier(name)
        case ["", _]:
            return "the domain before '/' must not be empty"
        case [domain, name]:
            return driver_name(domain) or identifier(name)
        case _:
            return None


def fully_qualified_name(text: str) -> str | None:
    """Check a name that must have a domain."""
    if not text:
        return "is required"
    return qualified_name(text) or (
        None if "/" in text else f"{_shown(text)} needs a domain: DOMAIN/NAME"
    )


def semver(text: str) -> str | None:
    """Check a strict semantic version 2.0.0."""
    if not _SEMVER.fullmatch(text):
        return f"{_shown(text)} is not a semantic version (MAJOR.MINOR.PATCH, no 'v', no leading zeros)"
    return None


def uuid(text: str) -> str | None:
    """Check a lower-case UUID of 36 characters."""
    return None if _UUID.fullmatch(text) else f"{_shown(text)} is not a lower-case UUID"


def extended_resource_name(text: str) -> str | None:
    """Check the name of an extended resource: a domain that is not kubernetes.io's, not a quota prefix."""
    domain, slash, _ = text.partition("/")
    if not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return f"{_shown(text)} needs a domain of its own, not kubernetes.io"
    if text.startswith("requests."):
        return f"{_shown(text)} must not start with 'requests.'"
    return label_key(f"requests.{text}") and f"{_shown(text)} is not a resource name"


def is_integer(text: str) -> bool:
    """Whether Go reads the text as a 64-bit integer in base 10."""
    return as_int64(text) is not None
