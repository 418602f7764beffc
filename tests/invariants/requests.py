"""S12, S14: what we ask of the API server, and what our webhooks answer."""

import re
from collections.abc import Iterator, Mapping

from tests.invariants.finding import Finding
from tests.invariants.history import Call, Sent

# Method and path, without names: docs/design/security.md#rbac.
_ALLOWED = [
    re.compile(pattern)
    for pattern in (
        r"(GET|WATCH) /api/v1/(nodes|pods|namespaces)",
        r"GET /api/v1/namespaces/[^/]+/pods/[^/]+",
        r"(GET|WATCH) /apis/resource\.k8s\.io/[^/]+/(resourceclaims|resourceslices|deviceclasses|devicetaintrules)",
        r"(GET|PUT|PATCH) /apis/resource\.k8s\.io/v1/namespaces/[^/]+/resourceclaims/[^/]+",
        r"(PUT|PATCH) /apis/resource\.k8s\.io/v1/namespaces/[^/]+/resourceclaims/[^/]+/status",
        r"POST /api/v1/namespaces/[^/]+/pods/[^/]+/binding",
        r"PATCH /api/v1/namespaces/[^/]+/pods/[^/]+/status",
        r"(POST|PATCH) /apis/events\.k8s\.io/v1/namespaces/[^/]+/events(/[^/]+)?",
        r"(GET|POST|PUT) /apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(/[^/]+)?",
        r"PATCH /api/v1/namespaces/[^/]+/pods/[^/]+",  # the leader's label on its own pod
        r"GET /version",
    )
]


def sent(request: Sent) -> Iterator[Finding]:
    """S12: only the verbs of our role, nothing that is forbidden, nothing that is invalid."""
    what = f"{request.method} {request.path}"
    if not any(pattern.fullmatch(what) for pattern in _ALLOWED):
        yield Finding("S12", what, "is none of our verbs")
    if request.fault:
        return
    if request.status == 403:
        yield Finding("S12", what, f"was forbidden: {request.message}")
    if is_invalid(request) and "/resourceclaims/" not in request.path:
        yield Finding("S12", what, f"was refused as invalid: {request.message}")


def is_invalid(request: Sent) -> bool:
    """Whether a write was refused for what it says. (Of a claim it may be tried, to see whether its bytes matter.)"""
    return request.status in (400, 413, 415, 422) and not request.fault and not _is_race(request)


def _is_race(request: Sent) -> bool:
    """Whether a refusal only says that somebody else was faster (a claim that is being deleted, a pod of another UID)."""
    text = request.message
    return any(part in text for part in ("deletionTimestamp", "being deleted", "metadata.uid"))


def answered(call: Call) -> Iterator[Finding]:
    """S14: filter answers some of the nodes it was asked about, prioritize gives whole numbers from 0 to 10."""
    if call.status != 200:
        return
    subject = f"{call.author} {call.verb}"
    request: Mapping[str, object] = call.request if isinstance(call.request, dict) else {}
    asked = request.get("NodeNames")
    names = set(asked) if isinstance(asked, list) else set()
    if call.verb == "filter":
        if not isinstance(call.answer, dict):
            yield Finding("S14", subject, "the answer is no object")
        elif not set(call.answer.get("NodeNames") or ()) <= names:
            yield Finding("S14", subject, "answers nodes that were not asked about")
    elif call.verb == "prioritize":
        if not isinstance(call.answer, list):
            yield Finding("S14", subject, "the answer is no list")
            return
        for each in call.answer:
            score = each.get("Score")
            if not isinstance(score, int) or not 0 <= score <= 10:
                yield Finding("S14", subject, f"score {score!r}")
            if each.get("Host") not in names:
                yield Finding("S14", subject, "scores nodes that were not asked about")
