"""What one document says of platforms."""

import base64
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from polyarch.oci.documents import (
    DOCKER_LIST,
    DOCKER_SCHEMA1,
    DOCKER_SCHEMA2,
    ENTRY_LIMIT,
    MANIFEST_LIMIT,
    MIB,
    OCI_INDEX,
    OCI_MANIFEST,
    ContentError,
    digest_of,
    signed_payload,
)
from polyarch.oci.image.parsing import (
    BUNDLE_LABELS,
    IndexEntry,
    read_blobs,
    read_config,
    read_index,
    read_manifest,
    read_schema1,
)
from polyarch.platforms import Platform

DIGEST = f"sha256:{'a' * 64}"
AMD64 = {"os": "linux", "architecture": "amd64"}


def descriptor(**members: Any) -> dict[str, Any]:
    return {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 7, **members}


def only_entry(entry: dict[str, Any]) -> IndexEntry:
    (found,) = read_index({"manifests": [entry]}).entries
    return found


CLASSIFIED = [
    pytest.param(descriptor(platform=AMD64), "runnable", "", id="#6 an ordinary entry"),
    pytest.param(
        descriptor(platform=AMD64, annotations={"vnd.docker.reference.type": "attestation-manifest"}),
        "skipped",
        "attestation",
        id="#1 an attestation, whatever platform it states",
    ),
    pytest.param(
        descriptor(annotations={"vnd.docker.reference.digest": None}),
        "skipped",
        "attestation",
        id="#1 any value",
    ),
    pytest.param(
        descriptor(mediaType=OCI_INDEX, annotations={"vnd.docker.reference.type": ""}),
        "skipped",
        "attestation",
        id="#1 before #2",
    ),
    pytest.param(descriptor(mediaType=OCI_INDEX, platform=AMD64), "index", "", id="#2 an index"),
    pytest.param(descriptor(mediaType=DOCKER_LIST, artifactType="x/y"), "index", "", id="#2 an index before #3"),
    pytest.param(descriptor(artifactType="x/y", platform=AMD64), "skipped", "artifact", id="#3 an artifact"),
    pytest.param(
        descriptor(mediaType="application/x", platform=AMD64),
        "skipped",
        "unknown-media-type",
        id="#3 another type",
    ),
    pytest.param(
        descriptor(mediaType="application/x", platform={"os": "unknown"}),
        "skipped",
        "unknown-media-type",
        id="#3 before #4",
    ),
    pytest.param(
        descriptor(platform={"os": "unknown", "architecture": "amd64"}),
        "skipped",
        "unknown-platform",
        id="#4 os",
    ),
    pytest.param(
        descriptor(platform={"os": "linux", "architecture": "UNKNOWN"}),
        "skipped",
        "unknown-platform",
        id="#4 architecture in any case",
    ),
    pytest.param(descriptor(platform={"architecture": "unknown"}), "skipped", "unknown-platform", id="#4 before #5"),
    pytest.param(descriptor(), "unstated", "", id="#5 no platform"),
    pytest.param(descriptor(platform=None), "unstated", "", id="#5 a null platform"),
    pytest.param(descriptor(platform={}), "unstated", "", id="an empty platform is not linux/amd64"),
    pytest.param(descriptor(platform={"os": "linux"}), "unstated", "", id="#5 no architecture"),
    pytest.param(descriptor(platform={"os": " ", "architecture": "amd64"}), "unstated", "", id="#5 a blank os"),
    pytest.param(descriptor(mediaType="", platform=AMD64), "runnable", "", id="#6 an empty media type"),
    pytest.param(descriptor(mediaType=DOCKER_SCHEMA1, platform=AMD64), "runnable", "", id="#6 schema 1"),
    pytest.param(descriptor(platform=AMD64, annotations={"org.example": "x"}), "runnable", "", id="other annotations"),
]


@pytest.mark.parametrize(("entry", "outcome", "reason"), CLASSIFIED)
def test_the_first_rule_that_fits_classifies_an_entry(entry: dict[str, Any], outcome: str, reason: str) -> None:
    found = only_entry(entry)
    assert (found.outcome, found.reason, found.digest) == (outcome, reason, DIGEST)
    assert (found.platform is not None) is (outcome == "runnable")


