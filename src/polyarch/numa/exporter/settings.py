"""The settings of one exporter: what they are, how each is written, and its default.

``configuration`` reads them from files, the environment and the command line; ``run numa-exporter`` and ``numa export``
start with them. :data:`SETTINGS` has one entry for each: its key in the daemon's file, the type of its value, and its
place in :class:`ExporterSettings`. Durations are seconds there. Pure.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Final, Literal, Protocol, get_args

import msgspec

from polyarch.durations import InvalidDuration, parse_duration
from polyarch.numa.facts import (
    FingerprintMethod,
    HostSettings,
    KubeletSource,
    MalformedPattern,
    PodPattern,
    ScanSettings,
    TopologyPolicy,
    TopologyScope,
    UsageSource,
    compile_pattern,
)

LogFormat = Literal["json", "console"]
MetricsMode = Literal["disabled", "http", "httptls"]


class TriggerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a scan is made."""

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
    """How the topology is written."""

    no_publish: bool = False
    oneshot: bool = False
    patch_mode: bool = True
    resync: float = 600.0
    """Seconds between GETs where the watch is forbidden."""
    patch_resync: int = 10
    """Patches after which the topology is read, where it is not watched; 0: never."""
    heartbeat: float = 0.0
    """Seconds; 0: off."""
    podreadiness: bool = True


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where metrics and health are served."""

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
    """All settings of an exporter."""

    hostname: str = ""
    """The node's name; never empty once read."""
    namespace: str = ""
    """Of the own Pod; empty outside a cluster."""
    pod: str = ""
    """The own Pod; empty: none is known, and no condition is written."""
    host: HostSettings = HostSettings()
    scan: ScanSettings = ScanSettings()
    triggers: TriggerSettings = TriggerSettings()
    publish: PublishSettings = PublishSettings()
    metrics: MetricsSettings = MetricsSettings()
    kubeconfig: str = ""
    verbosity: int = 2
    """klog's level: 0 – 3 info, 4 and more debug."""
    log_format: LogFormat = "json"


# -- TLS of the metrics ------------------------------------------------------------------------------------------------

# Names of TLS versions and cipher suites are Go's and IANA's, as in a cluster's TLS security profile; OpenSSL has
# others for the same suites. With TLS 1.3 every suite is a good one, and none can be chosen.

TLS_VERSIONS: Final[Mapping[str, str]] = {"VersionTLS12": "TLSv1_2", "VersionTLS13": "TLSv1_3"}
"""Name → member of ``ssl.TLSVersion``."""

CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""Name → OpenSSL's; empty: a suite of TLS 1.3, which is always on."""


def openssl_ciphers(names: tuple[str, ...]) -> str:
    """The list for ``SSLContext.set_ciphers``; empty: OpenSSL's own choice. Raises KeyError for an unknown name."""
    return ":".join(openssl for name in names if (openssl := CIPHER_SUITES[name]))


# -- types of values ---------------------------------------------------------------------------------------------------

# A value is kept as a file has it, so that a dump says what was read: durations as whole nanoseconds.

SECOND: Final = 1_000_000_000
"""Nanoseconds."""
MAX_INTEGER: Final = 2**63 - 1
"""Go's largest ``int64``."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LABEL: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number with a fraction",
    str: "a text",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}


class InvalidExporterConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """A flag, a variable, a file or a directory is wrong; the message names it, and the next action."""


class InvalidValue(ValueError):  # noqa: N818 - the name says what is the matter
    """A value does not fit its setting; the message says why, and its caller adds which setting."""


class ValueType(Protocol):
    """How a value is written on a command line, and how in a file. Both raise :class:`InvalidValue`."""

    def of_text(self, text: str) -> Any:
        """From a flag or a variable of the environment."""
        ...

    def of_file(self, content: object) -> Any:
        """From a file; never called with null, which means that nothing is said."""
        ...


class Boolean(msgspec.Struct, frozen=True):
    """Texts are those that Go's flags take."""

    def of_text(self, text: str) -> bool:
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise InvalidValue(f"{_quoted(text)} is neither true nor false")

    def of_file(self, content: object) -> bool:
        if isinstance(content, bool):
            return content
        raise _wrong_type(content, "true or false")


