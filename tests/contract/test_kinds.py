"""Nodes, namespaces, leases, events, slices, classes, jobs: the rules that a scheduler and its company meet."""

import pytest

from tests.contract.api import Api, Json, items, with_metadata, with_status

NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
LEASE = "coordination.k8s.io/v1"


async def test_a_new_node_is_not_ready(api: Api) -> None:
    name = api.unique("node")
    made = await api.made(NODES, {"metadata": {"name": name}})
    [taint] = made.body["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("node.kubernetes.io/not-ready", "NoSchedule")
    await api.delete(f"{NODES}/{name}")


async def test_a_node_brings_its_status(api: Api) -> None:
    name = api.unique("node")
    status = {"capacity": {"cpu": "4"}}
    made = await api.made(NODES, {"metadata": {"name": name}, "status": status})
    assert made.body["status"]["allocatable"] == {"cpu": "4"}
    await api.delete(f"{NODES}/{name}")


async def test_a_node_has_two_paths(api: Api) -> None:
    name = api.unique("node")
    path = f"{NODES}/{name}"
    made = await api.made(NODES, {"metadata": {"name": name}})
    body = with_status(made, capacity={"cpu": "8"})
    body["spec"] = {"unschedulable": True}
    main = await api.put(path, body)
    assert main.body["spec"]["unschedulable"]
    assert "capacity" not in main.body["status"]
    other = await api.put(
        f"{path}/status", {**with_status(main, capacity={"cpu": "8"}), "spec": {}}
    )
    assert other.body["spec"]["unschedulable"]
    assert other.body["status"]["capacity"] == {"cpu": "8"}
    assert "generation" not in other.meta
    await api.delete(path)


async def test_a_namespace_is_active_and_labelled(api: Api) -> None:
    made = await api.get(f"/api/v1/namespaces/{api.namespace}")
    assert made.body["status"]["phase"] == "Active"
    assert made.body["spec"]["finalizers"] == ["kubernetes"]
    assert made.meta["labels"]["kubernetes.io/metadata.name"] == api.namespace


async def test_nothing_new_comes_into_a_namespace_that_ends(api: Api) -> None:
    name = api.unique("ending")
    meta = {"name": name, "finalizers": ["example.com/hold"]}
    await api.made("/api/v1/namespaces", {"metadata": meta})
    deleted = await api.delete(f"/api/v1/namespaces/{name}")
    assert deleted.body["status"]["phase"] == "Terminating"
    answer = await api.post(
        f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "a"}, "data": {}}
    )
    assert (answer.code, answer.reason) == (403, "Forbidden")
    await api.merge(f"/api/v1/namespaces/{name}", {"metadata": {"finalizers": None}})


async def test_the_default_namespace_stays(api: Api) -> None:
    assert (await api.delete("/api/v1/namespaces/default")).code == 403


def _lease(**spec: object) -> Json:
    return {
        "apiVersion": LEASE,
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, **spec},
    }


async def test_a_lease_is_taken_once(api: Api) -> None:
    path = api.path("leases", group=LEASE)
    await api.made(path, _lease())
    again = await api.post(path, _lease(holderIdentity="you"))
    assert (again.code, again.reason) == (409, "AlreadyExists")


async def test_a_lease_is_renewed_by_whoever_saw_the_last_version(api: Api) -> None:
    path = api.path("leases", "l", LEASE)
    made = await api.made(api.path("leases", group=LEASE), _lease())
    time = "2026-11-29T10:00:00.000000Z"
    body = {**made.body, "spec": {**made.body["spec"], "renewTime": time}}
    renewed = await api.put(path, body)
    assert renewed.body["spec"]["renewTime"] == time
    stale = {**made.body, "spec": {**made.body["spec"], "holderIdentity": "you"}}
    answer = await api.put(path, stale)
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_a_lease_is_not_written_without_a_version(api: Api) -> None:
    made = await api.made(api.path("leases", group=LEASE), _lease())
    body = with_metadata(made, resourceVersion=None)
    answer = await api.put(api.path("leases", "l", LEASE), body)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_lease_can_be_created_by_put(api: Api) -> None:
    assert (await api.put(api.path("leases", "l", LEASE), _lease())).ok


@pytest.mark.parametrize(
    "spec",
    [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}],
    ids=str,
)
async def test_a_broken_lease_is_refused(api: Api, spec: Json) -> None:
    answer = await api.post(api.path("leases", group=LEASE), _lease(**spec))
    assert (answer.code, answer.reason) == (422, "Invalid")


def _event(api: Api, **fields: object) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-11-29T10:00:00.000000Z",
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "no device left",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
        **fields,
    }


