"""The fault proxy does to a connection what a test asked for, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from fault_proxy import CUT, Answer, Cut, Delay, FaultProxy, Lines, Reset, Slow, gone_event, status
from yarl import URL

pytestmark = pytest.mark.req("SB-009")


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    async def plain(request: web.Request) -> web.Response:
        body = await request.read()
        seen = {"X-Seen": request.headers.get("Authorization", "-"), "X-Path": request.raw_path}
        return web.Response(body=b"0123456789" * 10 + body, headers=seen)

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(3):
            await response.write(b'{"type":"ADDED","n":%d}\n' % number)
        await response.write_eof()
        return response

    application = web.Application()
    application.router.add_route("*", "/plain", plain)
    application.router.add_get("/stream", stream)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert isinstance(site._server, asyncio.Server)
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with server() as upstream, FaultProxy(upstream) as proxy:
        yield proxy


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def until_torn(answer: aiohttp.ClientResponse) -> bytes:
    received = b""
    try:
        async for chunk in answer.content.iter_any():
            received += chunk
    except aiohttp.ClientPayloadError:
        return received
    raise AssertionError("the connection was not torn")


def everything(_: object) -> bool:
    return True


async def test_without_a_fault_request_and_answer_pass_unchanged(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    url = URL(f"{proxy.url}/plain?a=%2F", encoded=True)
    async with http.post(url, data=b"tail", headers={"Authorization": "Bearer x"}) as answer:
        assert await answer.read() == b"0123456789" * 10 + b"tail"
        assert (answer.headers["X-Seen"], answer.headers["X-Path"]) == ("Bearer x", "/plain?a=%2F")
    assert [(seen.method, seen.path, seen.authorization) for seen in proxy.seen] == [("POST", "/plain", "Bearer x")]


async def test_an_answer_is_given_in_place_of_the_servers_as_often_as_asked(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    proxy.inject(everything, status(429, "TooManyRequests", retry_after=7), times=1)
    async with http.get(f"{proxy.url}/plain") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        assert (await answer.json())["reason"] == "TooManyRequests"
    async with http.get(f"{proxy.url}/plain") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("action", [Reset(), Reset(after=True)], ids=["before the server saw it", "after it was done"])
async def test_a_reset_tears_the_connection(proxy: FaultProxy, http: aiohttp.ClientSession, action: Reset) -> None:
    proxy.inject(everything, action, times=None)
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.post(f"{proxy.url}/plain")


async def test_a_cut_body_ends_after_the_bytes_asked_for(proxy: FaultProxy, http: aiohttp.ClientSession) -> None:
    proxy.inject(everything, Cut(after_bytes=25))
    async with http.get(f"{proxy.url}/plain") as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_slow_and_delayed_answers_arrive_whole(proxy: FaultProxy, http: aiohttp.ClientSession) -> None:
    proxy.inject(everything, Slow(bytes_per_second=200), times=1)
    proxy.inject(everything, Delay(0.2), times=1)
    for _ in range(2):
        begin = time.monotonic()
        async with http.get(f"{proxy.url}/plain") as answer:
            assert len(await answer.read()) == 100
        assert time.monotonic() - begin >= 0.15


async def test_lines_of_a_watch_can_be_doubled_replaced_and_torn(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    proxy.inject(everything, Lines(lambda line: [line, line] if b'"n":0' in line else [gone_event()]), times=1)
    async with http.get(f"{proxy.url}/stream?watch=1") as answer:
        lines = (await answer.read()).splitlines()
    assert [b"ADDED" in line for line in lines] == [True, True, False, False]
    proxy.inject(everything, Lines(lambda line: [CUT] if b'"n":1' in line else [line]), times=1)
    async with http.get(f"{proxy.url}/stream?watch=1") as answer:
        received = await until_torn(answer)
    assert received == b'{"type":"ADDED","n":0}\n{"type":"AD'


async def test_a_server_that_is_down_refuses_and_comes_back_on_the_same_port(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    async with http.get(f"{proxy.url}/plain") as answer:
        assert answer.status == 200
    async with proxy.refusing():
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{proxy.url}/plain")
    async with http.get(f"{proxy.url}/plain") as answer:
        assert answer.status == 200


async def test_a_silent_server_takes_the_request_and_answers_later(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    async with proxy.silent():
        request = asyncio.ensure_future(http.get(f"{proxy.url}/plain"))
        await asyncio.sleep(0.2)
        assert not request.done()
    async with await request as answer:
        assert answer.status == 200


async def test_the_first_matching_fault_is_used_and_can_be_withdrawn(
    proxy: FaultProxy, http: aiohttp.ClientSession
) -> None:
    fault = proxy.inject(lambda seen: seen.method == "GET", Answer(503))
    proxy.inject(everything, Answer(500))
    codes = []
    for method in ("GET", "POST"):
        async with http.request(method, f"{proxy.url}/plain") as answer:
            codes.append(answer.status)
    proxy.withdraw(fault)
    async with http.get(f"{proxy.url}/plain") as answer:
        codes.append(answer.status)
    assert codes == [503, 500, 500]
    assert fault.hits == 1
