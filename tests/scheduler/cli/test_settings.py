"""`scheduler-config`, the configuration file, and the flags of the services."""

from typing import Any

import pytest
import yaml

from scheduler.cli import serve
from scheduler.config import Settings

HEAD = "apiVersion: dra-scheduler.dev/v1alpha1\nkind: SchedulerConfiguration\n"
POINTS = {
    "safe": ["reserve", "preBind"],
    "fast": ["preFilter", "filter", "postFilter", "score", "reserve", "preBind"],
}


def printed(command, *arguments: str) -> dict[str, Any]:
    done = command("scheduler-config", *arguments)
    assert done.code == 0
    return dict(yaml.safe_load(done.out))


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("profile", ["safe", "fast"])
def test_what_is_switched_off_in_each_profile_and_version(command, profile, version):
    config = printed(command, "--kubernetes-version", version, "--profile", profile)
    (only,) = config["profiles"]
    newest = ["podGroupPostFilter"] if (profile, version) == ("fast", "1.37") else []
    assert list(only["plugins"]) == POINTS[profile] + newest
    assert all(
        value == {"disabled": [{"name": "DynamicResources"}]} for value in only["plugins"].values()
    )


def test_safe_is_the_default_and_leaves_filtering_to_kube_scheduler(command):
    config = printed(command)
    assert config == printed(command, "--profile", "safe", "--kubernetes-version", "1.37")
    assert "percentageOfNodesToScore" not in config
    (extender,) = config["extenders"]
    assert "preemptVerb" not in extender
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True


def test_fast_sees_all_nodes_and_is_asked_before_evicting(command):
    config = printed(command, "--profile", "fast")
    assert config["percentageOfNodesToScore"] == 100
    assert config["podMaxBackoffSeconds"] == 20
    assert config["clientConnection"] == {"qps": 5000, "burst": 5000}
    assert config["extenders"][0]["preemptVerb"] == "preempt"
    assert (
        command("scheduler-config", "--profile", "fast", "--flags").out
        == "--feature-gates=SchedulerPopFromBackoffQ=false\n"
    )
    assert command("scheduler-config", "--flags").out == ""


def test_https_needs_a_ca(command):
    done = command("scheduler-config", "--url-prefix", "https://x:1")
    assert (done.code, done.err) == (
        2,
        "error: --tls-ca-file is required with https: kube-scheduler would verify nothing\n",
    )
    files = ["--tls-ca-file", "/ca", "--tls-cert-file", "/c", "--tls-key-file", "/k"]
    (extender,) = printed(command, "--url-prefix", "https://x:1", *files)["extenders"]
    assert extender["enableHTTPS"] is True
    assert extender["tlsConfig"] == {"caFile": "/ca", "certFile": "/c", "keyFile": "/k"}
    assert command("scheduler-config", *files).code == 2


def test_names_can_be_chosen(command):
    config = printed(command, "--scheduler-name", "mine", "--lease", "ns/l", "--kubeconfig", "/k")
    assert config["profiles"][0]["schedulerName"] == "mine"
    assert config["leaderElection"] == {
        "leaderElect": True,
        "resourceNamespace": "ns",
        "resourceName": "l",
    }
    assert config["clientConnection"] == {"kubeconfig": "/k"}
    assert command("scheduler-config", "--lease", "l").code == 2
    assert command("scheduler-config", "--kubernetes-version", "1.30").code == 2


@pytest.fixture
def settings_of(command, monkeypatch):
    """Start a service with arguments and return the settings it would run with."""
    seen: list[Settings] = []

    class Bootstrap:
        @staticmethod
        def run_extender(settings: Settings) -> int:
            seen.append(settings)
            return 0

        @staticmethod
        def run_standalone(settings: Settings) -> int:
            seen.append(settings)
            return 3

    monkeypatch.setattr(serve, "import_module", lambda _name: Bootstrap)

    def start(*arguments: str, name: str = "extender") -> Settings:
        done = command(name, *arguments)
        assert done.code == (0 if name == "extender" else 3), done.err
        return seen[-1]

    return start


def test_without_flags_and_file_the_defaults_apply(settings_of):
    assert settings_of() == settings_of(name="run") == Settings()


def test_flags_reach_the_settings(settings_of):
    settings = settings_of(
        "--kubeconfig=/k",
        "--scheduler-name=s",
        "--bind-address=0.0.0.0:1",
        "--health-address=0.0.0.0:2",
        "--leader-elect=false",
        "--tls-cert-file=/c",
        "--tls-private-key-file=/p",
        "--client-ca-file=/a",
        "-v",
        "-v",
        "--logging-format=json",
        "--profile=fast",
        "--kubernetes-version=1.36",
        "--feature-gates=DRADeviceTaints=false",
    )
    assert (settings.kubeconfig, settings.scheduler_name) == ("/k", "s")
    assert (settings.bind_address, settings.health_address) == ("0.0.0.0:1", "0.0.0.0:2")
    assert settings.leader_election.enabled is False
    assert (settings.tls.cert_file, settings.tls.key_file, settings.tls.client_ca_file) == (
        "/c",
        "/p",
        "/a",
    )
    assert (settings.verbosity, settings.logging_format) == (2, "json")
    assert settings.extender.profile == "fast"
    assert settings.allocation.kubernetes_version == "1.36"
    assert settings.allocation.feature_gates == {"DRADeviceTaints": False}


