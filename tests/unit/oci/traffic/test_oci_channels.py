"""How a host may be spoken to is found by one request, and never loosened by it."""

import asyncio
from collections import Counter

import pytest

from polyarch.oci.inspection import Status
from polyarch.oci.mirror_files import Tls
from polyarch.oci.traffic import exchange
from polyarch.oci.traffic.exchange import KnownModes
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import NO_TLS, TransportError
from polyarch.oci.transport.tls import TransportMode, TrustSettings, TrustStore
from polyarch.proxies import Proxies

pytestmark = pytest.mark.req("RG-101", "RG-161")

HOST = "r.example"
INSECURE = (TransportMode.VERIFIED, TransportMode.UNVERIFIED, TransportMode.PLAIN)
SKIPPING = (TransportMode.UNVERIFIED, TransportMode.PLAIN)
TLS_ONLY = (TransportMode.VERIFIED, TransportMode.UNVERIFIED)


async def order(known, *, allowed=INSECURE, host=HOST, tls=NO_TLS):
    """What a request would have to try now."""
    async with known.search(host, tls, allowed) as search:
        return tuple(search.order)


async def find(known, mode, *, allowed=INSECURE, tls=NO_TLS):
    async with known.search(HOST, tls, allowed) as search:
        search.found(mode)


class TestWhatWasFound:
    async def test_is_used_again_by_the_same_host_only(self):
        known = KnownModes()
        await find(known, TransportMode.PLAIN)
        assert await order(known) == (TransportMode.PLAIN,)
        assert await order(known, host="r.example:5000") == INSECURE

    async def test_is_forgotten_once_it_fails(self):
        known = KnownModes()
        await find(known, TransportMode.PLAIN)
        async with known.search(HOST, NO_TLS, INSECURE) as search:
            search.lost()
        assert await order(known) == INSECURE

    @pytest.mark.parametrize(
        ("allowed", "found", "stricter", "expected"),
        [
            pytest.param(
                INSECURE, TransportMode.PLAIN, (TransportMode.VERIFIED,), (TransportMode.VERIFIED,), id="secure-source"
            ),
            pytest.param(INSECURE, TransportMode.PLAIN, TLS_ONLY, TLS_ONLY, id="its-token-endpoint"),
            pytest.param(
                INSECURE, TransportMode.UNVERIFIED, TLS_ONLY, (TransportMode.UNVERIFIED,), id="verified-was-tried"
            ),
            pytest.param(SKIPPING, TransportMode.UNVERIFIED, INSECURE, INSECURE, id="verified-was-not-tried"),
            pytest.param(SKIPPING, TransportMode.PLAIN, INSECURE, INSECURE, id="verified-was-not-tried-before-plain"),
            pytest.param(INSECURE, TransportMode.PLAIN, SKIPPING, (TransportMode.PLAIN,), id="less-is-asked"),
        ],
    )
    async def test_is_used_where_every_safer_channel_had_failed(self, allowed, found, stricter, expected):
        known = KnownModes()
        await find(known, found, allowed=allowed)
        assert await order(known, allowed=stricter) == expected

    async def test_is_used_with_the_same_certificates_only(self):
        known = KnownModes()
        await find(known, TransportMode.UNVERIFIED, tls=Tls(ca=("a.crt",)))
        assert await order(known, tls=Tls(ca=("b.crt",))) == INSECURE


class TestWaiting:
    @pytest.fixture
    def known(self):
        return KnownModes()

    @pytest.fixture
    async def searching(self, known):
        """``await searching(channel)`` ends a search that has begun, with what it found, if anything."""
        end = asyncio.get_running_loop().create_future()
        begun = asyncio.Event()

        async def run():
            async with known.search(HOST, NO_TLS, INSECURE) as search:
                begun.set()
                mode = await end
                if mode is None:
                    raise TransportError("connect", phase="connect", host=HOST, detail="refused")
                search.found(mode)

        async def finish(mode):
            end.set_result(mode)
            await asyncio.gather(task, return_exceptions=True)

        task = asyncio.create_task(run())
        await begun.wait()
        finish.task = task
        yield finish
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def waiting(self, known, *, count=3):
        tasks = [asyncio.create_task(order(known)) for _ in range(count)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        return tasks

    async def test_others_use_what_the_first_finds(self, known, searching):
        tasks = await self.waiting(known)
        await searching(TransportMode.PLAIN)
        assert await asyncio.gather(*tasks) == [(TransportMode.PLAIN,)] * 3

    async def test_a_search_that_fails_leaves_the_others_to_search_themselves(self, known, searching):
        tasks = await self.waiting(known)
        await searching(None)
        assert await asyncio.gather(*tasks) == [INSECURE] * 3

    async def test_a_search_that_is_cancelled_hangs_nobody(self, known, searching):
        tasks = await self.waiting(known)
        searching.task.cancel()
        assert await asyncio.gather(*tasks) == [INSECURE] * 3

    async def test_who_is_cancelled_while_waiting_harms_nobody(self, known, searching):
        first, *others = await self.waiting(known)
        first.cancel()
        await searching(TransportMode.PLAIN)
        assert await asyncio.gather(*others) == [(TransportMode.PLAIN,)] * 2

    async def test_nobody_waits_for_a_slow_search_for_long(self, known, searching, monkeypatch):
        monkeypatch.setattr(exchange, "LONGEST_WAIT", 0.0)
        assert await order(known) == INSECURE
        await searching(TransportMode.PLAIN)
        assert await order(known) == (TransportMode.PLAIN,)

    async def test_a_source_with_one_channel_waits_for_nobody(self, known, searching):
        assert await order(known, allowed=(TransportMode.VERIFIED,)) == (TransportMode.VERIFIED,)


class Watched:
    """A transport that writes down how each request was to be sent."""

    def __init__(self, inner):
        self.inner = inner
        self.sent = []

    def request(self, method, url, *, verified=True, **arguments):
        self.sent.append((url.partition("://")[0], verified))
        return self.inner.request(method, url, verified=verified, **arguments)

    async def close(self):
        await self.inner.close()


async def test_a_hundred_images_at_a_plain_registry_cost_two_handshakes(registry, make_inspector, ref, stack):
    """What a user waited for: each image of a plain registry began with handshakes that cannot succeed."""
    watched = Watched(AiohttpTransport(trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({})))
    stack.push_async_callback(watched.close)
    for number in range(100):
        registry.push_index(f"team/app{number}", "1", "linux/amd64", "linux/arm64")
    inspector = make_inspector(transport=watched)
    answers = await inspector.inspect_many([ref(f"team/app{number}:1") for number in range(100)])
    assert {answer.status for answer in answers} == {Status.RESOLVED}
    assert Counter(watched.sent) == {("https", True): 1, ("https", False): 1, ("http", False): 100}
