"""A result is verified, assembled, pushed and tagged."""

import hashlib
import itertools
import json

import pytest
from image_parts import layer, put_attestation
from scripted_registry import Answer

from polyarch.builds.registry import ChildImage, PublishFailure, PublishResult, head_image, move_tags, publish
from polyarch.oci.documents import DOCKER_LIST, OCI_INDEX

DOCKER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)


def published_index(target, tag="run"):
    return json.loads(target.manifests["team/app", target.tags["team/app", tag]][0])


class TestIndex:
    @pytest.mark.req("BD-170")
    async def test_the_type_follows_the_children(self, target, connection, put, publication):
        oci = await publish(connection, publication(put("amd64"), put("arm64")))
        docker = await publish(
            connection,
            publication(put("amd64", media=DOCKER, salt="d"), put("arm64", media=DOCKER, salt="d"), tags=["docker"]),
        )
        assert (oci.media_type, docker.media_type) == (OCI_INDEX, DOCKER_LIST)
        assert published_index(target, "docker")["mediaType"] == DOCKER_LIST

    @pytest.mark.req("BD-170")
    async def test_mixed_children_are_never_converted(self, target, connection, put, publication):
        children = put("amd64"), put("arm64", media=DOCKER)
        target.forget_requests()
        trouble = await publish(connection, publication(*children))
        assert (trouble.reason, trouble.passing, target.writes) == ("MixedFormats", False, [])
        assert all(child.reference in trouble.message for child in children)

    @pytest.mark.req("BD-171", "BD-172")
    async def test_the_order_of_children_changes_nothing(self, target, connection, put, publication):
        children = [put(each) for each in ("s390x", "arm64", "amd64", "ppc64le")]
        digests = set()
        for order in itertools.permutations(children, 4):
            digests.add((await publish(connection, publication(*order))).digest)
        assert len(digests) == 1
        stated = [each["platform"]["architecture"] for each in published_index(target)["manifests"]]
        assert stated == ["amd64", "arm64", "ppc64le", "s390x"]

    @pytest.mark.req("BD-172")
    async def test_the_bytes_hold_nothing_of_where_and_when(self, start, connection, put, clock, result_of):
        """The same children in two registries, a year apart: one digest; and no member that is not the children's."""
        found = []
        for _ in range(2):
            registry = await start()
            children = tuple(put(each, at=registry) for each in ("amd64", "arm64"))
            work = result_of(registry, children)
            found.append(await publish(connection, work))
            clock.advance(365 * 86400)
            index = json.loads(registry.manifests["team/app", found[-1].digest][0])
            assert list(index) == ["schemaVersion", "mediaType", "manifests"]
            assert all(list(each) == ["mediaType", "digest", "size", "platform"] for each in index["manifests"])
        assert found[0].digest == found[1].digest

    @pytest.mark.req("BD-172")
    async def test_arm64_v8_is_written_arm64(self, target, connection, put, publication):
        result = await publish(connection, publication(put("amd64"), put("arm64", platform="linux/arm64/v8")))
        assert published_index(target)["manifests"][1]["platform"] == {"architecture": "arm64", "os": "linux"}
        assert [child.variant for child in result.children] == ["", ""]

    @pytest.mark.req("BD-172")
    async def test_annotations_are_in_the_index(self, target, connection, put, publication):
        await publish(connection, publication(put("amd64"), put("arm64"), annotations={"b": "2", "a": "1"}))
        assert published_index(target)["annotations"] == {"a": "1", "b": "2"}

    @pytest.mark.req("BD-175")
    async def test_a_docker_list_has_no_annotations(self, target, connection, put, publication):
        target_children = put("amd64", media=DOCKER), put("arm64", media=DOCKER)
        target.forget_requests()
        trouble = await publish(connection, publication(*target_children, annotations={"a": "1"}))
        assert (trouble.reason, target.writes) == ("IndexForbidden", [])

    @pytest.mark.req("BD-174")
    async def test_two_children_of_one_platform_are_an_error(self, target, connection, put, publication):
        one = put("arm64")
        other = put("arm64", platform="linux/arm64/v8", salt="other")
        target.forget_requests()
        trouble = await publish(connection, publication(one, other))
        assert (trouble.reason, target.writes) == ("DuplicatePlatform", [])
        assert one.reference in trouble.message
        assert other.reference in trouble.message

    @pytest.mark.req("BD-174")
    async def test_an_empty_index_is_never_pushed(self, target, connection, publication):
        trouble = await publish(connection, publication())
        assert (type(trouble), target.writes) == (PublishFailure, [])

    @pytest.mark.req("BD-181", "BD-336")
    async def test_nothing_moves_without_a_required_architecture(self, target, connection, put, publication):
        """Neither an index nor a tag; the former result stays."""
        await publish(connection, publication(put("amd64"), put("arm64"), tags=["run", "latest"]))
        before = dict(target.tags)
        target.forget_requests()
        work = publication(put("amd64", salt="new"), tags=["run-2", "latest"], required=["amd64", "arm64"])
        target.tags.update(before)
        trouble = await publish(connection, work)
        assert (trouble.reason, target.writes) == ("IndexForbidden", [])
        assert target.tags["team/app", "latest"] == before["team/app", "latest"]
        assert "linux/arm64" in trouble.message


