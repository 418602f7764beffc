"""Probes and metrics, on a listener of their own so that webhook load cannot starve them.

/livez: the event loop answers and no critical task is dead; independent of the API server. /readyz: caches are synced,
hear from the server, and our permissions suffice; a follower is ready, too. /startupz: first sync done.
/debug/profile exists only if profiling is switched on. Source: reliability 4.5, H7.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from fastapi import FastAPI, Request, Response

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
) -> FastAPI:
    """Make the ASGI application.

    Args:
        live: what is wrong with the process; empty: nothing.
        ready: why it should not be called.
        started: what the first sync waits for.
        metrics: body and content type of /metrics.
        details: plain data for /debug/state: leadership, cache versions and digests, queue.
        profile: answers /debug/profile; None: there is no such page.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for path, problems in (("/livez", live), ("/readyz", ready), ("/startupz", started)):
        app.add_api_route(path, _probe(problems), methods=["GET"])
    app.add_api_route("/healthz", _probe(live), methods=["GET"])

    async def show_metrics() -> Response:
        body, content_type = metrics()
        return Response(body, headers={"content-type": content_type})

    async def show_state() -> Response:
        return Response(orjson.dumps(details()), media_type="application/json")

    app.add_api_route("/metrics", show_metrics, methods=["GET"])
    app.add_api_route("/debug/state", show_state, methods=["GET"])
    if profile is not None:
        app.add_api_route("/debug/profile", profile, methods=["GET"])
    return app


def _probe(problems: Problems) -> Callable[[], Awaitable[Response]]:
    async def probe() -> Response:
        found = problems()
        if found:
            return Response("\n".join(found) + "\n", status_code=503, media_type=_TEXT)
        return Response("ok\n", media_type=_TEXT)

    return probe
