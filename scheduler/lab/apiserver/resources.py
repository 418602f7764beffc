"""Which resources are served, under which versions, and how a path names one of their objects."""

from dataclasses import dataclass

from scheduler.lab.apiserver import messages
from scheduler.lab.apiserver.errors import unknown_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource; objects of all its versions are one set of objects.

    Attributes:
        group: API group; empty for core.
        versions: served versions, preferred one first.
        plural: name in paths.
        kind: name in objects.
        namespaced: whether objects live in a namespace.
        subresources: `status`, `binding`, …
        has_generation: whether `metadata.generation` counts changes of the spec.
        returns_deleted: DELETE answers with the object, not with a Status.
        create_on_update: PUT of an unknown name creates.
        unconditional_update: PUT without a resourceVersion is allowed.
        fields: what a field selector may name besides metadata.name and metadata.namespace.
        stored_as: `group/plural` of the resource that holds the objects, when it is another one.
        short_names: for kubectl.
        protobuf: message type of an object of the preferred version, if objects are served in that format too.
    """

    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    plural: str
    kind: str
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    has_generation: bool = False
    returns_deleted: bool = False
    create_on_update: bool = False
    unconditional_update: bool = True
    fields: frozenset[str] = frozenset()
    stored_as: str = ""
    short_names: tuple[str, ...] = ()
    protobuf: str = ""

    @property
    def key(self) -> str:
        """`group/plural`."""
        return f"{self.group}/{self.plural}"

    @property
    def collection(self) -> str:
        """Key of the set of objects in the store."""
        return self.stored_as or self.key

    @property
    def singular(self) -> str:
        """Lower-case kind."""
        return self.kind.lower()

    def api_version(self, version: str) -> str:
        """`apiVersion` of objects in this version."""
        return f"{self.group}/{version}" if self.group else version


_STATUS = frozenset({"status"})
_RESOURCE = "resource.k8s.io"
_RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")
_EVENT_FIELDS = frozenset(
    {
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    }
)

NAMESPACES = Resource(
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    subresources=frozenset({"status", "finalize"}),
    returns_deleted=True,
    fields=frozenset({"status.phase"}),
    short_names=("ns",),
)
NODES = Resource(
    plural="nodes",
    kind="Node",
    namespaced=False,
    subresources=_STATUS,
    fields=frozenset({"spec.unschedulable"}),
    short_names=("no",),
)
PODS = Resource(
    plural="pods",
    kind="Pod",
    subresources=frozenset({"status", "binding"}),
    has_generation=True,
    returns_deleted=True,
    fields=frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    short_names=("po",),
)
EVENTS = Resource(
    plural="events",
    kind="Event",
    create_on_update=True,
    fields=_EVENT_FIELDS,
    short_names=("ev",),
)
GROUP_EVENTS = Resource(
    group="events.k8s.io",
    plural="events",
    kind="Event",
    create_on_update=True,
    fields=_EVENT_FIELDS,
    stored_as=EVENTS.collection,
    short_names=("ev",),
)
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",))
LEASES = Resource(
    group="coordination.k8s.io",
    plural="leases",
    kind="Lease",
    create_on_update=True,
    unconditional_update=False,
)
CLAIMS = Resource(
    group=_RESOURCE,
    versions=_RESOURCE_VERSIONS,
    plural="resourceclaims",
    kind="ResourceClaim",
    subresources=_STATUS,
    returns_deleted=True,
    protobuf=messages.CLAIM,
)
TEMPLATES = Resource(
    group=_RESOURCE,
    versions=_RESOURCE_VERSIONS,
    plural="resourceclaimtemplates",
    kind="ResourceClaimTemplate",
    returns_deleted=True,
)
DEVICE_CLASSES = Resource(
    group=_RESOURCE,
    versions=_RESOURCE_VERSIONS,
    plural="deviceclasses",
    kind="DeviceClass",
    namespaced=False,
    has_generation=True,
    returns_deleted=True,
)
SLICES = Resource(
    group=_RESOURCE,
    versions=_RESOURCE_VERSIONS,
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    has_generation=True,
    returns_deleted=True,
    fields=frozenset({"spec.nodeName", "spec.driver"}),
)
TAINT_RULES = Resource(
    group=_RESOURCE,
    versions=("v1", "v1beta2"),
    plural="devicetaintrules",
    kind="DeviceTaintRule",
    namespaced=False,
    subresources=_STATUS,
    has_generation=True,
    returns_deleted=True,
)
JOBS = Resource(
    group="batch",
    plural="jobs",
    kind="Job",
    subresources=_STATUS,
    has_generation=True,
    fields=frozenset({"status.successful"}),
)
DEPLOYMENTS = Resource(
    group="apps",
    plural="deployments",
    kind="Deployment",
    subresources=_STATUS,
    has_generation=True,
    short_names=("deploy",),
)
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    has_generation=True,
    short_names=("pc",),
)

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    EVENTS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    GROUP_EVENTS,
    CLAIMS,
    TEMPLATES,
    DEVICE_CLASSES,
    SLICES,
    TAINT_RULES,
    PRIORITY_CLASSES,
)

_BY_PATH = {
    (resource.group, version, resource.plural): resource
    for resource in RESOURCES
    for version in resource.versions
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names.

    Attributes:
        resource: which resource.
        version: in which version the client speaks.
        namespace: empty for cluster-scoped objects, or all namespaces.
        name: empty for a whole collection.
        subresource: empty for the object itself.
    """

    resource: Resource
    version: str
    namespace: str
    name: str
    subresource: str

    @property
    def api_version(self) -> str:
        """`apiVersion` that objects have on this path."""
        return self.resource.api_version(self.version)

    @property
    def message(self) -> str:
        """Message type of its objects in protobuf; empty if they are not served in that format."""
        return self.resource.protobuf if self.version == self.resource.versions[0] else ""


def parse_path(path: str) -> Target:
    """Read `/api/v1/…` or `/apis/GROUP/VERSION/…` down to an object or collection.

    Raises:
        StatusError: 404, when nothing is served there.
    """
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _parse_rest("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _parse_rest(parts[1], parts[2], parts[3:])
    raise unknown_path()


def _parse_rest(group: str, version: str, parts: list[str]) -> Target:
    namespace = ""
    # `namespaces/x/y` is inside namespace x, unless y is a subresource of the namespace itself.
    if len(parts) >= 3 and parts[0] == "namespaces" and parts[2] not in NAMESPACES.subresources:
        namespace, parts = parts[1], parts[2:]
    resource = _BY_PATH.get((group, version, parts[0]))
    if resource is None or len(parts) > 3 or (bool(namespace) and not resource.namespaced):
        raise unknown_path()
    name, subresource = (*parts[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise unknown_path()
    if name and resource.namespaced and not namespace:
        raise unknown_path()
    return Target(resource, version, namespace, name, subresource)
