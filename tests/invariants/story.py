"""Histories for the tests of the judge: a small cluster, told step by step."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from tests.invariants import Call, Change, Entry, Finding, Mark, Restored, Sent, Terms, judge
from tests.invariants.objects import FINALIZER, Object

US = "dra-scheduler-0#1"
OTHER = "another"
DRIVER = "gpu.example.com"
EPOCH = "dra-scheduler.dev/epoch"


def device(name: str, **fields: Any) -> Object:
    return {"name": name, **fields}


def request(name: str = "r", **fields: Any) -> Object:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **fields}
    return {"name": name, "exactly": exactly}


def result(name: str, *, of: str = "r", pool: str = "n1", **fields: Any) -> Object:
    return {"request": of, "driver": DRIVER, "pool": pool, "device": name, **fields}


def only(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


class Story:
    """One history; each step takes a second unless it is said otherwise."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.at = 0.0
        self.revision = 0
        self.objects: dict[tuple[str, str], Object] = {}

    # --- steps --------------------------------------------------------------------------------------------------------

    def put(self, kind: str, obj: Object, author: str = OTHER, after: float = 1.0) -> Object:
        """Create or change an object."""
        self.at += after
        self.revision += 1
        obj = copy.deepcopy(obj)
        meta = obj["metadata"]
        meta.setdefault("uid", f"uid-of-{meta['name']}")
        meta["resourceVersion"] = str(self.revision)
        type_ = "MODIFIED" if (kind, meta["name"]) in self.objects else "ADDED"
        self.objects[kind, meta["name"]] = obj
        self.entries.append(Change(self.at, self.revision, type_, kind, obj, author))
        return obj

    def change(
        self,
        kind: str,
        name: str,
        do: Callable[[Object], Any],
        author: str = OTHER,
        after: float = 1.0,
    ) -> Object:
        """Change an object that is there."""
        obj = copy.deepcopy(self.objects[kind, name])
        do(obj)
        return self.put(kind, obj, author, after)

    def remove(self, kind: str, name: str, author: str = OTHER) -> None:
        """Delete an object."""
        self.at += 1.0
        self.revision += 1
        obj = self.objects.pop((kind, name))
        self.entries.append(Change(self.at, self.revision, "DELETED", kind, obj, author))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.at += seconds

    def sent(self, method: str, path: str, status: int = 200, **fields: Any) -> None:
        self.entries.append(Sent(self.at, US, method, path, status, **fields))

    def call(self, verb: str, request_: Object, answer: Any = None, status: int = 200) -> None:
        self.entries.append(Call(self.at, US, verb, request_, status, answer))

    def mark(self, name: str, **facts: Any) -> None:
        self.entries.append(Mark(self.at, name, facts))

    def restored(self, objects: dict[str, list[Object]]) -> None:
        self.revision += 1000
        self.entries.append(Restored(self.at, self.revision, objects))

    # --- objects ------------------------------------------------------------------------------------------------------

    def cluster(self, *nodes: str, devices: Iterable[Object] = ()) -> "Story":
        """A class, and nodes with devices (two exclusive ones each, unless others are given)."""
        self.put("Namespace", {"metadata": {"name": "ns", "labels": {}}})
        self.put(
            "DeviceClass",
            {
                "metadata": {"name": "gpu"},
                "spec": {
                    "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
                },
            },
        )
        for node in nodes or ("n1",):
            self.node(node)
            self.slice(node, list(devices) or [device("gpu-0"), device("gpu-1")])
        return self

    def node(self, name: str, **spec: Any) -> None:
        self.put(
            "Node",
            {
                "metadata": {"name": name, "labels": {"zone": "a"}},
                "spec": spec,
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
            },
        )

    def slice(self, node: str, devices: list[Object], **spec: Any) -> None:
        self.put(
            "ResourceSlice",
            {
                "metadata": {"name": f"{node}-gpus"},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": devices,
                    **spec,
                },
            },
        )

    def claim(self, name: str = "c", *requests: Object, **spec: Any) -> None:
        self.put(
            "ResourceClaim",
            {
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"devices": {"requests": list(requests) or [request()], **spec}},
                "status": {},
            },
        )

    def pod(self, name: str = "p", *claims: str, author: str = OTHER, **spec: Any) -> None:
        entries = [{"name": f"e{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
        self.put(
            "Pod",
            {
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {
                    "schedulerName": "dra-scheduler",
                    "containers": [{"name": "main"}],
                    "resourceClaims": entries,
                    **spec,
                },
                "status": {"phase": "Pending"},
            },
            author,
        )

    def protect(self, claim: str = "c", author: str = US, epoch: str = "") -> None:
        def do(obj: Object) -> None:
            obj["metadata"]["finalizers"] = [FINALIZER]
            if epoch:
                obj["metadata"]["annotations"] = {EPOCH: epoch}

        self.change("ResourceClaim", claim, do, author)

    def allocate(
        self,
        claim: str,
        *results: Object,
        pod: str = "p",
        node: str = "n1",
        author: str = US,
        change: Callable[[Object], Any] = lambda _: None,
        epoch: str = "",
    ) -> None:
        """Finalizer first, then allocation and reservation in one write."""
        self.protect(claim, author, epoch)

        def do(obj: Object) -> None:
            obj["status"] = {
                "allocation": {
                    "devices": {"results": list(results)},
                    "nodeSelector": only(node),
                    "allocationTimestamp": "2026-01-01T00:00:00Z",
                },
                "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"}],
            }
            change(obj)

        self.change("ResourceClaim", claim, do, author)

    def bind(self, pod: str = "p", node: str = "n1", author: str = US) -> None:
        self.change("Pod", pod, lambda obj: obj["spec"].update(nodeName=node), author)

    def served(self, number: int = 0) -> None:
        """A pod with a device of its own, from the beginning to the end."""
        claim, pod = f"c{number}", f"p{number}"
        self.claim(claim)
        self.pod(pod, claim)
        self.allocate(claim, result(f"gpu-{number}"), pod=pod)
        self.bind(pod)

    # --- judgement ----------------------------------------------------------------------------------------------------

    def findings(self, **terms: Any) -> list[Finding]:
        return judge(self.entries, Terms(**terms))

    def rules(self, **terms: Any) -> set[str]:
        return {finding.rule for finding in self.findings(**terms)}
