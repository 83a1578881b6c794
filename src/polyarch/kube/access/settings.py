"""Which API server, and as whom (KR-001), as values that say where they were read."""

from pathlib import Path

import msgspec

from polyarch.kube.errors import ConfigurationError
from polyarch.proxies import Proxy


class Pem(msgspec.Struct, frozen=True):
    """A certificate or key, given as data or as a file that may change under us; data wins, as in kubectl."""

    path: str
    """The kubeconfig that says so, for errors."""
    field: str
    """The place in it, for errors."""
    data: bytes | None = None
    file: str = ""

    def read(self) -> bytes:
        """The bytes as they are now; raises ConfigurationError naming the field and the file."""
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
        return f"Pem({self.field!r}, {self.file or 'data'})"


class TlsSettings(msgspec.Struct, frozen=True):
    """How the server is known and how we present ourselves. Without ``ca`` the system's certificates are trusted."""

    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    server_name: str = ""
    skip_verify: bool = False


class ExecSettings(msgspec.Struct, frozen=True):
    """A credential plugin (client.authentication.k8s.io); ``cluster`` is what it is told if it asks for it."""

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
    """As whom. Secrets are not in its repr."""

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
    """Everything a client needs to know of a cluster. ``server`` is a URL without a slash at its end."""

    server: str
    namespace: str = "default"
    tls: TlsSettings = TlsSettings()
    user: User = User()
    proxy: Proxy | None = None
    compression: bool = True
    origin: str = ""
    """Where it was read, for people: file and context, or "in-cluster"."""