class TestPlatforms:
    @pytest.mark.req("BD-173")
    async def test_the_config_blob_decides(self, target, connection, put, publication):
        """A child that was built on the wrong machine is found out, whatever its Job claims."""
        children = put("amd64"), put("arm64", platform="linux/amd64", salt="x")
        target.forget_requests()
        trouble = await publish(connection, publication(*children))
        assert (trouble.reason, trouble.architecture, target.writes) == ("ArchitectureMismatch", "arm64", [])
        assert "linux/amd64 by its config, not linux/arm64" in trouble.message

    @pytest.mark.req("BD-173")
    async def test_the_descriptor_of_an_index_is_not_believed(self, target, connection, put, publication):
        lying = put("arm64", platform="linux/amd64", salt="x").reference.rpartition("@")[2]
        index = target.push_index("team/app", "lie", entries=[target.entry("linux/arm64", lying)])
        child = ChildImage(architecture="arm64", reference=f"{target.host}/team/app@{index}")
        trouble = await publish(connection, publication(put("amd64"), child))
        assert (trouble.reason, trouble.architecture) == ("ArchitectureMismatch", "arm64")

    @pytest.mark.req("BD-173")
    async def test_another_system_is_another_platform(self, connection, put, publication):
        trouble = await publish(connection, publication(put("amd64", platform="windows/amd64")))
        assert trouble.reason == "ArchitectureMismatch"

    @pytest.mark.req("BD-173")
    async def test_the_size_is_that_of_the_bytes(self, target, connection, put, publication):
        child = put("amd64")
        digest = child.reference.rpartition("@")[2]
        body = target.manifests["team/app", digest][0]
        target.headers = {"X-Size": "1"}
        result = await publish(connection, publication(child, put("arm64")))
        assert (result.children[0].size, published_index(target)["manifests"][0]["size"]) == (len(body), len(body))
        assert f"sha256:{hashlib.sha256(body).hexdigest()}" == digest

    @pytest.mark.req("BD-175")
    async def test_an_index_contributes_its_entry(self, target, connection, put, publication):
        wanted = put("arm64").reference.rpartition("@")[2]
        other = put("s390x").reference.rpartition("@")[2]
        entries = [target.entry("linux/s390x", other), target.entry("linux/arm64", wanted)]
        index = target.push_index("team/app", "both", entries=entries)
        child = ChildImage(architecture="arm64", reference=f"{target.host}/team/app@{index}")
        result = await publish(connection, publication(put("amd64"), child))
        assert [each.digest for each in result.children][1] == wanted
        assert [each["digest"] for each in published_index(target)["manifests"]][1] == wanted

    @pytest.mark.req("BD-175")
    @pytest.mark.parametrize(("attestations", "carried"), [("Drop", False), ("Keep", True)])
    async def test_attestations_follow_the_images(self, target, connection, put, publication, attestations, carried):
        """Only those whose subject is in the index: the one about another architecture is left out."""
        arm, other = (put(each).reference.rpartition("@")[2] for each in ("arm64", "s390x"))
        about = [put_attestation(target, "team/app", digest) for digest in (arm, other)]
        index = target.push_index(
            "team/app", "both", entries=[target.entry("linux/arm64", arm), target.entry("linux/s390x", other), *about]
        )
        child = ChildImage(architecture="arm64", reference=f"{target.host}/team/app@{index}")
        await publish(connection, publication(put("amd64"), child, attestations=attestations))
        entries = [each["digest"] for each in published_index(target)["manifests"]]
        assert entries[2:] == ([about[0]["digest"]] if carried else [])


