"""Least privilege, proved by the API server's audit log. Runs last: it judges the whole session."""

from __future__ import annotations

import pytest

from e2e.harness import manifests
from e2e.harness.cluster import Cluster
from e2e.harness.controlplane import SERVICE_NAMESPACE, SERVICE_USER
from e2e.harness.mode import Mode
from e2e.harness.target import DEPLOY, Target

# What docs/design/security.md#rbac lists; the sentinel claim and the leases are in our own namespace only.
ALLOWED = {
    ("update", "resourceclaims"),
    ("patch", "resourceclaims"),
    ("update", "resourceclaims/status"),
    ("create", "pods/binding"),
    ("patch", "pods/status"),
    ("create", "events"),
    ("patch", "events"),
    ("create", "leases"),
    ("update", "leases"),
    ("patch", "pods"),
}
READS = {"get", "list", "watch"}
# Nothing is written to it: whoever changes an allocation has to have it.
CHECKED_ONLY = {("update", "resourceclaims/binding")}
OWN_NAMESPACE_ONLY = {
    ("create", "leases"),
    ("update", "leases"),
    ("patch", "pods"),
}


def test_what_is_granted_is_what_is_used() -> None:
    granted = {
        (verb, resource)
        for role in manifests.kustomization(DEPLOY / "base")
        if role["kind"] in {"ClusterRole", "Role"}
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in READS
    }

    assert granted == ALLOWED | CHECKED_ONLY


@pytest.mark.own_plane
async def test_nothing_we_asked_for_was_forbidden(cluster: Cluster, target: Target) -> None:
    refused = {
        (request.verb, request.uri.split("?")[0], request.agent)
        for request in target.audit.forbidden(user=SERVICE_USER)
    }

    assert refused == set()


@pytest.mark.own_plane
async def test_we_write_nothing_beyond_the_list(
    cluster: Cluster, target: Target, mode: Mode
) -> None:
    writes = {
        (request.verb, request.resource, request.namespace)
        for request in target.audit.requests(user=SERVICE_USER)
        if request.writes and not request.agent.startswith("kube-scheduler")
    }

    assert {(verb, resource) for verb, resource, _ in writes} <= ALLOWED
    assert {
        namespace for verb, resource, namespace in writes if (verb, resource) in OWN_NAMESPACE_ONLY
    } <= {SERVICE_NAMESPACE}
