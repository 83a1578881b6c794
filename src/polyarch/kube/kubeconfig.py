"""Kubeconfig files: read, merged as kubectl merges them, and reduced to one context.

The first file that defines a name, or ``current-context``, wins; paths in a file are relative to that file. Every error
names the file and the field, because the reader often did not write the file. This is the only module of
``kube`` that reads YAML: the format requires it."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from polyarch.kube.credentials import GROUP, VERSIONS
from polyarch.kube.errors import ConfigurationError
from polyarch.kube.settings import Configuration, ExecSettings, PemSource, TlsSettings, User
from polyarch.proxies import InvalidProxy, Proxies, Proxy, parse
from polyarch.yaml_loader import SafeLoader

T = TypeVar("T")

_EXEC_EXTENSION: Final = f"{GROUP}/exec"


class _Struct(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class _Extension(_Struct, frozen=True):
    name: str = ""
    extension: Any = None


class _Cluster(_Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[_Extension] | None = None


class _Env(_Struct, frozen=True):
    name: str
    value: str


class _Exec(_Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_Env] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _User(_Struct, frozen=True, rename={"token_file": "tokenFile", "as_": "as"}):
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    client_certificate: str = msgspec.field(default="", name="client-certificate")
    client_certificate_data: str = msgspec.field(default="", name="client-certificate-data")
    client_key: str = msgspec.field(default="", name="client-key")
    client_key_data: str = msgspec.field(default="", name="client-key-data")
    exec: _Exec | None = None
    auth_provider: Any = msgspec.field(default=None, name="auth-provider")
    as_: str = ""
    as_uid: str = msgspec.field(default="", name="as-uid")
    as_groups: list[str] | None = msgspec.field(default=None, name="as-groups")


class _Context(_Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Struct, frozen=True):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(_Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(_Struct, frozen=True):
    name: str
    context: _Context | None = None


class _File(_Struct, frozen=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class _Found(msgspec.Struct, Generic[T], frozen=True):
    """A named entry and the file it comes from."""

    path: Path
    field: str
    value: T

    def error(self, field: str, problem: str, hint: str = "") -> ConfigurationError:
        return ConfigurationError(str(self.path), f"{self.field}.{field}" if field else self.field, problem, hint)

    def beside(self, name: str) -> str:
        """A path, resolved relative to the file that contains it."""
        return str(self.path.parent / name)


class _Merged:
    """All files merged."""

    def __init__(self) -> None:
        self.read: list[Path] = []
        self.current: tuple[Path, str] | None = None
        self.clusters: dict[str, _Found[_Cluster]] = {}
        self.users: dict[str, _Found[_User]] = {}
        self.contexts: dict[str, _Found[_Context]] = {}

    def add(self, path: Path, file: _File) -> None:
        self.read.append(path)
        if file.current_context and self.current is None:
            self.current = (path, file.current_context)
        for cluster in file.clusters or ():
            place = f"clusters[name={cluster.name}].cluster"
            self.clusters.setdefault(cluster.name, _Found(path, place, cluster.cluster or _Cluster()))
        for user in file.users or ():
            self.users.setdefault(user.name, _Found(path, f"users[name={user.name}].user", user.user or _User()))
        for context in file.contexts or ():
            place = f"contexts[name={context.name}].context"
            self.contexts.setdefault(context.name, _Found(path, place, context.context or _Context()))


def configuration(
    paths: Sequence[Path], context: str | None, environ: Mapping[str, str], *, required: bool
) -> Configuration:
    """The configuration of one context in these files; ``required``: every file has to exist."""
    merged = _Merged()
    for path in paths:
        if required or path.exists():
            merged.add(path, _read(path))
    if not merged.read:
        raise ConfigurationError(
            ", ".join(map(str, paths)), "", "there is no such kubeconfig", "give --kubeconfig, or set KUBECONFIG"
        )
    name, chosen = _context(merged, context)
    cluster = _named(merged.clusters, chosen, "cluster", chosen.value.cluster)
    user = _named(merged.users, chosen, "user", chosen.value.user) if chosen.value.user else None
    server = _server(cluster)
    return Configuration(
        server=server,
        namespace=chosen.value.namespace or "default",
        tls=_tls(cluster, user),
        user=_user(user, cluster) if user is not None else User(path=str(chosen.path), field=chosen.field),
        proxy=_proxy(cluster, server, environ),
        compression=not cluster.value.disable_compression,
        context=name,
        origin=f"{chosen.path}, context {name}",
    )


def _read(path: Path) -> _File:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            str(path), "", f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error
    try:
        document = _load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(
            str(path), where, f"is not YAML: {problem}", "kubectl config view shows it too"
        ) from None
    try:
        return msgspec.convert({} if document is None else document, _File)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).partition(" - at `$")
        raise ConfigurationError(
            str(path),
            field.rstrip("`").lstrip("."),
            problem[:1].lower() + problem[1:],
            "compare with kubectl config view",
        ) from None


def _load(text: bytes) -> Any:
    try:
        # JSON first: indented with tabs it is not valid YAML.
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return yaml.load(text, SafeLoader)  # noqa: S506 - safe


def _context(merged: _Merged, wanted: str | None) -> tuple[str, _Found[_Context]]:
    names = ", ".join(sorted(merged.contexts)) or "none"
    files = ", ".join(map(str, merged.read))
    if wanted is None and merged.current is None:
        raise ConfigurationError(files, "current-context", "is not set", f"give --context; there are: {names}")
    path, name = (files, wanted) if wanted is not None else merged.current or ("", "")
    try:
        return name, merged.contexts[name]
    except KeyError:
        field = "contexts" if wanted is not None else "current-context"
        raise ConfigurationError(str(path), field, f"there is no context {name!r}", f"there are: {names}") from None


def _named(entries: Mapping[str, _Found[T]], context: _Found[_Context], field: str, name: str) -> _Found[T]:
    try:
        return entries[name]
    except KeyError:
        names = ", ".join(sorted(entries)) or "none"
        problem = f"there is no {field} {name!r}" if name else "is not set"
        raise context.error(field, problem, f"there are: {names}") from None


def _server(cluster: _Found[_Cluster]) -> str:
    server = cluster.value.server
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise cluster.error("server", f"expected a URL like https://host:6443, found {server!r}")
    try:
        _ = parts.port
    except ValueError as error:
        raise cluster.error("server", f"{error} in {server!r}") from None
    return server.rstrip("/")


def _proxy(cluster: _Found[_Cluster], server: str, environ: Mapping[str, str]) -> Proxy | None:
    """``proxy-url`` applies regardless of ``NO_PROXY``, as in kubectl; without it the environment decides."""
    if cluster.value.proxy_url:
        try:
            return parse(cluster.value.proxy_url)
        except InvalidProxy as problem:
            raise cluster.error("proxy-url", str(problem), "before a SOCKS proxy an HTTP one would do") from None
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        return Proxies(environ).proxy_for(parts.scheme, parts.hostname or "", port)
    except InvalidProxy as problem:
        raise ConfigurationError("environment", "", str(problem), "or name the server in NO_PROXY") from None


def _tls(cluster: _Found[_Cluster], user: _Found[_User] | None) -> TlsSettings:
    value = cluster.value
    certificate = key = None
    if user is not None:
        certificate = _pem(
            user, "client-certificate", user.value.client_certificate, user.value.client_certificate_data
        )
        key = _pem(user, "client-key", user.value.client_key, user.value.client_key_data)
        if (certificate is None) != (key is None):
            missing = "client-key" if key is None else "client-certificate"
            raise user.error(missing, "is not set, but its counterpart is", "a client certificate needs both")
    return TlsSettings(
        ca=_pem(cluster, "certificate-authority", value.certificate_authority, value.certificate_authority_data),
        certificate=certificate,
        key=key,
        server_name=value.tls_server_name,
        skip_verify=value.insecure_skip_tls_verify,
    )


def _pem(found: _Found[Any], field: str, file: str, data: str) -> PemSource | None:
    if data:
        place = f"{found.field}.{field}-data"
        try:
            return PemSource(path=str(found.path), field=place, data=base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ConfigurationError(str(found.path), place, f"is not base64: {error}") from None
    if file:
        return PemSource(path=str(found.path), field=f"{found.field}.{field}", file=found.beside(file))
    return None


def _user(user: _Found[_User], cluster: _Found[_Cluster]) -> User:
    value = user.value
    if value.auth_provider is not None and value.exec is None and not (value.token or value.token_file):
        raise user.error(
            "auth-provider", "was removed from Kubernetes in 1.26", "use an exec plugin, such as kubelogin"
        )
    impersonate = [("Impersonate-User", value.as_)] if value.as_ else []
    if value.as_uid:
        impersonate.append(("Impersonate-Uid", value.as_uid))
    impersonate += [("Impersonate-Group", group) for group in value.as_groups or ()]
    return User(
        path=str(user.path),
        field=f"{user.field}.tokenFile" if value.token_file else user.field,
        token=value.token,
        token_file=user.beside(value.token_file) if value.token_file else "",
        username=value.username,
        password=value.password,
        exec=_exec(user, cluster, value.exec) if value.exec is not None else None,
        impersonate=tuple(impersonate),
    )


def _exec(user: _Found[_User], cluster: _Found[_Cluster], settings: _Exec) -> ExecSettings:
    if settings.api_version not in VERSIONS:
        problem = f"expected one of {', '.join(VERSIONS)}, found {settings.api_version or 'nothing'!r}"
        raise user.error("exec.apiVersion", problem, "a newer release of the plugin writes a newer kubeconfig")
    if settings.interactive_mode not in ("Never", "IfAvailable", "Always"):
        problem = f"expected Never, IfAvailable or Always, found {settings.interactive_mode!r}"
        raise user.error("exec.interactiveMode", problem)
    # As in client-go: a bare name is looked up in PATH, a name with a slash is relative to the file.
    command = user.beside(settings.command) if "/" in settings.command else settings.command
    return ExecSettings(
        path=str(user.path),
        field=f"{user.field}.exec",
        command=command,
        api_version=settings.api_version,
        args=tuple(settings.args or ()),
        env=tuple((entry.name, entry.value) for entry in settings.env or ()),
        interactive_mode=settings.interactive_mode,
        install_hint=" ".join(settings.install_hint.split()),
        cluster=_cluster_info(cluster) if settings.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Found[_Cluster]) -> dict[str, object]:
    """ExecCredential ``spec.cluster``, with the contents of files inlined."""
    value = cluster.value
    info: dict[str, object] = {"server": value.server}
    if value.tls_server_name:
        info["tls-server-name"] = value.tls_server_name
    if value.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    ca = _pem(cluster, "certificate-authority", value.certificate_authority, value.certificate_authority_data)
    if ca is not None:
        info["certificate-authority-data"] = base64.b64encode(ca.read()).decode()
    if value.proxy_url:
        info["proxy-url"] = value.proxy_url
    for extension in value.extensions or ():
        if extension.name == _EXEC_EXTENSION:
            info["config"] = extension.extension
    return info