class Integer(msgspec.Struct, frozen=True):
    """A whole number within bounds."""

    least: int = 0
    most: int = MAX_INTEGER

    def of_text(self, text: str) -> int:
        if _INTEGER.fullmatch(text) is None:
            raise InvalidValue(f"{_quoted(text)} is not a whole number")
        return self._within(int(text))

    def of_file(self, content: object) -> int:
        if isinstance(content, bool) or not isinstance(content, int):
            raise _wrong_type(content, "a whole number")
        return self._within(content)

    def _within(self, value: int) -> int:
        if self.least <= value <= self.most:
            return value
        bounds = f"at least {self.least}" if self.most == MAX_INTEGER else f"from {self.least} to {self.most}"
        raise InvalidValue(f"{value} is out of range; expected {bounds}")


class Duration(msgspec.Struct, frozen=True):
    """Text as Go writes it (``1m30s``), whole nanoseconds in a file and here, seconds in the settings."""

    least: int = 0

    def of_text(self, text: str) -> int:
        if text.lstrip("+-") == "0":
            return self._within(0)
        try:
            seconds = parse_duration(text.removeprefix("-").removeprefix("+"))
        except InvalidDuration as error:
            raise InvalidValue(str(error)) from None
        return self._within(round(-seconds * SECOND if text.startswith("-") else seconds * SECOND))

    def of_file(self, content: object) -> int:
        if isinstance(content, bool) or not isinstance(content, int):
            raise _wrong_type(content, f"whole nanoseconds, such as {SECOND} for one second")
        return self._within(content)

    def _within(self, value: int) -> int:
        if value < self.least:
            raise InvalidValue(
                "a duration must not be negative" if value < 0 else "a duration must be longer than 0 here"
            )
        if value > MAX_INTEGER:
            raise InvalidValue(f"a duration must not be longer than {MAX_INTEGER} nanoseconds")
        return value


class Text(msgspec.Struct, frozen=True):
    """Any text that the check lets through; it raises :class:`InvalidValue`."""

    check: Callable[[str], None] = lambda _: None

    def of_text(self, text: str) -> str:
        self.check(text)
        return text

    def of_file(self, content: object) -> str:
        if not isinstance(content, str):
            raise _wrong_type(content, "a text")
        return self.of_text(content)


class Enumeration(msgspec.Struct, frozen=True):
    """One of several words. The empty one, where it is allowed, says nothing."""

    choices: tuple[str, ...]
    optional: bool = False

    def of_text(self, text: str) -> str:
        if text in self.choices or (self.optional and not text):
            return text
        raise InvalidValue(f"unknown value {_quoted(text)}; expected one of {', '.join(self.choices)}")

    def of_file(self, content: object) -> str:
        if not isinstance(content, str):
            raise _wrong_type(content, f"one of {', '.join(self.choices)}")
        return self.of_text(content)


class Names(msgspec.Struct, frozen=True):
    """Known names, separated by commas."""

    known: Collection[str]
    what: str
    """What they are names of."""

    def of_text(self, text: str) -> tuple[str, ...]:
        return self._checked(tuple(name.strip() for name in text.split(",") if name.strip()))

    def of_file(self, content: object) -> tuple[str, ...]:
        if isinstance(content, str):
            return self.of_text(content)
        return self._checked(_texts(content, "names separated by commas, or a list of them"))

    def _checked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in self.known:
                raise InvalidValue(f"unknown {self.what} {_quoted(name)}; known are {', '.join(sorted(self.known))}")
        return names


