"""What strangers may cost a listener: connections, unfinished requests, slow bodies; and who is served beside them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trustme
from admission_port import TLS, connect, post, review, unfinished

from polyarch.kube import connections
from polyarch.kube.admission import MAX_BODY, MAX_UNPROVEN_BODY, AdmissionResponse, Route, Webhooks
from polyarch.kube.connections import UNPROVEN_BYTES, UNPROVEN_CONNECTIONS
from polyarch.kube.review_tokens import ReviewTokens, path_with_token
from polyarch.kube.server import HttpServer
from polyarch.objects import Pod

pytestmark = pytest.mark.req("KR-057", "PL-872")

KEY = b"k" * 32
PROVEN = path_with_token("/pods", KEY)
POD = {"metadata": {"name": "app"}, "spec": {"containers": []}}
SMALL = review(POD, "team")


class Listener:
    """A webhook's server; ``proven`` are the reviews that it has answered, and whether they were."""

    def __init__(self, folder: Path) -> None:
        self.proven: list[bool] = []
        route = Route(path="/pods", name="pods", type=Pod, handler=self._handle, on_error="allow", has_token=True)
        authority = trustme.CA()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        self.server = HttpServer(Webhooks([route], tokens=ReviewTokens([KEY])).serve, tls=tls)

    async def _handle(self, request: object) -> AdmissionResponse:
        self.proven.append(request.is_proven)  # type: ignore[attr-defined]
        return AdmissionResponse()

    async def post(self, path: str, body: bytes = SMALL) -> int:
        async with asyncio.timeout(10):
            return (await post("127.0.0.1", self.server.port, path, body))[0]

    def connect(self, sent: bytes, size: int = 0) -> Awaitable[None]:
        return connect("127.0.0.1", self.server.port, sent, size)


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    listener = Listener(tmp_path)
    async with listener.server:
        yield listener


@asynccontextmanager
async def attacked(
    listener: Listener, callers: int, sent: bytes, size: int = 0, *, over: int
) -> AsyncIterator[list[asyncio.Task[None]]]:
    attacks = [asyncio.create_task(listener.connect(sent, size)) for _ in range(callers)]  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(30):
            while sum(each.done() for each in attacks) < over:
                await asyncio.sleep(0.05)
        yield attacks
    finally:
        for each in attacks:
            each.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)


BODY = 1536 * 2**10


@pytest.mark.parametrize(
    ("sent", "size"),
    [
        pytest.param(b"", 0, id="silence after the handshake"),
        pytest.param(b"POST /pods HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 4000, 0, id="headers without an end"),
        pytest.param(unfinished("/pods", BODY), BODY, id="bodies without their last byte"),
        pytest.param(b"POST /pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n", 0, id="chunks"),
        pytest.param(unfinished("/elsewhere", BODY), 0, id="bodies for a path that is not served"),
    ],
)
async def test_a_review_is_answered_beside_more_callers_than_there_is_room_for(listener, sent, size):
    async with attacked(listener, UNPROVEN_CONNECTIONS + 40, sent, size, over=40):
        assert await listener.post(PROVEN) == 200
        assert await listener.post("/pods") == 200


async def test_callers_that_begin_no_handshake_are_counted_before_it(listener):
    """A handshake costs more than anything that follows."""
    opened = [
        await asyncio.open_connection("127.0.0.1", listener.server.port) for _ in range(UNPROVEN_CONNECTIONS + 20)
    ]
    try:
        assert await listener.post(PROVEN) == 200
        ended = [reader for reader, _ in opened if await _has_ended(reader)]
        assert len(ended) >= 20
    finally:
        for _, writer in opened:
            writer.close()


async def _has_ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.01):
            return not await reader.read(1)
    except TimeoutError:  # an OSError, too
        return False
    except OSError:
        return True


async def test_bodies_of_strangers_share_room_and_the_newest_is_read(listener, monkeypatch):
    """The declared length counts, before a byte of it has come."""
    monkeypatch.setattr(connections, "BODY_GRACE", 60.0)
    fitting = UNPROVEN_BYTES // BODY
    async with attacked(listener, fitting + 3, unfinished("/pods", BODY - 1), over=3):
        padded = SMALL + b" " * (BODY - len(SMALL))
        assert await listener.post("/pods", padded) == 200


