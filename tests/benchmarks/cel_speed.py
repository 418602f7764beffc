"""How fast device selectors are, alone and beside cel-python.

`python -m tests.benchmarks.cel_speed [DEVICES]` prints, in CPU time, the mean time of one evaluation over 12 realistic selectors, the
time to compile one and to prepare a device, and the time of DEVICES (default 40,000) x 24 selectors. `make bench BENCH=cel` prints the
ratios to cel-python, on the selectors that it knows.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from allocator.cel import DeviceValues, Program, compile_selector, prepare_device
from allocator.model.devices import Device
from allocator.model.hooks import dec_hook
from tests.benchmarks.plan import BenchFailedError, Plan
from tests.benchmarks.row import Row
from tests.conformance.cel_second_opinion import is_common
from tests.conformance.objects import Json

DRIVER = "gpu.example.com"
SELECTORS = (
    'device.attributes["gpu.example.com"].type == "gpu"',
    'device.attributes["gpu.example.com"].productName == "Model A100-SXM4-80GB"',
    'device.attributes["gpu.example.com"].architecture in ["Ampere", "Hopper"]',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("535.0.0"))',
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index < 4',
    'has(device.attributes["gpu.example.com"].migProfile) && device.attributes["gpu.example.com"].migProfile == "1g.10gb"',
    'device.attributes["gpu.example.com"].productName.lowerAscii().matches("^.*a100.*$")',
    'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.type == "gpu" && gpu.brand == "Brand")',
    'device.attributes["resource.kubernetes.io"].?numaNode.orValue(-1) == 0',
    'device.attributes["gpu.example.com"].uuid in ["GPU-1", "GPU-2", "GPU-3"]'
    ' || device.attributes["gpu.example.com"].minor == 3',
    '["Ampere", "Hopper"].exists(a, device.attributes["gpu.example.com"].architecture == a)',
)


def body(at: int) -> Json:
    """A device with 12 attributes and one capacity, as the API has it; uuid, index and PCI address are its own."""
    texts = {
        "type": "gpu",
        "productName": "Model A100-SXM4-80GB" if at % 2 else "Model L4",
        "architecture": "Ampere" if at % 2 else "Ada",
        "brand": "Brand",
        "uuid": f"GPU-{at}",
        "resource.kubernetes.io/pciBusID": f"0000:{at % 256:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{at % 16:02x}",
    }
    numbers = {"index": at % 8, "minor": at % 8, "resource.kubernetes.io/numaNode": at % 2}
    versions = {"driverVersion": "550.54.15", "cudaComputeCapability": "8.0.0"}
    return {
        "driver": DRIVER,
        "attributes": {
            **{name: {"string": text} for name, text in texts.items()},
            **{name: {"int": number} for name, number in numbers.items()},
            **{name: {"version": version} for name, version in versions.items()},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def model(at: int) -> Device:
    """The same, as the scheduler holds it."""
    fields = {name: value for name, value in body(at).items() if name != "driver"}
    return msgspec.convert({"name": f"gpu-{at}", **fields}, Device, dec_hook=dec_hook)


def device(at: int) -> DeviceValues:
    """The same, as expressions see it."""
    return prepare_device(DRIVER, model(at))


def common_selectors() -> list[str]:
    """The selectors that any implementation of the standard knows."""
    return [
        text for text in SELECTORS if is_common(compile_selector(text)) and "ersion" not in text
    ]


def microseconds(program: Program, devices: Sequence[DeviceValues]) -> float:
    """Mean time of one evaluation, best of three rounds."""
    evaluate = program.evaluate
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for values in devices:
            evaluate(values)
        best = min(best, time.process_time() - start)
    return best / len(devices) * 1e6


def _best(run: Callable[[], object], count: int) -> float:
    """CPU microseconds of each of so many, in the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def _ours(selectors: Sequence[str], count: int) -> dict[str, float]:
    """CPU microseconds of an evaluation, a compilation and a device, and how many devices match."""
    models = list(map(model, range(count)))
    devices = [prepare_device(DRIVER, each) for each in models]
    programs = list(map(compile_selector, selectors))
    return {
        "matches": sum(program.evaluate(each) for program in programs for each in devices),
        "evaluate": statistics.mean(microseconds(program, devices) for program in programs),
        "compile": _best(lambda: list(map(compile_selector, selectors)), len(selectors)),
        "prepare": _best(lambda: [prepare_device(DRIVER, each) for each in models], count),
    }


def _cel_python() -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.cel_python_speed"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchFailedError(f"cel-python does not run: {done.stderr.strip()[-200:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def cel(plan: Plan) -> None:
    """`cel`: one evaluation, one compilation and one device beside cel-python, on selectors that both know."""
    selectors = common_selectors()
    pairs = [(_ours(selectors, 200), _cel_python()) for _ in range(plan.repetitions)]
    if any(ours["matches"] != theirs["matches"] for ours, theirs in pairs):
        raise BenchFailedError("cel-python does not find the same devices")
    for what, reach in (("evaluate", 0.1), ("compile", None), ("prepare", None)):
        ours, theirs = ([figures[what] for figures in side] for side in zip(*pairs, strict=True))
        shape = f"{what}, {len(selectors)} selectors"
        plan.report(Row("cel", shape, ours, theirs, "µs of CPU", "lower", reach))


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    start = time.process_time()
    devices = [device(at) for at in range(count)]
    print(f"build and prepare {count} devices: {time.process_time() - start:.2f} s")
    programs: list[Program] = []
    start = time.process_time()
    for _ in range(20):
        programs = [compile_selector(text) for text in SELECTORS]
    print(f"compile: {(time.process_time() - start) / 20 / len(SELECTORS) * 1e6:.0f} µs a selector")
    times = [microseconds(program, devices[:10_000]) for program in programs]
    for text, taken in zip(SELECTORS, times, strict=True):
        print(f"  {taken:5.2f} µs  {text[:90]}")
    print(f"evaluate: {statistics.mean(times):.2f} µs in the mean of {len(times)} selectors")
    programs = [
        compile_selector(text + " ") for text in (*SELECTORS, *(f"({text})" for text in SELECTORS))
    ]
    start = time.process_time()
    for program in programs:
        evaluate = program.evaluate
        for values in devices:
            evaluate(values)
    print(f"{count} devices x {len(programs)} selectors: {time.process_time() - start:.2f} s")


if __name__ == "__main__":
    main()
