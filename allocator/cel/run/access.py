"""Closures that read variables, fields and indexes.

The counted forms charge 1 for every key that upstream reports as looked up: always for `.f` and `[k]`, only if it is
there for `.?f` and `[?k]`.
"""

from typing import Any, Final

from allocator.cel.run.code import ATTRIBUTES, CAPACITY, DRIVER, METER, MULTIPLE, Env, Run
from allocator.cel.values import selection
from allocator.cel.values.maps import EMPTY_MAP, DomainMap
from allocator.cel.values.scalars import NONE, Optional
from allocator.errors import CelRuntimeError

DEVICE_SLOTS: Final = {
    "attributes": ATTRIBUTES,
    "capacity": CAPACITY,
    "driver": DRIVER,
    "allowMultipleAllocations": MULTIPLE,
}


class _Unset:
    """Marks a lazy variable that has not been read."""


class _Broken:
    """A lazy variable whose value could not be computed; every read fails again."""

    __slots__ = ("error",)

    def __init__(self, error: CelRuntimeError) -> None:
        self.error = error


UNSET: Final = _Unset()


def slot(at: int) -> Run:
    """Read a place of the environment."""
    return lambda env: env[at]


def lazy_slot(at: int, init: Run) -> Run:
    """Read a variable that is computed when first read."""

    def run(env: Env) -> Any:
        value = env[at]
        if value is UNSET:
            try:
                value = init(env)
            except CelRuntimeError as error:
                env[at] = _Broken(error)
                raise
            env[at] = value
        elif value.__class__ is _Broken:
            raise value.error
        return value

    return run


def charged(inner: Run, cost: int) -> Run:
    """Charge a fixed cost after evaluating, whether or not it failed."""

    def run(env: Env) -> Any:
        try:
            value = inner(env)
        except CelRuntimeError:
            env[METER].charge(cost)
            raise
        env[METER].charge(cost)
        return value

    return run


def domain_value(at: int, domain: str, name: str) -> Run:
    """`device.attributes[domain].name`."""

    def run(env: Env) -> Any:
        try:
            return env[at][domain][name]
        except KeyError:
            raise CelRuntimeError(f"no such key: {name}") from None

    return run


def domain_presence(at: int, domain: str, name: str) -> Run:
    """`has(device.attributes[domain].name)`."""
    return lambda env: name in env[at][domain]


def field(base: Run, key: Any, *, optional: bool) -> Run:
    """`base.key`, `base[key]`, or the optional forms, with a constant key."""
    if optional:
        return lambda env: selection.optional_index(base(env), key)
    if key.__class__ is not str:
        return lambda env: selection.index(base(env), key)

    def run(env: Env) -> Any:
        value = base(env)
        cls = value.__class__
        if cls is DomainMap:
            return value.get(key, EMPTY_MAP)
        if cls is dict:
            try:
                return value[key]
            except KeyError:
                raise CelRuntimeError(f"no such key: {key}") from None
        return selection.index(value, key)

    return run


def index(base: Run, key: Run, *, optional: bool) -> Run:
    """`base[key]` or `base[?key]`."""

    def run(env: Env) -> Any:
        value = base(env)
        if value.__class__ is Optional:
            return selection.optional_index(value, key(env)) if value.present else value
        if optional:
            return selection.optional_index(value, key(env))
        return selection.index(value, key(env))

    return run


def presence(base: Run, name: str) -> Run:
    """`has(base.name)`."""
    return lambda env: selection.has_field(base(env), name)


def counted_field(base: Run, key: Any, *, optional: bool) -> Run:
    """As `field`, counted."""
    return counted_index(base, lambda _env: key, optional=optional)


def counted_index(base: Run, key: Run, *, optional: bool) -> Run:
    """As `index`, counted."""

    def run(env: Env) -> Any:
        value = base(env)
        if value.__class__ is Optional or optional:
            return _counted_optional(env, value, key)
        try:
            found = selection.index(value, key(env))
        except CelRuntimeError:
            env[METER].charge(1)
            raise
        env[METER].charge(1)
        return found

    return run


def _counted_optional(env: Env, value: Any, key: Run) -> Optional:
    if value.__class__ is Optional:
        if not value.present:
            return value
        value = value.value
    found, present = selection.lookup(value, key(env))
    if not present:
        return NONE
    env[METER].charge(1)
    return Optional(found)


def counted_presence(base: Run, name: str, discount: int) -> Run:
    """As `presence`, counted."""

    def run(env: Env) -> bool:
        value = base(env)
        if value.__class__ is Optional:
            found = _counted_optional(env, value, lambda _env: name).present
            env[METER].cost -= discount
            return found
        env[METER].charge(1 - discount)
        return selection.lookup(value, name)[1]

    return run
