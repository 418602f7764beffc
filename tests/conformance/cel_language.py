"""The language itself, systematically: names, message literals, macros, optional syntax, literals, words, calls, long texts.

What `cel_corners` is for the library. Each sort is a product of forms and parts; where all of it would be too much, every
n-th. Most expressions do not compile: that is what is asked.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, product

from tests.conformance.cel_environment import recorded

_G = "google.protobuf."
_WRAPPERS = ("BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue",
             "UInt32Value", "UInt64Value")  # fmt: skip
_FIELDS = {
    "Any": ("type_url", "value"), "Duration": ("seconds", "nanos"), "Empty": (), "Timestamp": ("seconds", "nanos"),
    "Struct": ("fields",), "Struct.FieldsEntry": ("key", "value"), "ListValue": ("values",),
    "Value": ("null_value", "number_value", "string_value", "bool_value", "struct_value", "list_value"),
    **dict.fromkeys(_WRAPPERS, ("value",)),
}  # fmt: skip
_NAMES = (
    "bool", "bytes", "double", "int", "string", "uint", "list", "map", "null_type", "type", "dyn", "any", "duration",
    "timestamp", "date", "quantity", "optional_type", "optional", "error", "net.IP", "net.CIDR", "kubernetes.Quantity",
    "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat", "kubernetes.DRADevice", "kubernetes",
    "kubernetes.authorization.Authorizer", "google", "google.protobuf", "device", "DRADevice", "__result__", "cel", "math",
    "sets", "semver", "ip", *(_G + name for name in _FIELDS), _G + "NullValue", _G + "NullValue.NULL_VALUE",
    _G + "NULL_VALUE", _G + "FieldMask",
)  # fmt: skip
_NAME_FORMS = (
    "{n} == {n}", "string(dyn({n})) == '{n}'", "type({n}) == type", "{n}{{}} == {n}{{}}", "type(dyn({n}{{}})) != int",
    ".{n} == .{n}", "type(.{n}{{,}}) != int", "type({n}.x) != int", "dyn({n}{{x: 1}}) == 1", "has({n}.x)", "{n}(dyn(1)) == 1",
    "[{n}].exists(t, t == {n})", "[1].exists({n}, {n} == 1)", "cel.bind(t, {n}, t == {n})", "cel.bind({n}, int, {n} == int)",
    "[{n}{{}}, 1].size() == 2", "{n}{{}} == null", "optional.ofNonZeroValue({n}{{}}).hasValue()", "'%s'.format([{n}{{}}]) == ''",
    "{n}{{}} in [{n}{{}}]", "{n}{{}}.x == 1", "{n}", "{n}{{}}",
)  # fmt: skip
_VALUES = (
    "1", "-1", "2147483648", "-2147483649", "9007199254740992", "1u", "300u", "4294967296u", "9007199254740992u", "1.5",
    "1e300", "0.0/0.0", "true", "null", "'a'", "''", "b'x'", "b'\\xff'", "[1]", "[1u, 2u]", "[256u]", "{'a': 1}", "{}", "{1: 2}",
    "{'values': ['x']}", "int", "duration('1.5s')", "timestamp('2024-01-01T00:00:00.5+05:30')", "quantity('1Gi')",
    "semver('1.0.0')", "ip('::1')", "cidr('::/0')", "url('http://h')", "optional.of(1)", "optional.none()", "device", "[int]",
    "[optional.of(1)]", "[optional.none()]", "1/0", f"{_G}Int32Value{{value: 3}}", f"{_G}Empty{{}}",
    f"{_G}Struct.FieldsEntry{{key: 'k', value: 1}}", f"{_G}Value{{}}", f"{_G}NullValue.NULL_VALUE",
)  # fmt: skip
_FIELD_FORMS = (
    "dyn({m}{{{f}: {v}}}) == dyn({v})", "type(dyn({m}{{{f}: dyn({v})}})) == type(dyn({v}))",
    "dyn({m}{{{f}: dyn({v})}}) == {m}{{{f}: dyn({v})}}", "{m}{{?{f}: optional.of(dyn({v}))}} != null",
    "has(dyn({m}{{{f}: dyn({v})}}).{f})", "dyn({m}{{{f}: dyn({v})}})['{f}'] == dyn({v})",
    f"{_G}Value{{{{list_value: [dyn({{m}}{{{{{{f}}: dyn({{v}})}}}})]}}}} == [dyn({{v}})]",
)  # fmt: skip
_MESSAGES = (
    "BoolValue{value: true}", "BytesValue{value: b'a'}", "DoubleValue{value: 1.5}", "FloatValue{value: 0.1}",
    "Int32Value{value: 2}", "StringValue{value: 'a'}", "UInt64Value{value: 2u}", "Duration{seconds: 2}", "Timestamp{seconds: 2}",
    "Struct{fields: {'a': 1}}", "ListValue{values: [1, 'a']}", "Value{number_value: 2.0}", "Value{}", "Value{list_value: [1]}",
    "Empty{}", "Any{type_url: 'a/google.protobuf.BoolValue', value: b'\\x08\\x01'}", "Struct.FieldsEntry{key: 'a', value: 2}",
    "Int64Value{?value: optional.none()}", "Int64Value{value: 1, value: 2}", "Int64Value{`value`: 2,}",
)  # fmt: skip
_USES = (
    "{m}", "{m} == {o}", "{m} != {o}", "[{m}, {o}].size() == 2", "[{o}, {m}].size() == 2", "{{'a': {m}, 'b': {o}}}.size() == 2",
    "(true ? {m} : {o}) == {o}", "{m} in [{o}]", "{m} + {o} == {o}", "{m} < {o}", "{m} && true", "!{m}", "-{m} == {o}",
    "[{m}].map(x, x == {o}) == [true]", "optional.of({m}).orValue({o}) == {o}", "type({m}) == type({o})", "{m}.a == {o}",
    "{m}['a'] == {o}", "'a' in {m}", "{m}.exists(x, x == {o})", "size({m}) == 1", "string({m}) == {o}", "int({m}) == {o}",
    "timestamp({m}) == {o}", "[{m}].sort() == [{o}]", "[{m}].distinct() == [{o}]", "'%s'.format([{m}]) == {o}",
    "{{{m}: 1}}.size() == 1", "[1, 2, 3][{m}] == {o}", "{m}.?a.hasValue()", "has({m}.a)", "{m}.key == {o}", "{m} == dyn({o})",
    "lists.range({m}) == [{o}]", "google.protobuf.Struct{{fields: {{'a': {m}, 'b': {o}}}}}.a == {o}",
)  # fmt: skip
_OTHERS = ("2", "'a'", "null", "dyn(2)", "1.5", f"{_G}Int32Value{{value: 2}}")
_SECONDS = ("0", "-1", "9223372036", "9223372037", "-9223372037", "9223372036854775807", "253402300800", "-62135596801",
            "100000000000", "-100000000000", "1e3")  # fmt: skip
_NANOS = ("0", "-1", "1000000000", "2147483648")
_TIMES = (
    "{d} == duration('9223372036s')", "{d} < duration('1s')", "string({t}).size() == 20", "int({t}) == {s}", "{t} < timestamp(0)",
    "{t} - timestamp(0) == duration('1s')", "{t} + duration('0s') == {t}", "timestamp(string({t})) == {t}", "{t}.getFullYear() > 1970",
    "{t}.getDayOfWeek('America/New_York') > 3", "{t}.getDayOfYear('+05:30') > 123", "{t}.getMinutes('America/New_York') > 1",
)  # fmt: skip
_WIRES = (
    b"", b"\x08\x01", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\xff\xff\xff\xff\x0f", b"\x08",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", b"\x0a\x01a", b"\x0a\x02\xff\xfe", b"\x0a\x05a", b"\x09\0\0\0\0\0\0\xf8?",
    b"\x0d\0\0\xc0?", b"\x0d\0\0", b"\x10\x05", b"\x08\x05\x10\x07", b"\x0b\x0c", b"\x0b\x14", b"\x0b", b"\x0c", b"\x0e\x01",
    b"\x00\x01", b"\x0a\x09\x0a\x01k\x12\x04\x1a\x02hi", b"\x1a\x02hi", b"\x20\x01", b"\x11\0\0\0\0\0\0\xf8?",
    b"\x2a\x09\x0a\x07\x0a\x01k\x12\x02\x20\x01", b"\x32\x06\x0a\x04\x1a\x02hi\x32\x06\x0a\x04\x1a\x02ho",
    b"\x1a\x02\xff\xfe\x20\x01", b"\xf8\xff\xff\xff\x1f\x01", b"\x0a\x1a/google.protobuf.Int32Value\x12\x02\x08\x07",
)  # fmt: skip
_UNPACKED = (
    "true",
    "1",
    "-1",
    "1u",
    "'a'",
    "b'a'",
    "1.5",
    "null",
    "['hi', 'ho']",
    "{'k': true}",
    "'hi'",
    "duration('5.000000007s')",
)
_URLS = ("google.protobuf.Int32Value", "/google.protobuf.Int32Value", "a/b/google.protobuf.Int32Value", "x/google.protobuf.Int32Value/",
         "", "x", "x/google.protobuf.Struct.FieldsEntry", "x/google.rpc.Status")  # fmt: skip

_MACROS = ("has", "all", "exists", "exists_one", "existsOne", "map", "filter", "transformList", "transformMap",
           "transformMapEntry", "bind", "sortBy", "optMap", "optFlatMap", "reduce", "min", "find", "flatMap", "block")  # fmt: skip
_RECEIVERS = ("", "[1, 2].", "{'a': 1}.", "dyn([1]).", "optional.of(1).", "cel.", "x.", "'ab'.", "1.", "device.", ".cel.", "[].", "{}.",
              f"{_G}ListValue{{values: [1]}}.")  # fmt: skip
_ARGUMENTS = (
    "", "x", "x, x", "x, true", "x, y", "x, y, true", "x, y, x", "x, 1, x", "x, y, true, x", "x, y, {x: y}", "x, x, true", "1, true",
    "x.y, true", "'x', true", ".x, true", ".x, y, true", "_, true", "x, x.y", "@result, true", "__result__, true", "x, __result__, true",
    "x, cel.bind(x, 1, x)", "has(x.y)", "x.y", "x['a']", "dyn({'a': 1}).a", "dyn({'a': 1}).?a", "has(dyn({'a': 1}).a)", "device.driver",
    "device", "x, x + x", "x, y, y > 0, x + y", "x, x > 0, x", "x, optional.of(x)", "in, true", "if, true", "device, device == 1",
    "int, int == 1", "x, y, y > 0, {x: y}",
)  # fmt: skip

_NUMBERS = (
    "0", "00", "007", "0x0", "0xG", "0X1F", "0x", "0xFFFFFFFFFFFFFFFF", "0x7FFFFFFFFFFFFFFF", "-0x8000000000000000",
    "-0x8000000000000001", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "- 9223372036854775808", "--9223372036854775808", "-(9223372036854775808)", "18446744073709551615u", "18446744073709551616u",
    "18446744073709551615U", "-1u", "00u", "0xFFFFFFFFFFFFFFFFu", "0x10000000000000000u", "1uu", "1_000", "1i", "0b1", "1" + "0" * 30,
    "0" * 200 + "1", "0" * 200 + "1u", "0x" + "0" * 200 + "1", "1.0", "1.", "1.e3", ".5", "00.5", "1E3", "1e+3", "1e", "1.5e3.2", "1e400",
    "-1e400", "1e-400", "1.7976931348623159e308", "4.9e-324", "0x1p3", "1.0f", "1.0u", "Infinity", "1e1000000000", "1" * 400 + ".0", "-0",
    "-0.0", "-.5", "- .5", "---1", "- -1", "+1", "1..2", "1.2.3", "1 .5", "1.x", "1.size()", "1u.x", "1[0]",
)  # fmt: skip
_NUMBER_FORMS = ("{n} == {n}", "type({n}) == int", "type({n}) == uint", "type({n}) == double", "0 - {n} < 0", "1-{n} == 1", "[{n}][0] == {n}",
                 "{{{n}: 1}}.size() == 1", "!{n}", "-{n} == 1", "x.{n}")  # fmt: skip
_BODIES = (
    "a", "\\a", "\\v", "\\\\", "\\'", '\\"', "\\`", "\\?", "\\x41", "\\X41", "\\x4", "\\x4G", "\\xff", "\\u00e9", "\\u00e", "\\ud800",
    "\\U0001F600", "\\U00110000", "\\U0000d800", "\\UFFFFFFFF", "\\101", "\\377", "\\400", "\\000", "\\0", "\\08", "\\8", "\\c", "\\ ",
    "\\N", "\\\n", "\n", "\r", "\r\n", "\t", "\0", "é", "😀", "\x7f", "\x85", "\u2028", "$", "{", "a\\", "\\\\\\", "a'b", 'a"b', "a''b",
    'a""b', "'", '"', "\\150\\151", "\\u{41}", "\\d+", "\ufeff", "\ue000", "a`b", "a//b", "\\/",
)  # fmt: skip
_PREFIXES = ("", "r", "R", "b", "B", "br", "bR", "Rb", "rb", "u", "x")
_QUOTES = ("'", '"', "'''", '"""', "`", "''")
_WORDS = ("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return",
          "var", "void", "while", "in", "true", "null", "size", "has", "dyn", "_", "a1", "é", "$a", "@a")  # fmt: skip
