"""What a process is told when it is started: everything else it reads from the cluster and follows while it runs."""

from typing import Literal

import msgspec

from polyarch.kube.process.roles import ProcessSettings
from polyarch.oci.auth.credential_providers import ProviderConfiguration
from polyarch.placement.operator.objects import DEFAULT_NAMESPACE

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning"]


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """For roles that ask registries."""

    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name; None: ``openshift-config/pull-secret`` on OpenShift, else none (PL-423)."""
    registries_conf: str | None = None
    ca: tuple[str, ...] = ()
    """Further certificates (PEM files) to trust for registries."""
    allow_addresses: tuple[str, ...] = ()
    """Ranges (CIDR) that may be reached although their class is refused (RG-103)."""
    credential_providers: ProviderConfiguration | None = None
    """The kubelet's credential plugins, asked after all pull secrets (PL-420, RG-086)."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of ``polyarch run``: those of every process, and those of roles, by what they are about."""

    process: ProcessSettings = ProcessSettings(namespace=DEFAULT_NAMESPACE)
    kubeconfig: str | None = None
    context: str | None = None
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"
    """What is written while the cluster's configuration asks for nothing special."""
    registries: RegistrySettings = RegistrySettings()
