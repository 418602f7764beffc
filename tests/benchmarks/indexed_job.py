"""`indexed-job`: decisions for pods that differ only in what their controller writes into each of them, against equal pods."""

import gc
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from scheduler.api.decode import decode
from scheduler.engine import Engine
from scheduler.framework.environment import Mode
from scheduler.model import Kind, Pod
from scheduler.offline.bench import measure_decisions
from tests.benchmarks.inmemory import BigCluster, environment
from tests.benchmarks.row import Row

NODES = 500
PODS = 2_000
ROUNDS = 3
INDEX = "batch.kubernetes.io/job-completion-index"
Json = dict[str, Any]


def template(name: str, claim: str) -> Json:
    """A pod as a controller makes it from a template, but for what differs."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"app": "train", "batch.kubernetes.io/job-name": "train"},
        },
        "spec": {
            "schedulerName": "dra-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/train:1",
                    "resources": {
                        "requests": {"cpu": "1", "memory": "1Gi"},
                        "claims": [{"name": "gpu"}],
                    },
                }
            ],
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
        "status": {"phase": "Pending"},
    }


def of_job(name: str, claim: str) -> Json:
    """The same as a pod of an Indexed Job, with the volume that admission adds."""
    made = template(name, claim)
    index = name.rpartition("-")[2]
    made["metadata"]["annotations"] = {INDEX: index}
    made["metadata"]["labels"] |= {INDEX: index, "batch.kubernetes.io/controller-uid": "u"}
    made["spec"]["hostname"] = f"train-{index}"
    token = {"name": f"kube-api-access-{index}", "projected": {"sources": []}}
    made["spec"]["volumes"] = [token]
    made["spec"]["containers"][0] |= {
        "env": [{"name": "JOB_COMPLETION_INDEX", "value": index}],
        "volumeMounts": [{"name": token["name"], "mountPath": "/var/run/secrets"}],
    }
    return made


def waiting(cluster: BigCluster, shape: Callable[[str, str], Json], count: int) -> Iterable[Pod]:
    """Pods, each with a claim of its own, added to a cluster."""
    for index in range(count):
        name = f"train-{index}"
        cluster.add_pod(name)  # with its claim
        pod = cast("Pod", decode(Kind.POD, msgspec.json.encode(shape(name, name))))
        cluster.add(Kind.POD, pod)
        yield pod


def per_second(shape: Callable[[str, str], Json], nodes: int, pods: int) -> float:
    """Decisions a second, nobody writing."""
    cluster = BigCluster(nodes)
    engine = Engine(environment(Mode.STANDALONE))
    engine.follow(cluster.cache)
    made = list(waiting(cluster, shape, pods))
    figures = measure_decisions(
        cluster.cache, engine, made, time.perf_counter, lambda _what, _done, _total: None
    )
    if figures.placed != pods or len(engine.memo) != 1:
        raise RuntimeError(f"{len(engine.memo)} questions, {figures}")
    return figures.per_second


async def indexed_job(repetitions: int) -> list[Row]:
    """The two take turns."""
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(max(ROUNDS, repetitions)):
        for shape, figures in ((of_job, ours), (template, peer)):
            gc.collect()  # what the last one has left behind
            figures.append(per_second(shape, NODES, PODS))
    return [
        Row(
            "indexed-job",
            f"{PODS} pods of an Indexed Job over as many of one template, {NODES} nodes x 8",
            ours,
            peer,
            "decisions/s",
            reach=0.9,
        )
    ]
