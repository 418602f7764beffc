"""Tenants: they create pods and claims of all shapes, and delete them at any moment."""

import random
from typing import TYPE_CHECKING, Any, Final

from scheduler.client import MERGE_PATCH
from scheduler.lab.apiserver.opaque import Opaque
from tests.opaque import TEXTS

if TYPE_CHECKING:
    from tests.simulation.world import World

Object = dict[str, Any]
SCHEDULER: Final = "dra-scheduler"
NAMESPACES: Final = ("default", "team-a", "admins")
# Text that has broken something somewhere: separators, controls, digits that are not ASCII, other planes.
ODD_TEXT: Final = (
    "",
    "a\u0000b",
    "\u2028",
    "\U0001f600",
    '"quoted"\\',
    "٣",
    "1e400",
    "null",
    "-0",
    "\ufeffbom",
)
# Text where we stamp our own: nothing that could be an epoch later than ours.
ODD_EPOCHS: Final = ("", "-1", "1.5", "007", "x", "9" * 30, "٣", "0", "1", "3", "2147483647")
ODD_PARAMETERS: Final = tuple(TEXTS.values())


def claims_path(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def templates_path(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


class Tenants:
    """All tenants of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = random.Random(world.rng.getrandbits(64))
        self.number = 0
        self.shared: list[tuple[str, str]] = []  # claims that several pods use
        self.are_writing = True

    def set_up(self) -> None:
        """Namespaces, and templates."""
        world = self.world
        for namespace in NAMESPACES[1:]:
            labels = (
                {"resource.kubernetes.io/admin-access": "true"} if namespace == "admins" else {}
            )
            world.do(
                "POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}}
            )

    def _next(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}-{self.number}"

    # --- questions ----------------------------------------------------------------------------------------------------

    def claim_spec(self) -> Object:
        """What a claim asks."""
        rng = self.rng
        kind = rng.choice(self.world.plan.drivers)
        requests: list[Object] = []
        constraints: list[Object] = []
        if kind == "shared":
            exactly: Object = {"deviceClassName": kind}
            if rng.random() < 0.8:
                exactly["capacity"] = {
                    "requests": {"memory": rng.choice(("1Gi", "2Gi", "3Gi", "4Gi"))}
                }
            requests.append({"name": "r", "exactly": exactly})
        elif kind == "mig":
            memory = rng.choice(("4Gi", "6Gi", "8Gi"))
            expression = (
                f'device.capacity["{kind}.example.com"].memory.compareTo(quantity("{memory}")) >= 0'
            )
            exactly = {"deviceClassName": kind}
            if rng.random() < 0.7:
                exactly["selectors"] = [{"cel": {"expression": expression}}]
            requests.append({"name": "r", "exactly": exactly})
        elif rng.random() < 0.2:
            big = {
                "name": "big",
                "deviceClassName": kind,
                "selectors": [
                    {
                        "cel": {
                            "expression": f'device.attributes["{kind}.example.com"].model == "H100"'
                        }
                    }
                ],
            }
            requests.append(
                {"name": "r", "firstAvailable": [big, {"name": "any", "deviceClassName": kind}]}
            )
        else:
            exactly = {"deviceClassName": kind}
            exactly |= rng.choice(
                (
                    {},
                    {},
                    {"allocationMode": "ExactCount", "count": 2},
                    {"allocationMode": "All"} if rng.random() < 0.3 else {},
                )
            )
            if rng.random() < 0.25:
                exactly["selectors"] = [{"cel": {"expression": self._selector(kind)}}]
            if rng.random() < 0.15:
                exactly["tolerations"] = [{"key": "example.com/sick", "operator": "Exists"}]
            requests.append({"name": "r", "exactly": exactly})
            if rng.random() < 0.2:
                requests.append({"name": "s", "exactly": {"deviceClassName": kind}})
            if rng.random() < 0.2:
                attribute = rng.choice((f"{kind}.example.com/numa", f"{kind}.example.com/index"))
                constraints.append(
                    rng.choice(({"matchAttribute": attribute}, {"distinctAttribute": attribute}))
                )
        spec: Object = {"devices": {"requests": requests}}
        if constraints:
            spec["devices"]["constraints"] = constraints
        if rng.random() < 0.2:
            spec["devices"]["config"] = [self._configuration(kind, requests)]
        return spec

    def _selector(self, kind: str) -> str:
        domain = f"{kind}.example.com"
        rng = self.rng
        if self.world.happens("F31 cel"):
            return rng.choice(
                (
                    f'device.attributes["{domain}"].missing == "x"',
                    f'device.attributes["{domain}"].index / 0 == 1',
                    f'device.attributes["{domain}"].model.matches("(a|a)*b")',
                    " && ".join(f'device.driver != "x{index}"' for index in range(300)),
                )
            )
        return rng.choice(
            (
                f'device.attributes["{domain}"].model == "H100"',
                f'device.attributes["{domain}"].index < 2',
                f'device.attributes["{domain}"].?missing.orValue(true)',
                f'device.capacity["{domain}"].memory.isGreaterThan(quantity("50Gi"))',
            )
        )

    def _configuration(self, kind: str, requests: list[Object]) -> Object:
        parameters: Any = {"apiVersion": "v1", "kind": "Config"}
        if self.world.happens("odd objects"):
            parameters = Opaque(self.rng.choice(ODD_PARAMETERS))
        entry: Object = {"opaque": {"driver": f"{kind}.example.com", "parameters": parameters}}
        if self.rng.random() < 0.5:
            entry["requests"] = [requests[0]["name"]]
        return entry

    def _metadata(self, name: str, namespace: str) -> Object:
        meta: Object = {"name": name, "namespace": namespace}
        if self.world.happens("odd objects"):
            rng = self.rng
            meta["labels"] = {
                "example.com/" + "k" * rng.choice((1, 63)): rng.choice(("", "v" * 63))
            }
            meta["annotations"] = {
                rng.choice(
                    ("note", "dra-scheduler.dev/fence", "dra-scheduler.dev/wake-up")
                ): rng.choice(ODD_TEXT),
            }
            if rng.random() < 0.3:
                meta["annotations"]["dra-scheduler.dev/epoch"] = rng.choice(ODD_EPOCHS)
            if rng.random() < 0.2:
                meta["finalizers"] = ["resource.kubernetes.io/delete-protection"]
            if rng.random() < 0.1:
                meta["ownerReferences"] = [
                    {"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "x-uid"}
                ]
        return meta

    # --- objects ------------------------------------------------------------------------------------------------------

    def make_claim(self, namespace: str) -> str | None:
        """Create a claim; its name, unless it was refused."""
        name = self._next("claim")
        spec = self.claim_spec()
        if namespace == "admins" and self.rng.random() < 0.3:
            for request in spec["devices"]["requests"]:
                if "exactly" in request:
                    request["exactly"]["adminAccess"] = True
        body = {"metadata": self._metadata(name, namespace), "spec": spec}
        status, answer = self.world.do("POST", claims_path(namespace), body)
        if status != 201:
            self.world.refused_by_server(answer)
            return None
        return name

    def make_template(self, namespace: str) -> str | None:
        """Create a claim template."""
        name = self._next("template")
        spec: Object = {"spec": self.claim_spec()}
        if self.world.happens("odd objects"):
            meta = self._metadata("x", namespace)
            spec["metadata"] = {
                key: meta[key] for key in ("labels", "annotations") if meta.get(key)
            }
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        status, answer = self.world.do("POST", templates_path(namespace), body)
        if status != 201:
            self.world.refused_by_server(answer)
            return None
        return name

    def make_pod(self) -> None:
        """Create a pod with what it needs, in any order."""
        rng, world = self.rng, self.world
        namespace = rng.choice(("default", "default", "team-a", "admins"))
        entries: list[Object] = []
        for number in range(rng.choice((0, 1, 1, 1, 2, 3)) if rng.random() < 0.3 else 1):
            entry: Object = {"name": f"e{number}"}
            way = rng.random()
            shared = [name for space, name in self.shared if space == namespace]
            if way < 0.35:
                template = self.make_template(namespace)
                if template is None:
                    continue
                entry["resourceClaimTemplateName"] = template
            elif way < 0.55 and shared:
                entry["resourceClaimName"] = rng.choice(shared)
                if any(
                    each.get("resourceClaimName") == entry["resourceClaimName"] for each in entries
                ):
                    continue
            else:
                claim = self.make_claim(namespace)
                if claim is None:
                    continue
                if rng.random() < 0.25:
                    self.shared.append((namespace, claim))
                entry["resourceClaimName"] = claim
            entries.append(entry)
        container: Object = {"name": "main", "image": "pause"}
        if entries:
            container["resources"] = {"claims": [{"name": entries[0]["name"]}]}
        if rng.random() < 0.4:
            container.setdefault("resources", {})["requests"] = {
                "cpu": rng.choice(("100m", "1", "2")),
                "memory": rng.choice(("64Mi", "1Gi", "8Gi")),
            }
        spec: Object = {
            "schedulerName": world.scheduler_name if rng.random() < 0.95 else "another-scheduler",
            "containers": [container],
        }
        if entries:
            spec["resourceClaims"] = entries
        if rng.random() < 0.1:
            spec["nodeSelector"] = {"zone": rng.choice(("a", "b"))}
        if rng.random() < 0.1:
            spec["tolerations"] = [{"operator": "Exists"}]
        if rng.random() < 0.1:
            spec["priority"] = rng.choice((0, 10))
            spec["priorityClassName"] = ""
            del spec["priority"]
        if rng.random() < 0.05:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        body = {
            "metadata": {**self._metadata(self._next("pod"), namespace)},
            "spec": spec,
        }
        body["metadata"].pop("finalizers", None)
        body["metadata"].pop("ownerReferences", None)
        status, answer = world.do("POST", pods_path(namespace), body)
        if status != 201:
            world.refused_by_server(answer)

    # --- what happens -------------------------------------------------------------------------------------------------

    def second(self) -> None:
        """One second of a tenant's day."""
        rng, world = self.rng, self.world
        if not self.are_writing:
            return
        made = world.plan.pods_a_second
        while rng.random() < made:
            made -= 1.0
            world.loop.later(rng.random(), self.make_pod)
        pods = list(world.objects("/pods"))
        if pods and rng.random() < 0.15:
            self.delete_pod(rng.choice(pods))
        for pod in pods:
            if (pod.get("status") or {}).get("phase") == "Succeeded" and rng.random() < 0.1:
                self.delete_pod(pod)
        claims = list(world.objects("resource.k8s.io/resourceclaims"))
        if claims and rng.random() < 0.06:
            self.delete_claim(rng.choice(claims))
        gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
        if gated and rng.random() < 0.3:
            pod = rng.choice(gated)
            world.do(
                "PATCH",
                f"{pods_path(pod['metadata']['namespace'])}/{pod['metadata']['name']}",
                {"spec": {"schedulingGates": []}},
                MERGE_PATCH,
            )

    def delete_pod(self, pod: Object) -> None:
        """Delete a pod, at times at once; at times another one takes its name."""
        meta = pod["metadata"]
        path = f"{pods_path(meta['namespace'])}/{meta['name']}"
        body = {"gracePeriodSeconds": 0} if self.rng.random() < 0.3 else None
        self.world.do("DELETE", path, body)
        if self.rng.random() < 0.3:
            self.world.loop.later(self.rng.random(), lambda: self._replace(pod))

    def _replace(self, pod: Object) -> None:
        meta = pod["metadata"]
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        body = {"metadata": {"name": meta["name"], "namespace": meta["namespace"]}, "spec": spec}
        self.world.do("POST", pods_path(meta["namespace"]), body)

    def delete_claim(self, claim: Object) -> None:
        """Delete a claim; at times another one takes its name."""
        meta = claim["metadata"]
        self.world.do("DELETE", f"{claims_path(meta['namespace'])}/{meta['name']}")
        if self.rng.random() < 0.5:
            spec = claim["spec"]
            body = {
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
                "spec": spec,
            }
            self.world.loop.later(
                self.rng.uniform(0.01, 3.0),
                lambda: self.world.do("POST", claims_path(meta["namespace"]), body),
            )
