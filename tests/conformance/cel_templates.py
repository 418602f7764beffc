"""Rarer parts of the language and libraries, as bool templates.

`{i}` int, `{b}` bool, `{d}` double, `{s}` string, `{v}` version, `{q}` quantity, `{I}` list of int, `{S}` list of string,
`{t}` duration, `{m}` map, `{a}` any attribute of the device; each is replaced by an expression of its own.
"""

TEMPLATES = (
    # numbers
    "uint({i}) == 3u", "uint({i}) + 1u > 2u", "dyn({i}) == dyn({d})", "dyn({i}) < {d}", "{d} < {i}", "{i} >= {d}", "uint({i}) < {i}",
    "int(uint({i})) == {i}", "double({i}) / {d} > 1.0", "{i} % ({i}) == 0", "{i} / {i} > 0", "-{i} < 0", "-({d}) < 0.0", "int({d}) == {i}",
    "string({d}) == {s}", "string(uint({i})) == {s}", "double({s}) > {d}", "int({s}) > {i}", "uint({s}) > 1u", "bool({s})",
    "string({b}) == {s}", "{d} == 0.0 / 0.0", "1.0 / 0.0 > {d}", "int(1e19) > {i}", "{i} + 9223372036854775807 > 0",
    "{i} * {i} * {i} > 100", "dyn({i}) + dyn({d}) > 0", "dyn({i}) in [1, 2.0, 3u]", "{a} == {i}", "{a} < {i}", "{a} + 1 > {i}", "-{a} < 0",
    "!{a}", "{a} && {b}", "{a} || {b}", "{a} ? {b} : {b}", "{b} == ({a} == {a})",
    # strings and bytes
    "size({a}) > {i}", "{a}.size() == {i}", "bytes({s}) == b'abc'", "size(bytes({s})) > {i}", "string(bytes({s})) == {s}", "b'a' + b'b' == bytes({s})",
    "{s} < {s}", "{s} + {a} == {s}", "{s}.split({s}, {i}).size() > {i}", "{s}.lastIndexOf({s}) == {i}", "{s}.indexOf({s}, {i}) >= 0",
    "{s}.lastIndexOf({s}, {i}) >= 0", "{s}.substring({i}, {i}) == {s}", "{s}.replace({s}, {s}, {i}) == {s}", "{S}.join() == {s}",
    '"%s %d %.2f %b %x %X %o %e".format([{a}, {i}, {d}, {i}, {i}, {s}, {i}, {d}]) == {s}', '"%s".format([{S}]) == {s}', '"%s".format([{m}]) == {s}',
    '"%d".format([{a}]) == {s}', '"%f".format([{d}]) == {s}', '"%s".format([{t}]) == {s}', '"%%%s".format([{b}]) != {s}',
    "strings.quote({s}).size() > {i}", "'\\u00e9\\x41\\n' == {s}", 'r"\\d+" == {s}', '"""a\'b""" == {s}', "{s}.matches({s})", "matches({s}, {s})",
    "{s}.matches({a})", "{s}.find({s}) == {s}", "{s}.findAll({s}).size() == {i}", "{s}.findAll('[a-z0-9]', {i}) == {S}", "{s}.reverse() == {s}",
    "{a}.startsWith({s})", "{a}.contains({a})", "{a}.lowerAscii() == {s}", "{a}.matches('^[A-Z]+')", "{s}.trim() in {S}", "type({a}) == string",
    "type({a}) == type({i})", "type({I}) == list", "type({m}) == map", "type({v}) == type({v})", "type({d}) != int",
    # lists and maps
    "{I} == [{i}, {i}]", "{I} + {I} == {I}", "dyn({I}) == [1.0, 2.0, 3.0]", "{I}[{i}] == {i}", "{I}.exists(x, {b})", "{I}.all(x, x > {i})",
    "{I}.exists_one(x, x == {i})", "{I}.map(x, x > 1, x * 2) == {I}", "{S}.filter(x, x.size() > {i}) == {S}", "{m}.exists(k, k == {s})",
    "{m}.all(k, v, v > {i})", "{m}.exists(k, v, v == {i} && k != {s})", "{m}.existsOne(k, v, v == {i})", "{m}.map(k, k).size() == {i}",
    "{m}.transformList(k, v, v + 1).size() == {i}", "{m}.transformMap(k, v, v > 1, v + {i}) == {m}", "{m}.transformMapEntry(k, v, {{k: v + 1}}) == {m}",
    "{I}.transformMapEntry(i, v, {{string(i): v}}).size() == {i}", "{I}.transformList(i, v, i > 0, v) == {I}", "{I}.transformMap(i, v, v)[{i}] == {i}",
    "{m} == {m}", "{m}[{s}] == {i}", "{m}.a == {i}", "has({m}.a)", "has({m}.zzz)", "{s} in {m}", "{{ {s}: {i}, {s}: {i} }} == {m}", "{{1: 'a', 2: 'b'}}[{i}] == {s}",
    "{{true: 1}}[{b}] == {i}", "{{1: 2}}[{a}] == {i}", "[{{ 'a': {i} }}].exists(e, e.a == {i})", "[[{i}], [{i}, {i}]].flatten() == {I}",
    "[[[{i}]], [[{i}]]].flatten(2) == {I}", "{I}.slice({i}, {i}) == {I}", "{I}.sort() == {I}", "{S}.sort() == {S}", "{S}.sortBy(e, e.size()) == {S}",
    "{S}.distinct() == {S}", "{I}.reverse() == {I}", "{I}.first() == optional.of({i})", "{I}.last().orValue({i}) == {i}", "lists.range({i}).size() == {i}",
    "{I}.isSorted()", "{S}.isSorted()", "{I}.sum() == {i}", "{I}.min() == {i}", "{S}.max() == {s}", "[{d}, 1.5].sum() > {d}", "[{t}, {t}].sum() > {t}",
    "{I}.indexOf({i}) == {i}", "{S}.lastIndexOf({s}) == {i}", "{I}.includes({i})", "{a}.includes({i})", "{a}.includes({s})", "{a} in {I}", "{i} in {a}",
    "{a}.exists(x, x == {i})", "{a}.all(x, x != {s})", "{a}.map(x, x).size() == {i}", "{a}[0] == {i}", "{a}[{i}] == {s}", "{a}.join('-') == {s}",
    "sets.contains({I}, {a})", "sets.intersects([{a}], {I})", "sets.equivalent({S}, {S})", "[1, 'a', 2.0].size() == {i}", "[{i}, {d}] == {I}",
    "[?optional.of({i}), ?optional.none()] == {I}", "{{?'a': optional.of({i})}} == {m}", "[dyn({i}), dyn({s})].exists(x, x == {i})",
    # optionals
    "{m}.?a.orValue({i}) == {i}", "{m}[?{s}].hasValue()", "{m}.?b.or({m}.?a).value() == {i}", "optional.of({i}).optMap(x, x + {i}).value() == {i}",
    "optional.none().orValue({i}) == {i}", "{m}.?a.optFlatMap(x, x > 1 ? optional.of(x) : optional.none()).hasValue()", "optional.ofNonZeroValue({i}).hasValue()",
    "optional.of({a}).value() == {i}", "{I}[?{i}].orValue({i}) > {i}", "optional.unwrap([optional.of({i}), optional.none()]) == {I}",
    "[optional.of({i})].unwrapOpt() == {I}", "optional.of(optional.of({i})).value().value() == {i}", "{a}.?x.hasValue()", "optional.of({i}) == optional.of({i})",
    # time
    "duration({s}) > {t}", "{t} + {t} == {t}", "{t} - {t} < {t}", "{t}.getHours() == {i}", "{t}.getMilliseconds() == {i}", "string({t}) == {s}", "int({t}) == {i}",
    "timestamp('2024-02-29T12:30:45.5Z') + {t} > timestamp('2024-02-29T13:00:00Z')", "timestamp({s}) > timestamp('2024-01-01T00:00:00Z')",
    "timestamp('2024-02-29T12:30:45Z').getDayOfYear() == {i}", "timestamp('2024-02-29T23:30:45Z').getDate('+02:00') == {i}",
    "timestamp('2024-02-29T23:30:45Z').getHours('Asia/Kolkata') == {i}", "timestamp({i}).getFullYear() == {i}", "string(timestamp({i})) == {s}",
    "int(timestamp('2024-02-29T12:30:45Z')) > {i}", "timestamp('2024-02-29T12:30:45Z') - timestamp('2024-02-28T12:30:45Z') == {t}",
    # Kubernetes
    "quantity({s}).isLessThan({q})", "{q}.add({q}) == {q}", "{q} == {q}.sub({q})", "{q}.sub({i}).compareTo({q}) == {i}", "{q}.isInteger()", "{q}.asInteger() == {i}",
    "{q}.asApproximateFloat() > {d}", "sign({q}) == {i}", "isQuantity({s})", "{q} in [{q}, {q}]", "{q} == {a}", "{a} == {q}", "[{q}].includes({q})",
    "{v}.major() == {i}", "{v} == {v}", "{v} != {a}", "{a} == {v}", "{v}.compareTo({v}) == {i}", "semver({s}, true) == {v}", "isSemver({s}, true)", "isSemver({s})",
    "{v} in [{v}]", "{a} in [{v}]", "[{v}].includes({a})", "{v}.isLessThan({a})", "{a}.isGreaterThan({v})", "{a}.compareTo({a}) == {i}",
    "ip({s}).family() == {i}", "ip('10.0.0.1') == ip({s})", "isIP({s})", "ip.isCanonical({s})", "ip('fe80::1').isLinkLocalUnicast() == {b}", "string(ip('::1')) == {s}",
    "cidr('10.0.0.0/8').containsIP({s})", "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') == {b}", "cidr({s}).prefixLength() == {i}", "isCIDR({s})",
    "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", "cidr('10.0.0.0/8').ip().isGlobalUnicast() == {b}", "url({s}).getHost() == {s}", "isURL({s})",
    "url('https://u@h.example.com:80/p/q?k=v&k=w#f').getPort() == {s}", "url('https://h/p?k=v').getQuery()['k'] == {S}", "url('https://[::1]:80/').getHostname() == {s}",
    "format.dns1123Label().validate({s}).hasValue()", "format.dns1123Subdomain().validate({s}).orValue([]).size() == {i}", "format.named('uuid').hasValue()",
    "format.named({s}).hasValue()", "format.qualifiedName().validate({s}).hasValue()", "format.labelValue().validate({s}).hasValue()", "format.uri().validate({s}).hasValue()",
    "format.byte().validate({s}).hasValue()", "format.date().validate({s}).hasValue()", "format.datetime().validate({s}).hasValue()", "format.dns1035LabelPrefix().validate({s}).hasValue()",
    # the device
    "device.attributes.exists(d, d == {s})", "device.attributes.size() == {i}", "device.attributes.all(d, m, m.size() > {i})", "device.capacity.exists(d, d != {s})",
    'device.capacity["dra.example.com"].all(k, v, v.isGreaterThan({q}))', 'device.attributes["dra.example.com"].exists(k, v, v == {i})',
    'device.attributes["dra.example.com"].exists(k, k == {s})', 'device.attributes["dra.example.com"].map(k, k).size() == {i}', "device.attributes[{s}].size() == {i}",
    "device.attributes[?{s}].hasValue()", "device.attributes.?nope.n.hasValue()", 'device.attributes["dra.example.com"][{s}] == {a}', "has(device.attributes.nope)",
    'has(device.attributes["dra.example.com"].n) && {b}', "device.driver == {s}", "device.allowMultipleAllocations == {b}", 'device.attributes["dra.example.com"] == {m}',
    'cel.bind(d, device.attributes["dra.example.com"], d.n == {i} && d.model == {s})', 'device.attributes["dra.example.com"].`n` == {i}', "device.`driver` == {s}",
    '{s} in device.attributes["dra.example.com"]', 'device.capacity["dra.example.com"].?mem.orValue({q}) == {q}', "device.nope == {i}", "devices.x", "{s}.nope()", "nope({i})",
)  # fmt: skip
