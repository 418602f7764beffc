"""Probes and metrics, on a listener of their own so that webhook load cannot starve them.

/livez: the event loop answers and no critical task is dead; independent of the API server. /readyz: caches are synced,
hear from the server, and our permissions suffice; a follower is ready, too. /startupz: first sync done.
/debug/profile and /debug/recording exist only if they are switched on. Plain Starlette: what FastAPI adds to it is not used here, and takes
a quarter of a second to import, before the first pod. Source: docs/design/process.md#probes,
docs/design/leader-election.md#h7.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Problems = Callable[[], list[str]]
Render = Callable[[], tuple[bytes, str]]
Show = Callable[[Request], Awaitable[Response]]
_TEXT: Final = "text/plain; charset=utf-8"


def create_health_app(
    *,
    live: Problems,
    ready: Problems,
    started: Problems,
    metrics: Render,
    details: Callable[[], dict[str, object]],
    profile: Show | None = None,
    recording: Show | None = None,
) -> Starlette:
    """Make the ASGI application.

    Args:
        live: what is wrong with the process; empty: nothing.
        ready: why it should not be called.
        started: what the first sync waits for.
        metrics: body and content type of /metrics.
        details: plain data for /debug/state: leadership, cache versions and digests, queue.
        profile: answers /debug/profile; None: there is no such page.
        recording: answers /debug/recording; None: there is no such page.
    """

    async def show_metrics(_: Request) -> Response:
        body, content_type = metrics()
        return Response(body, headers={"content-type": content_type})

    async def show_state(_: Request) -> Response:
        return Response(orjson.dumps(details()), media_type="application/json")

    pages: dict[str, Show] = {
        "/livez": _probe(live),
        "/healthz": _probe(live),
        "/readyz": _probe(ready),
        "/startupz": _probe(started),
        "/metrics": show_metrics,
        "/debug/state": show_state,
    }
    if profile is not None:
        pages["/debug/profile"] = profile
    if recording is not None:
        pages["/debug/recording"] = recording
    app = Starlette(routes=[Route(path, show, methods=["GET"]) for path, show in pages.items()])
    app.router.redirect_slashes = False
    return app


def _probe(problems: Problems) -> Show:
    async def probe(_: Request) -> Response:
        found = problems()
        if found:
            return Response("\n".join(found) + "\n", status_code=503, media_type=_TEXT)
        return Response("ok\n", media_type=_TEXT)

    return probe
