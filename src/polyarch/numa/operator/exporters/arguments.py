"""The flags of an exporter, from the settings of its group (§6: NO-060 – NO-065). Pure."""

from typing import Final

from polyarch.durations import go_duration
from polyarch.numa import names
from polyarch.numa.operator.exporters.surroundings import METRICS_PORT, Surroundings, shortened
from polyarch.numa.operator.groups import Group

SYSFS: Final = "/host-sys"
PODRESOURCES: Final = "/host-podresources"
KUBELET: Final = "/host-kubelet"
NOTIFY: Final = "/host-run-rte"
CERTIFICATES: Final = "/etc/secrets/rte"
ENABLED: Final = "enabled"
DISABLED: Final = "disabled"
CUSTOM: Final = "custom"


def arguments(group: Group, surroundings: Surroundings) -> list[str]:
    """After ``polyarch run numa-exporter``."""
    return [
        f"--sysfs={SYSFS}",
        f"--podresources-socket=unix://{PODRESOURCES}/kubelet.sock",
        *_kubelet(group, surroundings),
        "--refresh-node-resources",
        *_metrics(surroundings),
        f"--node-group={shortened(group.name)}",
        f"-v={surroundings.verbosity}",
        *_fingerprint(group),
        *_triggers(group, surroundings),
        *(("--no-publish",) if group.settings.paused else ()),
        *(("--placement-vectors",) if group.annotations.get(names.PLACEMENT_VECTORS) == ENABLED else ()),
        *(f"--heartbeat={value}" for value in (group.annotations.get(names.HEARTBEAT),) if value),
    ]


def mounts_kubelet(group: Group) -> bool:
    """Whether the exporter sees the kubelet's directory (NO-055)."""
    return group.annotations.get(names.KUBELET_STATE) != DISABLED


def is_notified(group: Group, surroundings: Surroundings) -> bool:
    """Whether a hook of the container runtime tells the exporter of changes: on OpenShift, with the legacy policy."""
    return (
        group.settings.refresh_mode != "Periodic"
        and surroundings.platform == "openshift"
        and group.annotations.get(names.SELINUX_POLICY) == CUSTOM
    )


def _kubelet(group: Group, surroundings: Surroundings) -> list[str]:
    if not mounts_kubelet(group):
        return []
    found = [f"--kubelet-state-dir={KUBELET}"]
    return [*found, f"--kubelet-config-file={KUBELET}/config.yaml"] if surroundings.asks_kubelets else found


def _metrics(surroundings: Surroundings) -> list[str]:
    place = ["--metrics-ip=$(POD_IP)", f"--metrics-port={METRICS_PORT}"]
    if not surroundings.with_tls:
        return ["--metrics-mode=http", *place]
    policy = surroundings.tls
    return [
        "--metrics-mode=httptls",
        *place,
        f"--metrics-certs-dir={CERTIFICATES}",
        *([f"--metrics-tls-min-version={policy.min_version}"] if policy.min_version else ()),
        *([f"--metrics-tls-cipher-suites={','.join(policy.ciphers)}"] if policy.ciphers else ()),
    ]


def _fingerprint(group: Group) -> list[str]:
    match group.settings.fingerprinting:
        case "Disabled":
            return ["--pods-fingerprint=false"]
        case "Enabled":
            return ["--pods-fingerprint=true", "--pods-fingerprint-method=all"]
        case _:
            return ["--pods-fingerprint=true", "--pods-fingerprint-method=with-exclusive-resources"]


def _triggers(group: Group, surroundings: Surroundings) -> list[str]:
    """Without a timer there is none: the predecessor's mode ``Events`` went on polling."""
    timed = group.settings.refresh_mode != "Events"
    told = group.settings.refresh_mode != "Periodic"
    return [
        f"--sleep-interval={go_duration(period) if (period := group.settings.refresh_period) and timed else 0}",
        f"--state-poll={'1s' if told else 0}",
        *([f"--notify-file={NOTIFY}/notify"] if is_notified(group, surroundings) else ()),
    ]
