"""How fast device selectors are: `python -m tests.benchmarks.cel_speed [DEVICES]`.

Prints, in CPU time, the mean time of one evaluation over 12 realistic selectors, the time to compile one and to prepare a device,
and the time of DEVICES (default 40,000) x 24 selectors.
"""

import statistics
import sys
import time
from collections.abc import Sequence

from allocator.cel import DeviceValues, Program, compile_selector, prepare_device
from allocator.model.devices import Device, DeviceAttribute, DeviceCapacity
from allocator.quantity import Quantity

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


def device(at: int) -> DeviceValues:
    """A device with 12 attributes and one capacity; uuid, index and PCI address are its own."""
    texts = {
        "type": "gpu",
        "productName": "Model A100-SXM4-80GB" if at % 2 else "Model L4",
        "architecture": "Ampere" if at % 2 else "Ada",
        "brand": "Brand",
        "uuid": f"GPU-{at}",
        "resource.kubernetes.io/pciBusID": f"0000:{at % 256:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{at % 16:02x}",
    }
    attributes = {name: DeviceAttribute(string=text) for name, text in texts.items()}
    numbers = {"index": at % 8, "minor": at % 8, "resource.kubernetes.io/numaNode": at % 2}
    attributes |= {name: DeviceAttribute(int_=number) for name, number in numbers.items()}
    attributes |= {
        "driverVersion": DeviceAttribute(version="550.54.15"),
        "cudaComputeCapability": DeviceAttribute(version="8.0.0"),
    }
    capacity = {"memory": DeviceCapacity(value=Quantity.parse("80Gi"))}
    return prepare_device(
        DRIVER, Device(name=f"gpu-{at}", attributes=attributes, capacity=capacity)
    )


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
