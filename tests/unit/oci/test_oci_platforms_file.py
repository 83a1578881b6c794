"""The platforms file."""

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


@pytest.mark.req("RG-130")
@pytest.mark.parametrize(
    ("given", "status", "kind", "expected"),
    [
        pytest.param(["amd64", "linux/arm64"], "resolved", "index", ["linux/amd64", "linux/arm64"], id="a list"),
        pytest.param({"platforms": ["x86_64"]}, "resolved", "index", ["linux/amd64"], id="platforms"),
        pytest.param(
            {"platforms": ["arm64"], "kind": "image"}, "resolved", "image", ["linux/arm64"], id="a single image"
        ),
        pytest.param({"kind": "artifact"}, "neutral", "artifact", [], id="an artifact"),
        pytest.param({"neutral": True}, "neutral", "index", [], id="neutral"),
        pytest.param({"neutral": True, "unknown": False}, "neutral", "index", [], id="a false member says nothing"),
        pytest.param({"unknown": True}, "unknown", "index", [], id="unknown"),
        pytest.param({"error": "not-found"}, "error", "", [], id="an error"),
        pytest.param(
            {"children": {"amd64": A, "arm64": B}},
            "resolved",
            "index",
            ["linux/amd64", "linux/arm64"],
            id="children",
        ),
        pytest.param([], "resolved", "index", [], id="an index without platforms"),
    ],
)
def test_an_answer_is_a_list_or_a_mapping(given: Any, status: str, kind: str, expected: list[str]) -> None:
    answer = found({"nginx": given}, "nginx")
    assert (answer.status, answer.kind) == (status, kind)
    assert platforms(answer) == expected
    assert answer.requests == 0


@pytest.mark.req("RG-130")
def test_an_answer_may_be_under_images() -> None:
    assert platforms(found({"images": {"nginx": ["arm64"]}}, "nginx")) == ["linux/arm64"]


@pytest.mark.req("RG-130")
def test_digest_children_and_warnings_are_kept() -> None:
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


@pytest.mark.req("RG-020", "RG-044")
@pytest.mark.parametrize(
    ("given", "codes"),
    [
        pytest.param([], ["no-platforms"], id="no platform"),
        pytest.param(["linux/quantum"], ["unknown-architecture"], id="an unknown architecture"),
    ],
)
def test_an_answer_warns_as_a_registry_would(given: list[str], codes: list[str]) -> None:
    assert [warning.code for warning in found({"nginx": given}, "nginx").warnings] == codes


@pytest.mark.req("RG-060", "RG-130")
def test_an_error_has_its_class() -> None:
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


@pytest.mark.req("RG-131")
@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        pytest.param("docker.io/library/nginx:latest", "index", ["linux/amd64"], id="keys normalise"),
        pytest.param("quay.io/a:1", "index", ["linux/arm64"], id="the exact reference before the wildcard"),
        pytest.param("quay.io/a:2", "index", ["linux/s390x"], id="repository:*"),
        pytest.param(f"quay.io/a:9@{A}", "index", ["linux/arm64"], id="the digest, tag ignored, comes first"),
        pytest.param(f"quay.io/a@{C}", "index", ["linux/s390x"], id="another digest is any reference"),
        pytest.param(f"quay.io/b:7@{C}", "index", ["linux/ppc64le"], id="a digest in the key"),
        pytest.param(f"quay.io/b@{A}", None, [], id="a digest of another repository"),
        pytest.param("quay.io/b:7", None, [], id="a tag that is not there"),
        pytest.param("quay.io/d:1", None, [], id="an image that is not there"),
    ],
)
def test_the_first_hit_answers(image: str, kind: str | None, expected: list[str]) -> None:
    answer = get(LOOK_UP, image)
    if kind is None:
        assert answer is None
        return
    assert answer is not None
    assert (answer.kind, platforms(answer)) == (kind, expected)


@pytest.mark.req("RG-131")
def test_a_child_answers_for_itself_alone() -> None:
    """Its platform, as a single image."""
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


@pytest.mark.req("RG-130", "RG-142")
def test_what_inspect_prints_is_a_platforms_file() -> None:
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


@pytest.mark.req("RG-130", "RG-140")
def test_an_image_that_was_printed_twice_is_one_answer() -> None:
    """Repeated references are printed where they stand."""
    again = {**PRINTED["images"][0], "cached": True, "requests": 0}
    assert found({**PRINTED, "images": [PRINTED["images"][0], again]}, "nginx").status is Status.RESOLVED


