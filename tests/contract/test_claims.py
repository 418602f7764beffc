"""Status of ResourceClaims: what a scheduler writes, and what it must not."""

from typing import Any

import pytest

from tests.contract.api import (
    FINALIZER,
    HOLD,
    Answer,
    Api,
    Json,
    allocation,
    claim,
    consumer,
    request,
    result,
    with_metadata,
    with_status,
)

TIME = "2026-11-29T10:00:00Z"
SHARE = "2b1c7e0a-7f7e-4a3e-9a55-0f0a6c1d2e3f"


async def write(api: Api, stored: Answer, **status: Any) -> Answer:
    path = f"{api.claims(stored.meta['name'])}/status"
    return await api.put(path, with_status(stored, **status))


async def allocated(api: Api, *consumers: Json, **metadata: Any) -> Answer:
    made = await api.claim("a", **metadata)
    status: Json = {"allocation": allocation(allocationTimestamp=TIME)}
    if consumers:
        status["reservedFor"] = list(consumers)
    written = await write(api, made, **status)
    assert written.ok, written
    return written


def refused(answer: Answer, field: str) -> None:
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert field in answer.body["message"]


async def test_the_status_of_a_new_claim_is_empty(api: Api) -> None:
    made = await api.made(api.claims(), {**claim("a"), "status": {"allocation": allocation()}})
    assert not made.body.get("status")


async def test_mode_and_count_have_defaults(api: Api) -> None:
    made = await api.claim("a")
    [held] = made.body["spec"]["devices"]["requests"]
    assert (held["exactly"]["allocationMode"], held["exactly"]["count"]) == ("ExactCount", 1)


async def test_allocation_reservation_and_time_are_written_at_once(api: Api) -> None:
    written = await allocated(api, consumer("u1"))
    status = written.body["status"]
    assert status["allocation"]["devices"]["results"] == [result()]
    assert status["allocation"]["allocationTimestamp"] == TIME
    assert status["reservedFor"] == [consumer("u1")]


async def test_a_finalizer_is_not_asked_for(api: Api) -> None:
    assert "finalizers" not in (await allocated(api)).meta


async def test_a_status_write_changes_neither_spec_nor_metadata(api: Api) -> None:
    made = await api.claim("a")
    body = with_metadata(made, finalizers=[FINALIZER], labels={"a": "b"}, annotations={"a": "b"})
    body["spec"] = {"devices": {"requests": [request("other")]}}
    body["status"] = {"allocation": allocation()}
    written = await api.put(f"{api.claims('a')}/status", body)
    assert written.ok
    assert written.body["spec"] == made.body["spec"]
    assert {"finalizers", "labels", "annotations"}.isdisjoint(written.meta)


async def test_a_main_write_does_not_change_the_status(api: Api) -> None:
    written = await allocated(api)
    body = {**with_metadata(written, labels={"a": "b"}), "status": {}}
    kept = await api.put(api.claims("a"), body)
    assert kept.body["status"] == written.body["status"]
    assert kept.meta["labels"] == {"a": "b"}


async def test_finalizer_then_status_makes_two_versions(api: Api) -> None:
    made = await api.claim("a")
    held = await api.put(api.claims("a"), with_metadata(made, finalizers=[FINALIZER]))
    written = await write(api, held, allocation=allocation())
    assert made.version < held.version < written.version
    assert written.meta["finalizers"] == [FINALIZER]


async def test_the_spec_of_a_claim_does_not_change(api: Api) -> None:
    made = await api.claim("a")
    body = {**made.body, "spec": {"devices": {"requests": [request("other")]}}}
    refused(await api.put(api.claims("a"), body), "spec")


async def test_an_allocation_does_not_change(api: Api) -> None:
    written = await allocated(api)
    other = allocation(result("gpu-1"), allocationTimestamp=TIME)
    refused(await write(api, written, allocation=other), "status.allocation")


@pytest.mark.parametrize("time", [None, "2026-11-29T11:00:00Z"], ids=["removed", "changed"])
async def test_the_time_of_an_allocation_does_not_change(api: Api, time: str | None) -> None:
    written = await allocated(api)
    other = allocation(allocationTimestamp=time)
    refused(await write(api, written, allocation=other), "status.allocation")


async def test_a_time_is_not_added_to_an_allocation(api: Api) -> None:
    made = await api.claim("a")
    written = await write(api, made, allocation=allocation())
    later = allocation(allocationTimestamp=TIME)
    refused(await write(api, written, allocation=later), "status.allocation")


async def test_an_allocation_can_be_removed_and_made_anew(api: Api) -> None:
    written = await allocated(api, consumer("u1"))
    freed = await write(api, written)
    assert freed.ok
    assert not freed.body.get("status", {}).get("allocation")
    again = await write(api, freed, allocation=allocation(result("gpu-1")))
    assert again.ok


async def test_a_reservation_needs_an_allocation(api: Api) -> None:
    made = await api.claim("a")
    refused(await write(api, made, reservedFor=[consumer("u1")]), "status.reservedFor")