_WORD_FORMS = (
    "{w} == 1", "{w}(1) == 1", "[1].map({w}, {w}) == [1]", "dyn({{'{w}': 1}}).{w} == 1", "dyn({{'{w}': 1}}).`{w}` == 1",
    "has(dyn({{'{w}': 1}}).{w})", "dyn({{'{w}': 1}}).?{w}.orValue(2) == 1", "device.{w} == 1", "dyn(1).{w}(1) == 1",
    "cel.bind({w}, 1, {w} == 1)", "{{{w}: 1}}.size() == 1", "{w}{{}} == 1", f"{_G}Int32Value{{{{{{w}}: 1}}}} == 1",
    f"{_G}Int32Value{{{{`{{w}}`: 1}}}} == 1", "a.{w}.b == 1", ".{w} == 1", "`{w}` == 1", "1 {w} [1]", "a.{w}{{}} == 1",
)  # fmt: skip
_QUOTED_NAMES = (
    "`a-b`",
    "`a.b`",
    "`a/b`",
    "`a b`",
    "`a$b`",
    "``",
    "`a",
    "`1a`",
    "`é`",
    "`-`",
    "`a`.`b`",
)
_QUOTED_FORMS = ("dyn({{'a-b': 1}}).{n} == 1", "dyn({{'a': 1}}).?{n} == optional.none()", "has(dyn({{'a': 1}}).{n})", "{n} == 1", "{n}()",
                 f"{_G}Int32Value{{{{{{n}}: 1}}}} == 1", "dyn(1).{n}()", "device.{n}")  # fmt: skip
