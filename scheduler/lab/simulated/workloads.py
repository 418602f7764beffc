"""Controllers that make pods: Jobs that run to completion, and Deployments (without ReplicaSets between them and pods)."""

from scheduler.clock import rfc3339
from scheduler.lab.simulated.mirror import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    Controller,
    Json,
    collection,
    controller_of,
    is_deleting,
    is_terminal,
    name,
    namespace,
    path_of,
    uid,
)

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"


def pod_from_template(owner: Json, api_version: str, kind: str, labels: Json) -> Json:
    """The pod that a workload asks for, with a generated name and the workload as its controller."""
    template = owner["spec"]["template"]
    meta = template.get("metadata") or {}
    reference = {
        "apiVersion": api_version,
        "kind": kind,
        "name": name(owner),
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name(owner)}-",
            "namespace": namespace(owner),
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }


class _PodMaker(Controller):
    """Has pods of its own."""

    def pods_of(self, owner: Json) -> list[Json]:
        """Pods that a workload controls."""
        return [
            pod
            for pod in self.mirror.objects(PODS)
            if (reference := controller_of(pod)) is not None and reference["uid"] == uid(owner)
        ]

    async def make_pods(self, pod: Json, count: int) -> None:
        """Create pods from one template."""
        for _ in range(count):
            created = await self.api.create(collection(PODS, namespace(pod)), pod)
            if created is not None:
                self.mirror.observe(PODS, created)


class JobController(_PodMaker):
    """Keeps as many pods of a Job active as it wants, until enough have succeeded or too many failed."""

    resources: tuple[str, ...] = (JOBS, PODS)

    async def reconcile(self) -> None:
        """One pass over all Jobs."""
        for job in self.mirror.objects(JOBS):
            if not is_deleting(job) and not _is_finished(job):
                await self._sync(job)

    async def _sync(self, job: Json) -> None:
        spec = job["spec"]
        pods = self.pods_of(job)
        phases = [(pod.get("status") or {}).get("phase") for pod in pods]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        active = sum(not is_terminal(pod) and not is_deleting(pod) for pod in pods)
        # Without a number of completions, one success ends it.
        completions = spec.get("completions", 1)
        parallelism = spec.get("parallelism", 1)
        exhausted = failed > spec.get("backoffLimit", 6)
        if not (spec.get("suspend") or exhausted):
            missing = min(parallelism, completions - succeeded) - active
            labels = {
                JOB_NAME_LABEL: name(job),
                "job-name": name(job),
                CONTROLLER_UID_LABEL: uid(job),
                "controller-uid": uid(job),
            }
            await self.make_pods(pod_from_template(job, "batch/v1", "Job", labels), max(missing, 0))
            active += max(missing, 0)
        counts = {"active": active, "succeeded": succeeded, "failed": failed}
        await self._write_status(job, counts, completions, exhausted=exhausted)

    async def _write_status(
        self, job: Json, counts: dict[str, int], completions: int, *, exhausted: bool
    ) -> None:
        now = rfc3339(self.clock.now())
        known: Json = job.get("status") or {}
        status: Json = {**known, **counts}
        status.setdefault("startTime", now)
        if counts["succeeded"] >= completions and not counts["active"]:
            status["completionTime"] = now
            status["conditions"] = _final("SuccessCriteriaMet", "Complete", now)
        elif exhausted and not counts["active"]:
            status["conditions"] = _final("FailureTarget", "Failed", now)
        if status == known:
            return
        body = {**job, "apiVersion": "batch/v1", "kind": "Job", "status": status}
        written = await self.api.put(f"{path_of(JOBS, job)}/status", body)
        if written is not None:
            self.mirror.observe(JOBS, written)


def _final(criterion: str, outcome: str, now: str) -> list[Json]:
    """Conditions of a Job that has ended; the API wants the criterion before the outcome."""
    return [
        {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        for kind in (criterion, outcome)
    ]


def _is_finished(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        for condition in conditions
    )


class DeploymentController(_PodMaker):
    """Keeps as many pods of a Deployment as it wants; does not roll out changes of the template."""

    resources: tuple[str, ...] = (DEPLOYMENTS, PODS)

    async def reconcile(self) -> None:
        """One pass over all Deployments."""
        for deployment in self.mirror.objects(DEPLOYMENTS):
            if not is_deleting(deployment):
                await self._sync(deployment)

    async def _sync(self, deployment: Json) -> None:
        wanted = deployment["spec"].get("replicas", 1)
        pods = [
            pod for pod in self.pods_of(deployment) if not is_terminal(pod) and not is_deleting(pod)
        ]
        pod = pod_from_template(deployment, "apps/v1", "Deployment", {})
        await self.make_pods(pod, max(wanted - len(pods), 0))
        for surplus in pods[wanted:]:
            await self.api.delete(path_of(PODS, surplus), surplus)
