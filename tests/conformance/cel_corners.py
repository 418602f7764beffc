"""Corners of CEL's library: every conversion and parser of texts and values that are just right, or just wrong.

Each expression is true where upstream has a value and an error where it has none, so the record tells which is which.
"""

from collections.abc import Iterator
from itertools import product

DEVICE = {"driver": "dra.example.com", "attributes": {}, "capacity": {}}

_NUMBERS = ("", "0", "-0", "+5", "1_000", "0x10", "9223372036854775807", "9223372036854775808",
            "-9223372036854775808", "18446744073709551615", "18446744073709551616", "1.5", "1e3", "1e400",
            "-1e400", "NaN", "inf", "-Infinity", ".5", "5.", "true", "TRUE", "t", "F", " 1", "yes")  # fmt: skip
_TIMES = ("1h", "1.5h", "-1m", "1h2m3s4ms5us6ns", "5", "1x", ".5s", "1.s", "-", "0", "+1s", "9223372036s",
          "9223372037s", "1µs", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456789+05:30",
          "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
          "0000-01-01T00:00:00Z", "2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00-23:59", "2024-01-01",
          "2024-01-01t00:00:00z", "2024-01-01T24:00:00Z", "1500-03-01T00:00:00Z")  # fmt: skip
_URLS = ("http://h", "https://u:p@h:80/a/b?q=1&q=2#f", "//h/p", "/only/path", "*", "mailto:a@b", ":x",
         "http://[::1]:80/", "http://[::1%25en0]/", "http://[::1", "http://h:x", "http://h:", "http://a b/",
         "http://h/%zz", "http://h/%20", "a#b", "http://h/\\u0001", "1http://h", "http://u:p:q@h", "http://@h",
         "http://h?", "http://h/a;b?c;d=1", "http://h/?a=%31&b", "http://%31/", "ht!tp://h", "")  # fmt: skip
_ADDRESSES = ("1.2.3.4", "1.2.3", "01.2.3.4", "256.1.1.1", "::", "::1", "fe80::1", "fe80::1%en0", "::ffff:1.2.3.4",
              "2001:DB8::1", "2001:db8:0:0::1", "127.0.0.1", "224.0.0.1", "ff02::1", "169.254.0.1", "10.0.0.0/8",
              "10.0.0.1/8", "10.0.0.0/33", "::/0", "::1/128", "2001:db8::/032", "10.0.0.0/", "1.2.3.4/24/8")  # fmt: skip
_VERSIONS = ("1.2.3", "v1.2.3", "1.2", "1", "01.2.3", "1.2.3-alpha.1", "1.2.3-01", "1.2.3+b.1", "1.2.3-", "1.2.3+",
             "1.2.3.4", "99999999999999999999.0.0", "a.b.c", "1.2.3-αβ")  # fmt: skip
_QUANTITIES = ("1Gi", "1.5Gi", "1e3", "1E3", "1k", "100m", "1n", "0.1n", "-5", "+5", "1KI", "1 Gi", "Gi", ".", "1e",
               "1e+", "12345678901234567890", "0.5Ki")  # fmt: skip
_NAMES = ("ok", "Not-OK", "a.b", "-a", "a-", "a_b", "x" * 63, "x" * 64, "x" * 254, "1a", "example.com/name", "a/b/c",
          "550e8400-e29b-41d4-a716-446655440000", "aGk=", "a===", "http://h/p", "2024-01-01", "2024-02-30",
          "2024-01-01T00:00:00Z", "not a date")  # fmt: skip
_TEXTS = tuple(dict.fromkeys(_NUMBERS + _TIMES + _URLS + _ADDRESSES + _VERSIONS + _QUANTITIES))
_PARSERS = ("int", "uint", "double", "bool", "string", "bytes", "duration", "timestamp", "quantity", "isQuantity",
            "semver", "isSemver", "ip", "isIP", "cidr", "isCIDR", "url", "isURL", "ip.isCanonical")  # fmt: skip
_VALUES = ("1", "-1", "1u", "1.5", "-1.5", "1e30", "true", "null", "b'x'", "b'\\xff'", "[1]", "{'a': 1}", "int",
           "duration('1s')", "timestamp('2024-01-01T00:00:00Z')", "quantity('1')", "semver('1.0.0')", "ip('::1')",
           "cidr('::/0')", "url('http://h')", "optional.of(1)", "optional.none()", "device")  # fmt: skip
_FORMATS = ("dns1123Label", "dns1123Subdomain", "dns1035Label", "dns1123LabelPrefix", "dns1123SubdomainPrefix",
            "dns1035LabelPrefix", "qualifiedName", "labelValue", "uri", "uuid", "byte", "date", "datetime")  # fmt: skip
