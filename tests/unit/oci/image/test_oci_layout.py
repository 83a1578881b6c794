"""OCI layout directories as images."""

import json
import os

import pytest
from image_parts import config_of
from scripted_registry import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, digest_of, encode

from polyarch.oci.image.layout import REF_NAME, ImageLayout
from polyarch.oci.inspection import Status
from polyarch.oci.reference import parse
from polyarch.oci.settings import CLUSTER, PLACEMENT, InspectorSettings


class Folder:
    """A layout directory under construction."""

    def __init__(self, path):
        self.path = path
        self.entries = []
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.write()

    def blob(self, body):
        digest = digest_of(body)
        self.blob_path(digest).write_bytes(body)
        return digest

    def blob_path(self, digest):
        return self.path / "blobs" / "sha256" / digest.partition(":")[2]

    def image(self, platform="linux/amd64", tag=None):
        config = encode(config_of(platform))
        manifest = encode(
            {
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": {"mediaType": OCI_CONFIG, "digest": self.blob(config), "size": len(config)},
                "layers": [],
            }
        )
        return self.add(self.blob(manifest), tag)

    def index(self, *platforms, tag=None):
        entries = []
        for platform in platforms:
            os_, architecture = platform.split("/")
            entries.append(
                {
                    "mediaType": OCI_MANIFEST,
                    "digest": digest_of(platform.encode()),
                    "size": 1,
                    "platform": {"os": os_, "architecture": architecture},
                }
            )
        body = encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})
        return self.add(self.blob(body), tag)

    def add(self, digest, tag=None):
        entry = {"mediaType": OCI_MANIFEST, "digest": digest, "size": 1}
        if tag is not None:
            entry["annotations"] = {REF_NAME: tag}
        self.entries.append(entry)
        self.write()
        return digest

    def write(self):
        (self.path / "index.json").write_bytes(encode({"schemaVersion": 2, "manifests": self.entries}))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "out")


@pytest.fixture
def ask(make_inspector, folder):
    """``await ask(":1.0")``: the answer for the folder with that tag or digest."""

    inspector = make_inspector(layouts=True)

    async def ask(selector=""):
        return await inspector.inspect(f"oci:{folder.path}{selector}")

    return ask


@pytest.mark.req("RG-120")
async def test_the_only_image_needs_no_tag(folder, ask):
    """One entry and no tag: it."""
    digest = folder.image("linux/arm64")
    answer = await ask()
    assert (answer.status, answer.kind, answer.digest) == (Status.RESOLVED, "image", digest)
    assert [str(each) for each in answer.platforms] == ["linux/arm64"]
    assert (answer.requests, answer.source, answer.warnings) == (0, None, ())


@pytest.mark.req("RG-120")
async def test_a_tag_selects_by_its_annotation(folder, ask):
    """org.opencontainers.image.ref.name."""
    folder.image("linux/arm64", "1.0")
    folder.index("linux/amd64", "linux/s390x", tag="2.0")
    assert [str(each) for each in (await ask(":1.0")).platforms] == ["linux/arm64"]
    two = await ask(":2.0")
    assert (two.kind, [str(each) for each in two.platforms]) == ("index", ["linux/amd64", "linux/s390x"])


@pytest.mark.req("RG-010")
@pytest.mark.parametrize("name", ["quay.io/team/app:1.0", "localhost:5000/a/b:c", "library/app", "app", "1.0+build"])
async def test_an_image_may_have_its_whole_name(folder, ask, name):
    """As skopeo writes it, and as it is told where there are several."""
    folder.image("linux/arm64", name)
    folder.image("linux/s390x", "quay.io/team/app:2.0")
    answer = await ask(f":{name}")
    assert [str(each) for each in answer.platforms] == ["linux/arm64"]
    assert name in (await ask()).error.message


async def test_a_directory_may_have_colons_itself(make_inspector, tmp_path):
    folder = Folder(tmp_path / "a:b" / "c")
    folder.image("linux/arm64", "quay.io/x:1")
    inspector = make_inspector(layouts=True)
    for selector in ("", ":quay.io/x:1"):
        answer = await inspector.inspect(f"oci:{folder.path}{selector}")
        assert [str(each) for each in answer.platforms] == ["linux/arm64"]


async def test_a_digest_selects_any_manifest_of_the_folder(folder, ask):
    digest = folder.image("linux/arm64", "1.0")
    folder.image("linux/amd64", "2.0")
    assert (await ask(f"@{digest}")).digest == digest


@pytest.mark.req("RG-120")
async def test_several_images_without_a_tag_are_told_by_their_tags(folder, ask):
    """Several and no tag: `layout` listing the tags."""
    folder.image("linux/arm64", "1.0")
    folder.image("linux/amd64", "2.0")
    untagged = folder.image("linux/s390x")
    error = (await ask()).error
    assert (error.code, error.error_class) == ("layout", "configuration")
    assert f"1.0, 2.0, @{untagged}" in error.message
    assert f"oci:{folder.path}:TAG" in error.message


async def test_one_image_under_two_tags_is_one_image(folder, ask):
    folder.add(folder.image("linux/arm64", "1.0"), "latest")
    assert [str(each) for each in (await ask()).platforms] == ["linux/arm64"]


async def test_a_tag_that_is_not_there_names_those_that_are(folder, ask):
    folder.image("linux/arm64", "1.0")
    error = (await ask(":3.0")).error
    assert (error.code, "it has no image tagged 3.0, but 1.0" in error.message) == ("layout", True)


