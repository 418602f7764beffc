"""Named formats: `format.dns1123Label()` and the like, with `validate`.

Source: k8s.io/apiserver/pkg/cel/library/format.go, apimachinery's validation, kube-openapi's strfmt.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, ClassVar, Final

from allocator.cel.library.urls import parse_url
from allocator.cel.values.names import no_such_overload
from allocator.cel.values.scalars import NONE, Optional
from allocator.errors import CelRuntimeError

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_LABEL_1035: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))\Z", re.ASCII
)
_LABEL_LENGTH, _SUBDOMAIN_LENGTH, _NAME_LENGTH = 63, 253, 63


class NamedFormat:
    """A named format.

    Attributes:
        regex_size: length of the pattern it stands for; part of the cost of `validate`.
    """

    __slots__ = ("name", "regex_size", "validate")
    CEL_NAME: ClassVar = "kubernetes.NamedFormat"
    UNHASHABLE: ClassVar = True

    def __init__(self, name: str, regex_size: int, validate: Callable[[str], list[str]]) -> None:
        self.name = name
        self.regex_size = regex_size
        self.validate = validate

    def __eq__(self, other: object) -> bool:
        return other.__class__ is NamedFormat and self.name == other.name

    def __hash__(self) -> int:
        return hash(("format", self.name))


def _too_long(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _label(text: str) -> list[str]:
    problems = []
    if _bytes(text) > _LABEL_LENGTH:
        problems.append(_too_long(_LABEL_LENGTH))
    if _LABEL.fullmatch(text) is None:
        if _SUBDOMAIN.fullmatch(text) is not None:
            problems.append("must not contain dots")
        else:
            problems.append(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
                "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
                "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            )
    return problems


def _subdomain(text: str) -> list[str]:
    problems = []
    if _bytes(text) > _SUBDOMAIN_LENGTH:
        problems.append(_too_long(_SUBDOMAIN_LENGTH))
    if _SUBDOMAIN.fullmatch(text) is None:
        problems.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return problems


def _label_1035(text: str) -> list[str]:
    problems = []
    if _bytes(text) > _LABEL_LENGTH:
        problems.append(_too_long(_LABEL_LENGTH))
    if _LABEL_1035.fullmatch(text) is None:
        problems.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
            "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
    return problems


_NAME_PROBLEM: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


_VALUE_PROBLEM: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def _qualified_name(text: str) -> list[str]:
    problems: list[str] = []
    parts = text.split("/")
    if len(parts) > 2:
        return [
            "a valid label key "
            + _NAME_PROBLEM
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in _subdomain(parts[0])]
    if not name:
        problems.append("name part must be non-empty")
    elif _bytes(name) > _NAME_LENGTH:
        problems.append(f"name part {_too_long(_NAME_LENGTH, 'bytes')}")
    if _NAME.fullmatch(name) is None:
        problems.append(f"name part {_NAME_PROBLEM}")
    return problems


def _label_value(text: str) -> list[str]:
    problems = []
    if _bytes(text) > _NAME_LENGTH:
        problems.append(_too_long(_NAME_LENGTH, "bytes"))
    if text and _NAME.fullmatch(text) is None:
        problems.append(_VALUE_PROBLEM)
    return problems


def _prefix(validate: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name that something is appended to: a trailing dash is fine."""

    def masked(text: str) -> list[str]:
        return validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return masked


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except CelRuntimeError as error:
        return [error.message.removeprefix("URL parse error during conversion from string: ")]
    return []


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) is not None else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    return [] if _BASE64.fullmatch(text) is not None else ["invalid base64"]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        date(int(match.group(1)) or 4, int(match.group(2)), int(match.group(3)))
    except ValueError:
        return False
    return True


def _date(text: str) -> list[str]:
    return [] if _is_date(text) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    if len(text) < 4:
        return ["invalid datetime"]
    parts = text.lower().split("t")
    if len(parts) < 2 or not _is_date(parts[0]):
        return ["invalid datetime"]
    match = _DATETIME.match(parts[1])
    if match is None:
        return ["invalid datetime"]
    hour, minute, second = (int(match.group(at)) for at in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        return ["invalid datetime"]
    return []


# The name of the function -> the format.
FORMATS: Final[Mapping[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", 30, _label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", 30, _label_1035),
    "qualifiedName": NamedFormat("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", 30, _prefix(_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", 60, _prefix(_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", 30, _prefix(_label_1035)),
    "labelValue": NamedFormat("LabelValue", 40, _label_value),
    "uri": NamedFormat("URI", 1103, _uri),
    "uuid": NamedFormat("uuid", 70, _uuid),
    "byte": NamedFormat("byte", 84, _byte),
    "date": NamedFormat("date", 71, _date),
    "datetime": NamedFormat("datetime", 71, _datetime),
}


def _named(value: Any) -> Optional:
    if value.__class__ is not str:
        raise no_such_overload("format.named", value)
    found = FORMATS.get(value)
    return NONE if found is None else Optional(found)


def _validate(format_: Any, value: Any) -> Optional:
    if format_.__class__ is not NamedFormat or value.__class__ is not str:
        raise no_such_overload("validate", format_, value)
    problems = format_.validate(value)
    return Optional(problems) if problems else NONE


def _constant(format_: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: format_


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "format.named": _named,
    "validate": _validate,
    **{f"format.{name}": _constant(format_) for name, format_ in FORMATS.items()},
}
