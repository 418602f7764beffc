"""Every kind of valid claim through our own writer: the API server is the judge of what we write.

Nothing that others wrote may change on the way, whatever it is, to the byte (faults core 07, 07c).
"""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import pytest

from allocator.model.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
)
from allocator.model.devices import OpaqueDeviceConfiguration
from allocator.model.meta import ObjectMeta
from allocator.model.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allocator.outcome import ReasonKind
from scheduler.api.decode import decode
from scheduler.binder import BindError, ClaimWriter
from scheduler.binder.claim_text import ClaimText
from scheduler.binder.claims import FENCE_ANNOTATION
from scheduler.binder.edits import Allocation, Deallocation, Mark, Release, Reservation
from scheduler.binder.takeover import sweep
from scheduler.client import (
    JSON,
    PROTOBUF,
    ApiClient,
    Committed,
    Rejected,
    Unknown,
    WriteOutcome,
)
from scheduler.clock import SystemClock
from scheduler.lab.apiserver.messages import CLAIM
from scheduler.lab.apiserver.opaque import Opaque
from scheduler.lab.apiserver.protobuf import decode as decode_protobuf
from scheduler.model import EPOCH_ANNOTATION, FINALIZER, ClaimRecord, Kind, Pod
from tests.builders import quantity, toleration
from tests.contract.api import Api, Json, claim, request
from tests.opaque import HIDDEN, TEXTS, UNDECODABLE, claim_body, shown
from tests.opaque import allocation as allocation_body

NOTE = "example.com/note"
DRIVER = "gpu.example.com"
SHARE = "2b1c7e0a-7f7e-4a3e-9a55-0f0a6c1d2e3f"
DECODABLE = {name: text for name, text in TEXTS.items() if name not in UNDECODABLE}