_MARKS = (
    "?.",
    "?",
    "[?",
    "{?",
    ".?",
    "..",
    "[?]",
    "?[",
    ".?.",
    "[??",
    ".??",
    ".?[",
    ".?1",
    ".?'a'",
    ".?`a`",
    ".?in",
    ".?if",
)
_MARK_FORMS = (
    "dyn({{'a': 1}}){o}a == 1", "dyn({{'a': 1}}){o}'a'] == 1", "dyn([1]){o}0] == 1", "{o}1] == [1]", "{o}optional.of(1)] == [1]",
    "{o}'a': optional.of(1)}} == {{'a': 1}}", "[1, {o}1] == [1]", f"{_G}Int32Value{{o}}value: optional.of(1)}}}} == 1",
    "has(dyn({{'a': 1}}){o}a)", "size({o}[1])", "device{o}driver == 'a'", "true {o} true : false",
)  # fmt: skip
_OPTIONALS = (
    "[?optional.of(1)] == [1]", "[?optional.none()] == []", "[?1] == [1]", "[?optional.of(1), 2, ?optional.none()] == [1, 2]",
    "[?optional.of(1), 'a'] == [1]", "{?'a': optional.none()} == {}", "{?'a': 1} == {}", "{'a': 1, ?'a': optional.none()} == {}",
    "{1: 1, ?1u: optional.none()}.size() == 1", "{1.0: 1}.size() == 1", "{null: 1}.size() == 1", "{[1]: 1}.size() == 1",
    "dyn({'a': {'b': 1}}).?a.b == optional.of(1)", "dyn({'a': {'b': 1}}).?a[?'b'] == optional.of(1)", "dyn(1).?a == optional.none()",
    "dyn('a')[?0] == optional.none()", "dyn([1])[?'a'] == optional.none()", "dyn([1])[?-1] == optional.none()", "1.?a == 1",
    "optional.of([1])[1] == optional.none()", "optional.none().a == optional.none()", "has(dyn({'a': 1}).?a.b)",
    "optional.of(1).or(1)", "optional.of(1).orValue(1/0) == 1", "optional.of(1).optFlatMap(x, x) == 1", "dyn(1).optMap(x, x) == 1",
    "optional.ofNonZeroValue(optional.none()) == optional.none()", "optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()",
    "optional.ofNonZeroValue(timestamp(0)).hasValue()", "optional.ofNonZeroValue(int).hasValue()", "dyn(optional.of(true))",
    "dyn(optional.none())", "dyn(optional.of(1))", "dyn('true')", "dyn(null)", "dyn(1)", "size([1],) == 1", "[,] == []", "{,} == {}",
    "[1,,] == [1]", "[,1] == [1]", "()", "(1,)", "((true))", ".optional.of(1).hasValue()", ".cel.bind(x, 1, true)",
    ".lists.range(1) == [0]", ". lists . range(1) == [0]", ".size([1]) == 1", ".has(device.driver)", "has(.device.driver)",
    ".device.driver == 'x'", "..device", "device // c\n.driver == 'x'", "true // c", "//", "", "true\x00", "true;", "true\u00a0",
    "\ufefftrue", "true\x0b", "true\x0c", "true&true", "true and true", "true ? true ? true : false : true", "1 = 1", "1 <> 2",
    "!!true", "!-1", "-!true", "1--1 == 2", "1 < 2 < 3", "1 in [1] in [true]", "!true in [false]", "7 % 4 % 2 == 1", "'abc'[0] == 'a'",
    "type(device) == map", "dyn(device).size() == 4", "device.all(k, true)", "'driver' in dyn(device)", "device == device",
    f"{_G}Empty {{}} == {_G}Empty{{}}", f"google . protobuf . Empty{{}} == {_G}Empty{{}}", f"{_G}Int32Value{{value 1}} == 1",
    f"{_G}Int32Value{{value: 1,,}} == 1", f"{_G}Int32Value{{'value': 1}} == 1", f"{_G}Int32Value{{?value: optional.of(1)}} == 1",
    f"{_G}Int32Value{{?value: 1}} == 1", f"{_G}Int32Value{{value: 1}}.value == 1", f"dyn(1).{_G}Empty{{}}", f"({_G}Empty){{}}",
    f"[{_G}ListValue{{values: [1]}}, [2]].size() == 2", f"{_G}BoolValue{{value: true}} ? 1 == 1 : false",
)  # fmt: skip
# The type of an element of unknown type is guessed from the first overload that takes it, and may be wrong.
_GUESSED = (
    "dyn([1]).reverse()[0]",
    "dyn(['a']).reverse()[0]",
    "dyn([1]).first().value()",
    "dyn(1)",
    "dyn(2u)",
    "1",
    "1.5",
    "'a'",
)
_GUESSED_USES = (
    "type(dyn(uint({e}))) != null_type", "type(dyn(string({e}))) != null_type", "type(dyn(timestamp({e}))) != null_type",
    "string(-({e})) == '1'", "({e}).getHours() == 1", "'abc'.charAt({e}) == 'b'", "({e}).indexOf('7') == 0",
    "uint([{e}].max()) == 1u", "uint(true ? {e} : {e}) == 1u", "cel.bind(x, {e}, int(x) == 1)", "int(({e}) * ({e})) == 1",
    "[{e}].sort() == [1]", "quantity('1').add({e}) == quantity('2')",
)  # fmt: skip
_CALL_VALUES = ("dyn('a')", "dyn(1)", "dyn([1])", "'a'")

