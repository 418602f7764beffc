"""Lists: versions, pages, selectors."""

import pytest

from tests.contract.api import Api, claim, items, pod, with_metadata


async def _claims(api: Api, *names: str) -> None:
    for name in names:
        await api.claim(name, labels={"name": name, "odd": str(ord(name[-1]) % 2)})


async def test_a_list_is_in_the_order_of_names(api: Api) -> None:
    await _claims(api, "b", "c", "a")
    assert items(await api.get(api.claims())) == ["a", "b", "c"]


async def test_a_list_says_its_kind_and_its_items_do_not(api: Api) -> None:
    await _claims(api, "a")
    listed = await api.get(api.claims())
    assert (listed.body["kind"], listed.body["apiVersion"]) == (
        "ResourceClaimList",
        "resource.k8s.io/v1",
    )
    assert {"kind", "apiVersion"}.isdisjoint(listed.body["items"][0])


async def test_an_empty_list_has_a_version(api: Api) -> None:
    listed = await api.get(api.claims())
    assert listed.body["items"] == []
    assert listed.version > 0


async def test_the_version_of_a_list_is_not_older_than_what_it_holds(api: Api) -> None:
    made = await api.claim("a")
    assert (await api.get(api.claims())).version >= made.version


async def test_a_list_over_all_namespaces_holds_ours(api: Api) -> None:
    made = await api.claim("a")
    listed = await api.get("/apis/resource.k8s.io/v1/resourceclaims")
    assert made.meta["uid"] in {item["metadata"]["uid"] for item in listed.body["items"]}


async def test_a_list_of_a_missing_namespace_is_empty(api: Api) -> None:
    listed = await api.get("/api/v1/namespaces/none-such/pods")
    assert listed.ok
    assert listed.body["items"] == []


async def test_pages_cover_everything_once(api: Api) -> None:
    await _claims(api, "a", "b", "c", "d", "e")
    first = await api.get(api.claims(), limit="2")
    assert items(first) == ["a", "b"]
    assert first.meta["remainingItemCount"] == 3
    second = await api.get(api.claims(), limit="2", **{"continue": first.meta["continue"]})
    third = await api.get(api.claims(), limit="2", **{"continue": second.meta["continue"]})
    assert (items(second), items(third)) == (["c", "d"], ["e"])
    assert "continue" not in third.meta


async def test_pages_show_one_state(api: Api) -> None:
    await _claims(api, "a", "b", "c")
    first = await api.get(api.claims(), limit="1")
    await api.claim("aa")
    await api.delete(api.claims("c"))
    rest = await api.get(api.claims(), **{"continue": first.meta["continue"]})
    assert items(rest) == ["b", "c"]
    assert rest.version == first.version


async def test_pages_of_a_selection_do_not_say_how_much_is_left(api: Api) -> None:
    await _claims(api, "a", "b", "c", "d")
    first = await api.get(api.claims(), limit="1", labelSelector="odd=1")
    assert items(first) == ["a"]
    assert "remainingItemCount" not in first.meta
    rest = await api.get(
        api.claims(), labelSelector="odd=1", **{"continue": first.meta["continue"]}
    )
    assert items(rest) == ["c"]


async def test_a_made_up_continue_token_is_refused(api: Api) -> None:
    assert (await api.get(api.claims(), limit="1", **{"continue": "nonsense"})).code == 400


async def test_an_exact_list_shows_the_past(api: Api) -> None:
    made = await api.claim("a")
    await api.claim("b")
    past = await api.get(
        api.claims(), resourceVersion=made.meta["resourceVersion"], resourceVersionMatch="Exact"
    )
    assert items(past) == ["a"]
    assert past.version == made.version


