"""Settings as values: a client's (the server, the user, TLS, and where each was read) and those of every process.

The module imports nothing of what a process runs, so that who only reads settings starts fast.
"""

from pathlib import Path

import msgspec

from polyarch.kube.errors import ConfigurationError
from polyarch.proxies import Proxy


class PemSource(msgspec.Struct, frozen=True):
    """A certificate or key, as data or as a file that may change later; data wins, as in kubectl."""

    path: str
    """The kubeconfig that contains it, for errors."""
    field: str
    """The field in that kubeconfig, for errors."""
    data: bytes | None = None
    file: str = ""

    def read(self) -> bytes:
        """The present content; raises ConfigurationError with field and file."""
        if self.data is not None:
            return self.data
        try:
            return Path(self.file).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                self.path,
                self.field,
                f"cannot read {self.file}: {error.strerror}",
                "check the path and its permissions",
            ) from error

    def __repr__(self) -> str:
        return f"PemSource({self.field!r}, {self.file or 'data'})"


class TlsSettings(msgspec.Struct, frozen=True):
    """How to verify the server, and the client certificate. Without ``ca`` the system's certificates are trusted."""

    ca: PemSource | None = None
    certificate: PemSource | None = None
    key: PemSource | None = None
    server_name: str = ""
    skip_verify: bool = False


class ExecSettings(msgspec.Struct, frozen=True):
    """A credential plugin (client.authentication.k8s.io); ``cluster`` is passed to it if it asks for that."""

    path: str
    field: str
    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    interactive_mode: str = "IfAvailable"
    install_hint: str = ""
    cluster: dict[str, object] | None = None


class User(msgspec.Struct, frozen=True):
    """The user to authenticate as. Secrets are not in its repr."""

    path: str = ""
    field: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec: ExecSettings | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    """``Impersonate-…`` headers."""

    def __repr__(self) -> str:
        kinds = [name for name in ("token", "token_file", "username", "exec") if getattr(self, name)]
        return f"User({', '.join(kinds) or 'no token'})"


class Configuration(msgspec.Struct, frozen=True):
    """Everything a client needs to connect to a cluster. ``server`` is a URL without a trailing slash."""

    server: str
    namespace: str = "default"
    tls: TlsSettings = TlsSettings()
    user: User = User()
    proxy: Proxy | None = None
    compression: bool = True
    context: str = ""
    """The context's name; empty for the cluster in which this process runs."""
    origin: str = ""
    """Where it was read, for people: file and context, or "in-cluster"."""


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
