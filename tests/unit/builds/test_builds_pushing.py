"""The containers of build pods, against registries that do as they are told."""

import json

import msgspec
import pytest
from build_layouts import LayoutFolder
from image_parts import layer, put_image

from polyarch.builds.agent import (
    ProgramResult,
    PruneDocument,
    Upload,
    of_registry,
    prune,
    push_child,
    push_index,
    write_message,
)
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.results import index_message, push_message
from polyarch.builds.pruning import PrunableImage
from polyarch.builds.registry import ChildImage, Publication
from polyarch.oci.inspection import InspectionError

NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def folder(tmp_path):
    return LayoutFolder(tmp_path / "layout")


@pytest.fixture
def upload(folder, target):
    def upload(**more):
        given = {"layout": folder.root, "architecture": "arm64", "repository": f"{target.host}/team/app", "tag": "run"}
        return Upload(**{**given, **more})

    return upload


async def push(connection, asked):
    notes = []
    return await push_child(connection, asked, notice=notes.append), notes


class TestPush:
    @pytest.mark.req("BD-148")
    async def test_blobs_then_the_manifest_then_its_tag(self, folder, target, connection, upload):
        ending, notes = await push(connection, upload())
        assert ending.code == 0
        assert ending.message == contract.PushMessage(
            digest=folder.manifest[0],
            size=folder.manifest[1],
            media_type="application/vnd.oci.image.manifest.v1+json",
            os="linux",
            architecture="arm64",
            config=folder.config[0],
        )
        assert target.tags["team/app", "run"] == folder.manifest[0]
        assert [each.split()[0] for each in notes] == ["blob"] * 3 + ["child", "tag"]

    @pytest.mark.req("BD-149")
    async def test_the_builder_understands_the_message(self, folder, connection, upload, tmp_path):
        ending, _ = await push(connection, upload())
        write_message(tmp_path / "log", ending.message)
        text = (tmp_path / "log").read_text()
        assert text.count("\n") == 1
        assert push_message(text, architecture="arm64") == ending.message

    @pytest.mark.req("BD-148")
    async def test_what_is_there_is_not_sent_again(self, target, connection, upload):
        first, _ = await push(connection, upload())
        target.forget_requests()
        second, _ = await push(connection, upload())
        assert second == first
        assert target.writes == []

    @pytest.mark.req("BD-148")
    async def test_without_a_tag_it_is_there_by_digest(self, folder, target, connection, upload):
        ending, _ = await push(connection, upload(tag=""))
        assert ending.code == 0
        assert ("team/app", folder.manifest[0]) in target.manifests
        assert target.tags == {}

    @pytest.mark.req("BD-148")
    async def test_nothing_is_sent_of_a_layout_that_is_spoilt(self, folder, target, connection, upload):
        folder.path(folder.layers[0][0]).write_bytes(b"x")
        ending, _ = await push(connection, upload())
        assert (ending.code, ending.message.reason) == (45, "LayoutInvalid")
        assert target.writes == []

    @pytest.mark.req("BD-147")
    async def test_another_architecture_is_not_pushed(self, target, connection, upload):
        ending, _ = await push(connection, upload(architecture="s390x"))
        assert (ending.code, ending.message.reason) == (43, "ArchitectureMismatch")
        assert target.writes == []

    @pytest.mark.req("BD-147")
    async def test_without_rights_it_is_denied_and_not_tried_again(self, start, connection, upload):
        closed = await start(auth="basic")
        ending, _ = await push(connection, upload(repository=f"{closed.host}/team/app"))
        assert (ending.code, ending.message.reason) == (44, "PushDenied")
        assert "there are no credentials for this host" in ending.message.message

    @pytest.mark.req("BD-147")
    async def test_a_registry_that_is_away_is_tried_again(self, connection, upload):
        ending, _ = await push(connection, upload(repository="127.0.0.1:1/team/app"))
        assert ending.code == 1


