"""The request that makes a change of a claim: JSON from what is known, or protobuf from what is read for it.

Source: `edits` says when which.
"""

from typing import Final, NamedTuple

from scheduler.api import wire
from scheduler.binder.claim_text import ClaimText
from scheduler.binder.edits import Edit, Repeating, is_of_version, may_be_refused, may_rewrite
from scheduler.client import (
    JSON,
    PROTOBUF,
    ApiClient,
    Rejected,
    UnavailableError,
    WriteOutcome,
)

# For what is not known: whoever gets it reads before judging, as after a conflict.
MOVED: Final = Rejected(409, "Conflict", "the claim has changed, or may have")


class Request(NamedTuple):
    """A PUT that may be repeated as it is.

    Attributes:
        path: of the claim, or of its status.
        body: with the resourceVersion that the change was made for.
        content_type: of the body.
    """

    path: str
    body: bytes
    content_type: str


def _json_request(claim: ClaimText, edit: Edit) -> Request:
    """The change in JSON."""
    meta = claim.metadata
    path = claim_path(meta.namespace, meta.name) + edit.subresource
    return Request(path, edit.as_json(claim), JSON)


async def exact_request(client: ApiClient, claim: ClaimText, edit: Repeating) -> Request | None:
    """The change in protobuf: all else keeps its bytes.

    Returns:
        None: the claim is not of that version any more.

    Raises:
        ApiError, UnavailableError: it cannot be read.
    """
    meta = claim.metadata
    path = claim_path(meta.namespace, meta.name)
    body = await client.get(path, accept=PROTOBUF)
    try:
        if not is_of_version(wire.object_in(body), claim):
            return None
        changed = wire.with_object(body, edit.as_protobuf)
    except wire.WireError as error:
        raise UnavailableError(f"GET {path}: {error}") from None
    return Request(path + edit.subresource, changed, PROTOBUF)


async def request_for(client: ApiClient, claim: ClaimText, edit: Edit) -> Request | None:
    """The first request for a change: JSON, unless that might go through and change what it should not.

    Returns:
        None: the claim is not of that version any more.

    Raises:
        ApiError, UnavailableError: it cannot be read.
    """
    if may_rewrite(edit, claim):
        return await exact_request(client, claim, edit)
    return _json_request(claim, edit)


async def send(client: ApiClient, request: Request) -> WriteOutcome:
    """Send a request."""
    return await client.write("PUT", request.path, request.body, content_type=request.content_type)


async def send_once(client: ApiClient, claim: ClaimText, edit: Edit) -> WriteOutcome:
    """Try a change once, in JSON and, if that is refused for the bytes, in protobuf.

    Raises:
        ApiError, UnavailableError: it cannot be read.
    """
    request = await request_for(client, claim, edit)
    if request is None:
        return MOVED
    answer = await send(client, request)
    if is_invalid(answer) and may_be_refused(edit, claim):
        request = await exact_request(client, claim, edit)
        answer = MOVED if request is None else await send(client, request)
    return answer


def is_invalid(answer: WriteOutcome) -> bool:
    """Whether a change was refused for what it would make of the claim, perhaps for other bytes alone."""
    return isinstance(answer, Rejected) and answer.status == 422


def claim_path(namespace: str, name: str) -> str:
    """The path of a claim in the API."""
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
