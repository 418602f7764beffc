"""Every rule of API validation with an object that passes and one that is refused."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from allocator.features import Features
from scheduler.validation import ERRORS, RULES, WARNINGS, Severity, validate_object
from tests.scheduler.validation.objects import (
    ALLOCATED,
    CLAIM,
    CLASS,
    COUNTERS,
    GONE,
    POD,
    RULE,
    SHARED,
    SLICE,
    TEMPLATE,
    VALUES,
    Json,
    edited,
)

ALL = Features(
    fractional_capacity_range=True,
    list_type_attributes=True,
    derived_attributes=True,
    device_compatibility_groups=True,
    optional_node_operations=True,
    partitionable_devices_type=True,
    node_allocatable_resources=True,
)
D = "spec.devices[0]"
R = "spec.devices.requests"
P = f"{D}.capacity.memory.requestPolicy"
SHOWN_P = f'{D}.capacity["memory"].requestPolicy'


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to break a rule.

    Attributes:
        rule: that is broken.
        base: a good object.
        bad: edits that break it.
        path: where it is reported.
        good: edits close by that do not break it.
        features: gates.
        namespaces: labels by namespace.
    """

    rule: str
    base: Json
    bad: Json
    path: str
    good: Json = field(default_factory=dict)
    features: Features = ALL
    namespaces: Any = None


def many(count: int, item: Any) -> list[Any]:
    return [item(index) for index in range(count)]


def consumed(name: str = "gpu-0", **fields: Any) -> Json:
    return {"counterSet": name, "counters": {"memory": {"value": "1Gi"}}, **fields}


def term(*requirements: Json, **fields: Any) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements), **fields}]}


def loop(rounds: int) -> str:
    """An expression of which 300 rounds are within the cost limit, 400 are not."""
    return f"lists.range({rounds}).all(a, lists.range({rounds}).all(b, a > b))"


OPAQUE: Json = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
IN = {"key": "zone", "operator": "In", "values": ["a"]}
SELECTED = edited(SLICE, {"spec.nodeName": GONE, "spec.nodeSelector": term(IN)})
PER_DEVICE = edited(
    SLICE, {"spec.nodeName": GONE, "spec.perDeviceNodeSelection": True, f"{D}.nodeName": "node-1"}
)
TYPED = edited(
    SLICE,
    {
        "spec.partitionTypeAttribute": "gpu.example.com/model",
        f"{D}.consumesCounters": [consumed()],
    },
)
DERIVED = edited(
    CLAIM,
    {f"{R}[0].exactly.derivedAttributes": [{"name": "example.com/root", "expression": "1"}]},
)
NODE_ALLOCATABLE = edited(
    SLICE,
    {
        f"{D}.nodeAllocatableResources": {
            "memory": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}
        }
    },
)
BINDING = edited(SLICE, {f"{D}.bindingConditions": ["a/b"], f"{D}.bindingFailureConditions": ["c"]})
ADMIN = edited(CLAIM, {f"{R}[0].exactly.adminAccess": True})
ADMIN_LABEL = {"default": {"resource.kubernetes.io/admin-access": "true"}}

