"""Reads the manifests of a kustomization without kustomize: plain resources and a namespace."""

from __future__ import annotations

from pathlib import Path

import yaml

from e2e.harness.api import Object

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "DeviceClass",
    "FlowSchema",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "Namespace",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}

# What the service needs in the cluster besides its own pods, in an order that can be applied.
PREREQUISITES = {
    "Namespace": 0,
    "ServiceAccount": 1,
    "ClusterRole": 2,
    "Role": 2,
    "ClusterRoleBinding": 3,
    "RoleBinding": 3,
    "FlowSchema": 3,
    "ResourceClaim": 3,
}


def kustomization(folder: Path) -> list[Object]:
    """Returns the objects that a kustomization lists, folders followed, namespace filled in.

    Patches are not applied: what the tests need (RBAC, policies) is not patched.
    """
    config = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: list[Object] = []
    for entry in [*config.get("resources", []), *config.get("components", [])]:
        path = (folder / entry).resolve()
        if path.is_dir():
            found += kustomization(path)
        else:
            found += [d for d in yaml.safe_load_all(path.read_text()) if d]
    namespace = config.get("namespace")
    if namespace:
        for item in found:
            if item["kind"] not in CLUSTER_SCOPED:
                item["metadata"].setdefault("namespace", namespace)
            for subject in item.get("subjects", []):
                if subject["kind"] == "ServiceAccount":
                    subject.setdefault("namespace", namespace)
    return found


def prerequisites(folder: Path) -> list[Object]:
    """Returns the namespace, rights, flow schemas and the sentinel, in an order that applies."""
    chosen = [item for item in kustomization(folder) if item["kind"] in PREREQUISITES]
    return sorted(chosen, key=lambda item: PREREQUISITES[item["kind"]])
