"""Bringing an index to a registry, its authorization and the places it is sent to."""

import asyncio

import pytest
from image_parts import WritableRegistry, layer, put_attestation, put_image
from scripted_registry import Answer, digest_of

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.inspection import Status
from polyarch.oci.mirror_files import RegistryEntry
from polyarch.oci.pull_sources import Blocked, Configuration, destination
from polyarch.oci.reference import parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.transport.addresses import AddressClass, AddressPolicy, Redirect, RegistryServer, check_upload
from polyarch.oci.write.assembly import assemble, parse_source
from polyarch.oci.write.children import ChildCollector
from polyarch.oci.write.push import Push, PushFailed, open_destination

BASE = layer({"bin/sh": b"\x7fELF" + bytes(3000)})


class Given:
    """Credentials as a store gives them."""

    def __init__(self, **by_host):
        self._by_host = by_host

    async def candidates(self, reference, source):
        found = self._by_host.get(source.host)
        return [found, ANONYMOUS] if found else [ANONYMOUS]

    def cached_candidates(self, reference, source):
        return None

    def warnings(self, source):
        return ()


@pytest.fixture
async def target(stack):
    return await stack.enter_async_context(WritableRegistry())


@pytest.fixture
def push(make_inspector, target):
    """``await push("r/app:amd64", …, to="app:1")``: gathers, assembles and pushes; what became of it."""

    async def push(*sources, to="team/app:1", tags=(), inspector=None, attestations="drop", **options):
        inspector = inspector or make_inspector()
        connection = inspector.connection
        gathered = await ChildCollector(connection, attestations=attestations).gather(
            [parse_source(source) for source in sources]
        )
        index = assemble([piece.child for piece in gathered.pieces], attestations=attestations)
        reference = parse(f"{target.host}/{to}")
        work = Push(
            connection,
            await open_destination(connection, reference),
            index,
            {piece.child.digest: piece for piece in gathered.pieces},
            uniform=lambda low, high: 0.0,
        )
        push.index = index
        return await work.go([reference.tag, *tags], **options)

    push.make = make_inspector
    return push


@pytest.fixture
def images(target):
    """Two images in another repository of the target, with a layer in common."""
    for platform in ("linux/amd64", "linux/arm64"):
        tag = platform.partition("/")[2]
        put_image(target, "team/parts", tag, platform, [BASE, layer({"app": platform.encode()})])
    return [f"{target.host}/team/parts:{tag}" for tag in ("amd64", "arm64")]


def kinds(requests):
    """What was written, in order, without the names: mount, begin, upload, child, index, tag."""
    found = []
    for each in requests:
        if each.startswith("POST"):
            found.append("begin")
        elif "/uploads/" in each:
            found.append("upload")
        else:
            found.append("manifest" if ":" in each.rpartition("/")[2] else "tag")
    return found


