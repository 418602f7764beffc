"""Pods: defaults, binding, status, deletion, and what may change."""

from datetime import datetime, timedelta

import pytest

from tests.contract.api import HOLD, Api, Json, pod, with_metadata, with_status

OTHER_UID = "00000000-0000-4000-8000-000000000000"


async def test_a_new_pod_is_pending_and_has_defaults(api: Api) -> None:
    made = await api.made(api.pods(), pod("p", {"schedulerName": None}))
    assert made.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = made.body["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert made.meta["generation"] == 1


async def test_new_pods_tolerate_failing_nodes_for_a_while(api: Api) -> None:
    made = await api.pod("p")
    assert {
        (held["key"], held["effect"], held["tolerationSeconds"])
        for held in made.body["spec"]["tolerations"]
    } == {
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    }


async def test_limits_are_requests_where_none_are_given(api: Api) -> None:
    container = {
        "name": "main",
        "image": "x",
        "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}},
    }
    made = await api.pod("p", {"containers": [container]})
    resources = made.body["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "2", "memory": "1Gi"}


async def test_the_status_of_a_new_pod_is_not_the_clients(api: Api) -> None:
    made = await api.made(api.pods(), {**pod("p"), "status": {"phase": "Running"}})
    assert made.body["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": [{"image": "x"}]},
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]},
        {"resourceClaims": [{"name": "a"}]},
        {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}
            ]
        },
        {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "c"},
                {"name": "a", "resourceClaimName": "d"},
            ]
        },
        {
            "containers": [
                {"name": "a", "image": "x", "resources": {"claims": [{"name": "unknown"}]}}
            ]
        },
        {"nodeName": "n", "schedulingGates": [{"name": "example.com/gate"}]},
    ],
    ids=[
        "no container",
        "nameless container",
        "no image",
        "container twice",
        "claim without source",
        "claim with two sources",
        "claim entry twice",
        "unknown claim entry",
        "node and gate",
    ],
)
async def test_a_broken_pod_is_refused(api: Api, spec: Json) -> None:
    answer = await api.post(api.pods(), pod("p", spec))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_one_claim_may_stand_in_two_entries(api: Api) -> None:
    entries = [{"name": name, "resourceClaimName": "same"} for name in ("a", "b")]
    await api.pod("p", {"resourceClaims": entries})


async def test_an_unknown_priority_class_is_forbidden(api: Api) -> None:
    answer = await api.post(api.pods(), pod("p", {"priorityClassName": "none-such"}))
    assert (answer.code, answer.reason) == (403, "Forbidden")


async def test_a_priority_of_ones_own_is_forbidden(api: Api) -> None:
    answer = await api.post(api.pods(), pod("p", {"priority": 5}))
    assert (answer.code, answer.reason) == (403, "Forbidden")


async def test_a_priority_class_gives_its_value(api: Api) -> None:
    name = api.unique("class")
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.made(path, {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"})
    made = await api.pod("p", {"priorityClassName": name})
    assert (made.body["spec"]["priority"], made.body["spec"]["preemptionPolicy"]) == (7, "Never")
    await api.delete(f"{path}/{name}")


async def test_a_system_class_gives_its_value(api: Api) -> None:
    made = await api.pod("p", {"priorityClassName": "system-node-critical"})
    assert made.body["spec"]["priority"] == 2_000_001_000


async def test_binding_puts_a_pod_on_a_node(api: Api) -> None:
    made = await api.pod("p")
    bound = await api.bind("p", "node-1", uid=made.meta["uid"])
    assert (bound.body["kind"], bound.body["status"]) == ("Status", "Success")
    pod_now = await api.get(api.pods("p"))
    assert pod_now.body["spec"]["nodeName"] == "node-1"
    [condition] = pod_now.body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]
    assert pod_now.meta["generation"] == 1


async def test_a_bound_pod_is_not_bound_again(api: Api) -> None:
    await api.pod("p")
    assert (await api.bind("p", "node-1")).ok
    for node in ("node-1", "node-2"):
        answer = await api.bind("p", node)
        assert (answer.code, answer.reason) == (409, "Conflict")


async def test_binding_a_missing_pod_is_not_found(api: Api) -> None:
    answer = await api.bind("p")
    assert (answer.code, answer.reason) == (404, "NotFound")


async def test_binding_another_uid_is_a_conflict(api: Api) -> None:
    await api.pod("p")
    answer = await api.bind("p", uid=OTHER_UID)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "nodeName" not in (await api.get(api.pods("p"))).body["spec"]


async def test_binding_an_old_version_is_a_conflict(api: Api) -> None:
    made = await api.pod("p")
    await api.merge(api.pods("p"), {"metadata": {"labels": {"a": "b"}}})
    answer = await api.bind("p", resourceVersion=made.meta["resourceVersion"])
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_binding_the_current_version_works(api: Api) -> None:
    made = await api.pod("p")
    bound = await api.bind("p", uid=made.meta["uid"], resourceVersion=made.meta["resourceVersion"])
    assert bound.ok


async def test_a_pod_being_deleted_is_not_bound(api: Api) -> None:
    await api.pod("p", finalizers=[HOLD])
    await api.delete(api.pods("p"))
    answer = await api.bind("p")
    assert (answer.code, answer.reason) == (409, "Conflict")
    await api.merge(api.pods("p"), {"metadata": {"finalizers": None}})


async def test_a_gated_pod_is_not_bound(api: Api) -> None:
    await api.pod("p", {"schedulingGates": [{"name": "example.com/gate"}]})
    answer = await api.bind("p")
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_a_gated_pod_says_so(api: Api) -> None:
    made = await api.pod("p", {"schedulingGates": [{"name": "example.com/gate"}]})
    [condition] = made.body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


async def test_a_binding_names_its_pod(api: Api) -> None:
    await api.pod("p")
    body = {"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n"}}
    answer = await api.post(f"{api.pods('p')}/binding", body)
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_binding_names_a_node(api: Api) -> None:
    await api.pod("p")
    answer = await api.post(f"{api.pods('p')}/binding", {"metadata": {"name": "p"}, "target": {}})
    assert answer.code >= 400
    assert "nodeName" not in (await api.get(api.pods("p"))).body["spec"]


