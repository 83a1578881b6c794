"""The platforms file (RG-130 to RG-132)."""

from typing import Any

import pytest

from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers
from polyarch.oci.reference import parse

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def get(data: Any, image: str) -> Inspection | None:
    return AnswerFile.from_mapping(data, origin="platforms.yaml").get(parse(image))


def found(data: Any, image: str) -> Inspection:
    answer = get(data, image)
    assert answer is not None
    assert answer.reference == parse(image)
    return answer


def platforms(answer: Inspection) -> list[str]:
    return [str(platform) for platform in answer.platforms]


@pytest.mark.parametrize(
    ("given", "status", "kind", "expected"),
    [
        pytest.param(["amd64", "linux/arm64"], "resolved", "index", ["linux/amd64", "linux/arm64"], id="RG-130 a list"),
        pytest.param({"platforms": ["x86_64"]}, "resolved", "index", ["linux/amd64"], id="RG-130 platforms"),
        pytest.param(
            {"platforms": ["arm64"], "kind": "image"}, "resolved", "image", ["linux/arm64"], id="RG-130 a single image"
        ),
        pytest.param({"kind": "artifact"}, "neutral", "artifact", [], id="RG-130 an artifact"),
        pytest.param({"neutral": True}, "neutral", "index", [], id="RG-130 neutral"),
        pytest.param(
            {"neutral": True, "unknown": False}, "neutral", "index", [], id="RG-130 a false member says nothing"
        ),
        pytest.param({"unknown": True}, "unknown", "index", [], id="RG-130 unknown"),
        pytest.param({"error": "not-found"}, "error", "", [], id="RG-130 an error"),
        pytest.param(
            {"children": {"amd64": A, "arm64": B}},
            "resolved",
            "index",
            ["linux/amd64", "linux/arm64"],
            id="RG-130 children",
        ),
        pytest.param([], "resolved", "index", [], id="RG-130 an index without platforms"),
    ],
)
def test_an_answer_is_a_list_or_a_mapping(given: Any, status: str, kind: str, expected: list[str]) -> None:
    answer = found({"nginx": given}, "nginx")
    assert (answer.status, answer.kind) == (status, kind)
    assert platforms(answer) == expected
    assert answer.requests == 0


def test_an_answer_may_be_under_images() -> None:
    """RG-130."""
    assert platforms(found({"images": {"nginx": ["arm64"]}}, "nginx")) == ["linux/arm64"]


def test_digest_children_and_warnings_are_kept() -> None:
    """RG-130."""
    answer = found(
        {
            "nginx": {
                "platforms": ["amd64", "arm64"],
                "digest": A,
                "children": {"linux/aarch64": B},
                "warnings": ["odd", {"code": "mislabelled", "message": "m"}],
            }
        },
        "nginx",
    )
    assert answer.digest == A
    assert [entry.digest for entry in answer.entries] == ["", B]
    assert [(warning.code, warning.message) for warning in answer.warnings] == [("odd", ""), ("mislabelled", "m")]


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        pytest.param([], ["no-platforms"], id="RG-044 no platform"),
        pytest.param(["linux/quantum"], ["unknown-architecture"], id="RG-020 an unknown architecture"),
    ],
)
def test_an_answer_warns_as_a_registry_would(given: list[str], codes: list[str]) -> None:
    assert [warning.code for warning in found({"nginx": given}, "nginx").warnings] == codes


def test_an_error_has_its_class() -> None:
    """RG-130, RG-060."""
    error = found({"nginx": {"error": "timeout"}}, "nginx").error
    assert error is not None
    assert (error.code, error.error_class) == ("timeout", "transient")
    assert "platforms.yaml" in error.message


LOOK_UP = {
    "nginx": ["amd64"],
    "quay.io/a:1": {"platforms": ["arm64"], "digest": A, "children": {"arm64": B}},
    "quay.io/a:*": ["s390x"],
    f"quay.io/b@{C}": ["ppc64le"],
    "quay.io/c:*": {"children": {"riscv64": A}},
}


@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        pytest.param("docker.io/library/nginx:latest", "index", ["linux/amd64"], id="RG-131 keys normalise"),
        pytest.param("quay.io/a:1", "index", ["linux/arm64"], id="RG-131 the exact reference before the wildcard"),
        pytest.param("quay.io/a:2", "index", ["linux/s390x"], id="RG-131 repository:*"),
        pytest.param(f"quay.io/a:9@{A}", "index", ["linux/arm64"], id="RG-131 the digest, tag ignored, comes first"),
        pytest.param(f"quay.io/a@{C}", "index", ["linux/s390x"], id="RG-131 another digest is any reference"),
        pytest.param(f"quay.io/b:7@{C}", "index", ["linux/ppc64le"], id="RG-131 a digest in the key"),
        pytest.param(f"quay.io/b@{A}", None, [], id="RG-131 a digest of another repository"),
        pytest.param("quay.io/b:7", None, [], id="RG-131 a tag that is not there"),
        pytest.param("quay.io/d:1", None, [], id="RG-131 an image that is not there"),
    ],
)
def test_the_first_hit_answers(image: str, kind: str | None, expected: list[str]) -> None:
    answer = get(LOOK_UP, image)
    if kind is None:
        assert answer is None
        return
    assert answer is not None
    assert (answer.kind, platforms(answer)) == (kind, expected)