class ResourceLists(msgspec.Struct, frozen=True):
    """``resourceExclude``: resources by the node's name, or ``*`` for every node. Files alone have it."""

    def of_text(self, text: str) -> Mapping[str, tuple[str, ...]]:
        raise InvalidValue("resources are excluded in a file")

    def of_file(self, content: object) -> Mapping[str, tuple[str, ...]]:
        if not isinstance(content, dict):
            raise _wrong_type(content, "lists of resources by node name")
        lists = {}
        for node, resources in content.items():
            if not isinstance(node, str):
                raise _wrong_type(node, "a node's name or *")
            try:
                lists[node] = () if resources is None else _texts(resources, "a list of resources")
            except InvalidValue as error:
                raise InvalidValue(f"{_quoted(node)}: {error}") from None
        return lists


class PodPatterns(msgspec.Struct, frozen=True):
    """``podExclude``: pairs of shell globs. Files alone have it."""

    def of_text(self, text: str) -> tuple[PodPattern, ...]:
        raise InvalidValue("pods are excluded in a file")

    def of_file(self, content: object) -> tuple[PodPattern, ...]:
        if not isinstance(content, list):
            raise _wrong_type(content, "a list of {namespacePattern, namePattern}")
        return tuple(self._item(number, item) for number, item in enumerate(content))

    def _item(self, number: int, item: object) -> PodPattern:
        if not isinstance(item, dict):
            raise InvalidValue(f"[{number}]: {_wrong_type(item, 'namespacePattern and namePattern')}")
        unknown = sorted(str(key) for key in item if key not in ("namespacePattern", "namePattern"))
        if unknown:
            raise InvalidValue(
                f"[{number}]: unknown key {_quoted(unknown[0])}; expected namespacePattern and namePattern"
            )
        return PodPattern(
            namespace=self._glob(number, item, "namespacePattern"), name=self._glob(number, item, "namePattern")
        )

    def _glob(self, number: int, item: Mapping[str, object], key: str) -> str:
        glob = item.get(key)
        if not isinstance(glob, str):
            raise InvalidValue(f"[{number}].{key}: {_wrong_type(glob, 'a shell glob, such as *')}")
        try:
            compile_pattern(glob)
        except MalformedPattern as error:
            raise InvalidValue(f"[{number}].{key}: {error}") from None
        return glob


def check_label_value(text: str) -> None:
    if _LABEL.fullmatch(text) is None:
        raise InvalidValue(f"{_quoted(text)} cannot be a label's value: at most 63 letters, digits, '-', '_' and '.'")


def check_ip_address(text: str) -> None:
    """Empty stands for all addresses."""
    try:
        ipaddress.ip_address(text or "::")
    except ValueError:
        raise InvalidValue(f"{_quoted(text)} is not an IP address") from None


def check_socket_url(text: str) -> None:
    scheme, separator, path = text.partition("://")
    if not separator or scheme not in ("unix", "fake") or not path.startswith("/"):
        raise InvalidValue(f"{_quoted(text)} is neither unix:///path/to/socket nor fake:///directory")


def _texts(content: object, expected: str) -> tuple[str, ...]:
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        raise _wrong_type(content, expected)
    return tuple(content)


def _wrong_type(content: object, expected: str) -> InvalidValue:
    return InvalidValue(f"{_TYPE_NAMES.get(type(content), 'a value of another type')} instead of {expected}")


def _quoted(text: str) -> str:
    """As much as an error needs to show."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


# -- the table ---------------------------------------------------------------------------------------------------------

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

_DEFAULTS: Final = ExporterSettings()


class Setting(msgspec.Struct, frozen=True):
    """One setting of an exporter."""

    key: str
    """In the daemon's file, its sections separated by dots."""
    type: ValueType
    field: str = ""
    """In ``ExporterSettings``; empty where several settings make one field."""
    variable: str = ""
    """Of the environment, which counts only where the value is still empty."""
    alone: Any = None
    """The default of a setting without a field."""

    @property
    def default(self) -> Any:
        """As a file would have it."""
        if not self.field:
            return self.alone
        value = attrgetter(self.field)(_DEFAULTS)
        return round(value * SECOND) if isinstance(self.type, Duration) else value

    def settled(self, value: Any) -> Any:
        """A value as ``ExporterSettings`` have it."""
        return value / SECOND if isinstance(self.type, Duration) else value

    def file_content(self, value: Any) -> object:
        """A value as a file has it."""
        match self.type:
            case Names():
                return ",".join(value)
            case ResourceLists():
                return {node: list(resources) for node, resources in value.items()}
            case PodPatterns():
                return [{"namespacePattern": pattern.namespace, "namePattern": pattern.name} for pattern in value]
        return value