class TestWithinOneRegistry:
    @pytest.mark.req("RG-155")
    async def test_blobs_are_mounted_and_tags_come_last(self, push, target, images):
        """Blobs, child manifests by digest, the index by digest, then DEST's tag and the extra tags."""
        pushed = await push(*images, tags=["latest", "2"])
        assert kinds(target.writes) == [*["begin"] * 5, *["manifest"] * 3, *["tag"] * 3]
        assert target.puts[2:] == [
            f"PUT team/app/manifests/{push.index.digest}",
            "PUT team/app/manifests/1",
            "PUT team/app/manifests/latest",
            "PUT team/app/manifests/2",
        ]
        assert pushed.changed
        assert pushed.copied == {child.digest for child in push.index.children}
        assert {target.tags["team/app", tag] for tag in ("1", "latest", "2")} == {push.index.digest}

    async def test_what_was_pushed_can_be_read(self, push, target, images, make_inspector):
        await push(*images)
        answer = await make_inspector().inspect(f"{target.host}/team/app:1")
        assert (answer.status, answer.digest) == (Status.RESOLVED, push.index.digest)
        assert [str(each) for each in answer.platforms] == ["linux/amd64", "linux/arm64"]

    async def test_a_blob_that_children_share_is_mounted_once(self, push, target, images):
        await push(*images)
        mounts = [each.query for each in target.seen if each.method == "POST"]
        assert len(mounts) == len(set(mounts)) == 5  # two configs, two layers, and the common one

    @pytest.mark.req("RG-155")
    async def test_a_second_run_writes_nothing(self, push, target, images):
        """HEAD DEST; equal digest and every extra tag equal → no PUT, "unchanged"."""
        await push(*images, tags=["2"])
        target.forget_requests()
        pushed = await push(*images, tags=["2"])
        assert (pushed.changed, target.writes) == (False, [])

    async def test_a_missing_extra_tag_is_all_that_is_written(self, push, target, images):
        await push(*images)
        target.forget_requests()
        pushed = await push(*images, tags=["2"])
        assert (pushed.changed, pushed.copied, target.writes) == (True, frozenset(), ["PUT team/app/manifests/2"])

    async def test_children_in_the_repository_itself_are_not_copied(self, push, target):
        put_image(target, "team/app", "amd64", "linux/amd64", [BASE])
        pushed = await push(f"{target.host}/team/app:amd64")
        assert kinds(target.writes) == ["manifest", "tag"]
        assert pushed.copied == frozenset()

    @pytest.mark.req("RG-155")
    async def test_a_mount_that_is_not_made_becomes_an_upload_in_that_session(
        self, make_inspector, push, target, images
    ):
        """202 → upload in that session."""
        target.mounts = False
        await push(*images)
        written = kinds(target.writes)
        assert written.count("begin") == written.count("upload") == 5

    @pytest.mark.parametrize("status", [400, 405, 404])
    async def test_a_registry_that_knows_no_mounts_gets_uploads(self, push, target, images, status):
        def refuse(request):
            if "mount" in request.query:
                return Answer(status)
            return Answer(202, headers={"Location": f"/v2/team/app/blobs/uploads/{len(target.seen)}"})

        target.script("POST", "/uploads/", refuse, forever=True)
        assert (await push(*images)).changed

    @pytest.mark.req("RG-154", "RG-155")
    async def test_kept_attestations_are_copied_like_children(self, push, target, make_inspector):
        """No tag names an index whose children are missing, attestations included."""
        digest = put_image(target, "team/parts", None, "linux/amd64", [BASE])
        attestation = put_attestation(target, "team/parts", digest)
        target.push_index("team/parts", "1", entries=[target.entry("linux/amd64", digest), attestation])
        await push(f"{target.host}/team/parts:1", attestations="keep")
        assert ("team/app", attestation["digest"]) in target.manifests
        answer = await make_inspector().inspect(f"{target.host}/team/app:1")
        assert [each.reason for each in answer.skipped] == ["attestation"]


