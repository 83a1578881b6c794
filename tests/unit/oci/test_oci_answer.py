"""Answers, what they have in common_platforms, and the table of errors."""

import pytest

from polyarch.oci.inspection import (
    ERROR_CODES,
    Entry,
    Inspection,
    InspectionError,
    Status,
    common_platforms,
    error_class_of,
)
from polyarch.oci.reference import parse
from polyarch.platforms import Platform, PlatformSet


def answer(image: str, *platforms: str, status: Status = Status.RESOLVED) -> Inspection:
    entries = tuple(Entry(Platform.parse(text), "") for text in platforms)
    return Inspection(parse(image), status, "index", entries=entries)


def names(*images: str) -> tuple[str, ...]:
    return tuple(parse(image).canonical for image in images)


BOTH = ("linux/amd64", "linux/arm64")


@pytest.mark.req("RG-005")
@pytest.mark.parametrize(
    ("answers", "exact", "platforms", "inexact", "conflict"),
    [
        pytest.param([], True, "everything", (), (), id="no image constrains nothing"),
        pytest.param(
            [answer("a", *BOTH), answer("b", "linux/arm64", "linux/s390x")],
            True,
            "linux/arm64",
            (),
            (),
            id="the intersection of the resolved",
        ),
        pytest.param(
            [answer("a", *BOTH), answer("b", status=Status.NEUTRAL)],
            True,
            "linux/amd64, linux/arm64",
            (),
            (),
            id="neutral does not constrain",
        ),
        pytest.param([answer("a", status=Status.NEUTRAL)], True, "everything", (), (), id="all neutral is everything"),
        pytest.param(
            [answer("a", *BOTH), answer("b", status=Status.UNKNOWN), answer("c", status=Status.ERROR)],
            False,
            "linux/amd64, linux/arm64",
            names("b", "c"),
            (),
            id="unknown and error make it inexact",
        ),
        pytest.param(
            [answer("a", "linux/arm/v6"), answer("b", "linux/arm/v7")],
            True,
            "linux/arm, linux/arm64",
            (),
            (),
            id="variants do not keep images apart",
        ),
        pytest.param(
            [answer("a", "linux/amd64"), answer("b", *BOTH), answer("c", "linux/arm64")],
            True,
            "nothing",
            (),
            names("a", "c"),
            id="two images without a common platform",
        ),
        pytest.param(
            [answer("a", *BOTH), answer("b"), answer("c", "linux/arm64")],
            True,
            "nothing",
            (),
            names("b"),
            id="one image without a platform is the whole conflict",
        ),
        pytest.param(
            [answer("a", "darwin/arm64"), answer("b", "linux/arm64")],
            True,
            "nothing",
            (),
            names("a"),
            id="a platform no node can have counts as none",
        ),
        pytest.param(
            [
                answer("whole", "linux/amd64", "linux/arm64", "linux/s390x"),
                answer("a", "linux/amd64", "linux/arm64"),
                answer("b", "linux/arm64", "linux/s390x"),
                answer("c", "linux/amd64", "linux/s390x"),
            ],
            True,
            "nothing",
            (),
            names("a", "b", "c"),
            id="three images of which every two agree",
        ),
        pytest.param(
            [answer("a", "linux/amd64"), answer("a", "linux/arm64"), answer("b", *BOTH)],
            True,
            "nothing",
            (),
            names("a", "a"),
            id="one reference with two answers",
        ),
    ],
)
def test_images_have_in_common_what_all_of_them_support(
    answers: list[Inspection], exact: bool, platforms: str, inexact: tuple[str, ...], conflict: tuple[str, ...]
) -> None:
    found = common_platforms(answers)
    assert found.exact is exact
    assert str(found.platforms) == platforms
    assert found.inexact == inexact
    assert found.conflict == conflict


@pytest.mark.req("RG-005")
def test_everything_is_told_apart_from_a_long_list() -> None:
    """Consumers write no constraint for everything."""
    assert common_platforms([answer("a", status=Status.NEUTRAL)]).platforms == PlatformSet.EVERYTHING
    assert common_platforms([answer("a", *BOTH)]).platforms != PlatformSet.EVERYTHING


@pytest.mark.req("PL-330", "RG-060")
def test_the_table_of_errors_is_that_of_the_specification() -> None:
    """RG-060, and PL-330 for a host that does not exist."""
    by_class: dict[str, set[str]] = {}
    for code, error_class in ERROR_CODES.items():
        by_class.setdefault(error_class, set()).add(code)
    assert by_class == {
        "absent": {"not-found"},
        "auth": {"unauthorized", "denied", "credential-helper"},
        "limit": {"rate-limited", "tenant-limit"},
        "transient": {"timeout", "network", "server-error", "not-a-registry", "digest-mismatch"},
        "content": {
            "malformed",
            "ambiguous-manifest",
            "unsupported-media-type",
            "unsupported-encoding",
            "too-large",
            "too-complex",
        },
        "configuration": {
            "tls",
            "unknown-host",
            "refused-address",
            "refused-redirect",
            "blocked",
            "immutable-tag",
            "quota",
            "body-too-large",
            "no-repository",
            "policy-rejected",
            "offline-miss",
            "layout",
        },
    }


@pytest.mark.req("RG-060")
def test_an_error_has_the_class_of_its_code() -> None:
    """A code that does not exist is a mistake of ours, not a new class."""
    error = InspectionError.of("rate-limited", "later", status=429, retry_after=3.5, host="quay.io")
    assert (error.error_class, error.retry_after) == ("limit", 3.5)
    with pytest.raises(ValueError, match="expected one of not-found"):
        error_class_of("odd")


@pytest.mark.req("RG-004")
def test_an_answer_lists_platforms_in_the_registrys_order() -> None:
    """Platforms as listed, node platforms sorted and without variants."""
    found = answer("a", "linux/s390x", "linux/arm/v7", "linux/arm/v6", "darwin/arm64")
    assert [str(platform) for platform in found.platforms] == [
        "linux/s390x",
        "linux/arm/v7",
        "linux/arm/v6",
        "darwin/arm64",
    ]
    assert found.node_platforms == (("linux", "arm"), ("linux", "s390x"))


@pytest.mark.req("RG-004")
@pytest.mark.parametrize("status", list(Status), ids=[f"RG-004 {status}" for status in Status])
def test_only_a_resolved_answer_constrains(status: Status) -> None:
    assert answer("a", status=status).constrains is (status == "resolved")
