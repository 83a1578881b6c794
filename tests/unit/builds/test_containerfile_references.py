"""Images that a Containerfile names from outside."""

import time
from collections.abc import Mapping

import pytest

from polyarch.builds.containerfile import (
    MAX_BYTES,
    ExternalImages,
    automatic_arguments,
    external_images,
    parse_containerfile,
    target_problem,
)


def found(body: str, architecture: str = "arm64", args: Mapping[str, str] | None = None) -> ExternalImages:
    return external_images(parse_containerfile(body), architecture=architecture, args=args or {})


def written(body: str, architecture: str = "arm64", args: Mapping[str, str] | None = None) -> list[str]:
    externals = found(body, architecture, args)
    assert externals.problems == ()
    return [each.written for each in externals.references]


EXPANDED = {
    "plain": ("FROM a\n", ["a"]),
    "scratch": ("FROM scratch\nCOPY --from=scratch a b\n", []),
    "stages": (
        "FROM a AS one\nFROM one AS two\nFROM b\nCOPY --from=two x y\nCOPY --from=0 x y\nCOPY --from=ONE x y\n",
        ["a", "b"],
    ),
    "a stage that nothing needs": ("FROM a AS one\nCOPY --from=b x y\nFROM c AS two\nFROM two\n", ["c"]),
    "a stage that the architecture chooses": ("FROM a AS p-amd64\nFROM b AS p-arm64\nFROM p-$TARGETARCH\n", ["b"]),
    "a name of two stages": ("FROM a AS one\nFROM b AS one\nFROM c\nCOPY --from=one x y\n", ["b", "c"]),
    "a stage of its own name": ("FROM a AS a\nFROM a\n", ["a"]),
    "a trigger of an earlier stage": (
        "FROM a AS one\nONBUILD COPY --from=b x y\nFROM one AS two\nFROM two\n",
        ["a", "b"],
    ),
    "mounts": (
        "FROM a AS one\nFROM b\nRUN --mount=type=bind,from=tools:1,target=/t --mount=from=one,target=/o true\n",
        ["a", "b", "tools:1"],
    ),
    "global argument": ("ARG V=1\nFROM a:$V AS o\nFROM a:${V}-x\nCOPY --from=o x y\n", ["a:1", "a:1-x"]),
    "argument of an argument": ("ARG V=1\nARG W=${V}.2\nFROM a:$W\n", ["a:1.2"]),
    "default": ("ARG E=\nFROM b:${V:-${W:-8}}${E:-x}\n", ["b:8x"]),
    "alternative": ("ARG V=1\nFROM a:1${V:+-slim}${W:+-no}\n", ["a:1-slim"]),
    "without colon": ("ARG V=\nFROM a:x${V-d}y${W-d}z${V+s}\n", ["a:xydzs"]),
    "nothing": ("ARG V\nFROM a:x$V$W$1${W-}${W%-x}\n", ["a:x"]),
    "without the end": ("ARG V=1.2-x.y-x\nFROM a:${V%-*}-${V%%.*}\n", ["a:1.2-x.y-1"]),
    "without the beginning": ("ARG V=v1.2\nFROM a:${V#v}-${V##*.}-${V#x}\n", ["a:1.2-2-v1.2"]),
    "replaced": ("ARG V=1.2.3\nFROM a:${V/./-}-${V//./-}\n", ["a:1-2.3-1-2-3"]),
    "what must be set": ("ARG V=1\nFROM a:${V:?no}\n", ["a:1"]),
    "empty with colon": ("ARG V=\nFROM a:x${V:-d}${V:+s}\n", ["a:xd"]),
    "quotes": ("FROM \"a:1\" AS one\nFROM 'b:2'\nCOPY --from=one x y\n", ["a:1", "b:2"]),
    "in a stage": (
        "ARG V=1\nFROM a\nARG V\nCOPY --from=b:$V x y\nARG V=2\nCOPY --from=b:$V x y\n",
        ["a", "b:1", "b:2"],
    ),
    "a stage's own argument": ("FROM a\nARG W=3\nCOPY --from=b:$W x y\n", ["a", "b:3"]),
    "an environment variable": ("FROM a\nENV W=4\nARG W=5\nCOPY --from=b:$W x y\n", ["a", "b:4"]),
    "the target": ("FROM a-$TARGETARCH\nCOPY --from=b:$TARGETOS-${TARGETARCH}${TARGETVARIANT} x y\n", None),
    "the build platform": ("FROM --platform=$BUILDPLATFORM a:$BUILDARCH\n", ["a:arm64"]),
    "triggers belong to other builds": ("FROM a\nONBUILD COPY --from=b x y\n", ["a"]),
    "in a here-document": ("FROM a\nRUN <<E\nCOPY --from=b x y\nE\n", ["a"]),
    "in a comment": ("FROM a\n# COPY --from=b x y\n", ["a"]),
    "continued": ("FROM \\\n a \\\n AS one\nCOPY --from=b \\\n x y\n", ["a", "b"]),
    "another escape": ("# escape=`\nFROM `\n a\n", ["a"]),
}


