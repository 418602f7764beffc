"""What `scheduler.validation` finds in an object, in this server's words."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from allocator.features import Features
from scheduler.lab.apiserver import opaque
from scheduler.lab.apiserver.errors import Cause, bad_request
from scheduler.lab.apiserver.objects import Json
from scheduler.lab.apiserver.resources import Resource
from scheduler.validation import Severity, Violation, validate_object

_TYPE_RULE = "type"

_FORBIDDEN = frozenset({"admin-access"})

NamespaceLabels = Callable[[str], Mapping[str, str]]


def causes_of(violations: Iterable[Violation]) -> Iterator[Cause]:
    """Refusals among the violations.

    Raises:
        StatusError: 400, when a field has the wrong type: such an object is not even read.
    """
    for violation in violations:
        if violation.rule == _TYPE_RULE:
            raise bad_request(f"{violation.path}: {violation.message}")
        if violation.severity is Severity.ERROR:
            forbidden = violation.rule in _FORBIDDEN
            reason = "FieldValueForbidden" if forbidden else "FieldValueInvalid"
            yield Cause(reason, violation.path, violation.message)


def check_object(
    resource: Resource, obj: Json, features: Features, namespace_labels: NamespaceLabels
) -> Iterator[Cause]:
    """What is wrong with an object by itself, status aside: that has a path and rules of its own.

    Args:
        resource: of which kind it is.
        obj: in the stored shape.
        features: gates of the version that is played.
        namespace_labels: labels by name of namespace, for admin access.

    Raises:
        StatusError: 400, when a field has the wrong type.
    """
    namespace = obj["metadata"].get("namespace", "")
    labels = {namespace: namespace_labels(namespace)} if namespace else {}
    whole = {
        **{key: value for key, value in obj.items() if key != "status"},
        "kind": resource.kind,
        "apiVersion": resource.api_version("v1"),
    }
    judged = opaque.changed(resource.kind, whole, opaque.for_rules)
    yield from causes_of(validate_object(judged, features=features, namespaces=labels))
