"""What answers with success and is no registry: maintenance pages, logins, portals, statuses, torn bodies."""

import gzip
from collections import Counter

import pytest
from scripted_registry import OCI_INDEX, Answer, digest_of, encode

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.cache import Cache, RepositoryLocation
from polyarch.oci.image.contents import list_referrers, list_tags
from polyarch.oci.inspection import Status
from polyarch.oci.mirror_files import Mirror, RegistryEntry
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.traffic.failures import Failure

pytestmark = pytest.mark.req("RG-065")

APP = "team/app"
PAGE = b"<!doctype html>\n<html><title>Back soon</title></html>"
HTML = {"Content-Type": "text/html; charset=utf-8"}
ROBOT = Credential("robot", "password-of-robot", source="secret team/pull", key="r.example/team")
INSTEAD = {
    "a page": Answer(200, PAGE, HTML),
    "a page that is said to be JSON": Answer(200, PAGE, {"Content-Type": "application/json"}),
    "a page that is said to be an index": Answer(200, PAGE, {"Content-Type": OCI_INDEX}),
    "a page of no type": Answer(200, b"\n  " + PAGE, {"Content-Type": ""}),
    "a page that is compressed": Answer(200, gzip.compress(PAGE), {**HTML, "Content-Encoding": "gzip"}),
    "a page that is very large": Answer(200, PAGE + b" " * 5 * 2**20, HTML),
    "a page with the header of the image": Answer(200, PAGE, {**HTML, "Docker-Content-Digest": "sha256:" + "a" * 64}),
    "an ingress without its registry": Answer(404, PAGE, HTML),
    "a firewall": Answer(403, PAGE, HTML),
    "a filter of requests": Answer(406, PAGE, HTML),
    "a host that has moved": Answer(410, PAGE, HTML),
    "nothing": Answer(200, b"", {"Content-Type": OCI_INDEX}),
    "no content": Answer(204),
    "not yet": Answer(202, b"{}"),
    "a part": Answer(206, b'{"schemaVersion":2', {"Content-Range": "bytes 0-17/300"}),
    "a status": Answer(200, b'{"status":"maintenance"}', {"Content-Type": "application/json"}),
    "an error": Answer(200, b'{"errors":[{"code":"UNAVAILABLE","message":"back soon"}]}', {"Content-Type": OCI_INDEX}),
    "a list": Answer(200, b"[]"),
    "half of a document": Answer(200, b'{"schemaVersion":2,"manifests":[{"media', {"Content-Type": OCI_INDEX}),
    "plain text": Answer(200, b"OK", {"Content-Type": "text/plain"}),
}


class Holding:
    """A store with these credentials, then anonymous."""

    def __init__(self, *credentials):
        self.credentials = [*credentials, ANONYMOUS]

    async def candidates(self, reference, source):
        return list(self.credentials)

    def cached_candidates(self, reference, source):
        return list(self.credentials)

    def warnings(self, source):
        return ()


@pytest.fixture(params=INSTEAD.values(), ids=INSTEAD)
def instead(request):
    return request.param


def is_passing(error):
    return (error.error_class, error.code) in (("transient", "not-a-registry"), ("transient", "digest-mismatch"))


