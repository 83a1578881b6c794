"""The transport against real servers on the loopback: phases, limits, TLS, and the guard where connections are made."""

# ruff: noqa: SIM117  (a server, a client, a request: one level for each reads best)

import asyncio
import gzip
import socket
import ssl
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from polyarch import __version__
from polyarch.oci.concurrency import Tenants
from polyarch.oci.mirror_files import ClientCertificate, Tls
from polyarch.oci.pull_sources import Configuration, sources
from polyarch.oci.reference import parse
from polyarch.oci.settings import IDLE_CONNECTIONS, NAME_LOOKUPS
from polyarch.oci.transport.addresses import (
    AddressClass,
    AddressPolicy,
    HostProvenance,
    RedirectRequest,
    RegistryServer,
    check_redirect,
)
from polyarch.oci.transport.http import AiohttpTransport, SystemResolver
from polyarch.oci.transport.interface import BodyTooLarge, Headers, Timeouts, Transport, TransportError
from polyarch.oci.transport.tls import TransportMode, TrustSettings, TrustStore, transport_modes, try_next
from polyarch.proxies import Proxies

MARKER = "s3cr3t-marker"
SHORT = Timeouts(connect=20.0, first_byte=0.3, idle=0.3)
LONG = Timeouts(connect=20.0, first_byte=20.0, idle=20.0)
BY_PUBLIC = HostProvenance(named=False, registry=AddressClass.PUBLIC)
BY_LOOPBACK = HostProvenance(named=False, registry=AddressClass.LOOPBACK)
CLUSTER = AddressPolicy.of("cluster")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Names:
    """A resolver by table; the answers of one name may change from look-up to look-up."""

    def __init__(self, **answers: Sequence[str] | Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(answer) for name, answer in answers.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answer = self.answers.get(host)
        if answer is None:
            raise OSError(f"no such name: {host}")
        if answer and not isinstance(answer[0], str):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer  # type: ignore[return-value]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """An HTTP server on the loopback; gives its port."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[int]:
    """A server that speaks bytes; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def transport(
    *,
    policy: AddressPolicy | None = None,
    trust: TrustStore | None = None,
    timeouts: Timeouts = LONG,
    resolver: Names | None = None,
    proxies: Proxies | None = None,
) -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport(
        policy=policy,
        trust=trust or TrustStore(TrustSettings(system=False)),
        timeouts=timeouts,
        resolver=resolver,
        proxies=proxies or Proxies({}),
    )
    try:
        yield made
    finally:
        await made.close()


async def fails(made: Transport, url: str, **options: object) -> TransportError:
    """The error of a request that must have one, and by its own limits: all of them are far below this one."""
    with pytest.raises(TransportError) as caught:
        async with asyncio.timeout(15), made.request("GET", url, **options) as response:  # type: ignore[arg-type]
            await response.read(1_000_000)
    return caught.value


async def echo(request: web.Request) -> web.Response:
    lines = [f"{request.method} {request.raw_path}"]
    lines += [f"{name.lower()}: {value}" for name, value in request.headers.items()]
    return web.Response(text="\n".join([*lines, "", await request.text()]))


def raw(*pieces: bytes, pause: float = 0.0, then: str = "close") -> Script:
    """Reads the request's head, sends the pieces; then closes, or waits for ever."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if then == "wait":
            await asyncio.sleep(3600)

    return script


# --- what is sent, and what is not


@pytest.mark.req("RG-003", "RG-030")
async def test_a_request_has_the_headers_it_was_given_and_no_others() -> None:
    """Identity encoding, our name, nothing that aiohttp would add."""
    async with serving(echo) as port, transport() as made:
        headers = {"Accept": "application/json", "Authorization": "Bearer t"}
        async with made.request("GET", f"http://127.0.0.1:{port}/v2/x?a=b", headers=headers) as response:
            body = (await response.read(10_000)).decode()
    assert response.status == 200
    assert sorted(body.strip().split("\n")) == sorted(
        [
            "GET /v2/x?a=b",
            f"host: 127.0.0.1:{port}",
            "accept: application/json",
            "accept-encoding: identity",
            "authorization: Bearer t",
            f"user-agent: polyarch/{__version__}",
        ]
    )


@pytest.mark.req("RG-072")
async def test_a_body_is_sent_with_its_length() -> None:
    """The form of a token request."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "other"}
    async with serving(echo) as port, transport() as made:
        async with made.request("POST", f"http://127.0.0.1:{port}/token", headers=headers, body=b"a=b") as response:
            lines = (await response.read(10_000)).decode().split("\n")
    assert lines[-1] == "a=b"
    assert {"content-length: 3", "content-type: application/x-www-form-urlencoded", "user-agent: other"} <= set(lines)


@pytest.mark.parametrize("path", ["/x?sig=a%2Fb%3D%7E+c", "/a%2fb/%41", "/x?", "/x?a=b;c&d=%20"])
async def test_a_url_is_sent_as_it_is_given(path: str) -> None:
    """A signed URL loses its signature when its escapes are changed."""
    async with serving(echo) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}{path}") as response:
            first = (await response.read(10_000)).decode().split("\n")[0]
    assert first.rstrip("?") == f"GET {path}".rstrip("?")


@pytest.mark.req("RG-105")
async def test_redirects_are_not_followed_and_cookies_not_kept() -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("Cookie")))
        return web.Response(status=307, headers={"Location": "/elsewhere", "Set-Cookie": "a=b; Path=/"})

    async with serving(handler) as port, transport(resolver=Names(r_example=["127.0.0.1"])) as made:
        for _ in range(2):
            async with made.request("GET", f"http://r.example:{port}/here") as response:
                assert (response.status, response.headers.get("location")) == (307, "/elsewhere")
    assert asked == [("/here", None), ("/here", None)]


@pytest.mark.req("RG-050")
async def test_a_content_encoding_is_not_decoded() -> None:
    """The client refuses it; decoding it first would let a small answer grow without limit."""
    packed = gzip.compress(b"x" * 1_000_000)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async with serving(handler) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert response.headers.get("Content-Encoding") == "gzip"
            assert await response.read(10_000) == packed


@pytest.mark.req("RG-003", "RG-103")
async def test_an_answer_has_its_headers_its_url_and_who_gave_it() -> None:
    """Names in any case, several values; the peer is what redirects are judged by."""

    async def handler(request: web.Request) -> web.Response:
        response = web.Response(status=401)
        response.headers.add("WWW-Authenticate", 'Basic realm="x"')
        response.headers.add("Www-Authenticate", 'Bearer realm="y"')
        return response

    async with serving(handler) as port, transport(resolver=Names(r_example=["127.0.0.1"])) as made:
        url = f"http://r.example:{port}/v2/"
        async with made.request("GET", url) as response:
            assert response.headers.get_all("www-authenticate") == ['Basic realm="x"', 'Bearer realm="y"']
            assert response.headers.get("absent", "default") == "default"
            assert "WWW-Authenticate" in response.headers
            assert (response.url, response.peer, response.peer_class) == (url, "127.0.0.1", AddressClass.LOOPBACK)


@pytest.mark.req("RG-087")
def test_headers_show_no_values() -> None:
    """A Location or a cookie may be a secret."""
    headers = Headers([("Location", MARKER), ("X", " padded ")])
    assert repr(headers) == "Headers(location, x)"
    assert headers.get("x") == "padded"
    assert list(headers) == [("location", MARKER), ("x", " padded ")]


async def test_a_connection_is_used_again() -> None:
    ports = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(status=404, text="small")

    async with serving(handler) as port, transport() as made:
        for method in ("GET", "HEAD", "GET"):
            async with made.request(method, f"http://127.0.0.1:{port}/") as response:
                await response.read(100)
    assert len(ports) == 1


async def test_after_close_a_request_opens_the_transport_again() -> None:
    async with serving(echo) as port, transport() as made:
        for _ in range(2):
            async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
                assert response.status == 200
            await made.close()


# --- bodies


def sized(size: int, *, chunked: bool) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        if not chunked:
            return web.Response(body=b"x" * size)
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, size, 1000):
            await response.write(b"x" * min(1000, size - start))
        return response

    return handler


@pytest.mark.req("RG-050")
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_a_body_within_its_limit_is_read(chunked: bool) -> None:
    async with serving(sized(10_000, chunked=chunked)) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert len(await response.read(10_000)) == 10_000
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert sum([len(chunk) async for chunk in response.chunks()]) == 10_000
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert len(await response.read_some(16)) == 16


@pytest.mark.req("RG-050")
@pytest.mark.parametrize(("chunked", "size"), [(False, 10_000), (True, None)], ids=["declared", "chunked"])
async def test_a_body_beyond_its_limit_is_refused(chunked: bool, size: int | None) -> None:
    """Limit and size are named."""
    async with serving(sized(10_000, chunked=chunked)) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            with pytest.raises(BodyTooLarge) as caught:
                await response.read(9_999)
    assert (caught.value.limit, caught.value.size) == (9_999, size)
    assert "the limit is 9999" in str(caught.value)


@pytest.mark.req("RG-050")
async def test_a_declared_length_beyond_the_limit_is_refused_before_the_body() -> None:
    """The server never sends a byte of it, so waiting for the body would time out."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n"
    async with scripted(raw(head, then="wait")) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            with pytest.raises(BodyTooLarge, match="has 5000000 bytes, the limit is 4194304"):
                await response.read(4 * 1024 * 1024)


@pytest.mark.req("RG-050")
async def test_an_endless_body_is_left_at_the_limit() -> None:
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with scripted(script) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            with pytest.raises(BodyTooLarge):
                await response.read(100_000)
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert len(await response.read_some(16 * 1024)) == 16 * 1024
    assert sent < 64 * 1024 * 1024


@pytest.mark.req("RG-032")
async def test_the_length_of_a_head_answer_is_no_body() -> None:
    async with serving(sized(10_000, chunked=False)) as port, transport() as made:
        async with made.request("HEAD", f"http://127.0.0.1:{port}/") as response:
            assert response.headers.get("content-length") == "10000"
            assert await response.read(10) == b""


CUT = {
    "within the body": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
    "within a chunk": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"),
    "before the last chunk": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    "with a broken chunk": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", then="wait"),
}


@pytest.mark.req("RG-061")
@pytest.mark.parametrize("script", CUT.values(), ids=CUT.keys())
async def test_a_body_that_breaks_off_is_truncated(script: Script) -> None:
    """Retried by the client; never taken for the whole."""
    async with scripted(script) as port, transport() as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert error.kind == "truncated"


@pytest.mark.req("RG-061")
async def test_an_answer_that_does_not_come_is_truncated_and_asked_once() -> None:
    """Aiohttp would ask a second time by itself."""
    asked = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with scripted(script) as port, transport() as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.phase, asked) == ("truncated", "first byte", 1)


