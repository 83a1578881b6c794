"""What exporters need of OpenShift: SecurityContextConstraints, and MachineConfigs of the legacy policy (NO-057).

The present policy of the machines has a type for whoever talks to the kubelet's sockets. Groups with annotation
``…/selinux-policy: custom`` bring a type of their own onto their machines instead, and a hook of the container runtime
that tells the exporter of started and stopped containers, as long as clusters of that age are around. Pure.
"""

import base64
from typing import Any, Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.numa import names
from polyarch.numa.operator.exporters.surroundings import Surroundings, described
from polyarch.numa.operator.groups import Group
from polyarch.operating.labels import Document

CONSTRAINTS: Final = Resource(
    "security.openshift.io",
    "v1",
    "securitycontextconstraints",
    "SecurityContextConstraints",
    namespaced=False,
)
MACHINE_CONFIGS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "machineconfigs", "MachineConfig", namespaced=False
)
LEGACY_CONSTRAINT: Final = "resource-topology-exporter"
CONSTRAINT: Final = "resource-topology-exporter-v2"
LEGACY_TYPE: Final = "rte.process"
TYPE: Final = "container_device_plugin_t"
NOTIFY_DIRECTORY: Final = "/run/rte"
POLICY_FILE: Final = "/etc/selinux/rte.cil"
HOOK_FILE: Final = "/etc/containers/oci/hooks.d/rte-notify.json"
ROLE_LABEL: Final = "machineconfiguration.openshift.io/role"

_POLICY: Final = """\
(block rte
    (blockinherit container)
    (allow process container_var_lib_t (dir (getattr open read search)))
    (allow process container_var_lib_t (file (getattr open read)))
    (allow process container_var_lib_t (sock_file (getattr open read write)))
    (allow process container_runtime_t (unix_stream_socket (connectto)))
    (allow process kubelet_t (unix_stream_socket (connectto)))
    (allow process unconfined_service_t (unix_stream_socket (connectto)))
    (allow process sysfs_t (dir (getattr open read search)))
    (allow process sysfs_t (file (getattr open read)))
    (allow process container_var_run_t (dir (add_name getattr open read search write)))
    (allow process container_var_run_t (file (create getattr open read setattr write)))
)
"""
_UNIT: Final = f"""\
[Unit]
Description=SELinux policy of the NUMA exporters
Before=kubelet.service

[Service]
Type=oneshot
ExecStart=/usr/sbin/semodule -i {POLICY_FILE}
RemainAfterExit=true

[Install]
WantedBy=multi-user.target
"""


def is_legacy(group: Group) -> bool:
    """The group brings an SELinux policy of its own."""
    return group.pool is not None and group.annotations.get(names.SELINUX_POLICY) == "custom"


def constraint_of(group: Group) -> str:
    """The constraint that the pods of a group are admitted with."""
    return LEGACY_CONSTRAINT if is_legacy(group) else CONSTRAINT


def selinux_type(group: Group, surroundings: Surroundings) -> str:
    """The type of the exporter's process; without effect where there is no SELinux."""
    return LEGACY_TYPE if surroundings.platform == "openshift" and is_legacy(group) else TYPE


def constraints(surroundings: Surroundings) -> list[Document]:
    """Both constraints, for the exporters' ServiceAccount."""
    if not surroundings.on_openshift:
        return []
    account = f"system:serviceaccount:{surroundings.namespace}:{names.EXPORTER}"
    return [_constraint(name, kind, account) for name, kind in ((LEGACY_CONSTRAINT, LEGACY_TYPE), (CONSTRAINT, TYPE))]


def _constraint(name: str, selinux: str, account: str) -> Document:
    anybody: dict[str, Any] = {"type": "RunAsAny"}
    no = dict.fromkeys(
        (
            "allowHostIPC",
            "allowHostNetwork",
            "allowHostPID",
            "allowHostPorts",
            "allowPrivilegeEscalation",
            "allowPrivilegedContainer",
        ),
        False,
    )
    return {
        "apiVersion": CONSTRAINTS.api_version,
        "kind": CONSTRAINTS.kind,
        "metadata": described(name),
        **no,
        "allowHostDirVolumePlugin": True,
        "allowedCapabilities": [],
        "defaultAddCapabilities": [],
        "requiredDropCapabilities": ["ALL"],
        "readOnlyRootFilesystem": True,
        "runAsUser": anybody,
        "fsGroup": anybody,
        "supplementalGroups": anybody,
        "seLinuxContext": {"type": "MustRunAs", "seLinuxOptions": {"type": selinux, "level": "s0"}},
        "seccompProfiles": ["runtime/default"],
        "users": [account],
        "groups": [],
        "volumes": ["configMap", "hostPath", "projected", "secret"],
    }


def machine_config_name(group: Group) -> str:
    """Of the group's MachineConfig."""
    return f"51-{names.OPERATOR_SINGLETON}-{group.name}"


def machine_config(group: Group) -> Document:
    """SELinux policy and hook on the machines of the group's pool."""
    pool = group.pool or {}
    selected = ((pool.get("spec") or {}).get("machineConfigSelector") or {}).get("matchLabels") or {}
    metadata = described(machine_config_name(group))
    metadata["labels"] = {**metadata["labels"], **(selected or {ROLE_LABEL: group.name})}
    hook = {
        "version": "1.0.0",
        "hook": {"path": "/usr/bin/touch", "args": ["touch", "--no-create", f"{NOTIFY_DIRECTORY}/notify"]},
        "when": {"always": True},
        "stages": ["poststart", "poststop"],
    }
    return {
        "apiVersion": MACHINE_CONFIGS.api_version,
        "kind": MACHINE_CONFIGS.kind,
        "metadata": metadata,
        "spec": {
            "config": {
                "ignition": {"version": "3.2.0"},
                "storage": {
                    "files": [
                        _file(POLICY_FILE, _POLICY),
                        _file(HOOK_FILE, msgspec.json.encode(hook).decode()),
                    ]
                },
                "systemd": {
                    "units": [{"name": "rte-selinux-policy-install.service", "enabled": True, "contents": _UNIT}]
                },
            }
        },
    }


def _file(path: str, content: str) -> Document:
    source = f"data:text/plain;charset=utf-8;base64,{base64.b64encode(content.encode()).decode()}"
    return {"path": path, "mode": 0o644, "overwrite": True, "contents": {"source": source}}
