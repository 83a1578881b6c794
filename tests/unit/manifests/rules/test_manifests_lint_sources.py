"""Build files and code beside the manifests (MA301 to MA303)."""

from typing import Any

import pytest
from linting import answers

from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.rules.engine import lint_source
from polyarch.manifests.rules.options import LintOptions, Selection
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.rules.sources import base_images
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, splice

INCLUDED = Selection(include=("MA3*",))
NOTHING = ImageInspections({})


def found(path: str, text: str, *, known: ImageInspections = NOTHING, **options: Any) -> Any:
    source = SourceText.of(path, text.encode())
    return lint_source(source, known, LintOptions(selection=INCLUDED, **options))


@pytest.mark.req("MF-010")
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
            "FROM a\r\nRUN GOARCH=arm64 go build && GOARCH=arm64 go vet\r\n",
            "FROM a\r\nARG TARGETARCH\r\nRUN GOARCH=${TARGETARCH} go build && GOARCH=${TARGETARCH} go vet\r\n",
        ),
        (
            "FROM --platform=$BUILDPLATFORM \\\n  # GOARCH=arm64\n  go\nENV A=b GOARCH=amd64\n",
            "FROM --platform=$BUILDPLATFORM \\\n  # GOARCH=arm64\n  go\nARG TARGETARCH\nENV A=b GOARCH=${TARGETARCH}\n",
        ),
        (
            'from a\nrun --mount=target=/c cd /x && A="b c" \\\n  GOARCH=amd64 go build -x "y"',
            'from a\nARG TARGETARCH\nrun --mount=target=/c cd /x && A="b c" \\\n  GOARCH=${TARGETARCH} go build -x "y"',
        ),
        (
            'FROM a\nENV GOARCH="amd64"\nFROM b\nRUN make GOARCH=amd64',
            'FROM a\nARG TARGETARCH\nENV GOARCH="${TARGETARCH}"\nFROM b\nARG TARGETARCH\nRUN make GOARCH=${TARGETARCH}',
        ),
        (
            "FROM a\narg targetarch\nRUN GOARCH=amd64 go build\n",
            "FROM a\nARG TARGETARCH\narg targetarch\nRUN GOARCH=${TARGETARCH} go build\n",
        ),
        (
            'FROM a\nRUN GOARCH="amd64" go build && GOARCH=amd64 go vet\n',
            'FROM a\nARG TARGETARCH\nRUN GOARCH="${TARGETARCH}" go build && GOARCH=${TARGETARCH} go vet\n',
        ),
        ("FROM --platform=linux/amd64 golang AS b\n", "FROM --platform=linux/${TARGETARCH} golang AS b\n"),
        ("from --platform=arm64 golang\n", "from --platform=linux/${TARGETARCH} golang\n"),
    ],
)
def test_a_dockerfile_bound_to_one_platform(text: str, fixed: str) -> None:
    """MA301: the value becomes the target's, which the stage declares."""
    problems = found("Dockerfile", text)
    assert {each.finding.rule for each in problems} == {"MA301"}
    assert splice(text, dict.fromkeys(edit for each in problems for edit in each.edits)) == fixed
    assert found("Dockerfile", fixed) == ()
    source = SourceText.of("Dockerfile", text.encode())
    result = fix(source, NOTHING, FixRequest(options=LintOptions(selection=INCLUDED)))
    assert (result.text, result.remaining, len(result.applied)) == (fixed, (), len(problems))


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM a\nRUN GOARCH=amd64 go build && GOARCH=arm64 go build\n", "several architectures: amd64, arm64"),
        ("FROM --platform=linux/arm64 a\nENV GOARCH=amd64\n", "several architectures: amd64, arm64"),
        ("FROM a\nRUN GOARCH=amd64 go build -o web-amd64\n", "line 2 names amd64, too"),
        ("FROM a\nRUN CC=aarch64-linux-gnu-gcc GOARCH=arm64 go build\n", "line 2 names aarch64, too"),
        ("FROM golang:amd64\nENV GOARCH=amd64\n", "line 1 names amd64, too"),
        ("FROM a\nRUN <<EOF\nGOARCH=amd64 go build\nEOF\n", "line 2 has a here-document"),
        ("FROM a\nCOPY <<X /x\nFROM b\nENV GOARCH=s390x\nX\nENV GOARCH=amd64\n", "line 2 has a here-document"),
        ("# escape=`\nFROM a\nENV GOARCH=amd64\n", "parser directive: escape"),
        ("# syntax=example.org/own\nFROM a\nENV GOARCH=amd64\n", "parser directive: syntax"),
        ("FROM a\nRUN x \\\\\nENV GOARCH=amd64\n", "ends with two backslashes"),
        ("FROM a\nRUN x \\\n\n  GOARCH=amd64 go build\n", "is empty within an instruction"),
        ("FROM a\nRUN GOARCH=amd64 go build \\\n", "ends the file with a backslash"),
        ("FROM a\r\nENV GOARCH=amd64\n", "its lines end in two ways"),
        ("FROM a\nENV GOARCH=amd64\x0cRUN x\n", "unusual line breaks"),
        ("FROM a b\nENV GOARCH=amd64\n", "FROM of an unusual form"),
        ("FROM {{ base }}\nENV GOARCH=amd64\n", "FROM of an unusual form"),
        ("FROM a\nINCLUDE x\nENV GOARCH=amd64\n", "unknown instruction: INCLUDE"),
        ("ENV GOARCH=amd64\n", "first instruction is no FROM"),
        ('FROM a\nSHELL ["pwsh"]\nENV GOARCH=amd64\n', "line 2 sets another shell"),
        ("FROM a\nRUN GOARCH=am\\\nd64 go build\n", "its value goes over two lines"),
        ("FROM a\nRUN sh -c 'GOARCH=amd64 go build'\n", "is not set in a way"),
        ("FROM a\nRUN echo GOARCH=amd64\nRUN GOARCH=amd64 go build\n", "is not set in a way"),
        ("FROM a\nRUN x # GOARCH=amd64\n", "is not set in a way"),
        ("FROM a\nRUN (GOARCH=amd64 go build)\n", "is not set in a way"),
        ("FROM a\nRUN GOARCH='amd64' go build\n", "is not set in a way"),
        ('FROM a\nENV FLAGS="GOARCH=amd64"\n', "is not set in a way"),
        ("FROM a\nONBUILD RUN GOARCH=amd64 go build\n", "is not set in a way"),
        ('FROM a\nCMD ["GOARCH=amd64"]\n', "is not set in a way"),
        ("ARG GOARCH=amd64\nFROM a\n", "before the first FROM"),
        ("ARG TARGETARCH\nFROM a\nENV GOARCH=amd64\n", "line 1 says something else of TARGETARCH"),
        ("FROM a\nARG TARGETARCH=x\nENV GOARCH=amd64\n", "line 2 says something else of TARGETARCH"),
        ("FROM a\nENV TARGETARCH=x\nENV GOARCH=amd64\n", "line 2 says something else of TARGETARCH"),
        ("FROM a\nENV GOARCH=amd64\nARG TARGETARCH\n", "line 3 says something else of TARGETARCH"),
        ("ARG TARGETARCH\nFROM --platform=linux/amd64 a\n", "line 1 says something else of TARGETARCH"),
        ("FROM --platform=linux/amd64 a AS b\nFROM c\n", "several stages"),
        ("FROM --platform=linux/amd64 scratch\n", "scratch is no image"),
        ("FROM --platform=linux/arm/v7 a\n", "is not simply an architecture"),
        (f"FROM --platform=linux/amd64 a@sha256:{'c' * 64}\n", "are unknown"),
    ],
)
def test_a_dockerfile_whose_fix_is_not_certain_is_left_alone_with_a_reason(text: str, reason: str) -> None:
    """MA301:"""
    source = SourceText.of("Dockerfile", text.encode())
    result = fix(source, NOTHING, FixRequest(options=LintOptions(selection=INCLUDED)))
    assert result.text == text
    assert len(result.refused) == len(result.remaining) > 0
    assert reason in result.refused[0].note
    assert not any(each.fixable for each in result.remaining)