class TestManifests:
    @pytest.mark.parametrize("public_probe", [False, True], ids=["command line", "cluster"])
    @pytest.mark.parametrize("by", ["tag", "digest"])
    async def test_it_is_no_fact_about_the_image(self, registry, make_inspector, ref, clock, instead, by, public_probe):
        """Nothing is kept of it: neither a tag nor a failure, nor that everybody may read the repository."""
        cache = Cache(clock)
        inspector = make_inspector(cache=cache, public_probe=public_probe)
        digest = registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        image = ref(f"{APP}:1" if by == "tag" else f"{APP}@{digest}")
        registry.script("*", "", instead, forever=True)
        failed = await inspector.inspect(image)
        assert is_passing(failed.error), failed.error
        assert failed.error.message.startswith(f"{image.canonical}: {registry.host}: ")
        assert (
            list(cache.tags()),
            list(cache.readings()),
            cache.proofs_of(RepositoryLocation(registry.host, APP)),
        ) == ([], [], {})
        registry.clear_scripts()
        found = await inspector.inspect(image)
        assert (found.status, found.digest, found.cached) == (Status.RESOLVED, digest, False)

    @pytest.mark.req("RG-116")
    async def test_it_leaves_what_was_known_in_force(self, registry, make_inspector, ref, clock, instead):
        """As while a registry is away."""
        inspector = make_inspector(public_probe=True)
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        right = await inspector.inspect(ref(f"{APP}:1"))
        registry.script("*", "", instead, forever=True)
        clock.advance(601)
        failed = await inspector.inspect(ref(f"{APP}:1"))
        assert is_passing(failed.error)
        assert failed.last_good.entries == right.entries
        assert inspector.peek(ref(f"{APP}:1"), stale_for=3600.0).entries == right.entries

    async def test_one_that_no_digest_vouches_for_is_judged_the_same_whatever_its_type(self, registry, inspector, ref):
        """A file server says text/html of everything, and what it has is an image all the same."""
        body = encode({"schemaVersion": 2, "manifests": [registry.entry("linux/amd64"), registry.entry("linux/arm64")]})
        registry.script("GET", "", Answer(200, body, HTML), forever=True)
        assert (await inspector.inspect(ref(f"{APP}:1"))).status is Status.RESOLVED
        assert (await inspector.inspect(ref(f"{APP}@{digest_of(body)}"))).status is Status.RESOLVED

    @pytest.mark.req("RG-060")
    @pytest.mark.parametrize(
        ("body", "code"),
        [(PAGE, "malformed"), (b"", "malformed"), (b'{"status":"maintenance"}', "unsupported-media-type")],
    )
    @pytest.mark.parametrize("by", ["tag", "digest"])
    async def test_bytes_that_a_digest_vouches_for_are_a_fact(self, registry, inspector, ref, body, code, by):
        """They will never be an image; the registry says so itself for a tag."""
        digest = registry.push(APP, "1", body)
        found = await inspector.inspect(ref(f"{APP}:1" if by == "tag" else f"{APP}@{digest}"))
        assert (found.error.code, found.error.error_class) == (code, "content")

    async def test_another_type_of_document_is_a_fact_too(self, registry, inspector, ref):
        body = b'{"mediaType":"application/vnd.oci.artifact.manifest.v1+json","blobs":[]}'
        registry.script("GET", "", Answer(200, body), forever=True)
        found = await inspector.inspect(ref(f"{APP}:1"))
        assert (found.error.code, found.error.error_class) == ("unsupported-media-type", "content")

    async def test_a_mirror_that_answers_a_page_is_passed_over(self, registry, start_registry, make_inspector, ref):
        mirror = await start_registry()
        mirror.script("*", "", INSTEAD["a page"], forever=True)
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        rules = Configuration(
            registries=(
                RegistryEntry(
                    prefix=registry.host,
                    location=registry.host,
                    insecure=True,
                    mirrors=(Mirror(mirror.host, insecure=True),),
                ),
            )
        )
        found = await make_inspector(configuration=rules).inspect(ref(f"{APP}:1"))
        assert (found.status, mirror.seen != []) == (Status.RESOLVED, True)