@pytest.mark.req("BD-058")
@pytest.mark.parametrize(("body", "expected"), EXPANDED.values(), ids=EXPANDED)
def test_external_references(body: str, expected: list[str] | None) -> None:
    """What is neither an earlier stage, nor a number, nor scratch; ARGs and platform arguments expanded."""
    assert written(body) == (["a-arm64", "b:linux-arm64"] if expected is None else expected)


@pytest.mark.req("BD-058")
def test_build_arguments_win_over_defaults() -> None:
    body = "ARG V=1\nFROM a:$V\nARG V=2\nCOPY --from=b:$V x y\nARG W=3\nCOPY --from=c:$W x y\n"
    assert written(body, args={"V": "9", "W": "8"}) == ["a:9", "b:9", "c:8"]
    (problem,) = found("FROM a:$V\n", args={"V": "9"}).problems
    assert "V has no value" in problem.message, "what no ARG declares is not given to FROM"


@pytest.mark.req("BD-058")
@pytest.mark.parametrize(
    ("architecture", "expected"), [("amd64", "a:linux/amd64-"), ("arm", "a:linux/arm/v7-v7"), ("riscv64", None)]
)
def test_automatic_arguments(architecture: str, expected: str | None) -> None:
    values = automatic_arguments(architecture)
    assert values["TARGETARCH"] == values["BUILDARCH"] == architecture
    assert expected in (None, f"a:{values['TARGETPLATFORM']}-{values['BUILDVARIANT']}")
    assert set(values) == {f"{s}{n}" for s in ("TARGET", "BUILD") for n in ("PLATFORM", "OS", "ARCH", "VARIANT")}


UNRESOLVED = {
    "a base's environment": "FROM b\nCOPY --from=a:$FROM_BASE x y\n",
    "in braces": "FROM b\nCOPY --from=a:${FROM_BASE} x y\n",
    "of an unknown one": "FROM b\nENV V=$U\nCOPY --from=a:${V:-1} x y\n",
    "too deep": f"FROM a:{'${V:-' * 99}{'}' * 99}\n",
    "too long": "ARG A=xxxxxxxx\n" + "".join("ARG A=$A$A\n" for _ in range(40)) + "FROM a:$A\n",
}


@pytest.mark.req("BD-058")
@pytest.mark.parametrize("body", UNRESOLVED.values(), ids=UNRESOLVED)
def test_what_cannot_be_expanded_is_a_warning(body: str) -> None:
    """Reported, unpinned, and never in the way."""
    externals = found(body)
    (problem,) = externals.problems
    assert (problem.reason, problem.severity, problem.architecture) == ("BaseImageUnresolved", "Warning", "arm64")
    assert problem.message.startswith("Containerfile (common), line ")
    assert not any(each.written.startswith("a:") for each in externals.references)


@pytest.mark.req("BD-057", "BD-320")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("FROM Upper\n", "upper-case letter"),
        ("FROM a::b\n", "FROM names the image 'a::b'"),
        ("FROM ''\n", "the text is empty"),
        ("ARG V\nFROM a:$V\n", "V has no value: give it one in source.buildArgs or by ARG V=… before FROM"),
        ("FROM ${V}\nFROM a\n", "V has no value"),
        ("FROM a:${V:?give-one}\n", "no builder can expand: give-one"),
        ("FROM a:${V:=1}\n", "is no operator"),
        ("FROM a:${V:-1\n", "there is no }"),
        ("FROM a:${V\n", "there is no }"),
        ("FROM a:${V:\n", "there is no }"),
        ("FROM --platform=$V a\nFROM b\n", "no platform"),
        ("FROM --platform=linux/a/b/c a\n", "no platform"),
        ("FROM a\nCOPY --from=late x y\nFROM b AS late\nFROM a\nCOPY --from=0 x y\n", "does not come before"),
        ("FROM a AS own\nCOPY --from=own x y\n", "stage 'own', which does not come before this one"),
        ("FROM a\nCOPY --from=0 x y\n", "stage '0', which does not come before this one"),
        ("FROM a\nCOPY --from=7 x y\n", "stage '7', which does not come before this one"),
        ("FROM a\nRUN --mount=from=late,target=/x true\nFROM b AS late\nCOPY --from=0 x y\n", "does not come before"),
        ("FROM a\nCOPY --from=oci-archive:/x.tar a b\n", "images come from registries"),
        ("FROM a\nRUN --mount=from=docker-daemon:x,target=/x true\n", "images come from registries"),
        (f"FROM {'x' * 600}\n", "it has 600 characters"),
    ],
)
def test_what_is_no_reference_is_an_error(body: str, words: str) -> None:
    """No builder could pull it; text, line and cure are named."""
    (problem,) = found(body).problems
    assert (problem.reason, problem.severity) == ("ContainerfileInvalid", "Error")
    assert words in problem.message


