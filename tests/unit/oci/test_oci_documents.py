"""Types, digests and limits of documents."""

import base64
import hashlib
import json

import pytest

from polyarch.oci import documents
from polyarch.oci.documents import (
    ACCEPT,
    DOCKER_LIST,
    DOCKER_SCHEMA1,
    DOCKER_SCHEMA1_SIGNED,
    DOCKER_SCHEMA2,
    INLINE_DATA_LIMIT,
    MANIFEST_LIMIT,
    OCI_INDEX,
    OCI_MANIFEST,
    ContentError,
    check_body,
    check_size,
    classify,
    digest_of,
    inline_data,
    is_manifest,
)

CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:" + "a" * 64, "size": 1}


@pytest.mark.req("RG-030")
def test_six_types_are_accepted() -> None:
    """Never fewer."""
    assert len(set(ACCEPT)) == 6
    assert set(ACCEPT) == {OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_SCHEMA2, DOCKER_SCHEMA1_SIGNED, DOCKER_SCHEMA1}


@pytest.mark.req("RG-050")
def test_limits_are_those_of_the_specification() -> None:
    assert (documents.MANIFEST_LIMIT, documents.CONFIG_LIMIT) == (4 * 1024 * 1024, 2 * 1024 * 1024)
    assert documents.ITEM_LIMIT == 200_000
    assert (documents.TOKEN_LIMIT, documents.ERROR_BODY_LIMIT) == (128 * 1024, 16 * 1024)
    assert (documents.ENTRY_LIMIT, documents.INDEX_LIMIT, documents.LOOKUP_LIMIT) == (1000, 16, 64)
    assert (documents.LEVEL_LIMIT, documents.INLINE_DATA_LIMIT) == (3, 64 * 1024)


@pytest.mark.req("RG-034")
@pytest.mark.parametrize(
    ("document", "type_", "media_type"),
    [
        pytest.param({"mediaType": OCI_INDEX}, "index", OCI_INDEX, id="the stated type alone"),
        pytest.param({"mediaType": DOCKER_LIST, "manifests": []}, "index", DOCKER_LIST, id="stated and shown"),
        pytest.param({"manifests": []}, "index", OCI_INDEX, id="the shape of an index"),
        pytest.param({"config": {}, "layers": []}, "image", OCI_MANIFEST, id="the shape of an image"),
        pytest.param(
            {"mediaType": "application/x", "config": {}, "layers": []}, "image", OCI_MANIFEST, id="another type"
        ),
        pytest.param(
            {"schemaVersion": 2, "config": {}, "layers": None}, "image", OCI_MANIFEST, id="an image of no layers"
        ),
        pytest.param({"schemaVersion": 1, "fsLayers": []}, "schema1", DOCKER_SCHEMA1, id="schema version 1"),
        pytest.param(
            {"schemaVersion": 1, "mediaType": DOCKER_SCHEMA1_SIGNED}, "schema1", DOCKER_SCHEMA1_SIGNED, id="both"
        ),
        pytest.param({"schemaVersion": 1, "manifests": []}, "index", OCI_INDEX, id="members before the version"),
        pytest.param({"mediaType": None, "manifests": []}, "index", OCI_INDEX, id="a null type"),
        pytest.param({"manifests": [], "layers": None}, "index", OCI_INDEX, id="a null member is no ambiguity"),
    ],
)
def test_the_document_alone_decides_its_type(document: object, type_: str, media_type: str) -> None:
    found = classify(json.dumps(document).encode())
    assert (found.type, found.media_type) == (type_, media_type)


@pytest.mark.req("RG-034")
@pytest.mark.parametrize(
    ("document", "contradiction"),
    [
        pytest.param({"mediaType": OCI_INDEX, "layers": []}, "'layers'", id="an index with layers"),
        pytest.param({"mediaType": DOCKER_LIST, "config": {}}, "'config'", id="a list with a config"),
        pytest.param({"mediaType": OCI_MANIFEST, "manifests": []}, "'manifests'", id="an image with manifests"),
        pytest.param({"mediaType": DOCKER_SCHEMA2, "fsLayers": []}, "'fsLayers'", id="schema 2 with fsLayers"),
        pytest.param(
            {"mediaType": DOCKER_SCHEMA1, "schemaVersion": 1, "manifests": []},
            "'manifests'",
            id="schema 1 index",
        ),
        pytest.param({"mediaType": DOCKER_SCHEMA1, "schemaVersion": 2}, "'schemaVersion'", id="schema 1 of version 2"),
        pytest.param({"config": {}, "layers": [], "fsLayers": []}, "'fsLayers'", id="both kinds of layers"),
    ],
)
def test_a_stated_type_that_the_members_contradict_is_refused(document: object, contradiction: str) -> None:
    with pytest.raises(ContentError) as caught:
        classify(json.dumps(document).encode())
    assert caught.value.code == "ambiguous-manifest"
    assert contradiction in caught.value.message


