"""The status listener: health, metrics and ``/numa/state`` over TLS.

Health is for everybody, since a kubelet has no token. Metrics and the state are for those whom the API server allows to
``get`` these paths. Without ``--cert-dir`` the certificate is one that the process makes for itself when it starts, as
the kube-scheduler in the same pod does: nothing has to be mounted, and whoever wants to check it gives it files.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response

from polyarch.clock import Clock
from polyarch.kube.certificates import Certificates, FileCertificates, KeyPair
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import JSON_HEADERS, Health, HttpServer, MetricsPage, ReviewClient, ScraperAuthorization, text
from polyarch.numa.extender.engine import Engine
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import CacheState, NodeState, Options, State, document
from polyarch.numa.names import STATE_PATH

LIFETIME: Final = timedelta(days=365)
"""Of a certificate of its own."""
INTERVAL: Final = 3600.0
"""Seconds between two looks at whether it is due."""
FORWARDED: Final = "Polyarch-Authorization"
"""The token, for those who come through the API server's proxy, which keeps ``Authorization`` to itself."""

StateOf = Callable[[frozenset[str]], Awaitable[bytes]]
"""The state document of the nodes of these names; of all without one."""


class StatusListener:
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

    async def _serve(self, request: BaseRequest) -> Response:
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
        return Response(body=await self._state(names), headers=JSON_HEADERS)


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


# -- the state document ------------------------------------------------------------------------------------------------


AT_ONCE: Final = 100
"""Nodes between two looks at whether somebody else has something to do."""
_encode: Final = msgspec.json.Encoder().encode


class _Pieces(State, frozen=True, kw_only=True):
    nodes: tuple[msgspec.Raw, ...] = ()  # type: ignore[assignment]


class StateDocumentWriter:
    """Writes the document of ``/numa/state``."""

    def __init__(
        self,
        engine: Engine,
        *,
        caches: Callable[[], Mapping[str, CacheState]],
        problem: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._caches = caches
        self._problem = problem
        self._clock = clock

    async def state(self, names: frozenset[str]) -> bytes:
        """Of the nodes of these names; of all without one."""
        books, now = self._engine.books, self._clock.monotonic()
        wanted = sorted(name for name in books.names() if not names or name in names)
        pieces: list[msgspec.Raw] = []
        for start in range(0, len(wanted), AT_ONCE):
            states: list[NodeState] = [books.node_state(name, now) for name in wanted[start : start + AT_ONCE]]
            pieces += [msgspec.Raw(_encode(each)) for each in states]
            await asyncio.sleep(0)
        found = set(wanted)
        return document(
            _Pieces(
                problem=self._problem(),
                options=options(self._engine.settings),
                caches=self._caches(),
                nodes=tuple(pieces),
                reservations=tuple(each for each in books.reservations(now) if each.node in found),
                verdicts=tuple(self._engine.verdicts(now)),
            )
        )


def options(settings: ExtenderSettings) -> Options:
    """What decisions depend on beside the cluster."""
    return Options(
        mode=settings.mode,
        scheduler_name=settings.scheduler_name,
        strategy=settings.strategy,
        weights=settings.weights,
        restricted=settings.restricted,
        best_effort=settings.best_effort,
        unknown_nodes=settings.unknown_nodes,
        candidates=settings.candidates,
        reservations=settings.reservations,
        evicts=settings.evicts,
    )
