"""Creating, reading, replacing and deleting objects of any kind."""

import re

import pytest

from tests.contract.api import HOLD, Api, Json, claim, pod, with_metadata

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


async def test_a_created_object_has_uid_version_and_time(api: Api) -> None:
    made = await api.claim("a")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made.meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.meta["creationTimestamp"])
    assert made.version > 0
    assert made.meta["namespace"] == api.namespace
    assert (made.body["kind"], made.body["apiVersion"]) == ("ResourceClaim", "resource.k8s.io/v1")


async def test_what_was_created_can_be_read(api: Api) -> None:
    made = await api.claim("a")
    assert (await api.get(api.claims("a"))).body == made.body


async def test_a_name_is_taken_once(api: Api) -> None:
    await api.claim("a")
    again = await api.post(api.claims(), claim("a"))
    assert (again.code, again.reason) == (409, "AlreadyExists")


async def test_a_missing_object_is_not_found(api: Api) -> None:
    for answer in (
        await api.get(api.claims("a")),
        await api.put(api.claims("a"), claim("a")),
        await api.merge(api.claims("a"), {"metadata": {"labels": {"a": "b"}}}),
        await api.delete(api.claims("a")),
        await api.put(f"{api.claims('a')}/status", claim("a")),
    ):
        assert (answer.code, answer.reason) == (404, "NotFound")


async def test_an_unknown_path_is_not_found(api: Api) -> None:
    for path in ("/apis/resource.k8s.io/v9/resourceclaims", "/api/v1/nonsense", "/nonsense"):
        assert (await api.get(path)).code == 404


async def test_a_missing_namespace_is_not_found_on_create(api: Api) -> None:
    answer = await api.post("/api/v1/namespaces/none-such/pods", pod("a"))
    assert (answer.code, answer.reason) == (404, "NotFound")


async def test_a_generated_name_starts_with_what_was_asked(api: Api) -> None:
    body = claim("x", generateName="pod-gpu-")
    del body["metadata"]["name"]
    made = await api.made(api.claims(), body)
    assert re.fullmatch(r"pod-gpu-[bcdfghjklmnpqrstvwxz2456789]{5}", made.meta["name"])
    assert made.meta["generateName"] == "pod-gpu-"


async def test_a_long_generated_name_is_cut(api: Api) -> None:
    body = claim("x", generateName="a" * 80)
    del body["metadata"]["name"]
    made = await api.made(api.claims(), body)
    assert len(made.meta["name"]) == 63


async def test_a_given_name_wins_over_a_generated_one(api: Api) -> None:
    made = await api.made(api.claims(), claim("given", generateName="other-"))
    assert made.meta["name"] == "given"


