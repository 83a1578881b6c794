"""What one document says of platforms (RG-020, RG-040, RG-041, RG-045 to RG-047, RG-050)."""

import base64
import json
from typing import Any

import pytest

from polyarch.oci.documents import (
    DOCKER_LIST,
    DOCKER_SCHEMA1,
    DOCKER_SCHEMA2,
    OCI_INDEX,
    OCI_MANIFEST,
    ContentError,
    digest_of,
)
from polyarch.oci.image.parsing import BUNDLE_LABELS, IndexEntry, read_config, read_index, read_manifest, read_schema1
from polyarch.platforms import Platform

DIGEST = f"sha256:{'a' * 64}"
AMD64 = {"os": "linux", "architecture": "amd64"}


def descriptor(**members: Any) -> dict[str, Any]:
    return {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 7, **members}


def only_entry(entry: dict[str, Any]) -> IndexEntry:
    (found,) = read_index({"manifests": [entry]}).entries
    return found


CLASSIFIED = [
    pytest.param(descriptor(platform=AMD64), "runnable", "", id="RG-040 #6 an ordinary entry"),
    pytest.param(
        descriptor(platform=AMD64, annotations={"vnd.docker.reference.type": "attestation-manifest"}),
        "skipped",
        "attestation",
        id="RG-040 #1 an attestation, whatever platform it states",
    ),
    pytest.param(
        descriptor(annotations={"vnd.docker.reference.digest": None}),
        "skipped",
        "attestation",
        id="RG-040 #1 any value",
    ),
    pytest.param(
        descriptor(mediaType=OCI_INDEX, annotations={"vnd.docker.reference.type": ""}),
        "skipped",
        "attestation",
        id="RG-040 #1 before #2",
    ),
    pytest.param(descriptor(mediaType=OCI_INDEX, platform=AMD64), "index", "", id="RG-040 #2 an index"),
    pytest.param(descriptor(mediaType=DOCKER_LIST, artifactType="x/y"), "index", "", id="RG-040 #2 an index before #3"),
    pytest.param(descriptor(artifactType="x/y", platform=AMD64), "skipped", "artifact", id="RG-040 #3 an artifact"),
    pytest.param(
        descriptor(mediaType="application/x", platform=AMD64),
        "skipped",
        "unknown-media-type",
        id="RG-040 #3 another type",
    ),
    pytest.param(
        descriptor(mediaType="application/x", platform={"os": "unknown"}),
        "skipped",
        "unknown-media-type",
        id="RG-040 #3 before #4",
    ),
    pytest.param(
        descriptor(platform={"os": "unknown", "architecture": "amd64"}),
        "skipped",
        "unknown-platform",
        id="RG-040 #4 os",
    ),
    pytest.param(
        descriptor(platform={"os": "linux", "architecture": "UNKNOWN"}),
        "skipped",
        "unknown-platform",
        id="RG-040 #4 architecture in any case",
    ),
    pytest.param(
        descriptor(platform={"architecture": "unknown"}), "skipped", "unknown-platform", id="RG-040 #4 before #5"
    ),
    pytest.param(descriptor(), "unstated", "", id="RG-040 #5 no platform"),
    pytest.param(descriptor(platform=None), "unstated", "", id="RG-040 #5 a null platform"),
    pytest.param(descriptor(platform={}), "unstated", "", id="RG-041 an empty platform is not linux/amd64"),
    pytest.param(descriptor(platform={"os": "linux"}), "unstated", "", id="RG-040 #5 no architecture"),
    pytest.param(descriptor(platform={"os": " ", "architecture": "amd64"}), "unstated", "", id="RG-040 #5 a blank os"),
    pytest.param(descriptor(mediaType="", platform=AMD64), "runnable", "", id="RG-040 #6 an empty media type"),
    pytest.param(descriptor(mediaType=DOCKER_SCHEMA1, platform=AMD64), "runnable", "", id="RG-040 #6 schema 1"),
    pytest.param(
        descriptor(platform=AMD64, annotations={"org.example": "x"}), "runnable", "", id="RG-041 other annotations"
    ),
]


