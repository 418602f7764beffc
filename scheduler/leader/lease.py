"""The Lease object: as far as elections read it, and where it is."""

import asyncio
from typing import Final

import msgspec

from scheduler.client import ApiClient, NotFoundError, UnavailableError


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a Lease's spec that is read."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class Lease(msgspec.Struct, frozen=True):
    """A Lease as far as elections read it."""

    metadata: _LeaseMeta = _LeaseMeta()
    spec: LeaseSpec = LeaseSpec()


_LEASE: Final = msgspec.json.Decoder(Lease)


def lease_path(namespace: str, name: str = "") -> str:
    """The path of a Lease, or of all in a namespace."""
    base = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{base}/{name}" if name else base


def epoch_of(lease: Lease) -> int:
    """From 1, so that a first leader is told from no election."""
    return (lease.spec.lease_transitions or 0) + 1


async def read_lease(
    client: ApiClient, namespace: str, name: str, timeout_seconds: float
) -> Lease | None:
    """Read a Lease; None if there is none.

    Raises:
        ApiError, UnavailableError: no answer that says so.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return decode_lease(await client.get(lease_path(namespace, name)))
    except NotFoundError:
        return None
    except TimeoutError:
        raise UnavailableError("reading the lease took too long") from None
    except msgspec.DecodeError as error:
        raise UnavailableError(f"the lease cannot be read: {error}") from None


def decode_lease(body: bytes) -> Lease:
    """A Lease from JSON.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _LEASE.decode(body)
