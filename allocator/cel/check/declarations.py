"""Every function of the stored environment, as a table.

A line of the table declares an overload: `id function(argument types) -> result`, a leading dot for methods (the
receiver is the first argument). Single capital letters are type parameters. The order within a function is upstream's
declaration order, which decides the result type when several overloads fit.

Source: cel-go common/stdlib, cel/library.go (optionals), ext/{strings,sets,lists,comprehensions}.go and
k8s.io/apiserver/pkg/cel/library.
"""

from typing import Final

_COMPARABLE: Final = ["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"]
_NUMBERS: Final = ["int", "uint", "double"]
# A number on the left -> numbers on the right, in upstream's order.
_COMPARED: Final = {
    "int": ["int", "double", "uint"],
    "uint": ["uint", "double", "int"],
    "double": ["double", "int", "uint"],
}
_ORDER: Final = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
_MESSAGE_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}
_OVERLOAD_NAMES: Final = {"int": "int64", "uint": "uint64"}

_TABLE: Final = """
conditional _?_:_(bool, A, A) -> A
logical_and _&&_(bool, bool) -> bool
logical_or _||_(bool, bool) -> bool
logical_not !_(bool) -> bool
not_strictly_false @not_strictly_false(bool) -> bool
equals _==_(A, A) -> bool
not_equals _!=_(A, A) -> bool
add_bytes _+_(bytes, bytes) -> bytes
add_double _+_(double, double) -> double
add_duration_duration _+_(duration, duration) -> duration
add_duration_timestamp _+_(duration, timestamp) -> timestamp
add_timestamp_duration _+_(timestamp, duration) -> timestamp
add_int64 _+_(int, int) -> int
add_list _+_(list(A), list(A)) -> list(A)
add_string _+_(string, string) -> string
add_uint64 _+_(uint, uint) -> uint
divide_double _/_(double, double) -> double
divide_int64 _/_(int, int) -> int
divide_uint64 _/_(uint, uint) -> uint
modulo_int64 _%_(int, int) -> int
modulo_uint64 _%_(uint, uint) -> uint
multiply_double _*_(double, double) -> double
multiply_int64 _*_(int, int) -> int
multiply_uint64 _*_(uint, uint) -> uint
negate_double -_(double) -> double
negate_int64 -_(int) -> int
subtract_double _-_(double, double) -> double
subtract_duration_duration _-_(duration, duration) -> duration
subtract_int64 _-_(int, int) -> int
subtract_timestamp_duration _-_(timestamp, duration) -> timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) -> duration
subtract_uint64 _-_(uint, uint) -> uint
index_list _[_](list(A), int) -> A
index_map _[_](map(A, B), A) -> B
optional_list_index_int _[_](optional(list(V)), int) -> optional(V)
optional_map_index_value _[_](optional(map(K, V)), K) -> optional(V)
list_optindex_optional_int _[?_](list(V), int) -> optional(V)
optional_list_optindex_optional_int _[?_](optional(list(V)), int) -> optional(V)
map_optindex_optional_value _[?_](map(K, V), K) -> optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) -> optional(V)
in_list @in(A, list(A)) -> bool
in_map @in(A, map(A, B)) -> bool
size_bytes size(bytes) -> int
bytes_size .size(bytes) -> int
size_list size(list(A)) -> int
list_size .size(list(A)) -> int
size_map size(map(A, B)) -> int
map_size .size(map(A, B)) -> int
size_string size(string) -> int
string_size .size(string) -> int
type type(A) -> type(A)
bool_to_bool bool(bool) -> bool
string_to_bool bool(string) -> bool
bytes_to_bytes bytes(bytes) -> bytes
string_to_bytes bytes(string) -> bytes
double_to_double double(double) -> double
int64_to_double double(int) -> double
string_to_double double(string) -> double
uint64_to_double double(uint) -> double
duration_to_duration duration(duration) -> duration
string_to_duration duration(string) -> duration
to_dyn dyn(A) -> dyn
int64_to_int64 int(int) -> int
double_to_int64 int(double) -> int
duration_to_int64 int(duration) -> int
string_to_int64 int(string) -> int
timestamp_to_int64 int(timestamp) -> int
uint64_to_int64 int(uint) -> int
string_to_string string(string) -> string
bool_to_string string(bool) -> string
bytes_to_string string(bytes) -> string
double_to_string string(double) -> string
duration_to_string string(duration) -> string
int64_to_string string(int) -> string
timestamp_to_string string(timestamp) -> string
uint64_to_string string(uint) -> string
ip_to_string string(IP) -> string
cidr_to_string string(CIDR) -> string
timestamp_to_timestamp timestamp(timestamp) -> timestamp
int64_to_timestamp timestamp(int) -> timestamp
string_to_timestamp timestamp(string) -> timestamp
uint64_to_uint64 uint(uint) -> uint
double_to_uint64 uint(double) -> uint
int64_to_uint64 uint(int) -> uint
string_to_uint64 uint(string) -> uint
contains_string .contains(string, string) -> bool
ends_with_string .endsWith(string, string) -> bool
starts_with_string .startsWith(string, string) -> bool
matches matches(string, string) -> bool
matches_string .matches(string, string) -> bool
timestamp_to_year .getFullYear(timestamp) -> int
timestamp_to_year_with_tz .getFullYear(timestamp, string) -> int
timestamp_to_month .getMonth(timestamp) -> int
timestamp_to_month_with_tz .getMonth(timestamp, string) -> int
timestamp_to_day_of_year .getDayOfYear(timestamp) -> int
timestamp_to_day_of_year_with_tz .getDayOfYear(timestamp, string) -> int
timestamp_to_day_of_month .getDayOfMonth(timestamp) -> int
timestamp_to_day_of_month_with_tz .getDayOfMonth(timestamp, string) -> int
timestamp_to_day_of_month_1_based .getDate(timestamp) -> int
timestamp_to_day_of_month_1_based_with_tz .getDate(timestamp, string) -> int
timestamp_to_day_of_week .getDayOfWeek(timestamp) -> int
timestamp_to_day_of_week_with_tz .getDayOfWeek(timestamp, string) -> int
timestamp_to_hours .getHours(timestamp) -> int
timestamp_to_hours_with_tz .getHours(timestamp, string) -> int
duration_to_hours .getHours(duration) -> int
timestamp_to_minutes .getMinutes(timestamp) -> int
timestamp_to_minutes_with_tz .getMinutes(timestamp, string) -> int
duration_to_minutes .getMinutes(duration) -> int
timestamp_to_seconds .getSeconds(timestamp) -> int
timestamp_to_seconds_tz .getSeconds(timestamp, string) -> int
duration_to_seconds .getSeconds(duration) -> int
timestamp_to_milliseconds .getMilliseconds(timestamp) -> int
timestamp_to_milliseconds_with_tz .getMilliseconds(timestamp, string) -> int
duration_to_milliseconds .getMilliseconds(duration) -> int
optional_of optional.of(V) -> optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue(V) -> optional(V)
optional_none optional.none() -> optional(V)
optional_value .value(optional(V)) -> V
optional_hasValue .hasValue(optional(V)) -> bool
optional_or_optional .or(optional(V), optional(V)) -> optional(V)
optional_orValue_value .orValue(optional(V), V) -> V
list_last .last(list(V)) -> optional(V)
list_first .first(list(V)) -> optional(V)
optional_unwrap optional.unwrap(list(optional(V))) -> list(V)
optional_unwrapOpt .unwrapOpt(list(optional(V))) -> list(V)
string_char_at_int .charAt(string, int) -> string
string_index_of_string .indexOf(string, string) -> int
string_index_of_string_int .indexOf(string, string, int) -> int
list_a_index_of_int .indexOf(list(A), A) -> int
string_last_index_of_string .lastIndexOf(string, string) -> int
string_last_index_of_string_int .lastIndexOf(string, string, int) -> int
list_a_last_index_of_int .lastIndexOf(list(A), A) -> int
string_lower_ascii .lowerAscii(string) -> string
string_upper_ascii .upperAscii(string) -> string
string_replace_string_string .replace(string, string, string) -> string
string_replace_string_string_int .replace(string, string, string, int) -> string
string_split_string .split(string, string) -> list(string)
string_split_string_int .split(string, string, int) -> list(string)
string_substring_int .substring(string, int) -> string
string_substring_int_int .substring(string, int, int) -> string
string_trim .trim(string) -> string
string_format .format(string, list(dyn)) -> string
strings_quote strings.quote(string) -> string
list_join .join(list(string)) -> string
list_join_string .join(list(string), string) -> string
list_sets_contains_list sets.contains(list(T), list(T)) -> bool
list_sets_equivalent_list sets.equivalent(list(T), list(T)) -> bool
list_sets_intersects_list sets.intersects(list(T), list(T)) -> bool
list_slice .slice(list(T), int, int) -> list(T)
list_flatten .flatten(list(list(T))) -> list(T)
list_flatten_int .flatten(list(dyn), int) -> list(dyn)
lists_range lists.range(int) -> list(int)
list_reverse .reverse(list(T)) -> list(T)
list_distinct .distinct(list(T)) -> list(T)
list_includes_dyn_dyn .includes(dyn, dyn) -> bool
string_find_string .find(string, string) -> string
string_find_all_string .findAll(string, string) -> list(string)
string_find_all_string_int .findAll(string, string, int) -> list(string)
string_to_url url(string) -> URL
is_url_string isURL(string) -> bool
url_get_scheme .getScheme(URL) -> string
url_get_host .getHost(URL) -> string
url_get_hostname .getHostname(URL) -> string
url_get_port .getPort(URL) -> string
url_get_escaped_path .getEscapedPath(URL) -> string
url_get_query .getQuery(URL) -> map(string, list(string))
string_to_quantity quantity(string) -> Quantity
is_quantity_string isQuantity(string) -> bool
quantity_sign sign(Quantity) -> int
quantity_get_float .asApproximateFloat(Quantity) -> double
quantity_get_int .asInteger(Quantity) -> int
quantity_is_integer .isInteger(Quantity) -> bool
quantity_add .add(Quantity, Quantity) -> Quantity
quantity_add_int .add(Quantity, int) -> Quantity
quantity_sub .sub(Quantity, Quantity) -> Quantity
quantity_sub_int .sub(Quantity, int) -> Quantity
quantity_is_greater_than .isGreaterThan(Quantity, Quantity) -> bool
semver_is_greater_than .isGreaterThan(Semver, Semver) -> bool
quantity_is_less_than .isLessThan(Quantity, Quantity) -> bool
semver_is_less_than .isLessThan(Semver, Semver) -> bool
quantity_compare_to .compareTo(Quantity, Quantity) -> int
semver_compare_to .compareTo(Semver, Semver) -> int
string_to_semver semver(string) -> Semver
string_bool_to_semver semver(string, bool) -> Semver
is_semver_string isSemver(string) -> bool
is_semver_string_bool isSemver(string, bool) -> bool
semver_major .major(Semver) -> int
semver_minor .minor(Semver) -> int
semver_patch .patch(Semver) -> int
string_to_ip ip(string) -> IP
is_ip isIP(string) -> bool
ip_is_canonical ip.isCanonical(string) -> bool
ip_family .family(IP) -> int
ip_is_unspecified .isUnspecified(IP) -> bool
ip_is_loopback .isLoopback(IP) -> bool
ip_is_link_local_multicast .isLinkLocalMulticast(IP) -> bool
ip_is_link_local_unicast .isLinkLocalUnicast(IP) -> bool
ip_is_global_unicast .isGlobalUnicast(IP) -> bool
string_to_cidr cidr(string) -> CIDR
is_cidr isCIDR(string) -> bool
cidr_contains_ip_string .containsIP(CIDR, string) -> bool
cidr_contains_ip_ip .containsIP(CIDR, IP) -> bool
cidr_contains_cidr_string .containsCIDR(CIDR, string) -> bool
cidr_contains_cidr .containsCIDR(CIDR, CIDR) -> bool
cidr_ip .ip(CIDR) -> IP
cidr_prefix_length .prefixLength(CIDR) -> int
cidr_masked .masked(CIDR) -> CIDR
authorizer_path .path(Authorizer, string) -> PathCheck
authorizer_group .group(Authorizer, string) -> GroupCheck
authorizer_serviceaccount .serviceAccount(Authorizer, string, string) -> Authorizer
groupcheck_resource .resource(GroupCheck, string) -> ResourceCheck
resourcecheck_subresource .subresource(ResourceCheck, string) -> ResourceCheck
resourcecheck_namespace .namespace(ResourceCheck, string) -> ResourceCheck
resourcecheck_name .name(ResourceCheck, string) -> ResourceCheck
authorizer_fieldselector .fieldSelector(ResourceCheck, string) -> ResourceCheck
authorizer_labelselector .labelSelector(ResourceCheck, string) -> ResourceCheck
pathcheck_check .check(PathCheck, string) -> Decision
resourcecheck_check .check(ResourceCheck, string) -> Decision
decision_error .error(Decision) -> string
decision_errored .errored(Decision) -> bool
decision_allowed .allowed(Decision) -> bool
decision_reason .reason(Decision) -> string
format-named format.named(string) -> optional(Format)
format-validate .validate(Format, string) -> optional(list(string))
@mapInsert_map_key_value cel.@mapInsert(map(K, V), K, V) -> map(K, V)
@mapInsert_map_map cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)
"""
NAMED_FORMATS: Final = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "dns1123LabelPrefix", "dns1123SubdomainPrefix",
    "dns1035LabelPrefix", "qualifiedName", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip


