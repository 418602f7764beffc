"""Fixtures: one control plane for the session, one run of each mode, one namespace per test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from pytest_asyncio import is_async_test

from e2e.harness.cluster import Cluster
from e2e.harness.controlplane import ControlPlane, build
from e2e.harness.mode import NAMES, REFERENCE, Mode
from e2e.harness.proxy import FaultProxy
from e2e.harness.target import Target

KUBECONFIG = os.environ.get("KUBECONFIG", "")
VERSION = os.environ.get("DRA_E2E_KUBERNETES_VERSION") or "1.37"
# Such as "standalone,safe"; "in-tree" runs the tests against Kubernetes' own scheduler.
MODES = [name for name in os.environ.get("MODES", "").split(",") if name]

_planes = pytest.StashKey[ControlPlane]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "modes(*names): the modes that a test makes sense in")
    config.addinivalue_line("markers", "own_plane: needs a control plane that the tests started")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that uses `mode` once for each of its modes, all tests of a mode in a row."""
    if "mode" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("modes")
    names: Sequence[str] = marker.args if marker else NAMES
    if MODES:
        names = [name for name in MODES if name in names or name == REFERENCE]
    metafunc.parametrize("mode", names, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all, and without a control plane of our own only what needs none."""
    skip = pytest.mark.skip(reason="needs a control plane that the tests started themselves")
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.integration)
        if is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if KUBECONFIG and not _runs_anywhere(item):
            item.add_marker(skip)


def _runs_anywhere(item: pytest.Item) -> bool:
    if item.get_closest_marker("own_plane"):
        return False
    # kube-scheduler's configuration file is not ours to change on somebody's cluster.
    call = getattr(item, "callspec", None)
    return call is None or call.params.get("mode", "standalone") == "standalone"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def target(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Target]:
    """The cluster: KUBECONFIG's, else a control plane of our own."""
    folder = tmp_path_factory.mktemp("controlplane")
    if KUBECONFIG:
        async with Target.foreign(Path(KUBECONFIG), folder) as target:
            yield target
        return
    async with ControlPlane(await build(VERSION), folder, VERSION) as plane:
        pytestconfig.stash[_planes] = plane
        yield Target(plane.admin, folder, plane, VERSION)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def proxy(target: Target) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(target.admin.server, target.admin.tls)
    async with proxy.running(target.serving_context()):
        yield proxy


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mode(
    request: pytest.FixtureRequest, target: Target, proxy: FaultProxy
) -> AsyncIterator[Mode]:
    async with Mode.running(request.param, target, proxy) as mode:
        yield mode


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(target: Target, mode: Mode, numbers: Iterator[int]) -> AsyncIterator[Cluster]:
    """A corner of the cluster; at the end its whole history is judged."""
    await mode.direct()
    async with _corner(target, mode, numbers) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def faulty(target: Target, mode: Mode, numbers: Iterator[int]) -> AsyncIterator[Cluster]:
    """The same, with the service behind the fault proxy."""
    if not target.ours:
        pytest.skip("faults need a service that the tests started")
    await mode.proxied()
    async with _corner(target, mode, numbers) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def _corner(target: Target, mode: Mode, numbers: Iterator[int]) -> AsyncIterator[Cluster]:
    name = f"e2e-{next(numbers)}"
    async with Cluster.prepared(target.admin, name, mode.scheduler_name) as cluster:
        if target.minor() < 36:
            # The API server drops the field: its gate is alpha before 1.36.
            cluster.tolerated.add("timestamp")
        yield cluster
        # Before the clean-up, which would take the evidence away.
        assert await cluster.findings() == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the ends of all components' logs under a failed test."""
    report = yield
    plane = item.config.stash.get(_planes, None)
    if report.failed and plane is not None:
        report.sections.append(("control plane", plane.failure_report()))
    return report
