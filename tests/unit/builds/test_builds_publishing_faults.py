"""Registries that fail, lie and ask for too much."""

import json

import pytest
from image_parts import config_of
from scripted_registry import OCI_CONFIG, OCI_MANIFEST, Answer, encode

from polyarch.builds.registry import ChildImage, PublishResult, head_image, publish
from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.documents import MANIFEST_LIMIT
from polyarch.oci.transport.addresses import AddressPolicy

SECRET = "a-secret-of-the-build-7f3a"
TAGS = ("run", "latest")


class TestRepeating:
    """What passes is repeated for as long as ``timeouts.index`` says."""

    @pytest.mark.req("BD-219")
    @pytest.mark.parametrize("selector", ["/manifests/sha256:[0-9a-f]+$", "/manifests/run$"])
    async def test_a_pause_reaches_the_caller_and_nothing_sleeps(
        self, target, connection, put, publication, clock, selector
    ):
        """Pushing the index (S7) and moving a tag (S8): 429 with Retry-After is told, with every tag as it was."""
        work = publication(put("amd64"), put("arm64"), tags=TAGS)
        target.script("PUT", selector, Answer(429, headers={"Retry-After": "23"}))
        trouble = await publish(connection, work)
        assert (trouble.reason, trouble.code, trouble.passing) == ("RegistryUnreachable", "rate-limited", True)
        assert trouble.retry_after == 23.0
        assert ([each for each in clock.slept if each > 8], "run" in {tag for _, tag in target.tags}) == ([], False)
        clock.advance(24)
        assert isinstance(await publish(connection, work), PublishResult)

    @pytest.mark.req("BD-219")
    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    @pytest.mark.parametrize("selector", ["/manifests/sha256:[0-9a-f]+$", "/manifests/latest$"])
    async def test_a_server_that_is_down_passes(self, target, connection, put, publication, status, selector):
        work = publication(put("amd64"), put("arm64"), tags=TAGS)
        target.script("PUT", selector, Answer(status), forever=True)
        trouble = await publish(connection, work)
        assert (trouble.reason, trouble.passing) == ("RegistryUnreachable", True)
        assert ("team/app", "latest") not in target.tags
        target.clear_scripts()
        assert isinstance(await publish(connection, work), PublishResult)

    @pytest.mark.req("BD-219")
    async def test_one_bad_moment_is_not_noticed(self, target, connection, put, publication):
        target.script("PUT", "/manifests/sha256:[0-9a-f]+$", Answer(502))
        target.script("HEAD", "/manifests/", Answer(500))
        target.script("GET", "/manifests/", Answer(503))
        assert isinstance(await publish(connection, publication(put("amd64"), put("arm64"))), PublishResult)

    @pytest.mark.req("BD-060")
    async def test_a_refusal_to_write_is_told(self, target, connection, put, publication):
        target.gate = lambda request: Answer(403, b'{"errors":[{"code":"DENIED","message":"no push for you"}]}')
        trouble = await publish(connection, publication(put("amd64"), put("arm64")))
        assert (trouble.reason, trouble.passing) == ("PushDenied", False)
        assert "push rights on" in trouble.message


def said(code, message):
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


IMMUTABLE = {
    "ECR": (400, "TAG_INVALID", "The image tag 'latest' already exists and cannot be overwritten: immutable."),
    "Harbor": (412, "PRECONDITION", "Failed to process request due to 'app:latest' configured as immutable."),
    "Quay": (409, "TAG_IMMUTABLE", "tag is immutable"),
    "Artifact Registry": (400, "MANIFEST_INVALID", "cannot update tag latest: tag immutability is enabled"),
    "ACR": (405, "UNSUPPORTED", "The operation is disallowed on this registry, repository or image."),
    "GitLab": (403, "DENIED", "protected tag"),
    "Artifactory": (403, "DENIED", "Not enough permissions to overwrite artifact 'app/latest/manifest.json'"),
}  # fmt: skip
NO_ROOM = {
    "Harbor": (403, "DENIED", "adding 1.2 MiB of storage resource will exceed the configured upper limit of 1 GiB."),
    "Harbor, another answer": (412, "PRECONDITION", "quota exceeded"),
    "Quay": (403, "DENIED", "Quota has been exceeded on namespace"),
    "ECR": (400, "LimitExceeded", "The operation did not succeed because it would have exceeded a service limit."),
    "Artifactory": (413, "UNKNOWN", "Storage quota limit of repository docker-local was exceeded"),
    "a full disk": (500, "UNKNOWN", "write /var/lib/registry/docker: no space left on device"),
    "WebDAV": (507, "UNKNOWN", "insufficient storage"),
}  # fmt: skip


