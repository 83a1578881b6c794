"""The flags of ``polyarch run numa-exporter``: which setting each sets, what its help says, and how words are read.

Words are read as Go's programs take them: ``--flag``, ``--flag=value`` and ``--flag value``; ``-v 4``, ``-v=4`` and
``-v4``; one hyphen does as well as two. A word that is no flag is the configuration root, of which there is at most
one. The command's help and completion are made of :data:`FLAGS`. Pure.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal

import msgspec

from polyarch.numa.exporter.settings import (
    EVENTS,
    HOSTNAME,
    POLICY,
    REFERENCE,
    SCOPE,
    SECOND,
    SETTINGS,
    VERBOSE,
    WATCHED_NAMESPACE,
    Boolean,
    Duration,
    Enumeration,
    InvalidExporterConfiguration,
    InvalidValue,
    Setting,
    ValueType,
)

Group = Literal[
    "Object", "Usage", "Machine", "Kubelet", "Triggers", "Publishing", "Metrics", "Files", "Output", "Cluster"
]

REFERENCE_CONTAINER: Final = "--reference-container"
CONFIG: Final = "--config"
ALLOW_CONFIG_ROOT: Final = "--allow-config-root"
DUMP_CONFIG: Final = "--dump-config"
STRICT_CONFIG: Final = "--strict-config"
VERSION: Final = "--version"
VERBOSITY: Final = "-v"

LEGACY_FILE: Final = "/etc/resource-topology-exporter/config.yaml"
"""The default of ``--config``."""


class Flag(msgspec.Struct, frozen=True):
    """One flag."""

    name: str
    group: Group
    meaning: str
    placeholder: str = ""
    """What help calls the value; empty for a flag that is true or false."""
    key: str = ""
    """Of the setting; empty for a flag that is about the configuration itself."""
    shown: str | None = None
    """The default as help shows it, where it is not the setting's own."""

    @property
    def type(self) -> ValueType | None:
        """How its value is read; None: by hand."""
        return SETTINGS[self.key].type if self.key else None

    @property
    def is_switch(self) -> bool:
        """Whether it may stand without a value, which means true."""
        return isinstance(self.type, Boolean) if self.key else not self.placeholder

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it takes; empty for any."""
        return self.type.choices if isinstance(self.type, Enumeration) else ()

    @property
    def default(self) -> str:
        """As help shows it; empty for none."""
        if self.shown is not None:
            return self.shown
        return flag_text(SETTINGS[self.key], SETTINGS[self.key].default) if self.key else ""


def flag_text(setting: Setting, value: object) -> str:
    """A value as the command line takes it."""
    if isinstance(setting.type, Duration):
        return _duration(int(str(value)))
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _duration(nanoseconds: int) -> str:
    """As the largest unit of which it is a whole number."""
    for unit, size in (("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND)):
        if nanoseconds and nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    whole, rest = divmod(nanoseconds, SECOND // 1000)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".") + "ms" if nanoseconds else "0s"


_ALL_FLAGS: Final = (
    Flag("--hostname", "Object", "The node's name", "NAME", HOSTNAME, "NODE_NAME, else the host's name"),
    Flag("--node-group", "Object", "Value of the label node-group", "NAME", "nrtUpdater.nodeGroup"),
    Flag("--add-nrt-owner", "Object", "Let the Node own the object", key="topologyExporter.addNRTOwnerEnable"),
    Flag("--extra-attributes", "Object", "Write attributes of polyarch's own", key="nrtUpdater.extraAttributes"),
    Flag("--legacy-fields", "Object", "Write what older consumers read", key="nrtUpdater.legacyFields"),
    Flag("--pods-fingerprint", "Object", "Write the pods' fingerprint", key="resourceMonitor.podSetFingerprint"),
    Flag(
        "--pods-fingerprint-method",
        "Object",
        "The pods that count",
        "METHOD",
        "resourceMonitor.podSetFingerprintMethod",
    ),
    Flag(
        "--pods-fingerprint-status-file",
        "Object",
        "File for the fingerprint and its pods, written after each scan",
        "FILE",
        "resourceMonitor.podSetFingerprintStatusFile",
        "PFP_STATUS_FILE",
    ),
    Flag(
        "--placement-vectors",
        "Object",
        "Write which container sits on which zone",
        key="resourceMonitor.placementVectors",
    ),
    Flag(
        "--expose-timing",
        "Object",
        "Annotate with the interval between scans, wanted and actual",
        key="resourceMonitor.exposeTiming",
    ),
    Flag(
        REFERENCE_CONTAINER,
        "Usage",
        "The container whose CPUs are the shared pool",
        "NS/POD/CONTAINER",
        shown="REFERENCE_NAMESPACE, REFERENCE_POD_NAME and REFERENCE_CONTAINER_NAME",
    ),
    Flag(
        "--exclude-terminal-pods",
        "Usage",
        "Leave out pods that have succeeded or failed",
        key="resourceMonitor.excludeTerminalPods",
    ),
    Flag(
        "--usage-source",
        "Usage",
        "max: also count what the kubelet holds for finished init containers",
        "SOURCE",
        "resourceMonitor.usageSource",
    ),
    Flag("--watch-namespace", "Usage", "Ignored: all namespaces count", "NAMESPACE", WATCHED_NAMESPACE),
    Flag("--root", "Machine", "Prefix of every file of the host", "DIR", "resourceMonitor.root"),
    Flag("--sysfs", "Machine", "sysfs of the host", "DIR", "resourceMonitor.sysfsRoot", "sys below the root"),
    Flag(
        "--podresources-socket",
        "Kubelet",
        "unix:///path, or fake:///directory with files of answers",
        "URL",
        "topologyExporter.podResourcesSocketPath",
    ),
    Flag(
        "--kubelet-state-dir",
        "Kubelet",
        "The kubelet's directory of state files",
        "DIR",
        "resourceMonitor.kubeletStateDir",
        "var/lib/kubelet below the root",
    ),
    Flag(
        "--kubelet-config",
        "Kubelet",
        "Where its settings are read; auto: configz if permitted, else the file",
        "SOURCE",
        "topologyExporter.kubeletConfig",
    ),
    Flag("--kubelet-config-file", "Kubelet", "Its configuration file", "FILE", "topologyExporter.kubeletConfigFile"),
    Flag(
        "--kubelet-config-dir",
        "Kubelet",
        "Directory of drop-ins, *.conf, of that file",
        "DIR",
        "topologyExporter.kubeletConfigDir",
    ),
    Flag(
        "--kubelet-ca",
        "Kubelet",
        "CA certificates (PEM) of its configz",
        "FILE",
        "topologyExporter.kubeletCA",
        "the cluster's",
    ),
    Flag(
        "--kubelet-insecure-tls",
        "Kubelet",
        "Do not verify the certificate of its configz",
        key="topologyExporter.kubeletInsecureTLS",
    ),
    Flag(
        "--topology-manager-policy",
        "Kubelet",
        "With --topology-manager-scope in place of the kubelet's own",
        "POLICY",
        POLICY,
        "TOPOLOGY_MANAGER_POLICY",
    ),
    Flag(
        "--topology-manager-scope",
        "Kubelet",
        "With --topology-manager-policy in place of the kubelet's own",
        "SCOPE",
        SCOPE,
        "TOPOLOGY_MANAGER_SCOPE",
    ),
    Flag(
        "--sleep-interval",
        "Triggers",
        "Time between scans; 0 for no timer",
        "DURATION",
        "topologyExporter.sleepInterval",
    ),
    Flag(
        "--state-poll",
        "Triggers",
        "Time between looks at the kubelet's state files; 0 for none",
        "DURATION",
        "topologyExporter.statePoll",
    ),
    Flag(
        "--allocatable-interval",
        "Triggers",
        "Time between questions for what is allocatable; 0 on events only",
        "DURATION",
        "resourceMonitor.allocatableInterval",
    ),
    Flag(
        "--refresh-node-resources",
        "Triggers",
        "Also ask when the Node's resources change",
        key="resourceMonitor.refreshNodeResources",
    ),
    Flag(
        "--notify-file",
        "Triggers",
        "A file whose touch starts a scan",
        "FILE",
        "topologyExporter.notifyFilePath",
    ),
    Flag("--max-events-per-second", "Triggers", "Most scans in a second", "N", EVENTS),
    Flag("--no-publish", "Publishing", "Scan, and write nothing", key="nrtUpdater.noPublish"),
    Flag("--oneshot", "Publishing", "End after one scan that was published", key="nrtUpdater.oneShot"),
    Flag("--patch-mode", "Publishing", "Write changes as patches; false: GET and PUT", key="nrtUpdater.patchMode"),
    Flag(
        "--patch-resync", "Publishing", "Patches between looks at the object; 0 for none", "N", "nrtUpdater.patchResync"
    ),
    Flag(
        "--resync",
        "Publishing",
        "Time between looks at the object where it must not be watched",
        "DURATION",
        "nrtUpdater.resync",
    ),
    Flag(
        "--heartbeat",
        "Publishing",
        "Write at least this often, though nothing changed; 0 for never",
        "DURATION",
        "nrtUpdater.heartbeat",
    ),
    Flag(
        "--podreadiness",
        "Publishing",
        "Write conditions of the exporter's own Pod",
        key="topologyExporter.podReadinessEnable",
    ),
    Flag(
        "--metrics-mode",
        "Metrics",
        "How metrics are served; disabled: health only, on this host only",
        "MODE",
        "topologyExporter.metricsMode",
    ),
    Flag("--metrics-ip", "Metrics", "Address to listen on", "ADDRESS", "topologyExporter.metricsAddress"),
    Flag("--metrics-port", "Metrics", "Port of metrics and health", "PORT", "topologyExporter.metricsPort"),
    Flag("--metrics-certs-dir", "Metrics", "Directory of certificates", "DIR", "topologyExporter.metricsTLS.certsDir"),
    Flag("--metrics-cert-file", "Metrics", "The certificate in it", "NAME", "topologyExporter.metricsTLS.certFile"),
    Flag("--metrics-key-file", "Metrics", "The key in it", "NAME", "topologyExporter.metricsTLS.keyFile"),
    Flag(
        "--metrics-tls-min-version",
        "Metrics",
        "Oldest version of TLS",
        "VERSION",
        "topologyExporter.metricsTLS.minTLSVersion",
    ),
    Flag(
        "--metrics-tls-cipher-suites",
        "Metrics",
        "Cipher suites of TLS 1.2, separated by commas",
        "NAMES",
        "topologyExporter.metricsTLS.cipherSuites",
    ),
    Flag(
        "--metrics-want-cli-auth",
        "Metrics",
        "Ask clients for a certificate",
        key="topologyExporter.metricsTLS.wantCliAuth",
    ),
    Flag(CONFIG, "Files", "Older extra file", "FILE", shown=LEGACY_FILE),
    Flag(ALLOW_CONFIG_ROOT, "Files", "Also accept configuration below this directory; repeatable", "DIR"),
    Flag(DUMP_CONFIG, "Files", "Print the merged settings to -, .andexit (and end), .log or a file", "PLACE"),
    Flag(STRICT_CONFIG, "Files", "Unknown keys of files are errors"),
    Flag(VERBOSITY, "Output", "Level of the logs: 4 and more for details", "N", VERBOSE),
    Flag("--debug", "Output", "Log details, as -v 4 does", key="global.debug"),
    Flag("--log-format", "Output", "Format of the logs on stderr", "FORMAT", "global.logFormat"),
    Flag(VERSION, "Output", "Print the version"),
    Flag(
        "--kubeconfig", "Cluster", "Kubeconfig", "FILE", "global.kubeConfig", "as kubectl, or the pod's service account"
    ),
)

FLAGS: Final[Mapping[str, Flag]] = {flag.name: flag for flag in _ALL_FLAGS}
"""By name, in the order of the help."""

FLAG_OF: Final[Mapping[str, Flag]] = {flag.key: flag for flag in _ALL_FLAGS if flag.key}
"""By the key of its setting."""


# -- the command line -------------------------------------------------------------------------------------------------


class FlagValues(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that were given."""

    values: Mapping[str, Any] = {}
    """By the key of the setting; a key that is missing was not given."""
    others: Mapping[str, str] = {}
    """Flags about the configuration itself."""
    switches: frozenset[str] = frozenset()
    """Flags without a value that are on."""
    allowed_roots: tuple[str, ...] = ()
    root: str | None = None


