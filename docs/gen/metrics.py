"""The metrics reference, from the registry of a process that was built and not started."""

import random
from typing import Final, cast

from prometheus_client import CollectorRegistry

from allocator.features import Features
from docs.gen.markdown import anchor, table
from scheduler.bootstrap.build import build_core
from scheduler.client import ApiClient
from scheduler.clock import SystemClock
from scheduler.config import Settings
from scheduler.framework.environment import Mode
from scheduler.leader import AlwaysLeader

_INTRO: Final = """# Metrics

`/metrics` is served at the health address (`127.0.0.1:8081` unless [configured](configuration.md#healthaddress)), in the
Prometheus text format. Times are seconds. Labels take values from closed sets (verbs, outcomes, [reason kinds](reasons.md)):
never names of pods, claims, devices or nodes.

## What to watch

| question | expression |
|---|---|
| did an internal check find a bug? | `dra_scheduler_memo_mismatch_total`, `dra_scheduler_recount_differences_total`: anything but 0 is a bug; please report it |
| does another scheduler allocate our devices? | `increase(dra_scheduler_foreign_allocation_total[1h]) > 0` |
| how long do pods wait? | `histogram_quantile(0.99, rate(dra_scheduler_pod_scheduling_seconds_bucket[5m]))` |
| why are pods refused? | `topk(5, sum by (kind) (rate(dra_scheduler_refusals_total[15m])))` |
| are writes in doubt? | `rate(dra_scheduler_api_writes_total{outcome="unknown"}[5m])`; each one holds devices until it is settled |
| is the cache behind? | `dra_scheduler_watch_silence_seconds > 90`, or the 99th percentile of `dra_scheduler_cache_lag_seconds` |
| is the process too busy? | the 99th percentile of `dra_scheduler_loop_stall_seconds`; above 0.02 the API server may end our watches |
| how many answers needed no search? | `1 - rate(dra_scheduler_searches_total[5m]) / rate(dra_scheduler_memo_lookups_total[5m])` |
| is there exactly one writer? | `sum(dra_scheduler_leader) == 1` |

## All metrics

"""


def page() -> str:
    """The whole page."""
    rows = [
        (
            f"{anchor(name)}`{name}`",
            type_,
            ", ".join(f"`{label}`" for label in labels) or "",
            text,
        )
        for name, type_, labels, text in metrics()
    ]
    return _INTRO + table(("Metric", "Type", "Labels", "Meaning"), rows)


def metrics() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Name as scraped, type, label names and text of every metric, by name."""
    registry = _registry()
    labels = _label_names(registry)
    found = []
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.append((name, family.type, labels.get(family.name, ()), family.documentation))
    return sorted(found)


def _registry() -> CollectorRegistry:
    no_client = cast("ApiClient", None)  # building sends nothing
    core = build_core(
        Settings(),
        no_client,
        AlwaysLeader(),
        Features(),
        SystemClock(),
        random.Random(0),  # noqa: S311 (jitter; nothing here is secret)
        Mode.STANDALONE,
    )
    return core.metrics.registry


def _label_names(registry: CollectorRegistry) -> dict[str, tuple[str, ...]]:
    """The library shows labels only with samples, and there are none yet; so they are read from its objects."""
    return {
        name: tuple(getattr(collector, "_labelnames", ()))
        for name, collector in registry._names_to_collectors.items()
    }
