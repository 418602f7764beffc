"""Which lists of API objects are sets or keyed by a member: what strategic merge and server-side apply must know.

By member name, since the names do not clash among the kinds served here; everything that is not named is replaced as
a whole. Source: patchMergeKey, listType and listMapKey in k8s.io/api core/v1, resource/v1, batch/v1 and meta/v1.
"""

from collections.abc import Mapping

# Member name -> member of the items that identifies one, for strategic merge patch.
MERGE_KEYS: Mapping[str, str] = {
    "conditions": "type",
    "reservedFor": "uid",
    "ownerReferences": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "addresses": "type",
    "podIPs": "ip",
}

PRIMITIVE_SETS = frozenset({"finalizers"})

# Member name -> members that identify an item, for server-side apply.
APPLY_KEYS: Mapping[str, tuple[str, ...]] = {
    **{name: (key,) for name, key in MERGE_KEYS.items()},
    "ports": ("containerPort", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "claims": ("name",),
}