async def test_a_binding_brings_annotations(api: Api) -> None:
    await api.pod("p", annotations={"a": "1", "b": "1"})
    assert (await api.bind("p", annotations={"b": "2", "c": "2"})).ok
    bound = await api.get(api.pods("p"))
    assert bound.meta["annotations"] == {"a": "1", "b": "2", "c": "2"}


async def test_binding_clears_the_nominated_node(api: Api) -> None:
    await api.pod("p")
    await api.merge(f"{api.pods('p')}/status", {"status": {"nominatedNodeName": "node-9"}})
    assert (await api.bind("p", "node-1")).ok
    assert not (await api.get(api.pods("p"))).body["status"].get("nominatedNodeName")


async def test_a_dry_run_binds_nothing(api: Api) -> None:
    await api.pod("p")
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await api.post(f"{api.pods('p')}/binding", body, dryRun="All")).ok
    assert "nodeName" not in (await api.get(api.pods("p"))).body["spec"]


async def test_a_status_write_leaves_the_spec_alone(api: Api) -> None:
    made = await api.pod("p")
    body = with_status(made, phase="Running")
    body["spec"] = {**body["spec"], "nodeName": "elsewhere"}
    written = await api.put(f"{api.pods('p')}/status", body)
    assert written.body["status"]["phase"] == "Running"
    assert "nodeName" not in written.body["spec"]


async def test_a_status_write_keeps_claim_statuses_and_qos(api: Api) -> None:
    entry = {"name": "a", "resourceClaimTemplateName": "t"}
    made = await api.pod("p", {"resourceClaims": [entry]})
    known = [{"name": "a", "resourceClaimName": "c"}]
    path = f"{api.pods('p')}/status"
    current = await api.put(path, with_status(made, phase="Pending", resourceClaimStatuses=known))
    written = await api.put(path, with_status(current, phase="Running"))
    assert written.body["status"]["resourceClaimStatuses"] == known
    assert written.body["status"]["qosClass"] == "BestEffort"


async def test_a_main_write_leaves_the_status_alone(api: Api) -> None:
    made = await api.pod("p")
    body = {**with_metadata(made, labels={"a": "b"}), "status": {"phase": "Running"}}
    written = await api.put(api.pods("p"), body)
    assert written.body["status"]["phase"] == "Pending"
    assert written.meta["labels"] == {"a": "b"}


async def test_the_status_path_may_write_labels_but_not_owners(api: Api) -> None:
    made = await api.pod("p")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made.meta["uid"]}
    body = with_metadata(made, labels={"a": "b"}, ownerReferences=[owner])
    written = await api.put(f"{api.pods('p')}/status", body)
    assert written.meta["labels"] == {"a": "b"}
    assert "ownerReferences" not in written.meta


