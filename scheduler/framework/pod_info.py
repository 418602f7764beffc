"""A pod as predicates and scorers see it: its spec, without what none of them reads, and what was found out about it.

Answers of nodes are shared by all pods whose `PodInfo` is the same. So a predicate cannot read anything that is not
compared: a field on the list `CLOSED` has its default here, whatever the pod says, and what depends on the cluster
comes as a `Fact`, whose value is compared too. A new field of the model is compared until somebody closes it.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from allocator.features import Features
from allocator.model.meta import ObjectMeta
from scheduler.model import (
    ClusterSnapshot,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)

G = TypeVar("G")
G_co = TypeVar("G_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CLOSED: Final[Mapping[type, Mapping[str, Any]]] = {
    # Names, labels and annotations: a Job or StatefulSet writes its own into each of its pods (completion index,
    # ordinal, hash of the template). What selectors of the cluster make of labels comes as a fact.
    Pod: {"metadata": ObjectMeta(), "status": PodStatus()},
    # Claims are compared by their contents. Admission adds to each pod a volume with a name of its own.
    PodSpec: {"resource_claims": None, "volumes": None},
    Container: {"image": "", "volume_mounts": None},
    ResourceRequirements: {"claims": None},
}
"""Type -> the fields that no predicate and no scorer reads, with what they see instead."""

_POD, _SPEC = CLOSED[Pod], CLOSED[PodSpec]
_CONTAINER, _RESOURCES = CLOSED[Container], CLOSED[ResourceRequirements]


class Index(Protocol[G_co]):
    """Remembers what a fact needs of the whole cluster, and looks only at what changed since it was last asked."""

    def of(self, snapshot: ClusterSnapshot) -> G_co:
        """The same as `Fact.gather`."""
        ...


class Fact(Generic[G, T_co]):
    """What the rest of the cluster means for a pod: looked up once an attempt, before any node.

    Attributes:
        name: unique among all facts.
        gather: all that is needed of a snapshot, for any pod.
        look_up: what that means for one pod. The value is compared: it consists of plain data.
        index: makes something faster than `gather`, for processes that decide again and again; None: not needed.
        gather_in_steps: the same as `gather`, in steps of about half a millisecond; None: it takes no longer.
    """

    __slots__ = ("gather", "gather_in_steps", "index", "look_up", "name")

    def __init__(
        self,
        name: str,
        *,
        gather: Callable[[ClusterSnapshot], G],
        look_up: Callable[[Pod, G], T_co],
        index: Callable[[], Index[G]] | None = None,
        gather_in_steps: Callable[[ClusterSnapshot], Generator[None, None, G]] | None = None,
    ) -> None:
        self.name = name
        self.gather = gather
        self.look_up = look_up
        self.index = index
        self.gather_in_steps = gather_in_steps


class Derived(Generic[T_co]):
    """What follows from a `PodInfo` alone: worked out when somebody first reads it, then kept.

    Attributes:
        derive: works it out.
    """

    __slots__ = ("derive",)

    def __init__(self, derive: Callable[["PodInfo"], T_co]) -> None:
        self.derive = derive


class PodInfo:
    """One pod, or all pods that are the same but for what is closed. Immutable.

    Attributes:
        pod: without what is closed.
        spec: of the same.
        features: gates of the cluster.
        facts: name of a fact -> its value.
    """

    __slots__ = ("_derived", "facts", "features", "pod", "spec")

    def __init__(
        self, pod: Pod, features: Features, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Leave out what is closed.

        Args:
            pod: as it is.
            features: gates of the cluster.
            facts: name of a fact -> its value.
        """
        self.spec = _opened(pod.spec)
        self.pod = msgspec.structs.replace(pod, spec=self.spec, **_POD)
        self.features = features
        self.facts = facts or {}
        self._derived: dict[Derived[Any], Any] = {}

    def fact(self, fact: Fact[Any, T]) -> T:
        """The value of a fact.

        Raises:
            KeyError: no plugin declares it.
        """
        value: T = self.facts[fact.name]
        return value

    def read(self, key: Derived[T]) -> T:
        """What follows from the pod."""
        try:
            value: T = self._derived[key]
        except KeyError:
            value = self._derived[key] = key.derive(self)
        return value


def _opened(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=spec.containers and tuple(map(_container, spec.containers)),
        init_containers=spec.init_containers and tuple(map(_container, spec.init_containers)),
        **_SPEC,
    )


def _container(container: Container) -> Container:
    resources = container.resources
    if resources.claims is not None:
        resources = msgspec.structs.replace(resources, **_RESOURCES)
    return msgspec.structs.replace(container, resources=resources, **_CONTAINER)
