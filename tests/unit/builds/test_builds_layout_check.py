"""A layout is pushed only if every byte of it is what it claims to be."""

import json
import os

import pytest
from build_layouts import LayoutFolder

from polyarch.builds.agent import UnusableLayout, check_layout
from polyarch.oci.documents import DOCKER_SCHEMA2, OCI_INDEX, OCI_MANIFEST


@pytest.fixture
def folder(tmp_path):
    return LayoutFolder(tmp_path / "layout")


def refused(folder, architecture="arm64"):
    with pytest.raises(UnusableLayout) as raised:
        check_layout(folder.root, architecture)
    return raised.value.code, str(raised.value)


class TestGood:
    @pytest.mark.req("BD-148")
    def test_one_image_is_described_by_its_own_bytes(self, folder):
        found = check_layout(folder.root, "arm64")
        assert (found.digest, found.media_type, found.config) == (folder.manifest[0], OCI_MANIFEST, folder.config[0])
        assert str(found.platform) == "linux/arm64"
        assert len(found.manifest) == folder.manifest[1]

    @pytest.mark.req("BD-148")
    def test_docker_manifests_too(self, folder):
        docker = {"mediaType": "application/vnd.docker.container.image.v1+json"}
        config = {**docker, "digest": folder.config[0], "size": folder.config[1]}
        folder.write(mediaType=DOCKER_SCHEMA2, config=config)
        assert check_layout(folder.root, "arm64").media_type == DOCKER_SCHEMA2

    @pytest.mark.req("BD-173")
    def test_a_variant_is_of_the_architecture(self, tmp_path):
        folder = LayoutFolder(tmp_path / "v", platform={"variant": "v8"})
        assert check_layout(folder.root, "arm64").platform.architecture == "arm64"


class TestArchitecture:
    @pytest.mark.req("BD-173")
    @pytest.mark.parametrize("platform", [{"architecture": "amd64"}, {"os": "windows"}, {"architecture": ""}])
    def test_the_config_blob_decides(self, tmp_path, platform):
        code, said = refused(LayoutFolder(tmp_path / "x", platform=platform))
        assert code == 43
        assert "linux/arm64" in said


def spoil_layer(folder):
    folder.path(folder.layers[1][0]).write_bytes(b"other bytes")


def shorten_layer(folder):
    path = folder.path(folder.layers[0][0])
    path.write_bytes(path.read_bytes()[:-1])


def forget_layer(folder):
    folder.path(folder.layers[0][0]).unlink()


def lie_about_size(folder):
    digest, size = folder.layers[0]
    folder.layers[0] = (digest, size + 1)
    folder.write()


def lie_about_manifest(folder):
    folder.index({"mediaType": OCI_MANIFEST, "digest": folder.manifest[0], "size": 7})


def link_out(folder):
    path = folder.path(folder.layers[0][0])
    path.unlink()
    path.symlink_to("/etc/hostname")


def link_within(folder):
    path = folder.path(folder.layers[0][0])
    path.rename(path.with_name("there"))
    path.symlink_to("there")


def link_hard(folder):
    os.link(folder.path(folder.layers[0][0]), folder.root / "again")


def link_folder(folder):
    (folder.root / "blobs" / "sha512").symlink_to("/etc")


def link_all(folder):
    there = folder.root.rename(folder.root.with_name("there"))
    folder.root.symlink_to(there)


def add_many(folder):
    for number in range(4096):
        (folder.root / str(number)).touch()


def add_pipe(folder):
    os.mkfifo(folder.root / "pipe")


def two_images(folder):
    entry = {"mediaType": OCI_MANIFEST, "digest": folder.manifest[0], "size": folder.manifest[1]}
    folder.index(entry, entry)


def no_image(folder):
    folder.index()


def an_index(folder):
    digest, size = folder.put(json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode())
    folder.index({"mediaType": OCI_INDEX, "digest": digest, "size": size})


def an_artifact(folder):
    config = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": folder.config[0], "size": folder.config[1]}
    folder.write(config=config)


def no_json(folder):
    (folder.root / "index.json").write_text("{")


def deep_json(folder):
    (folder.root / "index.json").write_text("[" * 100_000)


def large_manifest(folder):
    digest, size = folder.put(b" " * (5 * 1024 * 1024))
    folder.index({"mediaType": OCI_MANIFEST, "digest": digest, "size": size})


def path_for_a_digest(folder):
    folder.index({"mediaType": OCI_MANIFEST, "digest": "sha256:../../../etc/hostname", "size": 1})


def version_2(folder):
    (folder.root / "oci-layout").write_text('{"imageLayoutVersion": "2.0.0"}')


def no_version(folder):
    (folder.root / "oci-layout").unlink()


SPOILT = (
    spoil_layer, shorten_layer, forget_layer, lie_about_size, lie_about_manifest, link_out, link_within, link_hard,
    link_folder, link_all, add_many, add_pipe, two_images, no_image, an_index, an_artifact, no_json, deep_json,
    large_manifest, path_for_a_digest, version_2, no_version,
)  # fmt: skip


@pytest.mark.req("BD-148", "BD-322")
@pytest.mark.parametrize("spoil", SPOILT, ids=lambda each: each.__name__)
def test_anything_else_is_invalid_with_a_sentence(folder, spoil) -> None:
    spoil(folder)
    code, said = refused(folder)
    assert code == 45
    assert said


@pytest.mark.req("BD-148")
def test_a_folder_that_is_not_there_is_invalid(tmp_path) -> None:
    with pytest.raises(UnusableLayout, match="No such file"):
        check_layout(tmp_path / "nothing", "arm64")