class TestRefusals:
    """What registries are documented to say to a push, and what a user is to do about it."""

    @pytest.mark.req("BD-219")
    @pytest.mark.parametrize(("status", "code", "message"), IMMUTABLE.values(), ids=IMMUTABLE)
    async def test_an_immutable_tag_asks_for_another(self, target, connection, put, publication, status, code, message):
        """The result itself is there by then; with another tag it is published."""
        children = put("amd64"), put("arm64")
        target.script("PUT", "/manifests/latest$", Answer(status, said(code, message)), forever=True)
        trouble = await publish(connection, publication(*children, tags=TAGS))
        assert (trouble.reason, trouble.passing, trouble.missing) == ("TagImmutable", False, ())
        assert "the tag latest is immutable in this registry: " in trouble.message
        assert "choose another tag" in trouble.message
        assert message[:20] in trouble.message
        assert isinstance(await publish(connection, publication(*children, tags=("run", "other"))), PublishResult)

    @pytest.mark.req("BD-219")
    @pytest.mark.parametrize(("status", "code", "message"), NO_ROOM.values(), ids=NO_ROOM)
    async def test_a_quota_is_told_as_one_and_goes_on_once_it_is_raised(
        self, target, connection, put, publication, status, code, message
    ):
        """It reads as missing rights, which no Secret cures."""
        work = publication(put("amd64"), put("arm64"))
        target.script("PUT", "/manifests/sha256:", Answer(status, said(code, message)), forever=True)
        trouble = await publish(connection, work)
        assert (trouble.reason, trouble.passing) == ("QuotaExceeded", False)
        assert "have the quota raised" in trouble.message
        assert "credentials" not in trouble.message
        target.clear_scripts()
        assert isinstance(await publish(connection, work), PublishResult)

    @pytest.mark.req("BD-219")
    @pytest.mark.parametrize(
        ("status", "body", "reason", "cure"),
        [
            (413, b"<html><h1>413 Request Entity Too Large</h1></html>", "PushTooLarge", "client_max_body_size"),
            (
                404,
                said("NAME_UNKNOWN", "The repository with name 'team/app' does not exist in the registry"),
                "RepositoryMissing",
                "create the repository there first",
            ),
            (400, said("MANIFEST_INVALID", "manifest invalid"), "RegistryInconsistent", "set output.format to Docker"),
            (415, said("MANIFEST_INVALID", "unsupported"), "RegistryInconsistent", "no image indexes or no OCI images"),
            (403, said("DENIED", "requested access to the resource is denied"), "PushDenied", "push rights on"),
        ],
    )
    async def test_other_refusals_name_their_cure(
        self, target, connection, put, publication, status, body, reason, cure
    ):
        work = publication(put("amd64"), put("arm64"))
        target.script("PUT", "/manifests/sha256:", Answer(status, body), forever=True)
        trouble = await publish(connection, work)
        assert trouble.reason == reason
        assert cure in trouble.message
        target.clear_scripts()
        assert isinstance(await publish(connection, work), PublishResult)


def manifest(config_digest, size, **more):
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": config_digest, "size": size},
        "layers": [],
        **more,
    }


