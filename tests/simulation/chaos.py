"""Makes things go wrong: on the way of requests and watches, to processes, to the server, to nodes. And mends it all."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from scheduler.client import MERGE_PATCH, PROTOBUF
from scheduler.lab.apiserver.requests import Request
from scheduler.lab.apiserver.server import Response
from scheduler.model import FINALIZER
from tests.simulation.faults import Faults, Verdict
from tests.simulation.network import Answer, WatchConnection, Wire
from tests.simulation.tenants import claims_path, pods_path

if TYPE_CHECKING:
    from tests.simulation.replicas import Replica
    from tests.simulation.world import World

Object = dict[str, Any]
NODES: Final = "/api/v1/nodes"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/dra-scheduler/leases/dra-scheduler"
GARBAGE: Final = (b"<html>502</html>", b'{"type":"ADDED","obj', b"[]", b'{"type":1}')
PHASES: Final = ("before it is sent", "before it is done", "before the answer", "after the answer")


def status_response(code: int, reason: str, message: str, retry_after: int = 0) -> Response:
    """A refusal as the API server words it."""
    body: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    if retry_after:
        body["details"] = {"retryAfterSeconds": retry_after}
    return Response(code, orjson.dumps(body))


_WRITES: Final = (
    ("/binding", "bind"),
    ("/leases", "lease"),
    ("/pods/", "pod status"),
    ("/resourceclaims/", "finalizer"),
)


def write_name(request: Request) -> str:
    """What a write of ours is for; empty: it is no write, or only a message."""
    if request.method == "GET" or "/events" in request.path:
        return ""
    name = next((name for part, name in _WRITES if part in request.path), "")
    if name != "finalizer":
        return name
    if not request.path.endswith("/status"):
        return "claim patch" if request.method == "PATCH" else "finalizer"
    is_reservation = request.content_type == PROTOBUF or b'"reservedFor":[{' in request.body
    return "allocate" if is_reservation else "release"


class ReplicaFaults(Faults):
    """What happens to the requests and watches of one process."""

    def __init__(self, world: "World", replica: "Replica") -> None:
        self.world = world
        self.replica = replica
        self.owner = replica.owner
        self.rng = world.fault_rng
        self._listed: dict[str, deque[bytes]] = {}
        self._skipping: dict[WatchConnection, int] = {}

    # --- requests -----------------------------------------------------------------------------------------------------

    def on_request(self, wire: Wire, request: Request) -> Verdict:
        world = self.world
        if world.is_healed:
            return self._doomed(request) or Verdict()
        if request.method == "GET":
            return self._on_read(request)
        return self._on_write(wire, request)

    def _first(self, possible: Iterable[tuple[str, Callable[[], Verdict]]]) -> Verdict | None:
        """The first of some faults that happens now."""
        for fault, make in possible:
            if self.world.happens(fault):
                verdict = make()
                verdict.fault = fault
                return verdict
        return None

    def _on_read(self, request: Request) -> Verdict:
        is_list = "limit" in request.query
        is_page = is_list and bool(request.query.get("continue"))
        older = self._listed.get(request.path) if request.query.get("resourceVersion") else None
        possible: list[tuple[str, Callable[[], Verdict]]] = [
            ("refused", lambda: Verdict(not_sent=True)),
            ("F4 request lost", lambda: Verdict(loses_request=True)),
            ("F2 throttled", lambda: Verdict(instead=_throttled(1))),
            ("F3 error", lambda: Verdict(instead=self._error())),
        ]
        if not request.flag("watch"):
            possible.append(("F5 broken body", lambda: Verdict(after=_cut)))
        if is_page:
            expired = status_response(410, "Expired", "The provided continue parameter is too old")
            possible.append(("F12 page expired", lambda: Verdict(instead=expired)))
        if is_list and older:
            stale = Response(200, self.rng.choice(older))
            possible.append(("F13 stale list", lambda: Verdict(instead=stale)))
        verdict = self._first(possible)
        if verdict is not None:
            return verdict
        if is_list and not is_page and self.world.plan.rate("F12 page expired"):
            query = {**request.query, "limit": str(self.rng.randint(1, 5))}
            return Verdict(request=replace(request, query=query))
        return Verdict()

    def _on_write(self, wire: Wire, request: Request) -> Verdict:
        world, rng = self.world, self.rng
        name = write_name(request)
        if name and world.happens("F17 crash at a write"):
            return self._crash(name)
        if (doomed := self._doomed(request)) is not None:
            return doomed
        self._meanwhile(name, request)
        if name and world.chaos.is_forbidden(name):
            answer = status_response(403, "Forbidden", f"cannot do this: {name}")
            return Verdict("F33 forbidden", instead=answer)
        patience = rng.choice((0.05, 1.0, 8.0))
        late = rng.uniform(0.1, 4.9)
        possible: list[tuple[str, Callable[[], Verdict]]] = [
            ("refused", lambda: Verdict(not_sent=True)),
            ("F1 conflict", lambda: Verdict(before=lambda: self._touch(request))),
            ("F2 throttled", lambda: Verdict(instead=_throttled(rng.choice((0, 1, 3))))),
            ("F3 error", lambda: Verdict(instead=self._error())),
            ("F4 answer lost", lambda: Verdict(loses_answer=True, patience=patience)),
            (
                "F4 late commit",
                lambda: Verdict(delay_up=late, loses_answer=True, patience=min(patience, late)),
            ),
            ("F4 request lost", lambda: Verdict(loses_request=True, patience=patience)),
            ("F4 resent", lambda: Verdict(after=_resent)),
            ("F5 broken body", lambda: Verdict(after=_cut)),
        ]
        return self._first(possible) or Verdict()

    def _error(self) -> Response:
        code = self.rng.choice((500, 502, 503, 504))
        return status_response(code, "InternalError", "injected")

    def _crash(self, name: str) -> Verdict:
        phase = self.rng.choice(PHASES)
        self.world.note(f"crash: {name}, {phase}")
        return self.crash_in(phase)

    def crash_in(self, phase: str) -> Verdict:
        """Be killed in a phase of the write that is about to be sent."""
        if phase == PHASES[0]:
            self._kill()
            return Verdict("crash", loses_request=True)
        if phase == PHASES[1]:
            self.world.loop.later(0.0005, self._kill)
            return Verdict("crash", loses_request=True)
        return Verdict("crash", crash=phase)

    def _kill(self) -> None:
        if self.replica.owner is self.owner:
            self.replica.crash()

    def _doomed(self, request: Request) -> Verdict | None:
        """A webhook of the cluster that refuses the status of some claims for ever."""
        chaos = self.world.chaos
        if write_name(request) != "allocate":
            return None
        claim = request.path.removesuffix("/status")
        if claim not in chaos.judged:
            chaos.judged[claim] = self.world.happens("refused for good")
        if not chaos.judged[claim]:
            return None
        answer = status_response(403, "Forbidden", 'admission webhook "x.example.com" denied it')
        return Verdict("refused for good", instead=answer)

    def _touch(self, request: Request) -> None:
        """Change the object that is about to be written."""
        path = request.path.removesuffix("/status").removesuffix("/binding")
        if request.method == "POST" and not request.path.endswith("/binding"):
            return
        body = {"metadata": {"annotations": {"touched": str(self.rng.random())}}}
        self.world.do("PATCH", path, body, MERGE_PATCH, who=self.world.tenant)

    def _meanwhile(self, name: str, request: Request) -> None:
        """While a pod is being bound, its claim, itself or its node goes."""
        if name not in ("finalizer", "allocate", "bind"):
            return
        world, rng = self.world, self.rng
        base = request.path.removesuffix("/status").removesuffix("/binding")

        def soon(do: Any) -> None:
            world.loop.later(rng.choice((0.0, 0.001, 0.003, 0.05, 1.0)), do)

        if "/resourceclaims/" in base and world.happens("F23 claim deleted"):
            soon(lambda: world.do("DELETE", base, who=world.tenant))
        if world.happens("F24 pod deleted"):
            pods = [
                pod
                for pod in world.objects("/pods")
                if not pod["spec"].get("nodeName") or f"/{pod['metadata']['name']}" in base
            ]
            if pods:
                pod = rng.choice(pods)
                soon(lambda: world.tenants.delete_pod(pod))
        if world.happens("F25 node gone"):
            soon(world.chaos.lose_node)

    def on_commit(self, wire: Wire, request: Request, answer: Answer, verdict: Verdict) -> None:
        if verdict.crash == PHASES[2]:
            self._kill()
        if (
            isinstance(answer, Response)
            and answer.status == 200
            and "limit" in request.query
            and not request.query.get("continue")
            and verdict.instead is None
            and b'"continue"' not in answer.body[:300]
        ):
            self._listed.setdefault(request.path, deque(maxlen=3)).append(answer.body)

    def on_answer(self, wire: Wire, request: Request, verdict: Verdict) -> None:
        if verdict.crash == PHASES[3]:
            self._kill()

    # --- watches ------------------------------------------------------------------------------------------------------

    def on_line(
        self, connection: WatchConnection, line: bytes, recent: Iterable[bytes]
    ) -> Iterable[bytes]:
        if self.world.is_healed:
            return (line,)
        left = self._skipping.get(connection)
        if left is not None:
            if left <= 1:
                del self._skipping[connection]
                connection.send_error(410, "Expired")
            else:
                self._skipping[connection] = left - 1
            return ()
        return self._disturbed(connection, line, list(recent))

    def end_skipping(self) -> None:
        """What was left out is told by a 410, however late: a server loses no event for good."""
        for connection in tuple(self._skipping):
            connection.send_error(410, "Expired")
        self._skipping.clear()

    def _disturbed(
        self, connection: WatchConnection, line: bytes, known: list[bytes]
    ) -> Iterable[bytes]:
        rng, loop = self.rng, self.world.loop

        def garbage() -> Iterable[bytes]:
            return (rng.choice(GARBAGE), line)

        def cut() -> Iterable[bytes]:
            loop.later(0.0, lambda: connection.fail("the connection was reset"))
            return ()

        def ended() -> Iterable[bytes]:
            loop.later(0.0, connection.end)
            return (line,)

        def silent() -> Iterable[bytes]:
            connection.fall_silent()
            return ()

        def gone() -> Iterable[bytes]:
            connection.send_error(410, rng.choice(("Expired", "Gone")))
            return ()

        def skipped() -> Iterable[bytes]:
            self._skipping[connection] = rng.randint(1, 3)
            return ()

        def repeated() -> Iterable[bytes]:
            return (line, rng.choice(known or [line]))

        for fault, do in (
            ("F5 garbage line", garbage),
            ("F6 watch cut", cut),
            ("F6 watch ended", ended),
            ("F7 watch silent", silent),
            ("F8 gone", gone),
            ("F11 skipped", skipped),
            ("F10 repeated", repeated),
        ):
            if self.world.happens(fault):
                return do()
        return (line,)


def _throttled(after: int) -> Response:
    return status_response(429, "TooManyRequests", "injected", after)


def _cut(answer: Answer) -> Answer:
    if isinstance(answer, Response) and answer.status < 300:
        return Response(answer.status, answer.body[: len(answer.body) // 2])
    return answer


def _resent(answer: Answer) -> Answer:
    if isinstance(answer, Response) and answer.status < 300:
        return status_response(409, "Conflict", "the object has been modified")
    return answer


class Chaos:
    """What goes wrong by the second."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = world.fault_rng
        self.judged: dict[str, bool] = {}  # claim path -> whether a webhook refuses it for ever
        self._forbidden: str = ""
        self._nodes = 0
        self._backup: Any = None

    def is_forbidden(self, write: str) -> bool:
        """Whether we may not do this at the moment."""
        if write == self._forbidden:
            self.world.note("F33 forbidden")
            return True
        return False

    # --- nodes --------------------------------------------------------------------------------------------------------

    def set_up_nodes(self) -> None:
        """The nodes of the start; with `nodes` some come late."""
        for _ in range(self.world.plan.nodes):
            if self.world.plan.rate("nodes") and self.rng.random() < 0.5:
                self.world.loop.later(self.rng.uniform(1.0, 10.0), self.add_node)
            else:
                self.add_node()

    def add_node(self) -> None:
        """Add a node and its devices, in either order."""
        name = f"node-{self._nodes}"
        self._nodes += 1
        body = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "zone": self.rng.choice(("a", "b"))},
            },
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        }
        steps: list[Callable[[], Any]] = [
            partial(self.world.do, "POST", NODES, body),
            partial(self.world.drivers.node_added, name),
        ]
        if self.rng.random() < 0.3:
            steps.reverse()
        first, second = steps
        first()
        if self.rng.random() < 0.3:
            self.world.loop.later(self.rng.random() * 3.0, second)
        else:
            second()

    def _some_node(self) -> Object | None:
        nodes = list(self.world.objects("/nodes"))
        return self.rng.choice(nodes) if nodes else None

    def lose_node(self) -> None:
        """Delete or cordon a node; it comes back."""
        node = self._some_node()
        if node is None:
            return
        name = node["metadata"]["name"]
        if self.rng.random() < 0.5:
            self._cordon(name, on=True)
            self.world.loop.later(self.rng.uniform(1.0, 10.0), lambda: self._cordon(name, on=False))
            return
        self.world.do("DELETE", f"{NODES}/{name}")
        self.world.drivers.node_removed(name)
        self.world.loop.later(self.rng.uniform(1.0, 10.0), self.add_node)

    def _cordon(self, name: str, *, on: bool) -> None:
        body = {"spec": {"unschedulable": True if on else None}}
        self.world.do("PATCH", f"{NODES}/{name}", body, MERGE_PATCH)

    # --- by the second ------------------------------------------------------------------------------------------------

    def second(self) -> None:
        """One second."""
        self._server()
        self._cluster()
        for replica in self.world.replicas:
            if not replica.is_down and replica.starts:
                self._process(replica)

    def _server(self) -> None:
        world, rng, net = self.world, self.rng, self.world.net
        if world.happens("F19 server down"):
            net.is_down = True
            for connection in tuple(net.connections):
                connection.fail("the connection was reset")
            world.loop.later(rng.uniform(0.5, 12.0), self._server_up)
        if world.happens("F20 compaction"):
            world.server.store.compact()
        if world.happens("slow server"):
            net.slowness = rng.choice((0.05, 0.3))
            world.loop.later(rng.uniform(2.0, 10.0), self._quick)
        if world.plan.rate("restored"):
            if self._backup is None or rng.random() < 0.1:
                self._backup = world.back_up()
            elif world.happens("restored"):
                world.restore(self._backup)
                self._backup = None
        if world.happens("F33 forbidden"):
            self._forbidden = rng.choice(("allocate", "finalizer", "bind", "release", "pod status"))
            world.loop.later(rng.uniform(1.0, 8.0), self._permit)
        if world.happens("lease lost"):
            if rng.random() < 0.5:
                world.do("DELETE", LEASE)
            else:
                body = {"spec": {"holderIdentity": "somebody-else"}}
                world.do("PATCH", LEASE, body, MERGE_PATCH)

    def _server_up(self) -> None:
        self.world.net.is_down = False

    def _quick(self) -> None:
        self.world.net.slowness = 0.001

    def _permit(self) -> None:
        self._forbidden = ""

    def _cluster(self) -> None:
        world, rng = self.world, self.rng
        if world.happens("nodes"):
            what = rng.random()
            if what < 0.4:
                self.add_node()
            elif what < 0.7:
                self.lose_node()
            elif (node := self._some_node()) is not None:
                body = {"metadata": {"labels": {"zone": rng.choice(("a", "b", None))}}}
                world.do("PATCH", f"{NODES}/{node['metadata']['name']}", body, MERGE_PATCH)
        if world.happens("F32 foreign"):
            self._foreign()

    def _process(self, replica: "Replica") -> None:
        world, rng, loop = self.world, self.rng, self.world.loop
        owner = replica.owner
        if world.happens("F17 crash"):
            loop.later(rng.random(), replica.crash)
        if world.happens("stop"):
            replica.stop()
        if world.happens("F16 pause"):
            owner.pause()
            loop.later(rng.choice((1.0, 5.0, 12.0, 30.0)), lambda: loop.resume(owner))
        if world.happens("F14 clock"):
            replica.clock.wall_offset = rng.choice((-3600.0, 3600.0, 0.5, -0.5))
        if world.happens("F15 lease blocked"):
            wire = replica.lease_wire
            wire.cut(up=rng.random() < 0.5, down=True)
            loop.later(rng.uniform(3.0, 20.0), lambda: wire.cut(up=False, down=False))
        if world.happens("partition"):
            up, down = rng.choice(((True, True), (True, False), (False, True)))
            wires = (replica.wire, replica.lease_wire)
            for each in wires:
                each.cut(up=up, down=down)
            loop.later(rng.uniform(2.0, 30.0), lambda: self._join(wires))
        if world.happens("F9 lag"):
            wire = replica.wire
            kinds = (
                "Pod",
                "Node",
                "ResourceClaim",
                "ResourceSlice",
                "DeviceClass",
                "DeviceTaintRule",
            )
            for kind in rng.sample(kinds, rng.randint(1, 3)):
                wire.lags[kind] = rng.choice((0.5, 3.0, 15.0))
            loop.later(rng.uniform(2.0, 10.0), wire.lags.clear)
        if world.happens("slow machine"):
            clock = replica.clock
            clock.drag = rng.choice((0.001, 0.01))

            def quick() -> None:
                clock.drag = 0.0

            loop.later(rng.uniform(1.0, 6.0), quick)

    @staticmethod
    def _join(wires: Iterable[Wire]) -> None:
        for wire in wires:
            wire.cut(up=False, down=False)

    # --- another allocator --------------------------------------------------------------------------------------------

    def _foreign(self) -> None:
        """It takes a device that is free as the server has it, and binds a pod of its own a little later."""
        world, rng = self.world, self.rng
        used = {
            (result["driver"], result["pool"], result["device"])
            for claim in world.objects("resource.k8s.io/resourceclaims")
            for result in (
                ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
            ).get("results", ())
        }
        free = [
            (slice_["spec"], device)
            for slice_ in world.objects("resource.k8s.io/resourceslices")
            for device in slice_["spec"].get("devices") or ()
            if (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
            not in used
            and not device.get("allowMultipleAllocations")
            and not device.get("consumesCounters")
            and slice_["spec"].get("nodeName")
        ]
        if not free:
            return
        spec, device = rng.choice(free)
        name = f"foreign-{rng.getrandbits(32):08x}"
        kind = spec["driver"].partition(".")[0]
        claim_spec = {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": kind}}]}
        }
        who = world.foreign
        meta = {"name": name, "namespace": "default", "finalizers": [FINALIZER]}
        status, claim = world.do(
            "POST", claims_path("default"), {"metadata": meta, "spec": claim_spec}, who=who
        )
        pod_body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulerName": "foreign",
                "containers": [{"name": "m", "image": "x"}],
                "resourceClaims": [{"name": "e", "resourceClaimName": name}],
            },
        }
        pod_status, pod = world.do("POST", pods_path("default"), pod_body, who=who)
        if status != 201 or pod_status != 201:
            return
        node = spec["nodeName"]
        claim["status"] = {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r",
                            "driver": spec["driver"],
                            "pool": spec["pool"]["name"],
                            "device": device["name"],
                        }
                    ]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [node]}
                            ]
                        }
                    ]
                },
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
        }
        world.do("PUT", f"{claims_path('default')}/{name}/status", claim, who=who)

        def bind() -> None:
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            world.do("POST", f"{pods_path('default')}/{name}/binding", body, who=who)

        world.loop.later(rng.random(), bind)
        world.loop.later(
            rng.uniform(3.0, 20.0), lambda: world.do("DELETE", f"{pods_path('default')}/{name}")
        )

    # --- the end of it ------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Mend everything that would not mend itself."""
        world = self.world
        self._permit()
        self._quick()
        self._server_up()
        for replica in world.replicas:
            if not replica.starts:
                continue
            replica.clock.drag = 0.0
            if replica.owner.is_paused:
                world.loop.resume(replica.owner)
            for wire in (replica.wire, replica.lease_wire):
                wire.cut(up=False, down=False)
                wire.lags.clear()
                if isinstance(wire.faults, ReplicaFaults):
                    wire.faults.end_skipping()
        for node in list(world.objects("/nodes")):
            if node["spec"].get("unschedulable"):
                self._cordon(node["metadata"]["name"], on=False)