class TestErrorsOfRegistries:
    """They stay what they say, though their headers or bodies look like those of pages."""

    GONE = encode({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            pytest.param(Answer(404, GONE, HTML), ("absent", "not-found"), id="an error of a registry as HTML"),
            pytest.param(
                Answer(404, b"<?xml version='1.0'?><Error/>", {"Content-Type": "application/xml"}),
                ("absent", "not-found"),
                id="an object store without the object",
            ),
            pytest.param(Answer(404, b"404 page not found", {}), ("absent", "not-found"), id="plain text"),
            pytest.param(
                Answer(401, PAGE, {**HTML, "WWW-Authenticate": "Basic realm=x"}),
                ("auth", "unauthorized"),
                id="a proxy that asks for a password",
            ),
        ],
    )
    async def test_they_are_final(self, registry, inspector, ref, answer, error):
        registry.script("*", "", answer, forever=True)
        found = (await inspector.inspect(ref(f"{APP}:1"))).error
        assert (found.error_class, found.code) == error

    @pytest.mark.req("RG-032")
    @pytest.mark.parametrize("status", [403, 404, 410])
    async def test_a_head_that_fails_like_a_page_leaves_it_to_the_get(self, registry, inspector, ref, clock, status):
        """It has no body that would tell whose answer it is."""
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        await inspector.inspect(ref(f"{APP}:1"))
        clock.advance(601)
        registry.script("HEAD", "", Answer(status, b"", HTML), forever=True)
        registry.script("GET", "", Answer(404, self.GONE))
        assert (await inspector.inspect(ref(f"{APP}:1"))).error.code == "not-found"
        clock.advance(61)
        assert (await inspector.inspect(ref(f"{APP}:1"))).status is Status.RESOLVED


class TestMessages:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("a page", "a web page (text/html) came for the manifest 1 with HTTP 200"),
            ("nothing", "an empty body came for the manifest 1"),
            ("no content", "an empty body came for the manifest 1 with HTTP 204"),
            ("a status", "a body that is not a manifest (application/json) came for the manifest 1"),
            ("an error", 'UNAVAILABLE "back soon") came for the manifest 1'),
        ],
    )
    async def test_they_say_what_came(self, registry, inspector, ref, name, words):
        registry.script("*", "", INSTEAD[name], forever=True)
        error = (await inspector.inspect(ref(f"{APP}:1"))).error
        assert words in error.message
        assert "not a registry's answer; it may be down for maintenance or want a login" in error.message

    @pytest.mark.parametrize("by", ["tag", "digest"])
    @pytest.mark.parametrize("method", ["*", "GET"])
    async def test_they_name_where_a_redirect_led(self, registry, start_registry, inspector, ref, by, method):
        login = await start_registry()
        login.script("*", "", INSTEAD["a page"], forever=True)
        place = f"{login.url}/users/sign_in?back=secret-of-the-query"
        registry.script(method, "manifests", Answer(302, headers={"Location": place}), forever=True)
        image = ref(f"{APP}:1" if by == "tag" else f"{APP}@sha256:{'a' * 64}")
        error = (await inspector.inspect(image)).error
        assert f"after a redirect from {registry.host} to {login.host}/users/sign_in: " in error.message
        assert "secret-of-the-query" not in error.message
        assert error.host == login.host

    async def test_they_name_a_login_page_of_the_same_host(self, registry, inspector, ref):
        registry.script("*", "manifests", Answer(302, headers={"Location": "/users/sign_in"}), forever=True)
        registry.script("*", "users", INSTEAD["a page"], forever=True)
        error = (await inspector.inspect(ref(f"{APP}:1"))).error
        assert f"to {registry.host}/users/sign_in: this is not a registry's answer" in error.message


