"""Images are deleted in order, past what a registry does not delete."""

import pytest
from image_parts import WritableRegistry, put_image
from scripted_registry import Answer, digest_of

from polyarch.builds.pruning import PrunableImage
from polyarch.builds.registry import delete_images
from polyarch.oci.inspector import Inspector
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies


@pytest.fixture
async def target():
    async with WritableRegistry() as registry:
        yield registry


@pytest.fixture
async def connection():
    transport = AiohttpTransport(
        policy=AddressPolicy(), trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({})
    )
    inspector = Inspector(transport=transport, settings=InspectorSettings(wait=False))
    yield inspector.connection
    await inspector.close()
    await transport.close()


@pytest.fixture
def images(target):
    """An index of two children and a second index that shares one of them, in the order of deletion."""
    one, two = (put_image(target, "team/app", f"run-{each}", f"linux/{each}") for each in ("amd64", "arm64"))
    first = target.push_index("team/app", "run", entries=[target.entry(None, one), target.entry(None, two)])
    second = target.push_index("team/app", "run-2", entries=[target.entry(None, one)])
    name = f"{target.host}/team/app"
    return (
        PrunableImage(repository=name, digest=first, kind="index"),
        PrunableImage(repository=name, digest=second, kind="index"),
        PrunableImage(repository=name, digest=one, kind="child", after=(first, second)),
        PrunableImage(repository=name, digest=two, kind="child", after=(first,)),
    )


@pytest.mark.req("BD-231")
async def test_indexes_go_before_their_children(target, connection, images):
    found = await delete_images(connection, images)
    assert found.done == tuple(each.reference for each in images)
    assert [each.split("/")[-1] for each in target.writes] == [each.digest for each in images]
    assert target.manifests == {}


@pytest.mark.req("BD-231")
async def test_a_child_stays_while_an_index_that_holds_it_does(target, connection, images):
    target.script("DELETE", images[1].digest, Answer(503), forever=True)
    found = await delete_images(connection, images)
    assert found.remaining == (images[1].reference, images[2].reference)
    assert ("503" in found.problem, found.kept) == (True, ())
    assert set(found.done) == {images[0].reference, images[3].reference}
    assert ("team/app", images[2].digest) in target.manifests
    target.clear_scripts()
    assert (await delete_images(connection, [images[1], images[2]])).remaining == ()


@pytest.mark.req("BD-234")
async def test_a_registry_that_deletes_nothing_is_told_once(target, connection, images):
    """Not tried again, and children of what stays are left alone."""
    target.deletes = False
    found = await delete_images(connection, images)
    assert (found.done, found.remaining) == ((), ())
    assert [each.outcome for each in found.kept] == ["unsupported"] * 4
    assert len(target.requests("DELETE")) == 2
    assert len(found.warnings()) == 1
    assert found.warnings([(images[0].repository, "unsupported")]) == ()


@pytest.mark.req("BD-234")
async def test_two_kinds_of_refusal_are_two_warnings(target, connection, images):
    target.script("DELETE", images[0].digest, Answer(405), forever=True)
    target.script("DELETE", images[1].digest, Answer(403), forever=True)
    found = await delete_images(connection, images[:2])
    assert [each.outcome for each in found.warnings()] == ["unsupported", "denied"]


@pytest.mark.req("BD-234")
async def test_what_is_gone_is_done(target, connection, images):
    target.manifests.clear()
    assert (await delete_images(connection, images)).done == tuple(each.reference for each in images)


@pytest.mark.req("BD-234")
async def test_the_longest_pause_is_told(target, connection, images):
    target.script("DELETE", images[0].digest, Answer(429, headers={"Retry-After": "40"}), forever=True)
    found = await delete_images(connection, images)
    assert found.done == ()
    assert 39 <= found.retry_after <= 40


@pytest.mark.req("BD-322")
async def test_a_reference_that_is_none_stops_nothing(target, connection, images):
    broken = PrunableImage(repository="NOT a name", digest=digest_of(b""), kind="child")
    found = await delete_images(connection, [broken, images[0]])
    assert (found.done, [each.outcome for each in found.kept]) == ((images[0].reference,), ["unsupported"])