class TestPush:
    @pytest.mark.req("BD-177")
    async def test_the_index_is_there_before_its_tags(self, target, connection, put, publication):
        """HEAD the index, PUT it by digest, then each tag: HEAD, PUT, HEAD; the execution's first."""
        children = put("amd64"), put("arm64")
        target.forget_requests()
        result = await publish(connection, publication(*children, tags=["run", "latest", "1.0"]))
        assert target.puts == [
            f"PUT team/app/manifests/{result.digest}",
            "PUT team/app/manifests/run",
            "PUT team/app/manifests/latest",
            "PUT team/app/manifests/1.0",
        ]
        for name in ("run", "latest", "1.0"):
            about = [each.split()[0] for each in target.requests(pattern=f"manifests/{name}$")]
            assert about == ["HEAD", "PUT", "HEAD"]
        assert [each.split()[0] for each in target.requests(pattern=result.digest)] == ["HEAD", "PUT", "HEAD"]

    @pytest.mark.req("BD-177", "BD-197")
    async def test_a_second_call_writes_nothing(self, target, connection, put, publication):
        work = publication(put("amd64"), put("arm64"), tags=["run", "latest"])
        first = await publish(connection, work)
        target.forget_requests()
        second = await publish(connection, work)
        assert (first.changed, second.changed, second.digest) == (True, False, first.digest)
        assert target.writes == []

    @pytest.mark.req("BD-177")
    async def test_only_the_tag_that_differs_is_put(self, target, connection, put, publication):
        children = put("amd64"), put("arm64")
        await publish(connection, publication(*children, tags=["run"]))
        target.forget_requests()
        await publish(connection, publication(*children, tags=["run", "latest"]))
        assert target.puts == ["PUT team/app/manifests/latest"]

    @pytest.mark.req("BD-177")
    async def test_a_child_that_vanishes_is_named(self, target, connection, put, publication):
        """The registry refuses the index: the children are looked for, and who is gone is to be built again."""
        children = put("amd64"), put("arm64"), put("s390x")
        gone = children[1].reference.rpartition("@")[2]

        def vanish(request):
            target.manifests.pop(("team/app", gone), None)

        target.gate = vanish
        trouble = await publish(connection, publication(*children, tags=["run", "latest"]))
        assert (trouble.reason, trouble.missing, trouble.passing) == ("RegistryInconsistent", ("arm64",), False)
        assert ("team/app", "run") not in target.tags

    @pytest.mark.req("BD-177")
    async def test_a_child_that_is_gone_before_is_named_without_a_write(self, target, connection, put, publication):
        children = put("amd64"), put("arm64"), put("s390x")
        for child in children[1:]:
            del target.manifests["team/app", child.reference.rpartition("@")[2]]
        target.forget_requests()
        trouble = await publish(connection, publication(*children))
        assert (trouble.missing, target.writes) == (("arm64", "s390x"), [])

    @pytest.mark.req("BD-177")
    async def test_who_is_gone_is_told_when_all_could_be_asked(self, target, connection, put, publication):
        """A child that cannot be asked for now may be gone, too: that passes first."""
        children = put("amd64"), put("arm64"), put("s390x")
        del target.manifests["team/app", children[0].reference.rpartition("@")[2]]
        target.script("GET", children[2].reference.rpartition("@")[2], Answer(503), forever=True)
        trouble = await publish(connection, publication(*children))
        assert (trouble.passing, trouble.missing) == (True, ())
        target.clear_scripts()
        assert (await publish(connection, publication(*children))).missing == ("amd64",)

    @pytest.mark.req("BD-322")
    async def test_what_nothing_cures_is_told_first(self, target, connection, put, publication):
        children = put("amd64"), put("arm64", platform="linux/amd64", salt="x"), put("s390x")
        target.script("GET", children[2].reference.rpartition("@")[2], Answer(503), forever=True)
        assert (await publish(connection, publication(*children))).reason == "ArchitectureMismatch"

    @pytest.mark.req("BD-177")
    async def test_a_refusal_although_all_is_there_is_told(self, target, connection, put, publication):
        target.gate = lambda request: Answer(400, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}')
        trouble = await publish(connection, publication(put("amd64"), put("arm64")))
        assert (trouble.reason, trouble.missing) == ("RegistryInconsistent", ())
        assert "all images are there" in trouble.message

    @pytest.mark.req("BD-193")
    async def test_a_tag_that_does_not_read_back_is_no_success(self, target, connection, put, publication):
        target.gate = lambda request: Answer(201) if request.path.endswith("/manifests/run") else None
        trouble = await publish(connection, publication(put("amd64"), put("arm64")))
        assert (trouble.reason, trouble.passing) == ("RegistryUnreachable", True)
        assert "it names nothing" in trouble.message

    @pytest.mark.req("BD-179")
    async def test_with_one_architecture_the_child_is_the_result(self, target, connection, put, publication):
        child = put("arm64")
        target.forget_requests()
        result = await publish(connection, publication(child, tags=["run", "latest"], single=True))
        assert result.digest == child.reference.rpartition("@")[2]
        assert target.puts == ["PUT team/app/manifests/run", "PUT team/app/manifests/latest"]
        assert target.tags["team/app", "latest"] == result.digest

    @pytest.mark.req("BD-179")
    async def test_a_result_without_index_has_one_image(self, target, connection, put, publication):
        children = put("amd64"), put("arm64")
        target.forget_requests()
        trouble = await publish(connection, publication(*children, single=True))
        assert (type(trouble), target.writes) == (PublishFailure, [])

    @pytest.mark.req("BD-102")
    async def test_tags_are_moved_to_a_result_that_is_there(self, target, connection, put, publication):
        result = await publish(connection, publication(put("amd64"), put("arm64")))
        target.forget_requests()
        moved = await move_tags(connection, f"{target.host}/team/app@{result.digest}", ["run", "stable"])
        assert (moved.digest, moved.media_type, target.puts) == (
            result.digest,
            OCI_INDEX,
            ["PUT team/app/manifests/stable"],
        )

    @pytest.mark.req("BD-123")
    async def test_a_result_that_is_gone_cannot_be_tagged(self, target, connection):
        trouble = await move_tags(connection, f"{target.host}/team/app@sha256:{'a' * 64}", ["latest"])
        assert (trouble.reason, trouble.code, target.writes) == ("RegistryInconsistent", "not-found", [])