class TestAcrossRegistries:
    @pytest.fixture
    async def other(self, stack):
        registry = await stack.enter_async_context(WritableRegistry())
        self.big = layer({"big": bytes(range(256)) * 4096}) + bytes(3_000_000)
        put_image(registry, "team/parts", "arm64", "linux/arm64", [BASE, self.big])
        return registry

    @pytest.mark.req("RG-155", "RG-170")
    async def test_blobs_are_streamed_from_where_they_are(self, push, target, other):
        """Streamed copy across registries; nothing is mounted from another host."""
        pushed = await push(f"{other.host}/team/parts:arm64")
        assert pushed.changed
        assert target.blobs["team/app", digest_of(self.big)] == self.big
        assert all("mount" not in each.query for each in target.seen)
        sent = next(each for each in target.seen if each.method == "PUT" and len(each.body) == len(self.big))
        assert sent.headers["content-length"] == str(len(self.big))
        assert "transfer-encoding" not in sent.headers

    @pytest.mark.req("RG-052")
    async def test_three_blobs_are_on_their_way_at_a_time(self, push, target, stack):
        """Each holds a request to read and one to write, and eight are allowed per host."""
        other = await stack.enter_async_context(WritableRegistry())
        put_image(other, "team/parts", "1", "linux/arm64", [layer({"x": bytes([n])}) for n in range(9)])
        sending = most = 0

        async def count(request):
            nonlocal sending, most
            sending += 1
            most = max(most, sending)
            await asyncio.sleep(0.02)
            sending -= 1

        target.slowly = count
        await push(f"{other.host}/team/parts:1")
        assert most == 3

    async def test_a_blob_that_is_there_is_not_sent_again(self, push, target, other):
        target.push_blob("team/app", self.big)
        target.push_blob("team/app", BASE)
        await push(f"{other.host}/team/parts:arm64")
        assert kinds(target.writes).count("upload") == 1  # the config

    @pytest.mark.req("RG-155")
    async def test_blobs_that_are_had_elsewhere_are_not_copied(self, push, target, other):
        """Blobs with `urls` (non-distributable)."""
        foreign = {"mediaType": "x", "digest": "sha256:" + "f" * 64, "size": 9, "urls": ["https://elsewhere.example/"]}
        config = b'{"os":"windows","architecture":"amd64"}'
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": other.push_blob("team/parts", config),
                "size": len(config),
            },
            "layers": [foreign],
        }
        other.push("team/parts", "win", manifest)
        await push(f"{other.host}/team/parts:win")
        assert other.requests("GET", foreign["digest"]) == []
        assert kinds(target.writes) == ["begin", "upload", "manifest", "manifest", "tag"]

    @pytest.mark.req("RG-061")
    async def test_a_source_that_breaks_off_is_read_again(self, push, target, other):
        """The blob begins anew in a session of its own, and arrives whole."""
        other.script("GET", f"/blobs/{digest_of(self.big)}", Answer(200, self.big[:100_000], drop=True))
        assert (await push(f"{other.host}/team/parts:arm64")).changed
        assert target.blobs["team/app", digest_of(self.big)] == self.big

    async def test_a_target_that_fails_for_a_moment_is_tried_again(self, push, target, other):
        target.script("PUT", "/uploads/", Answer(503), Answer(500))
        assert (await push(f"{other.host}/team/parts:arm64")).changed
        assert target.blobs["team/app", digest_of(self.big)] == self.big

    async def test_an_upload_that_is_asked_for_again_begins_anew(self, push, target, other):
        """A body that streams cannot be sent twice: with a token that ended under way the copy starts over."""
        target.script("PUT", "/uploads/", Answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'}))
        target.auth, target.users = "basic", {"ann": "secret"}
        store = Given(**{target.host: Credential("ann", "secret", source="test")})
        assert (await push(f"{other.host}/team/parts:arm64", inspector=push.make(credentials=store))).changed

    @pytest.mark.req("RG-065")
    async def test_a_page_in_place_of_the_target_is_no_push(self, push, target, other):
        """It says success to everything, also that it has the blobs."""
        page = Answer(200, b"<!doctype html>", {"Content-Type": "text/html"})
        target.script("*", "", page, forever=True)
        with pytest.raises(PushFailed) as caught:
            await push(f"{other.host}/team/parts:arm64")
        assert caught.value.error.error_class == "transient"
        target.clear_scripts()
        target.script("HEAD", "/blobs/", page, forever=True)
        assert (await push(f"{other.host}/team/parts:arm64")).changed
        assert target.blobs["team/app", digest_of(self.big)] == self.big

    async def test_a_page_in_answer_to_a_manifest_is_no_success(self, push, target, other):
        target.script(
            "PUT", "/manifests/", Answer(201, b"<!doctype html>", {"Content-Type": "text/html"}), forever=True
        )
        with pytest.raises(PushFailed) as caught:
            await push(f"{other.host}/team/parts:arm64")
        assert (caught.value.error.code, caught.value.error.error_class) == ("not-a-registry", "transient")

    @pytest.mark.req("RG-033")
    async def test_damaged_blobs_do_not_arrive(self, push, target, other):
        """The source's bytes are checked while they pass, and the upload is not completed."""
        other.blobs["team/parts", digest_of(self.big)] = self.big[:-1] + b"x"
        with pytest.raises(PushFailed) as caught:
            await push(f"{other.host}/team/parts:arm64")
        assert caught.value.error.code == "digest-mismatch"
        assert ("team/app", "1") not in target.tags

    async def test_a_blob_that_the_source_lost_is_told(self, push, target, other):
        del other.blobs["team/parts", digest_of(self.big)]
        with pytest.raises(PushFailed) as caught:
            await push(f"{other.host}/team/parts:arm64")
        assert (caught.value.error.code, other.host in caught.value.error.message) == ("not-found", True)


class TestCutOff:
    @pytest.mark.req("RG-155", "RG-157")
    @pytest.mark.parametrize("cut", range(10))
    async def test_a_push_that_was_cut_off_anywhere_is_completed_by_another(self, push, target, images, cut):
        """After any number of writes; the second run writes only what is missing, and no tag names an
        index of which a part is missing."""
        count = 0

        def after(request):
            nonlocal count
            count += 1
            return Answer(403) if count > cut else None

        target.gate = after
        with pytest.raises(PushFailed) as caught:
            await push(*images, tags=["2"])
        assert len(caught.value.done) <= cut
        for tag in ("1", "2"):
            if ("team/app", tag) in target.tags:
                assert all(("team/app", child.digest) in target.manifests for child in push.index.children)
        target.gate = None
        done = {key for key in (*target.blobs, *target.manifests) if key[0] == "team/app"}
        target.forget_requests()
        assert (await push(*images, tags=["2"])).changed
        assert target.tags["team/app", "1"] == target.tags["team/app", "2"] == push.index.digest
        written = {each.rpartition("/")[2] for each in target.puts} | {
            each.query.partition("mount=")[2].partition("&")[0] for each in target.seen if each.method == "POST"
        }
        assert not written & {digest for _, digest in done}

    @pytest.mark.req("RG-157")
    async def test_a_push_that_is_interrupted_is_completed_by_another(self, push, target, images, stack):
        """Ctrl-C while a blob is on its way leaves nothing that harms the next run."""
        other = await stack.enter_async_context(WritableRegistry())
        big = layer({"big": bytes(200_000)}) + bytes(2_000_000)
        put_image(other, "team/parts", "s390x", "linux/s390x", [big])
        target.script("PUT", "/uploads/", Answer(500, delay=60.0), Answer(500, delay=60.0), Answer(500, delay=60.0))
        sources = [*images, f"{other.host}/team/parts:s390x"]
        running = asyncio.create_task(push(*sources))
        while not any("/uploads/" in each for each in target.puts):
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert target.tags.get(("team/app", "1")) is None
        target.clear_scripts()
        assert (await push(*sources)).changed
        assert target.blobs["team/app", digest_of(big)] == big

    @pytest.mark.req("RG-061")
    async def test_a_manifest_by_digest_is_tried_again_and_a_tag_is_not(self, push, target, images):
        """Only GET, HEAD and PUT by digest are repeated."""
        target.script("PUT", "manifests/sha256", Answer(503), Answer(500))
        target.script("PUT", "manifests/1$", Answer(503))
        with pytest.raises(PushFailed) as caught:
            await push(*images)
        assert caught.value.error.code == "server-error"
        assert [each for each in target.puts if each.endswith("/1")] == ["PUT team/app/manifests/1"]
        assert len([each for each in target.puts if "manifests/sha256" in each]) == 3 + 2

    @pytest.mark.req("RG-062")
    async def test_a_pause_that_a_registry_asks_for_is_kept(self, push, target, images, clock):
        """For an upload too, which then begins anew."""
        target.mounts = False
        target.script("PUT", "/uploads/", Answer(429, headers={"Retry-After": "7"}))
        assert (await push(*images)).changed
        assert sum(clock.slept) >= 7

    @pytest.mark.req("RG-157")
    async def test_what_was_pushed_is_named(self, push, target, images):
        target.script("PUT", "manifests/1$", Answer(403), forever=True)
        with pytest.raises(PushFailed) as caught:
            await push(*images)
        done = "\n".join(caught.value.done)
        assert f"index {push.index.digest}" in done
        assert done.count("(mounted)") == 5
        assert f"child linux/amd64 {push.index.children[0].digest}" in done

    @pytest.mark.req("RG-155")
    async def test_an_index_that_is_accepted_but_not_there_gets_no_tag(self, push, target, images):
        """The returned digest and a HEAD verified."""
        put = "PUT team/app/manifests/sha256"
        target.gate = lambda request: Answer(201) if _is_index(request) else None
        with pytest.raises(PushFailed, match="it is not there"):
            await push(*images)
        assert any(each.startswith(put) for each in target.puts)
        assert ("team/app", "1") not in target.tags

    async def test_an_index_that_is_stored_as_something_else_gets_no_tag(self, push, target, images):
        other = "sha256:" + "0" * 64
        target.gate = lambda request: (
            Answer(201, headers={"Docker-Content-Digest": other}) if _is_index(request) else None
        )
        with pytest.raises(PushFailed, match=f"was written as {other}"):
            await push(*images)

    @pytest.mark.req("RG-151")
    async def test_work_of_somebody_else_is_not_overwritten(self, push, target, images):
        """An index that was amended in the meantime would lose what was added to it."""
        target.push_index("team/app", "1", "linux/s390x")
        with pytest.raises(PushFailed, match="names sha256:"):
            await push(*images, begun_from="sha256:" + "1" * 64)
        assert "PUT team/app/manifests/1" not in target.puts
        pushed = await push(*images, begun_from=target.tags["team/app", "1"])
        assert pushed.changed


def _is_index(request):
    return request.method == "PUT" and request.content_type == "application/vnd.oci.image.index.v1+json"


class TestRights:
    @pytest.fixture
    def secured(self, target):
        target.auth = "bearer"
        target.users = {"ann": "secret", "reader": "only"}
        target.writers = {"ann"}
        return target

    def store(self, target, user="ann", password="secret"):
        return Given(**{target.host: Credential(user, password, source="test")})

    @pytest.mark.req("RG-075")
    async def test_a_push_asks_for_pull_and_push_and_for_its_mounts(self, push, secured, images, make_inspector):
        """Pull,push for the target, additionally pull for the mounted repository, in the same token."""
        await push(*images, inspector=make_inspector(credentials=self.store(secured)))
        scopes = {scopes for scopes in secured.scopes_asked if "push" in str(scopes)}
        assert scopes == {
            ("repository:team/app:pull,push",),
            ("repository:team/app:pull,push", "repository:team/parts:pull"),
        }

    @pytest.mark.req("RG-075")
    async def test_who_gets_no_token_for_a_mount_can_still_upload(self, push, secured, images, make_inspector):
        """An endpoint may refuse the wider token as a whole; then the blobs are copied."""

        def refuse(request):
            scopes = request.query.getall("scope", [])
            return Answer(403) if len(scopes) > 1 else secured.token_answer(request)

        secured.script("GET", "^token$", refuse, forever=True)
        assert (await push(*images, inspector=make_inspector(credentials=self.store(secured)))).changed
        assert kinds(secured.writes).count("upload") == 5

    async def test_who_may_not_write_is_told_so(self, push, secured, images, make_inspector):
        inspector = make_inspector(credentials=self.store(secured, "reader", "only"))
        with pytest.raises(PushFailed) as caught:
            await push(*images, inspector=inspector)
        error = caught.value.error
        assert (error.error_class, caught.value.done) == ("auth", ())
        assert f"writing needs push rights on {secured.host}/team/app" in error.message
        assert secured.tags.get(("team/app", "1")) is None

    async def test_an_open_repository_needs_no_credentials(self, push, target, images):
        await push(*images)
        assert all("authorization" not in each.headers for each in target.seen)


class TestPlaces:
    """Where a registry says that an upload's bytes go."""

    HOME = "https://r.example/v2/app/blobs/uploads/"
    SERVER = RegistryServer(HOME, AddressClass.PUBLIC)

    def check(self, location, home=HOME, server=SERVER):
        return check_upload(location, home, server, AddressPolicy())

    @pytest.mark.parametrize(
        ("location", "url"),
        [
            ("/v2/app/blobs/uploads/7?_state=x", "https://r.example/v2/app/blobs/uploads/7?_state=x"),
            ("7", "https://r.example/v2/app/blobs/uploads/7"),
            ("https://r.example:443/u", "https://r.example:443/u"),
        ],
    )
    def test_the_same_origin_gets_the_credentials(self, location, url):
        assert self.check(location) == Redirect(url, self.check(location).provenance, keep_authorization=True)
        assert self.check(location).provenance.named

    def test_another_https_origin_gets_none(self):
        place = self.check("https://storage.example/u?sig=1")
        assert (place.url, place.keep_authorization, place.provenance.named) == (
            "https://storage.example/u?sig=1",
            False,
            False,
        )

    @pytest.mark.req("RG-103", "RG-106")
    @pytest.mark.parametrize(
        ("location", "code"),
        [
            ("http://r.example/v2/u", "refused-redirect"),
            ("http://storage.example/u", "refused-redirect"),
            ("ftp://r.example/u", "refused-redirect"),
            ("https://user@r.example/u", "refused-redirect"),
            ("https://[::1/u", "refused-redirect"),
            ("https://127.0.0.1/u", "refused-address"),
            ("https://169.254.169.254/u", "refused-address"),
            ("https://10.0.0.1/u", "refused-address"),
        ],
    )
    def test_anything_else_is_refused(self, location, code):
        assert self.check(location).code == code

    def test_a_registry_in_plain_http_stays_where_it_is(self):
        home = "http://127.0.0.1:5000/v2/app/blobs/uploads/"
        server = RegistryServer(home, AddressClass.LOOPBACK)
        assert self.check("/v2/u", home, server).keep_authorization
        assert self.check("http://127.0.0.1:5001/u", home, server).code == "refused-redirect"

    async def test_bytes_do_not_follow_a_refused_place(self, push, target, images):
        target.mounts = False
        target.location = "http://127.0.0.2:1/u"
        with pytest.raises(PushFailed) as caught:
            await push(*images)
        assert (caught.value.error.code, target.puts) == ("refused-redirect", [])

    async def test_an_upload_without_a_place_is_an_error(self, push, target, images):
        target.script("POST", "/uploads/", Answer(202), forever=True)
        with pytest.raises(PushFailed, match="no Location"):
            await push(*images)


class TestDestination:
    @pytest.mark.req("RG-155")
    def test_mirrors_play_no_part(self):
        """What is read from another place is still written under its own name."""
        rule = RegistryEntry(prefix="r.example", location="mirror.example/cache", insecure=True)
        source = destination(parse("r.example/team/app:1"), Configuration(registries=(rule,)))
        assert (source.host, source.repository, source.mirror, source.insecure) == (
            "r.example",
            "team/app",
            False,
            True,
        )

    def test_a_blocked_registry_is_not_written_to(self):
        rule = RegistryEntry(prefix="r.example", location="r.example", blocked=True, origin="registries.conf")
        with pytest.raises(Blocked, match=r"registries\.conf"):
            destination(parse("r.example/team/app:1"), Configuration(registries=(rule,)))

    async def test_a_blocked_destination_is_a_failure_of_the_push(self, make_inspector):
        rule = RegistryEntry(prefix="r.example", location="r.example", blocked=True)
        connection = make_inspector(configuration=Configuration(registries=(rule,))).connection
        with pytest.raises(Failure) as caught:
            await open_destination(connection, parse("r.example/team/app:1"))
        assert caught.value.error.code == "blocked"

    def test_docker_hub_is_written_where_it_is(self):
        assert destination(parse("team/app:1"), Configuration()).base_url == "https://registry-1.docker.io"

    def test_an_insecure_host_of_the_command_line_counts(self):
        configuration = Configuration(insecure_hosts=frozenset({"r.example"}))
        assert destination(parse("r.example/app"), configuration).insecure

    def test_a_hosts_file_has_certificates_for_its_own_host(self, tmp_path):
        folder = tmp_path / "r.example"
        folder.mkdir()
        (folder / "hosts.toml").write_text(
            'server = "https://r.example"\nca = "ca.pem"\n[host."https://mirror.example"]\n  capabilities = ["pull"]\n'
        )
        configuration = Configuration.load(hosts_dirs=[tmp_path], environ={}, system_file=tmp_path / "none")
        source = destination(parse("r.example/team/app:1"), configuration)
        assert (source.host, source.mirror, source.tls.ca) == ("r.example", False, (str(folder / "ca.pem"),))


@pytest.mark.req("RG-052", "RG-155")
@pytest.mark.parametrize("requests_per_host", [2, 8])
async def test_pushes_beside_each_other_do_not_wait_for_each_other_for_ever(
    push, target, stack, make_inspector, requests_per_host
):
    """Each copy reads with one request and writes with another, and all of them share eight."""
    other = await stack.enter_async_context(WritableRegistry())
    for registry in (target, other):
        registry.mounts = False
        registry.delay = 0.01
        for number in range(4):
            layers = [layer({"x": bytes([number, n])}) for n in range(5)]
            put_image(registry, f"parts/{number}", "1", "linux/arm64", layers)
    inspector = make_inspector(requests_per_host=requests_per_host)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for kind, source in (("here", target), ("there", other)):
            for number in range(4):
                name = f"{source.host}/parts/{number}:1"
                tasks.create_task(push(name, to=f"team/{kind}-{number}:1", inspector=inspector))
    assert len([each for each in target.tags if each[0].startswith("team/")]) == 8


@pytest.mark.req("RG-062", "RG-155")
class TestPatience:
    """What a registry asks for by ``Retry-After`` is kept between the attempts at a blob."""

    @pytest.fixture
    async def other(self, stack):
        other = await stack.enter_async_context(WritableRegistry())
        put_image(other, "team/parts", "1", "linux/arm64", [BASE])
        return other

    async def test_a_pause_is_waited_out_before_the_next_attempt(self, push, target, other, clock, make_inspector):
        """Who does not wait within a request is told for how long the host wants to be left alone."""
        target.script("PUT", "/uploads/", Answer(429, headers={"Retry-After": "17"}))
        inspector = make_inspector(wait=False)
        assert (await push(f"{other.host}/team/parts:1", inspector=inspector)).changed
        assert sum(clock.slept) >= 17

    async def test_a_pause_that_is_too_long_is_told_at_once(self, push, target, other, clock):
        target.script("PUT", "/uploads/", Answer(429, headers={"Retry-After": "3600"}), forever=True)
        with pytest.raises(PushFailed) as caught:
            await push(f"{other.host}/team/parts:1")
        assert (caught.value.error.code, caught.value.error.retry_after) == ("rate-limited", 3600.0)
        assert sum(clock.slept) < 60
        assert len([each for each in target.puts if "/uploads/" in each]) <= 2  # both blobs may be on their way


@pytest.mark.req("RG-155")
class TestTags:
    """What a tag names is looked at after it was written."""

    async def test_a_tag_that_was_accepted_but_names_something_else_is_an_error(self, push, target, images):
        target.gate = lambda request: Answer(201) if request.path.endswith("/manifests/1") else None
        with pytest.raises(PushFailed, match="tag 1 was accepted, but it names nothing") as caught:
            await push(*images)
        assert not any("tag 1" in each for each in caught.value.done)

    async def test_a_registry_that_takes_a_moment_is_given_it(self, push, target, images, clock):
        def late(request):
            return Answer(404)

        target.script("HEAD", "^team/app/manifests/1$", late, late, late)  # the first is asked before anything is sent
        pushed = await push(*images)
        assert pushed.changed
        assert len([each for each in target.requests("HEAD") if each.endswith("/manifests/1")]) == 4


async def test_a_copy_needs_two_requests_at_a_time(make_inspector, push, images):
    """One to read and one to write, of the same host in the worst case: with a single slot it would wait for ever."""
    with pytest.raises(ValueError, match="two requests at a time"):
        await push(*images, inspector=make_inspector(requests_per_host=1))
