"""What there is to set: each setting's key in the daemon's file, its kind, and its place in ``ExporterSettings``
(NE-131).

The keys above the line of each section are those of the resource-topology-exporter; below it are our own, so that a
dump holds everything (NE-133). Pure.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, get_args

import msgspec

from polyarch.numa.api.scan_settings import FingerprintMethod, UsageSource
from polyarch.numa.decide.facts import TopologyPolicy, TopologyScope
from polyarch.numa.exporter.configuration.kinds import (
    SECOND,
    Boolean,
    Duration,
    Kind,
    Names,
    PodPatterns,
    ResourceLists,
    Text,
    Whole,
    Word,
    ip_address,
    label_value,
    socket_url,
)
from polyarch.numa.exporter.settings import ExporterSettings, KubeletSource, LogFormat, MetricsMode
from polyarch.numa.exporter.tls_policy import CIPHERS, VERSIONS

POLICY: Final = "topologyExporter.topologyManagerPolicy"
SCOPE: Final = "topologyExporter.topologyManagerScope"
REFERENCE: Final = tuple(
    f"topologyExporter.referenceContainer.{name}" for name in ("namespace", "podName", "containerName")
)
EVENTS: Final = "topologyExporter.maxEventPerTimeUnit"
TIME_UNIT: Final = "topologyExporter.timeUnitToLimitEvents"
WATCHED_NAMESPACE: Final = "resourceMonitor.namespace"
HOSTNAME: Final = "nrtUpdater.hostname"
VERBOSE: Final = "global.verbose"
DEBUG: Final = "global.debug"
POD_EXCLUDE: Final = "resourceMonitor.podExclude"
RESOURCE_EXCLUDE: Final = "resourceMonitor.resourceExclude"


class Setting(msgspec.Struct, frozen=True):
    """One of them."""

    key: str
    """In the daemon's file, its sections separated by dots."""
    kind: Kind
    field: str = ""
    """In ``ExporterSettings``; empty where several settings make one field."""
    variable: str = ""
    """Of the environment, which speaks only where the value is still empty (NE-130)."""
    alone: Any = None
    """The default of a setting without a field."""

    @property
    def default(self) -> Any:
        """As a file would have it."""
        if not self.field:
            return self.alone
        value = attrgetter(self.field)(_DEFAULTS)
        if isinstance(self.kind, Duration):
            return round(value * SECOND)
        return value


_DEFAULTS: Final = ExporterSettings()
_YES_OR_NO: Final = Boolean()
_TEXT: Final = Text()
_TIME: Final = Duration()
_PORT: Final = Whole(most=65535)
_POLICIES: Final = Word(get_args(TopologyPolicy), optional=True)
_TLS_VERSION: Final = Word(tuple(VERSIONS), optional=True)
_CIPHERS: Final = Names(CIPHERS, "cipher suite")
_SCOPES: Final = Word(get_args(TopologyScope), optional=True)

