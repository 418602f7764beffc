"""IP addresses and CIDR blocks.

Source: k8s.io/apiserver/pkg/cel/library/{ip,cidr}.go over Go's net/netip.
"""

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, ClassVar, Final

from allocator.cel.values.names import no_such_overload
from allocator.errors import CelRuntimeError

_Address = IPv4Address | IPv6Address
_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


class IP:
    """An IP address."""

    __slots__ = ("address",)
    CEL_NAME: ClassVar = "net.IP"

    def __init__(self, address: _Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return other.__class__ is IP and self.address == other.address

    def __hash__(self) -> int:
        return hash(("ip", self.address))

    def __str__(self) -> str:
        return str(self.address)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.address.max_prefixlen // 8


class CIDR:
    """An address with a prefix length; host bits are kept."""

    __slots__ = ("address", "bits")
    CEL_NAME: ClassVar = "net.CIDR"

    def __init__(self, address: _Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return other.__class__ is CIDR and self.address == other.address and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(("cidr", self.address, self.bits))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    @property
    def size(self) -> int:
        """Length of the prefix in bytes, rounded up."""
        return -(-self.bits // 8)

    def prefix(self, bits: int) -> int:
        """The first bits of the address."""
        return int(self.address) >> (self.address.max_prefixlen - bits)


def _parse_address(text: str) -> _Address:
    if len(text) > 64:
        raise CelRuntimeError(f'IP Address "{text[:64]}" parse error during conversion from string')
    try:
        address: _Address = IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        raise CelRuntimeError(
            f'IP Address "{text}" parse error during conversion from string'
        ) from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise CelRuntimeError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise CelRuntimeError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def parse_ip(text: str) -> IP:
    """Read an address.

    Raises:
        CelRuntimeError: it is none, has a zone or is an IPv4-mapped IPv6 address.
    """
    return IP(_parse_address(text))


def parse_cidr(text: str) -> CIDR:
    """Read a block.

    Raises:
        CelRuntimeError: it is none.
    """
    address_text, slash, bits = text.rpartition("/")
    problem = f'network address parse error during conversion from string: "{text[:64]}"'
    if not slash or _BITS.fullmatch(bits) is None:
        raise CelRuntimeError(problem)
    try:
        address = _parse_address(address_text)
    except CelRuntimeError:
        raise CelRuntimeError(problem) from None
    if int(bits) > address.max_prefixlen:
        raise CelRuntimeError(problem)
    return CIDR(address, int(bits))


def _text(function: str, value: Any) -> str:
    if value.__class__ is not str:
        raise no_such_overload(function, value)
    return value


def _ip(*args: Any) -> IP:
    return parse_ip(_text("ip", args[0]))


def _cidr_ip(value: Any) -> IP:
    if value.__class__ is not CIDR:
        raise no_such_overload("ip", value)
    return IP(value.address)


def _is_ip(value: Any) -> bool:
    try:
        parse_ip(_text("isIP", value))
    except CelRuntimeError:
        return _unless_mistyped(value)
    return True


def _is_cidr(value: Any) -> bool:
    try:
        parse_cidr(_text("isCIDR", value))
    except CelRuntimeError:
        return _unless_mistyped(value)
    return True


def _unless_mistyped(value: Any) -> bool:
    if value.__class__ is not str:
        raise no_such_overload("isIP", value)
    return False


def _is_canonical(value: Any) -> bool:
    return str(parse_ip(_text("ip.isCanonical", value))) == value  # type: ignore[no-any-return]


def _on_ip(name: str, read: Callable[[_Address], object]) -> Callable[[Any], object]:
    def method(value: Any) -> object:
        if value.__class__ is not IP:
            raise no_such_overload(name, value)
        return read(value.address)

    return method


def _global_unicast(address: _Address) -> bool:
    if isinstance(address, IPv4Address) and int(address) == 0xFFFFFFFF:
        return False
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _link_local_unicast(address)
    )


def _link_local_unicast(address: _Address) -> bool:
    return address.is_link_local


def _link_local_multicast(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return int(address) >> 8 == 0xE00000
    return int(address) >> 112 & 0xFF0F == 0xFF02


def _cidr(value: Any) -> CIDR:
    return parse_cidr(_text("cidr", value))


def _on_cidr(name: str, read: Callable[[CIDR], object]) -> Callable[[Any], object]:
    def method(value: Any) -> object:
        if value.__class__ is not CIDR:
            raise no_such_overload(name, value)
        return read(value)

    return method


def _masked(value: CIDR) -> CIDR:
    host = value.address.max_prefixlen - value.bits
    number = int(value.address) >> host << host
    return CIDR(
        IPv4Address(number) if value.address.version == 4 else IPv6Address(number), value.bits
    )


def _contains_ip(block: Any, other: Any) -> bool:
    if block.__class__ is not CIDR:
        raise no_such_overload("containsIP", block, other)
    if other.__class__ is str:
        address = _parse_address(other)
    elif other.__class__ is IP:
        address = other.address
    else:
        raise no_such_overload("containsIP", block, other)
    if address.version != block.address.version:
        return False
    return int(address) >> (address.max_prefixlen - block.bits) == block.prefix(block.bits)


def _contains_cidr(block: Any, other: Any) -> bool:
    if block.__class__ is not CIDR:
        raise no_such_overload("containsCIDR", block, other)
    if other.__class__ is str:
        other = parse_cidr(other)
    elif other.__class__ is not CIDR:
        raise no_such_overload("containsCIDR", block, other)
    if block.address.version != other.address.version or block.bits > other.bits:
        return False
    return block.prefix(block.bits) == other.prefix(block.bits)  # type: ignore[no-any-return]


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "ip": _ip,
    ".ip": _cidr_ip,
    "isIP": _is_ip,
    "ip.isCanonical": _is_canonical,
    "family": _on_ip("family", lambda address: address.version),
    "isUnspecified": _on_ip("isUnspecified", lambda address: address.is_unspecified),
    "isLoopback": _on_ip("isLoopback", lambda address: address.is_loopback),
    "isLinkLocalMulticast": _on_ip("isLinkLocalMulticast", _link_local_multicast),
    "isLinkLocalUnicast": _on_ip("isLinkLocalUnicast", _link_local_unicast),
    "isGlobalUnicast": _on_ip("isGlobalUnicast", _global_unicast),
    "cidr": _cidr,
    "isCIDR": _is_cidr,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": _on_cidr("prefixLength", lambda block: block.bits),
    "masked": _on_cidr("masked", _masked),
}