async def test_a_pooled_connection_that_the_server_has_closed_does_not_fail_a_request() -> None:
    """The server may close an idle connection at any time; only then is a request sent again."""
    answers = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        await reader.readuntil(b"\r\n\r\n")
        answers += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")  # the next request is read, and the connection closed without an answer

    async with scripted(script) as port, transport() as made:
        for _ in range(2):
            async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
                assert await response.read(10) == b"ok"
    assert answers == 2


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"]
)
async def test_a_server_that_speaks_no_http_is_said_to(answer: bytes) -> None:
    async with scripted(raw(answer, then="wait")) as port, transport() as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.detail) == ("truncated", "what answers does not speak HTTP")


@pytest.mark.req("RG-050")
@pytest.mark.parametrize(
    ("number", "size", "taken"), [(60, 10, True), (70, 10, False), (1, 7000, True), (1, 9000, False)]
)
async def test_an_answer_has_few_headers_and_none_is_long(number: int, size: int, taken: bool) -> None:
    """Whoever answers chooses them, and they stay in memory."""
    lines = "".join(f"x-{at}: {'a' * size}\r\n" for at in range(number))
    async with (
        scripted(raw(f"HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n".encode())) as port,
        transport() as made,
    ):
        if taken:
            async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
                assert len(list(response.headers)) == number + 1
        else:
            assert (await fails(made, f"http://127.0.0.1:{port}/")).kind == "truncated"


