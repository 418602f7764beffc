"""The same cases on the embedded server and on a real kube-apiserver: what differs is a fault of the embedded one.

The real one is that of DRA_CONTRACT_KUBECONFIG, else of KUBECONFIG, else a control plane started for the session.
"""

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random

import pytest

from scheduler.client import ApiClient
from scheduler.lab.apiserver.client import EmbeddedClient
from scheduler.lab.apiserver.server import ApiServer
from tests.contract.api import Api

SPEED = 100
_numbers = count(1)
_run = f"{os.getpid():x}"


class FastClock:
    """Real time, faster: what waits for seconds waits for a few milliseconds."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * SPEED

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("DRA_CONTRACT_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if given:
        yield given
        return
    started: queue.Queue[str | BaseException] = queue.Queue()
    stop = threading.Event()
    folder = tmp_path_factory.mktemp("contract-controlplane")
    thread = threading.Thread(target=_run_control_plane, args=(folder, started, stop))
    thread.start()
    try:
        path = started.get()
        if isinstance(path, BaseException):
            raise path
        yield path
    finally:
        stop.set()
        thread.join()


def _run_control_plane(
    folder: Path, started: "queue.Queue[str | BaseException]", stop: threading.Event
) -> None:
    """Its own thread, so that its own loop: tests have one each."""
    # Needs what only end-to-end tests need.
    from e2e.harness.controlplane import ControlPlane, build

    async def main() -> None:
        version = os.environ.get("DRA_E2E_KUBERNETES_VERSION") or "1.37"
        async with ControlPlane(await build(version), folder, version) as plane:
            started.put(str(plane.kubeconfig(plane.admin_identity)))
            await asyncio.to_thread(stop.wait)

    try:
        asyncio.run(main())
    except BaseException as error:  # the test that waits must hear of it
        started.put(error)


@asynccontextmanager
async def _embedded() -> AsyncIterator[ApiClient]:
    clock = FastClock()
    yield EmbeddedClient(ApiServer.create(clock, Random(0), taint_new_nodes=True), clock)


@asynccontextmanager
async def _real(kubeconfig: str) -> AsyncIterator[ApiClient]:
    from scheduler.client.kube import KubeClient

    client = await KubeClient.connect(kubeconfig)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.integration)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server, and in it a namespace for the test."""
    if request.param == "embedded":
        opened = _embedded()
    else:
        opened = _real(request.getfixturevalue("kubeconfig"))
    async with opened as client:
        api = Api(client, f"contract-{_run}-{next(_numbers)}")
        await api.made("/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        # Where admission wants one for every pod, its controller may be a moment late; elsewhere this is not served.
        await api.post(api.path("serviceaccounts"), {"metadata": {"name": "default"}})
        yield api
        await api.delete(f"/api/v1/namespaces/{api.namespace}")