_ALL: Final = (
    Setting(VERBOSE, Whole(), "verbosity"),
    Setting(DEBUG, _YES_OR_NO, alone=False),
    Setting("global.kubeConfig", _TEXT, "kubeconfig"),
    Setting("global.logFormat", Word(get_args(LogFormat)), "log_format"),
    #
    Setting(HOSTNAME, _TEXT, "hostname", "NODE_NAME"),
    Setting("nrtUpdater.patchMode", _YES_OR_NO, "publish.patch_mode"),
    Setting("nrtUpdater.patchResync", Whole(), "publish.patch_resync"),
    Setting("nrtUpdater.oneShot", _YES_OR_NO, "publish.oneshot"),
    Setting("nrtUpdater.noPublish", _YES_OR_NO, "publish.no_publish"),
    # our own
    Setting("nrtUpdater.resync", Duration(least=1), "publish.resync"),
    Setting("nrtUpdater.heartbeat", _TIME, "publish.heartbeat"),
    Setting("nrtUpdater.legacyFields", _YES_OR_NO, "scan.legacy_fields"),
    Setting("nrtUpdater.extraAttributes", _YES_OR_NO, "scan.extra_attributes"),
    Setting("nrtUpdater.nodeGroup", Text(label_value), "scan.node_group"),
    #
    Setting(WATCHED_NAMESPACE, _TEXT, alone=""),
    Setting("resourceMonitor.sysfsRoot", _TEXT, "host.sysfs"),
    Setting(RESOURCE_EXCLUDE, ResourceLists(), "scan.resource_exclude"),
    Setting("resourceMonitor.refreshNodeResources", _YES_OR_NO, "triggers.refresh_node_resources"),
    Setting("resourceMonitor.podSetFingerprint", _YES_OR_NO, "scan.pods_fingerprint"),
    Setting(
        "resourceMonitor.podSetFingerprintMethod", Word(get_args(FingerprintMethod)), "scan.pods_fingerprint_method"
    ),
    Setting("resourceMonitor.exposeTiming", _YES_OR_NO, "scan.expose_timing"),
    Setting(
        "resourceMonitor.podSetFingerprintStatusFile", _TEXT, "scan.pods_fingerprint_status_file", "PFP_STATUS_FILE"
    ),
    Setting(POD_EXCLUDE, PodPatterns(), "scan.pod_exclude"),
    Setting("resourceMonitor.excludeTerminalPods", _YES_OR_NO, "scan.exclude_terminal_pods"),
    # our own
    Setting("resourceMonitor.root", _TEXT, "host.root"),
    Setting("resourceMonitor.kubeletStateDir", _TEXT, "host.kubelet_state_dir"),
    Setting("resourceMonitor.usageSource", Word(get_args(UsageSource)), "scan.usage_source"),
    Setting("resourceMonitor.allocatableInterval", _TIME, "triggers.allocatable_interval"),
    Setting("resourceMonitor.placementVectors", _YES_OR_NO, "scan.placement_vectors"),
    #
    Setting(REFERENCE[0], _TEXT, "", "REFERENCE_NAMESPACE", alone=""),
    Setting(REFERENCE[1], _TEXT, "", "REFERENCE_POD_NAME", alone=""),
    Setting(REFERENCE[2], _TEXT, "", "REFERENCE_CONTAINER_NAME", alone=""),
    Setting(POLICY, _POLICIES, "", "TOPOLOGY_MANAGER_POLICY", alone=""),
    Setting(SCOPE, _SCOPES, "", "TOPOLOGY_MANAGER_SCOPE", alone=""),
    Setting("topologyExporter.kubeletConfigFile", _TEXT, "host.kubelet_config_file"),
    Setting("topologyExporter.podResourcesSocketPath", Text(socket_url), "host.podresources_socket"),
    Setting("topologyExporter.sleepInterval", _TIME, "triggers.sleep_interval"),
    Setting("topologyExporter.podReadinessEnable", _YES_OR_NO, "publish.podreadiness"),
    Setting("topologyExporter.notifyFilePath", _TEXT, "triggers.notify_file"),
    Setting(EVENTS, Whole(least=1), alone=1),
    Setting(TIME_UNIT, Duration(least=1), alone=SECOND),
    Setting("topologyExporter.addNRTOwnerEnable", _YES_OR_NO, "scan.add_nrt_owner"),
    Setting("topologyExporter.metricsMode", Word(get_args(MetricsMode)), "metrics.mode"),
    Setting("topologyExporter.metricsPort", _PORT, "metrics.port"),
    Setting("topologyExporter.metricsAddress", Text(ip_address), "metrics.address"),
    Setting("topologyExporter.metricsTLS.certsDir", _TEXT, "metrics.certs_dir"),
    Setting("topologyExporter.metricsTLS.certFile", _TEXT, "metrics.cert_file"),
    Setting("topologyExporter.metricsTLS.keyFile", _TEXT, "metrics.key_file"),
    Setting("topologyExporter.metricsTLS.minTLSVersion", _TLS_VERSION, "metrics.min_tls_version"),
    Setting("topologyExporter.metricsTLS.cipherSuites", _CIPHERS, "metrics.cipher_suites"),
    Setting("topologyExporter.metricsTLS.wantCliAuth", _YES_OR_NO, "metrics.want_client_certificates"),
    # our own
    Setting("topologyExporter.kubeletConfig", Word(get_args(KubeletSource)), "host.kubelet_config"),
    Setting("topologyExporter.kubeletConfigDir", _TEXT, "host.kubelet_config_dir"),
    Setting("topologyExporter.kubeletAddress", _TEXT, "host.kubelet_address", "HOST_IP"),
    Setting("topologyExporter.kubeletCA", _TEXT, "host.kubelet_ca"),
    Setting("topologyExporter.kubeletInsecureTLS", _YES_OR_NO, "host.kubelet_insecure_tls"),
    Setting("topologyExporter.statePoll", _TIME, "triggers.state_poll"),
)

SETTINGS: Final[Mapping[str, Setting]] = {each.key: each for each in _ALL}
"""By key."""

EXTRA: Final[Mapping[str, Setting]] = {
    "kubelet.topologyManagerPolicy": Setting("kubelet.topologyManagerPolicy", _POLICIES),
    "kubelet.topologyManagerScope": Setting("kubelet.topologyManagerScope", _SCOPES),
    "resourceExclude": SETTINGS[RESOURCE_EXCLUDE],
    "podExclude": SETTINGS[POD_EXCLUDE],
}
"""What an extra file may say: its key → the setting that it is."""