# --- time


@pytest.mark.req("RG-051")
async def test_no_first_byte_is_a_timeout_of_that_phase() -> None:
    """Names phase and host."""
    async with scripted(raw(then="wait")) as port, transport(timeouts=SHORT) as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.phase) == ("timeout", "first byte")
    assert str(error) == f"127.0.0.1:{port}: no answer within 0.3 s (first byte)"


@pytest.mark.req("RG-051")
async def test_headers_byte_by_byte_do_not_extend_the_first_byte() -> None:
    """The phase ends with the headers, so a trickle cannot keep it open."""
    pieces = [b"HTTP/1.1 200 OK\r\n", *[b"x"] * 1000]
    async with scripted(raw(*pieces, pause=0.05, then="wait")) as port, transport(timeouts=SHORT) as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.phase) == ("timeout", "first byte")


@pytest.mark.req("RG-051")
async def test_a_body_that_stalls_is_a_timeout_of_that_phase() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"
    timeouts = Timeouts(connect=20.0, first_byte=20.0, idle=0.3)
    async with scripted(raw(head, then="wait")) as port, transport(timeouts=timeouts) as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.phase) == ("timeout", "body")
    assert "nothing more of the body within 0.3 s" in str(error)


@pytest.mark.req("RG-051")
async def test_a_slow_body_is_no_timeout() -> None:
    """Idle counts between bytes; longer in all than any one phase may take."""
    pieces = [b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", *[b"x"] * 8]
    timeouts = Timeouts(connect=20.0, first_byte=20.0, idle=1.5)
    async with scripted(raw(*pieces, pause=0.2)) as port, transport(timeouts=timeouts) as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert await response.read(100) == b"x" * 8


@pytest.mark.req("RG-051")
async def test_a_handshake_that_hangs_is_a_timeout_of_connect() -> None:
    """Connect covers name look-up, connection and TLS."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    timeouts = Timeouts(connect=0.3, first_byte=20.0, idle=20.0)
    async with scripted(script) as port, transport(timeouts=timeouts) as made:
        error = await fails(made, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.phase) == ("timeout", "connect")
    assert "no connection within 0.3 s (connect)" in str(error)


@pytest.mark.req("RG-051")
async def test_a_name_that_takes_too_long_is_a_timeout_of_the_name() -> None:
    class Slow(Names):
        async def resolve(self, host: str) -> Sequence[str]:
            await asyncio.sleep(3600)
            return []

    async with transport(timeouts=Timeouts(connect=0.2), resolver=Slow()) as made:
        error = await fails(made, "http://r.example/")
    assert (error.kind, error.phase, error.host) == ("timeout", "name", "r.example")


class SlowNames(Names):
    """Names that begin with ``slow`` are answered when told to."""

    def __init__(self, **answers: Sequence[str]) -> None:
        super().__init__(**answers)
        self.answer = asyncio.Event()

    async def resolve(self, host: str) -> Sequence[str]:
        if host.startswith("slow"):
            self.asked.append(host)
            await self.answer.wait()
        return await super().resolve(host)


def asking(made: AiohttpTransport, host: str, port: int, tenant: str) -> asyncio.Task[int]:
    async def ask() -> int:
        async with made.request("GET", f"http://{host}:{port}/", tenants=Tenants(tenant)) as response:
            await response.read(1000)
            return response.status

    return asyncio.create_task(ask())


@pytest.mark.req("PL-851")
@pytest.mark.parametrize("hostile", [1, 8, 20])
async def test_names_that_take_long_delay_nobody_but_the_tenant_that_named_them(hostile: int) -> None:
    """Neither a name of another, nor the same name that the slow tenant has asked for as well."""
    names = SlowNames(good_example=["127.0.0.1"], other_example=["127.0.0.1"])
    async with serving(echo) as port, transport(resolver=names, timeouts=LONG) as made:
        slow = [
            asking(made, f"slow{number}.example", port, f"evil-{number % hostile}") for number in range(40 * hostile)
        ]
        slow += [asking(made, "good.example", port, f"evil-{number}") for number in range(hostile)]
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in slow)
        assert NAME_LOOKUPS.shared <= len(names.asked) <= NAME_LOOKUPS.maximum
        async with asyncio.timeout(5):
            for host in ("good.example", "other.example"):
                assert await asking(made, host, port, "modest") == 200
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)
        before = len(names.asked)
        async with asyncio.timeout(5):
            assert await asking(made, "good.example", port, "evil-0") == 200, "known"
        assert len(names.asked) == before


@pytest.mark.req("PL-851")
async def test_a_name_that_nobody_waits_for_any_more_holds_its_place_until_it_is_answered() -> None:
    """A thread cannot be interrupted: who gives up and comes back would have more of them each time."""
    names = SlowNames()
    async with transport(resolver=names, timeouts=Timeouts(connect=0.5)) as made:
        for turn in range(3):
            asked = [asking(made, f"slow{turn}-{number}.example", 80, "evil") for number in range(20)]
            await asyncio.wait(asked)
            assert all(isinstance(each.exception(), TransportError) for each in asked)
        assert len(names.asked) == NAME_LOOKUPS.shared
        names.answer.set()
        await asyncio.sleep(0.1)
        error = await fails(made, "http://gone.example/", tenants=Tenants("evil"))
        assert error.detail == "the name cannot be resolved"


@pytest.mark.req("PL-851")
async def test_slow_names_leave_the_threads_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: held.wait(30) and [])
    resolver = SystemResolver()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    slow = [asyncio.create_task(resolver.resolve(f"slow{number}.example")) for number in range(8)]
    await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        held.set()
    await asyncio.gather(*slow)


@pytest.mark.req("PL-854")
async def test_idle_connections_are_bounded_and_those_of_who_left_most_are_closed() -> None:
    """However many ports a host has, and nothing is kept of them."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(transport())
        opened: list[str] = []

        async def remember(request: web.Request) -> web.Response:
            assert request.transport is not None
            opened.append(str(request.transport.get_extra_info("peername")))
            return web.Response(text="{}")

        good = await stack.enter_async_context(serving(remember))
        ports = [await stack.enter_async_context(serving(echo)) for _ in range(IDLE_CONNECTIONS + 20)]
        assert await asking(made, "127.0.0.1", good, "modest") == 200
        for port in ports:
            assert await asking(made, "127.0.0.1", port, "evil") == 200
        assert await asking(made, "127.0.0.1", good, "modest") == 200
        assert opened[0] == opened[1], "the connection of the modest tenant was kept"
        connector = made._open_session().connector
        assert connector is not None
        assert sum(map(len, connector._conns.values())) == IDLE_CONNECTIONS
        assert await asking(made, "127.0.0.1", ports[0], "evil") == 200


async def test_cancelling_a_caller_is_honoured() -> None:
    async with scripted(raw(then="wait")) as port, transport() as made:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), made.request("GET", f"http://127.0.0.1:{port}/"):
                raise AssertionError("there is no answer")