@pytest.mark.req("RG-020", "RG-040")
def test_a_platform_is_read_in_full() -> None:
    """Normalised, with what was stated beside it."""
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


@pytest.mark.req("RG-044")
def test_entries_stay_in_order() -> None:
    """The first of several counts, so order is information."""
    architectures = ["s390x", "arm64", "amd64"]
    entries = [descriptor(platform={"os": "linux", "architecture": each}) for each in architectures]
    reading = read_index({"manifests": [*entries, descriptor(artifactType="x/y")]})
    assert [each.platform.architecture for each in reading.having("runnable") if each.platform] == architectures
    assert [each.reason for each in reading.having("skipped")] == ["artifact"]


@pytest.mark.req("RG-041")
def test_inline_data_comes_with_the_entry() -> None:
    """Saves the request for that child."""
    body = b'{"config": {}}'
    found = only_entry(descriptor(digest=digest_of(body), data=base64.b64encode(body).decode()))
    assert found.data == body
    assert only_entry(descriptor(data=base64.b64encode(body).decode())).data is None, "of another digest"


@pytest.mark.req("RG-044")
@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"manifests": []}, id="no entry"),
        pytest.param({"mediaType": OCI_INDEX, "manifests": None}, id="a null list"),
    ],
)
def test_an_empty_index_is_no_error(document: dict[str, Any]) -> None:
    assert read_index(document).entries == ()


MALFORMED = [
    pytest.param({"mediaType": OCI_INDEX}, "$.manifests: it is missing", id="no manifests"),
    pytest.param({"manifests": [1]}, "$.manifests[0]: Expected `object`", id="an entry of another type"),
    pytest.param(
        {"manifests": [descriptor(), descriptor(digest=1)]},
        "$.manifests[1].digest: ",
        id="a digest of another type",
    ),
    pytest.param({"manifests": [{"platform": AMD64}]}, "$.manifests[0].digest: it is missing", id="no digest"),
    pytest.param(
        {"manifests": [descriptor(digest="sha256:../../x", platform=AMD64)]},
        "$.manifests[0].digest: a sha256 digest has 64",
        id="a path for a digest",
    ),
    pytest.param(
        {"manifests": [descriptor(platform="linux/amd64")]}, "$.manifests[0].platform: ", id="a platform as text"
    ),
    pytest.param({"manifests": [descriptor(platform={"os": 1})]}, "$.manifests[0].platform.os: ", id="an os as number"),
    pytest.param(
        {"manifests": [descriptor(platform={"os": "x" * 129})]},
        "platform.os: Expected `str` of length",
        id="a long os",
    ),
    pytest.param(
        {"manifests": [descriptor(platform={"os": "a\x1b[31m"})]},
        "platform.os: ",
        id="an os that writes in colours",
    ),
    pytest.param({"manifests": [descriptor(size=-1)]}, "$.manifests[0].size: ", id="a negative size"),
    pytest.param({"manifests": [descriptor(size="7")]}, "$.manifests[0].size: ", id="a size as text"),
    pytest.param({"manifests": [descriptor(annotations=[])]}, "$.manifests[0].annotations: ", id="annotations"),
]


