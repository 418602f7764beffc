"""The feature and version table, from the gates themselves."""

from typing import Final

from allocator.features import GATES, LATEST_VERSION, VERSIONS, Features, feature_table

_INTRO: Final = f"""# Features by Kubernetes version

`dra-scheduler` follows Kubernetes {VERSIONS[0]} to {VERSIONS[-1]}. Which optional rules apply is decided by feature gates with upstream's
names and upstream's defaults: those of the version that the API server reports, or of `--kubernetes-version` where there is no
server. `--feature-gates NAME=true|false` and [`allocation.featureGates`](configuration.md#allocation-featuregates) change them. A
scheduler cannot read the gates of other components: where a cluster's API server was started with gates that differ from its
version's defaults, tell this scheduler as well.

## Table

`A` alpha, `B` beta, `GA` generally available; `+` on by default, `-` off by default, `L` locked on; empty: the gate does not
exist in that version.

"""

_OUTRO: Final = """
The gates in the last group ({known}) decide nothing here; they are accepted, so that the list of a
kube-scheduler can be handed over as it is.

## Which allocator of upstream is followed

Kubernetes contains three allocators and picks one by the gates that are on; they differ in corner cases. With the defaults of {latest}
this scheduler follows the *{default}* one; the *experimental* one as soon as one of its alpha features is on; the *stable* one when
consumable capacity and binding conditions are all off. [Design: allocator](../design/allocator.md#three-allocators) has the
differences.

## Node-allocatable resources

A device may stand for cpu or memory of its node (`mapping`), or cost its user some (`overhead`). With the gate
`DRANodeAllocatableResources` on, a node must have room for that in addition to what the pod itself requests; the amounts are written to the pod's
`status.nodeAllocatableResourceClaimStatuses` before the Binding, and count from the moment of the decision. A claim whose device
stands for a resource serves one pod only. Turn the gate on in every component that counts: API server, kubelet, this scheduler, and
the kube-scheduler in front of our extender, which would otherwise hand the same cpu out again. With the gate off the field is
not read, as in-tree. Kubernetes 1.36 had another shape of the field (`nodeAllocatableResourceMappings`); with the gate on, a node
that would give such a device is refused.

## Not supported

Pods that need one of these are refused with the fixed reason [`Unsupported`](reasons.md#unsupported), never bound without it:
required pod affinity and anti-affinity, `DoNotSchedule` topology spread and volumes that need a claim (stand-alone mode only: with the
extender, kube-scheduler checks them), PodGroups, and extended resources that only a DeviceClass provides.
[Predicates](predicates.md) has the list.
"""


def page() -> str:
    """The whole page."""
    known = ", ".join(f"`{gate.name}`" for gate in GATES if not gate.field)
    default = Features.for_version(LATEST_VERSION).implementation
    outro = _OUTRO.format(known=known, latest=LATEST_VERSION, default=default)
    return _INTRO + feature_table() + outro