@pytest.mark.req("RG-065")
@pytest.mark.parametrize(
    ("body", "manifest"),
    [
        (b'{"schemaVersion": 2, "manifests": []}', True),
        (b'{"manifests": []}', True),
        (b'{"config": {}, "layers": []}', True),
        (b'{"mediaType": "application/vnd.oci.artifact.manifest.v1+json", "blobs": []}', True),
        (b'{"schemaVersion": 3}', True),
        (b"<!doctype html>", False),
        (b"", False),
        (b"{}", False),
        (b"[]", False),
        (b'{"status": "maintenance"}', False),
        (b'{"errors": [{"code": "UNAUTHORIZED"}]}', False),
        (b'{"mediaType": 1}', False),
        (b'{"schemaVersion": 2, "manifests": [{"medi', False),
        (b'{"manifests": [' + b"{}," * documents.ITEM_LIMIT + b"{}]}", True),
        (b"<p>" + b"," * documents.ITEM_LIMIT, False),
    ],
)
def test_a_manifest_of_any_kind_is_told_from_a_page_or_a_status(body: bytes, manifest: bool) -> None:
    assert is_manifest(body) is manifest


REFUSED = [
    pytest.param(b'{"manifests": [], "layers": []}', "ambiguous-manifest", "'layers'", id="index and layers"),
    pytest.param(b'{"manifests": [], "config": {}}', "ambiguous-manifest", "'config'", id="index and config"),
    pytest.param(b"{}", "unsupported-media-type", "of no stated type", id="nothing fits"),
    pytest.param(b'{"mediaType": "a/b"}', "unsupported-media-type", "'a/b'", id="another type"),
    pytest.param(b'{"schemaVersion": 2, "fsLayers": []}', "unsupported-media-type", "", id="fsLayers alone"),
    pytest.param(b'{"schemaVersion": true}', "unsupported-media-type", "", id="version true is not 1"),
    pytest.param(b'{"layers": []}', "unsupported-media-type", "", id="layers alone"),
    pytest.param(b'{"manifests": {}}', "unsupported-media-type", "", id="manifests that are no list"),
    pytest.param(b"<html>", "malformed", "at $: ", id="no JSON"),
    pytest.param(b"", "malformed", "at $: ", id="nothing"),
    pytest.param(b"[]", "malformed", "at $: Expected `object`", id="a list"),
    pytest.param(b'{"mediaType": 1}', "malformed", "at $.mediaType: ", id="a type that is a number"),
    pytest.param(b'{"manifests":' + b"[" * 50_000, "malformed", "nested too deeply", id="nested without end"),
    pytest.param(b'{"mediaType": "\xff"}', "malformed", "not UTF-8", id="other bytes"),
    pytest.param(b"[" + b"0," * documents.ITEM_LIMIT + b"0]", "too-complex", "items", id="too many items"),
    pytest.param(b" " * (MANIFEST_LIMIT + 1), "too-large", f"at most {MANIFEST_LIMIT}", id="too large"),
]


@pytest.mark.parametrize(("body", "code", "message"), REFUSED)
def test_other_documents_are_refused_with_a_code(body: bytes, code: str, message: str) -> None:
    with pytest.raises(ContentError) as caught:
        classify(body)
    assert caught.value.code == code
    assert message in caught.value.message
    error = caught.value.error("quay.io")
    assert (error.code, error.error_class, error.host) == (code, "content", "quay.io")


@pytest.mark.req("RG-033")
@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_the_digest_is_that_of_the_exact_bytes(algorithm: str) -> None:
    """Not of the JSON they mean."""
    body = b'{ "a": 1 }'
    digest = f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"
    assert digest_of(body, algorithm) == digest
    check_body(body, digest)
    with pytest.raises(ContentError) as caught:
        check_body(b'{"a":1}', digest)
    assert caught.value.code == "digest-mismatch"
    assert digest in caught.value.message
    assert digest_of(b'{"a":1}', algorithm) in caught.value.message


@pytest.mark.req("RG-033")
def test_a_digest_that_cannot_be_checked_never_passes() -> None:
    with pytest.raises(ContentError, match="unknown digest algorithm"):
        check_body(b"", "md5:d41d8cd98f00b204e9800998ecf8427e")


@pytest.mark.req("RG-050")
def test_a_limit_names_itself_and_the_size() -> None:
    check_size("config", 10, 10)
    with pytest.raises(ContentError, match="the config has 11 bytes where at most 10"):
        check_size("config", 11, 10)


BODY = b'{"architecture": "arm64"}'


@pytest.mark.req("RG-041")
@pytest.mark.parametrize(
    ("data", "digest", "expected"),
    [
        pytest.param(base64.b64encode(BODY).decode(), digest_of(BODY), BODY, id="data that matches"),
        pytest.param(base64.b64encode(b"{}").decode(), digest_of(BODY), None, id="data that does not match"),
        pytest.param("%%%", digest_of(BODY), None, id="data that is no base64"),
        pytest.param("ä", digest_of(BODY), None, id="data of other letters"),
        pytest.param(7, digest_of(BODY), None, id="data of another type"),
        pytest.param("", "md5:x", None, id="a digest of no known algorithm"),
        pytest.param(
            base64.b64encode(b"x" * INLINE_DATA_LIMIT).decode(),
            digest_of(b"x" * INLINE_DATA_LIMIT),
            b"x" * INLINE_DATA_LIMIT,
            id="data of 64 KiB",
        ),
        pytest.param(
            base64.b64encode(b"x" * (INLINE_DATA_LIMIT + 1)).decode(),
            digest_of(b"x" * (INLINE_DATA_LIMIT + 1)),
            None,
            id="data beyond 64 KiB",
        ),
    ],
)
def test_inline_data_counts_if_it_is_small_and_true(data: object, digest: str, expected: bytes | None) -> None:
    assert inline_data(data, digest) == expected
