"""Every write is passed on as it is and told by how it ended."""

import pytest

from scheduler.client import JSON, MERGE_PATCH, METADATA, Committed, Rejected, Unknown
from scheduler.client.counted import CountedClient
from tests.fakes import FakeApiClient


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Committed(b"{}"), "committed"),
        (Rejected(409, "Conflict", ""), "conflict"),
        (Rejected(404, "NotFound", ""), "rejected"),
        (Unknown("timeout"), "unknown"),
    ],
)
async def test_a_write_is_passed_on_and_its_outcome_told(outcome, name):
    inner, told = FakeApiClient(), []
    inner.script("PATCH", "/x", outcome)
    client = CountedClient(inner, lambda *what: told.append(what))
    query = {"dryRun": "All"}
    assert await client.write("PATCH", "/x", b"1", content_type=MERGE_PATCH, query=query) is outcome
    assert told == [("PATCH", name)]
    [call] = inner.calls
    assert (call.body, call.content_type, call.query) == (b"1", MERGE_PATCH, query)


async def test_reads_and_watches_are_passed_on_untold():
    inner, told = FakeApiClient(), []
    inner.script("GET", "/x", b"{}")
    client = CountedClient(inner, lambda *what: told.append(what))
    assert await client.get("/x", {"a": "b"}) == b"{}"
    async with client.watch("/x", {"c": "d"}) as lines:
        inner.watches[0].send(b"1")
        inner.watches[0].end()
        assert [line async for line in lines] == [b"1"]
    await client.aclose()
    assert not told


async def test_the_format_that_is_asked_for_is_passed_on():
    class Lists(FakeApiClient):
        async def get(self, path, query=None, *, accept=JSON):
            return accept.encode()

    client = CountedClient(Lists(), print)
    assert await client.get("/x", accept=METADATA) == METADATA.encode()
    assert await client.get("/x") == JSON.encode()
