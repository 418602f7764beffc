"""Rules that several kinds share: formats, node selectors, taints, tolerations, conditions, configuration, CEL."""

from collections.abc import Callable
from typing import Final

from allocator.cel import Verdict, check_new_expression
from allocator.features import LATEST_VERSION, Features
from scheduler.api.numbers import encode_tree
from scheduler.validation import formats
from scheduler.validation.cursor import Cursor

MAX_EXPRESSION_BYTES: Final = 10 * 1024
_MAX_SELECTORS: Final = 32
_MAX_CONFIGS: Final = 32
_MAX_PARAMETERS_BYTES: Final = 10 * 1024
_MAX_CONDITIONS: Final = 4
_EFFECTS: Final = ("None", "NoSchedule", "NoExecute")
_SKIP: Final = ("NodePrepareResources", "NodeUnprepareResources", "*")


def check_format(place: Cursor, rule: str, problem: Callable[[str], str | None]) -> None:
    """Report if the text does not have a format."""
    if found := problem(place.text):
        place.report(rule, found)


def check_metadata(obj: Cursor) -> None:
    """Check labels and `metadata.name`; an object with only `generateName` gets its name later."""
    metadata = obj["metadata"]
    check_labels(metadata)
    if not metadata["name"].text and metadata["generateName"].text:
        return
    check_format(metadata["name"], "object-name", formats.subdomain)


def check_labels(metadata: Cursor) -> None:
    """Check keys and values of labels, and keys of annotations."""
    for key, value in metadata["labels"].entries():
        if problem := formats.label_key(key) or formats.label_value(value.text):
            value.report("labels", problem)
    for key, value in metadata["annotations"].entries():
        if problem := formats.label_key(key.lower()):
            value.report("labels", problem)


def check_node_selector(selector: Cursor, *, one_term: bool) -> None:
    """Check that every term can be evaluated, and, where it must be, that there is one."""
    rule = "node-selector"
    terms = selector["nodeSelectorTerms"]
    if not terms.size:
        terms.report(rule, "must have at least one term")
    elif one_term and terms.size != 1:
        terms.report(rule, f"must have exactly one term, has {terms.size}")
    for term in terms.items():
        for requirement in term["matchExpressions"].items():
            check_format(requirement["key"], rule, formats.label_key)
            _check_operator(requirement)
        for requirement in term["matchFields"].items():
            if requirement["key"].text != "metadata.name":
                requirement["key"].report(rule, "only metadata.name can be selected as a field")
            if requirement["operator"].text not in ("In", "NotIn"):
                requirement["operator"].report(rule, "must be In or NotIn for a field")
            if requirement["values"].size != 1:
                requirement["values"].report(rule, "must be exactly one for a field")
            for value in requirement["values"].items():
                check_format(value, rule, formats.subdomain)


def _check_operator(requirement: Cursor) -> None:
    rule = "node-selector"
    values = requirement["values"]
    for value in values.items():
        check_format(value, rule, formats.label_value)
    match requirement["operator"].text:
        case "In" | "NotIn":
            if not values.size:
                values.report(rule, "is required with In and NotIn")
        case "Exists" | "DoesNotExist":
            if values.size:
                values.report(rule, "must be absent with Exists and DoesNotExist")
        case "Gt" | "Lt":
            if values.size != 1:
                values.report(rule, "must be exactly one with Gt and Lt")
            for value in values.items():
                if not formats.is_integer(value.text):
                    value.report(
                        "selector-number",
                        f"{value.text[:80]!r} is not an integer: no node can match",
                    )
        case _:
            requirement["operator"].report(
                rule, "must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt"
            )


def check_taint(taint: Cursor) -> None:
    """Check a device taint."""
    check_format(taint["key"], "taint", formats.label_key)
    check_format(taint["value"], "taint", formats.label_value)
    if not taint["effect"].text:
        taint["effect"].report("taint", "is required")
    elif taint["effect"].text not in _EFFECTS:
        taint["effect"].report("taint", f"must be one of {', '.join(_EFFECTS)}")