# --- connecting


async def test_a_closed_port_is_a_refused_connection() -> None:
    async with scripted(raw()) as port:
        pass
    async with transport() as made:
        error = await fails(made, f"http://127.0.0.1:{port}/")
    assert (error.kind, error.cause) == ("connect", "refused")
    assert str(error) == f"127.0.0.1:{port}: the connection was refused"


async def test_an_unknown_name_is_said_so() -> None:
    async with transport(resolver=Names(empty_example=[])) as made:
        for host in ("r.example", "empty.example"):
            error = await fails(made, f"https://{host}/")
            assert (error.kind, error.cause, str(error)) == ("connect", "", f"{host}: the name cannot be resolved")


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "unknown-host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "connect"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution"), "connect"),
    ],
    ids=["NXDOMAIN", "time-out or SERVFAIL", "broken resolver"],
)
async def test_a_name_that_does_not_exist_is_told_from_one_that_could_not_be_asked_for(said, kind) -> None:
    class Says:
        async def resolve(self, host: str) -> Sequence[str]:
            raise said

    async with transport(resolver=Says()) as made:
        error = await fails(made, "https://r.example/")
    assert (error.kind, error.phase) == (kind, "connect")


@pytest.mark.req("PL-330")
async def test_of_a_proxy_without_a_name_nothing_follows_for_the_host() -> None:
    """It is the proxy that cannot be found."""

    class Says:
        async def resolve(self, host: str) -> Sequence[str]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with transport(resolver=Says(), proxies=Proxies({"HTTPS_PROXY": "http://proxy.example:3128"})) as made:
        error = await fails(made, "https://r.example/")
    assert error.kind == "connect"


@pytest.mark.parametrize(
    "url", ["ftp://r.example/", "r.example/v2/", "https://u:p@r.example/", "https:///x", "http://r.example:0/", ""]
)
async def test_what_is_no_url_is_not_sent(url: str) -> None:
    async with transport(resolver=Names()) as made:
        error = await fails(made, url)
    assert (error.kind, error.phase) == ("connect", "connect")


@pytest.mark.req("RG-087")
async def test_a_header_that_cannot_be_sent_is_an_error_without_its_value() -> None:
    async with serving(echo) as port, transport() as made:
        headers = {"Authorization": f"Bearer {MARKER}\r\nX: y"}
        error = await fails(made, f"http://127.0.0.1:{port}/", headers=headers)
    assert "cannot be sent" in str(error)
    assert MARKER not in "".join(traceback.format_exception(error))


