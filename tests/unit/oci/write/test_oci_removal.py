"""Deleting manifests, and the many ways in which registries do not."""

import pytest
from image_parts import WritableRegistry, put_image
from scripted_registry import Answer, encode

from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.reference import parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.writer import remove


@pytest.fixture
async def target(stack):
    return await stack.enter_async_context(WritableRegistry())


@pytest.fixture
def image(target):
    digest = put_image(target, "team/app", "run", "linux/amd64")
    return parse(f"{target.host}/team/app@{digest}")


def said(status, code="", message=""):
    return Answer(status, encode({"errors": [{"code": code, "message": message}]}))


@pytest.mark.req("BD-234")
async def test_a_manifest_is_deleted_with_one_request(target, inspector, image):
    removal = await remove(inspector.connection, image)
    assert (removal.outcome, removal.gone) == ("removed", True)
    assert [str(each) for each in target.seen] == [f"DELETE team/app/manifests/{image.digest}"]
    assert (target.manifests, target.tags) == ({}, {})


@pytest.mark.req("BD-234")
async def test_only_a_digest_is_deleted(target, inspector):
    """What a tag names may be somebody else's by now."""
    with pytest.raises(ValueError, match="no digest"):
        await remove(inspector.connection, parse(f"{target.host}/team/app:run"))
    assert target.seen == []


@pytest.mark.req("RG-065")
@pytest.mark.parametrize("status", [403, 404, 410])
async def test_a_web_page_has_not_deleted_anything(target, inspector, image, status):
    """An ingress without its registry; the manifest is back with it."""
    target.script("DELETE", "", Answer(status, b"<html>", {"Content-Type": "text/html"}))
    with pytest.raises(Failure) as caught:
        await remove(inspector.connection, image)
    assert caught.value.error.code == "not-a-registry"


@pytest.mark.req("BD-234")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (said(404, "MANIFEST_UNKNOWN"), "absent"),
        (said(404, "NAME_UNKNOWN"), "absent"),
        (said(400, "MANIFEST_UNKNOWN"), "absent"),
        (said(400, "NAME_UNKNOWN"), "absent"),
        (Answer(410), "absent"),
        (said(500, "", "manifest has been deleted"), "absent"),
        (said(500, "UNKNOWN", "Tag was Expired"), "absent"),
        (said(401, "UNAUTHORIZED"), "denied"),
        (said(403, "DENIED"), "denied"),
        (said(405, "UNSUPPORTED"), "unsupported"),
        (said(400, "UNSUPPORTED"), "unsupported"),
        (Answer(501), "unsupported"),
    ],
    ids=str,
)
async def test_what_is_tolerated(target, inspector, image, answer, outcome):
    target.script("DELETE", "manifests", answer, forever=True)
    removal = await remove(inspector.connection, image)
    assert (removal.outcome, removal.gone) == (outcome, outcome == "absent")
    assert bool(removal.message) is (outcome in ("denied", "unsupported"))


@pytest.mark.req("BD-234")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (said(500, "", "something broke"), "server-error"),
        (Answer(502), "server-error"),
        (Answer(200, b"<!doctype html>", {"Content-Type": "text/html"}), "not-a-registry"),
        (Answer(429, headers={"Retry-After": "100"}), "rate-limited"),
    ],
)
async def test_the_rest_may_succeed_later(target, make_inspector, image, answer, code):
    target.script("DELETE", "manifests", answer, forever=True)
    with pytest.raises(Failure) as caught:
        await remove(make_inspector(wait=False).connection, image)
    assert caught.value.error.code == code
    assert caught.value.error.error_class in ("transient", "limit")


class TestTags:
    """Google's registries delete no manifest that has a tag."""

    @pytest.fixture
    def strict(self, target):
        def refuse(request):
            digest = request.path.rpartition("/")[2]
            tagged = any(each == digest for each in target.tags.values())
            if request.method == "DELETE" and ":" in digest and tagged:
                return said(400, "GOOGLE_MANIFEST_DANGLING_TAG", "Manifest is still referenced by tag: run")
            return None

        target.gate = refuse
        return target

    @pytest.mark.req("BD-234")
    async def test_own_tags_go_first_where_they_must(self, strict, inspector, image):
        assert (await remove(inspector.connection, image, tags=["run"])).gone
        assert (strict.tags, strict.manifests) == ({}, {})

    @pytest.mark.req("BD-234")
    async def test_a_tag_that_names_something_else_stays(self, strict, inspector, image):
        other = put_image(strict, "team/app", "other", "linux/arm64")
        await remove(inspector.connection, image, tags=["other"])
        assert strict.tags["team/app", "other"] == other

    @pytest.mark.req("BD-234")
    async def test_a_tag_that_somebody_else_set_keeps_the_image(self, strict, inspector, image):
        strict.tags["team/app", "v1.0"] = image.digest
        removal = await remove(inspector.connection, image, tags=["run"])
        assert (removal.outcome, "still referenced by tag" in removal.message) == ("unsupported", True)
        assert ("team/app", image.digest) in strict.manifests


@pytest.mark.req("BD-234")
async def test_deleting_asks_for_every_right_in_one_scope(stack, make_inspector):
    """Some token servers refuse `delete`, and some need it; all take the wildcard."""
    target = await stack.enter_async_context(WritableRegistry(auth="bearer"))
    target.users["ann"] = "secret"
    digest = put_image(target, "team/app", "run", "linux/amd64")
    body = encode({"auths": {target.host: {"username": "ann", "password": "secret"}}})
    store = KeyringCredentials([Document("secret team/push", body)])
    assert (await remove(make_inspector(credentials=store).connection, parse(f"{target.host}/team/app@{digest}"))).gone
    assert target.scopes_asked == [("repository:team/app:*",)]
