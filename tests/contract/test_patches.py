"""Merge patch, strategic merge patch and server-side apply."""

from tests.contract.api import (
    FINALIZER,
    HOLD,
    Api,
    Json,
    allocation,
    claim,
    consumer,
    with_metadata,
    with_status,
)


async def test_a_merge_patch_changes_what_it_names(api: Api) -> None:
    await api.claim("a", labels={"keep": "1", "change": "1", "drop": "1"})
    patched = await api.merge(
        api.claims("a"), {"metadata": {"labels": {"change": "2", "drop": None, "new": "3"}}}
    )
    assert patched.meta["labels"] == {"keep": "1", "change": "2", "new": "3"}


async def test_a_merge_patch_replaces_lists(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD, "example.com/other"])
    patched = await api.merge(api.claims("a"), {"metadata": {"finalizers": [FINALIZER]}})
    assert patched.meta["finalizers"] == [FINALIZER]


async def test_a_patch_with_an_old_version_is_a_conflict(api: Api) -> None:
    made = await api.claim("a")
    assert (await api.put(api.claims("a"), with_metadata(made, labels={"a": "1"}))).ok
    patch = {"metadata": {"resourceVersion": made.meta["resourceVersion"], "labels": {"a": "2"}}}
    answer = await api.merge(api.claims("a"), patch)
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_a_patch_with_another_uid_is_invalid(api: Api) -> None:
    await api.claim("a")
    for patch in (api.merge, api.strategic):
        answer = await patch(api.claims("a"), {"metadata": {"uid": "other", "labels": {"a": "2"}}})
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert "metadata.uid" in answer.body["message"]


async def test_a_patch_cannot_rename(api: Api) -> None:
    await api.claim("a")
    answer = await api.merge(api.claims("a"), {"metadata": {"name": "b"}})
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_patch_that_changes_nothing_makes_no_version(api: Api) -> None:
    made = await api.claim("a", labels={"a": "b"})
    patched = await api.merge(api.claims("a"), {"metadata": {"labels": {"a": "b"}}})
    assert patched.version == made.version


async def test_an_unknown_patch_format_is_refused(api: Api) -> None:
    await api.claim("a")
    answer = await api.write("PATCH", api.claims("a"), {}, "application/strange+json")
    assert answer.code == 415


async def test_a_patch_that_is_no_object_is_refused(api: Api) -> None:
    await api.claim("a")
    answer = await api.write("PATCH", api.claims("a"), b"{", "application/merge-patch+json")
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_patch_of_the_spec_of_a_claim_is_invalid(api: Api) -> None:
    await api.claim("a")
    answer = await api.merge(
        api.claims("a"), {"spec": {"devices": {"requests": [{"name": "other"}]}}}
    )
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_strategic_patch_adds_to_finalizers(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD])
    patched = await api.strategic(api.claims("a"), {"metadata": {"finalizers": [FINALIZER]}})
    assert set(patched.meta["finalizers"]) == {HOLD, FINALIZER}


async def test_a_strategic_patch_removes_one_finalizer(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD, FINALIZER])
    patched = await api.strategic(
        api.claims("a"), {"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}}
    )
    assert patched.meta["finalizers"] == [FINALIZER]


async def test_a_strategic_patch_merges_owners_by_uid(api: Api) -> None:
    owner = await api.pod("owner")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner.meta["uid"]}
    made = await api.claim("a", ownerReferences=[reference])
    patched = await api.strategic(
        api.claims("a"),
        {"metadata": {"ownerReferences": [{"uid": owner.meta["uid"], "controller": True}]}},
    )
    assert patched.meta["ownerReferences"] == [{**reference, "controller": True}]
    removed = await api.strategic(
        api.claims("a"),
        {
            "metadata": {
                "uid": made.meta["uid"],
                "ownerReferences": [{"$patch": "delete", "uid": owner.meta["uid"]}],
            }
        },
    )
    assert "ownerReferences" not in removed.meta