async def test_an_event_is_the_same_in_both_groups(api: Api) -> None:
    await api.made(api.path("events", group="events.k8s.io/v1"), _event(api))
    core = await api.get(api.path("events", "e"))
    assert core.body["message"] == "no device left"
    assert core.body["involvedObject"]["name"] == "p"
    assert core.body["reportingComponent"] == "example.com/tester"
    back = await api.get(api.path("events", "e", "events.k8s.io/v1"))
    assert (back.body["note"], back.body["regarding"]["name"]) == ("no device left", "p")


async def test_events_are_found_by_what_they_are_about(api: Api) -> None:
    await api.made(api.path("events", group="events.k8s.io/v1"), _event(api))
    for selector, found in (("involvedObject.name=p", ["e"]), ("involvedObject.name=q", [])):
        assert items(await api.get(api.path("events"), fieldSelector=selector)) == found


async def test_a_repeated_event_is_patched(api: Api) -> None:
    path = api.path("events", group="events.k8s.io/v1")
    await api.made(path, _event(api))
    series = {"count": 2, "lastObservedTime": "2026-11-29T10:01:00.000000Z"}
    patched = await api.strategic(f"{path}/e", {"series": series})
    assert patched.body["series"] == series


@pytest.mark.parametrize(
    "fields",
    [
        {"action": ""},
        {"reason": ""},
        {"reportingController": ""},
        {"reportingInstance": ""},
        {"type": "Odd"},
        {"note": "x" * 1025},
        {"regarding": {"kind": "Node", "name": "n"}},
        {"eventTime": None},
        {"deprecatedCount": 3},
        {"series": {"count": 1, "lastObservedTime": "2026-11-29T10:01:00.000000Z"}},
    ],
    ids=str,
)
async def test_a_broken_event_is_refused(api: Api, fields: Json) -> None:
    answer = await api.post(api.path("events", group="events.k8s.io/v1"), _event(api, **fields))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_event_says_the_same_for_ever(api: Api) -> None:
    path = api.path("events", "e", "events.k8s.io/v1")
    await api.made(api.path("events", group="events.k8s.io/v1"), _event(api))
    answer = await api.merge(path, {"note": "other"})
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_old_style_event_is_in_the_namespace_of_what_it_is_about(api: Api) -> None:
    about = {"kind": "Pod", "namespace": "elsewhere", "name": "p"}
    body = {"metadata": {"name": "e"}, "reason": "r", "message": "m", "type": "Normal"}
    answer = await api.post(api.path("events"), {**body, "involvedObject": about})
    assert (answer.code, answer.reason) == (422, "Invalid")
    about["namespace"] = api.namespace
    assert (await api.post(api.path("events"), {**body, "involvedObject": about})).ok


def _slice(name: str, **spec: object) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"model": {"string": "H100"}, "index": {"int": 0}},
                    "capacity": {"memory": {"value": "80Gi"}},
                }
            ],
            **spec,
        },
    }


async def test_a_slice_is_kept_as_published(api: Api) -> None:
    name = api.unique("slice")
    body = _slice(name)
    made = await api.made(SLICES, body)
    assert made.body["spec"] == body["spec"]
    assert made.meta["generation"] == 1
    await api.delete(f"{SLICES}/{name}")


@pytest.mark.parametrize(
    "change",
    [{"driver": "other.example.com"}, {"nodeName": "node-2"}, {"pool": "other"}],
    ids=["driver", "node", "pool"],
)
async def test_a_slice_stays_where_it_is(api: Api, change: Json) -> None:
    name = api.unique("slice")
    made = await api.made(SLICES, _slice(name))
    if "pool" in change:
        change = {"pool": {**made.body["spec"]["pool"], "name": change["pool"]}}
    answer = await api.put(
        f"{SLICES}/{name}", {**made.body, "spec": {**made.body["spec"], **change}}
    )
    assert (answer.code, answer.reason) == (422, "Invalid")
    await api.delete(f"{SLICES}/{name}")


async def test_devices_of_a_slice_change_and_count(api: Api) -> None:
    name = api.unique("slice")
    made = await api.made(SLICES, _slice(name))
    spec = {**made.body["spec"], "devices": [{"name": "gpu-1"}]}
    changed = await api.put(f"{SLICES}/{name}", {**made.body, "spec": spec})
    assert changed.body["spec"]["devices"] == [{"name": "gpu-1"}]
    assert changed.meta["generation"] == 2
    await api.delete(f"{SLICES}/{name}")