def test_following_a_lease_switches_the_own_election_off(settings_of):
    settings = settings_of("--follow-lease=ns/name")
    assert (settings.leader_election.enabled, settings.leader_election.follow_lease) == (
        False,
        "ns/name",
    )


def test_a_flag_wins_over_the_file(settings_of, write):
    file = write(
        "c.yaml", HEAD + "schedulerName: file\nloggingFormat: json\nbinding: {budgetSeconds: 5}\n"
    )
    settings = settings_of("--config", file, "--scheduler-name", "flag")
    assert (settings.scheduler_name, settings.logging_format) == ("flag", "json")
    assert settings.binding.budget_seconds == 5.0


@pytest.mark.parametrize(
    ("in_file", "flags", "wanted"),
    [
        ("", [], False),
        ("", ["--enable-profiling"], True),
        ("enableProfiling: true", [], True),
        ("enableProfiling: true", ["--no-enable-profiling"], False),
        ("enableProfiling: false", ["--enable-profiling"], True),
    ],
)
def test_profiling_is_switched_on_by_the_file_or_a_flag(settings_of, write, in_file, flags, wanted):
    file = write("c.yaml", HEAD + in_file)
    assert settings_of("--config", file, *flags).enable_profiling is wanted


def test_the_written_file_reads_back_as_the_same_settings(command, settings_of, tmp_path):
    file = str(tmp_path / "out.yaml")
    assert command("extender", "--scheduler-name=x", "--write-config-to", file).code == 0
    assert settings_of("--config", file) == settings_of("--scheduler-name=x")
    assert command("run", "--write-config-to", "-").out.startswith(HEAD)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected an object, got null"),
        ("a: [", "it is not YAML"),
        ("kind: SchedulerConfiguration", "apiVersion: must be dra-scheduler.dev/v1alpha1, is None"),
        (
            "apiVersion: dra-scheduler.dev/v1alpha1\nkind: X",
            "kind: must be SchedulerConfiguration, is 'X'",
        ),
        (HEAD + "unknown: 1", "unknown: unknown field; known: kubeconfig, "),
        (HEAD + "extender: {profil: safe}", "extender.profil: unknown field; known: profile, "),
        (HEAD + "schedulerName: 3", "schedulerName: expected text, got a whole number"),
        (
            HEAD + "enableProfiling: 1",
            "enableProfiling: expected true or false, got a whole number",
        ),
        (HEAD + "verbosity: x", "verbosity: expected a whole number, got text"),
        (HEAD + "extender: 3", "extender: expected an object, got a whole number"),
        (HEAD + "extender: {profile: slow}", "extender.profile: must be safe or fast, is 'slow'"),
        (HEAD + "bindAddress: '8888'", "bindAddress: must be HOST:PORT, is '8888'"),
        (HEAD + "bindAddress: 127.0.0.1:70000", "bindAddress: must be HOST:PORT"),
        (HEAD + "bindAddress: 0.0.0.0:8888", "bindAddress: 0.0.0.0 is not loopback"),
        (HEAD + "tls: {certFile: x}", "tls: certFile and keyFile must be set together"),
        (HEAD + "tls: {clientCaFile: x}", "tls.clientCaFile: needs certFile and keyFile"),
        (HEAD + "leaderElection: {followLease: a/b}", "leaderElection.followLease: excludes"),
        (
            HEAD + "leaderElection: {enabled: false, followLease: a}",
            "leaderElection.followLease: must be NAMESPACE/NAME",
        ),
        (
            HEAD + "leaderElection: {renewDeadlineSeconds: 20}",
            "leaderElection: must have retryPeriodSeconds <",
        ),
        (HEAD + "allocation: {policy: Best}", "allocation.policy: unknown policy 'Best'"),
        (HEAD + "allocation: {featureGates: {X: true}}", "allocation: unknown feature gate 'X'"),
        (
            HEAD + "allocation: {featureGates: {X: 1}}",
            "allocation.featureGates.X: expected true or false",
        ),
        (HEAD + "binding: {budgetSeconds: 0}", "binding.budgetSeconds: must be greater than 0"),
        (
            HEAD + "extender: {filterShortlist: -1}",
            "extender.filterShortlist: must not be negative",
        ),
    ],
)
def test_a_bad_file_names_file_and_field(command, write, text, problem):
    file = write("c.yaml", text)
    done = command("extender", "--config", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {file}: {problem}"), done.err
    assert len(done.err.splitlines()) == 1


def test_bad_flags_are_named(command):
    assert (
        command("extender", "--leader-elect=maybe").err
        == "error: --leader-elect: 'maybe' is neither true nor false\n"
    )
    assert (
        command("extender", "--config", "/nowhere").err
        == "error: /nowhere: No such file or directory\n"
    )