async def test_a_strategic_patch_merges_conditions_by_type(api: Api) -> None:
    await api.pod("p")
    status = f"{api.pods('p')}/status"
    first = {"type": "A", "status": "False", "reason": "Because"}
    second = {"type": "B", "status": "True"}
    await api.strategic(status, {"status": {"conditions": [first, second]}})
    patched = await api.strategic(
        status, {"status": {"conditions": [{"type": "A", "status": "True"}]}}
    )
    conditions = {
        held["type"]: (held["status"], held.get("reason"))
        for held in patched.body["status"]["conditions"]
    }
    assert conditions == {"A": ("True", "Because"), "B": ("True", None)}


async def test_a_strategic_patch_replaces_taints(api: Api) -> None:
    name = api.unique("node")
    node = {"metadata": {"name": name}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    await api.made("/api/v1/nodes", node)
    wanted = [{"key": "b", "effect": "NoSchedule"}]
    patched = await api.strategic(f"/api/v1/nodes/{name}", {"spec": {"taints": wanted}})
    assert patched.body["spec"]["taints"] == wanted
    await api.delete(f"/api/v1/nodes/{name}")


async def _reserved(api: Api, *uids: str) -> Json:
    made = await api.claim("a")
    written = await api.put(
        f"{api.claims('a')}/status",
        with_status(made, allocation=allocation(), reservedFor=[consumer(uid) for uid in uids]),
    )
    assert written.ok, written
    return written.body


async def test_one_reservation_is_removed_without_the_latest_object(api: Api) -> None:
    held = await _reserved(api, "u1", "u2")
    patch = {
        "metadata": {"uid": held["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "u1"}]},
    }
    patched = await api.strategic(f"{api.claims('a')}/status", patch)
    assert [entry["uid"] for entry in patched.body["status"]["reservedFor"]] == ["u2"]
    assert patched.body["status"]["allocation"] == held["status"]["allocation"]


async def test_the_last_reservation_removed_leaves_the_allocation(api: Api) -> None:
    await _reserved(api, "u1")
    patch = {"status": {"reservedFor": [{"$patch": "delete", "uid": "u1"}]}}
    patched = await api.strategic(f"{api.claims('a')}/status", patch)
    assert not patched.body["status"].get("reservedFor")
    assert patched.body["status"]["allocation"]


async def test_removing_a_reservation_that_is_not_there_changes_nothing(api: Api) -> None:
    held = await _reserved(api, "u1")
    patch = {"status": {"reservedFor": [{"$patch": "delete", "uid": "other"}]}}
    patched = await api.strategic(f"{api.claims('a')}/status", patch)
    assert patched.meta["resourceVersion"] == held["metadata"]["resourceVersion"]


async def test_a_reservation_patch_for_another_claim_is_invalid(api: Api) -> None:
    await _reserved(api, "u1")
    patch = {
        "metadata": {"uid": "00000000-0000-4000-8000-000000000000"},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "u1"}]},
    }
    answer = await api.strategic(f"{api.claims('a')}/status", patch)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_reservation_is_added_by_patch(api: Api) -> None:
    await _reserved(api, "u1")
    patch = {"status": {"reservedFor": [consumer("u2")]}}
    patched = await api.strategic(f"{api.claims('a')}/status", patch)
    assert {entry["uid"] for entry in patched.body["status"]["reservedFor"]} == {"u1", "u2"}


async def test_a_status_patch_leaves_finalizers_alone(api: Api) -> None:
    await _reserved(api, "u1")
    patch = {"metadata": {"finalizers": [FINALIZER], "labels": {"a": "b"}}, "status": {}}
    patched = await api.merge(f"{api.claims('a')}/status", patch)
    assert "finalizers" not in patched.meta
    assert "labels" not in patched.meta


async def test_apply_creates_what_is_not_there(api: Api) -> None:
    applied = await api.apply(api.claims("a"), claim("a", labels={"a": "b"}))
    assert applied.meta["labels"] == {"a": "b"}
    assert applied.meta["uid"]


async def test_apply_to_a_missing_status_is_not_found(api: Api) -> None:
    answer = await api.apply(f"{api.pods('p')}/status", _pod_status("p"))
    assert (answer.code, answer.reason) == (404, "NotFound")


async def test_apply_needs_a_manager(api: Api) -> None:
    answer = await api.write("PATCH", api.claims("a"), claim("a"), "application/apply-patch+yaml")
    assert answer.code == 422


