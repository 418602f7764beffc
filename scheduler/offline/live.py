"""Reads a live cluster as manifests, so that it is explained by the same code. Reads only."""

from typing import Any, Final, cast

from allocator.features import LATEST_VERSION, FeatureGateError, minor_version
from scheduler.api.lenient import plain
from scheduler.api.rawjson import RawJsonError
from scheduler.client import ApiClient, NotFoundError, UnavailableError
from scheduler.offline.manifests import Manifest
from scheduler.reflectors.sources import PATHS

PAGE_SIZE: Final = 500


async def read_cluster(client: ApiClient) -> list[Manifest]:
    """Read nodes, pods, classes, slices, claims and taint rules, page by page.

    Raises:
        ApiError: the server refuses to show them.
        UnavailableError: no usable answer.
    """
    manifests: list[Manifest] = []
    for kind, paths in PATHS.items():
        for path in paths:
            try:
                objects = await _list(client, path)
            except NotFoundError:
                continue  # this version is not served
            manifests.extend(
                Manifest(path, number, {"kind": kind.value, **obj})
                for number, obj in enumerate(objects, 1)
            )
            break
    return manifests


async def _list(client: ApiClient, path: str) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    query = {"limit": str(PAGE_SIZE)}
    while True:
        page = _page(path, await client.get(path, query))
        version = page.get("apiVersion")
        objects.extend({"apiVersion": version, **item} for item in page.get("items") or ())
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return objects
        query = {"limit": str(PAGE_SIZE), "continue": token}


def _page(path: str, body: bytes) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", plain(body))
    except RawJsonError as error:
        raise UnavailableError(f"GET {path}: the answer is no JSON: {error}") from None


async def read_version(client: ApiClient) -> str:
    """The minor version of the server, or the newest known one if that is unknown."""
    found = plain(await client.get("/version")).get("gitVersion", "")
    try:
        return minor_version(str(found))
    except FeatureGateError:
        return LATEST_VERSION
