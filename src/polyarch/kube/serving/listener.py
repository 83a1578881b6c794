"""An HTTP/1.1 listener, plain or TLS, for a role's admission, health and metrics endpoints.

It uses aiohttp's low-level server, without application, router and middlewares, which would cost more than an admission
itself. Only new connections use the TLS context, so another certificate can be loaded into it at any time. Bodies are
read with a size limit; compressed bodies are not decompressed (an API server does not send them).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Self

import structlog
from aiohttp import web

log = structlog.get_logger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]

KEEP_ALIVE: Final = 120.0
"""Seconds; above the API server's 90 s, so that the client closes idle connections first and no request is cut off."""

_CUT_OFF: Final = 0.1
"""Seconds that aiohttp gives a connection at the very end; it takes zero as no limit."""

JSON_HEADERS: Final = {"Content-Type": "application/json", "Server": "polyarch"}
_TEXT_HEADERS: Final = {"Content-Type": "text/plain; charset=utf-8", "Server": "polyarch"}


class BodyTooLarge(Exception):  # noqa: N818 - what happened
    """The request's body exceeds the limit."""


class HttpServer:
    """A listener and async context manager. With ``port`` 0 it takes a free port; see :attr:`port`."""

    def __init__(
        self, handler: Handler, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._tls = tls
        self._retired = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._runner: web.ServerRunner | None = None

    @property
    def port(self) -> int:
        """The port it listens on; before ``start``, the port requested."""
        return self._port

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    async def start(self) -> None:
        """Starts listening. Raises OSError if the address is not available."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE,
            access_log=None,
            auto_decompress=False,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_CUT_OFF)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, ssl_context=self._tls).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        self._runner = runner

    def retire(self) -> None:
        """Closes each connection after its next response, so that clients move to other replicas before the stop."""
        self._retired = True

    async def stop(self, seconds: float = 0.0) -> None:
        """Stops accepting connections, gives requests in flight ``seconds`` to finish, then cuts them off."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self.retire()
        try:
            for site in runner.sites:
                await site.stop()
            if self._busy and seconds > 0:
                self._idle.clear()
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
        except TimeoutError:
            log.warning("requests cut off at the end of the process", requests=self._busy, waited=seconds)
        finally:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        self._busy += 1
        try:
            response = await self._handler(request)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
        if self._retired:
            response.force_close()
        return response


async def read_body(request: web.BaseRequest, limit: int, seconds: float) -> bytes:
    """The whole body. Raises :class:`BodyTooLarge` as soon as it is known to exceed ``limit`` bytes.

    Raises TimeoutError if it has not arrived within ``seconds``.
    """
    if (request.content_length or 0) > limit:
        raise BodyTooLarge
    content = request.content
    if content.is_eof():  # all of it came with the headers: no need for a deadline
        body = content.read_nowait()
        if len(body) > limit:
            raise BodyTooLarge
        return body
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(seconds):
        while not content.at_eof():
            parts.append(await content.readany())
            size += len(parts[-1])
            if size > limit:
                raise BodyTooLarge
    return b"".join(parts)


def text(status: int, sentence: str, **headers: str) -> web.Response:
    """A plain-text response, mostly one sentence for a request to a wrong path or with a wrong method."""
    return web.Response(status=status, text=sentence + "\n", headers={**_TEXT_HEADERS, **headers})
