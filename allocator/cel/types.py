"""Static types of CEL expressions, as immutable values that compare by structure."""

from typing import Final, NamedTuple


class Type(NamedTuple):
    """A static type.

    Attributes:
        kind: what sort of type it is: a name of a scalar, or `list`, `map`, `opaque`, `struct`, `type`, `param`.
        name: the name of an opaque type, object type or type parameter; empty for the rest.
        params: element types of lists, maps, optionals and types.
    """

    kind: str
    name: str = ""
    params: "tuple[Type, ...]" = ()

    @property
    def type_name(self) -> str:
        """The name that `type()` reports."""
        return self.name or _RUNTIME_NAMES.get(self.kind, self.kind)

    def __str__(self) -> str:
        """Write the type the way upstream's type checker does."""
        name = self.name or self.kind
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name

    @property
    def declared(self) -> str:
        """The type as upstream writes it outside the type checker, with the names of messages."""
        if not self.params:
            return self.type_name
        return f"{self.type_name}({', '.join(inner.declared for inner in self.params)})"


class Wrapper(Type):
    """The type of a message that wraps a scalar: equal to the scalar's type, and null may stand for it too."""

    __slots__ = ()

    def __str__(self) -> str:
        """Write the type the way upstream's type checker does."""
        return f"wrapper({self.kind})"

    @property
    def declared(self) -> str:
        """The type as upstream writes it outside the type checker."""
        return str(self)


_RUNTIME_NAMES: Final = {
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "any": "google.protobuf.Any",
}
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
DYN: Final = Type("dyn")
ANY: Final = Type("any")
ERROR: Final = Type("error", "!error!")
DURATION: Final = Type("duration")
TIMESTAMP: Final = Type("timestamp")
TYPE: Final = Type("type")
QUANTITY: Final = Type("struct", "kubernetes.Quantity")
SEMVER: Final = Type("struct", "kubernetes.Semver")
URL: Final = Type("struct", "kubernetes.URL")
FORMAT: Final = Type("struct", "kubernetes.NamedFormat")
DEVICE: Final = Type("struct", "kubernetes.DRADevice")
EMPTY: Final = Type("struct", "google.protobuf.Empty")
ENTRY: Final = Type("struct", "google.protobuf.Struct.FieldsEntry")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")
OPTIONAL_NAME: Final = "optional_type"
SCALARS: Final = frozenset(
    {"bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp"}
)


def list_of(element: Type) -> Type:
    """The type of a list."""
    return Type("list", "", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of a map."""
    return Type("map", "", (key, value))


def optional_of(value: Type) -> Type:
    """The type of an optional value."""
    return Type("opaque", OPTIONAL_NAME, (value,))


def type_of(value: Type) -> Type:
    """The type of a type value."""
    return Type("type", "", (value,))


def param(name: str) -> Type:
    """A type parameter."""
    return Type("param", name)


def is_dyn(type_: Type) -> bool:
    """Whether anything may stand for it."""
    return type_.kind in ("dyn", "any")


def is_dyn_or_error(type_: Type) -> bool:
    """As `is_dyn`, or the type of something that failed to check."""
    return type_.kind in ("dyn", "any", "error")


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """The value type of an optional, and whether it was one."""
    if type_.kind == "opaque" and type_.name == OPTIONAL_NAME:
        return type_.params[0], True
    return type_, False


STRING_LIST: Final = list_of(STRING)
