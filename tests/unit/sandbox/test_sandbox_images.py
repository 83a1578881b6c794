"""Images that the sandbox pushes: real, small, the same everywhere."""

import gzip
import hashlib
import io
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from polyarch.oci.image.parsing import read_index
from polyarch.platforms import Platform
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.registry import images
from polyarch.sandbox.registry.images import FAMILIAR, DescribedImage, Manifest, read_descriptions
from polyarch.sandbox.versions import host_architecture


def read(value: object, name: str = "quay.io/acme/app:1") -> DescribedImage:
    (described,) = read_descriptions({name: value})
    return described


def document(manifest: Manifest) -> dict[str, object]:
    decoded = msgspec.json.decode(manifest.content)
    assert isinstance(decoded, dict)
    return decoded


def entries(manifest: Manifest) -> list[dict[str, object]]:
    listed = document(manifest)["manifests"]
    assert isinstance(listed, list)
    return listed


def config(manifest: Manifest) -> dict[str, object]:
    decoded = msgspec.json.decode(manifest.blobs[0])
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.req("SB-005")
def test_the_same_description_gives_the_same_digests() -> None:
    assert read(["linux/amd64", "linux/arm64"]).manifest == read(["linux/amd64", "linux/arm64"]).manifest


@pytest.mark.req("SB-005")
def test_different_names_and_platforms_give_different_content() -> None:
    digests = {
        read(["linux/amd64"]).manifest.digest,
        read(["linux/arm64"]).manifest.digest,
        read(["linux/amd64"], "quay.io/acme/other:1").manifest.digest,
    }
    assert len(digests) == 3


@pytest.mark.req("SB-005")
def test_an_image_is_whole_layer_configuration_manifest() -> None:
    manifest = read({"kind": "image", "platforms": ["linux/s390x"]}).manifest
    configuration, layer = manifest.blobs
    described = document(manifest)
    assert described["config"]["digest"] == images.digest_of(configuration)  # type: ignore[index]
    assert described["layers"][0]["size"] == len(layer)  # type: ignore[index]
    tar = gzip.decompress(layer)
    rootfs = config(manifest)["rootfs"]
    assert rootfs == {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        program = archive.extractfile("bin/app")
        assert program is not None
        header = program.read()
    assert header[:5] == b"\x7fELF\x02"
    assert int.from_bytes(header[18:20], "big") == 22, "e_machine of s390x, in its byte order"


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("architecture", "length"), [("arm", 52), ("386", 52), ("ppc64le", 64), ("s390x", 64), ("wasm", 0)]
)
def test_programs_that_no_real_node_runs_are_headers(architecture: str, length: int) -> None:
    assert len(images.program(architecture)) == length


@pytest.mark.req("SB-005")
@pytest.mark.skipif(host_architecture() not in {"amd64", "arm64"}, reason="its program is a header")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_of_an_image_runs_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "program"
    file.write_bytes(images.program(host_architecture()))
    file.chmod(0o755)
    with subprocess.Popen([str(file)]) as process:
        blocked = f"{1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1:016x}"
        for _ in range(500):
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
            if status["SigBlk"] == blocked:
                break
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(timeout=10) == 0


@pytest.mark.req("SB-005")
def test_an_index_is_read_by_our_own_reader_as_described() -> None:
    manifest = read({"platforms": ["linux/amd64", "linux/arm/v6", "windows(10.0.1)/amd64"], "attestations": True})
    reading = read_index(manifest.manifest.content)
    assert [str(entry.platform) for entry in reading.having("runnable")] == [
        "linux/amd64",
        "linux/arm/v6",
        "windows(10.0.1)/amd64",
    ]
    assert len(reading.having("skipped")) == 3, "the attestations"


@pytest.mark.req("SB-005")
def test_schema_2_lists_are_dockers() -> None:
    manifest = read({"platforms": ["linux/amd64"], "format": "docker"}).manifest
    assert document(manifest)["mediaType"] == images.DOCKER_LIST
    assert document(manifest.children[0])["mediaType"] == images.DOCKER_SCHEMA2


@pytest.mark.req("SB-005")
def test_nested_indexes_hold_an_index_for_each_platform() -> None:
    manifest = read({"platforms": ["linux/amd64", "linux/arm64"], "nested": True}).manifest
    assert [entry["mediaType"] for entry in entries(manifest)] == [images.OCI_INDEX] * 2
    inner = entries(manifest.children[0])
    assert inner[0]["platform"] == {"architecture": "amd64", "os": "linux"}


