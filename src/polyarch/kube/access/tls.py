"""The SSL context of the connection to the API server, new whenever a certificate changed (KR-001).

A fresh context is a fresh pool of connections: aiohttp keys its pool by the context a request is given, so that after a
rotation no request travels on a connection made with the old certificate, and none in flight is cut off.
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
"""Seconds between two looks at certificate files."""


class ClientCertificate(NamedTuple):
    """PEM bytes, as a credential plugin hands them out."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class _Material(NamedTuple):
    ca: bytes | None
    certificate: bytes
    key: bytes


class TlsContexts:
    """Gives the current context; files are read again every minute, plugin certificates taken as they come.

    Files that cannot be used leave the context as it is; only without one, or for a plugin, that is an error.
    """

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._due = float("-inf")
        self._plugin: ClientCertificate | None = None
        self._material: _Material | None = None
        self._context: ssl.SSLContext | None = None

    def current(self, plugin: ClientCertificate | None = None) -> ssl.SSLContext:
        """The context for the next request; the same object until something changed."""
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
            # Files are written one after the other; what worked a minute ago is better than no request at all.
            log.warning("certificates unusable, using the last ones", problem=str(error))
            self._due = now + RECHECK
            return self._context
        self._material, self._plugin, self._due = material, plugin, now + RECHECK
        return self._context

    def expire(self) -> None:
        """Look at the files again with the next request: the server did not take what we showed it."""
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
        # As Go does: whatever the bundle holds is trusted, be it an intermediate or the server's own certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(settings, "ca", "no certificate in PEM form can be read", error) from error
    if material.certificate:
        _load_chain(context, material, settings)
    return context


def _load_chain(context: ssl.SSLContext, material: _Material, settings: TlsSettings) -> None:
    """OpenSSL takes a chain from files only; the folder is readable by us alone and gone at once."""
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
    # Without this OpenSSL would ask on the terminal.
    raise ValueError("the client key is encrypted; a kubeconfig has no place for its password")


def _unusable(settings: TlsSettings, name: str, problem: str, error: Exception) -> ConfigurationError:
    pem = getattr(settings, name)
    detail = getattr(error, "reason", None) or str(error)
    if pem is None:
        return ConfigurationError("credential plugin", "status.clientCertificateData", f"{problem}: {detail}")
    source = f" in {pem.file}" if pem.file and pem.data is None else ""
    return ConfigurationError(pem.path, pem.field, f"{problem}{source}: {detail}")
