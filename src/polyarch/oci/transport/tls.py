"""TLS contexts per host, and the transport modes to try for an insecure source.

The trust store is the system's, plus additions for all hosts (``SSL_CERT_FILE``, ``--ca``, a ConfigMap), plus files for
one host from ``certs.d`` directories and containerd's ``hosts.toml``. Files are read in a thread, once per host; hosts
without files of their own share one context, so that a thousand registries load the store once."""

import asyncio
import enum
import os
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from polyarch.oci.mirror_files import ClientCertificate, Tls
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_HOST
from polyarch.oci.transport.addresses import InvalidSetting, is_loopback_host
from polyarch.oci.transport.interface import TransportError

SYSTEM_DIRECTORIES = ("/etc/containers/certs.d", "/etc/docker/certs.d")
# Where distributions keep their store, for interpreters whose OpenSSL was built to look elsewhere.
SYSTEM_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
MAX_REMEMBERED = 4096
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")


class TransportMode(enum.Enum):
    """Protocol to a source, from best to worst."""

    VERIFIED = "https, verified"
    UNVERIFIED = "https, not verified"
    PLAIN = "plain http"

    @property
    def verified(self) -> bool:
        return self is TransportMode.VERIFIED

    def url(self, base_url: str) -> str:
        """The base URL with the scheme of this transport mode."""
        rest = base_url.partition("://")[2]
        return f"{'http' if self is TransportMode.PLAIN else 'https'}://{rest}"


def transport_modes(source: PullSource, *, loopback: bool = False) -> tuple[TransportMode, ...]:
    """The transport modes to try for a source, in order; several only for a source configured as insecure.

    With ``loopback``, hosts that name this machine count as insecure (the command line). Continue with the next
    transport mode only if :func:`try_next` says so, and never for another host than the source's.
    """
    if source.base_url.startswith("http://"):
        return (TransportMode.PLAIN,)
    insecure = source.insecure or (loopback and is_loopback_host(source.host))
    if source.tls.skip_verify:
        return (TransportMode.UNVERIFIED, TransportMode.PLAIN) if insecure else (TransportMode.UNVERIFIED,)
    return (
        (TransportMode.VERIFIED, TransportMode.UNVERIFIED, TransportMode.PLAIN)
        if insecure
        else (TransportMode.VERIFIED,)
    )


def try_next(error: TransportError) -> bool:
    """Whether to try the next transport mode: the handshake failed, or the connection was refused."""
    return error.cause in ("handshake", "refused")


def check_certificates(data: str) -> None:
    """``InvalidSetting`` unless the text contains PEM certificates."""
    _load_data(_empty_context(), data, "the CA bundle")


class TrustSettings(msgspec.Struct, frozen=True):
    """Sources of trust. ``directories`` contain ``<host[:port]>/*.crt`` and ``X.cert`` with ``X.key``."""

    ca_files: tuple[str, ...] = ()
    ca_data: str = ""
    directories: tuple[str, ...] = ()
    system: bool = True
    host_data: Mapping[str, str] = {}
    """Further certificates (PEM) for single hosts, by ``host[:port]``."""

    @classmethod
    def of(
        cls,
        *,
        ca: Iterable[str] = (),
        ca_data: str = "",
        certs_dir: str | None = None,
        environ: Mapping[str, str] | None = None,
        system_directories: Sequence[str] = SYSTEM_DIRECTORIES,
    ) -> "TrustSettings":
        """The usual locations, with ``--ca`` and ``--certs-dir``; client certificates of earlier directories come
        first.
        """
        environ = os.environ if environ is None else environ
        named = environ.get("SSL_CERT_FILE", "")
        home = environ.get("HOME", "")
        directories = (
            *([certs_dir] if certs_dir else []),
            *([f"{home}/.config/containers/certs.d"] if home else []),
            *system_directories,
        )
        return cls((*([named] if named else []), *ca), ca_data, directories)


class TrustStore:
    """Builds TLS contexts. ``InvalidSetting`` on construction if a CA for all hosts is unusable."""

    def __init__(self, settings: TrustSettings | None = None) -> None:
        self._settings = TrustSettings.of() if settings is None else settings
        self._building = asyncio.Lock()
        self._contexts: dict[tuple[bool, _Files], ssl.SSLContext] = {}
        self._hosts: dict[str, _Files] = {}
        self._begun = _begin(self._settings)

    def replace(self, *, ca_data: str, host_data: Mapping[str, str] | None = None) -> None:
        """Replace ``ca_data`` and ``host_data`` (PEM); existing connections stay open."""
        settings = msgspec.structs.replace(self._settings, ca_data=ca_data, host_data=dict(host_data or {}))
        for data in settings.host_data.values():
            check_certificates(data)
        self._begun = _begin(settings)
        self._settings = settings
        self._contexts.clear()
        self._hosts.clear()

    async def context(self, host: str, *, verified: bool = True, tls: Tls | None = None) -> ssl.SSLContext:
        """The context for ``host[:port]``. :class:`InvalidSetting` names an unusable file for this host."""
        extra = _Files() if tls is None else _Files(tls.ca, tls.clients)
        if (context := self._known(host, extra, verified=verified)) is not None:
            return context
        async with self._building:
            if (context := self._known(host, extra, verified=verified)) is not None:
                return context
            settings = self._settings
            found = self._hosts.get(host)
            if found is None:
                found = await asyncio.to_thread(_files_for, host, settings)
            files = found.with_more(extra)
            context = self._contexts.get((verified, files))
            if context is None:
                begun = None
                if verified and not (files.ca or files.ca_data) and settings is self._settings:
                    begun, self._begun = self._begun, None
                context = await asyncio.to_thread(_context, settings, files, verified=verified, begun=begun)
            if settings is self._settings:
                self._remember(host, found, (verified, files), context)
            return context

    def _known(self, host: str, extra: "_Files", *, verified: bool) -> ssl.SSLContext | None:
        found = self._hosts.get(host)
        return None if found is None else self._contexts.get((verified, found.with_more(extra)))

    def _remember(self, host: str, found: "_Files", key: "tuple[bool, _Files]", context: ssl.SSLContext) -> None:
        if len(self._hosts) >= MAX_REMEMBERED:  # hosts are chosen by pod authors
            self._hosts.clear()
            self._contexts.clear()
        self._hosts[host] = found
        self._contexts[key] = context