@pytest.mark.parametrize(("entry", "outcome", "reason"), CLASSIFIED)
def test_the_first_rule_that_fits_classifies_an_entry(entry: dict[str, Any], outcome: str, reason: str) -> None:
    found = only_entry(entry)
    assert (found.outcome, found.reason, found.digest) == (outcome, reason, DIGEST)
    assert (found.platform is not None) is (outcome == "runnable")


def test_a_platform_is_read_in_full() -> None:
    """RG-040 #6, RG-020: normalised, with what was stated beside it."""
    found = only_entry(
        descriptor(
            platform={
                "os": "Windows",
                "architecture": "x86_64",
                "os.version": "10.0.1",
                "os.features": ["win32k"],
                "variant": "v1",
            }
        )
    )
    assert found.platform == Platform("windows", "amd64", "", "10.0.1", ("win32k",))
    assert found.stated == "Windows/x86_64/v1"
    assert found.size == 7
    assert only_entry(descriptor(platform=AMD64)).stated == ""


def test_entries_stay_in_order() -> None:
    """RG-044: the first of several counts, so order is information."""
    architectures = ["s390x", "arm64", "amd64"]
    entries = [descriptor(platform={"os": "linux", "architecture": each}) for each in architectures]
    reading = read_index({"manifests": [*entries, descriptor(artifactType="x/y")]})
    assert [each.platform.architecture for each in reading.having("runnable") if each.platform] == architectures
    assert [each.reason for each in reading.having("skipped")] == ["artifact"]


def test_inline_data_comes_with_the_entry() -> None:
    """RG-041: saves the request for that child."""
    body = b'{"config": {}}'
    found = only_entry(descriptor(digest=digest_of(body), data=base64.b64encode(body).decode()))
    assert found.data == body
    assert only_entry(descriptor(data=base64.b64encode(body).decode())).data is None, "of another digest"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"manifests": []}, id="RG-044 no entry"),
        pytest.param({"mediaType": OCI_INDEX, "manifests": None}, id="RG-044 a null list"),
    ],
)
def test_an_empty_index_is_no_error(document: dict[str, Any]) -> None:
    assert read_index(document).entries == ()


MALFORMED = [
    pytest.param({"mediaType": OCI_INDEX}, "$.manifests: it is missing", id="RG-050 no manifests"),
    pytest.param({"manifests": [1]}, "$.manifests[0]: Expected `object`", id="RG-050 an entry of another type"),
    pytest.param(
        {"manifests": [descriptor(), descriptor(digest=1)]},
        "$.manifests[1].digest: ",
        id="RG-050 a digest of another type",
    ),
    pytest.param({"manifests": [{"platform": AMD64}]}, "$.manifests[0].digest: it is missing", id="RG-050 no digest"),
    pytest.param(
        {"manifests": [descriptor(digest="sha256:../../x", platform=AMD64)]},
        "$.manifests[0].digest: a sha256 digest has 64",
        id="RG-050 a path for a digest",
    ),
    pytest.param(
        {"manifests": [descriptor(platform="linux/amd64")]}, "$.manifests[0].platform: ", id="RG-050 a platform as text"
    ),
    pytest.param(
        {"manifests": [descriptor(platform={"os": 1})]}, "$.manifests[0].platform.os: ", id="RG-050 an os as number"
    ),
    pytest.param(
        {"manifests": [descriptor(platform={"os": "x" * 129})]},
        "platform.os: Expected `str` of length",
        id="RG-050 a long os",
    ),
    pytest.param(
        {"manifests": [descriptor(platform={"os": "a\x1b[31m"})]},
        "platform.os: ",
        id="RG-050 an os that writes in colours",
    ),
    pytest.param({"manifests": [descriptor(size=-1)]}, "$.manifests[0].size: ", id="RG-050 a negative size"),
    pytest.param({"manifests": [descriptor(size="7")]}, "$.manifests[0].size: ", id="RG-050 a size as text"),
    pytest.param({"manifests": [descriptor(annotations=[])]}, "$.manifests[0].annotations: ", id="RG-050 annotations"),
]


