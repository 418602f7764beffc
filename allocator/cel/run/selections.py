"""Compiles names, selections and indexes.

Source: cel-go interpreter/attributes.go.
"""

from abc import ABC, abstractmethod

from allocator.cel.check.names import type_named
from allocator.cel.run import access
from allocator.cel.run.code import (
    ATTRIBUTE,
    CONDITIONAL,
    DEVICE,
    FIRST_SLOT,
    PLAIN,
    Code,
    Run,
    constant,
)
from allocator.cel.run.paths import domain_path, is_device
from allocator.cel.syntax.tree import (
    UNDEFINED,
    Ident,
    Literal,
    Name,
    Node,
    Select,
    Variable,
)
from allocator.cel.values import selection
from allocator.errors import CelCompileError


class Selections(ABC):
    """State of one compilation.

    Attributes:
        counting: whether the closures charge the meter.
        slots: variable -> its place in the environment.
        lazy: variable -> what computes it when it is first read.
    """

    def __init__(self, *, counting: bool) -> None:
        self.counting = counting
        self.slots: dict[int, int] = {}
        self.lazy: dict[int, Node] = {}
        self.size = FIRST_SLOT
        self.done: dict[int, Code] = {}
        self.keep: list[Variable] = []

    @abstractmethod
    def compile(self, node: Node) -> Code:
        """Compile any node."""

    def slot(self, variable: Variable) -> int:
        """The place of a variable."""
        found = self.slots.get(id(variable))
        if found is None:
            found = self.size
            self.size += 1
            self.slots[id(variable)] = found
            self.keep.append(variable)
        return found

    def literal(self, node: Literal) -> Code:
        """A constant."""
        return constant(node.value)

    def ident(self, node: Ident) -> Code:
        """A type, the device or a variable."""
        binding = node.binding
        if isinstance(binding, Name):
            return _named(node.name, binding)
        if binding is None:
            return self.attribute(access.slot(DEVICE))
        if node.type is not None and node.type.kind == "type":
            return _named(node.name, type_named(node.name))
        init = self.lazy.get(id(binding))
        at = self.slot(binding)
        if init is None:
            return self.attribute(access.slot(at))
        return self.attribute(access.lazy_slot(at, self.compile(init).run))

    def attribute(self, inner: Run, kind: int = ATTRIBUTE) -> Code:
        """A selection; where it stands for itself, reading it costs 1."""
        if not self.counting or kind == CONDITIONAL:
            return Code(inner, inner=inner, kind=kind)
        return Code(access.charged(inner, 1), inner=inner, kind=kind)

    def select(self, node: Select) -> Code:
        """`operand.field` or `has(operand.field)`."""
        if node.binding is not None:
            return _named(node.field, node.binding)
        if not self.counting:
            shortcut = self.device_path(node)
            if shortcut is not None:
                return Code(shortcut, kind=ATTRIBUTE)
        operand = self.compile(node.operand)
        if node.test:
            return self.presence(operand, node.field)
        return self.extend(operand, constant(node.field), optional=False)

    def presence(self, operand: Code, field: str) -> Code:
        """`has()`: the variable itself is free of cost."""
        if not self.counting:
            return Code(access.presence(operand.inner, field))
        discount = 1 if operand.kind == CONDITIONAL else 0
        # Upstream treats the test as a selection, so that a selection in front of `?:` branches stays free.
        inner = access.counted_presence(operand.inner, field, discount)
        return Code(inner)

    def extend(self, operand: Code, key: Code, *, optional: bool) -> Code:
        """A further selection or index."""
        kind = CONDITIONAL if operand.kind == CONDITIONAL else ATTRIBUTE
        base = operand.inner if operand.kind != PLAIN else operand.run
        if key.is_constant:
            if key.value.__class__ not in selection.KEYS:
                raise CelCompileError(
                    f"program instantiation failed: invalid qualifier type: {selection.shown(key.value)}"
                )
            make = access.counted_field if self.counting else access.field
            return self.attribute(make(base, key.value, optional=optional), kind)
        run = key.run if key.kind == PLAIN else key.inner
        build = access.counted_index if self.counting else access.index
        return self.attribute(build(base, run, optional=optional), kind)

    def device_path(self, node: Select) -> Run | None:
        """A closure for `device.field` or `device.attributes["domain"].name`, or None for anything else."""
        operand = node.operand
        if is_device(operand):
            return None if node.test else access.slot(access.DEVICE_SLOTS[node.field])
        path = domain_path(operand)
        if path is None:
            return None
        make = access.domain_presence if node.test else access.domain_value
        return make(access.DEVICE_SLOTS[path[0]], path[1], node.field)


def _named(name: str, binding: Name) -> Code:
    if binding is UNDEFINED:
        raise CelCompileError(f"program instantiation failed: reference to undefined type: {name}")
    return constant(binding.value)