async def test_an_allocation_is_not_removed_under_its_consumers(api: Api) -> None:
    written = await allocated(api, consumer("u1"))
    refused(await write(api, written, reservedFor=[consumer("u1")]), "status.reservedFor")


async def test_reservations_come_and_go(api: Api) -> None:
    written = await allocated(api, consumer("u1"))
    held = written.body["status"]["allocation"]
    both = await write(api, written, allocation=held, reservedFor=[consumer("u1"), consumer("u2")])
    assert [entry["uid"] for entry in both.body["status"]["reservedFor"]] == ["u1", "u2"]
    one = await write(api, both, allocation=held, reservedFor=[consumer("u2")])
    assert [entry["uid"] for entry in one.body["status"]["reservedFor"]] == ["u2"]
    none = await write(api, one, allocation=held)
    assert not none.body["status"].get("reservedFor")
    assert none.body["status"]["allocation"] == held


async def test_256_consumers_are_the_most(api: Api) -> None:
    written = await allocated(api)
    held = written.body["status"]["allocation"]
    full = await write(
        api, written, allocation=held, reservedFor=[consumer(f"u{n}") for n in range(256)]
    )
    assert full.ok
    over = [*full.body["status"]["reservedFor"], consumer("u256")]
    refused(await write(api, full, allocation=held, reservedFor=over), "status.reservedFor")


async def test_a_consumer_is_there_once(api: Api) -> None:
    made = await api.claim("a")
    twice = [consumer("u1"), consumer("u1", name="y")]
    answer = await write(api, made, allocation=allocation(), reservedFor=twice)
    refused(answer, "status.reservedFor[1]")


@pytest.mark.parametrize("field", ["resource", "name", "uid"])
async def test_a_consumer_has_resource_name_and_uid(api: Api, field: str) -> None:
    made = await api.claim("a")
    broken = [{**consumer("u1"), field: ""}]
    answer = await write(api, made, allocation=allocation(), reservedFor=broken)
    refused(answer, f"status.reservedFor[0].{field}")


async def test_nobody_new_is_let_in_while_a_claim_is_being_deleted(api: Api) -> None:
    written = await allocated(api, consumer("u1"), consumer("u2"), finalizers=[HOLD])
    await api.delete(api.claims("a"))
    deleting = await api.get(api.claims("a"))
    held = written.body["status"]["allocation"]
    more = [consumer("u1"), consumer("u3")]
    refused(await write(api, deleting, allocation=held, reservedFor=more), "status.reservedFor")
    less = await write(api, deleting, allocation=held, reservedFor=[consumer("u1")])
    assert less.ok


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (result(request="other"), "request"),
        (result(request="gpu/sub"), "request"),
        (result(request=""), "request"),
        (result(driver=""), "driver"),
        (result(driver="not a driver"), "driver"),
        (result(pool=""), "pool"),
        (result(pool="Not/A Pool"), "pool"),
        (result(device=""), "device"),
        (result(device="a.b"), "device"),
        (result(shareID="not-a-uuid"), "shareID"),
        (result(shareID=SHARE.upper()), "shareID"),
        (result(bindingConditions=["a"]), "bindingFailureConditions"),
        (result(bindingFailureConditions=["a"]), "bindingConditions"),
        (
            result(bindingConditions=["a", "b", "c", "d", "e"], bindingFailureConditions=["f"]),
            "bindingConditions",
        ),
        (
            result(bindingConditions=["a"], bindingFailureConditions=["a"]),
            "bindingFailureConditions",
        ),
    ],
)
async def test_a_broken_result_is_refused(api: Api, broken: Json, field: str) -> None:
    made = await api.claim("a")
    answer = await write(api, made, allocation=allocation(broken))
    refused(answer, f"status.allocation.devices.results[0].{field}")


async def test_what_a_result_may_hold(api: Api) -> None:
    made = await api.claim("a")
    full = result(
        shareID=SHARE,
        consumedCapacity={"memory": "10"},
        bindingConditions=["example.com/ready"],
        bindingFailureConditions=["example.com/failed"],
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    )
    written = await write(api, made, allocation=allocation(full))
    assert written.body["status"]["allocation"]["devices"]["results"] == [full]


async def test_a_result_may_name_an_alternative(api: Api) -> None:
    alternatives = [
        {"name": "big", "deviceClassName": "c"},
        {"name": "small", "deviceClassName": "d"},
    ]
    made = await api.made(api.claims(), claim("a", {"name": "gpu", "firstAvailable": alternatives}))
    assert (await write(api, made, allocation=allocation(result(request="gpu/big")))).ok
    other = await api.made(
        api.claims(), claim("b", {"name": "gpu", "firstAvailable": alternatives})
    )
    answer = await write(api, other, allocation=allocation(result(request="gpu/huge")))
    refused(answer, "request")


async def test_32_results_are_the_most(api: Api) -> None:
    made = await api.claim("a")
    many = [result(f"gpu-{n}") for n in range(33)]
    answer = await write(api, made, allocation=allocation(*many))
    refused(answer, "status.allocation.devices.results")
    assert (await write(api, made, allocation=allocation(*many[:32]))).ok