_URL_PARTS = ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")
_IP_PARTS = ("family", "isLoopback", "isUnspecified", "isGlobalUnicast", "isLinkLocalUnicast",
             "isLinkLocalMulticast")  # fmt: skip
_TIME_PARTS = ("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours",
               "getMinutes", "getSeconds", "getMilliseconds")  # fmt: skip
_ZONES = (
    "UTC",
    "America/New_York",
    "+05:30",
    "-23:59",
    "+24:00",
    "5:30",
    "Nowhere/Land",
    "",
    "+1:2",
)
_DIRECTIVES = (
    "%d",
    "%s",
    "%f",
    "%.2f",
    "%e",
    "%.3e",
    "%x",
    "%X",
    "%o",
    "%b",
    "%%",
    "%c",
    "%",
    "%.f",
    "%.d",
    "a%sb%s",
)
_OPERATORS = ("+", "-", "*", "/", "%", "<", ">=", "==", "in", "&&")
_METHODS = ("x.contains(y)", "x.startsWith(y)", "x.indexOf(y)", "x.lastIndexOf(y, 1)", "x.replace(y, 'z', 1)",
            "x.split(y, 2)", "[x, y].join('-')", "x.substring(0, 1)", "x.charAt(1)", "x.trim()", "x.matches(y)",
            "x.find(y)", "x.findAll(y, 1)", "strings.quote(x)", "x.lowerAscii()", "x.format([y])",
            "[x, y].sort()", "[x, y].distinct()", "[x, y].min()", "[x, y].sum()", "[x, y].isSorted()",
            "[x, y].indexOf(y)", "sets.contains([x], [y])", "sets.intersects([x], [y])", "[x, y].slice(0, 1)",
            "[[x], [y]].flatten(1)", "[x, y].reverse()", "[x, y].first()", "lists.range(x)", "size(x)", "x.size()",
            "x.includes(y)", "x.isLessThan(y)", "x.compareTo(y)", "x.add(y)", "x.sub(y)", "sign(x)", "x.asInteger()",
            "x.asApproximateFloat()", "x.isInteger()", "x.major()", "x.containsIP(y)", "x.containsCIDR(y)",
            "x.masked()", "x.prefixLength()", "x.getHours()", "x.getSeconds(y)", "x.value()", "x.orValue(y)",
            "x.hasValue()", "type(x)", "dyn(x)", "optional.ofNonZeroValue(x)", "-x", "!x", "x[y]", "x ? y : y")  # fmt: skip


def expressions() -> Iterator[str]:
    """All of them, each once, always in the same order."""
    yield from dict.fromkeys(_expressions())


def _expressions() -> Iterator[str]:
    for parser, text in product(_PARSERS, _TEXTS):
        # dyn: judged on the device, not by the checker of literals.
        yield f"dyn({parser}(string(dyn('{text}')))) == dyn({parser}(string(dyn('{text}'))))"
    for parser, value in product(_PARSERS, _VALUES):
        yield f"dyn({parser}(dyn({value}))) == dyn({parser}(dyn({value})))"
    for part, text in product(_URL_PARTS, _URLS):
        yield f"size(url('{text}').{part}()) >= 0"
    for part, text in product(_IP_PARTS, _ADDRESSES):
        yield f"ip('{text}').{part}() == ip('{text}').{part}()"
    for one, other in product(_ADDRESSES, _ADDRESSES):
        yield f"cidr('{one}').containsIP('{other}') || cidr('{one}').containsCIDR('{other}')"
    for part, zone in product(_TIME_PARTS, _ZONES):
        yield f"timestamp('2024-02-29T12:34:56.789Z').{part}('{zone}') >= 0"
    for name, text in product(_FORMATS, _NAMES):
        yield f"format.{name}().validate('{text}').hasValue()"
        yield f"format.named('{name}').hasValue() && format.named('{name}').value().validate('{text}').hasValue()"
    for directive, value in product(_DIRECTIVES, _VALUES):
        yield f"size('{directive}'.format([dyn({value})])) > 0"
    for operator, one, other in product(_OPERATORS, _VALUES, _VALUES):
        yield f"type(dyn({one}) {operator} dyn({other})) != null_type"
    for method, one, other in product(
        _METHODS, (*_VALUES, "'a'", "''"), ("1", "'a'", "dyn(null)", "[1]", "1.5")
    ):
        called = method.replace("y", other).replace("x", f"dyn({one})") if "x" in method else method
        yield f"type(dyn({called})) != null_type"
