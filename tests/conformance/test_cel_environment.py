"""What expressions may use is what upstream declares, to the last overload."""

import pytest

from allocator.cel.check.overloads import functions
from allocator.cel.syntax.macros import MACROS
from allocator.cel.types import Type
from tests.conformance.cel_environment import recorded

pytestmark = pytest.mark.conformance

# Declared upstream, and not to be called: the parser writes operators in another way, or no longer.
_NOT_CALLED = {"_?._", "_in_", "in", "__not_strictly_false__"}


def shown(type_: Type) -> str:
    """A type as upstream writes it."""
    name = f"<{type_.name}>" if type_.kind == "param" else type_.type_name
    return f"{name}({', '.join(map(shown, type_.params))})" if type_.params else name


def test_functions_and_overloads_are_upstreams_in_upstreams_order():
    ours = {
        name: [
            {"id": each.id, "member": each.member, "args": [shown(arg) for arg in each.args], "result": shown(each.result)}
            for each in overloads
        ]
        for name, overloads in functions().items()
    }  # fmt: skip
    upstream = recorded()["functions"]

    assert upstream.keys() - ours.keys() == _NOT_CALLED
    assert ours == {name: upstream[name] for name in upstream.keys() - _NOT_CALLED}


def test_macros_are_upstreams():
    ours = {f"{name}:{count}:true" for name, count in MACROS} | {"has:1:false"}

    assert ours == set(recorded()["macros"])


def test_device_is_the_only_variable():
    assert set(recorded()["variables"]) == {"device kubernetes.DRADevice"}