REFUSED = [
    # content, key, message
    pytest.param([], "", "expected a mapping from image to platforms, not a list", id="a list of images"),
    pytest.param(None, "", "not null", id="nothing"),
    pytest.param({"nginx": "amd64"}, "nginx", "expected a list of platforms or a mapping, not a text", id="a text"),
    pytest.param({"nginx": {}}, "nginx", "says nothing; give platforms", id="an empty answer"),
    pytest.param({"nginx": {"neutral": False}}, "nginx", "says nothing", id="nothing but false"),
    pytest.param({"nginx": {"platform": []}}, "nginx", "unknown member 'platform'; expected", id="a member"),
    pytest.param({"nginx": ["linux"]}, "nginx: platforms", "'linux' is a system", id="a platform"),
    pytest.param({"nginx": [386]}, "nginx: platforms", "not a number 386; quote it", id="a number is no platform"),
    pytest.param({"Nginx": ["amd64"]}, "Nginx", "upper-case letter 'N'", id="a reference"),
    pytest.param({1: ["amd64"]}, "1", "expected an image reference, not a number", id="a key that is a number"),
    pytest.param({"a:1:*": ["amd64"]}, "a:1:*", "invalid image reference", id="a wildcard with tag"),
    pytest.param(
        {"a": ["amd64"], "docker.io/library/a:latest": ["arm64"]},
        "docker.io/library/a:latest",
        "another answer for docker.io/library/a:latest than 'a' has",
        id="two keys for one image",
    ),
    pytest.param(
        {"a:*": ["amd64"], "docker.io/library/a:*": ["arm64"]},
        "docker.io/library/a:*",
        "another answer for docker.io/library/a than 'a:*' has",
        id="two wildcards for one repository",
    ),
    pytest.param(
        {"a:1": {"platforms": ["amd64"], "digest": A}, "a:2": {"platforms": ["arm64"], "digest": A}},
        "a:2",
        "another answer than 'a:1' has for the same digest",
        id="one digest twice",
    ),
    pytest.param(
        {"a:1": {"children": {"amd64": A}}, "a:2": {"children": {"arm64": A}}},
        "a:2",
        f"child {A} is linux/arm64 here and linux/amd64 in 'a:1'",
        id="one child twice",
    ),
    pytest.param(
        {f"a@{A}": {"platforms": ["amd64"], "digest": B}},
        f"a@{A}",
        "is not the image's",
        id="a digest that is not the key's",
    ),
    pytest.param(
        {"a": {"neutral": True, "platforms": ["amd64"]}},
        "a",
        "neutral and platforms contradict each other",
        id="neutral with platforms",
    ),
    pytest.param(
        {"a": {"error": "timeout", "unknown": True}},
        "a",
        "unknown and error contradict each other",
        id="unknown with error",
    ),
    pytest.param(
        {"a": {"kind": "artifact", "platforms": ["amd64"]}},
        "a",
        "platforms and kind: artifact contradict",
        id="an artifact with platforms",
    ),
    pytest.param(
        {"a": {"kind": "image", "platforms": ["amd64", "arm64"]}},
        "a",
        "an image has one platform, not 2",
        id="a single image with two platforms",
    ),
    pytest.param({"a": {"kind": "picture", "platforms": []}}, "a: kind", "'picture' is unknown", id="a kind"),
    pytest.param({"a": {"error": "odd"}}, "a", "error code 'odd' is unknown; expected one of not-found", id="a code"),
    pytest.param({"a": {"digest": "sha256:1", "platforms": []}}, "a: digest", "64 hexadecimal digits", id="a digest"),
    pytest.param(
        {"a": {"platforms": ["amd64"], "children": {"arm64": A}}},
        "a: children",
        "linux/arm64 is not one of",
        id="a child of no platform",
    ),
    pytest.param(
        {"a": {"children": {"arm64": A, "aarch64": B}}},
        "a: children",
        "linux/arm64 is given twice, as 'arm64' and as 'aarch64'",
        id="two children of one platform",
    ),
    pytest.param({"a": {"neutral": "yes"}}, "a: neutral", "expected true or false", id="a text for true"),
    pytest.param({"a": {"platforms": {}}}, "a: platforms", "expected a list, not a mapping", id="a mapping for a list"),
    pytest.param({"images": {}, "nginx": []}, "nginx", "unknown member beside 'images'", id="images and more"),
    pytest.param({"schemaVersion": "v2"}, "schemaVersion", "expected 'polyarch.dev/inspect/v1'", id="another schema"),
    pytest.param({**PRINTED, "extra": 1}, "", "unknown member 'extra'", id="a member of the printed document"),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "odd": 1}]},
        "images[0]",
        "unknown member 'odd'",
        id="a member of a printed image",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "fine"}]},
        "images[0]: status",
        "'fine' is unknown",
        id="a printed status",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "error"}]},
        "images[0]: error",
        "expected a mapping, not null",
        id="a printed error without error",
    ),
    pytest.param(
        {**PRINTED, "images": [{"reference": "a", "status": "resolved", "platforms": [{"os": "linux"}]}]},
        "images[0]: platforms: [0]",
        "os and architecture are both needed",
        id="a printed platform",
    ),
]


@pytest.mark.parametrize(("content", "key", "message"), REFUSED)
def test_what_is_not_understood_is_refused_with_file_key_and_reason(content: Any, key: str, message: str) -> None:
    with pytest.raises(InvalidAnswers) as caught:
        AnswerFile.from_mapping(content, origin="platforms.yaml")
    assert caught.value.key == key
    assert message in caught.value.problem
    assert str(caught.value).startswith(f"platforms.yaml: {key}: " if key else "platforms.yaml: ")


@pytest.mark.req("RG-132")
def test_two_keys_with_the_same_answer_are_one() -> None:
    """Only different answers are a mistake."""
    data = {"a": ["amd64"], "docker.io/library/a": ["linux/x86_64"]}
    assert platforms(found(data, "a")) == ["linux/amd64"]
    assert len(AnswerFile.from_mapping(data)) == 1