class TestCopies:
    @pytest.mark.req("BD-176")
    async def test_children_are_mounted_before_the_index(self, target, connection, put, publication):
        """Mounted by blob, then the child by digest, its tag, and the index."""
        children = [
            put("amd64", repository="team/staging", tag="run-amd64"),
            put("arm64", repository="team/staging", tag="run-arm64"),
        ]
        digests = [each.reference.rpartition("@")[2] for each in children]
        target.forget_requests()
        result = await publish(connection, publication(*children))
        assert all("mount" in each.query for each in target.seen if each.method == "POST")
        assert target.puts == [
            f"PUT team/app/manifests/{digests[0]}",
            f"PUT team/app/manifests/{digests[1]}",
            "PUT team/app/manifests/run-amd64",
            "PUT team/app/manifests/run-arm64",
            f"PUT team/app/manifests/{result.digest}",
            "PUT team/app/manifests/run",
        ]

    @pytest.mark.req("BD-235")
    async def test_without_tags_for_children_none_is_set(self, target, connection, put, publication):
        await publish(connection, publication(put("amd64", repository="team/staging"), put("arm64")))
        assert {tag for repository, tag in target.tags if repository == "team/app"} == {"run", "run-arm64"}

    @pytest.mark.req("BD-176")
    async def test_where_nothing_can_be_mounted_blobs_are_uploaded(self, start, connection, put, result_of):
        target = await start(mounts=False)
        child = put("amd64", at=target, repository="team/staging")
        result = await publish(connection, result_of(target, (child,)))
        assert isinstance(result, PublishResult)
        assert len([each for each in target.puts if "/uploads/" in each]) == 2

    @pytest.mark.req("BD-176")
    async def test_another_host_is_never_asked_to_mount(self, start, target, connection, put, publication):
        other = await start()
        child = put("arm64", at=other, repository="mirror/app", tag="run-arm64")
        result = await publish(connection, publication(put("amd64"), child))
        assert isinstance(result, PublishResult)
        assert all("mount" not in each.query for each in target.seen)
        assert target.tags["team/app", "run-arm64"] == child.reference.rpartition("@")[2]

    @pytest.mark.req("BD-176")
    async def test_a_copy_that_was_cut_off_is_completed(self, start, target, connection, put, publication):
        """After any number of writes: nothing is written twice, and no tag is ahead of its children."""
        other = await start()
        for cut in range(9):
            salt = f"cut {cut}"
            work = publication(
                put("amd64", at=other, salt=salt, tag=f"{cut}-amd64", layers=[layer({"a": salt.encode()})]),
                put("arm64", at=other, salt=salt, tag=f"{cut}-arm64", layers=[layer({"b": salt.encode()})]),
                tags=[f"run-{cut}"],
            )
            count = itertools.count()
            target.gate = lambda request, count=count, cut=cut: Answer(403) if next(count) >= cut else None
            assert (await publish(connection, work)).reason == "PushDenied"
            assert ("team/app", f"run-{cut}") not in target.tags
            done = {digest for repository, digest in (*target.manifests, *target.blobs) if repository == "team/app"}
            target.gate = None
            target.forget_requests()
            assert isinstance(await publish(connection, work), PublishResult)
            written = {each.query.rpartition("=")[2] for each in target.seen if each.method == "PUT" and each.query}
            written |= {each.rpartition("/")[2] for each in target.puts if "manifests" in each}
            assert not written & done

    @pytest.mark.req("BD-092")
    async def test_a_child_of_another_repository_is_copied(self, target, connection, put, publication):
        child = put("arm64", repository="team/old", tag="run-arm64")
        work = publication(child, tags=(), single=True)
        copied = await publish(connection, work)
        digest = child.reference.rpartition("@")[2]
        assert (copied.digest, copied.children[0].digest, copied.changed) == (digest, digest, True)
        assert target.tags["team/app", "run-arm64"] == digest
        target.forget_requests()
        again = await publish(connection, work)
        assert (again.changed, target.writes) == (False, [])

    @pytest.mark.req("BD-092")
    async def test_a_copy_that_cannot_be_made_says_who_is_missing(self, target, connection, put, publication):
        child = put("arm64", repository="team/old")
        config = json.loads(target.manifests["team/old", child.reference.rpartition("@")[2]][0])["layers"][0]["digest"]
        del target.blobs["team/old", config]
        trouble = await publish(connection, publication(child, tags=(), single=True))
        assert (trouble.reason, trouble.missing) == ("RegistryInconsistent", ("arm64",))

    @pytest.mark.req("BD-177")
    async def test_only_the_copy_that_lost_a_blob_is_missing(self, target, connection, put, publication):
        children = [put(each, repository="team/staging") for each in ("amd64", "arm64")]
        lost = json.loads(target.manifests["team/staging", children[1].reference.rpartition("@")[2]][0])["layers"][0]
        del target.blobs["team/staging", lost["digest"]]
        trouble = await publish(connection, publication(*children))
        assert (trouble.reason, trouble.missing) == ("RegistryInconsistent", ("arm64",))

    @pytest.mark.req("BD-335")
    async def test_a_child_is_never_taken_by_its_tag(self, target, connection, put, publication):
        put("arm64")
        target.forget_requests()
        child = ChildImage(architecture="arm64", reference=f"{target.host}/team/app:run-arm64")
        trouble = await publish(connection, publication(put("amd64"), child))
        assert ("by its digest" in trouble.message, target.writes) == (True, [])


class TestHead:
    @pytest.mark.req("BD-092", "BD-150")
    async def test_a_digest_and_a_tag_are_found_with_one_request(self, target, connection, put):
        child = put("arm64")
        digest = child.reference.rpartition("@")[2]
        for name in (child.reference, f"{target.host}/team/app:run-arm64"):
            target.forget_requests()
            found = await head_image(connection, name)
            assert (found.digest, found.error) == (digest, "")
            assert [each.method for each in target.seen] == ["HEAD"]

    @pytest.mark.parametrize(("status", "code"), [(404, "not-found"), (403, "denied"), (500, "server-error")])
    async def test_what_is_not_found_has_a_code(self, target, connection, put, status, code):
        child = put("arm64")
        target.script("*", "manifests", Answer(status), forever=True)
        found = await head_image(connection, child.reference)
        assert (found.digest, found.error) == ("", code)

    async def test_a_registry_without_head_is_asked_by_get(self, target, connection, put):
        child = put("arm64")
        target.script("HEAD", "manifests", Answer(405), forever=True)
        assert (await head_image(connection, child.reference)).digest == child.reference.rpartition("@")[2]
