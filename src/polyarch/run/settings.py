"""What a process is told when it is started: everything else it reads from the cluster and follows while it runs."""

from typing import Final, Literal

import msgspec

from polyarch.oci.auth.credential_providers import ProviderConfiguration
from polyarch.placement.operator.objects import DEFAULT_NAMESPACE

LogFormat = Literal["json", "console"]
ADMISSION_PORT: Final = 9443
METRICS_PORT: Final = 8443
HEALTH_PORT: Final = 8081


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of ``polyarch run``. A port of 0 takes a free one; the addresses chosen are printed."""

    namespace: str = DEFAULT_NAMESPACE
    """Where polyarch itself runs: its Lease, its Secrets; pods there are never placed."""
    kubeconfig: str | None = None
    context: str | None = None
    bind: str = "127.0.0.1"
    """The address to listen on; empty for all."""
    port: int = ADMISSION_PORT
    metrics_port: int = METRICS_PORT
    health_port: int = HEALTH_PORT
    cert_dir: str = ""
    """A folder with ``tls.crt`` and ``tls.key``, followed while they change. Without it metrics are plain HTTP."""
    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name; None: ``openshift-config/pull-secret`` on OpenShift, else none (PL-423)."""
    registries_conf: str | None = None
    ca: tuple[str, ...] = ()
    """Further certificates (PEM files) to trust for registries."""
    allow_addresses: tuple[str, ...] = ()
    """Ranges (CIDR) that may be reached although their class is refused (RG-103)."""
    credential_providers: ProviderConfiguration | None = None
    """The kubelet's credential plugins, asked after all pull secrets (PL-420, RG-086)."""
    log_format: LogFormat = "json"
    leader_elect: bool = True
