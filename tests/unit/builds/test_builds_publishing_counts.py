"""How many requests a result costs, and how much memory a copy."""

import asyncio
import tracemalloc

import msgspec
import pytest
from aiohttp import web
from scripted_registry import digest_of

from polyarch.builds.registry import Publication, PublishResult, head_image, publish
from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document

FOUR_ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")

MIB = 2**20


@pytest.mark.req("BD-347")
@pytest.mark.parametrize("architectures", [FOUR_ARCHITECTURES[:1], FOUR_ARCHITECTURES[:2], FOUR_ARCHITECTURES])
@pytest.mark.parametrize("tags", [("run",), ("run", "latest", "1.0")])
async def test_verify_and_push(target, connection, put, publication, architectures, tags):
    """2N + 3 + 3T: manifest and config of each child; HEAD, PUT, HEAD of the index; HEAD, PUT, HEAD of each tag."""
    work = publication(*map(put, architectures), tags=tags)
    target.forget_requests()
    await publish(connection, work)
    n, t = len(architectures), len(tags)
    assert len(target.seen) == 2 * n + 3 + 3 * t
    assert [len(target.requests(method)) for method in ("GET", "HEAD", "PUT")] == [2 * n, 2 + 2 * t, 1 + t]


@pytest.mark.req("BD-347")
async def test_a_single_child(target, connection, put, publication):
    """Without an index there is none to push: 2 + 3T."""
    work = publication(put("arm64"), single=True)
    target.forget_requests()
    await publish(connection, work)
    assert len(target.seen) == 2 + 3


@pytest.mark.req("BD-347")
async def test_again(target, connection, put, publication):
    """2N + T, and no write."""
    work = publication(*map(put, FOUR_ARCHITECTURES), tags=("run", "latest"))
    await publish(connection, work)
    target.forget_requests()
    await publish(connection, work)
    assert (len(target.seen), target.writes) == (2 * 4 + 2, [])


@pytest.mark.req("BD-347", "BD-349")
async def test_reuse_is_one_head_for_each_child(target, connection, put):
    children = [put(each) for each in FOUR_ARCHITECTURES]
    target.forget_requests()
    for child in children:
        assert (await head_image(connection, child.reference)).digest
    assert [each.method for each in target.seen] == ["HEAD"] * 4


@pytest.mark.req("BD-347")
async def test_one_token_for_the_whole(start, connect, put, result_of):
    """One token per host and scope: reading the children and pushing share it."""
    target = await start(auth="bearer")
    target.users["builder"] = "secret-of-the-builder"
    body = b'{"auths":{"%s":{"username":"builder","password":"secret-of-the-builder"}}}' % target.host.encode()
    connection = connect(credentials=KeyringCredentials([Document("secret team/push", body)]))
    children = tuple(put(each, at=target) for each in FOUR_ARCHITECTURES)
    work = result_of(target, children)
    assert isinstance(await publish(connection, work), PublishResult)
    assert len(target.scopes_asked) == 1
    target.forget_requests()
    target.tags.pop(("team/app", "run"))
    assert isinstance(await publish(connection, work), PublishResult)
    assert (len(target.scopes_asked), target.requests(pattern="token")) == (1, [])


@pytest.mark.req("BD-176", "BD-347")
async def test_no_layer_passes_through_that_is_there_or_can_be_mounted(target, connection, put, publication):
    work = publication(put("amd64"), put("arm64", repository="team/staging"))
    target.forget_requests()
    assert isinstance(await publish(connection, work), PublishResult)
    configs = 2
    assert len(target.requests("GET", "/blobs/")) == configs
    assert [each for each in target.puts if "/uploads/" in each] == []


@pytest.mark.req("BD-176")
async def test_a_stream_holds_little_memory(connect, put, start, stack):
    """A blob of 48 MiB, of which the writer takes its time: never more than 8 MiB of it are held."""
    piece = bytes(range(256)) * 256
    count = 48 * MIB // len(piece)
    whole = piece * count
    digest = digest_of(whole)
    source = await start()
    child = put("arm64", at=source, repository="team/big", layers=[whole])
    source.blobs["team/big", digest] = b""
    del whole
    received = 0

    async def give(request):
        response = web.StreamResponse(headers={"Content-Length": str(count * len(piece))})
        await response.prepare(request)
        for _ in range(count):
            await response.write(piece)
        return response

    async def take(request):
        nonlocal received
        if request.method == "PUT" and "/uploads/" in request.path:
            async for chunk in request.content.iter_chunked(65536):
                received += len(chunk)
                if received % MIB < 65536:
                    await asyncio.sleep(0.001)
            return web.Response(status=201)
        if request.method == "POST":
            return web.Response(status=202, headers={"Location": "/v2/team/app/blobs/uploads/1"})
        if request.method == "PUT":
            return web.Response(status=201)
        return web.Response(status=404)

    big = await serve(stack, give_big(source, digest, give))
    sink = await serve(stack, take)
    moved = msgspec.structs.replace(child, reference=child.reference.replace(source.host, big))
    tracemalloc.start()
    try:
        work = Publication(repository=f"{sink}/team/app", children=(moved,), single=True)
        result = await publish(connect(), work)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(result, PublishResult)
    assert received >= 48 * MIB
    assert most < 8 * MIB


def give_big(source, digest, give):
    async def handle(request):
        if request.path.endswith(f"/blobs/{digest}"):
            return await give(request)
        return await source._handle(request)

    return handle


async def serve(stack, handler):
    """A server for ``handler``; its host and port."""
    application = web.Application(client_max_size=0)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return f"127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
