"""URLs as Go's net/url reads them.

Source: Go net/url (ParseRequestURI, Parse, Query), k8s.io/apiserver/pkg/cel/library/urls.go.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote_to_bytes

from allocator.cel.values.names import no_such_overload
from allocator.errors import CelRuntimeError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r":[0-9]*", re.ASCII)
_ESCAPES: Final = re.compile(r"%([0-9A-Fa-f]{2})")
# Characters a host may hold besides letters, digits and percent-encoded bytes beyond ASCII.
_HOST: Final = frozenset("-_.~!$&'()*+,;=:[]<>\"")
_USER: Final = frozenset("-._~!$&'()*+,;=:%@")
_PATH_PLAIN: Final = "$&+,/:;=@!'()*-_.~"
_VALID_ENCODED: Final = frozenset("!$&'()*+,;=:@[]%-_.~/")


class URL:
    """A parsed URL."""

    __slots__ = ("host", "path", "query", "raw_path", "scheme", "text")
    CEL_NAME: ClassVar = "kubernetes.URL"

    def __init__(self, text: str, scheme: str, host: str, raw_path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.raw_path = raw_path
        self.path = unquote_to_bytes(raw_path)
        self.query = query

    def __eq__(self, other: object) -> bool:
        return other.__class__ is URL and self.text == other.text

    def __hash__(self) -> int:
        return hash(("url", self.text))

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        host = self.host
        if host.startswith("["):
            return host[1:].partition("]")[0]
        name, colon, port = host.rpartition(":")
        return name if (colon and port.isdigit()) or (colon and not port) else host

    @property
    def port(self) -> str:
        """The port, or an empty string."""
        host = self.host
        if host.startswith("["):
            host = host.partition("]")[2]
        _, colon, port = host.rpartition(":")
        return port if colon else ""

    @property
    def escaped_path(self) -> str:
        """The path in encoded form: as written where that is valid."""
        raw = self.raw_path
        if all(
            character.isascii() and (character.isalnum() or character in _VALID_ENCODED)
            for character in raw
        ):
            return raw
        return "*" if self.path == b"*" else percent_encode(self.path, safe=_PATH_PLAIN)


def _problem(text: str, reason: str) -> CelRuntimeError:
    return CelRuntimeError(
        f'URL parse error during conversion from string: parse "{text[:200]}": {reason}'
    )


def parse_url(text: str) -> URL:
    """Read an absolute URI or an absolute path.

    Raises:
        CelRuntimeError: it is neither.
    """
    if any(ord(character) < 0x20 or character == "\x7f" for character in text):
        raise _problem(text, "net/url: invalid control character in URL")
    if not text:
        raise _problem(text, "empty url")
    if text == "*":
        return URL(text, "", "", "*", "")
    scheme, rest = _split_scheme(text)
    # Parsing a request takes no fragment, parsing for use does; both have to succeed.
    main, _, fragment = rest.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise _problem(text, "invalid URL escape")
    if not rest.startswith("/"):
        if scheme:
            return URL(text, scheme, "", "", main.partition("?")[2])
        raise _problem(text, "invalid URI for request")
    host = ""
    request_path, _, _ = rest.partition("?")
    path, _, query = main.partition("?")
    if scheme or not path.startswith("///"):
        _check_authority(text, request_path)
        host, path = _authority(text, path, scheme=scheme)
    _check_path(text, request_path)
    return URL(text, scheme, host, path, query)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    if match is not None:
        return match.group(1).lower(), text[match.end() :]
    if text.startswith(":"):
        raise _problem(text, "missing protocol scheme")
    return "", text


def _check_authority(text: str, request_path: str) -> None:
    """A fragment sign inside the authority is no host character for a request."""
    if request_path.startswith("//") and "#" in request_path[2:].partition("/")[0]:
        raise _problem(text, "invalid character '#' in host name")


def _authority(text: str, path: str, *, scheme: str) -> tuple[str, str]:
    """Split `//host/path`."""
    if not path.startswith("//") or (not scheme and path.startswith("///")):
        return "", path
    authority, slash, rest = path[2:].partition("/")
    return _host(text, authority), slash + rest


def _host(text: str, authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and not all(
        character.isascii() and (character.isalnum() or character in _USER) for character in user
    ):
        raise _problem(text, "net/url: invalid userinfo")
    if at and _BAD_ESCAPE.search(user):
        raise _problem(text, "invalid URL escape")
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise _problem(text, "missing ']' in host")
        port = host[end + 1 :]
        if "[" in host[1:] or "]" in host[1:end]:
            raise _problem(text, "invalid character in host name")
    else:
        _, colon, digits = host.partition(":")
        port = colon + digits
        if "[" in host or "]" in host:
            raise _problem(text, "invalid character in host name")
    if port and _PORT.fullmatch(port) is None:
        raise _problem(text, f'invalid port "{port}" after host')
    return _unescape_host(text, host)


def _unescape_host(text: str, host: str) -> str:
    for escape in _ESCAPES.findall(host):
        # Go decodes only bytes beyond ASCII in a host, except in the zone of an IPv6 address.
        if int(escape, 16) < 0x80 and not (escape == "25" and host.startswith("[")):
            raise _problem(text, f'invalid URL escape "%{escape}"')
    if _BAD_ESCAPE.search(host):
        raise _problem(text, "invalid URL escape")
    for character in host:
        plain = (
            not character.isascii() or character.isalnum() or character in _HOST or character == "%"
        )
        if not plain:
            raise _problem(text, f'invalid character "{character}" in host name')
    return unquote_to_bytes(host).decode("utf-8", "replace")


def _check_path(text: str, path: str) -> None:
    bad = _BAD_ESCAPE.search(path)
    if bad is not None:
        raise _problem(text, f'invalid URL escape "{path[bad.start() : bad.start() + 3]}"')


def is_request_uri(text: str) -> bool:
    """Whether Go's ParseRequestURI takes the text."""
    try:
        parse_url(text.replace("#", "%23") if not text.partition("#")[0] else text)
    except CelRuntimeError:
        return False
    return True


def _url(value: Any) -> URL:
    if value.__class__ is not str:
        raise no_such_overload("url", value)
    return parse_url(value)


def _is_url(value: Any) -> bool:
    if value.__class__ is not str:
        raise no_such_overload("isURL", value)
    return is_request_uri(value)


def _query(url: URL) -> dict[object, object]:
    values: dict[object, object] = {}
    for part in url.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        if _BAD_ESCAPE.search(key) or _BAD_ESCAPE.search(value):
            continue
        found = values.setdefault(_decoded(key), [])
        if isinstance(found, list):
            found.append(_decoded(value))
    return values


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


def _on_url(name: str, read: Callable[[URL], object]) -> Callable[[Any], object]:
    def method(value: Any) -> object:
        if value.__class__ is not URL:
            raise no_such_overload(name, value)
        return read(value)

    return method


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "url": _url,
    "isURL": _is_url,
    "getScheme": _on_url("getScheme", lambda url: url.scheme),
    "getHost": _on_url("getHost", lambda url: url.host),
    "getHostname": _on_url("getHostname", lambda url: url.hostname),
    "getPort": _on_url("getPort", lambda url: url.port),
    "getEscapedPath": _on_url("getEscapedPath", lambda url: url.escaped_path),
    "getQuery": _on_url("getQuery", _query),
}
