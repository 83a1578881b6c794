"""The listener: who is answered when, and what is said where there is no answer."""

import asyncio
import io

import aiohttp
import pytest
from numa_extender import ExtenderWorld, arguments, document
from numa_nodes import cell, node


def listening(**options):
    return ExtenderWorld(node(cell(0, cpu=8, memory=16), name="a")).listening(**options)


@pytest.mark.req("NS-080")
async def test_filter_and_prioritize_are_answered_on_one_connection():
    async with listening() as world:
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            body = arguments(document(), "a")
            assert await world.post("filter", body, session=session) == (
                200,
                {"NodeNames": ["a"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""},
            )
            status, scores = await world.post("prioritize", body, session=session)
            assert (status, [each["Host"] for each in scores]) == (200, ["a"])
            assert len(connector._conns) == 1, "kept alive"


@pytest.mark.req("NS-080")
@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/numa/other", "POST", 404),
        ("/filter", "POST", 404),
        ("/numa/bind", "POST", 404),
        ("/numa/filter", "GET", 405),
    ],
)
async def test_other_paths_and_methods_are_told_what_there_is(path, method, status):
    async with listening() as world, world.session.request(method, world.url + path) as answer:
        assert answer.status == status
        assert "/numa/filter" in await answer.text()


@pytest.mark.req("NS-081")
async def test_objects_of_nodes_are_refused_with_what_to_set():
    async with listening() as world:
        _, told = await world.post("filter", b'{"Pod": {}, "Nodes": {"items": []}}')
        assert told["Error"] == "set nodeCacheCapable: true for this extender"


@pytest.mark.req("NS-084")
async def test_a_body_that_is_no_question_is_400_and_one_that_is_too_large_413():
    async with listening() as world:
        assert (await world.post("filter", b"{"))[0] == 400
        assert (await world.post("filter", b'{"NodeNames": ["a"]}'))[0] == 400
        assert (await world.post("filter", io.BytesIO(b" " * (16 * 1024 * 1024 + 1))))[0] == 413
        assert (await world.post("filter", arguments(document(), "a") + b" " * 100_000))[0] == 200


@pytest.mark.req("NS-085")
async def test_while_a_cache_is_not_current_there_is_an_error_and_never_all_nodes():
    async with listening() as world:
        world.problem = "the cache of pods is not complete yet"
        _, told = await world.post("filter", arguments(document(), "a"))
        assert told["Error"] == "the cache of pods is not complete yet"
        assert told["NodeNames"] == []
        _, scores = await world.post("prioritize", arguments(document(), "a"))
        assert scores == [{"Host": "a", "Score": 0}]


@pytest.mark.req("NS-086")
async def test_filter_calls_are_answered_one_at_a_time_in_their_order_and_others_do_not_wait():
    order, gate = [], asyncio.Event()
    async with listening() as world:
        ask = world.engine.filter

        def noted(pod, names, now):
            order.append(pod.name)
            return ask(pod, names, now)

        world.engine.filter = noted
        world.arrival = gate.wait
        waiting = []
        for name in ("one", "two", "three"):
            waiting.append(asyncio.create_task(world.post("filter", arguments(document(name), "a"))))
            await asyncio.sleep(0.05)
        status, _ = await asyncio.wait_for(world.post("prioritize", arguments(document(), "a")), 1)
        assert (status, order) == (200, []), "prioritize was answered before the first filter"
        gate.set()
        answers = [await each for each in waiting]
        assert order == ["one", "two", "three"]
        assert [each["NodeNames"] for _, each in answers] == [["a"]] * 3


@pytest.mark.req("NS-086")
async def test_a_verb_that_takes_too_long_ends_with_an_error_and_the_next_one_is_answered():
    async with listening() as world:
        world.arrival = asyncio.Event().wait
        began = asyncio.get_running_loop().time()
        _, told = await world.post("filter", arguments(document(), "a"))
        assert "within 2 s" in told["Error"]
        assert told["NodeNames"] == []
        assert 1.5 < asyncio.get_running_loop().time() - began < 10
        world.arrival = None
        _, told = await world.post("filter", arguments(document(), "a"))
        assert told["NodeNames"] == ["a"]


@pytest.mark.req("NS-086")
async def test_what_fails_inside_is_an_error_too():
    async with listening() as world:
        world.engine.filter = None
        _, told = await world.post("filter", arguments(document(), "a"))
        assert "TypeError" in told["Error"]
        assert told["NodeNames"] == []


@pytest.mark.req("NS-120")
async def test_pods_that_no_node_will_do_for_are_told_and_only_those():
    heard = []

    class Rejections:
        def rejected(self, asked, now):
            heard.append((asked.pod.name, asked.names))

    async with listening(rejections=(Rejections(),)) as world:
        await world.post("filter", arguments(document("small"), "a"))
        await world.post("filter", arguments(document("large", cpu="64"), "a"))
        await world.post("filter", arguments(document("nowhere")))
    assert heard == [("large", ("a",))]


@pytest.mark.req("NS-088")
async def test_bind_says_why_not():
    class Binds:
        async def bind(self, asked):
            return "" if asked.node == "a" else f"{asked.node}: no room"

    async with listening(binds=Binds()) as world:
        body = b'{"PodName":"web","PodNamespace":"demo","PodUID":"u","Node":"%s"}'
        assert await world.post("bind", body % b"a") == (200, {"Error": ""})
        assert await world.post("bind", body % b"b") == (200, {"Error": "b: no room"})
        world.problem = "stale"
        assert await world.post("bind", body % b"a") == (200, {"Error": "stale"})


@pytest.mark.req("NS-166")
async def test_each_verb_is_timed():
    async with listening() as world:
        await world.post("filter", arguments(document(), "a"))
        assert 'polyarch_numa_filter_seconds_count{verb="filter"} 1.0' in world.page()