class TestWhatIsBelow:
    async def test_a_config_passes(self, registry, inspector, ref, instead):
        digest = registry.push_image(APP, "1", "linux/arm64")
        registry.script("GET", "/blobs/", instead, forever=True)
        assert is_passing((await inspector.inspect(ref(f"{APP}:1"))).error)
        registry.clear_scripts()
        assert (await inspector.inspect(ref(f"{APP}@{digest}"))).status is Status.RESOLVED

    async def test_a_child_passes(self, registry, inspector, ref, instead):
        child = registry.push_image(APP, None, "linux/arm64")
        registry.push_index(APP, "1", entries=[registry.entry(None, child)])
        registry.script("GET", child, instead, forever=True)
        assert is_passing((await inspector.inspect(ref(f"{APP}:1"))).error)
        registry.clear_scripts()
        assert (await inspector.inspect(ref(f"{APP}:1"))).status is Status.RESOLVED

    @pytest.mark.req("RG-043")
    @pytest.mark.parametrize("nested", [False, True], ids=["an image", "an index"])
    async def test_an_index_is_not_read_without_a_child_that_passes(self, registry, inspector, ref, instead, nested):
        """Its platform is not missing, and would be missing from the pods for as long as they live."""
        first, late = registry.push_image(APP, None, "linux/amd64"), registry.push_image(APP, None, "linux/arm64")
        if nested:
            late = registry.push_index(APP, None, entries=[registry.entry("linux/arm64", late)])
        of_late = registry.entry(None, late, **({"mediaType": OCI_INDEX} if nested else {}))
        registry.push_index(APP, "1", entries=[registry.entry("linux/amd64", first), of_late])
        registry.script("*", late, instead, forever=True)
        found = await inspector.inspect(ref(f"{APP}:1"))
        assert found.error is not None
        assert is_passing(found.error)
        registry.clear_scripts()
        assert len((await inspector.inspect(ref(f"{APP}:1"))).entries) == 2

    @pytest.mark.req("RG-043")
    async def test_an_index_does_without_a_child_that_is_damaged(self, registry, inspector, ref):
        """That does not pass by itself."""
        first, other = registry.push_image(APP, None, "linux/amd64"), registry.push_image(APP, None, "linux/arm64")
        registry.push_index(APP, "1", entries=[registry.entry("linux/amd64", first), registry.entry(None, other)])
        registry.manifests[APP, other] = registry.manifests[APP, first]
        assert [str(each) for each in (await inspector.inspect(ref(f"{APP}:1"))).platforms] == ["linux/amd64"]

    @pytest.mark.req("RG-033")
    async def test_other_bytes_than_the_digests_pass_too(self, registry, inspector, ref):
        """Whether they are damaged, forged or of a proxy's cache, the image is not to blame."""
        digest = registry.push_image(APP, "1", "linux/arm64")
        other = registry.push_image(APP, "2", "linux/amd64")
        right = registry.manifests[APP, digest]
        registry.manifests[APP, digest] = registry.manifests[APP, other]
        error = (await inspector.inspect(ref(f"{APP}@{digest}"))).error
        assert (error.code, error.error_class) == ("digest-mismatch", "transient")
        registry.manifests[APP, digest] = right
        assert (await inspector.inspect(ref(f"{APP}@{digest}"))).status is Status.RESOLVED