class Lies:
    """Each makes the child that the registry says it has for arm64, and returns its digest."""

    @staticmethod
    def bytes_of_another_digest(target):
        digest = "sha256:" + "1" * 64
        target.manifests["team/app", digest] = (encode(manifest("sha256:" + "2" * 64, 10)), OCI_MANIFEST)
        return digest

    @staticmethod
    def an_index_without_the_architecture(target):
        return target.push_index("team/app", None, "linux/amd64")

    @staticmethod
    def a_config_without_architecture(target):
        body = b'{"os":"linux"}'
        return target.push("team/app", None, manifest(target.push_blob("team/app", body), len(body)))

    @staticmethod
    def a_config_of_other_bytes(target):
        digest = target.push_blob("team/app", encode(config_of("linux/arm64")))
        target.blobs["team/app", digest] = encode(config_of("linux/arm64", other=1))
        return target.push("team/app", None, manifest(digest, 10))

    @staticmethod
    def a_config_that_is_no_json(target):
        return target.push("team/app", None, manifest(target.push_blob("team/app", b"\x00\xff{"), 3))

    @staticmethod
    def a_manifest_above_the_limit(target):
        body = b'{"schemaVersion":2,"pad":"' + b"x" * MANIFEST_LIMIT + b'"}'
        return target.push("team/app", None, body, OCI_MANIFEST)

    @staticmethod
    def a_manifest_that_is_both(target):
        return target.push("team/app", None, manifest("sha256:" + "2" * 64, 10, manifests=[]))

    @staticmethod
    def an_artifact(target):
        body = b"{}"
        digest = target.push_blob("team/app", body)
        config = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": 2}
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": "x/y",
            "config": config,
            "layers": [],
        }
        return target.push("team/app", None, document)