def table(texts: Mapping[str, bytes] = TEXTS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", texts.values(), ids=texts.keys())


class Known:
    """What the writer knows of claims: what it was told."""

    def __init__(self) -> None:
        self.records: dict[str, ClaimRecord] = {}

    def claim_record(self, namespace: str, name: str) -> ClaimRecord | None:
        return self.records.get(f"{namespace}/{name}")

    def assume_claim(self, record: ClaimRecord) -> None:
        self.records[record.claim.key] = record


class Lossy:
    """A client over another one that loses or refuses writes as it is told.

    Attributes:
        plan: (ending of the path, outcome) in the order in which they happen instead of a write.
    """

    def __init__(self, inner: ApiClient, *plan: tuple[str, WriteOutcome]) -> None:
        self.inner = inner
        self.plan = list(plan)
        self.get = inner.get

    async def write(
        self, method: str, path: str, body: bytes, *, content_type: str = JSON
    ) -> WriteOutcome:
        if self.plan and path.endswith(self.plan[0][0]):
            return self.plan.pop(0)[1]
        return await self.inner.write(method, path, body, content_type=content_type)


class Clock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


class Case:
    """One claim, `a`, in the namespace of the test."""

    def __init__(self, api: Api, client: Any = None, epoch: int = 0) -> None:
        self.api = api
        self.known = Known()
        self.writer = ClaimWriter(
            client or api.client, self.known, Clock(), random.Random(1), lambda: True, lambda: epoch
        )

    @property
    def path(self) -> str:
        return self.api.claims("a")

    async def make(self, text: bytes) -> None:
        """With a configuration, and with things in it that are not ours."""
        body = claim_body("a", text).replace(
            b'"metadata":{', b'"metadata":{"annotations":{"%b":"kept"},' % NOTE.encode()
        )
        outcome = await self.api.client.write("POST", self.api.claims(), body)
        assert isinstance(outcome, Committed), outcome

    async def allocate(self, text: bytes, *pods: Pod, data: bytes = b"{}") -> None:
        """As another writer does, with these very bytes."""
        meta = (await self.stored())["metadata"]
        named = {key: meta[key] for key in ("name", "uid", "resourceVersion")}
        consumers = [
            {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods
        ]
        device = b'{"driver":"%b","pool":"node-1","device":"gpu-0","data":%b}'
        body = b'{"metadata":%b,"status":{"allocation":%b,"reservedFor":%b,"devices":[%b]}}' % (
            orjson.dumps(named),
            allocation_body(text),
            orjson.dumps(consumers),
            device % (DRIVER.encode(), data),
        )
        outcome = await self.api.client.write("PUT", f"{self.path}/status", body)
        assert isinstance(outcome, Committed), outcome

    async def text(self) -> ClaimText:
        return ClaimText.read(await self.api.client.get(self.path))

    async def record(self) -> ClaimRecord:
        found = decode(Kind.RESOURCE_CLAIM, await self.api.client.get(self.path))
        assert isinstance(found, ClaimRecord)
        return found

    async def stored(self) -> Json:
        """With the bytes that are stored."""
        return decode_protobuf(CLAIM, await self.api.client.get(self.path, accept=PROTOBUF))

    async def check(
        self,
        text: bytes,
        *,
        allocated: bytes | None = None,
        data: bytes | None = None,
        consumers: tuple[str, ...] = (),
    ) -> Json:
        """Nothing of others has changed."""
        claim = await self.stored()
        status = claim.get("status") or {}
        assert claim["metadata"]["annotations"][NOTE] == "kept"
        assert configs(claim["spec"]) == [text]
        assert configs(status.get("allocation")) == ([] if allocated is None else [allocated])
        assert [device["data"].raw for device in status.get("devices", ())] == (
            [] if data is None else [data]
        )
        assert [each["name"] for each in status.get("reservedFor", ())] == list(consumers)
        return claim


def configs(holder: Json | None) -> list[bytes]:
    found = [
        config["opaque"]["parameters"]
        for config in (holder or {}).get("devices", {}).get("config", ())
    ]
    assert all(isinstance(value, Opaque) for value in found)
    return [value.raw for value in found]


async def not_bound() -> bool:
    return False


async def pod(api: Api, name: str = "p") -> Pod:
    made = await api.pod(name)
    return Pod(metadata=ObjectMeta(name=name, namespace=api.namespace, uid=made.meta["uid"]))


def consumer(pod: Pod) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(
        resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
    )


def result(device: str = "gpu-0", **fields: Any) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        **{"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": device, **fields}
    )


def config(text: bytes, source: str = "FromClass") -> DeviceAllocationConfiguration:
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=msgspec.Raw(text))
    return DeviceAllocationConfiguration(source=source, requests=("gpu",), opaque=opaque)


def allocation(
    *results: DeviceRequestAllocationResult,
    configs: tuple[DeviceAllocationConfiguration, ...] = (),
    **fields: Any,
) -> AllocationResult:
    devices = DeviceAllocationResult(results=results or (result(),), config=configs or None)
    return AllocationResult(devices=devices, **fields)


# --- any text, each write ---------------------------------------------------------------------------------------------


@table()
async def test_each_write_leaves_every_text_as_it_is(api: Api, text: bytes) -> None:
    case = Case(api)
    p, q = await pod(api, "p"), await pod(api, "q")
    await case.make(text)

    mark = Mark(FINALIZER, {EPOCH_ANNOTATION: "3"})
    assert isinstance(await case.writer.put(await case.text(), mark), Committed)
    claim = await case.check(text)
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["metadata"]["annotations"][EPOCH_ANNOTATION] == "3"
    assert isinstance(
        await case.writer.put(await case.text(), Mark(annotations={EPOCH_ANNOTATION: "4"})),
        Committed,
    )
    claim = await case.check(text)
    assert claim["metadata"]["annotations"][EPOCH_ANNOTATION] == "4"

    edit = Allocation(allocation_body(shown(text)), consumer(p))
    assert isinstance(await case.writer.put(await case.text(), edit), Committed)
    await case.check(text, allocated=shown(text), consumers=("p",))
    assert isinstance(await case.writer.put(await case.text(), Reservation(consumer(q))), Committed)
    await case.check(text, allocated=shown(text), consumers=("p", "q"))
    assert isinstance(
        await case.writer.put(await case.text(), Release({p.metadata.uid})), Committed
    )
    await case.check(text, allocated=shown(text), consumers=("q",))
    assert isinstance(await case.writer.put(await case.text(), Deallocation()), Committed)
    await case.check(text)