class TestTokens:
    @pytest.fixture
    async def bearer(self, start_registry):
        registry = await start_registry(auth="bearer")
        registry.users = {"robot": ROBOT.password}
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        return registry

    @pytest.mark.parametrize("public_probe", [False, True], ids=["command line", "cluster"])
    async def test_a_page_in_place_of_a_token_is_no_refusal(
        self, bearer, make_inspector, ref, clock, instead, public_probe
    ):
        cache = Cache(clock)
        inspector = make_inspector(cache=cache, credentials=Holding(ROBOT), public_probe=public_probe)
        bearer.script("*", "^token", instead, forever=True)
        error = (await inspector.inspect(ref(f"{APP}:1", bearer))).error
        assert (error.code, error.error_class) == ("not-a-registry", "transient")
        assert "came for a token" in error.message
        assert not cache.known_private(RepositoryLocation(bearer.host, APP), seconds=3600.0)
        bearer.clear_scripts()
        assert (await inspector.inspect(ref(f"{APP}:1", bearer))).status is Status.RESOLVED

    @pytest.mark.parametrize("public_probe", [False, True], ids=["command line", "cluster"])
    async def test_who_has_a_credential_is_not_stopped_by_the_login_page_of_others(
        self, bearer, make_inspector, ref, public_probe
    ):
        def token(request):
            return INSTEAD["a page"] if "Authorization" not in request.headers else Answer(200, b'{"token":"abc"}')

        bearer._tokens["abc"] = ("robot", f"repository:{APP}:pull")
        bearer.script("*", "^token", token, forever=True)
        inspector = make_inspector(credentials=Holding(ROBOT), public_probe=public_probe)
        assert (await inspector.inspect(ref(f"{APP}:1", bearer))).status is Status.RESOLVED

    @pytest.mark.parametrize("public_probe", [False, True], ids=["command line", "cluster"])
    async def test_a_firewall_does_not_take_the_proof_of_a_credential(
        self, bearer, make_inspector, ref, clock, public_probe
    ):
        inspector = make_inspector(credentials=Holding(ROBOT), public_probe=public_probe)
        await inspector.inspect(ref(f"{APP}:1", bearer))
        bearer.script("*", "manifests", INSTEAD["a firewall"], forever=True)
        clock.advance(700)
        failed = await inspector.inspect(ref(f"{APP}:1", bearer))
        assert (failed.error.code, failed.last_good is not None) == ("not-a-registry", True)

    @pytest.mark.req("RG-116")
    async def test_a_page_does_not_take_the_proof_of_a_credential(self, bearer, make_inspector, ref, clock):
        """The last good reading stays good for whom it was."""
        inspector = make_inspector(credentials=Holding(ROBOT), public_probe=True)
        await inspector.inspect(ref(f"{APP}:1", bearer))
        bearer.revoke_tokens()
        bearer.script("*", "^token", INSTEAD["a page"], forever=True)
        clock.advance(700)
        assert (await inspector.inspect(ref(f"{APP}:1", bearer))).last_good is not None


class TestLists:
    @pytest.mark.parametrize("name", [name for name in INSTEAD if name != "a page that is compressed"])
    async def test_a_page_is_no_list_of_tags(self, registry, inspector, ref, name):
        registry.script("GET", "tags/list", INSTEAD[name], forever=True)
        with pytest.raises(Failure) as caught:
            await list_tags(inspector.connection, ref(f"{APP}:1"))
        assert caught.value.error.error_class == "transient", caught.value.error

    async def test_a_repository_without_tags_has_none(self, registry, inspector, ref):
        registry.script("GET", "tags/list", Answer(200, b'{"name":"team/app","tags":null}'), forever=True)
        assert await list_tags(inspector.connection, ref(f"{APP}:1")) == ()

    @pytest.mark.parametrize("name", ["a page", "nothing", "a status", "an error", "a list", "plain text"])
    async def test_a_page_is_no_list_of_referrers(self, registry, inspector, ref, name):
        """None: the tag that older registries keep has to be looked for, which fails if everything is a page."""
        registry.script("GET", "referrers", INSTEAD[name], forever=True)
        source = inspector.connection.sources(ref(f"{APP}:1"))[0]
        access = await inspector.connection.access(ref(f"{APP}:1"), source)
        assert await list_referrers(inspector.connection, access, f"sha256:{'a' * 64}") is None


@pytest.mark.req("RG-032")
async def test_heads_that_get_pages_are_followed_by_gets(registry, make_inspector, ref, clock):
    """And the host is not taken for one without HEAD."""
    inspector = make_inspector()
    registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
    await inspector.inspect(ref(f"{APP}:1"))
    clock.advance(601)
    registry.script("*", "", INSTEAD["a page"], forever=True)
    await inspector.inspect(ref(f"{APP}:1"))
    registry.clear_scripts()
    clock.advance(601)
    await inspector.inspect(ref(f"{APP}:1"))
    assert Counter(each.partition(" ")[0] for each in registry.requests()) == {"GET": 2, "HEAD": 2}