@pytest.mark.req("BD-322")
@pytest.mark.parametrize(
    ("lie", "reason", "code"),
    [
        (Lies.bytes_of_another_digest, "RegistryInconsistent", "digest-mismatch"),
        (Lies.an_index_without_the_architecture, "ArchitectureMismatch", ""),
        (Lies.a_config_without_architecture, "ArchitectureMismatch", ""),
        (Lies.a_config_of_other_bytes, "RegistryInconsistent", "digest-mismatch"),
        (Lies.a_config_that_is_no_json, "RegistryInconsistent", "malformed"),
        (Lies.a_manifest_above_the_limit, "RegistryInconsistent", "too-large"),
        (Lies.a_manifest_that_is_both, "RegistryInconsistent", "ambiguous-manifest"),
        (Lies.an_artifact, "ArchitectureMismatch", ""),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
async def test_a_lie_fails_its_architecture_with_its_own_reason(
    target, connection, put, publication, lie, reason, code
):
    """Never a traceback, never a partial index."""
    child = ChildImage(architecture="arm64", reference=f"{target.host}/team/app@{lie(target)}")
    work = publication(put("amd64"), child, tags=TAGS)
    target.forget_requests()
    trouble = await publish(connection, work)
    assert (trouble.reason, trouble.code, trouble.architecture) == (reason, code, "arm64")
    assert (trouble.passing, trouble.missing, target.writes) == (False, (), [])


@pytest.mark.req("BD-322")
async def test_where_the_bytes_give_another_result_than_planned_no_tag_moves(target, connection, put, publication):
    """A Job that tells a wrong size or variant of its image makes the plan wrong, and the execution fails."""
    children = put("amd64"), put("arm64")
    planned = "sha256:" + "c" * 64
    target.forget_requests()
    trouble = await publish(connection, publication(*children, tags=TAGS, digest=planned))
    assert (trouble.reason, trouble.passing, target.writes) == ("RegistryInconsistent", False, [])
    assert planned in trouble.message
    honest = await publish(connection, publication(*children))
    again = await publish(connection, publication(*children, tags=TAGS, digest=honest.digest))
    assert again.digest == target.tags["team/app", "latest"] == honest.digest


@pytest.mark.req("BD-322")
async def test_an_answer_of_another_digest_to_a_put_is_no_success(target, connection, put, publication):
    other = "sha256:" + "b" * 64
    target.gate = lambda request: Answer(201, headers={"Docker-Content-Digest": other})
    trouble = await publish(connection, publication(put("amd64"), put("arm64"), tags=TAGS))
    assert (trouble.reason, trouble.code) == ("RegistryInconsistent", "digest-mismatch")
    assert other in trouble.message


@pytest.mark.req("BD-330")
class TestCredentials:
    """Each build's own credentials, for its own hosts, and never in a message."""

    def keyring(self, target, *, legacy=False):
        entry = {"auth": "YnVpbGRlcjphLXNlY3JldC1vZi10aGUtYnVpbGQtN2YzYQ=="}  # builder and SECRET
        entries = {target.host: entry}
        body = json.dumps(entries if legacy else {"auths": entries}).encode()
        return KeyringCredentials([Document("secret team/push", body, legacy=legacy)])

    @pytest.mark.req("BD-334")
    @pytest.mark.parametrize("legacy", [False, True])
    async def test_the_credentials_given_are_used(self, start, connection, put, result_of, legacy):
        target = await start(auth="basic")
        target.users["builder"] = SECRET
        work = result_of(target, (put("amd64", at=target), put("arm64", at=target)))
        refused = await publish(connection, work)
        assert (refused.reason, target.writes) == ("PushDenied", [])
        assert isinstance(await publish(connection.using(self.keyring(target, legacy=legacy)), work), PublishResult)

    @pytest.mark.req("BD-334")
    async def test_no_other_credentials_are_read(self, start, connect, put, result_of, tmp_path, monkeypatch):
        """Those of the process, of files and of other builds are not tried."""
        target = await start(auth="basic")
        target.users["builder"] = SECRET
        auths = {"auths": {target.host: {"username": "builder", "password": SECRET}}}
        (tmp_path / "config.json").write_text(json.dumps(auths))
        for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE"):
            monkeypatch.setenv(name, str(tmp_path if name == "DOCKER_CONFIG" else tmp_path / "config.json"))
        rich = connect(credentials=self.keyring(target))
        poor = rich.using(KeyringCredentials([]))
        work = result_of(target, (put("amd64", at=target), put("arm64", at=target)))
        assert isinstance(await publish(rich, work), PublishResult)
        assert (await publish(poor, work)).reason == "PushDenied"
        assert (await head_image(poor, work.children[0].reference)).error == "unauthorized"

    @pytest.mark.req("BD-334")
    async def test_a_credential_stays_with_its_host(self, start, connect, target, put, publication):
        """A child at another registry is asked for without the target's credential."""
        other = await start(auth="basic")
        other.users["builder"] = SECRET
        child = put("arm64", at=other)
        connection = connect(credentials=self.keyring(target))
        trouble = await publish(connection, publication(put("amd64"), child))
        assert (trouble.reason, trouble.architecture) == ("PushDenied", "arm64")
        assert all("authorization" not in each.headers for each in other.seen)

    @pytest.mark.req("BD-333", "BD-334")
    async def test_what_a_registry_says_is_cut_and_cleaned(self, start, connect, put, result_of):
        """Its code and at most 200 characters, without the secret that it was sent and says again."""
        target = await start(auth="basic")
        target.users["builder"] = SECRET
        said = f"\x1b[31m{SECRET} " + "<script>" * 100
        target.gate = lambda request: Answer(400, encode({"errors": [{"code": "DENIED_BY_POLICY", "message": said}]}))
        connection = connect(credentials=self.keyring(target))
        trouble = await publish(connection, result_of(target, (put("amd64", at=target), put("arm64", at=target))))
        assert "DENIED_BY_POLICY" in trouble.message
        assert (SECRET in trouble.message, "\x1b" in trouble.message) == (False, False)
        assert len(trouble.message) < 600

    @pytest.mark.req("BD-334")
    async def test_addresses_are_refused_as_in_a_cluster(self, connect, target, put, publication):
        """A user's reference cannot make the builder ask what listens beside it."""
        connection = connect(policy=AddressPolicy.of("cluster"))
        target_child = put("amd64")
        target.forget_requests()
        trouble = await publish(connection, publication(target_child, single=True))
        assert (trouble.code, trouble.passing, target.seen) == ("refused-address", False, [])
