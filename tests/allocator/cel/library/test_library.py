"""Every function of the stored environment, by example."""

import pytest

from allocator.cel.check.overloads import functions
from allocator.cel.run.functions import FUNCTIONS
from tests.allocator.cel.evaluation import ask

# Examples that upstream evaluates to true.
TRUE = """
int("5") == 5
string(1.0) == "1"
string(1e21) == "1e+21"
string(1e-5) == "1e-05"
bool("true")
double("1_0") == 10.0
uint("7") == 7u
bytes("é").size() == 2
type(1) == int
type(null) == null_type
type([1]) == list
string(duration("1h30m")) == "5400s"
string(timestamp("2024-01-01T00:00:00.500Z")) == "2024-01-01T00:00:00.5Z"
int(timestamp("1970-01-01T00:00:01Z")) == 1
matches("xabcx", "abc")
"xabcx".contains("bc") && "xabc".startsWith("xa") && "abcx".endsWith("cx")
size("abc") == 3 && [1, 2].size() == 2 && {"a": 1}.size() == 1 && b"ab".size() == 2
duration("1.5s").getMilliseconds() == 1500
duration("90m").getHours() == 1 && duration("90s").getMinutes() == 1 && duration("1500ms").getSeconds() == 1
timestamp("2024-01-01T00:00:00Z").getDayOfWeek() == 1
timestamp("2024-03-05T07:08:09Z").getFullYear() == 2024 && timestamp("2024-03-05T07:08:09Z").getMonth() == 2
timestamp("2024-03-05T07:08:09Z").getDate() == 5 && timestamp("2024-03-05T07:08:09Z").getDayOfMonth() == 4
timestamp("2024-03-05T07:08:09Z").getDayOfYear() == 64 && timestamp("2024-03-05T07:08:09Z").getHours() == 7
timestamp("2024-03-05T07:08:09Z").getMinutes() == 8 && timestamp("2024-03-05T07:08:09.250Z").getMilliseconds() == 250
timestamp("2024-01-01T05:00:00Z").getFullYear("-08:00") == 2023
timestamp("2024-01-01T00:00:00Z") + duration("24h") == timestamp("2024-01-02T00:00:00Z")
timestamp("2024-01-02T00:00:00Z") - timestamp("2024-01-01T00:00:00Z") == duration("24h")
"abc".charAt(1) == "b" && "abcb".indexOf("b") == 1 && "abcb".lastIndexOf("b") == 3 && "abcb".indexOf("b", 2) == 3
"AbÉ".lowerAscii() == "abÉ" && "abé".upperAscii() == "ABé"
"aXbX".replace("X", "y", 1) == "aybX" && "aXbX".replace("X", "y") == "ayby"
"a,b,c".split(",", 2) == ["a", "b,c"] && "abc".split("") == ["a", "b", "c"] && "a,b".split(",", 0) == []
["a", "b"].join() == "ab" && ["a", "b"].join("-") == "a-b"
"hello".substring(1) == "ello" && "hello".substring(1, 3) == "el"
" x\\t".trim() == "x"
strings.quote("a\\"b") == "\\"a\\\\\\"b\\""
"%d %s".format([1, "x"]) == "1 x"
"%.2f %e %b %x %X %o %%".format([1.005, 1234.5, 5, 255, "hi", 8]) == "1.00 1.234500\\u00d710⁰³ 101 ff 6869 10 %"
"%s %s".format([[1, "a"], {"b": 1.5}]) == "[1, \\"a\\"] {\\"b\\":1.500000}"
"%f".format([1234567.5]) == "1,234,567.500000"
sets.equivalent([1, 2], [2, 1, 1]) && sets.contains([1, 2], [1]) && sets.intersects([1], [2, 1])
[[1, 2], [3]].flatten() == [1, 2, 3] && [[dyn(1), dyn([2])]].flatten(2) == [1, 2]
["bb", "a"].sortBy(e, e.size()) == ["a", "bb"] && [3, 1, 2].sort() == [1, 2, 3]
lists.range(3) == [0, 1, 2] && [1, 2, 2].distinct() == [1, 2] && [1, 2].reverse() == [2, 1]
[1, 2, 3].slice(1, 3) == [2, 3]
[1].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()
[1.5, 2.5].sum() == 4.0 && [1, 2].min() == 1 && [1, 2].max() == 2 && [1, 2].isSorted()
[duration("1m"), duration("1s")].sum() == duration("61s")
["a", "b", "b"].lastIndexOf("b") == 2 && ["a", "b"].indexOf("b") == 1
dyn([1, 2]).includes(2) && dyn(1).includes(1)
"a1b22".find("[0-9]+") == "1" && "a1b22".findAll("[0-9]+") == ["1", "22"] && "a1b22".findAll("[0-9]+", 1) == ["1"]
"abc".find("x") == ""
url("http://h:80/p?q=1").getHost() == "h:80" && url("http://h:80/p").getPort() == "80"
url("https://[::1]:80/p%20q").getHostname() == "::1" && url("https://h/p%20q").getEscapedPath() == "/p%20q"
url("https://h/p?k=v&k=w").getQuery() == {"k": ["v", "w"]} && url("https://h/").getScheme() == "https"
isURL("/path") && !isURL("path")
quantity("1e3") == quantity("1k") && isQuantity("1Gi") && !isQuantity("1GB")
quantity("1").add(2) == quantity("3") && quantity("5").sub(quantity("2")) == quantity("3")
sign(quantity("-5")) == -1 && quantity("1").compareTo(quantity("2")) == -1
quantity("1500m").asApproximateFloat() == 1.5 && quantity("1k").asInteger() == 1000
quantity("1Gi").isGreaterThan(quantity("1G")) && quantity("1G").isLessThan(quantity("1Gi"))
semver("v1.2", true) == semver("1.2.0") && semver("1.0.0-alpha").isLessThan(semver("1.0.0"))
semver("1.2.3+build") == semver("1.2.3") && semver("1.2.3").major() == 1 && semver("1.2.3").patch() == 3
isSemver("1.2.3") && !isSemver("1.2") && isSemver("01.2", true) && semver("1.10.0").compareTo(semver("1.9.0")) == 1
ip("::1").family() == 6 && !isIP("::ffff:1.2.3.4") && !isIP("1.2.3.04") && ip("127.0.0.1").isLoopback()
ip.isCanonical("::1") && !ip.isCanonical("0:0::1") && string(ip("10.0.0.1")) == "10.0.0.1"
ip("8.8.8.8").isGlobalUnicast() && ip("0.0.0.0").isUnspecified() && ip("169.254.0.1").isLinkLocalUnicast()
ip("224.0.0.1").isLinkLocalMulticast()
cidr("10.0.0.0/8").containsIP("10.1.2.3") && cidr("10.0.0.0/8").containsIP(ip("10.1.2.3"))
cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && !cidr("10.1.0.0/16").containsCIDR(cidr("10.0.0.0/8"))
cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8") && cidr("10.1.2.3/8").ip() == ip("10.1.2.3")
cidr("::/0").prefixLength() == 0 && isCIDR("10.0.0.0/8") && !isCIDR("10.0.0.0/33")
!format.dns1123Label().validate("ok").hasValue() && format.dns1123Label().validate("No").hasValue()
format.named("uuid").value() == format.uuid() && !format.named("none").hasValue()
!format.qualifiedName().validate("example.com/Name").hasValue()
!format.date().validate("2024-02-29").hasValue() && format.date().validate("2023-02-29").hasValue()
optional.of(2).optMap(x, x + 1).value() == 3 && optional.none().orValue(1) == 1
optional.of(1).optFlatMap(x, optional.of(x + 1)) == optional.of(2)
!optional.ofNonZeroValue(0).hasValue() && optional.of(1).or(optional.of(2)).value() == 1
optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(1)].unwrapOpt() == [1]
{?"a": optional.of(1), ?"b": optional.none()} == {"a": 1} && [?optional.none(), 1] == [1]
[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x) == [2]
[1, 2].all(i, v, i < v) && {"a": 1}.exists(k, v, k == "a" && v == 1) && [1].existsOne(i, v, v == 1)
[1, 2].transformList(i, v, i + v) == [1, 3] && {"a": 1}.transformMap(k, v, v + 1) == {"a": 2}
{"a": "x"}.transformMapEntry(k, v, {v: k}) == {"x": "a"} && {"a": 1, "b": 2}.transformMap(k, v, v > 1, v) == {"b": 2}
cel.bind(x, 2, x * x) == 4
""".strip().split("\n")

FALSE_OR_ERROR = [
    '"abc".reverse() == "cba"',
    "math.greatest(1, 2) == 2",
    'base64.encode(b"a") == ""',
    'string(semver("1.0.0")) == ""',
    '"x".regexReplace("a", "b") == ""',
]


@pytest.mark.parametrize("expression", TRUE)
def test_example_is_true(expression):
    assert ask(expression) is True


@pytest.mark.parametrize("expression", FALSE_OR_ERROR)
def test_functions_of_other_environments_do_not_compile(expression):
    assert ask(expression) == "compile error"


def test_every_declared_function_has_code():
    operators = {
        "_&&_",
        "_||_",
        "_?_:_",
        "_[_]",
        "_[?_]",
        "or",
        "orValue",
        "@not_strictly_false",
        "cel.@mapInsert",
    }
    assert set(functions()) - operators <= set(FUNCTIONS)