class _Files(msgspec.Struct, frozen=True):
    """Files for one host; the first client certificate is used."""

    ca: tuple[str, ...] = ()
    clients: tuple[ClientCertificate, ...] = ()
    ca_data: str = ""

    def with_more(self, more: "_Files") -> "_Files":
        if not (more.ca or more.clients):
            return self
        return _Files(self.ca + more.ca, more.clients + self.clients, self.ca_data)


def _files_for(host: str, settings: TrustSettings) -> _Files:
    names = (host, DOCKER_HUB) if host == DOCKER_HUB_HOST else (host,)
    ca: list[str] = []
    clients: list[ClientCertificate] = []
    for place in (Path(directory, name) for directory in settings.directories for name in names):
        try:
            files = sorted(entry for entry in place.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InvalidSetting(f"{place}: the certificates cannot be listed: {error.strerror}") from None
        present = {file.name for file in files}
        for file in files:
            if file.suffix == ".crt":
                ca.append(str(file))
            elif file.suffix == ".cert":
                key = file.with_suffix(".key")
                if key.name not in present:
                    raise InvalidSetting(f"{key} is missing; it is the key of the client certificate {file.name}")
                clients.append(ClientCertificate(str(file), str(key)))
            elif file.suffix == ".key" and file.with_suffix(".cert").name not in present:
                raise InvalidSetting(f"{file.with_suffix('.cert')} is missing; {file.name} is the key of it")
    data = "\n".join(settings.host_data[name] for name in names if name in settings.host_data)
    return _Files(tuple(ca), tuple(clients), data)


def _begin(settings: TrustSettings) -> ssl.SSLContext | None:
    """Load the CAs for all hosts, so that an error in them is a usage error before the first request. The result
    becomes the first verified context: loading a whole store takes as long as ten images.
    """
    if not (settings.ca_files or settings.ca_data):
        return None
    context = _empty_context()
    _load_common(context, settings)
    return context


def _context(
    settings: TrustSettings, files: _Files, *, verified: bool, begun: ssl.SSLContext | None = None
) -> ssl.SSLContext:
    """A new context; ``begun``: the result of :func:`_begin` for the same settings, if still unused."""
    context = _empty_context() if begun is None else begun
    if verified:
        if begun is None:
            _load_common(context, settings)
        if settings.system:
            _load_system(context, loaded=settings.ca_files)
        for file in files.ca:
            _load_file(context, file)
        if files.ca_data:
            _load_data(context, files.ca_data, "the CA bundle for this host")
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    for client in reversed(files.clients):  # of several for one kind of key the last that is loaded is shown
        _load_client(context, client)
    return context


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # As in the container tools: whatever is in the store is trusted, be it a root, an intermediate or a leaf.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_system(context: ssl.SSLContext, *, loaded: Sequence[str]) -> None:
    """Load the system's store, unless it is one of the ``loaded`` files: ``SSL_CERT_FILE`` often names it."""
    paths = ssl.get_default_verify_paths()
    if Path(paths.openssl_cafile).is_file():
        if os.path.realpath(paths.openssl_cafile) not in map(os.path.realpath, loaded):
            _load_file(context, paths.openssl_cafile)
        return
    directory = Path(paths.openssl_capath)
    if directory.is_dir() and any(_HASHED.fullmatch(entry.name) for entry in directory.iterdir()):
        context.load_verify_locations(capath=str(directory))  # OpenSSL looks in it when it needs to
        return
    for store in SYSTEM_STORES:
        if Path(store).is_file():
            _load_file(context, store)
            return


def _load_common(context: ssl.SSLContext, settings: TrustSettings) -> None:
    for file in settings.ca_files:
        _load_file(context, file)
    if settings.ca_data:
        _load_data(context, settings.ca_data, "the additional CA bundle")


def _load_data(context: ssl.SSLContext, data: str, what: str) -> None:
    try:
        context.load_verify_locations(cadata=data)
    except (ssl.SSLError, ValueError):
        raise InvalidSetting(f"{what} holds no PEM certificates, or a damaged one") from None


def _load_file(context: ssl.SSLContext, file: str) -> None:
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise InvalidSetting(f"{file} holds no PEM certificates, or a damaged one") from None
    except OSError as error:
        raise InvalidSetting(f"the CA file {file} cannot be read: {error.strerror}") from None


def _load_client(context: ssl.SSLContext, client: ClientCertificate) -> None:
    names = " and ".join(filter(None, (client.certificate, client.key)))
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(client.certificate, client.key or None, password="")
    except ssl.SSLError:
        raise InvalidSetting(f"{names} are not a PEM certificate with its key, unencrypted") from None
    except OSError as error:
        raise InvalidSetting(f"the client certificate {names} cannot be read: {error.strerror}") from None
