"""Settings of one exporter, merged from defaults, files, environment and flags (NE-130 – NE-132). What a scan
decides by is in ``api.scan_settings``.

``configuration`` reads them, ``run numa-exporter`` and ``numa export`` start with them. Durations are seconds. Pure.
"""

from typing import Literal

import msgspec

from polyarch.numa.api.scan_settings import ScanSettings
from polyarch.numa.decide.facts import TopologyPolicy, TopologyScope

KubeletSource = Literal["auto", "configz", "file"]
LogFormat = Literal["json", "console"]
MetricsMode = Literal["disabled", "http", "httptls"]


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine's files and sockets are (NE-030, NE-050, NE-069, NE-101, NE-102)."""

    root: str = "/"
    """Prefix of every host file read."""
    sysfs: str = ""
    """Instead of ``<root>/sys``; empty: that."""
    podresources_socket: str = "unix:///podresources/kubelet.sock"
    """``unix:///path`` or ``fake:///directory``."""
    kubelet_state_dir: str = ""
    """Empty: ``<root>/var/lib/kubelet``."""
    kubelet_config: KubeletSource = "auto"
    kubelet_config_file: str = "/podresources/config.yaml"
    kubelet_config_dir: str = ""
    """Directory of drop-ins, ``*.conf``; empty: none."""
    kubelet_address: str = ""
    """Where the kubelet answers; empty: the InternalIP of the own Node (NE-101)."""
    kubelet_ca: str = ""
    kubelet_insecure_tls: bool = False
    topology_manager_policy: TopologyPolicy | None = None
    """With ``topology_manager_scope`` instead of the kubelet's own (NE-100)."""
    topology_manager_scope: TopologyScope | None = None


class TriggerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a scan is made (§11, NE-054)."""

    sleep_interval: float = 60.0
    """Seconds; 0: no timer."""
    state_poll: float = 1.0
    """Seconds; 0: off."""
    allocatable_interval: float = 60.0
    """Seconds; 0: events only."""
    refresh_node_resources: bool = False
    notify_file: str = ""
    max_events_per_second: float = 1.0


class PublishSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the object is written (§10)."""

    no_publish: bool = False
    oneshot: bool = False
    patch_mode: bool = True
    resync: float = 600.0
    """Seconds between GETs where the watch is forbidden."""
    patch_resync: int = 10
    heartbeat: float = 0.0
    """Seconds; 0: off."""
    podreadiness: bool = True


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where metrics and health are served (NE-121, NE-122)."""

    mode: MetricsMode = "disabled"
    address: str = "0.0.0.0"
    port: int = 2112
    certs_dir: str = "/etc/secrets/rte"
    cert_file: str = "tls.crt"
    key_file: str = "tls.key"
    min_tls_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    want_client_certificates: bool = False
    """``--metrics-want-cli-auth``."""


class ExporterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    hostname: str = ""
    """The node's name; never empty once read (NE-010)."""
    namespace: str = ""
    """Of the own Pod; empty outside a cluster."""
    pod: str = ""
    """The own Pod; empty: none is known, and no condition is written (NE-120)."""
    host: HostSettings = HostSettings()
    scan: ScanSettings = ScanSettings()
    triggers: TriggerSettings = TriggerSettings()
    publish: PublishSettings = PublishSettings()
    metrics: MetricsSettings = MetricsSettings()
    kubeconfig: str = ""
    verbosity: int = 2
    """klog's level: 0 – 3 info, 4 and more debug."""
    log_format: LogFormat = "json"