async def test_a_tag_on_two_images_is_not_guessed(folder, ask):
    folder.image("linux/arm64", "1.0")
    folder.image("linux/amd64", "1.0")
    assert "several images tagged 1.0" in (await ask(":1.0")).error.message


@pytest.mark.parametrize("file", ["oci-layout", "index.json"])
async def test_a_folder_that_is_no_layout_says_what_is_missing(folder, ask, file):
    folder.image()
    (folder.path / file).unlink()
    error = (await ask()).error
    assert (error.code, f"there is no {file} in it" in error.message) == ("layout", True)


async def test_a_folder_that_does_not_exist_is_an_answer(make_inspector, tmp_path):
    error = (await make_inspector(layouts=True).inspect(f"oci:{tmp_path}/nothing")).error
    assert (error.code, "oci-layout" in error.message) == ("layout", True)
    assert error.message.count(f"oci:{tmp_path}/nothing") == 1, "it is the image and the place that was asked"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("oci-layout", b'{"imageLayoutVersion":"2.0.0"}', "only version 1"),
        ("oci-layout", b"{}", "imageLayoutVersion"),
        ("index.json", b"[]", "malformed"),
        ("index.json", b'{"manifests":[{"digest":"sha256:x"}]}', "unusable digest"),
        ("index.json", b'{"manifests":[]}', "it has no image"),
    ],
)
async def test_files_of_another_kind_are_refused(folder, ask, file, content, said):
    (folder.path / file).write_bytes(content)
    error = (await ask()).error
    assert (error.code, said in error.message) == ("layout", True), error.message


@pytest.mark.req("RG-033", "RG-120")
async def test_blobs_are_verified_like_those_of_a_registry(folder, ask):
    digest = folder.image()
    folder.blob_path(digest).write_bytes(b'{"schemaVersion":2}')
    error = (await ask()).error
    assert (error.code, digest in error.message) == ("layout", True)


async def test_a_blob_that_is_not_there_is_not_found(folder, ask):
    digest = folder.image()
    folder.blob_path(digest).unlink()
    assert (await ask()).error.code == "not-found"


@pytest.mark.req("RG-050")
async def test_a_blob_has_a_limit(folder, ask, monkeypatch):
    folder.image()
    monkeypatch.setattr("polyarch.oci.image.layout.MANIFEST_LIMIT", 100)
    assert "too large" in (await ask()).error.message


@pytest.mark.req("RG-120")
@pytest.mark.parametrize("where", ["blob", "folder", "index"])
async def test_links_that_leave_the_folder_are_refused(folder, ask, tmp_path, where):
    """Paths escaping the directory, symlinks included."""
    digest = folder.image()
    path = {"blob": folder.blob_path(digest), "folder": folder.path / "blobs", "index": folder.path / "index.json"}[
        where
    ]
    outside = tmp_path / "elsewhere"
    path.rename(outside)
    path.symlink_to(outside)
    error = (await ask()).error
    assert (error.code, "outside of the folder" in error.message) == ("layout", True)


async def test_links_within_the_folder_are_fine(folder, ask):
    digest = folder.image()
    kept = folder.path / "kept"
    folder.blob_path(digest).rename(kept)
    folder.blob_path(digest).symlink_to(kept)
    assert (await ask()).status is Status.RESOLVED


async def test_what_is_no_file_is_not_waited_for(folder, ask):
    """A named pipe in the place of a blob would block who opens it."""
    digest = folder.image()
    folder.blob_path(digest).unlink()
    os.mkfifo(folder.blob_path(digest))
    error = (await ask()).error
    assert (error.code, "is no file" in error.message) == ("layout", True)


async def test_links_in_a_circle_end(folder, ask):
    (folder.path / "index.json").unlink()
    (folder.path / "index.json").symlink_to("index.json")
    assert (await ask()).error.code == "layout"


@pytest.mark.req("RG-120")
async def test_nothing_is_read_from_this_machine_unless_the_user_names_it(folder, inspector):
    """Pods and files to lint are written by others; `oci:/etc` in an image field must not be looked at."""
    folder.image()
    assert CLUSTER.layouts is PLACEMENT.layouts is InspectorSettings().layouts is False
    error = (await inspector.inspect(f"oci:{folder.path}")).error
    assert (error.code, str(folder.path / "index.json") in error.message) == ("layout", False)


async def test_a_layout_is_read_without_a_network(folder, make_inspector):
    """`--offline` keeps from registries, not from files."""
    folder.image("linux/arm64")
    answer = await make_inspector(offline=True, layouts=True).inspect(f"oci:{folder.path}")
    assert answer.status is Status.RESOLVED


@pytest.mark.req("RG-155")
async def test_a_blob_is_streamed_and_checked_at_its_end(folder, inspector, tmp_path):
    """What is copied from a layout is what its digest says."""
    body = b"layer" * 200_000
    digest = folder.blob(body)
    layout, received = ImageLayout(str(folder.path)), []

    async def receive(chunks):
        received.append(b"".join([chunk async for chunk in chunks]))

    await layout.stream_blob(layout.access, digest, None, receive)
    assert received == [body]
    folder.blob_path(digest).write_bytes(body[:-1])
    with pytest.raises(Exception, match="has bytes that are sha256"):
        await layout.stream_blob(layout.access, digest, None, receive)


async def test_the_reference_stays_as_it_was_given(folder, ask):
    folder.image(tag="1.0")
    answer = await ask(":1.0")
    assert answer.reference == parse(f"oci:{folder.path}:1.0")
    assert json.loads((folder.path / "index.json").read_bytes())["manifests"]