def test_a_child_answers_for_itself_alone() -> None:
    """RG-131: its platform, as a single image."""
    data = {"quay.io/a:1": {"platforms": ["amd64", "arm64"], "digest": A, "children": {"arm64": B, "amd64": C}}}
    answer = found(data, f"quay.io/a@{B}")
    assert (answer.kind, answer.digest, platforms(answer)) == ("image", B, ["linux/arm64"])
    assert get(data, f"quay.io/other@{B}") is None


PRINTED = {
    "schemaVersion": "polyarch.dev/inspect/v1",
    "images": [
        {
            "image": "nginx",
            "reference": "docker.io/library/nginx:latest",
            "status": "resolved",
            "kind": "index",
            "digest": A,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "platforms": [
                {
                    "platform": "windows(10.0.1)/amd64",
                    "os": "windows",
                    "architecture": "amd64",
                    "variant": "",
                    "osVersion": "10.0.1",
                    "osFeatures": ["win32k"],
                    "digest": B,
                    "size": 7,
                }
            ],
            "nodePlatforms": ["windows/amd64"],
            "neutralReason": "",
            "skipped": [{"digest": C, "reason": "attestation"}],
            "warnings": [{"code": "schema1", "message": "old"}],
            "missing": [],
            "source": {"host": "registry-1.docker.io", "mirror": False, "insecure": False},
            "cached": False,
            "requests": 3,
            "error": None,
        },
        {
            "image": "quay.io/gone",
            "reference": "quay.io/gone:latest",
            "status": "error",
            "kind": "",
            "digest": "",
            "mediaType": "",
            "platforms": [],
            "error": {
                "code": "not-found",
                "class": "absent",
                "message": "gone",
                "status": 404,
                "retryAfter": None,
                "attempts": [],
            },
        },
        {"reference": "quay.io/chart:1", "status": "neutral", "kind": "artifact", "neutralReason": "artifact"},
    ],
    "rateLimits": {},
    "summary": {},
}


def test_what_inspect_prints_is_a_platforms_file() -> None:
    """RG-130, RG-142."""
    answer = found(PRINTED, "nginx")
    assert (answer.status, answer.kind, answer.digest) == ("resolved", "index", A)
    entry = answer.entries[0]
    assert (str(entry.platform), entry.platform.os_features) == ("windows(10.0.1)/amd64", ("win32k",))
    assert (entry.digest, entry.size) == (B, 7)
    assert [(each.digest, each.reason) for each in answer.skipped] == [(C, "attestation")]
    assert [(each.code, each.message) for each in answer.warnings] == [("schema1", "old")]
    assert found(PRINTED, f"nginx@{B}").kind == "image"
    gone = found(PRINTED, "quay.io/gone")
    assert gone.error is not None
    assert (gone.error.code, gone.error.message) == ("not-found", "gone")
    assert found(PRINTED, "quay.io/chart:1").neutral_reason == "artifact"


def test_an_image_that_was_printed_twice_is_one_answer() -> None:
    """RG-130, RG-140: repeated references are printed where they stand."""
    again = {**PRINTED["images"][0], "cached": True, "requests": 0}
    assert found({**PRINTED, "images": [PRINTED["images"][0], again]}, "nginx").status is Status.RESOLVED


