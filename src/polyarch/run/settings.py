"""Startup settings of a process. All other settings are read from the cluster, and watched."""

from typing import TYPE_CHECKING, Literal

import msgspec

from polyarch.kube.settings import ProcessSettings
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, MACHINE_OS_NAMESPACE, OperatorSettings

if TYPE_CHECKING:  # roles that ask no registry do not load what asks them
    from polyarch.oci.auth.credential_plugins import ProviderConfiguration
    from polyarch.taints.api import ArchitectureTaints

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning"]


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of roles that ask registries."""

    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name; None: ``openshift-config/pull-secret`` on OpenShift, elsewhere no secret."""
    registries_conf: str | None = None
    ca: tuple[str, ...] = ()
    """Additional CAs (PEM files) to trust for registries."""
    allow_addresses: tuple[str, ...] = ()
    """Address ranges (CIDR) that are allowed although their class is refused."""
    deny_addresses: tuple[str, ...] = ()
    """Address ranges (CIDR) that are never asked, but for narrower ones of ``allow_addresses``."""
    secret_access: Literal["byName", "none"] = "byName"
    """``none``: no pull secret of a pod is read, whatever a policy says."""
    credential_providers: "ProviderConfiguration | None" = None
    """The kubelet's credential plugins, asked after all pull secrets."""


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the exec-format-error monitor."""

    side: Literal["node", "handler"] = "handler"
    node_name: str = ""
    """The node's name, for the node side."""
    tracefs: str = ""
    """Where tracefs is mounted; "" for ``/sys/kernel/tracing``, else ``/sys/kernel/debug/tracing``."""
    proc: str = "/proc"
    pod_logs: str = "/var/log/pods"


class TaintRoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the roles that add tolerations."""

    configuration: "ArchitectureTaints | None" = None
    """The object from ``--config``, checked; None: the cluster's, which is watched."""


class BuilderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the builder."""

    builder_image: str = DEFAULT_BUILDER_IMAGE
    """What builds in a pod, unless the ImageBuild names another: it has ``sh`` and buildah."""
    push_image: str = ""
    """What uploads: an image of polyarch. Empty: every ImageBuild has to name one."""
    allow_privileged: bool = False
    """Whether ``builder.securityProfile: Privileged`` is allowed."""
    arch_taint_keys: tuple[str, ...] = ("kubernetes.io/arch", "supported-arch")
    """Keys of architecture taints that build pods tolerate."""
    max_active_jobs: int = OperatorSettings().max_active_jobs
    """Unfinished build Jobs in the whole cluster."""
    machine_os: Literal["auto", "on", "off"] = "auto"
    machine_os_namespace: str = MACHINE_OS_NAMESPACE


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of ``polyarch run``: those of every process, and those that only some roles read."""

    process: ProcessSettings = ProcessSettings(namespace=DEFAULT_NAMESPACE)
    kubeconfig: str | None = None
    context: str | None = None
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"
    """The level unless the cluster's configuration sets another."""
    registries: RegistrySettings = RegistrySettings()
    operator: OperatorSettings = OperatorSettings(image="", image_pull_policy=None)
    monitor: MonitorSettings = MonitorSettings()
    taints: TaintRoleSettings = TaintRoleSettings()
    builder: BuilderSettings = BuilderSettings()