class TestIndex:
    def asked(self, target, **children):
        found = [
            ChildImage(architecture=each, reference=f"{target.host}/team/app@{digest}")
            for each, digest in children.items()
        ]
        return Publication(repository=f"{target.host}/team/app", children=tuple(found), tags=("run", "latest"))

    def put(self, target, architecture):
        return put_image(target, "team/app", architecture, f"linux/{architecture}", [layer({"a": b"x"})])

    @pytest.mark.req("BD-178")
    async def test_children_are_joined_and_tagged(self, target, connection):
        asked = self.asked(target, **{each: self.put(target, each) for each in ("amd64", "arm64")})
        ending = await push_index(connection, asked)
        assert ending.code == 0
        assert target.tags["team/app", "run"] == target.tags["team/app", "latest"] == ending.message.digest
        assert index_message(msgspec.json.encode(ending.message).decode()) == ending.message
        assert (ending.message.os, ending.message.architecture) == ("", ""), "an index is of no one architecture"

    @pytest.mark.req("BD-179")
    async def test_an_only_child_that_is_the_result_says_of_which_architecture_it_is(self, target, connection):
        asked = self.asked(target, arm64=self.put(target, "arm64"))
        ending = await push_index(connection, msgspec.structs.replace(asked, single=True))
        assert (ending.code, ending.message.os, ending.message.architecture) == (0, "linux", "arm64")
        joined = await push_index(connection, asked)
        assert joined.message.digest != ending.message.digest
        assert (joined.code, joined.message.os, joined.message.architecture) == (0, "", "")

    @pytest.mark.req("BD-178")
    async def test_a_child_that_is_gone_is_named_and_no_tag_moves(self, target, connection):
        asked = self.asked(target, amd64=self.put(target, "amd64"), arm64=NOWHERE)
        target.forget_requests()
        ending = await push_index(connection, asked)
        assert ending == ProgramResult(0, contract.IndexMessage(missing=("arm64",)))
        assert target.writes == []

    @pytest.mark.req("BD-178")
    async def test_a_child_of_another_architecture_is_refused(self, target, connection):
        ending = await push_index(connection, self.asked(target, arm64=self.put(target, "amd64")))
        assert (ending.code, ending.message.reason) == (43, "ArchitectureMismatch")

    @pytest.mark.req("BD-178")
    async def test_a_registry_that_is_away_is_tried_again(self, connection):
        child = ChildImage(architecture="arm64", reference=f"127.0.0.1:1/team/app@{NOWHERE}")
        ending = await push_index(connection, Publication(repository="127.0.0.1:1/team/app", children=(child,)))
        assert (ending.code, ending.message.reason) == (1, "RegistryUnreachable")


class TestPrune:
    @pytest.mark.req("BD-178")
    async def test_images_are_deleted_and_counted(self, target, connection):
        digest = put_image(target, "team/app", "old", "linux/arm64", [layer({"a": b"x"})])
        image = PrunableImage(repository=f"{target.host}/team/app", digest=digest, kind="child")
        ending = await prune(connection, PruneDocument(images=(image,)))
        assert (ending.code, ending.message) == (0, contract.PruneMessage(deleted=1))

    @pytest.mark.req("BD-178")
    async def test_what_could_not_be_deleted_yet_is_tried_again(self, connection):
        image = PrunableImage(repository="127.0.0.1:1/team/app", digest=NOWHERE, kind="child")
        ending = await prune(connection, PruneDocument(images=(image,)))
        assert ending.code == 1


@pytest.mark.req("BD-147")
def test_an_address_that_may_not_be_asked_is_not_tried_again() -> None:
    """It stays forbidden, where a registry that is away may come back."""
    blocked = InspectionError.of("blocked", "it leads to 169.254.169.254")
    away = InspectionError.of("network", "nobody is there")
    assert [of_registry(each).code for each in (blocked, away)] == [44, 1]


@pytest.mark.req("BD-147")
def test_a_code_of_nobodys_is_a_failed_build() -> None:
    assert ProgramResult.failure(1, "x").message.reason == "BuildFailed"


@pytest.mark.req("BD-149")
def test_a_failure_is_short_enough_for_any_kubelet(tmp_path) -> None:
    write_message(tmp_path / "log", ProgramResult.failure(45, "é\n" * 10_000).message)
    assert len((tmp_path / "log").read_bytes()) <= 4096
    assert json.loads((tmp_path / "log").read_text())["reason"] == "LayoutInvalid"
