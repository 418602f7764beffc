"""Settings: one frozen value, parsed and checked once. Flags win over the file; defaults are here."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSettings:
    """Server certificate and the CA whose clients may call.

    Attributes:
        cert_file: PEM certificate chain; empty: plain HTTP.
        key_file: PEM private key.
        client_ca_file: PEM CA bundle; callers must present a certificate it signed.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionSettings:
    """Lease leader election.

    Attributes:
        enabled: take part in an election; off: this process is the only writer by decree.
        namespace: of the Lease.
        name: of the Lease.
        lease_duration_seconds: how long others wait before they take the lease over.
        renew_deadline_seconds: how long the leader tries to renew before it stops.
        retry_period_seconds: time between tries.
        follow_lease: `namespace/name` of the Lease of the kube-scheduler in the same pod; writes only while that
            neighbour holds it. Excludes `enabled`.
        identity: of this process; empty: host name and a random part.
    """

    enabled: bool = True
    namespace: str = "dra-scheduler"
    name: str = "dra-scheduler"
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    follow_lease: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSettings:
    """How devices are searched.

    Attributes:
        budget: candidate devices one search may try.
        timeout_seconds: wall time one pod's decision may take on one node (upstream's filterTimeout).
        policy: name of the policy that chooses among solutions.
        on_node_error: `reject` the node, or `abort` the attempt as in-tree does.
        kubernetes_version: for the defaults of feature gates; empty: ask the server.
        feature_gates: gate name -> on.
    """

    budget: int = 1_000_000
    timeout_seconds: float = 10.0
    policy: str = "FirstFit"
    on_node_error: str = "reject"
    kubernetes_version: str = ""
    feature_gates: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindSettings:
    """Writes.

    Attributes:
        budget_seconds: all of one bind.
        request_timeout_seconds: one request, client side.
        server_timeout_seconds: one request, server side (`?timeout=`).
        max_concurrent: binds that write at the same time.
        binding_timeout_seconds: how long binding conditions may take.
    """

    budget_seconds: float = 12.0
    request_timeout_seconds: float = 8.0
    server_timeout_seconds: float = 5.0
    max_concurrent: int = 64
    binding_timeout_seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """The webhooks.

    Attributes:
        profile: `safe` or `fast`, as the kube-scheduler beside us is configured.
        sentinel_namespace: where the sentinel claim lives (profile fast).
        sentinel_name: its name.
        filter_shortlist: nodes a filter answer may hold; 0: all feasible ones.
        forced_choice: hold devices in filter and answer one node.
    """

    profile: str = "safe"
    sentinel_namespace: str = "dra-scheduler"
    sentinel_name: str = "dra-scheduler-wakeup"
    filter_shortlist: int = 0
    forced_choice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything.

    Attributes:
        kubeconfig: path; empty: $KUBECONFIG, else in-cluster.
        scheduler_name: pods with this `schedulerName` are ours (stand-alone).
        bind_address: HOST:PORT of the webhooks.
        health_address: HOST:PORT of /livez, /readyz, /startupz, /metrics.
        logging_format: `text` or `json`.
        verbosity: 0 information, 1 and more: debug.
        enable_profiling: serve /debug/profile at `health_address`; whoever reaches that address can then ask for it.
        enable_flight_recorder: keep the last decisions with all that they were made on, and serve them at
            `health_address` as /debug/recording; whoever reaches that address can then read what the cluster holds.
    """

    kubeconfig: str = ""
    scheduler_name: str = "dra-scheduler"
    bind_address: str = "127.0.0.1:8888"
    health_address: str = "127.0.0.1:8081"
    logging_format: str = "text"
    verbosity: int = 0
    enable_profiling: bool = False
    enable_flight_recorder: bool = False
    tls: TLSSettings = field(default_factory=TLSSettings)
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    allocation: AllocationSettings = field(default_factory=AllocationSettings)
    binding: BindSettings = field(default_factory=BindSettings)
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)
