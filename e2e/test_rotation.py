"""Certificates of the webhooks are replaced while the service runs: the server's, the CA bundle, the callers'."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from e2e.harness.cluster import eventually
from e2e.harness.mode import Mode
from e2e.harness.service import Certificates, Service
from e2e.harness.target import Target

pytestmark = [pytest.mark.own_plane, pytest.mark.modes("fast")]

FILES = ("webhook-ca.crt", "extender.crt", "extender.key")
# The service looks every ten seconds.
RELOADED_SECONDS = 60.0


def caller(trusts: Path, shows: Path | None) -> ssl.SSLContext:
    """A caller that trusts the CA of one folder and shows the client certificate of another."""
    context = ssl.create_default_context(cafile=str(trusts / "webhook-ca.crt"))
    if shows is not None:
        context.load_cert_chain(shows / "extender-client.crt", shows / "extender-client.key")
    return context


def answers(service: Service, context: ssl.SSLContext) -> Callable[[], Awaitable[bool]]:
    """Whether the service talks to such a caller, on a new connection."""

    async def ask() -> bool:
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.post(f"{service.url}/filter", json={}, ssl=context),
            ):
                return True  # whatever it says, it has let us in
        except (aiohttp.ClientError, OSError):
            return False

    return ask


async def test_certificates_are_replaced_without_a_restart(
    target: Target, mode: Mode, tmp_path: Path
) -> None:
    old, new, live = target.certificates.folder, tmp_path / "new", tmp_path / "live"
    making = target.plane.process("certs", "certs", str(new))
    await making.start()
    while making.running:
        await asyncio.sleep(0.01)
    del target.plane.processes["certs"]
    shutil.copytree(old, live)
    service = Service(
        "extender",
        await target.service_kubeconfig(),
        tmp_path,
        certificates=Certificates(live),
        flags=("--leader-elect=false",),
        name="rotated",
    )
    await service.start()
    try:
        process = service.process.pid
        assert await answers(service, caller(old, old))()
        assert not await answers(service, caller(old, None))()
        assert not await answers(service, caller(old, new))()

        # A bundle of both, as a rotation begins.
        both = (old / "webhook-ca.crt").read_bytes() + (new / "webhook-ca.crt").read_bytes()
        (live / "webhook-ca.crt").write_bytes(both)
        await eventually("new callers", answers(service, caller(old, new)), RELOADED_SECONDS)
        assert await answers(service, caller(old, old))()

        # The server's own, key first: for a moment the files do not fit.
        for file in ("extender.key", "extender.crt"):
            shutil.copy(new / file, live / file)
            await asyncio.sleep(0.2)
        await eventually("the new server", answers(service, caller(new, new)), RELOADED_SECONDS)
        assert not await answers(service, caller(old, old))()

        assert await answers(service, caller(new, old))()  # in the bundle still
        assert not await answers(service, caller(new, None))()
        assert service.process.pid == process
    finally:
        await service.stop()