_ZEROS = "0" * 4500
_LONG_TEXTS = (
    _ZEROS + "1", "-" + _ZEROS + "1", _ZEROS + "9223372036854775808", "1." + _ZEROS, "0." + _ZEROS + "1", "1e" + _ZEROS + "1",
    "." + _ZEROS + "1", "0x" + _ZEROS + "1p1", _ZEROS + "1h" + _ZEROS + "1m", "1." + "9" * 4500 + "s", "1s" * 2000,
    "2024-01-01T00:00:00." + "1" * 4500 + "Z", _ZEROS + "1Gi", "1.0.0-" + "a" * 4500, "1.0.0+" + "a." * 2000 + "a", "1" * 4500 + ".0.0",
    "http://" + "h" * 4500, "http://h/?" + "a=b&" * 1500 + "c", "::" + "0" * 4500, "1.2.3.4/" + _ZEROS + "8", "a" * 4500, "é" * 2500,
)  # fmt: skip
_LONG_PARSERS = (
    "int",
    "uint",
    "double",
    "duration",
    "timestamp",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "isIP",
    "isCIDR",
    "isURL",
)
_PATTERNS = (
    "a", "[a-z]", "(a)", "a?", "a*", "\\\\d", "é", "[é-ü]", ".*", "(a|b)", "x{2}", "\\\\pL", "\\\\PL", "[^a]", ".", "\\\\w", "^", "(?:ab|c)",
    "(?i:k)", "\\\\p{Greek}", "[[:alpha:]]", "(.?)", "\\\\b",
)  # fmt: skip
_LARGE = ("\\\\pL", "\\\\PL")
_PATTERN_LENGTHS = (1_000, 3_000, 6_000, 10_000)
_PATTERN_TEXTS = ("a" * 20, "a" * 64, "aé日" * 10, "ab" * 500)
_REPEATS = ("a{1000}", "a{1001}", "(a{10}){100}", "(a{10}){101}", "(\\\\pL{100}){10}", "[\\\\pL\\\\pN]{1000}", ".{1000}", "(?i)[a-zé]{1000}",
            "a{,5}", "a{5,2}", "a{0}", "(a?){1000}", "x{1000}y{1000}z{1000}", "\\\\pL{1000}\\\\pL{1000}")  # fmt: skip