async def test_applying_the_same_again_makes_no_version(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    first = await api.apply(api.path("configmaps", "a"), body)
    again = await api.apply(api.path("configmaps", "a"), body)
    assert again.version == first.version


async def test_what_is_applied_no_more_is_removed(api: Api) -> None:
    path = api.path("configmaps", "a")
    await api.apply(path, _config_map("a", {"k": "1", "gone": "1"}))
    await api.merge(path, {"data": {"theirs": "1"}})
    applied = await api.apply(path, _config_map("a", {"k": "2"}))
    assert applied.body["data"] == {"k": "2", "theirs": "1"}


async def test_applying_over_somebody_elses_value_is_a_conflict(api: Api) -> None:
    path = api.path("configmaps", "a")
    await api.apply(path, _config_map("a", {"k": "1"}), "first")
    answer = await api.apply(path, _config_map("a", {"k": "2"}), "second")
    assert (answer.code, answer.reason) == (409, "Conflict")
    forced = await api.apply(path, _config_map("a", {"k": "2"}), "second", force="true")
    assert forced.body["data"] == {"k": "2"}


async def test_applying_over_a_value_that_was_written_is_a_conflict(api: Api) -> None:
    path = api.path("configmaps", "a")
    await api.made(api.path("configmaps"), _config_map("a", {"k": "1"}))
    answer = await api.apply(path, _config_map("a", {"k": "2"}))
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_applying_the_value_that_is_there_is_no_conflict(api: Api) -> None:
    path = api.path("configmaps", "a")
    await api.apply(path, _config_map("a", {"k": "1"}), "first")
    assert (await api.apply(path, _config_map("a", {"k": "1"}), "second")).ok


async def test_a_value_that_others_changed_is_not_removed(api: Api) -> None:
    path = api.path("configmaps", "a")
    await api.apply(path, _config_map("a", {"k": "1", "other": "1"}))
    await api.merge(path, {"data": {"k": "theirs"}})
    applied = await api.apply(path, _config_map("a", {"other": "1"}))
    assert applied.body["data"] == {"k": "theirs", "other": "1"}


async def test_claim_statuses_of_a_pod_are_applied_by_name(api: Api) -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b")]
    await api.pod("p", {"resourceClaims": entries})
    path = f"{api.pods('p')}/status"
    await api.apply(path, _pod_status("p", a="claim-a"), "one", force="true")
    both = await api.apply(path, _pod_status("p", b="claim-b"), "two", force="true")
    assert _claim_names(both.body) == {"a": "claim-a", "b": "claim-b"}
    changed = await api.apply(path, _pod_status("p", a="claim-c"), "one", force="true")
    assert _claim_names(changed.body) == {"a": "claim-c", "b": "claim-b"}
    assert changed.body["status"]["phase"] == "Pending"


async def test_a_claim_status_that_is_applied_no_more_goes(api: Api) -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b")]
    await api.pod("p", {"resourceClaims": entries})
    path = f"{api.pods('p')}/status"
    await api.apply(path, _pod_status("p", a="claim-a", b="claim-b"), force="true")
    changed = await api.apply(path, _pod_status("p", b="claim-b"), force="true")
    assert _claim_names(changed.body) == {"b": "claim-b"}


async def test_a_claim_status_of_an_unknown_entry_is_invalid(api: Api) -> None:
    await api.pod("p")
    answer = await api.apply(f"{api.pods('p')}/status", _pod_status("p", a="claim-a"))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_claim_status_without_claim_says_that_none_is_needed(api: Api) -> None:
    await api.pod("p", {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]})
    body = _pod_status("p")
    body["status"]["resourceClaimStatuses"] = [{"name": "a"}]
    applied = await api.apply(f"{api.pods('p')}/status", body)
    assert applied.body["status"]["resourceClaimStatuses"] == [{"name": "a"}]


def _config_map(name: str, data: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _pod_status(name: str, **claims: str) -> Json:
    entries = [
        {"name": entry, "resourceClaimName": claim_name} for entry, claim_name in claims.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "status": {"resourceClaimStatuses": entries},
    }


def _claim_names(pod: Json) -> dict[str, str]:
    return {
        entry["name"]: entry["resourceClaimName"]
        for entry in pod["status"]["resourceClaimStatuses"]
    }