_BOOLEAN: Final = Boolean()
_TEXT: Final = Text()
_DURATION: Final = Duration()
_PORT: Final = Integer(most=65535)
_POLICIES: Final = Enumeration(get_args(TopologyPolicy), optional=True)
_TLS_VERSION: Final = Enumeration(tuple(TLS_VERSIONS), optional=True)
_CIPHERS: Final = Names(CIPHER_SUITES, "cipher suite")
_SCOPES: Final = Enumeration(get_args(TopologyScope), optional=True)

_ALL_SETTINGS: Final = (
    Setting(VERBOSE, Integer(), "verbosity"),
    Setting(DEBUG, _BOOLEAN, alone=False),
    Setting("global.kubeConfig", _TEXT, "kubeconfig"),
    Setting("global.logFormat", Enumeration(get_args(LogFormat)), "log_format"),
    #
    Setting(HOSTNAME, _TEXT, "hostname", "NODE_NAME"),
    Setting("nrtUpdater.patchMode", _BOOLEAN, "publish.patch_mode"),
    Setting("nrtUpdater.patchResync", Integer(), "publish.patch_resync"),
    Setting("nrtUpdater.oneShot", _BOOLEAN, "publish.oneshot"),
    Setting("nrtUpdater.noPublish", _BOOLEAN, "publish.no_publish"),
    # our own
    Setting("nrtUpdater.resync", Duration(least=1), "publish.resync"),
    Setting("nrtUpdater.heartbeat", _DURATION, "publish.heartbeat"),
    Setting("nrtUpdater.legacyFields", _BOOLEAN, "scan.legacy_fields"),
    Setting("nrtUpdater.extraAttributes", _BOOLEAN, "scan.extra_attributes"),
    Setting("nrtUpdater.nodeGroup", Text(check_label_value), "scan.node_group"),
    #
    Setting(WATCHED_NAMESPACE, _TEXT, alone=""),
    Setting("resourceMonitor.sysfsRoot", _TEXT, "host.sysfs"),
    Setting(RESOURCE_EXCLUDE, ResourceLists(), "scan.resource_exclude"),
    Setting("resourceMonitor.refreshNodeResources", _BOOLEAN, "triggers.refresh_node_resources"),
    Setting("resourceMonitor.podSetFingerprint", _BOOLEAN, "scan.pods_fingerprint"),
    Setting(
        "resourceMonitor.podSetFingerprintMethod",
        Enumeration(get_args(FingerprintMethod)),
        "scan.pods_fingerprint_method",
    ),
    Setting("resourceMonitor.exposeTiming", _BOOLEAN, "scan.expose_timing"),
    Setting(
        "resourceMonitor.podSetFingerprintStatusFile", _TEXT, "scan.pods_fingerprint_status_file", "PFP_STATUS_FILE"
    ),
    Setting(POD_EXCLUDE, PodPatterns(), "scan.pod_exclude"),
    Setting("resourceMonitor.excludeTerminalPods", _BOOLEAN, "scan.exclude_terminal_pods"),
    # our own
    Setting("resourceMonitor.root", _TEXT, "host.root"),
    Setting("resourceMonitor.kubeletStateDir", _TEXT, "host.kubelet_state_dir"),
    Setting("resourceMonitor.usageSource", Enumeration(get_args(UsageSource)), "scan.usage_source"),
    Setting("resourceMonitor.allocatableInterval", _DURATION, "triggers.allocatable_interval"),
    Setting("resourceMonitor.placementVectors", _BOOLEAN, "scan.placement_vectors"),
    #
    Setting(REFERENCE[0], _TEXT, "", "REFERENCE_NAMESPACE", alone=""),
    Setting(REFERENCE[1], _TEXT, "", "REFERENCE_POD_NAME", alone=""),
    Setting(REFERENCE[2], _TEXT, "", "REFERENCE_CONTAINER_NAME", alone=""),
    Setting(POLICY, _POLICIES, "", "TOPOLOGY_MANAGER_POLICY", alone=""),
    Setting(SCOPE, _SCOPES, "", "TOPOLOGY_MANAGER_SCOPE", alone=""),
    Setting("topologyExporter.kubeletConfigFile", _TEXT, "host.kubelet_config_file"),
    Setting("topologyExporter.podResourcesSocketPath", Text(check_socket_url), "host.podresources_socket"),
    Setting("topologyExporter.sleepInterval", _DURATION, "triggers.sleep_interval"),
    Setting("topologyExporter.podReadinessEnable", _BOOLEAN, "publish.podreadiness"),
    Setting("topologyExporter.notifyFilePath", _TEXT, "triggers.notify_file"),
    Setting(EVENTS, Integer(least=1), alone=1),
    Setting(TIME_UNIT, Duration(least=1), alone=SECOND),
    Setting("topologyExporter.addNRTOwnerEnable", _BOOLEAN, "scan.add_nrt_owner"),
    Setting("topologyExporter.metricsMode", Enumeration(get_args(MetricsMode)), "metrics.mode"),
    Setting("topologyExporter.metricsPort", _PORT, "metrics.port"),
    Setting("topologyExporter.metricsAddress", Text(check_ip_address), "metrics.address"),
    Setting("topologyExporter.metricsTLS.certsDir", _TEXT, "metrics.certs_dir"),
    Setting("topologyExporter.metricsTLS.certFile", _TEXT, "metrics.cert_file"),
    Setting("topologyExporter.metricsTLS.keyFile", _TEXT, "metrics.key_file"),
    Setting("topologyExporter.metricsTLS.minTLSVersion", _TLS_VERSION, "metrics.min_tls_version"),
    Setting("topologyExporter.metricsTLS.cipherSuites", _CIPHERS, "metrics.cipher_suites"),
    Setting("topologyExporter.metricsTLS.wantCliAuth", _BOOLEAN, "metrics.want_client_certificates"),
    # our own
    Setting("topologyExporter.kubeletConfig", Enumeration(get_args(KubeletSource)), "host.kubelet_config"),
    Setting("topologyExporter.kubeletConfigDir", _TEXT, "host.kubelet_config_dir"),
    Setting("topologyExporter.kubeletAddress", _TEXT, "host.kubelet_address", "HOST_IP"),
    Setting("topologyExporter.kubeletCA", _TEXT, "host.kubelet_ca"),
    Setting("topologyExporter.kubeletInsecureTLS", _BOOLEAN, "host.kubelet_insecure_tls"),
    Setting("topologyExporter.statePoll", _DURATION, "triggers.state_poll"),
)

SETTINGS: Final[Mapping[str, Setting]] = {setting.key: setting for setting in _ALL_SETTINGS}
"""By key. The keys above the comment of each section are those of the resource-topology-exporter; below it are our own,
so that a dump holds everything."""

EXTRA_SETTINGS: Final[Mapping[str, Setting]] = {
    "kubelet.topologyManagerPolicy": Setting("kubelet.topologyManagerPolicy", _POLICIES),
    "kubelet.topologyManagerScope": Setting("kubelet.topologyManagerScope", _SCOPES),
    "resourceExclude": SETTINGS[RESOURCE_EXCLUDE],
    "podExclude": SETTINGS[POD_EXCLUDE],
}
"""The settings of an extra file, by its own keys."""
