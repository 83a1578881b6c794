"""The TLS context for connections to the API server, made anew when a certificate changes (KR-001).

aiohttp keys its connection pool by the context of a request. So after a rotation new requests use new connections, and
requests in flight finish on the old ones.
"""

import ssl
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from polyarch.kube.access.settings import TlsSettings
from polyarch.kube.clock import Clock
from polyarch.kube.errors import ConfigurationError

log = structlog.get_logger(__name__)

RECHECK: Final = 60.0
"""Seconds between two reads of the certificate files."""


class ClientCertificate(NamedTuple):
    """A client certificate from a credential plugin, as PEM bytes."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class _Material(NamedTuple):
    ca: bytes | None
    certificate: bytes
    key: bytes


class TlsContexts:
    """Provides the current context. Files are read again every minute; a plugin's certificate is used as it comes.

    If the certificates cannot be used, the present context stays in use. It is an error only if there is none, or if a
    plugin has issued a new certificate.
    """

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._due = float("-inf")
        self._plugin: ClientCertificate | None = None
        self._material: _Material | None = None
        self._context: ssl.SSLContext | None = None

    def current(self, plugin: ClientCertificate | None = None) -> ssl.SSLContext:
        """The context for the next request; the same object until a certificate changes."""
        now = self._clock.monotonic()
        if self._context is not None and now < self._due and plugin is self._plugin:
            return self._context
        try:
            material = self._read(plugin)
            if self._context is None or material != self._material:
                self._context = _context(material, self._settings)
        except ConfigurationError as error:
            if self._context is None or plugin is not self._plugin:
                raise
            # A rotation writes the files one by one; until it is complete the last context still works.
            log.warning("certificates unusable, using the last ones", problem=str(error))
            self._due = now + RECHECK
            return self._context
        self._material, self._plugin, self._due = material, plugin, now + RECHECK
        return self._context

    def expire(self) -> None:
        """Makes the next request read the files again: the server rejected our certificate."""
        self._due = float("-inf")

    def _read(self, plugin: ClientCertificate | None) -> _Material:
        settings = self._settings
        ca = settings.ca.read() if settings.ca is not None else None
        if plugin is not None:
            return _Material(ca, plugin.certificate, plugin.key)
        if settings.certificate is None or settings.key is None:
            return _Material(ca, b"", b"")
        return _Material(ca, settings.certificate.read(), settings.key.read())


def _context(material: _Material, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif material.ca is None:
        context.load_default_certs()
    else:
        # As in Go: every certificate of the bundle is trusted, also an intermediate or the server's own.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(settings, "ca", "no certificate in PEM form can be read", error) from error
    if material.certificate:
        _load_chain(context, material, settings)
    return context


def _load_chain(context: ssl.SSLContext, material: _Material, settings: TlsSettings) -> None:
    """OpenSSL reads chains only from files; they are in a private directory, deleted at once."""
    with tempfile.TemporaryDirectory(prefix="polyarch-") as folder:
        chain = Path(folder) / "client.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(material.certificate + b"\n" + material.key)
        try:
            context.load_cert_chain(chain, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            problem = "certificate and key do not belong together, or are not in PEM form"
            raise _unusable(settings, "certificate", problem, error) from error


def _no_password() -> str:
    # Without this OpenSSL would prompt on the terminal.
    raise ValueError("the client key is encrypted; a kubeconfig has no place for its password")


def _unusable(settings: TlsSettings, name: str, problem: str, error: Exception) -> ConfigurationError:
    pem = getattr(settings, name)
    detail = getattr(error, "reason", None) or str(error)
    if pem is None:
        return ConfigurationError("credential plugin", "status.clientCertificateData", f"{problem}: {detail}")
    source = f" in {pem.file}" if pem.file and pem.data is None else ""
    return ConfigurationError(pem.path, pem.field, f"{problem}{source}: {detail}")
