"""Settings: one frozen value, parsed and checked once. Flags win over the file; defaults are here."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSettings:
    """Server certificate and the CA whose clients may call.

    Attributes:
        cert_file: serving certificate chain (PEM); empty: plain HTTP.
        key_file: private key of the serving certificate (PEM).
        client_ca_file: CA bundle (PEM) that client certificates must be signed by.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionSettings:
    """Lease leader election.

    Attributes:
        enabled: take part in leader election; off: this process is assumed to be the only writer.
        namespace: namespace of the Lease.
        name: name of the Lease.
        lease_duration_seconds: how long other candidates wait after the last renewal before they take over.
        renew_deadline_seconds: how long the leader retries renewing before it gives up and exits.
        retry_period_seconds: time between attempts to acquire or renew.
        follow_lease: `namespace/name` of the Lease of the kube-scheduler in the same pod; writes only while that
            neighbour holds it. Excludes `enabled`.
        identity: identity of this process in the Lease; empty: host name and a random suffix.
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
    """How devices are allocated.

    Attributes:
        budget: maximum number of candidate devices that one search may try.
        timeout_seconds: maximum time for one pod's search on one node (upstream's filterTimeout).
        policy: name of the policy that chooses among solutions.
        on_node_error: what an error on one node's devices does: `reject` the node, or `abort` the attempt as kube-scheduler does.
        kubernetes_version: version whose feature gate defaults apply; empty: ask the API server.
        feature_gates: feature gates to change, by name.
    """

    budget: int = 1_000_000
    timeout_seconds: float = 10.0
    policy: str = "FirstFit"
    on_node_error: str = "reject"
    kubernetes_version: str = ""
    feature_gates: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindSettings:
    """How claims and Bindings are written.

    Attributes:
        budget_seconds: maximum time for all writes of one bind.
        request_timeout_seconds: client-side timeout of one request.
        server_timeout_seconds: server-side timeout of one request (`?timeout=`).
        max_concurrent: maximum number of binds that write at the same time.
        binding_timeout_seconds: how long to wait for a device's binding conditions.
    """

    budget_seconds: float = 12.0
    request_timeout_seconds: float = 8.0
    server_timeout_seconds: float = 5.0
    max_concurrent: int = 64
    binding_timeout_seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """The extender's webhooks.

    Attributes:
        profile: `safe` or `fast`; must match the configuration of kube-scheduler.
        sentinel_namespace: namespace of the sentinel claim that wakes rejected pods.
        sentinel_name: name of the sentinel claim.
        filter_shortlist: maximum number of nodes in a filter response; 0: all feasible nodes.
        forced_choice: filter answers one node and holds its devices in memory.
    """

    profile: str = "safe"
    sentinel_namespace: str = "dra-scheduler"
    sentinel_name: str = "dra-scheduler-wakeup"
    filter_shortlist: int = 0
    forced_choice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings.

    Attributes:
        kubeconfig: path to a kubeconfig; empty: $KUBECONFIG, else in-cluster.
        scheduler_name: schedule pods with this `schedulerName` (stand-alone mode).
        bind_address: HOST:PORT to serve the webhooks on.
        health_address: HOST:PORT to serve /livez, /readyz, /startupz and /metrics on.
        logging_format: log format: `text` or `json`.
        verbosity: 0: informational messages; 1 and more: debug messages.
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