@pytest.mark.req("BD-058")
def test_what_is_wrong_with_a_stage_that_nothing_needs_is_a_warning() -> None:
    """Builders do not look at it, and build the others."""
    externals = found("FROM Upper\nFROM a::b AS x\nCOPY --from=late x y\nFROM b AS late\n")
    assert [each.written for each in externals.references] == ["b"]
    assert {(each.reason, each.severity) for each in externals.problems} == {("StageUnused", "Warning")}
    assert [each.message.partition(": ")[0] for each in externals.problems] == [
        f"Containerfile (common), line {line}" for line in (1, 2)
    ]


@pytest.mark.req("BD-059")
def test_build_platform_stages_are_marked() -> None:
    """Such a stage is judged for the architecture where the build runs."""
    body = "FROM --platform=$BUILDPLATFORM a\nFROM --platform=linux/$BUILDARCH b\nFROM --platform=$TARGETPLATFORM c\n"
    body += "FROM d\nCOPY --from=0 x y\nCOPY --from=1 x y\nCOPY --from=2 x y\n"
    assert [each.for_build for each in found(body).references] == [True, True, False, False]


@pytest.mark.req("BD-063")
def test_a_fixed_platform_is_told() -> None:
    """No base of another architecture is used, whatever the text says; that is a Warning."""
    (problem,) = found("FROM --platform=linux/amd64 a\n").problems
    assert (problem.reason, problem.severity) == ("BaseImagePlatformFixed", "Warning")
    assert found("FROM --platform=linux/arm64/v8 a\n").problems == ()
    assert found("FROM --platform=linux a\n").problems == found("FROM --platform=arm64 a\n").problems == ()


COPIED = {
    "copied": ("FROM --platform=linux/amd64 d AS d\nFROM a\nCOPY --from=d x y\n", ["amd64", ""]),
    "in one word": ("FROM --platform=amd64 d AS d\nFROM a\nCOPY --from=d x y\n", ["amd64", ""]),
    "by an argument": ("ARG P=linux/s390x\nFROM --platform=$P d\nFROM a\nCOPY --from=0 x y\n", ["s390x", ""]),
    "mounted": ("FROM --platform=linux/amd64 d AS d\nFROM a\nRUN --mount=from=d,target=/d x\n", ["amd64", ""]),
    "through another stage": (
        "FROM --platform=linux/amd64 d AS d\nFROM d AS e\nLABEL a=b\nFROM a\nCOPY --from=e x y\n",
        ["amd64", ""],
    ),
    "its own": ("FROM --platform=linux/arm64 d AS d\nFROM a\nCOPY --from=d x y\n", ["", ""]),
    "run": ("FROM --platform=linux/amd64 d AS d\nRUN x\nFROM a\nCOPY --from=d x y\n", ["", ""]),
    "run in another stage": (
        "FROM --platform=linux/amd64 d AS d\nFROM d AS e\nRUN x\nFROM a\nCOPY --from=e x y\n",
        ["", ""],
    ),
    "run by a trigger": (
        "FROM --platform=linux/amd64 d AS d\nONBUILD RUN x\nFROM d AS e\nFROM a\nCOPY --from=e x y\n",
        ["", ""],
    ),
    "the image itself": ("FROM --platform=linux/amd64 d AS d\nFROM d\nCOPY x y\n", [""]),
    "not needed": ("FROM --platform=linux/amd64 d AS d\nFROM a\n", [""]),
    "another variant": ("FROM --platform=linux/arm/v6 d AS d\nFROM a\nCOPY --from=d x y\n", [""]),
}


@pytest.mark.req("BD-063")
@pytest.mark.parametrize(("body", "platforms"), COPIED.values(), ids=COPIED)
def test_what_is_only_copied_is_pulled_for_the_platform_that_is_named(body: str, platforms: list[str]) -> None:
    assert [each.platform for each in found(body).references] == platforms