_NESTED = ("(", "(?:", "(a", "(a|b", "(?:a*", "(?i:a")
_DEPTHS = (332, 333, 334, 499, 500, 501, 999, 1000, 1001)


def expressions() -> Iterator[str]:
    """All of them, each once, always in the same order."""
    yield from dict.fromkeys(_expressions())


def _some(expressions: Iterable[str], step: int) -> Iterator[str]:
    return islice(expressions, 0, None, step)


def _expressions() -> Iterator[str]:
    yield from (form.format(n=name) for name, form in product(_NAMES, _NAME_FORMS))
    yield from _some(_messages(), 3)
    yield from _some(_unpacked(), 2)
    yield from _some((f"type(dyn({receiver}{macro}({arguments}))) != null_type"
                      for macro, receiver, arguments in product(_MACROS, _RECEIVERS, _ARGUMENTS)), 4)  # fmt: skip
    yield from (form.format(n=number) for number, form in product(_NUMBERS, _NUMBER_FORMS))
    yield from _texts()
    yield from (form.format(w=word) for word, form in product(_WORDS, _WORD_FORMS))
    yield from (form.format(n=name) for name, form in product(_QUOTED_NAMES, _QUOTED_FORMS))
    yield from (form.format(o=mark) for mark, form in product(_MARKS, _MARK_FORMS))
    yield from _OPTIONALS
    yield from _some(_calls(), 2)
    yield from _some((use.format(e=f"{one} {operator} {other}")
                      for one, operator, other, use in product(_GUESSED, "+-*/%", _GUESSED, _GUESSED_USES)), 3)  # fmt: skip
    yield from _long()