def parse_flags(words: Sequence[str]) -> FlagValues:
    """Raises ``InvalidConfiguration`` for a word that cannot be taken. Of a flag that is repeated the last one counts,
    except for ``--allow-config-root``.
    """
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    switches: set[str] = set()
    allowed: list[str] = []
    roots: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            roots += rest
            break
        if not word.startswith("-") or word == "-":
            roots.append(word)
            continue
        flag, text = _flag(word)
        if text is None:
            text = _following(flag, rest)
        if flag.type is not None:
            values[flag.key] = _read(flag.name, flag.type, text)
        elif flag.name == REFERENCE_CONTAINER:
            values.update(_reference(text))
        elif flag.name == ALLOW_CONFIG_ROOT:
            allowed.append(text)
        elif not flag.is_switch:
            others[flag.name] = text
        elif _read(flag.name, Boolean(), text):
            switches.add(flag.name)
        else:
            switches.discard(flag.name)
    if len(roots) > 1:
        raise InvalidExporterConfiguration(
            f"{roots[1]}: too many arguments: there is one directory of configuration, and {roots[0]} was given"
        )
    return FlagValues(
        values=values,
        others=others,
        switches=frozenset(switches),
        allowed_roots=tuple(allowed),
        root=roots[0] if roots else None,
    )