async def test_a_body_that_comes_too_slowly_is_given_up(listener, monkeypatch):
    monkeypatch.setattr(connections, "BODY_GRACE", 0.2)
    async with asyncio.timeout(5):
        assert await listener.connect(unfinished("/pods", 1000)) is None


async def test_headers_that_do_not_come_end_the_connection(listener, monkeypatch):
    monkeypatch.setattr(connections, "FIRST_REQUEST", 0.2)
    async with asyncio.timeout(5):
        await listener.connect(b"POST /pods HTTP/1.1\r\n")


async def test_requests_that_are_sent_before_the_last_was_answered_end_the_connection(listener):
    async with asyncio.timeout(5):
        await listener.connect(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)


async def test_a_connection_that_has_proven_itself_outlives_any_flood(listener):
    """As API servers keep theirs."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.server.port, ssl=_trusting())
    head = f"POST {PROVEN} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SMALL)}\r\n\r\n".encode()

    async def ask() -> bytes:
        writer.write(head + SMALL)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().splitlines() if line.startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
        return answer

    try:
        assert b"200" in await ask()
        async with attacked(listener, UNPROVEN_CONNECTIONS * 2, b"", over=UNPROVEN_CONNECTIONS):
            assert b"200" in await ask()
        assert listener.proven == [True, True]
    finally:
        writer.close()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        (PROVEN, MAX_BODY - 4096, 200),
        (PROVEN, MAX_BODY + 1, 413),
        ("/pods", MAX_UNPROVEN_BODY, 200),
        ("/pods", MAX_UNPROVEN_BODY + 1, 413),
    ],
)
async def test_more_is_read_of_who_is_proven(listener, path, size, status):
    assert await listener.post(path, SMALL + b" " * (size - len(SMALL))) == status


@pytest.mark.req("PL-870")
async def test_only_the_token_of_this_path_proves_a_review(listener):
    token = PROVEN.rpartition("/")[2]
    for path in ("/pods", f"/pods/{token[:-1]}", f"/pods/{token}x", path_with_token("/pods", b"o" * 32), "/pods/"):
        assert await listener.post(path) == 200, "an API server with an outdated path must not let pods pass"
    other = path_with_token("/other", KEY).rpartition("/")[2]
    assert await listener.post(f"/pods/{other}") == 200
    assert listener.proven == [False] * 6
    assert await listener.post(PROVEN) == 200
    assert listener.proven[-1] is True
    for path in (f"/{token}", f"/pods/{token}/{token}", f"//pods/{token}"):
        assert await listener.post(path) == 404


SECRET = "s3cr3t"
MALFORMED = {
    "a header without a colon": f"POST /pods/{SECRET} HTTP/1.1\r\nAuthorization {SECRET}\r\n\r\n",
    "a control character in a header": f"POST /pods HTTP/1.1\r\nAuthorization: Bearer {SECRET}\x01\r\n\r\n",
    "another protocol": f"POST /pods/{SECRET} HTTQ/1.1\r\n\r\n",
    "a control character in the path": f"POST /pods/\x01{SECRET} HTTP/1.1\r\n\r\n",
    "a length that is no number": f"POST /pods HTTP/1.1\r\nContent-Length: {SECRET}\r\n\r\n",
    "a chunk without a size": f"POST /pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
    "a header that is too long": f"POST /pods HTTP/1.1\r\nAuthorization: {SECRET * 2000}\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_a_request_that_is_not_http_is_quoted_in_no_log(listener, caplog, sent):
    caplog.set_level("DEBUG")
    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.server.port, ssl=TLS)
            writer.write(sent.encode())
            assert b" 400 " in await reader.readline()
            writer.close()
    assert SECRET not in caplog.text + str(logs)
    assert [each for each in caplog.records if each.levelname != "DEBUG"] == []
    assert {each["log_level"] for each in logs} == {"debug"}


async def test_a_defect_of_a_handler_is_logged_with_its_traceback_once(caplog):
    async def broken(_):
        raise RuntimeError

    with structlog.testing.capture_logs() as logs:
        async with HttpServer(broken) as server:
            for _ in range(2):
                assert (await post("127.0.0.1", server.port, "/", b"", tls=False))[0] == 500
    assert [(each["problem"], bool(each["exc_info"])) for each in logs] == [
        ("RuntimeError", True),
        ("RuntimeError", False),
    ]
    assert caplog.records == []
