"""DeviceClasses and DeviceTaintRules. Source: docs/design/api-versions.md#classes."""

from allocator.features import Features
from scheduler.validation import formats
from scheduler.validation.common import check_configs, check_format, check_selectors, check_taint
from scheduler.validation.cursor import Cursor


def check_class(obj: Cursor, features: Features) -> None:
    """Check a class."""
    spec = obj["spec"]
    check_selectors(spec["selectors"], features)
    check_configs(spec["config"])
    if spec["extendedResourceName"].present:
        check_format(
            spec["extendedResourceName"], "extended-resource-name", formats.extended_resource_name
        )


def check_taint_rule(obj: Cursor) -> None:
    """Check a taint rule; an empty name is not the same as none."""
    selector = obj["spec"]["deviceSelector"]
    for field, problem in (
        ("driver", formats.driver_name),
        ("pool", formats.pool_name),
        ("device", formats.label),
    ):
        if selector[field].present:
            check_format(selector[field], "taint-rule-selector", problem)
    check_taint(obj["spec"]["taint"])
