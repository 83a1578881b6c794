"""Settings of every process. Imports nothing of what a process runs, so that who only reads settings starts fast."""

import msgspec


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every process. Port 0 takes a free one."""

    namespace: str
    """The process's own namespace, with its Leases and Secrets."""
    bind: str = "127.0.0.1"
    """The address to listen on; empty for all."""
    port: int = 9443
    """Port of the admission server, if a role has routes."""
    metrics_port: int = 8443
    health_port: int = 8081
    cert_dir: str = ""
    """Directory of ``tls.crt`` and ``tls.key``, reloaded when they change. Without it metrics are plain HTTP."""
    cert_secret: str = ""
    """Name of a Secret with ``tls.crt`` and ``tls.key`` in the process's namespace, watched instead of a directory. The
    process leads before there is one, so that its leader may make it."""
    leader_elect: bool = True
