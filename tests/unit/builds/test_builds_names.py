"""Names, tags and labels."""

import hashlib
import re

import pytest

from polyarch.builds.names import (
    canonical_image,
    child_tag,
    index_job_name,
    job_name,
    machine_index_job_name,
    machine_job_name,
    normalised_repository,
    object_labels,
    record_name,
    result_tag,
    run_name,
    shortened,
)

pytestmark = pytest.mark.req("BD-049")

LONG = "a" * 250


@pytest.mark.req("BD-078")
@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("web", 63, "web"),
        ("x" * 63, 63, "x" * 63),
        ("x" * 64, 63, "x" * 52 + "-" + hashlib.sha256(b"x" * 64).hexdigest()[:10]),
        (
            "x" * 50 + ".-_" + "y" * 20,
            63,
            "x" * 50 + "-" + hashlib.sha256(b"x" * 50 + b".-_" + b"y" * 20).hexdigest()[:10],
        ),
    ],
)
def test_short(text: str, length: int, expected: str) -> None:
    """As it is, or the beginning without trailing marks, a dash, and a hash of the whole."""
    assert shortened(text, length) == expected
    assert len(expected) <= length


@pytest.mark.req("BD-078")
def test_long_names_never_meet() -> None:
    assert shortened(f"{LONG}1", 63) != shortened(f"{LONG}2", 63)


@pytest.mark.req("BD-021")
def test_names_of_runs() -> None:
    assert run_name("web", "0123456789abcdef", 3) == "web-0123456789-3"
    assert len(run_name(LONG, "0123456789abcdef", 10**6)) == 253
    assert record_name("web-0123456789-3") == "web-0123456789-3-arch"


@pytest.mark.req("BD-079", "BD-080")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (job_name("web-1-1", "arm64"), "web-1-1-arm64"),
        (index_job_name("web-1-1"), "web-1-1-index"),
        (machine_job_name("worker-ab", "arm64", 1), "build-worker-ab"),
        (machine_job_name("worker-ab", "arm64", 2), "build-worker-ab-arm64"),
        (machine_index_job_name("worker-ab"), "build-worker-ab-index"),
        (result_tag("web-1-1"), "web-1-1"),
        (child_tag("web-1-1", "arm64"), "web-1-1-arm64"),
    ],
)
def test_names_of_jobs_and_tags(name: str, expected: str) -> None:
    """One architecture keeps the stock name of a machine OS."""
    assert name == expected


@pytest.mark.req("BD-079", "BD-080", "BD-323")
@pytest.mark.parametrize("architecture", ["arm64", "s390x"])
def test_long_names_stay_apart(architecture: str) -> None:
    """Names of 253 characters give Jobs, labels and tags that fit and differ."""
    assert len(job_name(LONG, architecture)) == 63
    assert job_name(LONG, architecture) != job_name(LONG, "amd64")
    assert child_tag(LONG, architecture) != child_tag(LONG, "amd64")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", child_tag(LONG, architecture))


@pytest.mark.req("BD-081")
def test_labels() -> None:
    """The full key is an annotation, and so is what is too long for a label."""
    marks = object_labels(
        image_build="web", execution="web-1-1", role="arch", architecture="arm64", arch_key="0123456789abcdef" * 4
    )
    assert marks.labels == {
        "app.kubernetes.io/managed-by": "polyarch",
        "polyarch.dev/image-build": "web",
        "polyarch.dev/run": "web-1-1",
        "polyarch.dev/architecture": "arm64",
        "polyarch.dev/role": "arch",
        "polyarch.dev/arch-key": "0123456789abcdef",
    }
    assert marks.annotations == {"polyarch.dev/arch-key": "0123456789abcdef" * 4}


@pytest.mark.req("BD-079")
def test_values_too_long_for_labels() -> None:
    marks = object_labels(image_build=LONG, execution=f"{LONG}-1", role="index")
    assert all(len(value) <= 63 for value in marks.labels.values())
    assert marks.annotations == {"polyarch.dev/image-build": LONG, "polyarch.dev/run": f"{LONG}-1"}
    assert "polyarch.dev/architecture" not in marks.labels


@pytest.mark.req("BD-076")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("REGISTRY.example.com:5000/team/app", "registry.example.com:5000/team/app"),
        ("index.docker.io/app", "docker.io/library/app"),
        ("registry.example.com/x:tag", "registry.example.com/x"),
        ("not a repository", "not a repository"),
    ],
)
def test_repositories_are_normalised(text: str, expected: str) -> None:
    assert normalised_repository(text) == expected


def test_images_are_canonical() -> None:
    assert canonical_image("busybox") == "docker.io/library/busybox:latest"
    assert canonical_image("NOT") == "NOT"