def asks_for_version(words: Sequence[str]) -> bool:
    """Whether ``--version`` is given: then nothing else is wanted, however wrong the configuration may be."""
    return VERSION in parse_flags(words).switches


def _flag(word: str) -> tuple[Flag, str | None]:
    """The flag that the word names, and its value if that is in the same word."""
    name, equals, value = word.partition("=")
    bare = name.lstrip("-")
    known = VERBOSITY if bare == "v" else f"--{bare}"
    if (flag := FLAGS.get(known)) is not None and len(name) - len(bare) <= 2:
        return flag, value if equals else None
    if not equals and word.startswith(VERBOSITY) and word[len(VERBOSITY) :].isdecimal():
        return FLAGS[VERBOSITY], word[len(VERBOSITY) :]
    close = get_close_matches(known, FLAGS, n=1)
    instead = f"did you mean {close[0]}?" if close else "polyarch run numa-exporter --help lists them"
    raise InvalidExporterConfiguration(f"{name}: unknown flag; {instead}")


def _following(flag: Flag, rest: list[str]) -> str:
    """The value of a flag that has none in its own word."""
    if flag.is_switch:
        return rest.pop(0) if rest and rest[0] in ("true", "false") else "true"
    if not rest:
        raise InvalidExporterConfiguration(f"{flag.name}: a value is missing; write {flag.name} {flag.placeholder}")
    return rest.pop(0)


def _read(name: str, type: ValueType, text: str) -> Any:
    try:
        return type.of_text(text)
    except InvalidValue as error:
        raise InvalidExporterConfiguration(f"{name}: {error}") from None


def _reference(text: str) -> dict[str, str]:
    """``namespace/pod/container``; an empty one is none."""
    parts = text.split("/") if text else ["", "", ""]
    if len(parts) != len(REFERENCE) or (text and not all(parts)):
        raise InvalidExporterConfiguration(f"{REFERENCE_CONTAINER}: {text!r} is not namespace/pod/container")
    return dict(zip(REFERENCE, parts, strict=True))