@pytest.mark.parametrize(("document", "message"), MALFORMED)
def test_an_index_of_the_wrong_shape_names_the_first_bad_member(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_index(json.dumps(document).encode())
    assert caught.value.code == "malformed"
    assert message in caught.value.message


def test_an_index_beyond_a_thousand_entries_is_too_complex() -> None:
    """RG-050: naming limit and size."""
    entry = descriptor(platform=AMD64)
    assert len(read_index({"manifests": [entry] * 1000}).entries) == 1000
    with pytest.raises(ContentError, match="1001 entries where at most 1000") as caught:
        read_index({"manifests": [entry] * 1001})
    assert caught.value.code == "too-complex"


@pytest.mark.parametrize("read", [read_index, read_manifest, read_schema1])
def test_a_reader_refuses_a_document_of_another_type(read: Any) -> None:
    """RG-034."""
    other = {
        read_index: {"config": {}, "layers": []},
        read_manifest: {"manifests": []},
        read_schema1: {"manifests": []},
    }
    with pytest.raises(ContentError) as caught:
        read(other[read])
    assert caught.value.code == "unsupported-media-type"


def manifest(config: Any, **members: Any) -> dict[str, Any]:
    return {"mediaType": OCI_MANIFEST, "config": config, "layers": [], **members}


OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
EMPTY_CONFIG = "application/vnd.oci.empty.v1+json"


@pytest.mark.parametrize(
    ("document", "image", "artifact_type"),
    [
        pytest.param(manifest({"mediaType": OCI_CONFIG, "digest": DIGEST}), True, "", id="RG-045 an OCI image"),
        pytest.param(
            manifest({"mediaType": DOCKER_CONFIG, "digest": DIGEST}, mediaType=DOCKER_SCHEMA2),
            True,
            "",
            id="RG-045 a Docker image",
        ),
        pytest.param(
            manifest({"mediaType": OCI_CONFIG, "digest": DIGEST}, artifactType="x/y"),
            True,
            "x/y",
            id="RG-045 an image that states an artifact type",
        ),
        pytest.param(
            manifest({"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": DIGEST}),
            False,
            "application/vnd.cncf.helm.config.v1+json",
            id="RG-045 a chart is an artifact",
        ),
        pytest.param(
            manifest({"mediaType": EMPTY_CONFIG, "digest": DIGEST}, artifactType="x/y"),
            False,
            "x/y",
            id="RG-045 the empty config is an artifact",
        ),
        pytest.param(
            manifest({"mediaType": EMPTY_CONFIG}), False, EMPTY_CONFIG, id="RG-045 an artifact's config needs no digest"
        ),
    ],
)
def test_the_type_of_the_config_tells_images_from_artifacts(
    document: dict[str, Any], image: bool, artifact_type: str
) -> None:
    found = read_manifest(document)
    assert (found.config is not None) is image
    assert found.artifact_type == artifact_type
    assert found.media_type == document["mediaType"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"mediaType": OCI_MANIFEST}, "$.config: it is missing", id="RG-050 no config"),
        pytest.param(manifest(None, mediaType=OCI_MANIFEST), "$.config: ", id="RG-050 a null config"),
        pytest.param(manifest({"digest": DIGEST}), "$.config.mediaType: ", id="RG-050 a config of no type"),
        pytest.param(manifest({"mediaType": OCI_CONFIG}), "$.config.digest: it is missing", id="RG-050 no digest"),
        pytest.param(manifest({"mediaType": OCI_CONFIG, "digest": "x"}), "$.config.digest: ", id="RG-050 a bad digest"),
    ],
)
def test_a_manifest_of_the_wrong_shape_names_the_first_bad_member(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_manifest(document)
    assert caught.value.code == "malformed"
    assert message in caught.value.message


def config(**members: Any) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.parametrize(
    ("body", "platform", "warnings"),
    [
        pytest.param(config(**AMD64), Platform("linux", "amd64"), [], id="RG-045 an ordinary config"),
        pytest.param(
            config(os="windows", architecture="amd64", **{"os.version": "10.0.1", "os.features": ["win32k"]}),
            Platform("windows", "amd64", "", "10.0.1", ("win32k",)),
            [],
            id="RG-045 version and features",
        ),
        pytest.param(
            config(os="linux", architecture="arm", variant="v6"),
            Platform("linux", "arm", "v6"),
            [],
            id="RG-045 a variant",
        ),
        pytest.param(config(architecture="arm64"), Platform("linux", "arm64"), ["empty-os"], id="RG-045 no os"),
        pytest.param(
            config(os="", architecture="arm64"), Platform("linux", "arm64"), ["empty-os"], id="RG-045 an empty os"
        ),
        pytest.param(config(os="linux"), None, ["empty-architecture"], id="RG-045 no architecture"),
        pytest.param(
            config(os="linux", architecture=" "), None, ["empty-architecture"], id="RG-045 a blank architecture"
        ),
        pytest.param(config(), None, ["empty-os", "empty-architecture"], id="RG-045 an empty config"),
        pytest.param(
            config(os="linux", architecture="quantum"),
            Platform("linux", "quantum"),
            ["unknown-architecture"],
            id="RG-020 an unknown architecture is kept",
        ),
        pytest.param(
            config(os="templeos", architecture="amd64"),
            Platform("templeos", "amd64"),
            ["unknown-os"],
            id="RG-020 an unknown os",
        ),
    ],
)
def test_a_config_says_the_platform(body: bytes, platform: Platform | None, warnings: list[str]) -> None:
    found = read_config(body)
    assert found.platform == platform
    assert [warning.code for warning in found.warnings] == warnings


def test_the_config_keeps_what_was_stated() -> None:
    """RG-020: the raw values stay available."""
    assert read_config(config(os="linux", architecture="aarch64", variant="v8")).stated == "linux/aarch64/v8"


@pytest.mark.parametrize(
    ("labels", "bundle"),
    [
        *[pytest.param({label: "x"}, True, id=f"RG-046 {label}") for label in sorted(BUNDLE_LABELS)],
        pytest.param(
            {"operators.operatorframework.io.bundle.package.v1": None}, True, id="RG-046 a label of any value counts"
        ),
        pytest.param({"operators.operatorframework.io.test.config.v1": "x"}, False, id="RG-046 a label of scorecards"),
        pytest.param({}, False, id="RG-046 no label"),
        pytest.param(None, False, id="RG-046 null labels"),
    ],
)
def test_the_labels_tell_operator_bundles(labels: dict[str, Any] | None, bundle: bool) -> None:
    found = read_config(config(**AMD64, config={"Labels": labels}))
    assert found.is_bundle is bundle


def test_the_labels_of_bundles_are_those_of_the_specification() -> None:
    """RG-046."""
    prefix = "operators.operatorframework.io."
    assert sorted(label.removeprefix(prefix) for label in BUNDLE_LABELS) == [
        "bundle.channel.default.v1",
        "bundle.channels.v1",
        "bundle.manifests.v1",
        "bundle.mediatype.v1",
        "bundle.metadata.v1",
        "bundle.package.v1",
        "metrics.builder",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"nope", "$: ", id="RG-050 no JSON"),
        pytest.param(config(architecture=1), "$.architecture: ", id="RG-050 an architecture as number"),
        pytest.param(config(config="x"), "$.config: ", id="RG-050 a config of another type"),
        pytest.param(config(config={"Labels": []}), "$.config.Labels: ", id="RG-050 labels of another type"),
        pytest.param(config(**{"os.features": ["a", 1]}), "$.os.features[1]: ", id="RG-050 a feature as number"),
    ],
)
def test_a_config_of_the_wrong_shape_names_the_first_bad_member(body: bytes, message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_config(body)
    assert caught.value.code == "malformed"
    assert message in caught.value.message


def test_a_config_beyond_4_mib_is_too_large() -> None:
    """RG-050."""
    with pytest.raises(ContentError) as caught:
        read_config(b" " * (4 * 1024 * 1024 + 1))
    assert caught.value.code == "too-large"


@pytest.mark.parametrize(
    ("members", "platform", "warnings"),
    [
        pytest.param({"architecture": "amd64"}, Platform("linux", "amd64"), ["schema1"], id="RG-047 on linux"),
        pytest.param({}, None, ["schema1", "empty-architecture"], id="RG-047 without architecture"),
        pytest.param({"architecture": ""}, None, ["schema1", "empty-architecture"], id="RG-047 an empty architecture"),
    ],
)
def test_schema_1_states_an_architecture_only(
    members: dict[str, Any], platform: Platform | None, warnings: list[str]
) -> None:
    found = read_schema1({"schemaVersion": 1, "fsLayers": [], **members})
    assert found.platform == platform
    assert [warning.code for warning in found.warnings] == warnings