@pytest.mark.parametrize("name", ["", "Upper", "with_underscore", "a/b", "-a", "a" * 254])
async def test_a_bad_name_is_refused(api: Api, name: str) -> None:
    answer = await api.post(api.claims(), claim(name))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_namespace_in_the_body_must_be_that_of_the_path(api: Api) -> None:
    answer = await api.post(api.claims(), claim("a", namespace="default"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_body_that_is_no_json_is_refused(api: Api) -> None:
    answer = await api.write("POST", api.claims(), b'{"kind": "ResourceClaim", ')
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_body_of_another_kind_is_refused(api: Api) -> None:
    answer = await api.post(api.claims(), pod("a"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_body_of_another_version_is_refused(api: Api) -> None:
    answer = await api.post(api.claims(version="v1beta2"), claim("a"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_field_of_the_wrong_type_is_refused(api: Api) -> None:
    body = claim("a")
    body["spec"]["devices"]["requests"] = "all of them"
    answer = await api.post(api.claims(), body)
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        ("pods", {"metadata": {"name": "a", "labels": {"a": 1}}}),
        ("pods", {"metadata": {"name": "a", "finalizers": "all"}}),
        ("pods", {"metadata": "mine"}),
        ("pods", {"spec": {"containers": {"name": "a"}}}),
        ("pods", {"spec": {"containers": ["a"]}}),
        ("pods", {"spec": {"containers": [{"name": "a", "ports": [80]}]}}),
        ("pods", {"spec": {"priority": "high"}}),
        ("events", {"involvedObject": "p"}),
        ("configmaps", {"data": {"a": 1}}),
    ],
)
async def test_objects_of_a_wrong_shape_are_refused(api: Api, path: str, obj: Json) -> None:
    answer = await api.post(api.path(path), {"metadata": {"name": "a"}, **obj})
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_kind_and_version_may_be_left_out(api: Api) -> None:
    body = {key: value for key, value in claim("a").items() if key in ("metadata", "spec")}
    made = await api.made(api.claims(), body)
    assert made.body["kind"] == "ResourceClaim"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_over_three_mebibytes_is_refused(api: Api) -> None:
    big = claim("a", annotations={"big": "x" * (3 * 1024 * 1024 + 10)})
    assert (await api.post(api.claims(), big)).code == 413


async def test_annotations_over_256_kibibytes_are_refused(api: Api) -> None:
    big = claim("a", annotations={"big": "x" * (257 * 1024)})
    assert (await api.post(api.claims(), big)).code == 422


async def test_a_label_value_with_a_space_is_refused(api: Api) -> None:
    answer = await api.post(api.claims(), claim("a", labels={"a": "not good"}))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_owner_without_uid_is_refused(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}
    answer = await api.post(api.claims(), claim("a", ownerReferences=[owner]))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_two_controllers_are_refused(api: Api) -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
        for name in ("p", "q")
    ]
    answer = await api.post(api.claims(), claim("a", ownerReferences=owners))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_resource_version_on_create_is_refused(api: Api) -> None:
    assert (await api.post(api.claims(), claim("a", resourceVersion="5"))).code == 500


async def test_what_the_server_sets_cannot_be_set_on_create(api: Api) -> None:
    made = await api.made(
        api.claims(),
        claim(
            "a",
            uid="mine",
            generation=7,
            creationTimestamp="2001-01-01T00:00:00Z",
            deletionTimestamp="2001-01-01T00:00:00Z",
        ),
    )
    assert made.meta["uid"] != "mine"
    assert not made.meta["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in made.meta


async def test_a_dry_run_stores_nothing(api: Api) -> None:
    answer = await api.post(api.claims(), claim("a"), dryRun="All")
    assert answer.meta["name"] == "a"
    assert (await api.get(api.claims("a"))).code == 404


async def test_versions_grow_with_every_write(api: Api) -> None:
    first = await api.claim("a")
    second = await api.pod("p")
    third = await api.put(api.claims("a"), with_metadata(first, labels={"a": "b"}))
    assert first.version < second.version < third.version


async def test_a_write_with_an_old_version_is_a_conflict(api: Api) -> None:
    old = await api.claim("a")
    assert (await api.put(api.claims("a"), with_metadata(old, labels={"a": "1"}))).ok
    for path in (api.claims("a"), f"{api.claims('a')}/status"):
        answer = await api.put(path, with_metadata(old, labels={"a": "2"}))
        assert (answer.code, answer.reason) == (409, "Conflict")


async def test_a_write_with_an_old_version_is_a_conflict_before_it_is_invalid(api: Api) -> None:
    old = await api.claim("a")
    assert (await api.put(api.claims("a"), with_metadata(old, labels={"a": "1"}))).ok
    changed = {**old.body, "spec": {"devices": {}}}
    assert (await api.put(api.claims("a"), changed)).code == 409


async def test_a_write_without_version_wins(api: Api) -> None:
    made = await api.claim("a")
    written = await api.put(
        api.claims("a"), with_metadata(made, resourceVersion=None, labels={"a": "b"})
    )
    assert written.meta["labels"] == {"a": "b"}


async def test_a_write_that_changes_nothing_makes_no_version(api: Api) -> None:
    made = await api.claim("a", labels={"a": "b"})
    assert (await api.put(api.claims("a"), made.body)).version == made.version


async def test_a_write_for_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.claim("a")
    other = "00000000-0000-4000-8000-000000000000"
    answer = await api.put(api.claims("a"), with_metadata(made, uid=other))
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_name_in_path_and_body_must_agree(api: Api) -> None:
    made = await api.claim("a")
    answer = await api.put(api.claims("a"), with_metadata(made, name="b"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_time_of_creation_cannot_be_changed(api: Api) -> None:
    made = await api.claim("a")
    body = with_metadata(made, creationTimestamp="2001-01-01T00:00:00Z", labels={"a": "b"})
    written = await api.put(api.claims("a"), body)
    assert written.meta["creationTimestamp"] == made.meta["creationTimestamp"]


async def test_a_client_cannot_mark_an_object_as_being_deleted(api: Api) -> None:
    made = await api.claim("a")
    body = with_metadata(made, deletionTimestamp="2001-01-01T00:00:00Z")
    answer = await api.put(api.claims("a"), body)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_deleted_object_is_returned_and_gone(api: Api) -> None:
    made = await api.claim("a")
    deleted = await api.delete(api.claims("a"))
    assert deleted.meta["uid"] == made.meta["uid"]
    assert (await api.get(api.claims("a"))).code == 404


async def test_deleting_a_kind_that_returns_no_object_answers_a_status(api: Api) -> None:
    made = await api.made(api.path("configmaps"), {"metadata": {"name": "a"}, "data": {"k": "v"}})
    deleted = await api.delete(api.path("configmaps", "a"))
    assert (deleted.body["kind"], deleted.body["status"]) == ("Status", "Success")
    assert deleted.body["details"]["uid"] == made.meta["uid"]


async def test_delete_with_the_wrong_uid_is_a_conflict(api: Api) -> None:
    made = await api.claim("a")
    answer = await api.delete(api.claims("a"), {"preconditions": {"uid": "other"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert (await api.delete(api.claims("a"), {"preconditions": {"uid": made.meta["uid"]}})).ok


async def test_delete_with_an_old_version_is_a_conflict(api: Api) -> None:
    made = await api.claim("a")
    old = {"preconditions": {"resourceVersion": made.meta["resourceVersion"]}}
    assert (await api.put(api.claims("a"), with_metadata(made, labels={"a": "b"}))).ok
    answer = await api.delete(api.claims("a"), old)
    assert (answer.code, answer.reason) == (409, "Conflict")


async def test_a_name_can_be_used_again_after_deletion(api: Api) -> None:
    first = await api.claim("a")
    await api.delete(api.claims("a"))
    assert (await api.claim("a")).meta["uid"] != first.meta["uid"]


async def test_a_finalizer_keeps_a_deleted_object(api: Api) -> None:
    made = await api.claim("a", finalizers=[HOLD])
    deleted = await api.delete(api.claims("a"))
    assert deleted.meta["deletionTimestamp"]
    assert deleted.meta["deletionGracePeriodSeconds"] == 0
    assert deleted.version > made.version
    assert (await api.get(api.claims("a"))).body == deleted.body


async def test_deleting_again_changes_nothing(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD])
    first = await api.delete(api.claims("a"))
    assert (await api.delete(api.claims("a"))).body == first.body


async def test_the_last_finalizer_lets_a_deleted_object_go(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD, "example.com/other"])
    deleted = await api.delete(api.claims("a"))
    kept = await api.put(api.claims("a"), with_metadata(deleted, finalizers=[HOLD]))
    assert (await api.get(api.claims("a"))).ok
    gone = await api.put(api.claims("a"), with_metadata(kept, finalizers=None))
    assert gone.ok
    assert "finalizers" not in gone.meta
    assert (await api.get(api.claims("a"))).code == 404


async def test_removing_the_finalizer_of_an_object_that_is_not_deleted_keeps_it(api: Api) -> None:
    made = await api.claim("a", finalizers=[HOLD])
    assert (await api.put(api.claims("a"), with_metadata(made, finalizers=None))).ok
    assert (await api.get(api.claims("a"))).ok


async def test_no_finalizer_is_added_to_a_deleted_object(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD])
    deleted = await api.delete(api.claims("a"))
    answer = await api.put(
        api.claims("a"), with_metadata(deleted, finalizers=[HOLD, "example.com/more"])
    )
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_the_same_finalizer_twice_is_kept(api: Api) -> None:
    made = await api.claim("a", finalizers=[HOLD, HOLD])
    assert made.meta["finalizers"] == [HOLD, HOLD]


async def test_a_finalizer_must_be_a_qualified_name(api: Api) -> None:
    answer = await api.post(api.claims(), claim("a", finalizers=["not a name"]))
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_an_orphaning_delete_waits_for_its_finalizer(api: Api) -> None:
    await api.claim("a", finalizers=[HOLD])
    deleted = await api.delete(api.claims("a"), {"propagationPolicy": "Orphan"})
    assert set(deleted.meta["finalizers"]) == {HOLD, "orphan"}


async def test_an_unknown_propagation_is_refused(api: Api) -> None:
    await api.claim("a")
    answer = await api.delete(api.claims("a"), {"propagationPolicy": "Sideways"})
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_collection_is_deleted_by_label(api: Api) -> None:
    await api.claim("a", labels={"x": "1"})
    await api.claim("b", labels={"x": "2"})
    assert (await api.delete(api.claims(), labelSelector="x=1")).ok
    assert (await api.get(api.claims("a"))).code == 404
    assert (await api.get(api.claims("b"))).ok


async def test_generation_counts_changes_of_the_spec(api: Api) -> None:
    name = api.unique("class")
    made = await api.made(CLASSES, {"metadata": {"name": name}, "spec": {}})
    assert made.meta["generation"] == 1
    labelled = await api.put(f"{CLASSES}/{name}", with_metadata(made, labels={"a": "b"}))
    assert labelled.meta["generation"] == 1
    spec = {"selectors": [{"cel": {"expression": 'device.driver == "d"'}}]}
    changed = await api.put(f"{CLASSES}/{name}", {**labelled.body, "spec": spec})
    assert changed.meta["generation"] == 2
    await api.delete(f"{CLASSES}/{name}")


async def test_a_claim_has_no_generation(api: Api) -> None:
    assert "generation" not in (await api.claim("a")).meta


async def test_nulls_and_empty_metadata_are_left_out(api: Api) -> None:
    made = await api.made(
        api.claims(), claim("a", labels=None, annotations={}, finalizers=[], ownerReferences=None)
    )
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        assert field not in made.meta


async def test_a_cluster_scoped_object_has_no_namespace(api: Api) -> None:
    name = api.unique("class")
    made = await api.made(CLASSES, {"metadata": {"name": name}, "spec": {}})
    assert "namespace" not in made.meta
    await api.delete(f"{CLASSES}/{name}")
