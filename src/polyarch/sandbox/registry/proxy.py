"""The registry proxy: ``python -m polyarch.sandbox.registry.proxy FOLDER``.

It listens at the sandbox's registry address, checks access (``access``), issues tokens at ``/token``, forwards all
other requests unchanged to the distribution registry, and writes one JSON line per request to the access log.
"""

import asyncio
import contextlib
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from polyarch.sandbox import namespaces
from polyarch.sandbox.certificates import Pki
from polyarch.sandbox.network import GATEWAY, GATEWAY_REGISTRY_PORT
from polyarch.sandbox.registry.access import SERVICE, AccessFile, AccessList, parse_basic
from polyarch.sandbox.state import LOOPBACK, Folder

TOKEN_SECONDS = 300
MAXIMUM_TOKENS = 10_000
CHUNK_BYTES = 1 << 16
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "authorization",
    }
)


USER = web.RequestKey("user", str)
"""The user who made a request, for the access log; empty: anonymous."""


class LogLine(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the access log."""

    time: str
    method: str
    path: str
    status: int
    milliseconds: float
    bytes: int
    repository: str
    reference: str
    user: str
    user_agent: str


def parse_path(path: str) -> tuple[str, str, str]:
    """(repository, kind, reference) of a path below ``/v2/``; kind is manifests, blobs, tags or empty."""
    rest = path.removeprefix("/v2/")
    for kind in ("manifests", "blobs", "tags"):
        name, separator, reference = rest.rpartition(f"/{kind}/")
        if separator:
            return name, kind, reference
    return "", "", ""


def repository_of(path: str) -> str:
    """The repository of a path, also of an upload path, which continues after ``/blobs/uploads/``."""
    name, separator, _ = path.removeprefix("/v2/").partition("/blobs/uploads/")
    return name if separator else parse_path(path)[0]


class Tokens:
    """Issued tokens: opaque, for one user, valid as long as Docker Hub's."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    def issue(self, user: str, now: float) -> str:
        """A new token of this user (empty: anonymous)."""
        if len(self._known) >= MAXIMUM_TOKENS:
            self._known = {token: entry for token, entry in self._known.items() if entry[1] > now}
        token = secrets.token_urlsafe(32)
        self._known[token] = (user, now + TOKEN_SECONDS)
        return token

    def user(self, token: str, now: float) -> str | None:
        """The token's user; None if it is unknown or expired."""
        user, expires = self._known.get(token, ("", 0.0))
        return user if expires > now else None


class RegistryProxy:
    """The handlers of the server."""

    def __init__(self, access: AccessFile, *, storage: str, address: str, log: IO[bytes]) -> None:
        self._access = access
        self._storage = storage
        self._address = address
        self._log = log
        self._tokens = Tokens()
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        application = web.Application(client_max_size=0, middlewares=[self._logged])
        application.cleanup_ctx.append(self._upstream)
        application.router.add_get("/token", self.token)
        application.router.add_post("/token", self.exchange)
        application.router.add_get("/healthz", self.health)
        application.router.add_route("*", "/v2/{rest:.*}", self.serve)
        return application

    async def _upstream(self, _: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            self._session = session
            yield

    async def health(self, _: web.Request) -> web.Response:
        """Healthy if the distribution registry is."""
        assert self._session is not None  # noqa: S101  set while the application runs
        try:
            async with self._session.get(f"{self._storage}/v2/") as answer:
                return web.Response(status=answer.status)
        except aiohttp.ClientError as error:
            return web.Response(status=503, text=f"the distribution registry does not answer: {error}")

    async def token(self, request: web.Request) -> web.Response:
        """Token endpoint as on Docker Hub: a user's token for a password, an anonymous token without one."""
        header = request.headers.get("Authorization", "")
        if not header:
            return self._token_answer("")
        given = parse_basic(header)
        if given is None or not self._access.current().user_of_password(*given):
            return web.json_response(_error("UNAUTHORIZED", "incorrect user name or password"), status=401)
        request[USER] = given[0]
        return self._token_answer(given[0])

    async def exchange(self, request: web.Request) -> web.Response:
        """OAuth 2 token endpoint: a token for an identity token, or for user and password."""
        form = dict(await _form(request))
        access = self._access.current()
        user: str | None = None
        if form.get("grant_type") == "refresh_token":
            user = access.user_of_identity_token(form.get("refresh_token", ""))
        elif form.get("grant_type") == "password":
            name = form.get("username", "")
            user = name if access.user_of_password(name, form.get("password", "")) else None
        if user is None:
            return web.json_response(_error("UNAUTHORIZED", "the grant is not valid"), status=401)
        request[USER] = user
        return self._token_answer(user)

    def _token_answer(self, user: str) -> web.Response:
        token = self._tokens.issue(user, time.monotonic())
        return web.json_response({"token": token, "access_token": token, "expires_in": TOKEN_SECONDS})

    def _user(self, request: web.Request, access: AccessList) -> str | None:
        """The requesting user, None if anonymous; raises 401 for invalid credentials."""
        header = request.headers.get("Authorization", "")
        if not header:
            return None
        if (given := parse_basic(header)) is not None:
            if access.user_of_password(*given):
                return given[0]
        elif header.lower().startswith("bearer "):
            user = self._tokens.user(header[7:].strip(), time.monotonic())
            if user is not None:
                return user or None
        raise self._refusal(request, access, "invalid_token")

    def _refusal(self, request: web.Request, access: AccessList, error: str) -> web.HTTPUnauthorized:
        repository = repository_of(request.path)
        private = access.private.get(repository)
        if private is not None and private.scheme == "basic":
            challenge = f'Basic realm="{SERVICE}"'
        else:
            actions = "pull" if request.method in {"GET", "HEAD"} else "pull,push"
            scope = f',scope="repository:{repository}:{actions}"' if repository else ""
            problem = f',error="{error}"' if error else ""
            # Nodes that are real come over TLS, by another address.
            realm = f"https://{request.host}" if request.secure else f"http://{self._address}"
            challenge = f'Bearer realm="{realm}/token",service="{SERVICE}"{scope}{problem}'
        body = msgspec.json.encode(_error("UNAUTHORIZED", "authentication required")).decode()
        headers = {"WWW-Authenticate": challenge}
        return web.HTTPUnauthorized(headers=headers, text=body, content_type="application/json")

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Everything below ``/v2/``."""
        access = self._access.current()
        user = self._user(request, access)
        request[USER] = user or ""
        repository = repository_of(request.path)
        if request.path == "/v2/" and user is None and access.private:
            # Hosted registries do the same: clients learn from this challenge how to log in.
            raise self._refusal(request, access, "")
        if repository and not access.allows(user, repository):
            raise self._refusal(request, access, "insufficient_scope" if user else "")
        if (delay := access.slow.get(repository, 0)) and "/manifests/" in request.path:
            await asyncio.sleep(delay / 1000)
        return await self._forward(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101  set while the application runs
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        body = request.content if request.body_exists else None
        url = f"{self._storage}{request.raw_path}"
        try:
            async with self._session.request(
                request.method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False
            ) as answer:
                kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
                response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=dict(kept))
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientConnectionError as error:
            return web.json_response(_error("UNAVAILABLE", f"the distribution registry: {error}"), status=503)

    @web.middleware
    async def _logged(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()

        status, length = 500, 0
        try:
            response: web.StreamResponse = await handler(request)
            status, length = response.status, response.body_length
            return response
        except web.HTTPException as refusal:
            status, length = refusal.status, len(refusal.body or b"") if isinstance(refusal.body, bytes) else 0
            raise
        finally:
            if request.path != "/healthz":
                self._write(request, status, length, (time.monotonic() - began) * 1000)

    def _write(self, request: web.Request, status: int, length: int, milliseconds: float) -> None:
        _, _, reference = parse_path(request.path)
        line = LogLine(
            time=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z",
            method=request.method,
            path=request.raw_path,
            status=status,
            milliseconds=round(milliseconds, 3),
            bytes=length,
            repository=repository_of(request.path),
            reference=reference,
            user=request.get(USER, ""),
            user_agent=request.headers.get("User-Agent", ""),
        )
        self._log.write(msgspec.json.encode(line) + b"\n")


async def _form(request: web.Request) -> Mapping[str, str]:
    return {name: value for name, value in (await request.post()).items() if isinstance(value, str)}


def _error(code: str, message: str) -> dict[str, object]:
    return {"errors": [{"code": code, "message": message}]}


def for_nodes(folder: Folder) -> socket.socket:
    """Where real nodes and their pods reach the registry."""
    return namespaces.listening(namespaces.gateway_of(folder), GATEWAY, GATEWAY_REGISTRY_PORT)


def tls(pki: Pki) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server.certificate, pki.server.key)
    return context


async def serve(folder: Folder) -> None:
    """Serve until SIGTERM or SIGINT."""
    state = folder.load()
    if state is None:
        raise SystemExit(f"{folder.root}: there is no sandbox here")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(folder.registry_log.open("ab", buffering=0))
        front = RegistryProxy(
            AccessFile(folder.access),
            storage=f"http://{LOOPBACK}:{state.ports.registry_storage}",
            address=f"{LOOPBACK}:{state.ports.registry}",
            log=log,
        )
        runner = web.AppRunner(front.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, LOOPBACK, state.ports.registry, reuse_address=True).start()
            if state.settings.real:
                await web.SockSite(runner, for_nodes(folder), ssl_context=tls(Pki(folder.pki))).start()
            await stop.wait()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(Folder(Path(sys.argv[1]))))
