"""A call that comes before our watch has shown the pod's claims waits for them, but not for long."""

import asyncio

import msgspec
import pytest

from scheduler.cache.cluster import ClusterCache
from scheduler.cache.store import EventType, WatchEvent
from scheduler.extender.lag import PATIENCE_SECONDS, STEP_SECONDS, until_claims_are_known
from scheduler.model import Kind, Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from tests.fakes import FakeClock, settle
from tests.pods import pod
from tests.scheduler.cache.objects import at, record

NAMED = PodResourceClaim(name="gpu", resource_claim_name="c")
GENERATED = PodResourceClaim(name="gpu", resource_claim_template_name="t")


def asking(entry: PodResourceClaim, version: int, made: str = "") -> Pod:
    statuses = (PodResourceClaimStatus(name="gpu", resource_claim_name=made),) if made else ()
    plain = pod("p")
    return at(  # type: ignore[no-any-return]
        msgspec.structs.replace(
            plain,
            spec=msgspec.structs.replace(plain.spec, resource_claims=(entry,)),
            status=PodStatus(resource_claim_statuses=statuses),
        ),
        version,
    )


class Scene:
    """A call that waits, and what it waits for."""

    def __init__(self) -> None:
        self.cache = ClusterCache()
        self.clock = FakeClock()

    def call(self, waiting: Pod) -> "asyncio.Task[None]":
        return asyncio.create_task(until_claims_are_known(waiting, self.cache, self.clock))

    def show(self, waiting: Pod) -> None:
        version = int(waiting.metadata.resource_version)
        self.cache.apply(WatchEvent(Kind.POD, EventType.MODIFIED, waiting, version))

    def show_claim(self, version: int) -> None:
        shown = record("c", version)
        self.cache.apply(WatchEvent(Kind.RESOURCE_CLAIM, EventType.ADDED, shown, version))


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_who_has_no_claims_or_known_ones_does_not_wait(scene: Scene) -> None:
    scene.show_claim(3)
    for waiting in (pod("q"), asking(NAMED, 4)):
        call = scene.call(waiting)
        await settle()
        assert call.done()


async def test_it_goes_on_as_soon_as_the_claim_is_there(scene: Scene) -> None:
    call = scene.call(asking(NAMED, 4))
    await scene.clock.advance(10 * STEP_SECONDS)
    assert not call.done()

    scene.show_claim(5)
    await scene.clock.advance(STEP_SECONDS)

    assert call.done()


async def test_the_newer_of_pod_asked_about_and_pod_watched_counts(scene: Scene) -> None:
    scene.show(asking(NAMED, 4))
    scene.show_claim(5)
    call = scene.call(asking(GENERATED, 3))
    await settle()
    assert call.done()


async def test_it_does_not_wait_for_ever(scene: Scene) -> None:
    call = scene.call(asking(GENERATED, 4))
    await scene.clock.advance(PATIENCE_SECONDS - STEP_SECONDS)
    assert not call.done()

    await scene.clock.advance(2 * STEP_SECONDS)

    assert call.done()