async def test_one_device_in_two_claims_is_nobodys_business_here(api: Api) -> None:
    await allocated(api)
    other = await api.claim("b")
    assert (await write(api, other, allocation=allocation())).ok


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"source": "FromNowhere"}, "source"),
        ({"source": ""}, "source"),
        ({"requests": ["other"]}, "requests[0]"),
        ({"opaque": None}, "opaque"),
        ({"opaque": {"driver": "d.example.com"}}, "opaque.parameters"),
        ({"opaque": {"driver": "", "parameters": {}}}, "opaque.driver"),
    ],
)
async def test_a_broken_config_is_refused(api: Api, config: Json, field: str) -> None:
    made = await api.claim("a")
    good = {
        "source": "FromClaim",
        "requests": ["gpu"],
        "opaque": {"driver": "d.example.com", "parameters": {"a": 1}},
    }
    held = allocation()
    held["devices"]["config"] = [{**good, **config}]
    refused(await write(api, made, allocation=held), f"status.allocation.devices.config[0].{field}")


async def test_parameters_of_a_config_are_kept_as_they_are(api: Api) -> None:
    made = await api.claim("a")
    parameters: Json = {"nothing": None, "empty": {}, "list": [None, 1]}
    held = allocation()
    held["devices"]["config"] = [
        {
            "source": "FromClass",
            "opaque": {"driver": "d.example.com", "parameters": parameters},
        }
    ]
    written = await write(api, made, allocation=held)
    [config] = written.body["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"] == parameters


async def test_a_node_selector_is_kept(api: Api) -> None:
    made = await api.claim("a")
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    written = await write(api, made, allocation=allocation(nodeSelector=selector))
    assert written.body["status"]["allocation"]["nodeSelector"] == selector


@pytest.mark.parametrize(
    "selector",
    [
        {"nodeSelectorTerms": []},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
    ],
    ids=["no term", "unknown operator", "no value"],
)
async def test_a_broken_node_selector_is_refused(api: Api, selector: Json) -> None:
    made = await api.claim("a")
    answer = await write(api, made, allocation=allocation(nodeSelector=selector))
    refused(answer, "status.allocation.nodeSelector")


async def test_admin_access_needs_a_label_on_the_namespace(api: Api) -> None:
    answer = await api.post(api.claims(), claim("a", request("gpu", adminAccess=True)))
    refused(answer, "adminAccess")
    made = await api.claim("a")
    admin = allocation(result(adminAccess=True))
    refused(await write(api, made, allocation=admin), "adminAccess")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert (await api.merge(f"/api/v1/namespaces/{api.namespace}", label)).ok
    assert (await write(api, made, allocation=admin)).ok
    assert (await api.post(api.claims(), claim("b", request("gpu", adminAccess=True)))).ok


async def test_a_device_status_is_of_an_allocated_device(api: Api) -> None:
    written = await allocated(api)
    held = written.body["status"]["allocation"]
    device = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Because",
        "message": "",
        "lastTransitionTime": TIME,
    }
    told = await write(
        api, written, allocation=held, devices=[{**device, "conditions": [condition]}]
    )
    assert told.body["status"]["devices"][0]["conditions"] == [condition]
    other = [{**device, "device": "gpu-7"}]
    refused(await write(api, told, allocation=held, devices=other), "status.devices[0]")
    twice = [device, device]
    refused(await write(api, told, allocation=held, devices=twice), "status.devices[1]")


async def test_device_statuses_go_with_the_allocation(api: Api) -> None:
    written = await allocated(api)
    held = written.body["status"]["allocation"]
    device = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    told = await write(api, written, allocation=held, devices=[device])
    freed = await write(api, told, devices=[device])
    assert freed.ok
    assert not freed.body.get("status", {}).get("devices")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"requests": [{"name": "a"}]}, "spec.devices.requests[0]"),
        ({"requests": [request("Not a label")]}, "spec.devices.requests[0].name"),
        ({"requests": [request("a"), request("a")]}, "spec.devices.requests[1]"),
        ({"requests": [request("a", deviceClassName="")]}, "deviceClassName"),
        ({"requests": [request("a", count=-1)]}, "count"),
        ({"requests": [request("a", allocationMode="Some")]}, "allocationMode"),
        ({"requests": [request("a", allocationMode="All", count=2)]}, "count"),
        ({"requests": [request("a", selectors=[{"cel": {"expression": "1 +"}}])]}, "expression"),
        (
            {"requests": [request("a")], "constraints": [{"requests": ["a"]}]},
            "spec.devices.constraints[0]",
        ),
        (
            {
                "requests": [request("a")],
                "constraints": [{"requests": ["b"], "matchAttribute": "d.example.com/x"}],
            },
            "spec.devices.constraints[0].requests[0]",
        ),
    ],
)
async def test_a_broken_claim_is_refused(api: Api, spec: Json, field: str) -> None:
    answer = await api.post(api.claims(), {**claim("x"), "spec": {"devices": spec}})
    refused(answer, field)