@pytest.mark.req("BD-063")
def test_one_name_does_not_mean_the_images_of_two_platforms() -> None:
    body = "FROM --platform=linux/amd64 a AS d\nFROM a\nCOPY --from=d x y\n"
    (problem,) = found(body).problems
    assert problem.severity == "Error"
    assert "linux/amd64 in line 1 and as linux/arm64 in line 2; name one of them by the digest" in problem.message
    assert found(body, "amd64").problems == ()


def test_references_are_canonical() -> None:
    externals = found("FROM busybox\nCOPY --from=ghcr.io/x/y:1 a b\n")
    assert [each.canonical for each in externals.references] == ["docker.io/library/busybox:latest", "ghcr.io/x/y:1"]
    assert [each.line for each in externals.references] == [1, 2]


@pytest.mark.parametrize(
    ("target", "good"), [("", True), ("one", True), ("ONE", True), ("1", True), ("2", False), ("x", False)]
)
def test_a_target_is_a_stage(target: str, good: bool) -> None:
    containerfile = parse_containerfile("FROM a AS one\nFROM b\n")
    fault = target_problem(containerfile, target)
    assert (fault is None) is good
    assert fault is None or "a stage of the text (one)" in fault.message


VALUE = "ENV a=" + "a" * 512
COSTLY = {
    "patterns of a base": (f"FROM a AS b\nONBUILD {VALUE}\nONBUILD ENV {'x=${a##*a} ' * 1_000}\nFROM b\n", 3),
    "patterns": (f"FROM a\n{VALUE}\nENV {'x=${a%%a*} ' * 1_000}\n", 3),
    "replacements": (f"FROM a\nENV a={'a' * 64}\nENV {'x=${a//*b/c} ' * 1_000}\n", 3),
    "values": (f"FROM a\n{VALUE}\nENV {'x=$a ' * 1_100}\n", 3),
    "a base of many": (
        f"FROM a AS b\nONBUILD ENV x={'y' * 1_000}\n"
        + "".join(f"FROM b AS c{n}\n" for n in range(600))
        + "FROM d\n"
        + "".join(f"COPY --from=c{n} x y\n" for n in range(600)),
        2,
    ),
    "many triggers": (
        "FROM a AS b\n"
        + "ONBUILD RUN x\n" * 200
        + "FROM a AS c0\n"
        + "".join(f"FROM b AS c{n + 1}\nCOPY --from=c{n} x y\n" for n in range(100)),
        243,
    ),
}


@pytest.mark.req("BD-058")
@pytest.mark.parametrize(("body", "line"), COSTLY.values(), ids=COSTLY)
def test_a_text_that_costs_too_much_is_refused(body: str, line: int) -> None:
    """The line and the cure are named; nothing of it is pinned."""
    externals = found(body)
    (problem,) = externals.problems
    assert (problem.reason, problem.severity, externals.references) == ("ContainerfileInvalid", "Error", ())
    assert problem.message.startswith(f"Containerfile (common), line {line}: what its variables")
    assert "let fewer stages begin with one that has ONBUILDs, or shorten these" in problem.message


@pytest.mark.req("BD-058")
def test_stages_that_nothing_needs_cost_nothing() -> None:
    body, _ = COSTLY["patterns of a base"]
    assert written(f"{body}COPY --from=e x y\n" + "FROM b\n" * 100 + "FROM f\n") == ["f"]


@pytest.mark.req("BD-058")
@pytest.mark.parametrize("unit", ["RUN x\n", "ARG a\n", "ENV a=$b\n", "COPY --from=c x y\n", "LABEL a=b\n"])
def test_no_text_without_triggers_and_long_values_costs_too_much(unit: str) -> None:
    externals = found("FROM a\n" + unit * (MAX_BYTES // len(unit) - 2))
    assert all(each.severity == "Warning" for each in externals.problems)


def cpu_seconds(body: str) -> float:
    """The least of three."""
    begin, several = time.process_time(), list[float]()
    for _ in range(3):
        found(body)
        several.append(time.process_time() - begin)
        begin = time.process_time()
    return min(several)


@pytest.mark.req("BD-323")
@pytest.mark.parametrize("empty", ["''", '""', "${z:-}"])
@pytest.mark.parametrize("head", ["ARG x=", "FROM a\nENV x="])
def test_empty_pieces_of_a_word_cost_no_more_in_a_long_word(empty: str, head: str) -> None:
    """Four times the text takes about four times as long, and not sixteen times."""

    def text(size: int) -> str:
        body = f'{head}"${{y:-{empty * (size // len(empty) // 2)}{" " * (size // 2)}}}"\n'
        return body if head.startswith("FROM") else f"{body}FROM a\n"

    assert cpu_seconds(text(64_000)) < 9 * cpu_seconds(text(16_000))