# --- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str, client_ca: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*(names or ("127.0.0.1", "localhost", "r.example"))).configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def trusting(authority: trustme.CA, **changes: object) -> TrustStore:
    return TrustStore(TrustSettings(ca_data=authority.cert_pem.bytes().decode(), system=False, **changes))  # type: ignore[arg-type]


@pytest.mark.req("RG-100")
async def test_a_trusted_server_is_spoken_to(authority: trustme.CA) -> None:
    async with serving(echo, tls=server_tls(authority)) as port:
        async with transport(trust=trusting(authority)) as made:
            async with made.request("GET", f"https://127.0.0.1:{port}/") as response:
                assert response.status == 200


@pytest.mark.req("RG-100")
async def test_an_untrusted_server_is_a_tls_error(authority: trustme.CA) -> None:
    """The wrong CA; nothing is sent."""
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    async with serving(handler, tls=server_tls(authority)) as port, transport(trust=trusting(trustme.CA())) as made:
        error = await fails(made, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.phase, error.cause) == ("tls", "connect", "handshake")
    assert "the certificate is not trusted: unable to get local issuer certificate" in str(error)
    assert asked == []


@pytest.mark.req("RG-100")
async def test_a_certificate_for_another_name_is_a_tls_error(authority: trustme.CA) -> None:
    async with serving(echo, tls=server_tls(authority, "other.example")) as port:
        async with transport(trust=trusting(authority), resolver=Names(r_example=["127.0.0.1"])) as made:
            error = await fails(made, f"https://r.example:{port}/")
    assert (error.kind, error.cause) == ("tls", "handshake")
    assert "Hostname mismatch" in str(error)


@pytest.mark.req("RG-100")
async def test_a_ca_in_certs_d_is_for_its_host_only(authority: trustme.CA, tmp_path: Path) -> None:
    """<dir>/<host:port>/*.crt."""
    async with serving(echo, tls=server_tls(authority)) as port:
        folder = tmp_path / f"127.0.0.1:{port}"
        folder.mkdir()
        authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        trust = TrustStore(TrustSettings(directories=(str(tmp_path),), system=False))
        async with transport(trust=trust) as made:
            async with made.request("GET", f"https://127.0.0.1:{port}/") as response:
                assert response.status == 200
            assert (await fails(made, f"https://localhost:{port}/")).kind == "tls"


@pytest.mark.req("RG-094", "RG-100")
@pytest.mark.parametrize("place", ["certs.d", "hosts.toml"])
async def test_a_client_certificate_is_shown(authority: trustme.CA, tmp_path: Path, place: str) -> None:
    """RG-100: X.cert with X.key; or RG-094: the files of a containerd directory."""
    clients = trustme.CA()
    issued = clients.issue_cert("client@example")
    async with serving(echo, tls=server_tls(authority, client_ca=clients)) as port:
        folder = tmp_path / f"127.0.0.1:{port}"
        folder.mkdir()
        issued.cert_chain_pems[0].write_to_path(str(folder / "me.cert"))
        issued.private_key_pem.write_to_path(str(folder / "me.key"))
        used = tmp_path if place == "certs.d" else tmp_path / "empty"
        tls = (
            Tls() if place == "certs.d" else Tls(clients=(ClientCertificate(f"{folder}/me.cert", f"{folder}/me.key"),))
        )
        async with transport(trust=trusting(authority, directories=(str(used),))) as made:
            async with made.request("GET", f"https://127.0.0.1:{port}/", tls=tls) as response:
                assert response.status == 200
        async with transport(trust=trusting(authority)) as made:
            assert (await fails(made, f"https://127.0.0.1:{port}/")).kind in ("tls", "truncated")


@pytest.mark.req("RG-100")
async def test_of_two_client_certificates_the_first_places_is_shown(authority: trustme.CA, tmp_path: Path) -> None:
    """--certs-dir goes before the directories of the user and the system."""
    clients = trustme.CA()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        return web.Response(text=str(request.transport.get_extra_info("peercert")["subjectAltName"]))

    async with serving(handler, tls=server_tls(authority, client_ca=clients)) as port:
        for name in ("first", "second"):
            folder = tmp_path / name / f"127.0.0.1:{port}"
            folder.mkdir(parents=True)
            issued = clients.issue_cert(f"{name}@example")
            issued.cert_chain_pems[0].write_to_path(str(folder / "me.cert"))
            issued.private_key_pem.write_to_path(str(folder / "me.key"))
        places = (str(tmp_path / "first"), str(tmp_path / "second"))
        async with transport(trust=trusting(authority, directories=places)) as made:
            async with made.request("GET", f"https://127.0.0.1:{port}/") as response:
                assert "first@example" in (await response.read(1000)).decode()


