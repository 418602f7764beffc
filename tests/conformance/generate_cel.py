"""Random CEL expressions over random devices, made by a typed grammar.

`Grammar.text(kind, depth)` writes an expression of a kind; 3 in 100 times it writes one of another kind, and 6 in 100 names
do not exist, so that every sort of error is met too.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.conformance.cel_templates import TEMPLATES
from tests.conformance.objects import Json

_T = TypeVar("_T")
DOMAIN = "dra.example.com"
_WRONG_KIND = 0.03
_MISSING_NAME = 0.06
_KINDS = (
    "bool",
    "int",
    "double",
    "string",
    "version",
    "quantity",
    "ints",
    "strings",
    "duration",
    "map",
)
# Attribute id -> its kind, as devices (mostly) have it.
_ATTRIBUTES = {
    "bool": ("ok", "flag"), "int": ("n", "count", "neg"), "string": ("model", "text", "uni", "empty"),
    "version": ("v", "w"), "ints": ("li",), "strings": ("ls",),
}  # fmt: skip
# Kind -> messages that stand for it, each with the field that holds it.
_MESSAGES = {
    "bool": (("BoolValue", "value"), ("Value", "bool_value")),
    "int": (("Int32Value", "value"), ("Int64Value", "value")),
    "double": (("DoubleValue", "value"), ("FloatValue", "value"), ("Value", "number_value")),
    "string": (("StringValue", "value"), ("Value", "string_value")),
    "ints": (("ListValue", "values"), ("Value", "list_value")),
    "strings": (("ListValue", "values"), ("Value", "list_value")),
    "map": (("Struct", "fields"), ("Value", "struct_value")),
    "duration": (("Duration", "seconds"),),
}
_HOLE = re.compile(r"\{([a-zA-Z])\}|\{\{|\}\}")
_HOLES = {"i": "int", "b": "bool", "d": "double", "s": "string", "v": "version", "q": "quantity", "I": "ints",
          "S": "strings", "t": "duration", "m": "map"}  # fmt: skip
_STRINGS = (
    '"a"',
    '"b"',
    '""',
    '"a,b"',
    '"Äö"',
    '"x1y22"',
    '"1.2.3"',
    '"A100"',
    "'abc'",
    '"10.0.0.1"',
    '"é😀"',
)
_REGEXES = ('"a.*"', '"^[a-z]+$"', '"[0-9]+"', '"A|b"', '"(x)(1)"', '"é"', '".{2}"')
_VERSIONS = ('"1.0.0"', '"1.2.3"', '"2.0.0-alpha.1"', '"1.0.0+b1"', '"10.0.0"')
_QUANTITIES = ('"1"', '"4"', '"1Gi"', '"1024Mi"', '"500m"', '"1.5"', '"1e3"', '"-2"', '"80Gi"')
_DURATIONS = ('"1h"', '"90m"', '"1.5s"', '"100ms"')

_LITERALS = {
    "bool": ("true", "false"), "int": ("0", "1", "2", "3", "-1", "10", "0x1F", "9223372036854775807"),
    "double": ("0.0", "1.0", "1.5", "-2.5", "1e3"), "string": _STRINGS, "version": _VERSIONS,
    "quantity": _QUANTITIES, "duration": _DURATIONS,
    "ints": ("[1, 2, 3]", "[]", "[2]", "[3, 1, 2, 1]", "lists.range(4)"),
    "strings": ('["a", "b"]', '["A100"]', '["b", "a", "b"]', '"a,b,c".split(",")'),
    "map": ('{"a": 1, "b": 2}', '{"a": 1}', '{"x": 3, "a": 0}'),
}  # fmt: skip


def device(rng: random.Random) -> Json:
    """A device whose attributes have (mostly) the kinds the grammar expects."""
    values: Json = {
        "ok": {"bool": rng.random() < 0.5}, "flag": {"bool": True}, "n": {"int": rng.choice((0, 1, 2, 3))},
        "count": {"int": rng.choice((4, 10, 2**62, 8))}, "neg": {"int": rng.choice((-1, -7))},
        "model": {"string": rng.choice(("a", "b", "A100"))}, "text": {"string": rng.choice(("x1y22", "a,b", "1.2.3"))},
        "uni": {"string": rng.choice(("Äö", "é😀"))}, "empty": {"string": ""},
        "v": {"version": rng.choice(("1.0.0", "1.2.3", "2.0.0-alpha.1"))}, "w": {"version": "1.2.3+b"},
        "li": {"ints": rng.choice(([1, 2], [3], [2, 2, 1]))}, "ls": {"strings": rng.choice((["a"], ["b", "a", "A100"]))},
        "std.example.com/zone": {"string": rng.choice(("a", "z"))},
    }  # fmt: skip
    for key in list(values):
        if rng.random() < 0.06:
            del values[key]
    if rng.random() < 0.02:
        values["bad"] = rng.choice(({"version": "9.0"}, {}))
    out: Json = {
        "driver": DOMAIN,
        "attributes": values,
        "capacity": {
            "mem": {"value": rng.choice(("1Gi", "80Gi", "1024Mi"))}, "cores": {"value": rng.choice(("4", "500m"))},
            "std.example.com/slots": {"value": "2"},
        },
    }  # fmt: skip
    if rng.random() < 0.5:
        out["allowMultipleAllocations"] = rng.random() < 0.7
    return out


class Grammar:
    """Writes expressions from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._variables: list[tuple[str, str]] = []
        self._rules: dict[str, tuple[Callable[[int], str], ...]] = {
            "bool": (self._compare, self._compare, self._logic, self._logic, self._string_test, self._member, self._macro,
                     self._optional_test, self._version_test, self._quantity_test, self._library_test, self._has,
                     self._template, self._template, self._template),
            "int": (self._arithmetic, self._int_call, self._int_index),
            "double": (self._double_call,),
            "string": (self._string_call, self._string_call, self._concat, self._string_index),
            "version": (self._version_call,),
            "quantity": (self._quantity_call,),
            "ints": (self._ints_call,),
            "strings": (self._strings_call,),
            "duration": (self._duration_call,),
            "map": (self._map_call,),
        }  # fmt: skip

    def text(self, kind: str, depth: int) -> str:
        """An expression of a kind (or, rarely, of another)."""
        if self._rng.random() < _WRONG_KIND:
            kind = self._pick(_KINDS)
        if depth <= 0 or self._rng.random() < 0.25:
            return self._leaf(kind)
        conditional = self._rng.random()
        if conditional < 0.04:
            return f"({self.text('bool', depth - 1)} ? {self.text(kind, depth - 1)} : {self.text(kind, depth - 1)})"
        if conditional < 0.06:
            return self._bind(kind, depth)
        if conditional < 0.08:
            return f"dyn({self.text(kind, depth - 1)})"
        if conditional < 0.1 and kind in _MESSAGES:
            return self._message(kind, depth)
        rule: Callable[[int], str] = self._pick(self._rules[kind])
        return rule(depth - 1)

    def _message(self, kind: str, depth: int) -> str:
        """A message literal that stands for the kind."""
        message, field = self._pick(_MESSAGES[kind])
        value = self.text("int" if kind == "duration" else kind, depth - 1)
        if self._rng.random() < 0.1:
            field, value = f"?{field}", f"optional.of({value})"
        return f"google.protobuf.{message}{{{field}: {value}}}"

    def _pick(self, items: Sequence[_T]) -> _T:
        return items[self._rng.randrange(len(items))]

    # Leaves: literals, attributes, capacities, variables of macros.

    def _leaf(self, kind: str) -> str:
        known = [name for name, its in self._variables if its == kind]
        if known and self._rng.random() < 0.6:
            return self._pick(known)
        if kind in _ATTRIBUTES and self._rng.random() < 0.6:
            return self._attribute(kind)
        if kind == "quantity" and self._rng.random() < 0.5:
            return self._capacity()
        return self._literal(kind)

    def _name(self, names: tuple[str, ...]) -> str:
        return (
            self._pick(("nope", "other"))
            if self._rng.random() < _MISSING_NAME
            else self._pick(names)
        )

    def _domain(self) -> str:
        return "nope.example.com" if self._rng.random() < 0.02 else DOMAIN

    def _attribute(self, kind: str) -> str:
        if kind == "string" and self._rng.random() < 0.2:
            return self._pick(("device.driver", 'device.attributes["std.example.com"].zone'))
        if kind == "bool" and self._rng.random() < 0.15:
            return "device.allowMultipleAllocations"
        name = self._name(_ATTRIBUTES[kind])
        style = self._rng.random()
        base = f'device.attributes["{self._domain()}"]'
        if style < 0.7:
            return f"{base}.{name}"
        if style < 0.85:
            return f'{base}["{name}"]'
        return f"{base}.?{name}.orValue({self._literal(kind)})"

    def _capacity(self) -> str:
        if self._rng.random() < 0.1:
            return 'device.capacity["std.example.com"].slots'
        return f'device.capacity["{self._domain()}"].{self._name(("mem", "cores"))}'

    def _literal(self, kind: str) -> str:
        if kind in ("version", "quantity", "duration"):
            maker = "semver" if kind == "version" else kind
            return f"{maker}({self._pick(_LITERALS[kind])})"
        return self._pick(_LITERALS[kind])

    # Bool.

    def _compare(self, depth: int) -> str:
        kind = self._pick(("int", "int", "string", "string", "bool", "double", "ints", "strings", "version", "quantity",
                           "duration", "map"))  # fmt: skip
        operators: tuple[str, ...] = ("==", "!=")
        if kind in ("int", "string", "double", "duration", "bool"):
            operators += ("<", "<=", ">", ">=")
        other = kind if self._rng.random() < 0.93 else self._pick(("int", "double", "string"))
        return f"{self.text(kind, depth)} {self._pick(operators)} {self.text(other, depth)}"

    def _logic(self, depth: int) -> str:
        if self._rng.random() < 0.25:
            return f"!({self.text('bool', depth)})"
        parts = [f"({self.text('bool', depth)})" for _ in range(self._pick((2, 2, 3)))]
        return f" {self._pick(('&&', '||'))} ".join(parts)

    def _string_test(self, depth: int) -> str:
        value = self.text("string", depth)
        if self._rng.random() < 0.3:
            return f"{value}.matches({self._pick(_REGEXES)})"
        return f"{value}.{self._pick(('contains', 'startsWith', 'endsWith'))}({self.text('string', depth)})"

    def _member(self, depth: int) -> str:
        form = self._rng.random()
        if form < 0.3:
            return f"{self.text('string', depth)} in {self.text('strings', depth)}"
        if form < 0.55:
            return f"{self.text('int', depth)} in {self.text('ints', depth)}"
        if form < 0.65:
            return f"{self.text('string', depth)} in {self.text('map', depth)}"
        if form < 0.8:
            return f'"{self._name(("n", "model", "v"))}" in device.attributes["{self._domain()}"]'
        if form < 0.9:
            return f"{self.text('strings', depth)}.includes({self.text('string', depth)})"
        return f'"{self._pick((DOMAIN, "std.example.com", "nope"))}" in device.{self._pick(("attributes", "capacity"))}'

    def _has(self, _depth: int) -> str:
        return f'has(device.{self._pick(("attributes", "capacity"))}["{self._domain()}"].{self._name(("n", "model", "mem"))})'

    def _macro(self, depth: int) -> str:
        kind, element = self._pick((("ints", "int"), ("strings", "string")))
        name = self._pick(("x", "e", "y"))
        macro = self._pick(("all", "exists", "exists_one"))
        if self._rng.random() < 0.15:
            value = self.text(kind, depth)
            with_index = self._inside([("i", "int"), (name, element)], "bool", depth)
            return f"{value}.{macro}(i, {name}, {with_index})"
        if self._rng.random() < 0.1:
            return f'device.attributes["{self._domain()}"].{macro}({name}, {self._inside([(name, "string")], "bool", depth)})'
        value = self.text(kind, depth)
        return f"{value}.{macro}({name}, {self._inside([(name, element)], 'bool', depth)})"

    def _inside(self, variables: list[tuple[str, str]], kind: str, depth: int) -> str:
        self._variables += variables
        try:
            return self.text(kind, depth)
        finally:
            del self._variables[-len(variables) :]

    def _bind(self, kind: str, depth: int) -> str:
        bound = self._pick(_KINDS)
        value = self.text(bound, depth - 1)
        return f"cel.bind(b, {value}, {self._inside([('b', bound)], kind, depth - 1)})"

    def _optional_test(self, depth: int) -> str:
        base = f'device.attributes["{self._domain()}"]'
        form = self._rng.random()
        if form < 0.3:
            return f"{base}.?{self._name(('n', 'model', 'v'))}.hasValue()"
        if form < 0.5:
            name = self._name(_ATTRIBUTES["int"])
            return f"{base}.?{name}.optMap(o, {self._inside([('o', 'int')], 'bool', depth)}).orValue({self._literal('bool')})"
        if form < 0.7:
            return f"optional.of({self.text('int', depth)}).or(optional.none()).value() == {self.text('int', depth)}"
        if form < 0.85:
            return f"{self.text('ints', depth)}[?{self._pick('013')}].orValue(7) > {self.text('int', depth)}"
        return f"optional.ofNonZeroValue({self.text('string', depth)}).hasValue()"

    def _version_test(self, depth: int) -> str:
        value = self.text("version", depth)
        if self._rng.random() < 0.2:
            return f"isSemver({self.text('string', depth)})"
        return (
            f"{value}.{self._pick(('isLessThan', 'isGreaterThan'))}({self.text('version', depth)})"
        )

    def _quantity_test(self, depth: int) -> str:
        value = self.text("quantity", depth)
        form = self._rng.random()
        if form < 0.15:
            return f"{value}.isInteger()"
        if form < 0.25:
            return f"isQuantity({self.text('string', depth)})"
        return (
            f"{value}.{self._pick(('isLessThan', 'isGreaterThan'))}({self.text('quantity', depth)})"
        )

    def _library_test(self, depth: int) -> str:
        texts = (
            lambda: f"sets.contains({self.text('ints', depth)}, {self.text('ints', depth)})",
            lambda: (
                f"sets.intersects({self.text('strings', depth)}, {self.text('strings', depth)})"
            ),
            lambda: f"sets.equivalent({self.text('ints', depth)}, {self.text('ints', depth)})",
            lambda: f"{self.text('ints', depth)}.isSorted()",
            lambda: f"isIP({self.text('string', depth)})",
            lambda: f'cidr("10.0.0.0/8").containsIP({self.text("string", depth)})',
            lambda: f"!format.dns1123Label().validate({self.text('string', depth)}).hasValue()",
            lambda: f"isURL({self.text('string', depth)})",
            lambda: f"type({self.text('string', depth)}) == string",
        )
        text: str = self._pick(texts)()
        return text

    def _template(self, depth: int) -> str:
        def fill(found: re.Match[str]) -> str:
            kind = found[1]
            if kind is None:
                return found[0][0]  # a doubled brace
            if kind == "a":
                return self._attribute(self._pick(tuple(_ATTRIBUTES)))
            return self.text(_HOLES[kind], self._pick((0, 0, depth)))

        return _HOLE.sub(fill, self._pick(TEMPLATES))

    # Other kinds.

    def _arithmetic(self, depth: int) -> str:
        return f"({self.text('int', depth)} {self._pick('+-*/%')} {self.text('int', depth)})"

    def _int_call(self, depth: int) -> str:
        texts = (
            lambda: f"size({self.text('string', depth)})", lambda: f"{self.text('ints', depth)}.size()",
            lambda: f"{self.text('strings', depth)}.size()", lambda: f"{self.text('map', depth)}.size()",
            lambda: f"{self.text('string', depth)}.indexOf({self.text('string', depth)})",
            lambda: f"{self.text('version', depth)}.{self._pick(('major', 'minor', 'patch'))}()",
            lambda: f"{self.text('version', depth)}.compareTo({self.text('version', depth)})",
            lambda: f"{self.text('quantity', depth)}.compareTo({self.text('quantity', depth)})",
            lambda: f"{self.text('quantity', depth)}.asInteger()", lambda: f"sign({self.text('quantity', depth)})",
            lambda: f"int({self.text('double', depth)})", lambda: f"int({self.text('string', depth)})",
            lambda: f"{self.text('ints', depth)}.{self._pick(('sum', 'min', 'max'))}()",
            lambda: f"{self.text('ints', depth)}.{self._pick(('indexOf', 'lastIndexOf'))}({self.text('int', depth)})",
            lambda: f"{self.text('duration', depth)}.{self._pick(('getMinutes', 'getSeconds', 'getMilliseconds'))}()",
            lambda: f"-({self.text('int', depth)})",
        )  # fmt: skip
        text: str = self._pick(texts)()
        return text

    def _int_index(self, depth: int) -> str:
        if self._rng.random() < 0.3:
            return f"{self.text('map', depth)}[{self.text('string', 0)}]"
        return f"{self.text('ints', depth)}[{self._pick(('0', '1', '5', self.text('int', depth)))}]"

    def _double_call(self, depth: int) -> str:
        texts = (
            lambda: f"({self.text('double', depth)} {self._pick('+-*/')} {self.text('double', depth)})",
            lambda: f"double({self.text('int', depth)})", lambda: f"double({self.text('string', depth)})",
            lambda: f"{self.text('quantity', depth)}.asApproximateFloat()",
        )  # fmt: skip
        text: str = self._pick(texts)()
        return text

    def _concat(self, depth: int) -> str:
        return f"({self.text('string', depth)} + {self.text('string', depth)})"

    def _string_call(self, depth: int) -> str:
        texts = (
            lambda: (
                f"{self.text('string', depth)}.{self._pick(('lowerAscii', 'upperAscii', 'trim'))}()"
            ),
            lambda: (
                f"{self.text('string', depth)}.replace({self.text('string', depth)}, {self.text('string', depth)})"
            ),
            lambda: f"{self.text('string', depth)}.substring({self.text('int', depth)})",
            lambda: f"{self.text('string', depth)}.substring(0, {self.text('int', depth)})",
            lambda: f"{self.text('string', depth)}.charAt({self.text('int', depth)})",
            lambda: f"{self.text('strings', depth)}.join({self.text('string', depth)})",
            lambda: (
                f"string({self.text(self._pick(('int', 'double', 'bool', 'string', 'duration')), depth)})"
            ),
            lambda: f"{self.text('string', depth)}.find({self._pick(_REGEXES)})",
            lambda: f'"%s-%d".format([{self.text("string", depth)}, {self.text("int", depth)}])',
            lambda: f"strings.quote({self.text('string', depth)})",
        )
        text: str = self._pick(texts)()
        return text

    def _string_index(self, depth: int) -> str:
        return f"{self.text('strings', depth)}[{self._pick(('0', '1', self.text('int', depth)))}]"

    def _version_call(self, depth: int) -> str:
        return f"semver({self.text('string', depth)}{self._pick(('', ', true'))})"

    def _quantity_call(self, depth: int) -> str:
        if self._rng.random() < 0.25:
            return f"quantity({self.text('string', depth)})"
        other = self.text(self._pick(("quantity", "quantity", "int")), depth)
        return f"{self.text('quantity', depth)}.{self._pick(('add', 'sub'))}({other})"

    def _ints_call(self, depth: int) -> str:
        texts = (
            lambda: f"({self.text('ints', depth)} + {self.text('ints', depth)})",
            lambda: f"[{self.text('int', depth)}, {self.text('int', depth)}]",
            lambda: (
                f"{self.text('ints', depth)}.filter(x, {self._inside([('x', 'int')], 'bool', depth)})"
            ),
            lambda: (
                f"{self.text('ints', depth)}.map(x, {self._inside([('x', 'int')], 'int', depth)})"
            ),
            lambda: f"{self.text('ints', depth)}.{self._pick(('sort', 'distinct', 'reverse'))}()",
            lambda: f"{self.text('ints', depth)}.slice(0, {self._pick('123')})",
            lambda: (
                f"{self.text('ints', depth)}.transformList(i, x, {self._inside([('i', 'int'), ('x', 'int')], 'int', depth)})"
            ),
            lambda: (
                f"{self.text('ints', depth)}.sortBy(x, {self._inside([('x', 'int')], 'int', depth)})"
            ),
        )
        text: str = self._pick(texts)()
        return text

    def _strings_call(self, depth: int) -> str:
        texts = (
            lambda: f"({self.text('strings', depth)} + {self.text('strings', depth)})",
            lambda: f"[{self.text('string', depth)}]",
            lambda: f"{self.text('string', depth)}.split({self.text('string', 0)})",
            lambda: (
                f"{self.text('strings', depth)}.filter(x, {self._inside([('x', 'string')], 'bool', depth)})"
            ),
            lambda: (
                f"{self.text('strings', depth)}.map(x, {self._inside([('x', 'string')], 'string', depth)})"
            ),
            lambda: f"{self.text('map', depth)}.map(k, k)",
            lambda: f"{self.text('string', depth)}.findAll({self._pick(_REGEXES)})",
            lambda: (
                f"{self.text('strings', depth)}.{self._pick(('sort', 'distinct', 'reverse'))}()"
            ),
        )
        text: str = self._pick(texts)()
        return text

    def _duration_call(self, depth: int) -> str:
        return f"({self.text('duration', depth)} {self._pick('+-')} {self.text('duration', depth)})"

    def _map_call(self, depth: int) -> str:
        if self._rng.random() < 0.5:
            return f'{{"a": {self.text("int", depth)}, {self._pick(_STRINGS)}: {self.text("int", depth)}}}'
        return f"{self.text('map', depth)}.transformMap(k, x, {self._inside([('k', 'string'), ('x', 'int')], 'int', depth)})"


def question(rng: random.Random, name: str) -> Json:
    """One random expression and device: a selector, or (one in ten) a derived attribute."""
    depth = rng.choice((1, 2, 2, 3, 3, 4))
    if rng.random() < 0.1:
        kind = rng.choice(("int", "string", "bool", "version", "ints", "strings", "double"))
        return {
            "id": name,
            "expr": Grammar(rng).text(kind, depth),
            "device": device(rng),
            "derived": True,
        }
    return {"id": name, "expr": Grammar(rng).text("bool", depth), "device": device(rng)}
