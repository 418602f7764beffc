"""Compiled expressions are remembered, and so are errors."""

import pytest

from allocator.cel import Compiler
from allocator.errors import CelCompileError
from allocator.model.devices import DeviceAttribute
from tests.allocator.cel.evaluation import device


def test_the_cache_returns_the_same_program_and_forgets_the_oldest():
    compiler = Compiler(size=2)
    first = compiler.selector("true")
    assert compiler.selector("true") is first
    compiler.selector("false")
    compiler.selector("true")
    compiler.selector("1 == 1")  # drops "false", the one not used for longest
    assert compiler.selector("true") is first


def test_the_cache_remembers_errors():
    compiler = Compiler()
    with pytest.raises(CelCompileError) as once:
        compiler.selector("nothing")
    with pytest.raises(CelCompileError) as again:
        compiler.selector("nothing")
    assert once.value.message == again.value.message
    assert compiler.derived("1").evaluate_value(device()) == DeviceAttribute(int_=1)


def test_selectors_and_derived_attributes_are_kept_apart():
    compiler = Compiler()
    assert compiler.derived("1") is not None
    with pytest.raises(CelCompileError):
        compiler.selector("1")