@table()
async def test_what_another_writer_has_allocated_is_shared_and_released(
    api: Api, text: bytes
) -> None:
    case = Case(api)
    p, q = await pod(api, "p"), await pod(api, "q")
    await case.make(text)
    await case.allocate(text, p, data=text)

    assert isinstance(await case.writer.put(await case.text(), Reservation(consumer(q))), Committed)
    await case.check(text, allocated=text, data=text, consumers=("p", "q"))
    assert isinstance(
        await case.writer.put(await case.text(), Release({p.metadata.uid})), Committed
    )
    await case.check(text, allocated=text, data=text, consumers=("q",))
    assert isinstance(await case.writer.put(await case.text(), Deallocation()), Committed)
    await case.check(text)


@table(HIDDEN)
async def test_what_drivers_say_of_devices_is_kept_though_nobody_compares_it(
    api: Api, text: bytes
) -> None:
    case = Case(api)
    p, q = await pod(api, "p"), await pod(api, "q")
    await case.make(b"{}")
    await case.allocate(b"{}", p, data=text)
    for edit in (Reservation(consumer(q)), Release({p.metadata.uid})):
        assert isinstance(await case.writer.put(await case.text(), edit), Committed)
        assert (await case.stored())["status"]["devices"][0]["data"].raw == text


@pytest.mark.parametrize("kind", ["spec", "allocation", "data"])
@table(HIDDEN)
async def test_a_change_in_between_is_a_conflict(api: Api, kind: str, text: bytes) -> None:
    case = Case(api)
    p, q = await pod(api, "p"), await pod(api, "q")
    await case.make(text)
    edit: Mark | Reservation = Mark(FINALIZER)
    if kind != "spec":
        await case.allocate(text, p, data=text if kind == "data" else b"{}")
        edit = Reservation(consumer(q))
    before = await case.text()
    assert isinstance(await case.writer.put(before, Mark(annotations={"x": "y"})), Committed)

    answer = await case.writer.put(before, edit)
    assert isinstance(answer, Rejected)
    assert answer.status == 409


# --- the writer as the binder uses it ---------------------------------------------------------------------------------


@table(DECODABLE)
async def test_a_claim_with_any_text_is_reserved_shared_and_released(api: Api, text: bytes) -> None:
    case = Case(api, epoch=3)
    p, q = await pod(api, "p"), await pod(api, "q")
    await case.make(text)
    case.known.assume_claim(await case.record())
    seen = (await case.record()).claim
    held = allocation(configs=(config(shown(text)),))

    written = await case.writer.reserve(seen, p, held)
    claim = await case.check(text, allocated=shown(text), consumers=("p",))
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["metadata"]["annotations"][EPOCH_ANNOTATION] == "3"
    written = await case.writer.reserve(written, q, None)
    await case.check(text, allocated=shown(text), consumers=("p", "q"))
    await case.writer.release(written, p.metadata.uid, not_bound)
    await case.check(text, allocated=shown(text), consumers=("q",))
    assert not await case.writer.give_back(written, p.metadata.uid)
    assert await case.writer.give_back(written, q.metadata.uid)
    await case.check(text)


@table(DECODABLE)
async def test_a_stamp_leaves_any_text_as_it_is(api: Api, text: bytes) -> None:
    case = Case(api)
    await case.make(text)
    record = await case.record()
    stamped = await sweep(
        [record],
        epoch=7,
        client=api.client,
        clock=Clock(),
        rng=random.Random(1),
        may_write=lambda: True,
        assume=case.known.assume_claim,
    )
    assert stamped == 1
    claim = await case.check(text)
    assert claim["metadata"]["annotations"][EPOCH_ANNOTATION] == "7"
    assert claim["metadata"]["resourceVersion"] != record.claim.metadata.resource_version