REFUSED = [
    # content, key, message
    pytest.param([], "", "expected a mapping from image to platforms, not a list", id="RG-132 a list of images"),
    pytest.param(None, "", "not null", id="RG-132 nothing"),
    pytest.param(
        {"nginx": "amd64"}, "nginx", "expected a list of platforms or a mapping, not a text", id="RG-132 a text"
    ),
    pytest.param({"nginx": {}}, "nginx", "says nothing; give platforms", id="RG-132 an empty answer"),
    pytest.param({"nginx": {"neutral": False}}, "nginx", "says nothing", id="RG-132 nothing but false"),
    pytest.param({"nginx": {"platform": []}}, "nginx", "unknown member 'platform'; expected", id="RG-132 a member"),
    pytest.param({"nginx": ["linux"]}, "nginx: platforms", "'linux' is a system", id="RG-132 a platform"),
    pytest.param(
        {"nginx": [386]}, "nginx: platforms", "not a number 386; quote it", id="RG-132 a number is no platform"
    ),
    pytest.param({"Nginx": ["amd64"]}, "Nginx", "upper-case letter 'N'", id="RG-132 a reference"),
    pytest.param({1: ["amd64"]}, "1", "expected an image reference, not a number", id="RG-132 a key that is a number"),
    pytest.param({"a:1:*": ["amd64"]}, "a:1:*", "invalid image reference", id="RG-132 a wildcard with tag"),
    pytest.param(
        {"a": ["amd64"], "docker.io/library/a:latest": ["arm64"]},
        "docker.io/library/a:latest",
        "another answer for docker.io/library/a:latest than 'a' has",
        id="RG-132 two keys for one image",
    ),
    pytest.param(
        {"a:*": ["amd64"], "docker.io/library/a:*": ["arm64"]},
        "docker.io/library/a:*",
        "another answer for docker.io/library/a than 'a:*' has",
        id="RG-132 two wildcards for one repository",
    ),
    pytest.param(
        {"a:1": {"platforms": ["amd64"], "digest": A}, "a:2": {"platforms": ["arm64"], "digest": A}},
        "a:2",
        "another answer than 'a:1' has for the same digest",
        id="RG-132 one digest twice",
    ),
    pytest.param(
        {"a:1": {"children": {"amd64": A}}, "a:2": {"children": {"arm64": A}}},
        "a:2",
        f"child {A} is linux/arm64 here and linux/amd64 in 'a:1'",
        id="RG-132 one child twice",
    ),
    pytest.param(
        {f"a@{A}": {"platforms": ["amd64"], "digest": B}},
        f"a@{A}",
        "is not the image's",
        id="RG-132 a digest that is not the key's",
    ),
    pytest.param(
        {"a": {"neutral": True, "platforms": ["amd64"]}},
        "a",
        "neutral and platforms contradict each other",
        id="RG-132 neutral with platforms",
    ),
    pytest.param(
        {"a": {"error": "timeout", "unknown": True}},
        "a",
        "unknown and error contradict each other",
        id="RG-132 unknown with error",
    ),
    pytest.param(
        {"a": {"kind": "artifact", "platforms": ["amd64"]}},
        "a",
        "platforms and kind: artifact contradict",
        id="RG-132 an artifact with platforms",
    ),
    pytest.param(
        {"a": {"kind": "image", "platforms": ["amd64", "arm64"]}},
        "a",
        "an image has one platform, not 2",
        id="RG-132 a single image with two platforms",
    ),
    pytest.param({"a": {"kind": "picture", "platforms": []}}, "a: kind", "'picture' is unknown", id="RG-132 a kind"),
    pytest.param(
        {"a": {"error": "odd"}}, "a", "error code 'odd' is unknown; expected one of not-found", id="RG-132 a code"
    ),
    pytest.param(
        {"a": {"digest": "sha256:1", "platforms": []}}, "a: digest", "64 hexadecimal digits", id="RG-132 a digest"
    ),
    pytest.param(
        {"a": {"platforms": ["amd64"], "children": {"arm64": A}}},
        "a: children",
        "linux/arm64 is not one of",
        id="RG-132 a child of no platform",
    ),
    pytest.param(
        {"a": {"children": {"arm64": A, "aarch64": B}}},
        "a: children",
        "linux/arm64 is given twice, as 'arm64' and as 'aarch64'",
        id="RG-132 two children of one platform",
    ),
    pytest.param({"a": {"neutral": "yes"}}, "a: neutral", "expected true or false", id="RG-132 a text for true"),
    pytest.param(
        {"a": {"platforms": {}}}, "a: platforms", "expected a list, not a mapping", id="RG-132 a mapping for a list"
    ),
    pytest.param({"images": {}, "nginx": []}, "nginx", "unknown member beside 'images'", id="RG-132 images and more"),
    pytest.param(
        {"schemaVersion": "v2"}, "schemaVersion", "expected 'polyarch.dev/inspect/v1'", id="RG-132 another schema"
    ),
    pytest.param({**PRINTED, "extra": 1}, "", "unknown member 'extra'", id="RG-132 a member of the printed document"),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "odd": 1}]},
        "images[0]",
        "unknown member 'odd'",
        id="RG-132 a member of a printed image",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "fine"}]},
        "images[0]: status",
        "'fine' is unknown",
        id="RG-132 a printed status",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "error"}]},
        "images[0]: error",
        "expected a mapping, not null",
        id="RG-132 a printed error without error",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "resolved", "platforms": [{"os": "linux"}]}]},
        "images[0]: platforms: [0]",
        "os and architecture are both needed",
        id="RG-132 a printed platform",
    ),
]


@pytest.mark.parametrize(("content", "key", "message"), REFUSED)
def test_what_is_not_understood_is_refused_with_file_key_and_reason(content: Any, key: str, message: str) -> None:
    with pytest.raises(InvalidAnswers) as caught:
        AnswerFile.from_mapping(content, origin="platforms.yaml")
    assert caught.value.key == key
    assert message in caught.value.problem
    assert str(caught.value).startswith(f"platforms.yaml: {key}: " if key else "platforms.yaml: ")


def test_two_keys_with_the_same_answer_are_one() -> None:
    """RG-132: only different answers are a mistake."""
    data = {"a": ["amd64"], "docker.io/library/a": ["linux/x86_64"]}
    assert platforms(found(data, "a")) == ["linux/amd64"]
    assert len(AnswerFile.from_mapping(data)) == 1
