"""Says in the log which calls could not be served, and why.

Where an answer has room for the reason, kube-scheduler puts it into the pod's event; where it has none, nobody else would
hear of it. One line a verb and reason in a while: a lasting misconfiguration fails every call.
"""

import logging
import re
from typing import Any, Final

import msgspec

from scheduler.clock import Clock

_log: Final = logging.getLogger(__name__)

QUIET_SECONDS: Final = 30.0
_MOST_REASONS: Final = 100  # remembered: texts name fields, and a hostile caller has many
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class _Meta(msgspec.Struct):
    name: Any = ""
    namespace: Any = ""


class _Pod(msgspec.Struct):
    metadata: _Meta | None = None


class _Call(msgspec.Struct):
    pod: _Pod | None = msgspec.field(default=None, name="Pod")
    pod_name: Any = msgspec.field(default="", name="PodName")
    pod_namespace: Any = msgspec.field(default="", name="PodNamespace")


_CALL: Final = msgspec.json.Decoder(_Call)


class Complaints:
    """The log of calls that could not be served."""

    def __init__(self, clock: Clock) -> None:
        """Start with nothing said."""
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}
        self._silent: dict[tuple[str, str], int] = {}

    def tell(self, verb: str, reason: str, body: bytes) -> None:
        """Say that a call was not served, unless the same was said just now.

        Args:
            verb: of the call.
            reason: a constant text.
            body: of the call, as far as it was read.
        """
        key, now = (verb, reason), self._clock.monotonic()
        said_at = self._said.get(key)
        if said_at is not None and now - said_at < QUIET_SECONDS:
            self._silent[key] = self._silent.get(key, 0) + 1
            return
        if len(self._said) >= _MOST_REASONS:
            self._said.clear()
            self._silent.clear()
        self._said[key] = now
        more = self._silent.pop(key, 0)
        _log.warning(
            "%s for pod %s was not served: %s%s",
            verb,
            pod_of(body),
            reason,
            f" (and {more} times more since this was said last)" if more else "",
        )


def pod_of(body: bytes) -> str:
    """`namespace/name` of the pod that a call is about, as far as the body tells, and as far as it can be a name."""
    try:
        call = _CALL.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "(unknown)"
    name, namespace = call.pod_name, call.pod_namespace
    if call.pod is not None and call.pod.metadata is not None:
        name, namespace = call.pod.metadata.name, call.pod.metadata.namespace
    is_known = all(isinstance(each, str) and _NAME.fullmatch(each) for each in (name, namespace))
    return f"{namespace}/{name}" if is_known else "(unknown)"
