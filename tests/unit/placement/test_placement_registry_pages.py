"""A registry that answers pages for a while: the real registry client, and a registry on loopback."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest
from scripted_registry import OCI_INDEX, Answer, ScriptedRegistry

from polyarch.oci.inspector import Inspector
from polyarch.oci.settings import PLACEMENT
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.placement import names
from polyarch.proxies import Proxies

pytestmark = pytest.mark.req("RG-065")

HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGES = {
    "a page": Answer(200, b"<!doctype html><title>Back soon</title>", HTML),
    "a page of another type": Answer(200, b"<html>", {"Content-Type": OCI_INDEX}),
    "a firewall": Answer(403, b"<html>", HTML),
    "a filter of requests": Answer(406, b"<html>", HTML),
    "nothing": Answer(200, b""),
    "a status": Answer(200, b'{"status":"maintenance"}', {"Content-Type": "application/json"}),
    "no content": Answer(204),
    "half a document": Answer(200, b'{"schemaVersion":2,"manif', {"Content-Type": OCI_INDEX}),
}


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def registry(stack):
    return await stack.enter_async_context(ScriptedRegistry())


@pytest.fixture
async def asking(worlds, stack):
    """A controller that asks real registries, on the clock of the test."""
    policy = AddressPolicy.of("cluster", allow=["127.0.0.0/8"])
    transport = AiohttpTransport(policy=policy, trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({}))
    stack.push_async_callback(transport.close)
    settings = msgspec.structs.replace(PLACEMENT, insecure_loopback=True)

    def inspector(clock):
        made = Inspector(transport=transport, clock=clock, settings=settings, policy=policy)
        stack.push_async_callback(made.close)
        return made

    return worlds(inspector=inspector)


async def pass_time(world, seconds):
    """Real requests need real time, though little of it."""
    for _ in range(seconds):
        await world.run(1)
        for _ in range(3):
            await asyncio.sleep(0.005)
            await world.run()


async def gated_throughout(world, key, seconds):
    for _ in range(seconds):
        await pass_time(world, 1)
        assert world.cluster.is_gated(key), world.cluster.architectures(key)


@pytest.mark.req("PL-330")
@pytest.mark.parametrize("by", ["tag", "digest"])
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
async def test_a_pod_waits_for_the_registry_behind_the_page(asking, registry, page, by):
    """As for a registry that is away, and then the pod gets what its image supports."""
    digest = registry.push_image("team/app", "1", "linux/s390x")
    registry.script("*", "", page, forever=True)
    key = await asking.create(f"{registry.host}/team/app{':1' if by == 'tag' else f'@{digest}'}")
    await gated_throughout(asking, key, 20)
    assert asking.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL]
    registry.clear_scripts()
    await pass_time(asking, 40)
    assert not asking.cluster.is_gated(key)
    assert asking.cluster.architectures(key) == ["s390x"]


@pytest.mark.parametrize("what", ["/blobs/", "^token"])
async def test_a_page_in_place_of_a_config_or_token_is_waited_for(asking, stack, what):
    registry = await stack.enter_async_context(ScriptedRegistry(auth="bearer"))
    registry.public.add("team/app")
    registry.push_image("team/app", "1", "linux/s390x")
    registry.script("*", what, PAGES["a page"], forever=True)
    key = await asking.create(f"{registry.host}/team/app:1")
    await gated_throughout(asking, key, 35)
    registry.clear_scripts()
    await pass_time(asking, 40)
    assert asking.cluster.architectures(key) == ["s390x"]


@pytest.mark.req("PL-335")
async def test_an_index_within_an_index_is_waited_for(asking, registry):
    """What it would add could not be added later."""
    inner = registry.push_index("team/app", None, "linux/arm64")
    entries = [registry.entry("linux/amd64"), registry.entry(None, inner, mediaType=OCI_INDEX)]
    registry.push_index("team/app", "1", entries=entries)
    registry.script("*", inner, Answer(503), forever=True)
    key = await asking.create(f"{registry.host}/team/app:1")
    await gated_throughout(asking, key, 30)
    registry.clear_scripts()
    await pass_time(asking, 40)
    assert asking.cluster.architectures(key) == ["amd64", "arm64"]


@pytest.mark.req("PL-330")
async def test_a_page_that_stays_is_given_up_when_the_window_of_transient_failures_ends(asking, registry):
    registry.script("*", "", PAGES["a page"], forever=True)
    key = await asking.create(f"{registry.host}/team/app:1")
    await gated_throughout(asking, key, 118)
    await pass_time(asking, 4)
    assert not asking.cluster.is_gated(key)