def _messages() -> Iterator[str]:
    for name, fields in _FIELDS.items():
        for field, value, form in product((*fields, "nope")[:2], _VALUES, _FIELD_FORMS):
            yield form.format(m=_G + name, f=field, v=value)
    for message, use, other in product(_MESSAGES, _USES, _OTHERS):
        yield use.format(m=_G + message, o=other)
    for seconds, nanos, form in product(_SECONDS, _NANOS, _TIMES):
        inside = f"{{seconds: {seconds}, nanos: {nanos}}}"
        yield form.format(d=f"{_G}Duration{inside}", t=f"{_G}Timestamp{inside}", s=seconds)


def _unpacked() -> Iterator[str]:
    for name, data, value in product(_FIELDS, _WIRES, _UNPACKED):
        escaped = "".join(f"\\x{byte:02x}" for byte in data)
        yield f"{_G}Any{{type_url: 'x/{_G}{name}', value: b'{escaped}'}} == {value}"
    for url in _URLS:
        for _ in range(2):  # every second one is asked
            yield f"{_G}Any{{type_url: '{url}', value: b'\\x08\\x01'}} == 1"


def _texts() -> Iterator[str]:
    for prefix, quote, body in product(_PREFIXES, _QUOTES, _BODIES):
        literal = f"{prefix}{quote}{body}{quote}"
        yield f"{literal} == {literal}"
        if prefix in ("", "b", "r"):
            yield f"size({literal}) == {len(body)}"