ROWS = [
    Row(
        rule="version",
        base=SLICE,
        bad={"apiVersion": "resource.k8s.io/v1alpha3"},
        path="apiVersion",
        good={"apiVersion": "resource.k8s.io/v1beta2"},
    ),
    Row(rule="version", base=POD, bad={"apiVersion": GONE}, path="apiVersion"),
    Row(
        rule="type",
        base=SLICE,
        bad={"spec.pool.generation": "1"},
        path="spec.pool.generation",
        good={"spec.pool.generation": 0},
    ),
    Row(rule="type", base=SLICE, bad={"kind": GONE}, path="kind"),
    Row(
        rule="type",
        base=SLICE,
        bad={f"{D}.capacity.memory": {"value": "1 Gi"}},
        path=f'{D}.capacity["memory"].value',
        good={f"{D}.capacity.memory": {}},
    ),
    Row(
        rule="object-name",
        base=SLICE,
        bad={"metadata.name": "A_b"},
        path="metadata.name",
        good={"metadata.name": "a.b-1"},
    ),
    Row(
        rule="object-name",
        base=CLASS,
        bad={"metadata.name": GONE},
        path="metadata.name",
        good={"metadata.name": GONE, "metadata.generateName": "x-"},
    ),
    Row(
        rule="driver-name",
        base=SLICE,
        bad={"spec.driver": GONE},
        path="spec.driver",
        good={"spec.driver": "a" * 63},
    ),
    Row(rule="driver-name", base=SLICE, bad={"spec.driver": "a" * 64}, path="spec.driver"),
    Row(rule="driver-name", base=SLICE, bad={"spec.driver": "a/b"}, path="spec.driver"),
    Row(
        rule="pool-name",
        base=SLICE,
        bad={"spec.pool.name": ""},
        path="spec.pool.name",
        good={"spec.pool.name": "a/b.c"},
    ),
    Row(rule="pool-name", base=SLICE, bad={"spec.pool.name": "a//b"}, path="spec.pool.name"),
    Row(rule="pool-name", base=SLICE, bad={"spec.pool.name": "A"}, path="spec.pool.name"),
    Row(rule="pool-name", base=SLICE, bad={"spec.pool.name": "a" * 254}, path="spec.pool.name"),
    Row(
        rule="pool-counts",
        base=SLICE,
        bad={"spec.pool.resourceSliceCount": 0},
        path="spec.pool.resourceSliceCount",
    ),
    Row(
        rule="pool-counts",
        base=SLICE,
        bad={"spec.pool.generation": -1},
        path="spec.pool.generation",
        good={"spec.pool.generation": 0},
    ),
    Row(
        rule="node-selection",
        base=SLICE,
        bad={"spec.nodeName": GONE},
        path="spec",
        good={"spec.nodeName": GONE, "spec.allNodes": True},
    ),
    Row(rule="node-selection", base=SLICE, bad={"spec.allNodes": True}, path="spec"),
    Row(
        rule="node-selection",
        base=SLICE,
        bad={"spec.nodeName": "", "spec.allNodes": True},
        path="spec.nodeName",
    ),
    Row(rule="node-selection", base=SLICE, bad={"spec.allNodes": False}, path="spec.allNodes"),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector.nodeSelectorTerms[1]": {"matchExpressions": [IN]}},
        path="spec.nodeSelector.nodeSelectorTerms",
    ),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector": term({**IN, "operator": "Exists"})},
        path="spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values",
        good={"spec.nodeSelector": term({"key": "a", "operator": "Exists"})},
    ),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector": term({**IN, "values": []})},
        path="spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values",
    ),
    Row(
        rule="selector-number",
        base=SELECTED,
        bad={"spec.nodeSelector": term({"key": "a", "operator": "Gt", "values": ["x"]})},
        path="spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values[0]",
        good={"spec.nodeSelector": term({"key": "a", "operator": "Gt", "values": ["1"]})},
    ),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={
            "spec.nodeSelector": term(
                matchFields=[{"key": "metadata.uid", "operator": "In", "values": ["a"]}]
            )
        },
        path="spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].key",
        good={
            "spec.nodeSelector": term(
                matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a"]}]
            )
        },
    ),
    Row(
        rule="devices-or-counters",
        base=SLICE,
        bad={"spec.sharedCounters": COUNTERS["spec"]["sharedCounters"]},
        path="spec",
    ),
    Row(
        rule="devices",
        base=SLICE,
        bad={"spec.devices": many(129, lambda i: {"name": f"d{i}"})},
        path="spec.devices",
        good={"spec.devices": many(128, lambda i: {"name": f"d{i}"})},
    ),
    Row(
        rule="devices",
        base=SLICE,
        bad={
            "spec.devices": many(65, lambda i: {"name": f"d{i}", "consumesCounters": [consumed()]})
        },
        path="spec.devices",
        good={
            "spec.devices": many(64, lambda i: {"name": f"d{i}", "consumesCounters": [consumed()]})
        },
    ),
    Row(
        rule="devices",
        base=SLICE,
        bad={"spec.devices[1]": {"name": "gpu-0"}},
        path="spec.devices[1]",
        good={"spec.devices[1]": {"name": "gpu-1"}},
    ),
    Row(
        rule="device-name",
        base=SLICE,
        bad={f"{D}.name": "a.b"},
        path=f"{D}.name",
        good={f"{D}.name": "a" * 63},
    ),
    Row(
        rule="device-entries",
        base=SLICE,
        bad={f"{D}.attributes": {f"a{i}": {"int": i} for i in range(32)}},
        path=D,
        good={f"{D}.attributes": {f"a{i}": {"int": i} for i in range(31)}},
    ),
    Row(
        rule="device-entries",
        base=SLICE,
        bad={f"{D}.attributes": {"a": {"ints": list(range(49))}}},
        path=D,
        good={f"{D}.attributes": {"a": {"ints": list(range(48))}}},
    ),
    Row(
        rule="qualified-name",
        base=SLICE,
        bad={f"{D}.attributes": {"a-b": {"int": 1}}},
        path=f'{D}.attributes["a-b"]',
        good={f"{D}.attributes": {"example.com/a_b": {"int": 1}}},
    ),
    Row(
        rule="qualified-name",
        base=SLICE,
        bad={f"{D}.attributes": {"/a": {"int": 1}}},
        path=f'{D}.attributes["/a"]',
    ),
    Row(
        rule="qualified-name",
        base=SLICE,
        bad={f"{D}.capacity": {"a/": {"value": "1"}}},
        path=f'{D}.capacity["a/"]',
    ),
    Row(
        rule="qualified-name",
        base=SLICE,
        bad={f"{D}.attributes": {"a" * 33: {"int": 1}}},
        path=f'{D}.attributes["{"a" * 33}"]',
        good={f"{D}.attributes": {"a" * 32: {"int": 1}}},
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {}},
        path=f'{D}.attributes["model"]',
        good={f"{D}.attributes.model": {"bool": False}},
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"int": 0, "string": ""}},
        path=f'{D}.attributes["model"]',
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"string": "é" * 33}},
        path=f'{D}.attributes["model"].string',
        good={f"{D}.attributes.model": {"string": "é" * 32}},
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"version": "v1.0.0"}},
        path=f'{D}.attributes["model"].version',
        good={f"{D}.attributes.model": {"version": "1.0.0-rc.1+build.5"}},
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"version": "1.02.3"}},
        path=f'{D}.attributes["model"].version',
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"strings": []}},
        path=f'{D}.attributes["model"].strings',
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"versions": ["1.0.0", "1"]}},
        path=f'{D}.attributes["model"].versions[1]',
    ),
    Row(
        rule="attribute-value",
        base=SLICE,
        bad={f"{D}.attributes.model": {"ints": [1]}},
        path=f'{D}.attributes["model"]',
        features=Features(),
    ),
    Row(
        rule="request-policy",
        base=SHARED,
        bad={f"{D}.allowMultipleAllocations": False},
        path=SHOWN_P,
    ),
    Row(rule="request-policy", base=SHARED, bad={f"{P}.validValues": ["10Gi"]}, path=SHOWN_P),
    Row(rule="valid-values", base=VALUES, bad={f"{P}.default": GONE}, path=f"{SHOWN_P}.default"),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.default": "15Gi"},
        path=f"{SHOWN_P}.validValues",
        good={f"{P}.default": "20Gi"},
    ),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.validValues": ["20Gi", "10Gi"]},
        path=f"{SHOWN_P}.validValues[1]",
    ),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.validValues": ["10Gi", "81Gi"]},
        path=f"{SHOWN_P}.validValues[1]",
        good={f"{P}.validValues": ["10Gi", "80Gi"]},
    ),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.validValues": many(11, lambda i: f"{i + 10}Gi")},
        path=f"{SHOWN_P}.validValues",
        good={f"{P}.validValues": many(10, lambda i: f"{i + 10}Gi")},
    ),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.default": "1", f"{P}.validValues": ["500m", "1"]},
        path=f"{SHOWN_P}.validValues[1]",
        features=Features(),
    ),
    Row(
        rule="valid-values",
        base=VALUES,
        bad={f"{P}.validValues": ["10Gi", "10Gi"]},
        path=f"{SHOWN_P}.validValues[1]",
        good={f"{P}.default": "1", f"{P}.validValues": ["500m", "1"]},
    ),
    Row(rule="valid-range", base=SHARED, bad={f"{P}.default": GONE}, path=f"{SHOWN_P}.default"),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.validRange.min": GONE},
        path=f"{SHOWN_P}.validRange.min",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "81Gi", f"{P}.validRange": {"min": "81Gi"}},
        path=f"{SHOWN_P}.validRange.min",
        good={f"{P}.validRange": {"min": "10Gi"}},
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "5Gi", f"{P}.validRange": {"min": "10Gi"}},
        path=f"{SHOWN_P}.validRange.default",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "50Gi"},
        path=f"{SHOWN_P}.validRange.default",
        good={f"{P}.default": "40Gi"},
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.validRange.max": "90Gi"},
        path=f"{SHOWN_P}.validRange.max",
        good={f"{P}.validRange.max": "80Gi"},
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "3Gi", f"{P}.validRange": {"min": "3Gi", "max": "2Gi"}},
        path=f"{SHOWN_P}.validRange.max",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.validRange.step": "0"},
        path=f"{SHOWN_P}.validRange.step",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.validRange.step": "7Gi"},
        path=f"{SHOWN_P}.validRange.step",
        good={f"{P}.validRange.step": "15Gi"},
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.validRange": {"min": "10Gi", "step": "71Gi"}},
        path=f"{SHOWN_P}.validRange.step",
        good={f"{P}.validRange": {"min": "10Gi", "step": "70Gi"}},
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "0", f"{P}.validRange": {"min": "-1", "step": "1"}},
        path=f"{SHOWN_P}.validRange.min",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "1", f"{P}.validRange": {"min": "1", "step": "100u"}},
        path=f"{SHOWN_P}.validRange.step",
        good={f"{P}.default": "1500m", f"{P}.validRange": {"min": "1", "step": "250m"}},
    ),
    Row(
        rule="taint",
        base=SLICE,
        bad={f"{D}.taints": many(17, lambda i: {"key": "k", "effect": "None"})},
        path=f"{D}.taints",
        good={f"{D}.taints": many(16, lambda i: {"key": "k", "effect": "None"})},
    ),
    Row(
        rule="taint",
        base=SLICE,
        bad={f"{D}.taints": [{"effect": "NoSchedule"}]},
        path=f"{D}.taints[0].key",
    ),
    Row(
        rule="taint", base=SLICE, bad={f"{D}.taints": [{"key": "k"}]}, path=f"{D}.taints[0].effect"
    ),
    Row(
        rule="taint",
        base=SLICE,
        bad={f"{D}.taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
        path=f"{D}.taints[0].effect",
    ),
    Row(
        rule="taint",
        base=SLICE,
        bad={f"{D}.taints": [{"key": "k", "effect": "None", "value": "a b"}]},
        path=f"{D}.taints[0].value",
    ),
    Row(rule="taint", base=RULE, bad={"spec.taint.effect": GONE}, path="spec.taint.effect"),
    Row(
        rule="consumes-counters",
        base=SLICE,
        bad={f"{D}.consumesCounters": many(3, lambda i: consumed(f"s{i}"))},
        path=f"{D}.consumesCounters",
        good={f"{D}.consumesCounters": many(2, lambda i: consumed(f"s{i}"))},
    ),
    Row(
        rule="consumes-counters",
        base=SLICE,
        bad={f"{D}.consumesCounters": [consumed(), consumed()]},
        path=f"{D}.consumesCounters[1]",
    ),
    Row(
        rule="consumes-counters",
        base=SLICE,
        bad={f"{D}.consumesCounters": [{"counterSet": "s"}]},
        path=f"{D}.consumesCounters[0].counters",
    ),
    Row(
        rule="consumes-counters",
        base=SLICE,
        bad={f"{D}.consumesCounters": [consumed("")]},
        path=f"{D}.consumesCounters[0].counterSet",
    ),
    Row(
        rule="compatibility-groups",
        base=SLICE,
        bad={f"{D}.consumesCounters": [consumed(compatibilityGroups=["a", "b", "c"])]},
        path=f"{D}.consumesCounters[0].compatibilityGroups",
        good={f"{D}.consumesCounters": [consumed(compatibilityGroups=["a", "b"])]},
    ),
    Row(
        rule="compatibility-groups",
        base=SLICE,
        bad={f"{D}.consumesCounters": [consumed(compatibilityGroups=["a", "a"])]},
        path=f"{D}.consumesCounters[0].compatibilityGroups[1]",
    ),
    Row(
        rule="shared-counters",
        base=COUNTERS,
        bad={
            "spec.sharedCounters": many(
                9, lambda i: {"name": f"s{i}", "counters": {"a": {"value": "1"}}}
            )
        },
        path="spec.sharedCounters",
        good={
            "spec.sharedCounters": many(
                8, lambda i: {"name": f"s{i}", "counters": {"a": {"value": "1"}}}
            )
        },
    ),
    Row(
        rule="shared-counters",
        base=COUNTERS,
        bad={"spec.sharedCounters[0].counters": {}},
        path="spec.sharedCounters[0].counters",
    ),
    Row(
        rule="shared-counters",
        base=COUNTERS,
        bad={"spec.sharedCounters[0].counters": {f"c{i}": {"value": "1"} for i in range(33)}},
        path="spec.sharedCounters[0].counters",
        good={"spec.sharedCounters[0].counters": {f"c{i}": {"value": "1"} for i in range(32)}},
    ),
    Row(
        rule="shared-counters",
        base=COUNTERS,
        bad={"spec.sharedCounters[0].counters": {"A": {"value": "1"}}},
        path='spec.sharedCounters[0].counters["A"]',
    ),
    Row(rule="device-node-selection", base=SLICE, bad={f"{D}.nodeName": "node-1"}, path=D),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector": term({"key": "a", "operator": "Lt", "values": ["1", "2"]})},
        path="spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values",
    ),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector": {"nodeSelectorTerms": []}},
        path="spec.nodeSelector.nodeSelectorTerms",
    ),
    Row(
        rule="node-selector",
        base=SELECTED,
        bad={"spec.nodeSelector": term({**IN, "values": ["a b"]})},
        path="spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values[0]",
    ),
    Row(
        rule="labels",
        base=SLICE,
        bad={"metadata.labels": {"a": "x."}},
        path='metadata.labels["a"]',
        good={"metadata.labels": {"a.b/c": ""}},
    ),
    Row(
        rule="labels",
        base=SLICE,
        bad={"metadata.annotations": {"a b": ""}},
        path='metadata.annotations["a b"]',
        good={"metadata.annotations": {"A/b": "any text"}},
    ),
    Row(
        rule="labels",
        base=TEMPLATE,
        bad={"spec.metadata.labels": {"*": "x"}},
        path='spec.metadata.labels["*"]',
    ),
    Row(
        rule="device-node-selection",
        base=PER_DEVICE,
        bad={f"{D}.nodeName": GONE},
        path=D,
        good={f"{D}.nodeName": GONE, f"{D}.allNodes": True},
    ),
    Row(rule="device-node-selection", base=PER_DEVICE, bad={f"{D}.allNodes": True}, path=D),
    Row(
        rule="device-node-selection",
        base=PER_DEVICE,
        bad={f"{D}.nodeName": ""},
        path=f"{D}.nodeName",
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingFailureConditions": GONE},
        path=f"{D}.bindingFailureConditions",
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingConditions": GONE},
        path=f"{D}.bindingConditions",
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingFailureConditions": ["a/b"]},
        path=f"{D}.bindingFailureConditions[0]",
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingConditions": many(5, lambda i: f"c{i}")},
        path=f"{D}.bindingConditions",
        good={f"{D}.bindingConditions": many(4, lambda i: f"c{i}")},
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingConditions": ["a", "a"]},
        path=f"{D}.bindingConditions[1]",
    ),
    Row(
        rule="skip-node-operations",
        base=SLICE,
        bad={"spec.skipNodeOperations": ["NodePrepareResources"]},
        path="spec.skipNodeOperations",
        good={"spec.skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"]},
    ),
    Row(
        rule="skip-node-operations",
        base=SLICE,
        bad={"spec.skipNodeOperations": ["Other"]},
        path="spec.skipNodeOperations[0]",
        good={"spec.skipNodeOperations": ["*"]},
    ),
    Row(
        rule="partition-type",
        base=TYPED,
        bad={f"{D}.consumesCounters": GONE},
        path="spec.partitionTypeAttribute",
    ),
    Row(
        rule="partition-type",
        base=TYPED,
        bad={f"{D}.attributes": {"model": {"int": 1}}},
        path=f"{D}.attributes",
        good={f"{D}.attributes": {"gpu.example.com/model": {"string": "a"}}},
    ),
    Row(
        rule="partition-type",
        base=TYPED,
        bad={"spec.partitionTypeAttribute": "model"},
        path="spec.partitionTypeAttribute",
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources": {"ephemeral-storage": {"overhead": {"perPod": "1"}}}},
        path=f'{D}.nodeAllocatableResources["ephemeral-storage"]',
        good={f"{D}.nodeAllocatableResources": {"hugepages-2Mi": {"overhead": {"perPod": "1"}}}},
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources": {"cpu": {}}},
        path=f'{D}.nodeAllocatableResources["cpu"]',
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "-1"}}}},
        path=f'{D}.nodeAllocatableResources["cpu"].overhead.perPod',
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources.memory.mapping.capacityKey": "other"},
        path=f'{D}.nodeAllocatableResources["memory"].mapping.capacityKey',
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources.memory.mapping": {"deviceMultiplier": "0"}},
        path=f'{D}.nodeAllocatableResources["memory"].mapping.deviceMultiplier',
        good={f"{D}.nodeAllocatableResources.memory.mapping": {"deviceMultiplier": "2"}},
    ),
    Row(
        rule="node-allocatable",
        base=NODE_ALLOCATABLE,
        bad={f"{D}.nodeAllocatableResources.memory.mapping.deviceMultiplier": "2"},
        path=f'{D}.nodeAllocatableResources["memory"].mapping',
    ),
    Row(
        rule="requests",
        base=CLAIM,
        bad={
            R: many(
                33,
                lambda i: {
                    "name": f"r{i}",
                    "exactly": {"deviceClassName": "c", "allocationMode": "All"},
                },
            ),
            "spec.devices.constraints": [],
            "spec.devices.config": [],
        },
        path=R,
        good={
            R: many(
                32,
                lambda i: {
                    "name": f"r{i}",
                    "exactly": {"deviceClassName": "c", "allocationMode": "All"},
                },
            ),
            "spec.devices.constraints": [],
            "spec.devices.config": [],
        },
    ),
    Row(
        rule="requests",
        base=CLAIM,
        bad={f"{R}[1].name": "gpu", "spec.devices.constraints": []},
        path=f"{R}[1]",
    ),
    Row(rule="requests", base=CLAIM, bad={f"{R}[0].exactly": GONE}, path=f"{R}[0]"),
    Row(
        rule="requests",
        base=CLAIM,
        bad={f"{R}[1].exactly": {"deviceClassName": "c"}},
        path=f"{R}[1]",
    ),
    Row(
        rule="requests",
        base=CLAIM,
        bad={f"{R}[0].name": "a.b", "spec.devices.constraints": [], "spec.devices.config": []},
        path=f"{R}[0].name",
    ),
    Row(
        rule="admin-access",
        base=ADMIN,
        bad={},
        path=f"{R}[0].exactly.adminAccess",
        namespaces={"default": {}},
        good={f"{R}[0].exactly.adminAccess": False},
    ),
    Row(
        rule="device-class-name",
        base=CLAIM,
        bad={f"{R}[0].exactly.deviceClassName": GONE},
        path=f"{R}[0].exactly.deviceClassName",
    ),
    Row(
        rule="device-class-name",
        base=CLAIM,
        bad={f"{R}[1].firstAvailable[0].deviceClassName": "A"},
        path=f"{R}[1].firstAvailable[0].deviceClassName",
    ),
    Row(
        rule="allocation-mode",
        base=CLAIM,
        bad={f"{R}[0].exactly.allocationMode": "All", f"{R}[0].exactly.count": 1},
        path=f"{R}[0].exactly.count",
        good={f"{R}[0].exactly.allocationMode": "All"},
    ),
    Row(
        rule="allocation-mode",
        base=CLAIM,
        bad={f"{R}[0].exactly.count": -1},
        path=f"{R}[0].exactly.count",
        good={f"{R}[0].exactly.count": 0},
    ),
    Row(
        rule="allocation-mode",
        base=CLAIM,
        bad={f"{R}[0].exactly.allocationMode": "Some"},
        path=f"{R}[0].exactly.allocationMode",
    ),
    Row(
        rule="first-available",
        base=CLAIM,
        bad={f"{R}[1].firstAvailable[1].name": "fast"},
        path=f"{R}[1].firstAvailable[1]",
    ),
    Row(
        rule="first-available",
        base=CLAIM,
        bad={
            f"{R}[1].firstAvailable": many(9, lambda i: {"name": f"a{i}", "deviceClassName": "c"}),
            "spec.devices.constraints": [],
        },
        path=f"{R}[1].firstAvailable",
        good={
            f"{R}[1].firstAvailable": many(8, lambda i: {"name": f"a{i}", "deviceClassName": "c"}),
            "spec.devices.constraints": [],
        },
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors": many(33, lambda i: {"cel": {"expression": "true"}})},
        path=f"{R}[0].exactly.selectors",
        good={f"{R}[0].exactly.selectors": many(32, lambda i: {"cel": {"expression": "true"}})},
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors[0].cel.expression": "device.nope"},
        path=f"{R}[0].exactly.selectors[0].cel.expression",
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors[0].cel.expression": ""},
        path=f"{R}[0].exactly.selectors[0].cel.expression",
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors[0].cel.expression": "'" + "x" * 10_240 + "' == ''"},
        path=f"{R}[0].exactly.selectors[0].cel.expression",
    ),
    Row(rule="selectors", base=CLASS, bad={"spec.selectors": [{}]}, path="spec.selectors[0].cel"),
    Row(
        rule="toleration",
        base=CLAIM,
        bad={f"{R}[0].exactly.tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        path=f"{R}[0].exactly.tolerations[0].value",
        good={f"{R}[0].exactly.tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]},
    ),
    Row(
        rule="toleration",
        base=CLAIM,
        bad={f"{R}[0].exactly.tolerations": [{"key": "k", "operator": "Lt"}]},
        path=f"{R}[0].exactly.tolerations[0].operator",
        good={f"{R}[0].exactly.tolerations": [{"value": "v"}]},
    ),
    Row(
        rule="toleration",
        base=CLAIM,
        bad={f"{R}[0].exactly.tolerations": [{"key": "k", "effect": "x"}]},
        path=f"{R}[0].exactly.tolerations[0].effect",
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={"spec.devices.constraints": []},
        path=f"{R}[0].exactly.derivedAttributes[0].name",
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={f"{R}[0].exactly.derivedAttributes[0].expression": ""},
        path=f"{R}[0].exactly.derivedAttributes[0].expression",
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={f"{R}[0].exactly.derivedAttributes[0].name": "root"},
        path=f"{R}[0].exactly.derivedAttributes[0].name",
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={f"{R}[0].exactly.derivedAttributes[0].expression": "device.nope"},
        path=f"{R}[0].exactly.derivedAttributes[0].expression",
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={
            f"{R}[0].exactly.selectors[0].cel.expression": "device.attributes['d'].x.includes('y')"
        },
        path=f"{R}[0].exactly.selectors[0].cel.expression",
        good={
            f"{R}[0].exactly.selectors[0].cel.expression": "device.attributes['d'].x.includes('y')"
        },
        features=Features(),
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors[0].cel.expression": "device.allowMultipleAllocations"},
        path=f"{R}[0].exactly.selectors[0].cel.expression",
        good={f"{R}[0].exactly.selectors[0].cel.expression": "device.allowMultipleAllocations"},
        features=Features(consumable_capacity=False),
    ),
    Row(
        rule="constraints",
        base=edited(CLAIM, {"spec.devices.constraints[0].matchAttribute": GONE}),
        bad={"spec.devices.constraints[0].distinctAttribute": "root"},
        path="spec.devices.constraints[0].distinctAttribute",
        good={"spec.devices.constraints[0].distinctAttribute": "a/root"},
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={
            f"{R}[0].exactly.derivedAttributes": many(
                33, lambda i: {"name": f"example.com/a{i}", "expression": "1"}
            ),
            "spec.devices.constraints": many(32, lambda i: {"matchAttribute": f"example.com/a{i}"}),
        },
        path=f"{R}[0].exactly.derivedAttributes",
        good={
            f"{R}[0].exactly.derivedAttributes": many(
                32, lambda i: {"name": f"example.com/a{i}", "expression": "1"}
            ),
            "spec.devices.constraints": many(32, lambda i: {"matchAttribute": f"example.com/a{i}"}),
        },
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={
            f"{R}[0].exactly.derivedAttributes[1]": {
                "name": "example.com/root",
                "expression": "2",
            }
        },
        path=f"{R}[0].exactly.derivedAttributes[1]",
    ),
    Row(
        rule="derived-attributes",
        base=DERIVED,
        bad={f"{R}[0].exactly.derivedAttributes[0].expression": loop(400)},
        path=f"{R}[0].exactly.derivedAttributes[0].expression",
        good={f"{R}[0].exactly.derivedAttributes[0].expression": loop(300)},
    ),
    Row(
        rule="derived-attributes",  # each within the limit, both together beyond it
        base=DERIVED,
        bad={
            f"{R}[0].exactly.derivedAttributes[0].expression": loop(300),
            f"{R}[1].firstAvailable[1].derivedAttributes": [
                {"name": "example.com/root", "expression": loop(300)}
            ],
            "spec.devices.constraints[0].requests": GONE,
        },
        path="spec.devices",
        good={
            f"{R}[0].exactly.derivedAttributes[0].expression": loop(260),
            f"{R}[1].firstAvailable[1].derivedAttributes": [
                {"name": "example.com/root", "expression": loop(260)}
            ],
            "spec.devices.constraints[0].requests": GONE,
        },
    ),
    Row(
        rule="selectors",
        base=CLAIM,
        bad={f"{R}[0].exactly.selectors[0].cel.expression": loop(400)},
        path=f"{R}[0].exactly.selectors[0].cel.expression",
        good={f"{R}[0].exactly.selectors[0].cel.expression": loop(300)},
    ),
    Row(
        rule="selectors",
        base=CLASS,
        bad={"spec.selectors": many(33, lambda i: {"cel": {"expression": "true"}})},
        path="spec.selectors",
    ),
    Row(
        rule="request-references",
        base=CLAIM,
        bad={"spec.devices.constraints[0].requests": ["nic/fast/x"]},
        path="spec.devices.constraints[0].requests[0]",
        good={"spec.devices.constraints[0].requests": ["nic/fast"]},
    ),
    Row(
        rule="config",
        base=CLASS,
        bad={"spec.config": many(33, lambda i: OPAQUE)},
        path="spec.config",
        good={"spec.config": many(32, lambda i: OPAQUE)},
    ),
    Row(
        rule="skip-node-operations",
        base=SLICE,
        bad={"spec.skipNodeOperations": ["*", "*"]},
        path="spec.skipNodeOperations[1]",
    ),
    Row(
        rule="compatibility-groups",
        base=SLICE,
        bad={f"{D}.consumesCounters": [consumed(compatibilityGroups=["A_"])]},
        path=f"{D}.consumesCounters[0].compatibilityGroups[0]",
    ),
    Row(
        rule="shared-counters",
        base=COUNTERS,
        bad={"spec.sharedCounters[1]": COUNTERS["spec"]["sharedCounters"][0]},
        path="spec.sharedCounters[1]",
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingFailureConditions": many(5, lambda i: f"f{i}")},
        path=f"{D}.bindingFailureConditions",
        good={f"{D}.bindingFailureConditions": many(4, lambda i: f"f{i}")},
    ),
    Row(
        rule="binding-conditions",
        base=BINDING,
        bad={f"{D}.bindingConditions": ["a b"]},
        path=f"{D}.bindingConditions[0]",
    ),
    Row(
        rule="valid-range",
        base=SHARED,
        bad={f"{P}.default": "1", f"{P}.validRange": {"min": "1", "max": "1500u"}},
        path=f"{SHOWN_P}.validRange.max",
        good={f"{P}.default": "1", f"{P}.validRange": {"min": "1", "max": "1500m"}},
    ),
    Row(
        rule="allocation-config",
        base=ALLOCATED,
        bad={
            "status.allocation.devices.config": many(
                65, lambda i: {"source": "FromClass", **OPAQUE}
            )
        },
        path="status.allocation.devices.config",
        good={
            "status.allocation.devices.config": many(
                64, lambda i: {"source": "FromClass", **OPAQUE}
            )
        },
    ),
    Row(
        rule="node-selector",
        base=ALLOCATED,
        bad={"status.allocation.nodeSelector": {"nodeSelectorTerms": []}},
        path="status.allocation.nodeSelector.nodeSelectorTerms",
        good={"status.allocation.nodeSelector": term(IN)},
    ),
    Row(
        rule="constraints",
        base=CLAIM,
        bad={"spec.devices.constraints[0].matchAttribute": "root"},
        path="spec.devices.constraints[0].matchAttribute",
    ),
    Row(
        rule="constraints",
        base=CLAIM,
        bad={"spec.devices.constraints[0].matchAttribute": GONE},
        path="spec.devices.constraints[0]",
        good={
            "spec.devices.constraints[0].matchAttribute": GONE,
            "spec.devices.constraints[0].distinctAttribute": "a/b",
        },
    ),
    Row(
        rule="constraints",
        base=CLAIM,
        bad={"spec.devices.constraints": many(33, lambda i: {"matchAttribute": "a/b"})},
        path="spec.devices.constraints",
        good={"spec.devices.constraints": many(32, lambda i: {"matchAttribute": "a/b"})},
    ),
    Row(
        rule="request-references",
        base=CLAIM,
        bad={"spec.devices.constraints[0].requests": ["other"]},
        path="spec.devices.constraints[0].requests[0]",
        good={"spec.devices.constraints[0].requests": ["nic", "nic/slow"]},
    ),
    Row(
        rule="request-references",
        base=CLAIM,
        bad={"spec.devices.config[0].requests": ["gpu", "gpu"]},
        path="spec.devices.config[0].requests[1]",
    ),
    Row(
        rule="config",
        base=CLAIM,
        bad={"spec.devices.config[0].opaque": GONE},
        path="spec.devices.config[0].opaque",
    ),
    Row(
        rule="config",
        base=CLAIM,
        bad={"spec.devices.config[0].opaque.parameters": GONE},
        path="spec.devices.config[0].opaque.parameters",
        good={"spec.devices.config[0].opaque.parameters": {}},
    ),
    Row(
        rule="config",
        base=CLAIM,
        bad={"spec.devices.config[0].opaque.parameters": [1]},
        path="spec.devices.config[0].opaque.parameters",
    ),
    Row(
        rule="config",
        base=CLAIM,
        bad={"spec.devices.config[0].opaque.parameters": {"a": "x" * 10_240}},
        path="spec.devices.config[0].opaque.parameters",
    ),
    Row(
        rule="config",
        base=CLASS,
        bad={"spec.config": [{"opaque": {"driver": "A_", "parameters": {}}}]},
        path="spec.config[0].opaque.driver",
    ),
    Row(
        rule="extended-resource-name",
        base=CLASS,
        bad={"spec.extendedResourceName": "gpu"},
        path="spec.extendedResourceName",
    ),
    Row(
        rule="extended-resource-name",
        base=CLASS,
        bad={"spec.extendedResourceName": "x.kubernetes.io/gpu"},
        path="spec.extendedResourceName",
    ),
    Row(
        rule="taint-rule-selector",
        base=RULE,
        bad={"spec.deviceSelector.driver": ""},
        path="spec.deviceSelector.driver",
        good={"spec.deviceSelector": {}},
    ),
    Row(
        rule="taint-rule-selector",
        base=RULE,
        bad={"spec.deviceSelector.pool": "a//b"},
        path="spec.deviceSelector.pool",
    ),
    Row(
        rule="taint-rule-selector",
        base=RULE,
        bad={"spec.deviceSelector.device": "a/b"},
        path="spec.deviceSelector.device",
    ),
    Row(
        rule="allocation-results",
        base=ALLOCATED,
        bad={"status.allocation.devices.results[0].request": "other"},
        path="status.allocation.devices.results[0].request",
        good={"status.allocation.devices.results[0].request": "nic/fast"},
    ),
    Row(
        rule="allocation-results",
        base=ALLOCATED,
        bad={
            "status.allocation.devices.results": many(
                33,
                lambda i: {
                    "request": "gpu",
                    "driver": "gpu.example.com",
                    "pool": "p",
                    "device": "gpu-0",
                },
            ),
            "status.devices": [],
        },
        path="status.allocation.devices.results",
        good={
            "status.allocation.devices.results": many(
                32,
                lambda i: {
                    "request": "gpu",
                    "driver": "gpu.example.com",
                    "pool": "p",
                    "device": "gpu-0",
                },
            ),
            "status.devices": [],
        },
    ),
    Row(
        rule="allocation-config",
        base=ALLOCATED,
        bad={"status.allocation.devices.config[0].source": "FromPod"},
        path="status.allocation.devices.config[0].source",
    ),
    Row(
        rule="share-id",
        base=ALLOCATED,
        bad={"status.allocation.devices.results[0].shareID": "ABC", "status.devices": []},
        path="status.allocation.devices.results[0].shareID",
        good={
            "status.allocation.devices.results[0].shareID": "0d4e0c1e-8f0a-4b6e-9d3b-2f6a1c5e7b90",
            "status.devices": [],
        },
    ),
    Row(
        rule="reserved-for",
        base=ALLOCATED,
        bad={
            "status.reservedFor": many(
                257, lambda i: {"resource": "pods", "name": "p", "uid": f"u{i}"}
            )
        },
        path="status.reservedFor",
        good={
            "status.reservedFor": many(
                256, lambda i: {"resource": "pods", "name": "p", "uid": f"u{i}"}
            )
        },
    ),
    Row(
        rule="reserved-for",
        base=ALLOCATED,
        bad={"status.reservedFor[1]": {"resource": "pods", "name": "q", "uid": "u"}},
        path="status.reservedFor[1]",
    ),
    Row(
        rule="reserved-for",
        base=ALLOCATED,
        bad={"status.reservedFor[0].resource": ""},
        path="status.reservedFor[0].resource",
    ),
    Row(
        rule="reserved-for",
        base=ALLOCATED,
        bad={"status.allocation": GONE, "status.devices": []},
        path="status.reservedFor",
    ),
    Row(
        rule="device-status",
        base=ALLOCATED,
        bad={"status.devices[0].device": "gpu-1"},
        path="status.devices[0]",
    ),
    Row(
        rule="device-status",
        base=ALLOCATED,
        bad={"status.devices[1]": ALLOCATED["status"]["devices"][0]},
        path="status.devices[1]",
    ),
    Row(
        rule="pod-claims",
        base=POD,
        bad={"spec.resourceClaims[1]": {"name": "gpu", "resourceClaimName": "d"}},
        path="spec.resourceClaims[1]",
    ),
    Row(
        rule="pod-claims",
        base=POD,
        bad={"spec.resourceClaims[0].resourceClaimTemplateName": "t"},
        path="spec.resourceClaims[0]",
        good={
            "spec.resourceClaims[0].resourceClaimName": GONE,
            "spec.resourceClaims[0].resourceClaimTemplateName": "t",
        },
    ),
    Row(
        rule="pod-claims",
        base=POD,
        bad={"spec.resourceClaims": []},
        path="spec.containers[0].resources.claims[0].name",
    ),
    # Accepted, and warned about.
    Row(
        rule="disabled-field",
        base=SLICE,
        bad={f"{D}.taints": [{"key": "k", "effect": "None"}]},
        path=f"{D}.taints",
        features=Features(device_taints=False),
    ),
    Row(
        rule="unknown-field",
        base=CLAIM,
        bad={f"{R}[0].exactly.selector": []},
        path=f"{R}[0].exactly.selector",
        good={"metadata.something": 1},
    ),
    Row(rule="driver-case", base=SLICE, bad={"spec.driver": "GPU.example.com"}, path="spec.driver"),
    Row(
        rule="too-many-devices",
        base=CLAIM,
        bad={f"{R}[0].exactly.count": 33},
        path=f"{R}[0].exactly.count",
        good={f"{R}[0].exactly.count": 31},
    ),
    Row(rule="too-many-devices", base=CLAIM, bad={f"{R}[0].exactly.count": 32}, path=R),
    Row(
        rule="capacity-request",
        base=CLAIM,
        bad={f"{R}[0].exactly.capacity": {"requests": {"memory": "-1"}}},
        path=f'{R}[0].exactly.capacity.requests["memory"]',
        good={f"{R}[0].exactly.capacity": {"requests": {"memory": "1"}}},
    ),
    Row(
        rule="negative-amount",
        base=SLICE,
        bad={f"{D}.capacity.memory.value": "-1"},
        path=f'{D}.capacity["memory"].value',
    ),
    Row(
        rule="negative-amount",
        base=COUNTERS,
        bad={"spec.sharedCounters[0].counters.memory.value": "-1"},
        path='spec.sharedCounters[0].counters["memory"].value',
    ),
    Row(
        rule="default-above-value",
        base=SHARED,
        bad={P: {"default": "81Gi"}},
        path=f"{SHOWN_P}.default",
        good={P: {"default": "80Gi"}},
    ),
    Row(
        rule="device-selector-terms",
        base=PER_DEVICE,
        bad={
            f"{D}.nodeName": GONE,
            f"{D}.nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [IN]}] * 2},
        },
        path=f"{D}.nodeSelector",
        good={f"{D}.nodeName": GONE, f"{D}.nodeSelector": term(IN)},
    ),
    Row(
        rule="both-attributes",
        base=CLAIM,
        bad={"spec.devices.constraints[0].distinctAttribute": "a/b"},
        path="spec.devices.constraints[0]",
    ),
    Row(
        rule="name-with-two-slashes",
        base=SLICE,
        bad={f"{D}.attributes": {"a/b/c": {"int": 1}}},
        path=f'{D}.attributes["a/b/c"]',
    ),
    Row(
        rule="shadowed-attribute",
        base=SLICE,
        bad={f"{D}.attributes": {"a": {"int": 1}, "gpu.example.com/a": {"int": 2}}},
        path=f'{D}.attributes["a"]',
        good={f"{D}.attributes": {"a": {"int": 1}, "other.com/a": {"int": 2}}},
    ),
    Row(
        rule="shadowed-attribute",
        base=SLICE,
        bad={f"{D}.capacity": {"a": {"value": "1"}, "gpu.example.com/a": {"value": "2"}}},
        path=f'{D}.capacity["a"]',
        good={f"{D}.capacity": {"a": {"value": "1"}, "other.com/a": {"value": "2"}}},
    ),
    Row(
        rule="admin-access-unchecked",
        base=ADMIN,
        bad={},
        path=f"{R}[0].exactly.adminAccess",
        namespaces={},
        good={f"{R}[0].exactly.adminAccess": GONE},
    ),
]
IDS = [f"{row.rule}-{index}" for index, row in enumerate(ROWS)]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_broken_rule_is_reported_with_its_path_and_no_other_rule_is(row):
    found = validate_object(
        edited(row.base, row.bad), features=row.features, namespaces=row.namespaces
    )
    relevant = [each for each in found if each.rule != "disabled-field" or row.rule == each.rule]
    assert {each.rule for each in relevant} == {row.rule}
    assert row.path in {each.path for each in relevant}
    assert all(violation.message for violation in found)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_an_object_close_by_passes(row):
    assert (
        validate_object(edited(row.base, row.good), features=ALL, namespaces=row.namespaces) == []
    )


@pytest.mark.parametrize(
    "obj",
    [SLICE, COUNTERS, SHARED, VALUES, CLAIM, ALLOCATED, TEMPLATE, CLASS, RULE, POD],
    ids=lambda obj: obj["metadata"]["name"],
)
def test_the_base_objects_are_good(obj):
    assert validate_object(obj, features=ALL) == []


def test_an_attribute_that_is_ignored_is_checked_all_the_same():
    both = edited(CLAIM, {"spec.devices.constraints[0].distinctAttribute": "root"})
    assert [(each.rule, each.path) for each in validate_object(both, features=ALL)] == [
        ("both-attributes", "spec.devices.constraints[0]"),
        ("constraints", "spec.devices.constraints[0].distinctAttribute"),
    ]


# Rules that need a second object have tests of their own.
ELSEWHERE = {"immutable", "allocation-immutable"} | {
    "unknown-class",
    "duplicate-device",
    "duplicate-counter-set",
    "unknown-counter-set",
    "slice-count-differs",
    "pool-incomplete",
    "unknown-claim",
}


def test_every_rule_has_a_row():
    assert {row.rule for row in ROWS} | ELSEWHERE == set(RULES)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_severity_follows_from_the_rule(row):
    found = validate_object(
        edited(row.base, row.bad), features=row.features, namespaces=row.namespaces
    )
    severity = {violation.rule: violation.severity for violation in found}[row.rule]
    assert severity is (Severity.WARNING if row.rule in WARNINGS else Severity.ERROR)
    assert (row.rule in ERRORS) == (severity is Severity.ERROR)


def test_the_label_of_the_namespace_permits_admin_access():
    assert validate_object(ADMIN, features=ALL, namespaces=ADMIN_LABEL) == []


def test_templates_report_the_path_inside_the_template():
    (found,) = validate_object(
        edited(TEMPLATE, {"spec.spec.devices.requests[0].exactly.deviceClassName": GONE}),
        features=ALL,
    )
    assert found.path == "spec.spec.devices.requests[0].exactly.deviceClassName"


def test_v1beta1_reports_paths_of_v1():
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "A_"}]}},
    }
    (found,) = validate_object(old, features=ALL)
    assert (found.rule, found.path) == (
        "device-class-name",
        "spec.devices.requests[0].exactly.deviceClassName",
    )


def test_fields_of_a_stored_object_are_kept_although_their_gate_is_off():
    stored = edited(SLICE, {"metadata.uid": "u", f"{D}.attributes.model": {"ints": [1]}})
    assert validate_object(stored, features=Features()) == []