@pytest.mark.parametrize(("document", "message"), MALFORMED)
def test_an_index_of_the_wrong_shape_names_the_first_bad_member(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_index(json.dumps(document).encode())
    assert caught.value.code == "malformed"
    assert message in caught.value.message


@pytest.mark.req("RG-050")
def test_an_index_beyond_a_thousand_entries_is_too_complex() -> None:
    """Naming limit and size."""
    entry = descriptor(platform=AMD64)
    assert len(read_index({"manifests": [entry] * 1000}).entries) == 1000
    with pytest.raises(ContentError, match="1001 entries where at most 1000") as caught:
        read_index({"manifests": [entry] * 1001})
    assert caught.value.code == "too-complex"


@pytest.mark.req("RG-034")
@pytest.mark.parametrize("read", [read_index, read_manifest, read_schema1])
def test_a_reader_refuses_a_document_of_another_type(read: Any) -> None:
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


@pytest.mark.req("RG-045")
@pytest.mark.parametrize(
    ("document", "image", "artifact_type"),
    [
        pytest.param(manifest({"mediaType": OCI_CONFIG, "digest": DIGEST}), True, "", id="an OCI image"),
        pytest.param(
            manifest({"mediaType": DOCKER_CONFIG, "digest": DIGEST}, mediaType=DOCKER_SCHEMA2),
            True,
            "",
            id="a Docker image",
        ),
        pytest.param(
            manifest({"mediaType": OCI_CONFIG, "digest": DIGEST}, artifactType="x/y"),
            True,
            "x/y",
            id="an image that states an artifact type",
        ),
        pytest.param(
            manifest({"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": DIGEST}),
            False,
            "application/vnd.cncf.helm.config.v1+json",
            id="a chart is an artifact",
        ),
        pytest.param(
            manifest({"mediaType": EMPTY_CONFIG, "digest": DIGEST}, artifactType="x/y"),
            False,
            "x/y",
            id="the empty config is an artifact",
        ),
        pytest.param(
            manifest({"mediaType": EMPTY_CONFIG}), False, EMPTY_CONFIG, id="an artifact's config needs no digest"
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


@pytest.mark.req("RG-050")
@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"mediaType": OCI_MANIFEST}, "$.config: it is missing", id="no config"),
        pytest.param(manifest(None, mediaType=OCI_MANIFEST), "$.config: ", id="a null config"),
        pytest.param(
            manifest({"digest": DIGEST}, layers=[{"mediaType": "application/x"}]),
            "$.config.mediaType: ",
            id="a config of no type before layers of another",
        ),
        pytest.param(manifest({"mediaType": OCI_CONFIG}), "$.config.digest: it is missing", id="no digest"),
        pytest.param(manifest({"mediaType": OCI_CONFIG, "digest": "x"}), "$.config.digest: ", id="a bad digest"),
    ],
)
def test_a_manifest_of_the_wrong_shape_names_the_first_bad_member(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_manifest(document)
    assert caught.value.code == "malformed"
    assert message in caught.value.message


def config(**members: Any) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.req("RG-020", "RG-045")
@pytest.mark.parametrize(
    ("body", "platform", "warnings"),
    [
        pytest.param(config(**AMD64), Platform("linux", "amd64"), [], id="an ordinary config"),
        pytest.param(
            config(os="windows", architecture="amd64", **{"os.version": "10.0.1", "os.features": ["win32k"]}),
            Platform("windows", "amd64", "", "10.0.1", ("win32k",)),
            [],
            id="version and features",
        ),
        pytest.param(
            config(os="linux", architecture="arm", variant="v6"),
            Platform("linux", "arm", "v6"),
            [],
            id="a variant",
        ),
        pytest.param(config(architecture="arm64"), Platform("linux", "arm64"), ["empty-os"], id="no os"),
        pytest.param(config(os="", architecture="arm64"), Platform("linux", "arm64"), ["empty-os"], id="an empty os"),
        pytest.param(config(os="linux"), None, ["empty-architecture"], id="no architecture"),
        pytest.param(config(os="linux", architecture=" "), None, ["empty-architecture"], id="a blank architecture"),
        pytest.param(config(), None, ["empty-os", "empty-architecture"], id="an empty config"),
        pytest.param(
            config(os="linux", architecture="quantum"),
            Platform("linux", "quantum"),
            ["unknown-architecture"],
            id="an unknown architecture is kept",
        ),
        pytest.param(
            config(os="templeos", architecture="amd64"),
            Platform("templeos", "amd64"),
            ["unknown-os"],
            id="an unknown os",
        ),
    ],
)
def test_a_config_says_the_platform(body: bytes, platform: Platform | None, warnings: list[str]) -> None:
    found = read_config(body)
    assert found.platform == platform
    assert [warning.code for warning in found.warnings] == warnings


@pytest.mark.req("RG-020")
def test_the_config_keeps_what_was_stated() -> None:
    """The raw values stay available."""
    assert read_config(config(os="linux", architecture="aarch64", variant="v8")).stated == "linux/aarch64/v8"


@pytest.mark.req("RG-046")
@pytest.mark.parametrize(
    ("labels", "bundle"),
    [
        *[pytest.param({label: "x"}, True, id=f"RG-046 {label}") for label in sorted(BUNDLE_LABELS)],
        pytest.param(
            {"operators.operatorframework.io.bundle.package.v1": None}, True, id="a label of any value counts"
        ),
        pytest.param({"operators.operatorframework.io.test.config.v1": "x"}, False, id="a label of scorecards"),
        pytest.param({}, False, id="no label"),
        pytest.param(None, False, id="null labels"),
    ],
)
def test_the_labels_tell_operator_bundles(labels: dict[str, Any] | None, bundle: bool) -> None:
    found = read_config(config(**AMD64, config={"Labels": labels}))
    assert found.is_bundle is bundle


@pytest.mark.req("RG-046")
def test_the_labels_of_bundles_are_those_of_the_specification() -> None:
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


@pytest.mark.req("RG-050")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"nope", "$: ", id="no JSON"),
        pytest.param(config(architecture=1), "$.architecture: ", id="an architecture as number"),
        pytest.param(config(config="x"), "$.config: ", id="a config of another type"),
        pytest.param(config(config={"Labels": []}), "$.config.Labels: ", id="labels of another type"),
        pytest.param(config(**{"os.features": ["a", 1]}), "$.os.features[1]: ", id="a feature as number"),
    ],
)
def test_a_config_of_the_wrong_shape_names_the_first_bad_member(body: bytes, message: str) -> None:
    with pytest.raises(ContentError) as caught:
        read_config(body)
    assert caught.value.code == "malformed"
    assert message in caught.value.message