def check_toleration(toleration: Cursor) -> None:
    """Check a device toleration; an empty key with Equal is accepted, as upstream does."""
    rule = "toleration"
    if toleration["key"].text:
        check_format(toleration["key"], rule, formats.label_key)
    match toleration["operator"].text:
        case "Exists":
            if toleration["value"].text:
                toleration["value"].report(rule, "must be empty with operator Exists")
        case "Equal":
            check_format(toleration["value"], rule, formats.label_value)
        case _:
            toleration["operator"].report(rule, "must be Exists or Equal")
    if toleration["effect"].text and toleration["effect"].text not in _EFFECTS:
        toleration["effect"].report(rule, f"must be one of {', '.join(_EFFECTS)}")


def check_binding_conditions(place: Cursor) -> None:
    """Check the binding conditions of a device or an allocation result."""
    rule = "binding-conditions"
    wanted, failures = place["bindingConditions"], place["bindingFailureConditions"]
    for conditions in (wanted, failures):
        conditions.limit(rule, _MAX_CONDITIONS)
        conditions.unique(rule)
        for condition in conditions.items():
            check_format(condition, rule, formats.label_key)
    for condition in failures.items():
        if condition.value in (wanted.value or ()):
            condition.report(rule, "is also a binding condition")
    if failures.size and not wanted.size:
        wanted.report(rule, "is required with bindingFailureConditions")
    if wanted.size and not failures.size:
        failures.report(rule, "is required with bindingConditions")


def check_skip_node_operations(operations: Cursor) -> None:
    """Check which node operations a driver wants skipped."""
    rule = "skip-node-operations"
    operations.unique(rule)
    for operation in operations.items():
        if operation.text not in _SKIP:
            operation.report(rule, f"must be one of {', '.join(_SKIP)}")
    given = operations.value or ()
    if "NodePrepareResources" in given and not {"NodeUnprepareResources", "*"} & set(given):
        operations.report(rule, "NodePrepareResources needs NodeUnprepareResources")


def check_expression(
    expression: Cursor, rule: str, features: Features, *, derived: bool = False
) -> int:
    """Check a CEL expression as the API server of the newest release does when it is new.

    That is its length, its types in the environment that the gates leave, and the cost it may have at most.

    Returns:
        The most that one evaluation may cost; 0 if it does not compile.
    """
    if not expression.text:
        expression.report(rule, "is required")
        return 0
    answer = check_new_expression(expression.text, features, LATEST_VERSION, derived=derived)
    match answer.verdict:
        case Verdict.OK:
            pass
        case Verdict.TOO_LONG:
            expression.report(rule, f"must have at most {MAX_EXPRESSION_BYTES} bytes")
        case Verdict.TOO_EXPENSIVE:
            expression.report(rule, answer.message)
        case Verdict.COMPILE_ERROR:
            expression.report(rule, f"does not compile: {answer.message}")
    return answer.cost


def check_selectors(selectors: Cursor, features: Features) -> None:
    """Check a list of selectors."""
    selectors.limit("selectors", _MAX_SELECTORS)
    for selector in selectors.items():
        if not selector["cel"].present:
            selector["cel"].report("selectors", "is required")
        else:
            check_expression(selector["cel"]["expression"], "selectors", features)


def check_configs(configs: Cursor, *, most: int = _MAX_CONFIGS, rule: str = "config") -> None:
    """Check a list of opaque configurations."""
    configs.limit(rule, most)
    for config in configs.items():
        opaque = config["opaque"]
        if not opaque.present:
            opaque.report(rule, "is required")
            continue
        check_format(opaque["driver"], rule, formats.driver_name)
        parameters = opaque["parameters"]
        if not parameters.present:
            parameters.report(rule, "is required")
        elif not isinstance(parameters.value, dict):
            parameters.report(rule, "must be a JSON object")
        elif len(encode_tree(parameters.value)) > _MAX_PARAMETERS_BYTES:
            parameters.report(rule, f"must have at most {_MAX_PARAMETERS_BYTES} bytes")