@pytest.mark.req("MF-032")
def test_a_value_is_declared_also_where_the_first_one_of_its_stage_is_suppressed() -> None:
    """MA301:"""
    text = "FROM a\n# polyarch:ignore MA301 a tool of the build host\nRUN GOARCH=amd64 x\nRUN GOARCH=amd64 go build\n"
    source = SourceText.of("Dockerfile", text.encode())
    result = fix(source, NOTHING, FixRequest(options=LintOptions(selection=INCLUDED)))
    changed = "FROM a\nARG TARGETARCH\n" + text.removeprefix("FROM a\n")
    assert result.text == changed.replace("GOARCH=amd64 go", "GOARCH=${TARGETARCH} go")


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
    (problem,) = found("Dockerfile", text, known=ImageInspections({}, {image: shown}))
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
    for said in (
        "// a corev1.PodSpec{} of",
        "/* a\nPodSpec{} */",
        'var a = "\\"PodSpec{}"',
        "var a = `\nPodSpec{}`",
        "MyPodSpec{}",
    ):
        assert found("x.go", f"package x\n\n{said}\n") == ()
        (problem,) = found("x.go", f"package x\n\n{said}\n\nvar p = &PodSpec{{\n}}\n")
        assert problem.finding.span.line > 4


@pytest.mark.req("MF-030")
def test_these_rules_run_only_when_included() -> None:
    source = SourceText.of("Dockerfile", b"FROM --platform=linux/amd64 a\n")
    assert lint_source(source, NOTHING) == ()


@pytest.mark.req("MF-033")
def test_fingerprints_of_build_files_follow_the_line_not_its_number() -> None:
    (before,) = found("Dockerfile", "FROM --platform=linux/amd64 a\n")
    (after,) = found("Dockerfile", "# a comment\nFROM --platform=linux/amd64 a\n")
    assert before.finding.fingerprint == after.finding.fingerprint
    assert before.finding.span.line != after.finding.span.line
