"""What deploy/ holds, as far as it can be judged without a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.app import run
from scheduler.cli.config_file import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"
OVERLAY = DEPLOY / "overlays" / "extender"


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


def only(path: Path, kind: str) -> dict[str, Any]:
    [found] = [each for each in documents(path) if each["kind"] == kind]
    return found


@pytest.mark.parametrize("folder", [BASE, OVERLAY], ids=["base", "extender"])
def test_the_configuration_is_one_that_the_program_reads(folder: Path, tmp_path: Path) -> None:
    text = only(folder / "config.yaml", "ConfigMap")["data"]["config.yaml"]
    file = tmp_path / "config.yaml"
    file.write_text(text)

    settings = load_settings(str(file), {})
    election = settings.leader_election
    assert election.enabled != bool(election.follow_lease)


def test_kube_scheduler_is_configured_as_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = only(OVERLAY / "kube-scheduler-config.yaml", "ConfigMap")["data"]["config.yaml"]

    arguments = ["scheduler-config", "--kubernetes-version", "1.37", "--profile", "safe"]
    assert run("dra-scheduler", arguments) == 0
    assert text == capsys.readouterr().out


def test_the_extender_follows_the_lease_that_kube_scheduler_holds(tmp_path: Path) -> None:
    config = only(OVERLAY / "kube-scheduler-config.yaml", "ConfigMap")["data"]["config.yaml"]
    election = yaml.safe_load(config)["leaderElection"]
    file = tmp_path / "config.yaml"
    file.write_text(only(OVERLAY / "config.yaml", "ConfigMap")["data"]["config.yaml"])

    followed = load_settings(str(file), {}).leader_election.follow_lease
    assert followed == f"{election['resourceNamespace']}/{election['resourceName']}"


def test_permissions_are_these_and_no_others() -> None:
    rules = only(BASE / "rbac.yaml", "ClusterRole")["rules"]
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {"get", "list", "watch"}
    dra = "resource.k8s.io"
    kinds = ("resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules")
    assert granted == {
        *((("", kind, verb)) for kind in ("nodes", "pods") for verb in read),
        *((dra, kind, verb) for kind in kinds for verb in read),
        *((dra, f"resourceclaims{sub}", "update") for sub in ("", "/status", "/binding")),
        (dra, "resourceclaims", "patch"),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        *(
            (group, "events", verb)
            for group in ("", "events.k8s.io")
            for verb in ("create", "patch")
        ),
    }


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in (BASE / "deployment.yaml", OVERLAY / "deployment.yaml"):
        spec = only(path, "Deployment")["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if "name" in container:
                yield f"{path.parent.name}/{container['name']}", container


@pytest.mark.parametrize(("name", "container"), list(containers()))
def test_containers_can_do_as_little_as_possible(name: str, container: dict[str, Any]) -> None:
    context = container["securityContext"]

    assert context["readOnlyRootFilesystem"] is True, name
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "cpu" not in container["resources"].get("limits", {})
    assert "memory" in container["resources"]["limits"]


def test_the_pod_is_not_root_and_outlives_its_binds() -> None:
    spec = only(BASE / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] >= 10_000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["terminationGracePeriodSeconds"] >= 40


def test_the_sidecar_starts_before_kube_scheduler_and_ends_after_it() -> None:
    spec = only(OVERLAY / "deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    [extender] = spec["initContainers"]

    assert extender["restartPolicy"] == "Always"
    assert "startupProbe" in extender


def test_the_image_installs_only_what_is_pinned_by_hash_and_runs_as_nobody() -> None:
    text = (ROOT / "Dockerfile").read_text()

    assert "--require-hashes --only-binary :all:" in text
    assert "USER 10001:10001" in text
    pins = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    assert pins
    assert all(line.endswith("\\") for line in pins)  # a hash follows


def test_files_of_the_image_are_not_ignored() -> None:
    kept = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        "allocator",
        "scheduler",
        "pyproject.toml",
        "requirements.lock",
        "README.md",
        "LICENSE",
    }
    assert copied <= kept