@pytest.mark.req("RG-050")
def test_a_config_beyond_4_mib_is_too_large() -> None:
    with pytest.raises(ContentError) as caught:
        read_config(b" " * (4 * 1024 * 1024 + 1))
    assert caught.value.code == "too-large"


@pytest.mark.req("RG-047")
@pytest.mark.parametrize(
    ("members", "platform", "warnings"),
    [
        pytest.param({"architecture": "amd64"}, Platform("linux", "amd64"), ["schema1"], id="on linux"),
        pytest.param({}, None, ["schema1", "empty-architecture"], id="without architecture"),
        pytest.param({"architecture": ""}, None, ["schema1", "empty-architecture"], id="an empty architecture"),
    ],
)
def test_schema_1_states_an_architecture_only(
    members: dict[str, Any], platform: Platform | None, warnings: list[str]
) -> None:
    found = read_schema1({"schemaVersion": 1, "fsLayers": [], **members})
    assert found.platform == platform
    assert [warning.code for warning in found.warnings] == warnings


WIDE = b"{}," * (MANIFEST_LIMIT // 3 - 100) + b"{}"
MANY_ITEMS = {
    "entries": b'{"manifests":[%s]}' % WIDE,
    "the version": b'{"schemaVersion":[%s],"manifests":[]}' % WIDE,
    "annotations": b'{"manifests":[{"digest":"x","annotations":{"a":[%s]}}]}' % WIDE,
    "data": b'{"manifests":[{"digest":"x","data":[%s]}]}' % WIDE,
    "layers": b'{"config":{},"layers":[%s]}' % WIDE,
    "signatures": b'{"schemaVersion":1,"fsLayers":[],"signatures":[%s]}' % WIDE,
}


@pytest.mark.req("RG-050")
@pytest.mark.parametrize("body", MANY_ITEMS.values(), ids=MANY_ITEMS)
def test_a_document_takes_little_more_memory_than_its_bytes_whatever_it_has(body):
    """Small objects become thirty times as large; who chooses the registry would choose the memory."""
    assert len(body) <= MANIFEST_LIMIT
    tracemalloc.start()
    try:
        assert signed_payload(body) is None
        for read in (read_index, read_manifest, read_blobs, read_schema1):
            with pytest.raises(ContentError) as caught:
                read(body)
            assert caught.value.code == "too-complex"
        assert tracemalloc.get_traced_memory()[1] < 2 * MANIFEST_LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.req("RG-050")
def test_a_manifest_of_three_mebibytes_is_read():
    """A thousand entries with annotations of three kilobytes each."""
    annotations = {"org.opencontainers.image.description": "A few words, as authors write them. " * 85}
    entry = {"mediaType": OCI_MANIFEST, "size": 1, "platform": {"os": "linux", "architecture": "arm64"}}
    entries = [
        {**entry, "digest": f"sha256:{number:064x}", "annotations": annotations} for number in range(ENTRY_LIMIT)
    ]
    body = msgspec.json.encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})
    assert 3 * MIB < len(body) < MANIFEST_LIMIT
    assert len(read_index(body).having("runnable")) == ENTRY_LIMIT