async def test_slices_are_found_by_node_and_driver(api: Api) -> None:
    name = api.unique("slice")
    driver = f"{name[:50]}.example.com"
    await api.made(SLICES, _slice(name, driver=driver))
    for selector, found in (
        (f"spec.driver={driver}", [name]),
        (f"spec.driver={driver},spec.nodeName=node-1", [name]),
        (f"spec.driver={driver},spec.nodeName=node-2", []),
    ):
        assert items(await api.get(SLICES, fieldSelector=selector)) == found
    await api.delete(f"{SLICES}/{name}")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"driver": ""}, "spec.driver"),
        ({"nodeName": None}, "spec"),
        ({"allNodes": True}, "spec"),
        ({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 0}}, "resourceSliceCount"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "spec.devices[1]"),
        ({"devices": [{"name": "Not a label"}]}, "spec.devices[0].name"),
        ({"devices": [{"name": "a", "attributes": {"x": {}}}]}, "attributes"),
        (
            {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "Odd"}]}]},
            "taints[0].effect",
        ),
        ({"devices": [{"name": f"gpu-{n}"} for n in range(129)]}, "spec.devices"),
    ],
)
async def test_a_broken_slice_is_refused(api: Api, spec: Json, field: str) -> None:
    answer = await api.post(SLICES, _slice(api.unique("slice"), **spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert field in answer.body["message"]


async def test_a_broken_quantity_is_a_bad_request(api: Api) -> None:
    devices = [{"name": "a", "capacity": {"memory": {"value": "many"}}}]
    answer = await api.post(SLICES, _slice(api.unique("slice"), devices=devices))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_slice_made_in_v1beta1_is_read_in_v1(api: Api) -> None:
    name = api.unique("slice")
    body = _slice(name)
    body["apiVersion"] = "resource.k8s.io/v1beta1"
    device = body["spec"]["devices"][0]
    basic = {key: value for key, value in device.items() if key != "name"}
    body["spec"]["devices"] = [{"name": "gpu-0", "basic": basic}]
    made = await api.made("/apis/resource.k8s.io/v1beta1/resourceslices", body)
    assert made.body["spec"]["devices"] == body["spec"]["devices"]
    read = await api.get(f"{SLICES}/{name}")
    assert read.body["spec"]["devices"] == [device]
    await api.delete(f"{SLICES}/{name}")


async def test_a_class_that_does_not_compile_is_refused(api: Api) -> None:
    spec = {"selectors": [{"cel": {"expression": "device.drive == "}}]}
    answer = await api.post(CLASSES, {"metadata": {"name": api.unique("class")}, "spec": spec})
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_the_server_tells_its_version_and_resources(api: Api) -> None:
    version = (await api.get("/version")).body
    assert version["major"] == "1"
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.")
    groups = {group["name"] for group in (await api.get("/apis")).body["groups"]}
    assert {"resource.k8s.io", "coordination.k8s.io", "batch", "events.k8s.io"} <= groups
    served = (await api.get("/apis/resource.k8s.io/v1")).body["resources"]
    names = {entry["name"]: entry["namespaced"] for entry in served}
    for name, namespaced in (
        ("resourceclaims", True),
        ("resourceclaims/status", True),
        ("resourceslices", False),
        ("deviceclasses", False),
        ("devicetaintrules", False),
        ("resourceclaimtemplates", True),
    ):
        assert names[name] is namespaced
    core = {entry["name"] for entry in (await api.get("/api/v1")).body["resources"]}
    assert {"pods", "pods/binding", "pods/status", "nodes", "namespaces", "events"} <= core


async def test_a_template_does_not_change(api: Api) -> None:
    path = api.path("resourceclaimtemplates", group="resource.k8s.io/v1")
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}}
    made = await api.made(path, {"metadata": {"name": "t"}, "spec": {"spec": spec}})
    [request] = made.body["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 1
    changed = {**made.body, "spec": {"spec": {"devices": {"requests": []}}}}
    answer = await api.put(f"{path}/t", changed)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_taint_rule_has_an_effect_that_is_known(api: Api) -> None:
    path = "/apis/resource.k8s.io/v1/devicetaintrules"
    name = api.unique("rule")
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    selector = {"driver": "gpu.example.com", "pool": "p", "device": "d"}
    body = {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}
    made = await api.made(path, body)
    assert made.body["spec"]["taint"]["timeAdded"]
    await api.delete(f"{path}/{name}")
    body["spec"] = {"deviceSelector": selector, "taint": {**taint, "effect": "Odd"}}
    assert (await api.post(path, body)).code == 422


async def test_a_taint_of_a_device_is_dated(api: Api) -> None:
    name = api.unique("slice")
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    made = await api.made(SLICES, _slice(name, devices=[{"name": "a", "taints": [taint]}]))
    assert made.body["spec"]["devices"][0]["taints"][0]["timeAdded"]
    await api.delete(f"{SLICES}/{name}")


async def test_a_system_priority_class_is_not_the_users(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for body in (
        {"metadata": {"name": api.unique("system-mine")}, "value": 5},
        {"metadata": {"name": api.unique("class")}, "value": 1_000_000_001},
    ):
        answer = await api.post(path, body)
        assert (answer.code, answer.reason) in ((422, "Invalid"), (403, "Forbidden"))
