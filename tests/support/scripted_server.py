"""An API server that answers by script: each request takes the next answer, and is remembered."""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from polyarch.kube.settings import Configuration

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body)


class ScriptedServer:
    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.answers: deque[Answer] = deque()
        self.otherwise: Answer = status(500, "InternalError", "nothing is scripted for this request")
        self.url = ""
        self.connections: set[Any] = set()

    def script(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    @property
    def last(self) -> Seen:
        return self.requests[-1]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(Seen(request.method, request.path, dict(request.query), request.headers, body))
        self.connections.add(request.transport.get_extra_info("peername"))
        answer = self.answers.popleft() if self.answers else self.otherwise
        return await answer(request)

    def configuration(self, **settings: Any) -> Configuration:
        return Configuration(server=self.url, **settings)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"):
    api = ScriptedServer()
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    api.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return web.Response(status=status, body=body, headers=headers, content_type="application/json")

    return answer


def status(
    code: int,
    reason: str = "",
    message: str = "",
    *,
    headers: Mapping[str, str] | None = None,
    causes: list[dict[str, str]] | None = None,
) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    body |= {"reason": reason, "message": message, "details": {"causes": causes or []}}
    return document(body, code, headers)


def drop() -> Answer:
    """Cuts the connection without an answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        request.transport.abort()
        return web.Response()

    return answer


def listing(*objects: Any, version: str = "1", token: str = "") -> Answer:
    return document({"metadata": {"resourceVersion": version, "continue": token}, "items": list(objects)})


def stream(*chunks: bytes | float | asyncio.Event, then: str = "end") -> Answer:
    """Chunks as they are, pauses in seconds, events to wait for; ``then``: "end", "hold" (until cancelled) or "cut"."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, bytes):
                await response.write(chunk)
            elif isinstance(chunk, asyncio.Event):
                await chunk.wait()
            else:
                await asyncio.sleep(chunk)
        if then == "hold":
            await asyncio.Event().wait()
        if then == "cut":
            await asyncio.sleep(0.01)
            request.transport.abort()
        return response

    return answer


def event(kind: str, object_: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": object_}) + b"\n"


def pod(name: str, version: int | str, *, uid: str = "", namespace: str = "demo", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version), "uid": uid or f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}}


def bookmark(version: int | str, *, end: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})
