"""Bodies that nobody well-meaning sends: each gets an error or a valid answer, none an exception, and nothing is written."""

import asyncio
import copy
import os
import random
from typing import Any

import httpx
import orjson
import pytest

from scheduler.engine.engine import Engine
from scheduler.extender.app import ExtenderApp
from scheduler.extender.service import ExtenderService
from tests.scheduler.embedded import World, pods_path, world

COUNT = int(os.environ.get("DRA_FUZZ_BODIES", "500"))
VERBS = ("filter", "prioritize", "preempt", "bind")
TYPES = [
    "application/json",
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "text/plain",
    "",
    "application/jsonx",
]
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    -(2**70),
    1e308,
    0.5,
    "",
    "a",
    "\x00",
    "../../../secrets/x",
    "p?x=1#y",
    "p/log",
    "\u202e\u0000\ud7ff",
    "é" * 300,
    "9" * 5000,
    "1Ei",
    "-1m",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": []}},
]


class Hostile:
    """Makes bodies out of good ones."""

    def __init__(self, seed: int, pod: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        uid = pod["metadata"]["uid"]
        victims = {"node-1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
        self.good: dict[str, dict[str, Any]] = {
            "filter": {"Pod": pod, "Nodes": None, "NodeNames": ["node-1", "node-2"]},
            "prioritize": {"Pod": pod, "Nodes": None, "NodeNames": ["node-1"]},
            "preempt": {
                "Pod": pod,
                "NodeNameToVictims": None,
                "NodeNameToMetaVictims": victims,
            },
            "bind": {"PodName": "q", "PodNamespace": "default", "PodUID": uid + "x", "Node": "n"},
        }

    def body(self, verb: str) -> bytes:
        """One body."""
        kind = self.rng.choice(["tree", "tree", "tree", "tree", "bytes", "cut", "other", "noise"])
        tree = copy.deepcopy(self.good[verb])
        if kind == "other":
            tree = copy.deepcopy(self.good[self.rng.choice(VERBS)])
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            self.spoil(tree)
        raw = orjson.dumps(tree, option=orjson.OPT_NON_STR_KEYS) if kind != "noise" else b""
        match kind:
            case "cut":
                return raw[: self.rng.randrange(len(raw) + 1)]
            case "bytes":
                return self.spoil_bytes(raw)
            case "noise":
                return self.rng.randbytes(self.rng.randrange(200))
            case _:
                return raw

    def spoil(self, tree: Any) -> None:
        """Change one place of a tree."""
        places = list(_places(tree))
        if not places:
            return
        holder, key = self.rng.choice(places)
        match self.rng.randrange(5):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[self.rng.choice(["", "x", "metadata", "\x00", str(key).lower()])] = holder[
                    key
                ]
            case 2:
                holder[key] = [holder[key]] * self.rng.choice([1, 2, 70])
            case 3:
                deep: Any = holder[key]
                for _ in range(self.rng.choice([1, 10, 40, 80])):
                    deep = {"a": deep}
                holder[key] = deep
            case _:
                holder[key] = copy.deepcopy(self.rng.choice([x for x in ODD if _is_plain(x)]))

    def spoil_bytes(self, raw: bytes) -> bytes:
        """Change some bytes."""
        data = bytearray(raw)
        for _ in range(self.rng.choice([1, 3, 20])):
            at = self.rng.randrange(len(data))
            extra = self.rng.choice(
                [b"\xff", b"\\ud800", b"\\u0000", b"NaN", b"1e999", b'"', b"{", b"]", b"\x00", b","]
            )
            data[at : at + self.rng.randrange(3)] = extra
        return bytes(data)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _places(tree: Any) -> Any:
    if isinstance(tree, dict):
        items: Any = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    else:
        return
    for key, value in items:
        yield tree, key
        yield from _places(value)


def check(verb: str, response: httpx.Response, sent: bytes) -> None:
    answer = orjson.loads(response.content)
    if response.status_code != 200:
        assert 400 <= response.status_code < 500, (verb, response.status_code, sent)
        assert set(answer) == {"Error"}
        return
    match verb:
        case "filter" if answer["Error"]:
            assert answer["NodeNames"] is None
        case "filter":
            names = set(orjson.loads(sent).get("NodeNames") or ())
            assert set(answer["NodeNames"] or ()) <= names
        case "prioritize":
            assert all(type(x["Score"]) is int and 0 <= x["Score"] <= 10 for x in answer)
        case "preempt":
            assert isinstance(answer["NodeNameToMetaVictims"], dict)
        case _:
            assert answer["Error"]


@pytest.mark.parametrize("part", range(5))
async def test_a_hostile_body_gets_an_answer_and_changes_nothing(
    part: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as here:
        await here.cluster(("node-1", 1), ("node-2", 2))
        await here.claim("c")
        await here.pod("p", "c", nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}])
        await here.pod("q", "c")
        await here.settled()
        http = client(here)
        hostile = Hostile(part, await here.get(pods_path("p")))
        for _ in range(COUNT // 5):
            verb = hostile.rng.choice(VERBS)
            body = hostile.body(verb)
            headers = {}
            if hostile.rng.random() < 0.1:
                headers["content-type"] = hostile.rng.choice(TYPES)
            else:
                headers["content-type"] = TYPES[0]
            async with asyncio.timeout(5.0):
                response = await http.post(f"/{verb}", content=body, headers=headers)
            check(verb, response, body)
        await here.settled()
        assert here.client.writes == []
        assert here.cache.in_flight_claims == 0
        assert here.binder.open_chains == 0
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


def client(here: World) -> httpx.AsyncClient:
    service = ExtenderService(
        cache=here.cache,
        binder=here.binder,
        engine=Engine(here.environment),
        clock=here.clock,
        wakeup=None,
    )
    app = ExtenderApp(service, unavailable=lambda: None, clock=here.clock).create()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://extender")
