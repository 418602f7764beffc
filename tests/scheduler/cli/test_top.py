"""`top`: what is free, used, shared and fragmented."""

import json

import pytest
import yaml

from tests.scheduler.offline.cluster import Json, claim, device, gpus, node, slice_

GPU = "gpu.example.com"


def result(pool: str, name: str, **fields: object) -> Json:
    return {"request": "gpu", "driver": GPU, "pool": pool, "device": name, **fields}


def allocated(name: str, *results: Json, consumers: tuple[str, ...] = ()) -> Json:
    status = {
        "allocation": {"devices": {"results": list(results)}},
        "reservedFor": [{"resource": "pods", "name": each, "uid": each} for each in consumers],
    }
    return claim(name, status=status)


SHARE = "0d4e0c1e-8f0a-4b6e-9d3b-2f6a1c5e7b90"
CARD = {
    "name": "card",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "8"}},
}
OBJECTS = [
    node("a"),
    gpus("a", 3),
    gpus("b", 1),
    slice_("c", CARD, device("bad", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])),
    allocated("whole", result("a", "gpu-0"), consumers=("p", "q")),
    allocated("idle", result("a", "gpu-1")),
    allocated(
        "part",
        # Less than no cores are stored, but are no cores.
        result("c", "card", shareID=SHARE, consumedCapacity={"memory": "30Gi", "cores": "-4"}),
        consumers=("r",),
    ),
    claim("waiting"),
]


@pytest.fixture
def top(command, write):
    file = write("cluster.yaml", yaml.safe_dump_all(OBJECTS))

    def call(what: str) -> Json:
        done = command("top", what, "-f", file, "-o", "json")
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == yaml.safe_load(
            command("top", what, "-f", file, "-o", "yaml").out
        )
        return dict(json.loads(done.out))

    return call


def test_pools_count_their_devices_and_drivers_their_fragmentation(top):
    answer = top("pools")
    counts = {
        each["pool"]: (each["devices"], each["free"], each["used"], each["shared"])
        for each in answer["pools"]
    }
    assert counts == {"a": (3, 1, 2, 0), "b": (1, 1, 0, 0), "c": (2, 1, 0, 1)}
    assert answer["drivers"] == [
        {"driver": GPU, "devices": 6, "free": 3, "largestFreePool": 1, "fragmentation": 0.667}
    ]


def test_devices_say_who_holds_them_and_what_is_left(top):
    devices = {each["device"]: each for each in top("devices")["devices"] if each["pool"] != "b"}
    assert {name: (each["state"], each["claims"]) for name, each in devices.items()} == {
        "gpu-0": ("used", ["default/whole"]),
        "gpu-1": ("used", ["default/idle"]),
        "gpu-2": ("free", []),
        "card": ("shared", ["default/part"]),
        "bad": ("free", []),
    }
    assert devices["card"]["left"] == {"memory": "50Gi", "cores": "8"}
    assert devices["bad"]["taints"] == ["k=v:NoSchedule"]


def test_claims_say_their_state_and_consumers(top):
    claims = {each["claim"]: (each["state"], each["consumers"]) for each in top("claims")["claims"]}
    assert claims == {
        "default/idle": ("allocated", []),
        "default/part": ("reserved", ["pods/r"]),
        "default/waiting": ("pending", []),
        "default/whole": ("reserved", ["pods/p", "pods/q"]),
    }


def test_old_generations_do_not_count_and_missing_slices_show(command, write):
    old = slice_("a", device("old"), name="old")
    new = slice_("a", device("new"), name="new", slices=2)
    new["spec"]["pool"]["generation"] = 2
    done = command(
        "top", "pools", "-f", write("x.yaml", yaml.safe_dump_all([old, new])), "-o", "json"
    )
    (pool,) = json.loads(done.out)["pools"]
    assert (pool["devices"], pool["complete"]) == (1, False)


def test_admin_access_holds_nothing(command, write):
    objects = [gpus("a", 1), allocated("monitor", result("a", "gpu-0", adminAccess=True))]
    done = command(
        "top", "devices", "-f", write("x.yaml", yaml.safe_dump_all(objects)), "-o", "json"
    )
    assert json.loads(done.out)["devices"][0]["state"] == "free"


@pytest.mark.parametrize(
    ("what", "text"), [("pools", "FRAGMENTATION"), ("devices", "STATE"), ("claims", "CONSUMERS")]
)
def test_tables(command, write, what, text):
    done = command("top", what, "-f", write("x.yaml", yaml.safe_dump_all(OBJECTS)))
    assert done.code == 0
    assert text in done.out


def test_objects_that_cannot_be_read_are_named(command, write):
    done = command(
        "top",
        "pools",
        "-f",
        write(
            "x.yaml", "kind: ResourceSlice\napiVersion: resource.k8s.io/v1\nmetadata: {name: x}\n"
        ),
    )
    assert "ResourceSlice/x: spec.driver: is required" in done.err
