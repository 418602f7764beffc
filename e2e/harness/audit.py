"""The API server's audit log, read by position: who asked for what, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True)
class Request:
    """One finished request.

    Attributes:
      resource: Plural with subresource, such as `resourceclaims/status`; empty for URLs outside
        the API's resources.
      code: HTTP status of the answer.
      agent: The client's User-Agent.
      denied: The authorizer refused it (admission answers 403 too, as in a namespace that ends).
    """

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    uri: str
    agent: str
    denied: bool

    @property
    def writes(self) -> bool:
        return self.verb not in {"get", "list", "watch"}


class AuditLog:
    """Reads the log file; a position taken earlier limits what is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def position(self) -> int:
        """Returns the end of the log as it is now, for `since`."""
        return self.path.stat().st_size if self.path.exists() else 0

    def requests(self, since: int = 0, user: str | None = None) -> Iterator[Request]:
        """Yields finished requests in the order in which they were answered.

        Args:
          since: A value of `position`.
          user: Only this user's.
        """
        with self.path.open("rb") as log:
            log.seek(since)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                request = _request(orjson.loads(line))
                if user is None or request.user == user:
                    yield request

    def forbidden(self, since: int = 0, user: str | None = None) -> list[Request]:
        """Returns the requests that the user had no right to send."""
        return [r for r in self.requests(since, user) if r.denied]

    def writes_to(self, namespace: str, since: int = 0) -> list[Request]:
        """Returns the successful writes in one namespace, events left out."""
        return [
            r
            for r in self.requests(since)
            if r.namespace == namespace and r.writes and r.code < 300 and r.resource != "events"
        ]


def _request(event: dict[str, object]) -> Request:
    def section(name: str) -> dict[str, object]:
        value = event.get(name)
        return value if isinstance(value, dict) else {}

    target, answer, notes = section("objectRef"), section("responseStatus"), section("annotations")
    resource = str(target.get("resource", ""))
    if target.get("subresource"):
        resource += f"/{target['subresource']}"
    code = answer.get("code", 0)
    return Request(
        user=str(section("user").get("username", "")),
        verb=str(event.get("verb", "")),
        resource=resource,
        namespace=str(target.get("namespace", "")),
        name=str(target.get("name", "")),
        code=code if isinstance(code, int) else 0,
        uri=str(event.get("requestURI", "")),
        agent=str(event.get("userAgent", "")),
        denied=notes.get("authorization.k8s.io/decision") == "forbid",
    )