async def test_an_exact_list_shows_objects_as_they_were(api: Api) -> None:
    made = await api.claim("a", labels={"v": "1"})
    await api.put(api.claims("a"), with_metadata(made, labels={"v": "2"}))
    past = await api.get(
        api.claims(), resourceVersion=made.meta["resourceVersion"], resourceVersionMatch="Exact"
    )
    assert past.body["items"][0]["metadata"]["labels"] == {"v": "1"}


async def test_a_list_not_older_than_a_write_holds_it(api: Api) -> None:
    made = await api.claim("a")
    listed = await api.get(
        api.claims(),
        resourceVersion=made.meta["resourceVersion"],
        resourceVersionMatch="NotOlderThan",
    )
    assert items(listed) == ["a"]
    assert listed.version >= made.version


async def test_a_list_of_the_future_times_out(api: Api) -> None:
    ahead = str((await api.claim("a")).version + 1_000_000)
    assert (await api.get(api.claims(), resourceVersion=ahead)).code == 504


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Sometimes", "resourceVersion": "5"},
    ],
    ids=["no version", "any version", "unknown"],
)
async def test_contradicting_list_options_are_refused(api: Api, query: dict[str, str]) -> None:
    answer = await api.get(api.claims(), **query)
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_a_version_that_is_no_number_is_refused(api: Api) -> None:
    assert (await api.get(api.claims(), resourceVersion="yesterday")).code == 400


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("odd=1", ["a", "c"]),
        ("odd==1", ["a", "c"]),
        ("odd!=1", ["b"]),
        ("name in (a, b)", ["a", "b"]),
        ("name notin (a,b)", ["c"]),
        ("name", ["a", "b", "c"]),
        ("!name", []),
        ("odd=1,name!=a", ["c"]),
        ("other!=x", ["a", "b", "c"]),
    ],
)
async def test_labels_select(api: Api, selector: str, selected: list[str]) -> None:
    await _claims(api, "a", "b", "c")
    assert items(await api.get(api.claims(), labelSelector=selector)) == selected


async def test_a_label_selector_that_cannot_be_read_is_refused(api: Api) -> None:
    assert (await api.get(api.claims(), labelSelector="a in (")).code == 400


async def test_a_name_selects(api: Api) -> None:
    await _claims(api, "a", "b")
    assert items(await api.get(api.claims(), fieldSelector="metadata.name=b")) == ["b"]
    assert items(await api.get(api.claims(), fieldSelector="metadata.name!=b")) == ["a"]


async def test_fields_of_pods_select(api: Api) -> None:
    await api.made(api.pods(), pod("a", {"schedulerName": "one"}))
    await api.made(api.pods(), pod("b", {"schedulerName": "two", "nodeName": "n"}))
    for selector, selected in (
        ("spec.schedulerName=one", ["a"]),
        ("spec.nodeName=n", ["b"]),
        ("spec.nodeName=", ["a"]),
        ("status.phase=Pending", ["a", "b"]),
        ("status.phase!=Pending", []),
        ("spec.nodeName!=,spec.schedulerName=two", ["b"]),
    ):
        assert items(await api.get(api.pods(), fieldSelector=selector)) == selected, selector


async def test_a_field_that_cannot_be_selected_on_is_refused(api: Api) -> None:
    answer = await api.get(api.claims(), fieldSelector="spec.devices=x")
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_a_claim_made_in_an_older_version_is_listed_in_v1(api: Api) -> None:
    body = claim("a")
    body["apiVersion"] = "resource.k8s.io/v1beta1"
    body["spec"] = {"devices": {"requests": [{"name": "gpu", "deviceClassName": "c"}]}}
    made = await api.made(api.claims(version="v1beta1"), body)
    assert made.body["apiVersion"] == "resource.k8s.io/v1beta1"
    [old] = made.body["spec"]["devices"]["requests"]
    assert (old["deviceClassName"], old["count"]) == ("c", 1)
    listed = await api.get(api.claims())
    [request] = listed.body["items"][0]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "c",
        "allocationMode": "ExactCount",
        "count": 1,
    }
