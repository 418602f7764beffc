"""A program knows what it reads of a device, and nothing else matters to it."""

import json
from pathlib import Path

import msgspec
import pytest

from allocator.cel import Read, compile_selector, prepare_device
from allocator.errors import CelRuntimeError
from allocator.model.devices import Device
from allocator.model.hooks import dec_hook

A = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'

CORPUS = Path(__file__).parents[3] / "conformance" / "cel" / "cel-corpus.jsonl"


def attribute(name, domain="d.example.com"):
    return Read("attribute", domain, name)


READS = [
    ("true", set()),
    ('device.driver == "x"', {Read("driver")}),
    ("device.allowMultipleAllocations", {Read("allowMultipleAllocations")}),
    (f"{A}.model == 'x' && {A}['count'] == 1", {attribute("model"), attribute("count")}),
    ("device.attributes.d.m == 1", {attribute("m", "d")}),
    (f"{A}.?m.hasValue() || {A}[?'n'].hasValue()", {attribute("m"), attribute("n")}),
    (f"has({A}.m)", {attribute("m")}),
    (f"'m' in {A}", {attribute("m")}),
    (f'{C}.memory.isLessThan(quantity("1"))', {Read("capacity", "d.example.com", "memory")}),
    (f"cel.bind(g, {A}, g.model == 'x' && has(g.n))", {attribute("model"), attribute("n")}),
    (f"[1].exists(x, x == {A}.count)", {attribute("count")}),
    (f"{A}.model.startsWith('x') ? {A}.flag : false", {attribute("model"), attribute("flag")}),
    ("device.attributes.size() == 1", None),
    ('"d" in device.attributes', None),
    (f"{A}.size() == 1", None),
    (f"{A}[device.driver] == 1", None),
    (f"cel.bind(g, {A}, g.size() == 1)", None),
    ("device.attributes.exists(d, d == 'x')", None),
    ("dyn(device).driver == 'x'", None),
]


@pytest.mark.parametrize(("expression", "reads"), READS)
def test_a_program_knows_what_it_reads(expression, reads):
    found = compile_selector(expression).reads
    assert found == (None if reads is None else frozenset(reads))


def _reduced(body, reads):
    """The device without everything that is not among the reads, and with the flag turned round."""
    driver = body["driver"]

    def kept(kind, entries):
        return {
            name: value
            for name, value in (entries or {}).items()
            if Read(kind, *(name.split("/", 1) if "/" in name else (driver, name))) in reads
        }

    flag = body.get("allowMultipleAllocations", False)
    return {
        "attributes": kept("attribute", body.get("attributes")),
        "capacity": kept("capacity", body.get("capacity")),
        "allowMultipleAllocations": flag if Read("allowMultipleAllocations") in reads else not flag,
    }


def _verdict(program, driver, body):
    values = prepare_device(
        driver, msgspec.convert({"name": "d", **body}, Device, dec_hook=dec_hook)
    )
    try:
        return program.evaluate(values)
    except CelRuntimeError:
        return None


def test_what_a_program_does_not_read_does_not_matter():
    wrong, compared = [], 0
    for line in CORPUS.read_text().splitlines():
        case = json.loads(line)
        body = {name: value for name, value in case["device"].items() if name != "driver"}
        driver = case["device"]["driver"]
        if case["expected"] not in ("true", "false") or case["kind"] == "cost":
            continue
        program = compile_selector(case["expr"])
        if program.reads is None:
            continue
        compared += 1
        smaller = _reduced(case["device"], program.reads)
        if _verdict(program, driver, body) != _verdict(program, driver, smaller):
            wrong.append(case["id"])
    assert wrong == []
    assert compared > 300