def _calls() -> Iterator[str]:
    for name, overloads in recorded()["functions"].items():
        if not name.replace("_", "").replace(".", "").isalnum():
            continue
        for count in sorted({len(overload["args"]) for overload in overloads} | {0, 1, 2}):
            for values in islice(product(_CALL_VALUES, repeat=count), 12):
                yield f"type(dyn({name}({', '.join(values)}))) != null_type"
                if values:
                    yield f"type(dyn({values[0]}.{name}({', '.join(values[1:])}))) != null_type"


def _long() -> Iterator[str]:
    for parser, text in product(_LONG_PARSERS, _LONG_TEXTS):
        yield f"dyn({parser}(string(dyn('{text}')))) == dyn({parser}('{text}'))"
    for piece, length, text in product(_PATTERNS, _PATTERN_LENGTHS, _PATTERN_TEXTS):
        pattern = piece * (length // len(piece.replace("\\\\", "\\")))
        if piece in _LARGE and (length > 3_000 or not text.isascii()):
            continue  # takes long; too large for us in a text that is not ASCII, see README
        yield f"'{text}'.matches('{pattern}')"
    for text, pattern in product(_PATTERN_TEXTS[:2], _REPEATS):
        yield f"'{text}'.matches('{pattern}') || true"
        yield f"'{text}'.find('{pattern}') == ''"
    for opening, depth in product(_NESTED, _DEPTHS):
        yield f"'{'a' * 20}'.matches('{opening * depth}b{')' * depth}')"