@pytest.mark.req("RG-100")
async def test_a_pinned_server_certificate_is_trusted_without_its_ca(authority: trustme.CA, tmp_path: Path) -> None:
    """A registry's self-signed certificate, put into certs.d as it is."""
    issued = authority.issue_cert("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(context)
    async with serving(echo, tls=context) as port:
        folder = tmp_path / f"127.0.0.1:{port}"
        folder.mkdir()
        issued.cert_chain_pems[0].write_to_path(str(folder / "server.crt"))
        trust = TrustStore(TrustSettings(directories=(str(tmp_path),), system=False))
        async with transport(trust=trust) as made:
            async with made.request("GET", f"https://127.0.0.1:{port}/") as response:
                assert response.status == 200


@pytest.mark.req("RG-100", "RG-101")
async def test_a_certificate_file_that_cannot_be_used_is_a_tls_error_that_names_it(tmp_path: Path) -> None:
    """And no reason to try an insecure source's next channel."""
    (tmp_path / "r.example").mkdir()
    (tmp_path / "r.example/ca.crt").write_text("x")
    trust = TrustStore(TrustSettings(directories=(str(tmp_path),), system=False))
    async with transport(trust=trust, resolver=Names()) as made:
        error = await fails(made, "https://r.example/")
    assert (error.kind, try_next(error)) == ("tls", False)
    assert "r.example/ca.crt holds no PEM certificates" in str(error)


async def reached_by(made: Transport, image: str, *, insecure: bool) -> tuple[TransportMode | None, list[str]]:
    """Tries a source's channels as the client does: the one that answered, and the kinds of the failures before."""
    configuration = Configuration(insecure_hosts=frozenset({image.partition("/")[0]} if insecure else ()))
    (source,) = sources(parse(image), configuration)
    failures = []
    for mode in transport_modes(source):
        try:
            url = f"{mode.url(source.base_url)}/v2/"
            async with made.request("GET", url, verified=mode.verified, tls=source.tls):
                return mode, failures
        except TransportError as error:
            failures.append(error.kind)
            if not try_next(error):
                break
    return None, failures


@pytest.mark.req("RG-101")
@pytest.mark.parametrize("insecure", [True, False])
async def test_an_insecure_source_is_tried_verified_then_unverified_then_plain(
    authority: trustme.CA, insecure: bool
) -> None:
    """Against a trusted server, an untrusted one, a plain one, and none."""
    names = Names(trusted_example=["127.0.0.1"], untrusted_example=["127.0.0.1"], plain_example=["127.0.0.1"])
    trusted, untrusted = server_tls(authority, "trusted.example"), server_tls(trustme.CA(), "untrusted.example")
    async with (
        serving(echo, tls=trusted) as first,
        serving(echo, tls=untrusted) as second,
        serving(echo) as third,
        transport(trust=trusting(authority), resolver=names) as made,
    ):
        found = [
            await reached_by(made, f"{image}/x", insecure=insecure)
            for image in (f"trusted.example:{first}", f"untrusted.example:{second}", f"plain.example:{third}")
        ]
    if insecure:
        assert found == [
            (TransportMode.VERIFIED, []),
            (TransportMode.UNVERIFIED, ["tls"]),
            (TransportMode.PLAIN, ["tls", "tls"]),
        ]
    else:
        assert found == [(TransportMode.VERIFIED, []), (None, ["tls"]), (None, ["tls"])]


@pytest.mark.req("RG-101")
async def test_a_server_that_cuts_the_handshake_failed_in_it() -> None:
    """A plain server may just hang up on a TLS greeting."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with scripted(script) as port, transport() as made:
        error = await fails(made, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.cause, try_next(error)) == ("tls", "handshake", True)


@pytest.mark.req("RG-101")
async def test_a_connection_made_without_verification_is_not_used_for_a_verified_request(authority: trustme.CA) -> None:
    async with serving(echo, tls=server_tls(authority)) as port, transport(trust=trusting(trustme.CA())) as made:
        url = f"https://127.0.0.1:{port}/"
        async with made.request("GET", url, verified=False) as response:
            await response.read(1000)
        assert (await fails(made, url)).kind == "tls"


# --- addresses


@pytest.mark.req("RG-103")
async def test_the_loopback_is_not_reached_in_a_cluster_by_name_or_number() -> None:
    """In every spelling; nothing connects."""
    connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1

    names = Names(r_example=["127.0.0.1"], mapped_example=["::ffff:127.0.0.1"], six_example=["::1"])
    async with scripted(script) as port, transport(policy=CLUSTER, resolver=names) as made:
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433", *names.answers):
            error = await fails(made, f"http://{host}:{port}/")
            assert error.kind == "refused-address", host
            assert "of the class loopback" in str(error)
            assert "allow_addresses" in str(error)
            assert error.host == f"{host}:{port}"
    assert connections == 0


@pytest.mark.req("RG-102")
async def test_a_metadata_service_is_never_reached() -> None:
    """The command line too."""
    names = Names(meta_example=["169.254.169.254"], nat_example=["64:ff9b::a9fe:a9fe"])
    async with transport(resolver=names, timeouts=SHORT) as made:
        for host in ("169.254.169.254", "[fd00:ec2::254]", "meta.example", "nat.example"):
            error = await fails(made, f"http://{host}/latest/")
            assert error.kind == "refused-address"
            assert "of the class never" in str(error)


@pytest.mark.req("RG-103")
async def test_an_allowed_range_is_reached_in_a_cluster() -> None:
    """allow_addresses."""
    policy = AddressPolicy.of("cluster", allow=["127.0.0.0/8"])
    async with serving(echo) as port, transport(policy=policy) as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert response.status == 200


@pytest.mark.req("RG-103")
async def test_a_denied_range_is_not_reached_in_the_command_line() -> None:
    """deny_addresses."""
    policy = AddressPolicy.of("cli", deny=["127.0.0.0/8"])
    async with serving(echo) as port, transport(policy=policy, resolver=Names(r_example=["127.0.0.1"])) as made:
        error = await fails(made, f"http://r.example:{port}/")
    assert error.kind == "refused-address"
    assert "deny_addresses has it" in str(error)


@pytest.mark.req("RG-102")
async def test_an_answer_that_changes_after_a_check_gains_nothing() -> None:
    """DNS rebinding. The first look-up is harmless, the second leads to this machine."""
    names = Names(evil_example=[["192.0.2.1"], ["127.0.0.1"]])
    assert list(await names.resolve("evil.example")) == ["192.0.2.1"]
    async with serving(echo) as port, transport(policy=CLUSTER, resolver=names) as made:
        error = await fails(made, f"http://evil.example:{port}/")
    assert error.kind == "refused-address"


@pytest.mark.req("RG-102")
async def test_of_several_addresses_the_permitted_ones_are_used() -> None:
    """Each is judged by itself."""
    names = Names(r_example=["169.254.1.1", "127.0.0.1", "::ffff:169.254.1.1"])
    async with serving(echo) as port, transport(resolver=names) as made:
        async with made.request("GET", f"http://r.example:{port}/") as response:
            assert response.peer == "127.0.0.1"


async def test_a_permitted_address_that_fails_is_an_error_of_the_connection() -> None:
    """Not refused: one address had its chance."""
    async with scripted(raw()) as port:
        pass
    async with transport(resolver=Names(r_example=["127.0.0.1", "169.254.1.1"])) as made:
        error = await fails(made, f"http://r.example:{port}/")
    assert error.kind == "connect"


@pytest.mark.req("RG-103")
async def test_a_pooled_connection_does_not_widen_the_reach_of_a_request() -> None:
    """Opened for the user's reference, refused for a host that a server named, and still there afterwards."""
    connections = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername"))
        return web.Response(text=request.path)

    async with serving(handler) as port, transport(resolver=Names(r_example=["127.0.0.1"])) as made:
        url = f"http://r.example:{port}"
        async with made.request("GET", f"{url}/named") as response:
            await response.read(100)
        error = await fails(made, f"{url}/given", provenance=BY_PUBLIC)
        assert error.kind == "refused-address"
        assert "a server named it, and the registry itself is public" in str(error)
        async with made.request("GET", f"{url}/again") as response:
            assert await response.read(100) == b"/again"
    assert len(connections) == 1


@pytest.mark.req("RG-103")
async def test_a_loopback_registry_may_name_places_on_the_loopback() -> None:
    async with serving(echo) as port, transport() as made:
        async with made.request("GET", f"http://127.0.0.1:{port}/token", provenance=BY_LOOPBACK) as response:
            assert response.status == 200
        assert (await fails(made, f"http://localhost:{port}/", provenance=BY_PUBLIC)).kind == "refused-address"


@pytest.mark.req("RG-103", "RG-105")
async def test_a_redirect_to_a_forbidden_address_is_refused_when_it_is_connected_to() -> None:
    """A harmless name in the Location whose address is not."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://inner.example:{request.url.port}/secret"})

    policy = AddressPolicy.of("cluster", allow=["127.0.0.1/32"])
    names = Names(r_example=["127.0.0.1"], inner_example=["127.0.0.2"])
    async with serving(handler) as port, transport(policy=policy, resolver=names) as made:
        url = f"http://r.example:{port}/v2/"
        async with made.request("GET", url) as response:
            server = RegistryServer(url, AddressClass.PUBLIC)
            redirect = check_redirect(response.headers.get("location"), RedirectRequest(url), server, policy)
        assert redirect.keep_authorization is False  # type: ignore[union-attr]
        error = await fails(made, redirect.url, provenance=redirect.provenance)  # type: ignore[union-attr]
    assert error.kind == "refused-address"
    assert "inner.example" in str(error)


# --- proxies


@pytest.mark.req("RG-100")
async def test_a_plain_request_goes_through_the_proxy_with_its_password() -> None:
    """Names are left to the proxy; the address of the proxy itself is not judged."""
    async with serving(echo) as port:
        proxies = Proxies({"HTTP_PROXY": f"http://u:{MARKER}@127.0.0.1:{port}"})
        async with transport(policy=CLUSTER, proxies=proxies, resolver=Names()) as made:
            async with made.request("GET", "http://r.example/v2/x?a=%2F") as response:
                lines = (await response.read(10_000)).decode().split("\n")
                assert (response.peer, response.peer_class) == ("", None)
    assert lines[0] == "GET http://r.example/v2/x?a=%2F"
    assert "host: r.example" in lines
    assert any(line.startswith("proxy-authorization: Basic ") for line in lines)


@pytest.mark.req("RG-100")
async def test_a_proxy_over_tls_is_trusted_as_any_host_is(authority: trustme.CA) -> None:
    """By ``--ca`` too, and not by the HTTP library's own certificates."""
    async with serving(echo, tls=server_tls(authority)) as port:
        proxies = Proxies({"HTTP_PROXY": f"https://u:{MARKER}@127.0.0.1:{port}"})
        async with transport(trust=trusting(authority), proxies=proxies, resolver=Names()) as made:
            async with made.request("GET", "http://r.example/v2/", verified=False) as response:
                body = (await response.read(10_000)).decode()
        async with transport(trust=trusting(trustme.CA()), proxies=proxies, resolver=Names()) as made:
            error = await fails(made, "http://r.example/v2/", verified=False)
    assert "proxy-authorization: Basic " in body
    assert "not trusted" in str(error)
    assert MARKER not in "".join(traceback.format_exception(error))


@asynccontextmanager
async def tunnel(target: int, seen: list[str]) -> AsyncIterator[int]:
    """A proxy that knows CONNECT and leads every host to one port."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head)
        if "Proxy-Authorization" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()

        try:
            await asyncio.gather(copy(reader, outer), copy(inner, writer))
        finally:
            outer.close()

    async with scripted(script) as port:
        yield port


@pytest.mark.req("RG-100")
async def test_an_https_request_is_tunnelled_and_verified_end_to_end(authority: trustme.CA) -> None:
    """The password goes to the proxy, the credential to the registry, neither to the other."""
    seen: list[str] = []
    async with serving(echo, tls=server_tls(authority)) as target, tunnel(target, seen) as port:
        proxies = Proxies({"HTTPS_PROXY": f"http://u:p@127.0.0.1:{port}"})
        async with transport(trust=trusting(authority), proxies=proxies, resolver=Names(), policy=CLUSTER) as made:
            headers = {"Authorization": "Bearer t"}
            async with made.request("GET", "https://r.example/v2/", headers=headers) as response:
                body = (await response.read(10_000)).decode()
            assert "authorization: Bearer t" in body
            assert "proxy-authorization" not in body
            assert seen[0].startswith("CONNECT r.example:443 HTTP/1.1\r\n")
            assert "Bearer t" not in seen[0]
            assert (await fails(made, "https://other.example/")).kind == "tls"


@pytest.mark.req("RG-087")
async def test_a_proxy_that_refuses_or_is_away_is_named_without_its_password() -> None:
    async with tunnel(1, []) as port:
        proxies = Proxies({"HTTPS_PROXY": f"http://127.0.0.1:{port}"})
        async with transport(proxies=proxies, resolver=Names()) as made:
            error = await fails(made, "https://r.example/")
    through = f"through the proxy http://127.0.0.1:{port}"
    assert str(error) == f"r.example: the connection {through} was refused with HTTP 407"
    proxies = Proxies({"HTTPS_PROXY": f"http://u:{MARKER}@127.0.0.1:{port}"})
    async with transport(proxies=proxies, resolver=Names()) as made:
        error = await fails(made, "https://r.example/")
    assert str(error) == f"r.example: cannot connect {through}: Connection refused"
    assert MARKER not in "".join(traceback.format_exception(error))


@pytest.mark.req("RG-101")
@pytest.mark.parametrize(("status", "expected"), [(403, True), (502, True), (407, False)])
async def test_a_tunnel_that_a_proxy_forbids_leaves_an_insecure_source_its_other_channels(
    status: int, expected: bool
) -> None:
    """Proxies allow tunnels to few ports; a wrong password for the proxy is another matter."""
    answer = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
    async with scripted(raw(answer)) as port:
        proxies = Proxies({"HTTPS_PROXY": f"http://127.0.0.1:{port}"})
        async with transport(proxies=proxies, resolver=Names()) as made:
            error = await fails(made, "https://r.example:5000/")
    assert (error.kind, try_next(error)) == ("connect", expected)


@pytest.mark.req("RG-103")
@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "[::ffff:10.0.0.1]", "0xa000001"])
async def test_literal_addresses_are_checked_behind_a_proxy_too(host: str) -> None:
    async with serving(echo) as port:
        proxies = Proxies({"HTTP_PROXY": f"http://127.0.0.1:{port}"})
        async with transport(proxies=proxies) as made:
            assert (await fails(made, f"http://{host}/", provenance=BY_PUBLIC)).kind == "refused-address"
            async with made.request("GET", "http://1.1.1.1/", provenance=BY_PUBLIC) as response:
                assert response.peer_class is AddressClass.PUBLIC


@pytest.mark.req("RG-100")
async def test_no_proxy_is_honoured() -> None:
    """A CIDR in NO_PROXY; this machine needs none."""
    async with serving(echo) as port:
        proxies = Proxies({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "192.0.2.0/24"})
        async with transport(proxies=proxies) as made:
            async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
                assert response.peer == "127.0.0.1"
        assert proxies.proxy_for("http", "192.0.2.7", 80) is None


# --- secrets


FAILING = {
    "cut": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
    "no HTTP": raw(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "no answer": raw(),
    "slow": raw(then="wait"),
    "slow body": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", then="wait"),
}


@pytest.mark.req("RG-087")
@pytest.mark.parametrize("script", FAILING.values(), ids=FAILING.keys())
async def test_no_failure_shows_what_was_sent(script: Script) -> None:
    """Neither the message nor the exceptions behind it, whatever prints them."""
    headers = {"Authorization": f"Bearer {MARKER}", "X-Secret": MARKER}
    async with scripted(script) as port, transport(timeouts=SHORT) as made:
        error: BaseException | None = await fails(
            made, f"http://127.0.0.1:{port}/", headers=headers, body=MARKER.encode()
        )
    assert MARKER not in "".join(traceback.format_exception(error))
    while error is not None:
        assert MARKER not in repr(error) + str(vars(error))
        error = error.__cause__ or error.__context__


@pytest.mark.req("RG-003")
async def test_a_transport_fits_its_seam() -> None:
    async with transport() as made:
        fitting: Transport = made
        assert fitting is made


@pytest.mark.req("RG-162")
async def test_many_failures_leave_no_connection_behind() -> None:
    """Connections of failing requests are closed, not leaked."""
    open_connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
            await writer.drain()
            await reader.read()
        finally:
            open_connections -= 1

    async with scripted(script) as port, transport() as made:
        for _ in range(100):
            async with made.request("GET", f"http://127.0.0.1:{port}/") as response:
                with pytest.raises(BodyTooLarge):
                    await response.read(10)
        for _ in range(200):
            if open_connections == 0:
                break
            await asyncio.sleep(0.01)
        assert open_connections == 0