async def test_the_node_of_a_pod_is_not_written_directly(api: Api) -> None:
    made = await api.pod("p")
    body = {**made.body, "spec": {**made.body["spec"], "nodeName": "n"}}
    answer = await api.put(api.pods("p"), body)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_image_may_change_and_counts(api: Api) -> None:
    made = await api.pod("p")
    [container] = made.body["spec"]["containers"]
    spec = {**made.body["spec"], "containers": [{**container, "image": "other"}]}
    written = await api.put(api.pods("p"), {**made.body, "spec": spec})
    assert written.body["spec"]["containers"][0]["image"] == "other"
    assert written.meta["generation"] == 2


async def test_tolerations_may_be_added_only(api: Api) -> None:
    made = await api.pod("p", {"tolerations": [{"key": "a", "operator": "Exists"}]})
    more = [*made.body["spec"]["tolerations"], {"key": "b", "operator": "Exists"}]
    spec = {**made.body["spec"], "tolerations": more}
    added = await api.put(api.pods("p"), {**made.body, "spec": spec})
    assert added.ok
    answer = await api.put(
        api.pods("p"), {**added.body, "spec": {**added.body["spec"], "tolerations": more[1:]}}
    )
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_gates_may_be_removed_only(api: Api) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    made = await api.pod("p", {"schedulingGates": gates})
    spec = {**made.body["spec"], "schedulingGates": gates[:1]}
    removed = await api.put(api.pods("p"), {**made.body, "spec": spec})
    assert removed.ok
    spec = {**removed.body["spec"], "schedulingGates": gates}
    answer = await api.put(api.pods("p"), {**removed.body, "spec": spec})
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_claim_entries_of_a_pod_do_not_change(api: Api) -> None:
    made = await api.pod("p", {"resourceClaims": [{"name": "a", "resourceClaimName": "c"}]})
    spec = {**made.body["spec"], "resourceClaims": [{"name": "a", "resourceClaimName": "d"}]}
    answer = await api.put(api.pods("p"), {**made.body, "spec": spec})
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_unbound_pod_is_deleted_at_once(api: Api) -> None:
    await api.pod("p")
    deleted = await api.delete(api.pods("p"))
    assert deleted.body["kind"] == "Pod"
    assert (await api.get(api.pods("p"))).code == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    await api.pod("p")
    await api.bind("p")
    deleted = await api.delete(api.pods("p"))
    assert deleted.meta["deletionGracePeriodSeconds"] == 30
    assert deleted.meta["generation"] == 2
    assert (await api.get(api.pods("p"))).ok
    assert (await api.delete(api.pods("p"))).body == deleted.body
    assert (await api.delete(api.pods("p"), {"gracePeriodSeconds": 0})).ok
    assert (await api.get(api.pods("p"))).code == 404


async def test_the_time_of_deletion_is_when_the_grace_period_is_over(api: Api) -> None:
    made = await api.pod("p", {"terminationGracePeriodSeconds": 600})
    await api.bind("p")
    deleted = await api.delete(api.pods("p"), {"gracePeriodSeconds": 100})
    until = datetime.fromisoformat(deleted.meta["deletionTimestamp"])
    created = datetime.fromisoformat(made.meta["creationTimestamp"])
    assert timedelta(seconds=99) <= until - created <= timedelta(seconds=110)
    await api.delete(api.pods("p"), gracePeriodSeconds="0")


async def test_a_bound_pod_is_deleted_at_once_with_no_grace_period(api: Api) -> None:
    await api.pod("p")
    await api.bind("p")
    assert (await api.delete(api.pods("p"), gracePeriodSeconds="0")).ok
    assert (await api.get(api.pods("p"))).code == 404


async def test_a_finished_pod_is_deleted_at_once(api: Api) -> None:
    await api.pod("p")
    await api.bind("p")
    await api.merge(f"{api.pods('p')}/status", {"status": {"phase": "Succeeded"}})
    assert (await api.delete(api.pods("p"))).ok
    assert (await api.get(api.pods("p"))).code == 404


async def test_a_pod_with_a_finalizer_outlives_its_grace_period(api: Api) -> None:
    await api.pod("p", finalizers=[HOLD])
    await api.bind("p")
    deleted = await api.delete(api.pods("p"), {"gracePeriodSeconds": 0})
    assert deleted.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.pods("p"))).ok
    assert (await api.merge(api.pods("p"), {"metadata": {"finalizers": None}})).ok
    assert (await api.get(api.pods("p"))).code == 404


async def test_the_last_finalizer_does_not_cut_the_grace_period(api: Api) -> None:
    await api.pod("p", finalizers=[HOLD])
    await api.bind("p")
    await api.delete(api.pods("p"))
    assert (await api.merge(api.pods("p"), {"metadata": {"finalizers": None}})).ok
    assert (await api.get(api.pods("p"))).ok
    await api.delete(api.pods("p"), gracePeriodSeconds="0")
