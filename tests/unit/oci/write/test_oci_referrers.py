"""Signatures and SBOMs go where their image goes."""

import json

import pytest
from image_parts import WritableRegistry, layer, put_image
from scripted_registry import OCI_INDEX, OCI_MANIFEST, Answer, encode

from polyarch.oci.image.contents import referrers_tag
from polyarch.oci.reference import parse
from polyarch.oci.write.assembly import assemble, parse_source
from polyarch.oci.write.children import ChildCollector
from polyarch.oci.write.push import Push, PushFailed, open_destination

IMAGE = layer({"app": b"arm64" * 100})


def put_referrer(registry, repository, subject, *, kind="application/vnd.example.sbom", salt=""):
    """An artifact about ``subject``; its digest and descriptor."""
    body = encode({"about": subject, "salt": salt})
    empty = b"{}"
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": kind,
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": registry.push_blob(repository, empty),
            "size": 2,
        },
        "layers": [{"mediaType": kind, "digest": registry.push_blob(repository, body), "size": len(body)}],
        "subject": {"mediaType": OCI_MANIFEST, "digest": subject, "size": 500},
    }
    digest = registry.push(repository, None, manifest)
    return digest, {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(encode(manifest)), "artifactType": kind}


def list_by_tag(registry, repository, subject, *descriptors):
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(descriptors)}
    return registry.push(repository, referrers_tag(subject), index)


@pytest.fixture
def start(stack):
    async def start(**settings):
        return await stack.enter_async_context(WritableRegistry(**settings))

    return start


@pytest.fixture
def copy(make_inspector):
    """``await copy(source, target)``: the image ``team/parts:1`` becomes ``team/app:1``; what was told."""

    async def copy(source, target):
        told = []
        connection = make_inspector().connection
        gathered = await ChildCollector(connection).gather([parse_source(f"{source.host}/team/parts:1")])
        index = assemble([piece.child for piece in gathered.pieces])
        writer = await open_destination(connection, parse(f"{target.host}/team/app"))
        pieces = {piece.child.digest: piece for piece in gathered.pieces}
        await Push(connection, writer, index, pieces, notice=told.append, uniform=lambda *_: 0.0).go(["1"])
        return told

    return copy


def put_subject(registry):
    return put_image(registry, "team/parts", "1", "linux/arm64", [IMAGE])


@pytest.mark.req("BD-180")
@pytest.mark.parametrize("at_source", [True, False], ids=["listed by API", "listed by tag"])
@pytest.mark.parametrize("at_target", [True, False], ids=["target lists", "target does not"])
@pytest.mark.parametrize("same", [True, False], ids=["one registry", "two registries"])
async def test_referrers_are_copied(start, copy, at_source, at_target, same):
    """Found by the API or by the tag ``sha256-<hex>``, and found again in the same way at the target."""
    source = await start(referrers=at_source)
    target = source if same else await start(referrers=at_target)
    subject = put_subject(source)
    found = [put_referrer(source, "team/parts", subject, salt=salt) for salt in ("one", "two")]
    if not at_source:
        list_by_tag(source, "team/parts", subject, *(descriptor for _, descriptor in found))
    await copy(source, target)
    for digest, _ in found:
        assert ("team/app", digest) in target.manifests
    tagged = target.tags.get(("team/app", referrers_tag(subject)))
    assert (tagged is None) is target.referrers
    if tagged is not None:
        listed = json.loads(target.manifests["team/app", tagged][0])["manifests"]
        assert [each["digest"] for each in listed] == sorted(digest for digest, _ in found)


@pytest.mark.req("BD-180")
async def test_a_list_that_is_there_is_completed(start, copy):
    source, target = await start(referrers=True), await start()
    subject = put_subject(source)
    digest, _ = put_referrer(source, "team/parts", subject)
    other, descriptor = put_referrer(target, "team/app", subject, salt="of the target")
    list_by_tag(target, "team/app", subject, descriptor)
    await copy(source, target)
    tagged = target.tags["team/app", referrers_tag(subject)]
    listed = json.loads(target.manifests["team/app", tagged][0])["manifests"]
    assert {each["digest"] for each in listed} == {digest, other}


@pytest.mark.req("BD-180")
@pytest.mark.parametrize("suffix", [".sig", ".att", ".sbom"])
async def test_what_older_tools_tag_is_copied_with_its_tag(start, copy, suffix):
    source, target = await start(), await start()
    subject = put_subject(source)
    tag = f"{referrers_tag(subject)}{suffix}"
    digest, _ = put_referrer(source, "team/parts", subject)
    source.tags["team/parts", tag] = digest
    await copy(source, target)
    assert target.tags["team/app", tag] == digest
    assert ("team/app", digest) in target.manifests


@pytest.mark.req("BD-180")
async def test_they_come_before_their_image(start, copy):
    """So that a copy that was cut off in between finds the image absent, and does both again."""
    source, target = await start(referrers=True), await start(referrers=True)
    subject = put_subject(source)
    digest, _ = put_referrer(source, "team/parts", subject)
    await copy(source, target)
    order = [each.rpartition("/")[2] for each in target.puts if "manifests" in each]
    assert order.index(digest) < order.index(subject)


@pytest.mark.req("BD-180")
async def test_an_image_that_is_there_is_not_asked_about(start, copy):
    """Referrers are neither needed nor touched."""
    source = await start(referrers=True)
    put_subject(source)
    await copy(source, source)
    source.forget_requests()
    source.tags.pop(("team/app", "1"))
    await copy(source, source)
    assert source.requests(pattern="referrers") == []


@pytest.mark.req("BD-180")
async def test_what_cannot_be_read_is_left_behind_with_a_notice(start, copy):
    source, target = await start(referrers=True), await start()
    subject = put_subject(source)
    digest, _ = put_referrer(source, "team/parts", subject)
    source.script("GET", f"manifests/{digest}", Answer(404), forever=True)
    told = await copy(source, target)
    assert ("team/app", "1") in target.tags
    assert any("left behind" in each and subject in each for each in told)


@pytest.mark.req("BD-180")
async def test_a_registry_that_fails_for_a_while_is_no_reason_to_leave_them(start, copy):
    source, target = await start(referrers=True), await start()
    subject = put_subject(source)
    digest, _ = put_referrer(source, "team/parts", subject)
    source.script("GET", f"manifests/{digest}", Answer(503), forever=True)
    with pytest.raises(PushFailed):
        await copy(source, target)
    assert ("team/app", subject) not in target.manifests
    source.clear_scripts()
    await copy(source, target)
    assert ("team/app", digest) in target.manifests
