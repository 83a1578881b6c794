"""The status listener: health, metrics and ``/numa/state`` over TLS (NS-087).

Health is for everybody, since a kubelet has no token. Metrics and the state are for those whom the API server allows to
``get`` these paths. Without ``--cert-dir`` the certificate is one that the process makes for itself when it starts, as
the kube-scheduler in the same pod does: nothing has to be mounted, and whoever wants to check it gives it files.
"""

import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from aiohttp import web

from polyarch.clock import Clock
from polyarch.kube.certificates import Certificates, FileCertificates, KeyPair
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import JSON_HEADERS, Health, HttpServer, MetricsPage, ReviewClient, ScraperAuthorization, text
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.names import STATE_PATH

LIFETIME: Final = timedelta(days=365)
"""Of a certificate of its own."""
INTERVAL: Final = 3600.0
"""Seconds between two looks at whether it is due."""
FORWARDED: Final = "Polyarch-Authorization"
"""The token, for those who come through the API server's proxy, which keeps ``Authorization`` to itself."""

StateOf = Callable[[frozenset[str]], Awaitable[bytes]]
"""The state document of the nodes of these names; of all without one."""


class Endpoints:
    """The listener; ``certificates.run`` keeps its certificate."""

    def __init__(
        self,
        settings: ExtenderSettings,
        *,
        client: ReviewClient,
        health: Health,
        metrics: Metrics,
        state: StateOf,
        clock: Clock,
    ) -> None:
        host, port = settings.status_listen
        self._health = health
        self._state = state
        self._page = MetricsPage(metrics, authorization=ScraperAuthorization(client, clock=clock))
        reads = {"nonResourceAttributes": {"path": STATE_PATH, "verb": "get"}}
        self._readers = ScraperAuthorization(client, attributes=reads, clock=clock)
        self.certificates = (
            FileCertificates(settings.cert_dir, clock=clock, metrics=metrics)
            if settings.cert_dir
            else _own_certificate(clock, metrics)
        )
        self._listener = HttpServer(self._serve, host=host, port=port, tls=self.certificates.context)

    @property
    def url(self) -> str:
        return self._listener.url

    def not_ready(self) -> str | None:
        """The readiness check."""
        return self.certificates.not_ready()

    async def start(self) -> None:
        """Listens. Raises OSError if the port is taken."""
        await self._listener.start()

    def retire(self) -> None:
        self._listener.retire()

    async def stop(self, seconds: float = 0.0) -> None:
        await self._listener.stop(seconds)

    async def _serve(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/metrics":
            return await self._page.serve(request)
        if request.path != STATE_PATH:
            return await self._health.serve(request)
        if request.method != "GET":
            return text(405, f"{STATE_PATH} is read with GET", Allow="GET")
        refusal = await self._readers.refusal(
            request.headers.get("Authorization", "") or request.headers.get(FORWARDED, "")
        )
        if refusal is not None:
            return refusal
        names = frozenset(request.query.getall("node", []))
        return web.Response(body=await self._state(names), headers=JSON_HEADERS)


def _own_certificate(clock: Clock, metrics: Metrics) -> Certificates:
    """Made in memory, and again when two thirds of its life are over."""
    from polyarch.kube import x509  # 5 MiB that a process with files saves

    pairs: list[tuple[x509.Certificate, KeyPair]] = []

    async def read() -> KeyPair:
        now = clock.now()
        if not pairs or x509.is_due(pairs[-1][0], now):
            authority = x509.make_authority("polyarch numa-extender", now=now, lifetime=LIFETIME)
            leaf = x509.issue(
                authority,
                x509.Subject("numa-extender"),
                now=now,
                lifetime=LIFETIME,
                purposes=[x509.Purpose.SERVER],
                names=tuple(dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1"))),
            )
            chain = x509.pem(leaf.certificate, authority.certificate)
            pairs[:] = [(leaf.certificate, KeyPair(chain, leaf.key_pem))]
        return pairs[-1][1]

    return Certificates(read, "memory", clock=clock, metrics=metrics, interval=INTERVAL)