def declarations() -> list[str]:
    """Every line of the table."""
    return [*_TABLE.strip().split("\n"), *_generated()]


def _generated() -> list[str]:
    """Overloads that upstream makes from templates."""
    lines: list[str] = []
    for function, name in _ORDER.items():
        for left in _COMPARABLE:
            for right in _COMPARED.get(left, [left]):
                parts = [name, _OVERLOAD_NAMES.get(left, left)]
                if right != left:
                    parts.append(_OVERLOAD_NAMES.get(right, right))
                lines.append(f"{'_'.join(parts)} {function}({left}, {right}) -> bool")
    for kind in ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]:
        lines.append(f"list_{kind}_is_sorted_bool .isSorted(list({kind})) -> bool")
        lines.append(f"list_{kind}_max_{kind} .max(list({kind})) -> {kind}")
        lines.append(f"list_{kind}_min_{kind} .min(list({kind})) -> {kind}")
        name = _MESSAGE_NAMES.get(kind, kind)
        lines.append(f"list_{name}_sort .sort(list({kind})) -> list({kind})")
        lines.append(
            f"list_{name}_sortByAssociatedKeys .@sortByAssociatedKeys(list(T), list({kind})) -> list(T)"
        )
    lines += [
        f"list_{kind}_sum_{kind} .sum(list({kind})) -> {kind}" for kind in (*_NUMBERS, "duration")
    ]
    lines += [f"format.{name} format.{name}() -> Format" for name in NAMED_FORMATS]
    return lines
