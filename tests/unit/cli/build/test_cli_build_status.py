"""What ``polyarch build status`` says of builds and of one build."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.cli import main
from polyarch.cli.build.status import StatusFacts, document, list_text, one_text
from polyarch.objects import Unstructured

NOW = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)
IMAGE = f"quay.io/team/web@sha256:{'a' * 64}"
HELD = "arm64: BuildFailed: RUN make: exit 2. What releases it: a change of its inputs or a new spec.rebuild.token."
Conditions = tuple[tuple[str, str, str, str], ...]
PUBLISHED: Conditions = (
    ("ArchitecturesResolved", "True", "Resolved", "amd64, arm64: the architectures of the nodes."),
    ("Progressing", "False", "Done", "Nothing is being built."),
    ("Ready", "True", "Published", "It is published."),
    ("Degraded", "False", "None", ""),
)
OUTDATED: Conditions = (
    ("Progressing", "False", "Done", "Nothing is being built."),
    ("Ready", "True", "Outdated", "An older result is still published."),
    ("Degraded", "True", "BuildFailed", HELD),
)


def build(conditions: Conditions, name: str = "web", **status: Any) -> ImageBuild:
    told = [{"type": a, "status": b, "reason": c, "message": d} for a, b, c, d in conditions]
    created = "2026-01-01T11:00:00Z"
    metadata = {"name": name, "namespace": "team", "uid": "1", "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "status": {"conditions": told, **status}}, ImageBuild)


def run(name: str, phase: str, *architectures: dict[str, Any]) -> ImageBuildRun:
    metadata = {"name": name, "namespace": "team"}
    status = {"phase": phase, "architectures": list(architectures)}
    return msgspec.convert({"metadata": metadata, "status": status}, ImageBuildRun)


FAILED = run(
    "web-2",
    "Failed",
    {"architecture": "amd64", "phase": "Reused", "reusedFrom": "web-1"},
    {
        "architecture": "arm64",
        "phase": "Failed",
        "node": "arm64-1",
        "attempts": 4,
        "startTime": "2026-01-01T11:50:00Z",
        "completionTime": "2026-01-01T11:51:30Z",
        "reason": "BuildFailed",
        "message": "RUN make: exit 2",
    },
)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.req("BD-303")
def test_one_build_says_what_is_the_matter_and_what_would_release_it() -> None:
    told = lines(one_text(StatusFacts([build(OUTDATED, image=IMAGE, tags=["1.0"])], [FAILED]), NOW, colour=False))
    assert told == [
        "team/web: BuildFailed",
        "Ready: Outdated: An older result is still published.",
        f"Degraded: BuildFailed: {HELD}",
        f"image {IMAGE}",
        "tags 1.0",
        "run web-2: Failed",
        "",
        "ARCHITECTURE PHASE NODE ATTEMPTS DURATION TOLD",
        "amd64 Reused - 0 - reused from web-1",
        "arm64 Failed arm64-1 4 1m30s failed: BuildFailed: RUN make: exit 2",
    ]


@pytest.mark.req("BD-303")
def test_of_a_build_that_is_well_nothing_but_its_result_is_said() -> None:
    built = {"architecture": "amd64", "phase": "Built", "node": "n", "attempts": 1, "digest": "sha256:1"}
    told = lines(
        one_text(StatusFacts([build(PUBLISHED, image=IMAGE)], [run("web-1", "Succeeded", built)]), NOW, colour=False)
    )
    assert told[:3] == ["team/web: Published", f"image {IMAGE}", "run web-1: Succeeded"]
    assert told[-1] == "amd64 Built n 1 - sha256:1"


@pytest.mark.req("BD-303")
def test_the_run_at_work_is_shown_and_not_a_newer_one() -> None:
    """And how long it takes until now, as it has not ended."""
    busy = build((("Progressing", "True", "WaitingForNode", "arm64: no node."),), activeRun="web-1")
    waiting = {"architecture": "arm64", "phase": "WaitingForNode", "startTime": "2026-01-01T09:59:00Z"}
    told = lines(one_text(StatusFacts([busy], [FAILED, run("web-1", "Building", waiting)]), NOW, colour=False))
    assert told[:3] == [
        "team/web: WaitingForNode",
        "Progressing: WaitingForNode: arm64: no node.",
        "run web-1: Building",
    ]
    assert told[-1].startswith("arm64 WaitingForNode - 0 2h1m waiting for a node")


@pytest.mark.req("BD-303")
def test_a_build_that_is_invalid_has_no_run_and_says_why() -> None:
    wrong = build((("InputsValid", "False", "BaseImageNotFound", "Push it."), ("Ready", "False", "NotBuilt", "No.")))
    assert lines(one_text(StatusFacts([wrong]), NOW, colour=False)) == [
        "team/web: BaseImageNotFound",
        "InputsValid: BaseImageNotFound: Push it.",
        "Ready: NotBuilt: No.",
    ]


MACHINE = Unstructured(
    {
        "metadata": {
            "name": "worker-1a2b",
            "creationTimestamp": "2025-12-30T11:00:00Z",
            "labels": {"machineconfiguration.openshift.io/target-machine-config-pool": "worker"},
            "annotations": {"polyarch.dev/architectures": "amd64,arm64"},
        },
        "status": {
            "conditions": [{"type": "Prepared", "status": "False"}, {"type": "Building", "status": "True"}],
            "digestedImagePushSpec": "",
        },
    }
)


@pytest.mark.req("BD-303")
def test_all_builds_are_a_table_with_those_of_machine_os_images() -> None:
    shown = StatusFacts(
        [
            build(PUBLISHED, "web", summary="2/2", currentRun="web-1", image=IMAGE),
            build(OUTDATED, "api", summary="1/2"),
        ],
        machine=[MACHINE],
    )
    assert lines(list_text(shown, NOW, colour=False)) == [
        "NAMESPACE NAME STATE ARCHITECTURES RUN AGE IMAGE",
        "team api BuildFailed 1/2 - 1h -",
        f"team web Published 2/2 web-1 1h {IMAGE}",
        "worker worker-1a2b Building amd64,arm64 - 2d1h -",
    ]


@pytest.mark.req("BD-303")
def test_colours_tell_what_is_well_from_what_is_not() -> None:
    shown = list_text(StatusFacts([build(PUBLISHED, "web"), build(OUTDATED, "api")]), NOW, colour=True)
    api, web = shown.splitlines()[1:]
    assert "\x1b[31m" in api
    assert "\x1b[32m" in web


@pytest.mark.req("BD-303", "BD-305")
def test_a_document_has_statuses_as_they_are_stored_and_runs_only_of_one_build() -> None:
    seen = StatusFacts([build(PUBLISHED, image=IMAGE)], [FAILED], [MACHINE])
    one = document(seen, one=True)
    assert one["schemaVersion"] == "polyarch.dev/build-status.v1"
    assert [(each["kind"], each["name"], each["state"]) for each in one["builds"]] == [
        ("ImageBuild", "web", "Published"),
        ("MachineOSBuild", "worker-1a2b", "Building"),
    ]
    assert one["builds"][0]["status"]["image"] == IMAGE
    assert one["runs"][0]["status"]["architectures"][1]["reason"] == "BuildFailed"
    assert "runs" not in document(seen, one=False)


@pytest.mark.req("BD-303")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("web", "-A"), "-A is for all builds", id="one of all"),
        pytest.param(("-A", "-n", "team"), "-A is for all builds", id="all of one namespace"),
        pytest.param(("--watch", "-o", "json"), "--watch shows text", id="a document again and again"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "status", *words]) == 2
    assert told in capsys.readouterr().err
