"""What an allocation holds: node selectors, configuration, copies (behaviours 81 and 82)."""

from tests.conformance.cases.case import case
from tests.conformance.objects import (
    alternative,
    claim,
    device,
    device_class,
    expression,
    first_of,
    label_selector,
    node,
    request,
    slice_,
    toleration,
)

_ZONE = label_selector([expression("zone", "In", "a")])
_ZONES = label_selector([expression("zone", "In", "b", "a"), expression("disk", "Exists")])
_ZONES_AGAIN = label_selector(
    [
        expression("zone", "In", "a", "b"),
        expression("disk", "Exists"),
        expression("zone", "In", "a"),
    ]
)
_HERE = node(labels={"zone": "a", "disk": "ssd"})
_THREE = [claim("c", request("r", 3))]
_CLS = device_class("k", config=["k1", "k2"])
_CLS2 = device_class("k2", config=["k3"])


def _everywhere(name, dev, **spec):
    return slice_(f"s-{name}", dev, pool=name, node=None, **spec)


_GLOBAL = _everywhere("p-all", device("all"), allNodes=True)
_BY_ZONE = _everywhere("p-zone", device("zone"), nodeSelector=_ZONE)
_BY_ZONES = _everywhere("p-zones", device("zones"), nodeSelector=_ZONES)

CASES = [
    case("081-a-local-device-decides", "local all zone", _THREE, [_GLOBAL, _BY_ZONE, slice_("s-l", device("local"), pool="a")],
         on_node=_HERE, variants="ie"),
    case("081-selectors-are-merged", "all zone zones", _THREE, [_GLOBAL, _BY_ZONE, _BY_ZONES], on_node=_HERE),
    case("081-duplicates-are-removed-by-value-set", "zone zones again", _THREE,
         [_BY_ZONE, _BY_ZONES, _everywhere("pz", device("again"), nodeSelector=_ZONES_AGAIN)], on_node=_HERE),
    case("081-only-all-nodes", "all", [claim("c", request("r"))], [_GLOBAL], on_node=_HERE, variants="ies"),
    case("081-fields-are-merged", "field zone", [claim("c", request("r", 2))],
         [_everywhere("p-field", device("field"), nodeSelector={"nodeSelectorTerms": [
             {"matchFields": [expression("metadata.name", "In", "node-1")]}]}), _BY_ZONE], on_node=_HERE),
    case("081-each-claim-has-its-own-selector", "local|all|zone",
         [claim("c1", request("r")), claim("c2", request("r")), claim("c3", request("r"))],
         [_GLOBAL, _BY_ZONE, slice_("s-l", device("local"), pool="a")], on_node=_HERE),
    case("082-class-config-of-two-of-three-requests", "a b c",
         [claim("c", request("a", cls="k"), request("b", cls="k2"), request("e", cls="k"),
                config=[("all", []), ("b", ["b"]), ("abe", ["a", "b", "e"]), ("ea", ["e", "a"])])],
         [slice_("s", device("a"), device("b"), device("c"))], classes=[_CLS, _CLS2], variants="ies"),
    case("082-one-class-claim-has-no-request-lists", "a b", [claim("c", request("a", cls="k"), request("b", cls="k"))],
         [slice_("s", device("a"), device("b"))], classes=[_CLS], variants="ies"),
    case("082-class-config-of-the-selected-alternative", "a b",
         [claim("c", first_of("r", alternative("s0", cls="k", sel=("false",)), alternative("s1", cls="k2")), request("o", cls="k2"),
                config=[("r", ["r"]), ("s0", ["r/s0"]), ("s1", ["r/s1"])])],
         [slice_("s", device("a"), device("b"))], classes=[_CLS, _CLS2], variants="ies"),
    case("config-for-an-unknown-request", "a", [claim("c", request("a"), request("z", 0), config=[("u", ["nope"])])],
         [slice_("s", device("a"))]),
    case("config-of-a-request-with-zero-devices", "a",
         [claim("c", request("a", cls="k"), request("z", 0, cls="k2"), config=[("z", ["z"])])],
         [slice_("s", device("a"))], classes=[_CLS, _CLS2]),
    case("request-names-of-alternatives-and-tolerations", "a",
         [claim("c", first_of("r", alternative("s0", sel=("false",), tol=[toleration("x")]),
                              alternative("s1", tol=[toleration("t", tolerationSeconds=30), toleration("u", "Equal", "v", "NoExecute")])))],
         [slice_("s", device("a"))], variants="ies"),
]  # fmt: skip
