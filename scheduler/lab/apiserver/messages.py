"""The fields of a ResourceClaim and of all that is in it, as their generated.proto number them (1.37).

One line a message: `number name type`, with `*` behind the type for a list, `%` for a map from text, `^` for a message
whose members stand in the outer one in JSON. Types are `text`, `int`, `number` (an int that is absent when it is zero), `bool`, `time`, `quantity`, `opaque`
(RawExtension), `fields` (FieldsV1), or another message.
Source: k8s.io/api resource/v1 and core/v1, apimachinery meta/v1.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

CLAIM: Final = "ResourceClaim"
TYPE_META: Final = "TypeMeta"

_MESSAGES: Final = {
    TYPE_META: "1 apiVersion text, 2 kind text",
    CLAIM: "1 metadata ObjectMeta, 2 spec Spec, 3 status Status",
    "ObjectMeta": "1 name text, 2 generateName text, 3 namespace text, 5 uid text, 6 resourceVersion text, "
    "7 generation number, 8 creationTimestamp time, 9 deletionTimestamp time, 10 deletionGracePeriodSeconds int, "
    "11 labels text%, 12 annotations text%, 13 ownerReferences OwnerReference*, 14 finalizers text*, "
    "17 managedFields ManagedFields*",
    "OwnerReference": "1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller bool, "
    "7 blockOwnerDeletion bool",
    "ManagedFields": "1 manager text, 2 operation text, 3 apiVersion text, 4 time time, 6 fieldsType text, "
    "7 fieldsV1 fields, 8 subresource text",
    "Spec": "1 devices Devices",
    "Devices": "1 requests Request*, 2 constraints Constraint*, 3 config ClaimConfig*",
    "Request": "1 name text, 2 exactly Exactly, 3 firstAvailable SubRequest*",
    "Exactly": "1 deviceClassName text, 2 selectors Selector*, 3 allocationMode text, 4 count number, 5 adminAccess bool, "
    "6 tolerations Toleration*, 7 capacity Capacity, 8 derivedAttributes Derived*",
    "SubRequest": "1 name text, 2 deviceClassName text, 3 selectors Selector*, 4 allocationMode text, 5 count number, "
    "6 tolerations Toleration*, 7 capacity Capacity, 8 derivedAttributes Derived*",
    "Selector": "1 cel Cel",
    "Cel": "1 expression text",
    "Toleration": "1 key text, 2 operator text, 3 value text, 4 effect text, 5 tolerationSeconds int",
    "Capacity": "1 requests quantity%",
    "Derived": "1 name text, 2 expression text",
    "Constraint": "1 requests text*, 2 matchAttribute text, 3 distinctAttribute text",
    "ClaimConfig": "1 requests text*, 2 deviceConfiguration Config^",
    "Config": "1 opaque Parameters",
    "Parameters": "1 driver text, 2 parameters opaque",
    "Status": "1 allocation Allocation, 2 reservedFor Consumer*, 4 devices DeviceStatus*",
    "Allocation": "1 devices AllocatedDevices, 3 nodeSelector NodeSelector, 5 allocationTimestamp time",
    "AllocatedDevices": "1 results Result*, 2 config AllocationConfig*",
    "Result": "1 request text, 2 driver text, 3 pool text, 4 device text, 5 adminAccess bool, 6 tolerations Toleration*, "
    "7 bindingConditions text*, 8 bindingFailureConditions text*, 9 shareID text, 10 consumedCapacity quantity%, "
    "11 skipNodeOperations text*",
    "AllocationConfig": "1 source text, 2 requests text*, 3 deviceConfiguration Config^",
    "NodeSelector": "1 nodeSelectorTerms Term*",
    "Term": "1 matchExpressions Requirement*, 2 matchFields Requirement*",
    "Requirement": "1 key text, 2 operator text, 3 values text*",
    "Consumer": "1 apiGroup text, 3 resource text, 4 name text, 5 uid text",
    "DeviceStatus": "1 driver text, 2 pool text, 3 device text, 7 shareID text, 4 conditions Condition*, 5 data opaque, "
    "6 networkData Network",
    "Condition": "1 type text, 2 status text, 3 observedGeneration number, 4 lastTransitionTime time, 5 reason text, "
    "6 message text",
    "Network": "1 interfaceName text, 2 ips text*, 3 hardwareAddress text",
}


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: on the wire.
        name: in JSON.
        type: of the value, of each item, or of each value of a map.
        is_list: there may be several.
        is_map: from text.
        is_inline: its members stand in the outer message in JSON.
    """

    number: int
    name: str
    type: str
    is_list: bool
    is_map: bool
    is_inline: bool


def _fields(line: str) -> Sequence[Field]:
    fields = []
    for entry in line.split(", "):
        number, name, type_ = entry.split(" ")
        bare = type_.rstrip("*%^")
        fields.append(
            Field(
                int(number),
                name,
                bare,
                type_.endswith("*"),
                type_.endswith("%"),
                type_.endswith("^"),
            )
        )
    return fields


FIELDS: Final = {message: _fields(line) for message, line in _MESSAGES.items()}
