"""A device as expressions see it, converted once.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go (DeviceMatches).
"""

from typing import Any, Final

from allocator.cel.cost.bounds import MAX_ELEMENTS, MAX_NAMES, MAX_TEXT
from allocator.cel.run.code import Env
from allocator.cel.values.maps import DomainMap
from allocator.cel.values.names import native, type_name
from allocator.cel.values.scalars import QuantityValue
from allocator.cel.values.semver import Semver
from allocator.errors import CelRuntimeError
from allocator.model.devices import Device, DeviceAttribute


class DeviceValues:
    """The values of one device.

    Attributes:
        error: why no expression can be evaluated on it, e.g. an invalid version; None for most.
        env: the start of an evaluation's environment, see `allocator.cel.run.code`.
        oversized: whether it is larger than the API server admits, so that costs have to be counted.
    """

    __slots__ = ("env", "error", "oversized")

    def __init__(self, env: Env, error: str | None, *, oversized: bool = False) -> None:
        self.env = env
        self.error = error
        self.oversized = oversized

    @property
    def driver(self) -> str:
        """The driver."""
        return self.env[2]  # type: ignore[no-any-return]


def prepare_device(driver: str, device: Device) -> DeviceValues:
    """Convert a device's attributes and capacity.

    One attribute without value or with an invalid version makes every expression on the device fail.
    """
    attributes = DomainMap()
    error: str | None = None
    is_large = len(driver) > MAX_TEXT
    for name, attribute in (device.attributes or {}).items():
        domain, slash, id_ = name.partition("/")
        if not slash:
            domain, id_ = driver, name
        try:
            value = attribute_value(attribute)
        except CelRuntimeError as problem:
            error = error or f"attribute {name}: {problem.message}"
            continue
        is_large = is_large or len(name) > MAX_TEXT or _is_large(value)
        _put(attributes, domain, id_, value)
    capacity = DomainMap()
    for name, amount in (device.capacity or {}).items():
        domain, slash, id_ = name.partition("/")
        if not slash:
            domain, id_ = driver, name
        is_large = is_large or len(name) > MAX_TEXT
        _put(capacity, domain, id_, QuantityValue(amount.value))
    multiple = bool(device.allow_multiple_allocations)
    whole = {
        "driver": driver,
        "allowMultipleAllocations": multiple,
        "attributes": attributes,
        "capacity": capacity,
    }
    oversized = is_large or _has_many_names(attributes) or _has_many_names(capacity)
    return DeviceValues(
        [attributes, capacity, driver, multiple, whole, None], error, oversized=oversized
    )


def attribute_problem(device: Device) -> str | None:
    """The error that `prepare_device` finds, without converting anything; quick where nothing has to be parsed."""
    for name, attribute in (device.attributes or {}).items():
        has_scalar = (
            attribute.string is not None
            or attribute.int_ is not None
            or attribute.bool_ is not None
        )
        if has_scalar and attribute.versions is None:
            continue
        try:
            attribute_value(attribute)
        except CelRuntimeError as problem:
            return f"attribute {name}: {problem.message}"
    return None


def _has_many_names(domains: DomainMap) -> bool:
    return len(domains) > MAX_NAMES or any(
        len(inner) > MAX_NAMES  # type: ignore[arg-type]  # maps of names
        for inner in domains.values()
    )


def _is_large(value: Any) -> bool:
    cls = value.__class__
    if cls is str:
        return len(value) > MAX_TEXT
    if cls is list:
        return len(value) > MAX_ELEMENTS or any(_is_large(element) for element in value)
    return False


def _put(domains: DomainMap, domain: str, id_: str, value: object) -> None:
    inner: Any = domains.get(domain)
    if inner is None:
        inner = domains[domain] = {}
    inner[id_] = value


def attribute_value(attribute: DeviceAttribute) -> object:
    """The runtime value of an attribute; if several fields are set, lists win, in upstream's order.

    Raises:
        CelRuntimeError: it has no value, or an invalid version.
    """
    for values in (attribute.ints, attribute.bools, attribute.strings):
        if values is not None:
            return list(values)
    if attribute.versions is not None:
        return [_version(text) for text in attribute.versions]
    for value in (attribute.int_, attribute.bool_, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return _version(attribute.version)
    raise CelRuntimeError("unsupported attribute value")


def _version(text: str) -> Semver:
    try:
        return Semver.parse(text)
    except CelRuntimeError as error:
        raise CelRuntimeError(f"parse semantic version: {error.message}") from None


_LIST_FIELDS: Final = {bool: "bools", int: "ints", str: "strings", Semver: "versions"}
_SCALAR_FIELDS: Final = {bool: "bool_", int: "int_", str: "string", Semver: "version"}


def to_attribute(value: Any) -> DeviceAttribute:
    """The attribute that a derived attribute's result becomes.

    Raises:
        CelRuntimeError: the result is of another type, or a list of several.
    """
    plain = native(value)
    field = _SCALAR_FIELDS.get(plain.__class__)
    if field is not None:
        scalar: dict[str, Any] = {field: plain.text if plain.__class__ is Semver else plain}
        return DeviceAttribute(**scalar)
    if value.__class__ is not list:
        raise CelRuntimeError(f"unsupported CEL return type: {type_name(value)}")
    if not value:
        return DeviceAttribute(strings=())
    elements = [native(element) for element in value]
    cls = elements[0].__class__
    list_field = _LIST_FIELDS.get(cls)
    if list_field is None:
        raise CelRuntimeError(f"unsupported list element type: {type_name(value[0])}")
    for at, element in enumerate(elements):
        if element.__class__ is not cls:
            raise CelRuntimeError(
                f"expected list element at index {at} to be {type_name(elements[0])}"
            )
    fields: dict[str, Any] = {
        list_field: tuple(element.text if cls is Semver else element for element in elements)
    }
    return DeviceAttribute(**fields)
