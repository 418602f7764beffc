"""What is counted and timed, for Prometheus. The only module that knows the library.

Labels are closed sets: verbs, kinds, outcomes. Never names of pods, claims or nodes.
Source: docs/design/cache-and-watches.md#r13, docs/design/write-protocol.md#outcomes; docs/performance.md.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from scheduler.clock import Clock

_PREFIX: Final = "dra_scheduler"
_STALL_PERIOD_SECONDS: Final = 0.25
_FAST: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class _Counts(Collector):
    """Counters read from callbacks; the library supports callbacks for gauges only."""

    def __init__(self) -> None:
        self._reads: dict[str, tuple[str, Callable[[], float]]] = {}

    def add(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show one more.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._reads:
            raise ValueError(f"{name} is counted already")
        self._reads[name] = text, read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Read all of them."""
        for name, (text, read) in self._reads.items():
            yield CounterMetricFamily(name, text, value=read())


class Metrics:
    """All metrics of one process, in a registry of their own. Times are seconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts = _Counts()
        self.registry.register(self._counts)
        self._attempts = self._counter(
            "scheduling_attempts", "Scheduling attempts, by result", "result"
        )
        self._refusals = self._counter(
            "refusals", "Refused scheduling attempts, by kind of reason", "kind"
        )
        self._pod_seconds = self._histogram(
            "pod_scheduling_seconds", "Time from first seeing a pod until it is bound", _SLOW
        )
        self._decision_seconds = self._histogram(
            "decision_seconds", "Time to decide one pod, without writes", _FAST
        )
        self._webhook_seconds = self._histogram(
            "webhook_seconds",
            "Time to answer a webhook call, by verb and status code",
            _FAST,
            "verb",
            "code",
        )
        self._webhook_refusals = self._counter(
            "webhook_refusals",
            "Calls of the extender's verbs not served, by cause",
            "verb",
            "cause",
        )
        self._bind_seconds = self._histogram(
            "bind_seconds", "Time for all writes of one bind, by outcome", _FAST, "outcome"
        )
        self._writes = self._counter(
            "api_writes", "Writes to the API server, by outcome", "verb", "outcome"
        )
        self._queue = self._gauge("queue_pods", "Pods in each queue", "queue")
        self._relists = self._counter(
            "relists",
            "Full lists that replaced the content of the cache, by kind and cause",
            "kind",
            "cause",
        )
        self._watch_events = self._counter(
            "watch_events", "Watch events processed, by kind", "kind"
        )
        self._undecodable = self._counter(
            "undecodable_objects", "Objects that could not be decoded, by kind", "kind"
        )
        self._recount = self._counter(
            "recount_differences",
            "Inconsistencies found between indexes and stores; anything but 0 is a bug",
        )
        self._lag = self._histogram(
            "cache_lag_seconds", "Time from the response to a write until the watch shows it", _FAST
        )
        self._stall = self._histogram(
            "loop_stall_seconds", "Delay of the event loop in waking a task", _FAST
        )
        self._foreign = self._counter(
            "foreign_allocation",
            "Claims found to use more than others leave: another allocator is at work",
        )
        self._events_dropped = self._counter(
            "events_dropped", "Kubernetes Events that were dropped, by reason", "reason"
        )
        self._shed = self._counter("pods_shed", "Pods not queued because the queue was full")
        self._recovered = self._counter(
            "pods_recovered", "Waiting pods that nobody was working on, found by the sweep: a bug"
        )

    def attempt(self, result: str) -> None:
        """Count an attempt: `scheduled`, `unschedulable` or `error`."""
        self._attempts.labels(result).inc()

    def refused(self, kind: str) -> None:
        """Count a refused pod by the kind of its reason."""
        self._refusals.labels(kind).inc()

    def pod_scheduled(self, seconds: float) -> None:
        """Time a pod from first seen to bound."""
        self._pod_seconds.observe(seconds)

    def decision(self, seconds: float) -> None:
        """Time a decision."""
        self._decision_seconds.observe(seconds)

    def webhook(self, verb: str, code: int, seconds: float) -> None:
        """Time a webhook call."""
        self._webhook_seconds.labels(verb, str(code)).observe(seconds)

    def webhook_refused(self, verb: str, cause: str) -> None:
        """Count a webhook call that was not served: `unavailable`, `request`, `too large`, `time` or `defect`."""
        self._webhook_refusals.labels(verb, cause).inc()

    def bind(self, outcome: str, seconds: float) -> None:
        """Time a bind: `bound`, `failed` or `pending`."""
        self._bind_seconds.labels(outcome).observe(seconds)

    def api_write(self, verb: str, outcome: str) -> None:
        """Count a write: `committed`, `conflict`, `rejected` or `unknown`."""
        self._writes.labels(verb, outcome).inc()

    def queue_depths(self, depths: Mapping[str, int]) -> None:
        """Note how many pods wait in each queue."""
        for queue, depth in depths.items():
            self._queue.labels(queue).set(depth)

    def relisted(self, kind: str, cause: str) -> None:
        """Count a list that replaced the cache's content."""
        self._relists.labels(kind, cause).inc()

    def watch_event(self, kind: str) -> None:
        """Count an event of a watch."""
        self._watch_events.labels(kind).inc()

    def undecodable(self, kind: str) -> None:
        """Count an object that could not be read."""
        self._undecodable.labels(kind).inc()

    def recount_difference(self, count: int) -> None:
        """Count places where an index was wrong."""
        self._recount.inc(count)

    def cache_lag(self, seconds: float) -> None:
        """Time from a write's answer until the watch showed it."""
        self._lag.observe(seconds)

    async def watch_stalls(self, clock: Clock) -> NoReturn:
        """Time how late the event loop wakes us, until cancelled: a late loop is a slow watch reader."""
        while True:
            due = clock.monotonic() + _STALL_PERIOD_SECONDS
            await clock.sleep(_STALL_PERIOD_SECONDS)
            self._stall.observe(max(0.0, clock.monotonic() - due))

    def foreign_allocation(self) -> None:
        """Count a device that another writer gave away as well."""
        self._foreign.inc()

    def event_dropped(self, reason: str) -> None:
        """Count an Event that was not written."""
        self._events_dropped.labels(reason).inc()

    def pod_shed(self) -> None:
        """Count a pod that found the queue full."""
        self._shed.inc()

    def pod_recovered(self) -> None:
        """Count a waiting pod that nobody was working on."""
        self._recovered.inc()

    def watch_value(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a value that is read when somebody asks: in-flight claims, silence of the watches, leadership.

        Args:
            name: without prefix; once for each name.
            text: what it is.
            read: gives the value; quick, does not fail.
        """
        self._gauge(name, text).set_function(read)

    def watch_count(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a count that somebody else keeps, as `NAME_total`: searches run, answers looked up.

        Args:
            name: without prefix and `_total`; once for each name.
            text: what is counted.
            read: gives the count, which never goes down; quick, does not fail.
        """
        self._counts.add(f"{_PREFIX}_{name}", text, read)

    def render(self) -> tuple[bytes, str]:
        """The body of `/metrics` and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)
