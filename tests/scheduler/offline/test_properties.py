"""What holds for every simulation."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.validation import validate_claim_status
from tests.scheduler.offline.cluster import (
    GPU,
    Json,
    claim,
    device,
    device_class,
    node,
    pod,
    request,
    run,
    slice_,
)

MODEL = f"device.attributes['{GPU}'].model == "


@st.composite
def clusters(draw: Any) -> list[Json]:
    """A few nodes with some GPUs of two models, some tainted, and pods that ask for one to three of them."""
    objects: list[Json] = [device_class()]
    for index in range(draw(st.integers(1, 4))):
        devices = [
            device(
                f"gpu-{number}",
                "80Gi",
                attributes={"model": draw(st.sampled_from(["a", "b"])), "numa": number % 2},
                **(
                    {"taints": [{"key": "k", "effect": "NoSchedule"}]}
                    if draw(st.booleans())
                    else {}
                ),
            )
            for number in range(draw(st.integers(0, 4)))
        ]
        objects.append(node(f"n{index}"))
        if devices:
            objects.append(slice_(f"n{index}", *devices))
    for index in range(draw(st.integers(1, 6))):
        selectors = draw(st.sampled_from([(), (f"{MODEL}'a'",), (f"{MODEL}'b'",)]))
        fields: Json = {"count": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            fields["tolerations"] = [{"operator": "Exists"}]
        constraints = draw(st.sampled_from([[], [{"matchAttribute": f"{GPU}/numa"}]]))
        objects.append(
            claim(f"c{index}", request("gpu", "gpu", *selectors, **fields), constraints=constraints)
        )
        objects.append(pod(f"p{index}", claims=[f"c{index}"], priority=draw(st.integers(0, 2))))
    return objects


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_no_device_is_given_twice_and_every_claim_is_served_whole_on_its_node(objects):
    answer = run(*objects)
    wanted = {
        obj["metadata"]["name"]: obj["spec"]["devices"]["requests"][0]["exactly"]["count"]
        for obj in objects
        if obj["kind"] == "ResourceClaim"
    }
    claims = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ResourceClaim"}
    used: Counter[tuple[str, str]] = Counter()
    for each in answer.tree["pods"]:
        assert (each["node"] is None) == (each["reason"] is not None)
        for given_claim in each["claims"]:
            results = given_claim["allocation"]["devices"]["results"]
            assert len(results) == wanted[given_claim["name"]]
            assert {result["pool"] for result in results} == {each["node"]}
            used.update((result["pool"], result["device"]) for result in results)
            old = claims[given_claim["name"]]
            new = {**old, "status": {"allocation": given_claim["allocation"]}}
            assert validate_claim_status(old, new) == []
    assert all(count == 1 for count in used.values())


@settings(max_examples=30, deadline=None)
@given(clusters())
def test_the_same_cluster_gives_the_same_answer(objects):
    assert json.dumps(run(*objects).tree) == json.dumps(run(*objects).tree)


@settings(max_examples=30, deadline=None)
@given(clusters(), st.randoms())
def test_the_order_of_slices_and_classes_does_not_matter(objects, rng):
    movable = [
        obj for obj in objects if obj["kind"] in ("ResourceSlice", "DeviceClass", "ResourceClaim")
    ]
    rest = [obj for obj in objects if obj not in movable]
    rng.shuffle(movable)
    assert run(*movable, *rest).tree["pods"] == run(*objects).tree["pods"]