@table(DECODABLE)
async def test_a_fence_leaves_any_text_as_it_is(api: Api, text: bytes) -> None:
    refused = Rejected(403, "Forbidden", "no")
    client = Lossy(api.client, ("a/status", Unknown("lost")), ("a/status", refused))
    case = Case(api, client)
    await case.make(text)
    case.known.assume_claim(await case.record())
    with pytest.raises(BindError) as problem:
        await case.writer.reserve(
            (await case.record()).claim, await pod(api), allocation(configs=(config(text),))
        )
    assert problem.value.reason.kind is ReasonKind.PERMISSION_DENIED
    claim = await case.check(text)
    assert FENCE_ANNOTATION in claim["metadata"]["annotations"]


# --- every kind of allocation -----------------------------------------------------------------------------------------


def on_node(name: str) -> NodeSelector:
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


ALTERNATIVES = [{"name": "big", "deviceClassName": "c"}, {"name": "small", "deviceClassName": "d"}]
ADMIN = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
TOLERATIONS = (
    toleration("k", operator="Exists", effect="NoSchedule"),
    toleration("k", "v", effect="NoExecute", seconds=5),
)
KINDS: dict[str, tuple[list[Json], AllocationResult]] = {
    "exactly": ([request("gpu")], allocation()),
    "all": ([request("gpu", allocationMode="All")], allocation(result(), result("gpu-1"))),
    "first available": (
        [{"name": "gpu", "firstAvailable": ALTERNATIVES}],
        allocation(result(request="gpu/small")),
    ),
    "admin access": (
        [request("gpu", adminAccess=True)],
        allocation(result(admin_access=True)),
    ),
    "a share": (
        [request("gpu", capacity={"requests": {"memory": "1Gi"}})],
        allocation(
            result(
                share_id=SHARE, consumed_capacity={"memory": quantity("1Gi"), "x": quantity("5")}
            )
        ),
    ),
    "binding conditions": (
        [request("gpu")],
        allocation(
            result(
                binding_conditions=("example.com/ready",),
                binding_failure_conditions=("example.com/failed",),
            )
        ),
    ),
    "tolerations": ([request("gpu")], allocation(result(tolerations=TOLERATIONS))),
    "node selector": ([request("gpu")], allocation(node_selector=on_node("node-1"))),
    "32 results": (
        [request("gpu", count=32)],
        allocation(*(result(f"gpu-{index}") for index in range(32))),
    ),
    "configurations": (
        [request("gpu")],
        allocation(configs=(config(b'{"a":1.50}'), config(b'{"b": "x & y"}', source="FromClaim"))),
    ),
    "no device": ([request("gpu", allocationMode="All")], AllocationResult()),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_allocation_is_written_shared_and_taken_back(
    api: Api, kind: str
) -> None:
    requests, held = KINDS[kind]
    assert (await api.merge(f"/api/v1/namespaces/{api.namespace}", ADMIN)).ok
    case = Case(api)
    p, q = await pod(api, "p"), await pod(api, "q")
    await api.made(case.api.claims(), claim("a", *requests))
    record = await case.record()

    written = await case.writer.reserve(record.claim, p, held)
    stored = written.status.allocation
    assert stored is not None
    assert stored.allocation_timestamp
    expected = msgspec.structs.replace(held, allocation_timestamp=stored.allocation_timestamp)
    assert without_configs(stored) == without_configs(expected)
    shared = await case.writer.reserve(written, q, None)
    assert shared.status.allocation == stored
    assert [each.name for each in shared.status.reserved_for or ()] == ["p", "q"]
    await case.writer.release(shared, q.metadata.uid, not_bound)
    await case.writer.release(shared, p.metadata.uid, not_bound)
    left = (await case.record()).claim
    assert left.status.allocation is None
    assert not left.status.reserved_for
    assert left.metadata.finalizers == (FINALIZER,)
    # And again: what is left can be allocated.
    assert (await case.writer.reserve(left, p, held)).status.allocation is not None


def without_configs(allocation: AllocationResult) -> AllocationResult:
    """Configurations are compared elsewhere, in their bytes."""
    devices = msgspec.structs.replace(allocation.devices, config=None)
    return msgspec.structs.replace(allocation, devices=devices)
