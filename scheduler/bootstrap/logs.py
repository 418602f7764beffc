"""Logging: one line an event, text for people or JSON for machines; no headers, tokens or bodies.

Control characters are escaped and long strings cut: names and messages come from tenants. Source:
docs/design/security.md#secrets-and-logs.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

MAX_LENGTH: Final = 256
_QUIET: Final = ("kubernetes_asyncio", "aiohttp", "asyncio", "uvicorn", "urllib3")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code != 9}

Event = MutableMapping[str, Any]


def _harmless(_logger: object, _name: str, event: Event) -> Event:
    """Cut and escape every text value."""
    for key, value in event.items():
        if isinstance(value, str):
            text = value if len(value) <= MAX_LENGTH else value[:MAX_LENGTH] + "…"
            event[key] = text.translate(_CONTROL)
    return event


def configure_logging(format_: str, verbosity: int) -> None:
    """Send all logging of this process to stderr.

    Args:
        format_: `text` or `json`.
        verbosity: 0 for information, 1 and more for debugging. The client's loggers stay at information: at debug
            they print bodies.
    """
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _harmless,
    ]
    render: Any = (
        structlog.processors.JSONRenderer()
        if format_ == "json"
        # A plain traceback: the default shows the values of locals, bodies and headers among them.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 0 else logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