@pytest.mark.req("SB-005")
def test_entries_can_leave_out_their_platform() -> None:
    manifest = read({"platforms": ["linux/amd64", "linux/arm64"], "withoutPlatform": ["linux/arm64"]}).manifest
    assert ["platform" in entry for entry in entries(manifest)] == [True, False]


@pytest.mark.req("SB-005")
def test_a_missing_child_is_named_and_not_pushed() -> None:
    manifest = read({"platforms": ["linux/amd64", "linux/arm64"], "missing": ["linux/arm64"]}).manifest
    assert len(entries(manifest)) == 2
    assert len(manifest.children) == 1


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    "value", [{"kind": "bundle"}, {"kind": "image", "platforms": ["linux/amd64"], "neutral": True}]
)
def test_operator_bundles_carry_their_labels(value: object) -> None:
    labels = config(read(value).manifest)["config"]["Labels"]  # type: ignore[index]
    assert "operators.operatorframework.io.bundle.manifests.v1" in labels


@pytest.mark.req("SB-005")
def test_an_artifact_is_no_image() -> None:
    manifest = read({"kind": "artifact"}).manifest
    assert "artifactType" in document(manifest)
    assert document(manifest)["config"]["mediaType"] == images.OCI_EMPTY  # type: ignore[index]


@pytest.mark.req("SB-005")
def test_an_unknown_image_does_not_say_its_architecture() -> None:
    assert config(read({"kind": "image", "unknown": True}).manifest)["architecture"] == ""


@pytest.mark.req("SB-005")
def test_an_empty_index_is_possible() -> None:
    assert entries(read([]).manifest) == []


@pytest.mark.req("SB-005")
def test_digests_of_the_platforms_are_told() -> None:
    described = read(["linux/amd64", "linux/arm64"])
    assert described.children == {
        "linux/amd64": described.manifest.children[0].digest,
        "linux/arm64": described.manifest.children[1].digest,
    }


@pytest.mark.req("SB-010")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param([], "expected a mapping", id="a list"),
        pytest.param({"UPPER/x:1": []}, "UPPER", id="invalid reference"),
        pytest.param({f"a@sha256:{'0' * 64}": []}, "write NAME:TAG", id="by digest"),
        pytest.param({"a:1": ["linux"]}, "linux", id="a system alone"),
        pytest.param({"a:1": {"platform": []}}, "unknown field `platform`", id="misspelt member"),
        pytest.param({"a:1": "linux/amd64"}, "expected a list of platforms", id="a text"),
        pytest.param({"a:1": {"kind": "picture"}}, "picture", id="unknown kind"),
        pytest.param({"a:1": {"kind": "image", "platforms": ["linux/amd64", "linux/arm64"]}}, "one platform", id="two"),
        pytest.param({"a:1": {"platforms": ["linux/amd64"], "missing": ["linux/arm64"]}}, "missing names", id="other"),
        pytest.param({"a:1": {"delay": -1}}, "delay", id="negative delay"),
    ],
)
def test_what_cannot_be_pushed_is_refused_with_file_and_reference(data: object, message: str) -> None:
    with pytest.raises(SandboxError) as caught:
        read_descriptions(data, "seed.yaml")  # type: ignore[arg-type]
    assert str(caught.value).startswith("seed.yaml: ")
    assert message in str(caught.value)


@pytest.mark.req("SB-010")
def test_a_platforms_file_can_be_pushed_as_it_is() -> None:
    described = read_descriptions(
        {
            "a:1": {
                "platforms": ["linux/amd64"],
                "digest": "sha256:0",
                "children": {"linux/amd64": "x"},
                "warnings": [],
            },
            "b:1": {"error": "not-found"},
        }
    )
    assert [each.reference.familiar for each in described] == ["a:1"]


@pytest.mark.req("SB-010")
def test_images_may_stand_under_a_key_of_their_own() -> None:
    (described,) = read_descriptions({"images": {"nginx": ["linux/amd64"]}})
    assert described.reference.canonical == "docker.io/library/nginx:latest"


@pytest.mark.req("SB-005")
def test_users_make_a_repository_private() -> None:
    access = read({"platforms": [], "users": {"alice": "wonderland"}}).description.access
    assert access is not None
    assert access.users == {"alice": "wonderland"}
    assert read([]).description.access is None


@pytest.mark.req("SB-005")
def test_familiar_names_are_understood_and_have_the_platforms_one_expects() -> None:
    described = {each.reference.familiar: each for each in read_descriptions(FAMILIAR)}
    assert Platform.parse("linux/s390x") in map(Platform.parse, described["nginx:1.27"].description.platforms)
    assert {"redis:7", "postgres:16"} <= set(described)
