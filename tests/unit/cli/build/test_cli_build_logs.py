"""Which pods ``polyarch build logs`` reads, and what it says of those that are gone."""

import msgspec
import pytest

from polyarch.builds.api.resources import ArchitectureStatus
from polyarch.cli import main
from polyarch.cli.build.logs import BuildLogsOptions, Printer, chosen, gone
from polyarch.cli.build.progress import BuildPod


def pod(name: str, architecture: str, minute: int) -> BuildPod:
    metadata = {
        "name": name,
        "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
        "labels": {"polyarch.dev/architecture": architecture},
    }
    return msgspec.convert({"metadata": metadata}, BuildPod)


PODS = [pod("z1", "arm64", 1), pod("a2", "arm64", 2), pod("m3", "arm64", 3), pod("x1", "amd64", 2)]


@pytest.mark.req("BD-304")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(BuildLogsOptions(name="web"), ["x1", "m3"], id="the newest attempt of each"),
        pytest.param(BuildLogsOptions(name="web", previous=True), ["z1", "a2"], id="the attempts before"),
        pytest.param(BuildLogsOptions(name="web", arch="aarch64"), ["m3"], id="one architecture"),
        pytest.param(BuildLogsOptions(name="web", arch="amd64", previous=True), [], id="there was one attempt only"),
        pytest.param(BuildLogsOptions(name="web", arch="s390x"), [], id="an architecture that has none"),
    ],
)
def test_which_attempts_are_read(asked: BuildLogsOptions, expected: list[str]) -> None:
    """In the order in which they began, whatever the order in which they are listed."""
    for pods in (PODS, PODS[::-1]):
        assert [each.metadata.name for each in chosen(pods, asked)] == expected


@pytest.mark.req("BD-304")
@pytest.mark.parametrize(
    ("container", "expected"), [(None, ("build", "push")), ("push", ("push",)), ("build", ("build",))]
)
def test_build_and_push_are_read_unless_one_is_chosen(container: object, expected: tuple[str, ...]) -> None:
    assert BuildLogsOptions(name="web", container=container).containers == expected  # type: ignore[arg-type]


@pytest.mark.req("BD-304")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"phase": "Reused", "reusedFrom": "web-1"}, ["reused from web-1: nothing was built"], id="reused"),
        pytest.param({"phase": "Pending"}, ["no pod yet"], id="pending"),
        pytest.param(
            {"phase": "WaitingForNode", "message": "0/2 nodes fit"}, ["no pod yet: 0/2 nodes fit"], id="waiting"
        ),
        pytest.param(
            {"phase": "Failed", "message": "make: *** [all]\nRUN make: exit 2"},
            ["its pod is gone", "make: *** [all]", "RUN make: exit 2"],
            id="failed: with the lines that were recorded",
        ),
        pytest.param(
            {"phase": "Built"},
            ["it is built; its pod is gone, with what it printed (`--follow` shows a build while it runs)"],
            id="built",
        ),
    ],
)
def test_of_a_pod_that_is_gone_the_recorded_lines_are_printed(status: dict[str, str], expected: list[str]) -> None:
    assert gone(msgspec.convert({"architecture": "arm64", **status}, ArchitectureStatus)) == expected


@pytest.mark.req("BD-304")
def test_prefixes_are_of_one_width_and_each_architecture_keeps_its_colour() -> None:
    written: list[str] = []
    printer = Printer(written.append, colour=False)
    printer.expect(["s390x", "arm64", "ppc64le"])
    printer.line("arm64", "STEP 1/2\x1b[2J")
    printer.line("ppc64le", "STEP 1/2")
    assert written[0].startswith("arm64   | STEP 1/2")
    assert written[1] == "ppc64le | STEP 1/2\n"
    assert "\x1b" not in written[0]

    coloured: list[str] = []
    printer = Printer(coloured.append, colour=True)
    printer.expect(["amd64", "arm64"])
    for architecture in ("arm64", "amd64", "arm64"):
        printer.line(architecture, "x")
    assert coloured[0] == coloured[2]
    assert coloured[0].partition("arm64")[0] != coloured[1].partition("amd64")[0]


@pytest.mark.req("BD-304")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("--previous", "-f"), "remove --follow", id="following what has ended"),
        pytest.param(("-f", "-o", "json"), "remove --output", id="following into a document"),
        pytest.param(("--container", "shell"), "shell", id="another container"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "logs", "web", *words]) == 2
    assert told in capsys.readouterr().err
