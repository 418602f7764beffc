"""The configuration file: `dra-scheduler.dev/v1alpha1 SchedulerConfiguration`, the fields of `Settings` in camelCase.

Strict: an unknown field, a wrong type or a senseless value stops the start, and the message names file and field.
Flags win over the file.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import yaml

from allocator.features import FeatureGateError, Features
from scheduler.api.walk import child, json_type
from scheduler.cli.errors import CliError
from scheduler.config import Settings
from scheduler.model import DOMAIN

API_VERSION: Final = f"{DOMAIN}/v1alpha1"
KIND: Final = "SchedulerConfiguration"
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "loggingFormat": ("text", "json"),
    "allocation.onNodeError": ("reject", "abort"),
    "extender.profile": ("safe", "fast"),
}
_AT_LEAST_ZERO: Final = frozenset({"verbosity", "extender.filterShortlist"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PORTS: Final = range(65536)


class SettingsError(ValueError):
    """A setting cannot be used.

    Attributes:
        path: of the field, in the file's spelling; empty for the whole.
        problem: what is wrong.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def camel(name: str) -> str:
    """`tls_cert` → `tlsCert`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def load_settings(file: str, overrides: Mapping[str, Any]) -> Settings:
    """Read the file, if there is one, put the flags over it, and check the result.

    Args:
        file: path, or empty.
        overrides: path in the file's spelling (`tls.certFile`) → value from a flag.

    Raises:
        CliError: the file or a flag cannot be used.
    """
    tree = _read(file) if file else {}
    for path, value in overrides.items():
        _put(tree, path.split("."), value)
    try:
        settings = _build(Settings, tree, "")
        check_settings(settings)
    except SettingsError as error:
        raise CliError(f"{file}: {error}" if file else str(error)) from None
    if not isinstance(settings, Settings):
        raise AssertionError(f"settings became {type(settings).__name__}")  # noqa: TRY004
    return settings


def _read(file: str) -> dict[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CliError(f"{file}: {reason}") from None
    try:
        tree = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise CliError(f"{file}: it is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise CliError(f"{file}: expected an object, got {json_type(tree)}")
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = tree.pop(field, None)
        if found != wanted:
            raise CliError(f"{file}: {field}: must be {wanted}, is {found!r}")
    return tree


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        inner = tree.setdefault(step, {})
        if not isinstance(inner, dict):
            return  # the file is wrong there; building says so
        tree = inner
    tree[path[-1]] = value


def _build(type_: type, value: Any, path: str) -> Any:
    """Make a settings dataclass from plain data, strictly."""
    if not isinstance(value, dict):
        raise SettingsError(path, f"expected an object, got {json_type(value)}")
    hints = get_type_hints(type_)
    names = {camel(field.name): field.name for field in dataclasses.fields(type_)}
    values = {}
    for key, item in value.items():
        where = child(path, str(key))
        if key not in names:
            raise SettingsError(where, f"unknown field; known: {', '.join(names)}")
        values[names[key]] = _convert(hints[names[key]], item, where)
    return type_(**values)


def _convert(type_: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        return _build(type_, value, path)
    if type_ is float and type(value) in (int, float):
        return float(value)
    if type_ == dict[str, bool]:
        if not isinstance(value, dict):
            raise SettingsError(path, f"expected an object, got {json_type(value)}")
        for name, on in value.items():
            if not isinstance(on, bool):
                raise SettingsError(child(path, str(name)), "expected true or false")
        return {str(name): on for name, on in value.items()}
    wanted = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}
    if type(value) is not type_:
        raise SettingsError(path, f"expected {wanted[type_]}, got {json_type(value)}")
    return value


def check_settings(settings: Settings) -> None:
    """Check that the values make sense together.

    Raises:
        SettingsError: the first that does not.
    """
    _check_values(settings, "")
    _check_addresses(settings)
    tls = settings.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        raise SettingsError("tls", "certFile and keyFile must be set together")
    if tls.client_ca_file and not tls.cert_file:
        raise SettingsError("tls.clientCaFile", "needs certFile and keyFile")
    election = settings.leader_election
    if election.follow_lease:
        if election.enabled:
            raise SettingsError("leaderElection.followLease", "excludes leaderElection.enabled")
        if not re.fullmatch(r"[^/]+/[^/]+", election.follow_lease):
            raise SettingsError("leaderElection.followLease", "must be NAMESPACE/NAME")
    if (
        not election.retry_period_seconds
        < election.renew_deadline_seconds
        < election.lease_duration_seconds
    ):
        raise SettingsError(
            "leaderElection",
            "must have retryPeriodSeconds < renewDeadlineSeconds < leaseDurationSeconds",
        )
    _check_allocation(settings)


def _check_values(settings: Any, path: str) -> None:
    for field in dataclasses.fields(settings):
        value, where = getattr(settings, field.name), child(path, camel(field.name))
        if dataclasses.is_dataclass(value):
            _check_values(value, where)
        elif where in _CHOICES and value not in _CHOICES[where]:
            raise SettingsError(where, f"must be {' or '.join(_CHOICES[where])}, is {value!r}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            least = 0 if where in _AT_LEAST_ZERO else None
            if value < 0 or (least is None and value == 0):
                raise SettingsError(
                    where, "must be greater than 0" if least is None else "must not be negative"
                )


def _check_addresses(settings: Settings) -> None:
    for path, address in (
        ("bindAddress", settings.bind_address),
        ("healthAddress", settings.health_address),
    ):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) not in _PORTS:
            raise SettingsError(path, f"must be HOST:PORT, is {address!r}")
    host = settings.bind_address.rpartition(":")[0]
    if not settings.tls.cert_file and host not in _LOOPBACK:
        raise SettingsError(
            "bindAddress",
            f"{host} is not loopback: webhooks without TLS are served on loopback only",
        )


def _check_allocation(settings: Settings) -> None:
    allocation = settings.allocation
    if allocation.kubernetes_version or allocation.feature_gates:
        try:
            Features.for_version(allocation.kubernetes_version or "1.37", allocation.feature_gates)
        except FeatureGateError as error:
            raise SettingsError("allocation", str(error)) from None
    from allocator.policies import POLICIES

    if allocation.policy not in POLICIES:
        raise SettingsError(
            "allocation.policy",
            f"unknown policy {allocation.policy!r}; known: {', '.join(POLICIES)}",
        )


def settings_tree(settings: Settings) -> dict[str, Any]:
    """Settings as the file would have them, every default written out."""

    def tree(value: Any) -> Any:
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        return {
            camel(field.name): tree(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }

    return {"apiVersion": API_VERSION, "kind": KIND, **tree(settings)}


def write_settings(settings: Settings, file: str) -> None:
    """Write a configuration file with all defaults; `-` writes to standard output.

    Raises:
        CliError: the file cannot be written.
    """
    text = yaml.dump(settings_tree(settings), Dumper=yaml.CSafeDumper, sort_keys=False)
    if file == "-":
        from scheduler.cli.render import write

        write(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from None
