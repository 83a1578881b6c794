"""Metrics and health of an exporter, all on one port (NE-121).

By mode: ``disabled`` answers health on 127.0.0.1 alone and no metrics, ``http`` answers both to everybody, ``httptls``
the same over TLS. Where a certificate is still missing, health is answered without TLS on the same port until it is
there, so that ``/readyz`` can say so; metrics are not.
"""

import ssl
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from polyarch.clock import Clock
from polyarch.kube.certificates import Certificates, FileCertificates
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import Health, HttpServer, MetricsPage, text
from polyarch.numa.exporter.settings import MetricsSettings
from polyarch.numa.exporter.tls_policy import VERSIONS, openssl_ciphers

log = structlog.get_logger(__name__)

LOOPBACK: Final = "127.0.0.1"
AUTHORITIES: Final = "ca.crt"
"""In the directory of the certificate: the CAs of clients, if clients need certificates; without it the system's."""


class Endpoints:
    """The one listener of an exporter; ``run`` follows the certificate."""

    def __init__(self, settings: MetricsSettings, *, health: Health, metrics: Metrics, clock: Clock) -> None:
        self._settings = settings
        self._health = health
        self._page = MetricsPage(metrics)
        self.certificates = self._certificate_source(clock, metrics) if settings.mode == "httptls" else None
        host = LOOPBACK if settings.mode == "disabled" else settings.address
        self._host = host
        self._listener = HttpServer(self._serve_first, host=host, port=settings.port)

    def _certificate_source(self, clock: Clock, metrics: Metrics) -> Certificates:
        settings = self._settings
        return FileCertificates(
            settings.certs_dir, certificate=settings.cert_file, key=settings.key_file, clock=clock, metrics=metrics
        )

    @property
    def url(self) -> str:
        return self._listener.url

    def not_ready(self) -> str | None:
        """The readiness check."""
        return self.certificates.not_ready() if self.certificates is not None else None

    async def start(self) -> None:
        """Listens. Raises OSError if the port is taken."""
        await self._listener.start()

    def retire(self) -> None:
        self._listener.retire()

    async def stop(self, seconds: float = 0.0) -> None:
        await self._listener.stop(seconds)

    async def run(self) -> None:
        """Begins with TLS as soon as there is a certificate; returns then."""
        certificates = self.certificates
        if certificates is None:
            return
        await certificates.ready()
        context = certificates.context
        restrict(context, self._settings)
        port = self._listener.port
        await self._listener.stop()
        self._listener = HttpServer(self._serve, host=self._host, port=port, tls=context)
        await self._listener.start()
        log.info("metrics and health are served over TLS", url=self._listener.url)

    async def _serve_first(self, request: web.BaseRequest) -> web.Response:
        if self._settings.mode == "http":
            return await self._serve(request)
        if request.path == "/metrics":
            why = "metrics are turned off" if self.certificates is None else "no certificate was loaded yet"
            return text(404 if self.certificates is None else 503, why)
        return await self._health.serve(request)

    async def _serve(self, request: web.BaseRequest) -> web.Response:
        """A kubelet that asks for health has no certificate."""
        if request.path != "/metrics":
            return await self._health.serve(request)
        transport = request.transport
        if self._settings.want_client_certificates and not (transport and transport.get_extra_info("peercert")):
            return text(401, "send a client certificate: --metrics-want-cli-auth is set")
        return await self._page.serve(request)


def restrict(context: ssl.SSLContext, settings: MetricsSettings) -> None:
    """Versions, ciphers and client certificates as wanted (NE-122). Raises OSError or ssl.SSLError for unusable CAs."""
    if settings.min_tls_version:
        context.minimum_version = ssl.TLSVersion[VERSIONS[settings.min_tls_version]]
    if ciphers := openssl_ciphers(settings.cipher_suites):
        context.set_ciphers(ciphers)
    if settings.want_client_certificates:
        authorities = Path(settings.certs_dir) / AUTHORITIES
        if authorities.is_file():
            context.load_verify_locations(cafile=str(authorities))
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_OPTIONAL
