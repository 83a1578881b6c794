"""Build files and code beside the manifests (MA301 to MA303)."""

from typing import Any

import pytest
from linting import answers

from polyarch.manifests.editing.editor import splice
from polyarch.manifests.lint.build_files import lint_source
from polyarch.manifests.lint.options import LintOptions, Selection
from polyarch.manifests.lint.sources.ma301_dockerfile import base_images
from polyarch.manifests.lint.sources.source_kinds import is_source
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText

INCLUDED = Selection(include=("MA3*",))
NOTHING = Answers({})


def found(path: str, text: str, *, known: Answers = NOTHING, **options: Any) -> Any:
    source = SourceText.of(path, text.encode())
    return lint_source(source, known, LintOptions(selection=INCLUDED, **options))


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("Dockerfile", True),
        ("build/Dockerfile.konflux", True),
        ("web.dockerfile", True),
        ("Containerfile", True),
        ("Makefile", True),
        ("hack/common.mk", True),
        (".github/workflows/ci.yaml", True),
        ("operand.go", True),
        ("deploy/web.yaml", False),
        ("Dockerfiles.md", False),
    ],
)
def test_which_files_are_read(path: str, read: bool) -> None:
    """MF-010."""
    assert is_source(path) is read


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        (
            "FROM golang\nENV GOARCH=amd64\nRUN go build\n",
            "FROM golang\nARG TARGETARCH\nENV GOARCH=${TARGETARCH}\nRUN go build\n",
        ),
        ("FROM golang\nARG TARGETARCH\nENV GOARCH amd64\n", "FROM golang\nARG TARGETARCH\nENV GOARCH ${TARGETARCH}\n"),
        (
            "FROM a\r\nRUN GOARCH=arm64 go build && GOARCH=s390x go build\r\n",
            "FROM a\r\nARG TARGETARCH\r\nRUN GOARCH=${TARGETARCH} go build && GOARCH=${TARGETARCH} go build\r\n",
        ),
        ("FROM --platform=linux/amd64 golang AS b\n", "FROM --platform=linux/${TARGETARCH} golang AS b\n"),
        ("from --platform=arm64 golang\n", "from --platform=linux/${TARGETARCH} golang\n"),
    ],
)
def test_a_dockerfile_bound_to_one_platform(text: str, fixed: str) -> None:
    """MA301: the value becomes the target's, which the stage declares."""
    problems = found("Dockerfile", text)
    assert {each.finding.rule for each in problems} == {"MA301"}
    assert splice(text, tuple(edit for each in problems for edit in each.edits)) == fixed
    assert found("Dockerfile", fixed) == ()


@pytest.mark.parametrize(
    "text",
    [
        "FROM --platform=$BUILDPLATFORM golang\nARG TARGETARCH\nRUN GOARCH=$TARGETARCH go build\n",
        "FROM --platform=${BUILDPLATFORM:-linux/amd64} golang\n",
        "FROM golang\n# GOARCH=amd64\nRUN echo GOARCH amd64\n",
        "FROM golang\nRUN GOARCH=$(go env GOARCH) make\n",
    ],
)
def test_a_dockerfile_for_every_platform(text: str) -> None:
    """MA301."""
    assert found("Dockerfile", text) == ()


def test_a_base_pinned_to_one_platform() -> None:
    """MA301: the digest of the index replaces it."""
    image = f"quay.io/acme/base:1@sha256:{'b' * 64}"
    text = f"FROM {image} AS base\nFROM ${{OTHER}}@sha256:{'b' * 64}\n"
    index = {
        "platforms": ["linux/amd64"],
        "digest": f"sha256:{'a' * 64}",
        "children": {"linux/amd64": f"sha256:{'b' * 64}"},
    }
    shown = answers({"quay.io/acme/base:1": index}).images["quay.io/acme/base:1"]
    (problem,) = found("Dockerfile", text, known=Answers({}, {image: shown}))
    assert "linux/amd64 manifest of quay.io/acme/base:1" in problem.finding.message
    assert splice(text, problem.edits) == text.replace("b" * 64, "a" * 64, 1)
    assert base_images(SourceText.of("Dockerfile", text.encode())) == (image,)


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("Makefile", "\tpodman build --platform linux/amd64 .\n", 1),
        ("Makefile", "\tpodman build --arch=amd64 .\n", 1),
        (".github/workflows/ci.yaml", "      run: docker buildx build --platform=linux/amd64 .\n", 1),
        ("Makefile", "\tpodman build --platform linux/amd64,linux/arm64 .\n", 0),
        ("Makefile", "\tpodman build --arch amd64 .\n\tpodman build --arch arm64 .\n", 0),
        ("Makefile", "\tpodman build --platform $(PLATFORMS) .\n\tpodman build --platform linux/amd64 .\n", 0),
        ("Makefile", "# podman build --platform linux/amd64 .\n", 0),
        ("Makefile", "\tterraform plan --platform production\n", 0),
    ],
)
def test_a_build_of_less_than_the_bundle_promises(path: str, text: str, count: int) -> None:
    """MA302: only where a ClusterServiceVersion of the tree labels more."""
    assert [each.finding.rule for each in found(path, text, labelled=("amd64", "arm64"))] == ["MA302"] * count
    assert found(path, text, labelled=("amd64",)) == ()
    assert found(path, text) == ()


def test_code_that_makes_pods_without_node_affinity() -> None:
    """MA303."""
    text = "package x\n\nvar p = corev1.PodSpec{}\n"
    (problem,) = found("x.go", text)
    assert (problem.finding.span.line, problem.finding.span.column) == (3, 16)
    assert found("x_test.go", text) == ()
    assert found("x.go", f"{text}var a = corev1.NodeAffinity{{}}\n") == ()


def test_these_rules_run_only_when_included() -> None:
    """MF-030."""
    source = SourceText.of("Dockerfile", b"FROM --platform=linux/amd64 a\n")
    assert lint_source(source, NOTHING) == ()


def test_fingerprints_of_build_files_follow_the_line_not_its_number() -> None:
    """MF-033."""
    (before,) = found("Dockerfile", "FROM --platform=linux/amd64 a\n")
    (after,) = found("Dockerfile", "# a comment\nFROM --platform=linux/amd64 a\n")
    assert before.finding.fingerprint == after.finding.fingerprint
    assert before.finding.span.line != after.finding.span.line
