"""Messages that stay messages: all others become values of the language when they are made.

Source: cel-go common/types/object.go.
"""

from typing import Any, ClassVar, Final

from allocator.errors import CelRuntimeError


class EmptyMessage:
    """A `google.protobuf.Empty`."""

    __slots__ = ()
    CEL_NAME: ClassVar = "google.protobuf.Empty"

    def __eq__(self, other: object) -> bool:
        return other.__class__ is EmptyMessage

    def __hash__(self) -> int:
        return hash(self.CEL_NAME)

    def __str__(self) -> str:
        return f"{self.CEL_NAME}{{}}"

    @property
    def is_zero(self) -> bool:
        """Whether no field is set."""
        return True

    def member(self, name: object) -> tuple[object, bool]:
        """The value of a field, and whether it is set.

        Raises:
            CelRuntimeError: there is no such field.
        """
        raise _no_field(name)


class FieldsEntry:
    """A `google.protobuf.Struct.FieldsEntry`.

    Attributes:
        key: empty if it was not set.
        value: a value as JSON has it; null if it was not set.
        has_value: whether it was.
    """

    __slots__ = ("has_value", "key", "value")
    CEL_NAME: ClassVar = "google.protobuf.Struct.FieldsEntry"

    def __init__(self, key: str, value: Any, *, has_value: bool) -> None:
        self.key = key
        self.value = value
        self.has_value = has_value

    def __str__(self) -> str:
        return f"{self.CEL_NAME}{{...}}"

    @property
    def is_zero(self) -> bool:
        """Whether no field is set."""
        return not self.key and not self.has_value

    def member(self, name: object) -> tuple[object, bool]:
        """The value of a field, and whether it is set.

        Raises:
            CelRuntimeError: there is no such field.
        """
        if name == "key":
            return self.key, bool(self.key)
        if name == "value":
            return self.value, self.has_value
        raise _no_field(name)


def _no_field(name: object) -> CelRuntimeError:
    return CelRuntimeError(
        f"no such field '{name}'" if name.__class__ is str else "no such overload"
    )


MESSAGES: Final = frozenset({EmptyMessage, FieldsEntry})
