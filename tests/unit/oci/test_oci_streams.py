"""Bodies as they arrive, in both directions: what transport and client do with them."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from scripted_registry import Answer, digest_of

from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.reference import parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import Timeouts, TransportError
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies


@pytest.fixture
async def exits():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def serve(exits):
    """``await serve(handler)``: the URL of a server on loopback."""

    async def serve(handler):
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        exits.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/upload"

    return serve


@pytest.fixture
def transport(exits):
    def make(**timeouts):
        transport = AiohttpTransport(
            trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({}), timeouts=Timeouts(**timeouts)
        )
        exits.push_async_callback(transport.close)
        return transport

    return make


async def pieces(*chunks, pause=0.0):
    for chunk in chunks:
        await asyncio.sleep(pause)
        yield chunk


class TestTransport:
    async def test_a_body_in_pieces_has_the_length_that_was_stated(self, serve, transport):
        seen = []

        async def handler(request):
            seen.append((dict(request.headers), await request.read()))
            return web.Response(status=201)

        headers = {"Content-Length": "6"}
        async with transport().request("PUT", await serve(handler), headers=headers, body=pieces(b"abc", b"def")) as it:
            assert it.status == 201
        [(sent, body)] = seen
        assert (body, sent["Content-Length"], "Transfer-Encoding" in sent) == (b"abcdef", "6", False)

    @pytest.mark.req("RG-051")
    async def test_a_slow_upload_is_no_slow_answer(self, serve, transport):
        """The time to the first byte counts from the last piece sent."""

        async def handler(request):
            return web.Response(text=str(len(await request.read())))

        body = pieces(*[b"x" * 10] * 10, pause=0.1)
        async with transport(first_byte=0.5).request(
            "PUT", await serve(handler), headers={"Content-Length": "100"}, body=body
        ) as response:
            assert await response.read(100) == b"100"

    @pytest.mark.req("RG-155")
    async def test_a_registry_may_take_its_time_to_store_a_blob(self, serve, transport):
        """After the last piece it moves gigabytes; the usual time to a first byte is for questions."""

        async def handler(request):
            await request.read()
            await asyncio.sleep(0.6)
            return web.Response(status=201)

        headers = {"Content-Length": "3"}
        async with transport(first_byte=0.2).request(
            "PUT", await serve(handler), headers=headers, body=pieces(b"abc")
        ) as response:
            assert response.status == 201

    async def test_a_server_that_stops_taking_is_a_timeout(self, serve, transport):
        async def handler(request):
            await asyncio.sleep(30)

        async def endless():
            while True:
                yield b"x" * 2**20

        headers = {"Content-Length": str(2**40)}
        with pytest.raises(TransportError) as caught:
            async with transport(first_byte=0.3).request("PUT", await serve(handler), headers=headers, body=endless()):
                pass
        assert (caught.value.kind, caught.value.phase) == ("timeout", "first byte")

    async def test_an_early_answer_ends_the_upload(self, serve, transport):
        async def handler(request):
            return web.Response(status=403)

        ended = asyncio.Event()

        async def endless():
            try:
                while True:
                    yield b"x" * 2**16
                    await asyncio.sleep(0)
            finally:
                ended.set()

        headers = {"Content-Length": str(2**40)}
        async with transport().request("PUT", await serve(handler), headers=headers, body=endless()) as response:
            assert response.status == 403
        async with asyncio.timeout(10):
            await ended.wait()

    @pytest.fixture
    async def stale(self, serve, transport):
        """A transport with a pooled connection that ends with the next request, its URL, and the requests seen."""
        seen = []

        async def handler(request):
            seen.append(request.method)
            if len(seen) == 2:
                request.transport.close()
            return web.Response()

        url, it = await serve(handler), transport()
        async with it.request("GET", url) as response:
            await response.read(10)
        return it, url, seen

    async def test_bytes_are_sent_again_where_a_pooled_connection_went_stale(self, stale):
        it, url, seen = stale
        async with it.request("PUT", url, headers={"Content-Length": "3"}, body=b"abc") as response:
            assert response.status == 200
        assert seen == ["GET", "PUT", "PUT"]

    @pytest.mark.req("RG-155")
    async def test_a_body_that_is_gone_is_not_sent_again(self, stale):
        """Half of it would arrive; whoever streams begins anew with the whole."""
        it, url, seen = stale
        with pytest.raises(TransportError) as caught:
            async with it.request("PUT", url, headers={"Content-Length": "3"}, body=pieces(b"abc")):
                pass
        assert (caught.value.kind, seen) == ("truncated", ["GET", "PUT"])

    async def test_an_error_of_whoever_gives_the_body_ends_the_request(self, serve, transport):
        async def handler(request):
            await request.read()
            return web.Response()

        async def broken():
            yield b"x"
            raise RuntimeError("the source is gone")

        with pytest.raises(TransportError):
            async with transport().request("PUT", await serve(handler), headers={"Content-Length": "9"}, body=broken()):
                pass


class TestClient:
    BODY = bytes(range(256)) * 2000

    @pytest.fixture
    async def contents(self, registry, inspector):
        """Where ``team/app`` is."""
        registry.push_blob("team/app", self.BODY)
        [source] = inspector.connection.sources(parse(f"{registry.host}/team/app"))
        return inspector.connection.at(await inspector.connection.access(source.reference, source))

    async def collect(self, contents, *, stop_after=None):
        attempts = []

        async def receive(chunks):
            body = b""
            attempts.append(body)
            async for chunk in chunks:
                body += chunk
                attempts[-1] = body
                if stop_after is not None and len(body) >= stop_after:
                    return

        context = contents.context()
        await contents.stream(digest_of(self.BODY), receive, context)
        return attempts

    async def test_a_blob_arrives_piece_by_piece(self, contents):
        assert await self.collect(contents) == [self.BODY]

    async def test_who_has_seen_enough_may_stop(self, contents, registry):
        [got] = await self.collect(contents, stop_after=1000)
        assert self.BODY.startswith(got)
        assert await self.collect(contents) == [self.BODY]  # and the client goes on to work

    @pytest.mark.req("RG-061")
    async def test_a_blob_that_breaks_off_is_given_again_from_its_beginning(self, contents, registry):
        registry.script("GET", "/blobs/", Answer(200, self.BODY[:5000], drop=True))
        first, second = await self.collect(contents)
        assert self.BODY.startswith(first)
        assert second == self.BODY

    @pytest.mark.req("RG-033")
    async def test_other_bytes_end_in_an_error(self, contents, registry):
        """Whoever reads to the end knows what was read."""
        registry.blobs["team/app", digest_of(self.BODY)] = self.BODY[:-1]
        with pytest.raises(Failure) as caught:
            await self.collect(contents)
        assert caught.value.error.code == "digest-mismatch"

    @pytest.mark.req("RG-105")
    async def test_a_redirect_is_followed_without_credentials(self, contents, registry, start_registry):
        """Layers are mostly elsewhere."""
        registry.script("GET", "/blobs/", Answer(307, headers={"Location": f"{registry.url}/v2/team/app/blobs/other"}))
        registry.blobs["team/app", "other"] = self.BODY
        assert await self.collect(contents) == [self.BODY]

    @pytest.mark.parametrize(("status", "code"), [(404, "not-found"), (403, "denied"), (418, "server-error")])
    async def test_a_refusal_is_an_error_and_nothing_is_received(self, contents, registry, status, code):
        registry.script("GET", "/blobs/", Answer(status), forever=True)
        with pytest.raises(Failure) as caught:
            await self.collect(contents)
        assert caught.value.error.code == code


class TestTogether:
    async def test_results_stand_in_the_order_of_the_things(self):
        async def work(number):
            await asyncio.sleep(0.01 * (3 - number))
            return number * 10

        assert await map_concurrently(work, [1, 2, 3], at_once=3) == [10, 20, 30]

    async def test_no_more_than_allowed_work_at_a_time(self):
        running = most = 0

        async def work(_):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        await map_concurrently(work, range(20), at_once=4)
        assert most == 4

    async def test_an_error_lets_what_was_begun_end_and_begins_nothing(self):
        ended = []

        async def work(number):
            if number == 1:
                raise ValueError("first")
            await asyncio.sleep(0.01)
            ended.append(number)

        with pytest.raises(ValueError, match="first"):
            await map_concurrently(work, range(10), at_once=3)
        assert ended == [0]

    async def test_of_several_errors_the_first_in_order_is_raised(self):
        async def work(number):
            await asyncio.sleep(0.01 * (2 - number))
            raise ValueError(str(number))

        with pytest.raises(ValueError, match=r"^0$"):
            await map_concurrently(work, [0, 1], at_once=2)
