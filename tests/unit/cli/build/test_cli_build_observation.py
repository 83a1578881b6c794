"""What somebody who follows a build sees, and when and how it ends."""

import datetime as dt
import io
from typing import Any

import msgspec
import pytest

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun, Source
from polyarch.cli.build.progress import AwaitedGeneration, BuildPod, BuildRow, Step, elapsed, sight
from polyarch.cli.build.run import LineBuildView, bar, spent, table

IMAGE = f"quay.io/a/b@sha256:{'a' * 64}"


def build(*conditions: tuple[str, str, str, str], generation: int = 1, observed: int = 1, **status: Any) -> ImageBuild:
    told = [{"type": a, "status": b, "reason": c, "message": d} for a, b, c, d in conditions]
    document = {
        "metadata": {"name": "shop", "namespace": "team", "uid": "1", "generation": generation},
        "status": {"observedGeneration": observed, "conditions": told, **status},
    }
    return msgspec.convert(document, ImageBuild)


def run(phase: str = "Building", name: str = "shop-1", **phases: dict[str, Any]) -> ImageBuildRun:
    document = {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"architectures": [{"architecture": each, "key": "k"} for each in ("amd64", "arm64")]},
        "status": {"phase": phase, "architectures": [{"architecture": each, **more} for each, more in phases.items()]},
    }
    return msgspec.convert(document, ImageBuildRun)


def pod(architecture: str, *, name: str = "p", pushes: bool = False) -> BuildPod:
    document = {
        "metadata": {"name": name, "labels": {"polyarch.dev/architecture": architecture}},
        "status": {
            "initContainerStatuses": [{"name": "build", "state": {"running": {}}}],
            "containerStatuses": [{"name": "push", "state": {"running": {}} if pushes else {}}],
        },
    }
    return msgspec.convert(document, BuildPod)


PUBLISHED = ("Ready", "True", "Published", "")
DONE = ("Progressing", "False", "Done", "")
GOAL = AwaitedGeneration(1, "1")


@pytest.mark.req("BD-305")
def test_a_published_image_is_the_end() -> None:
    end = sight(build(PUBLISHED, DONE, image=IMAGE, currentRun="shop-1"), [], GOAL).end
    assert end is not None
    assert (end.code, end.image, end.run) == (0, IMAGE, "shop-1")


@pytest.mark.req("BD-305")
def test_an_earlier_image_is_no_end_while_the_builder_has_not_looked() -> None:
    seen = sight(build(PUBLISHED, DONE, image=IMAGE, generation=2), [], AwaitedGeneration(2, "1"))
    assert seen.end is None
    assert "waiting for the builder" in seen.headline


@pytest.mark.req("BD-305")
@pytest.mark.parametrize(
    ("conditions", "code", "outcome"),
    [
        pytest.param(
            [("InputsValid", "False", "ContainerfileInvalid", "line 2")], 2, "ContainerfileInvalid", id="wrong"
        ),
        pytest.param([("InputsValid", "False", "BaseImageNotFound", "x")], 1, "BaseImageNotFound", id="no base"),
        pytest.param(
            [("InputsValid", "False", "RegistryUnreachable", "x")], 3, "RegistryUnreachable", id="no registry"
        ),
        pytest.param([("Progressing", "False", "Suspended", "")], 3, "Suspended", id="suspended"),
        pytest.param([DONE, ("Degraded", "True", "BuildFailed", "arm64")], 1, "BuildFailed", id="failed"),
        pytest.param(
            [DONE, ("Ready", "True", "Outdated", ""), ("Degraded", "True", "BuildFailed", "arm64")],
            1,
            "BuildFailed",
            id="failed, an older image stands",
        ),
        pytest.param(
            [DONE, ("Ready", "True", "PartialIndex", ""), ("Degraded", "True", "BuildFailed", "arm64")],
            0,
            "PartialIndex",
            id="partial",
        ),
    ],
)
def test_exit_codes(conditions: list[tuple[str, str, str, str]], code: int, outcome: str) -> None:
    end = sight(build(*conditions), [], GOAL).end
    assert end is not None
    assert (end.code, end.outcome) == (code, outcome)


@pytest.mark.req("BD-305")
def test_it_is_not_over_while_a_run_is_at_work_or_awaited() -> None:
    failed = ("Degraded", "True", "BuildFailed", "of before")
    assert sight(build(failed, DONE, activeRun="shop-1"), [run()], GOAL).end is None
    assert sight(build(failed, ("Progressing", "True", "Building", "")), [], GOAL).end is None


@pytest.mark.req("BD-305")
def test_a_build_that_somebody_deleted_or_made_anew_is_not_waited_for() -> None:
    for each in (None, msgspec.structs.replace(build(), metadata=msgspec.structs.replace(build().metadata, uid="2"))):
        end = sight(each, [], GOAL).end
        assert end is not None
        assert end.code == 3


@pytest.mark.req("BD-305")
def test_a_run_that_somebody_elses_change_superseded_is_a_failure_of_mine() -> None:
    changed = build(generation=2, observed=2, activeRun="shop-2")
    runs = [run("Superseded"), run(name="shop-2")]
    end = sight(changed, runs, GOAL, followed="shop-1").end
    assert end is None
    end = sight(build(generation=2, observed=2), runs, GOAL, followed="shop-1").end
    assert end is not None
    assert (end.code, end.outcome) == (1, "Superseded")


@pytest.mark.req("BD-105")
def test_an_override_for_which_nothing_is_built_is_seen() -> None:
    """As soon as the builder has said for which architectures it builds."""
    overrides = [{"architecture": each, "containerfile": "FROM scratch"} for each in ("arm64", "s390x")]
    source = msgspec.convert({"overrides": overrides}, Source)

    def seen(**status: Any) -> tuple[str, ...]:
        known = build(PUBLISHED, DONE, **status)
        spec = msgspec.structs.replace(known.spec, source=source)
        return sight(msgspec.structs.replace(known, spec=spec), [], GOAL).notes

    (note,) = seen(architectures=["amd64", "arm64"])
    assert note.startswith("the override for s390x is not used: ")
    assert seen(architectures=["arm64", "s390x"]) == ()
    assert seen() == ()


@pytest.mark.req("BD-301")
def test_the_plan_comes_first_and_each_architecture_has_its_words() -> None:
    at_work = run(
        amd64={"phase": "Reused", "reusedFrom": "shop-0"},
        arm64={"phase": "Building", "node": "arm64-1", "attempts": 2},
    )
    seen = sight(
        build(activeRun="shop-1"),
        [at_work],
        GOAL,
        pods=[pod("arm64")],
        steps={"p": Step(2, 4, "RUN make")},
    )
    assert seen.headline == "amd64 reused, arm64 build"
    assert [row.words for row in seen.rows] == [
        "reused from shop-0",
        "STEP 2/4: RUN make on arm64-1, attempt 2",
    ]
    assert [round(row.share, 3) for row in seen.rows] == [1.0, 0.225]


@pytest.mark.req("BD-301")
@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "WaitingForNode", "message": "no node fits"}, "waiting for a node: no node fits"),
        ({"phase": "Pending", "reason": "Queued"}, "pending: Queued"),
        ({"phase": "Building", "node": "n"}, "building on n"),
        ({"phase": "Building", "message": "pod x does not start"}, "building: pod x does not start"),
        ({"phase": "Built", "node": "n"}, "built on n"),
        (
            {"phase": "Failed", "reason": "BuildFailed", "message": "RUN make: exit 2"},
            "failed: BuildFailed: RUN make: exit 2",
        ),
        ({"phase": "Cancelled"}, "cancelled"),
    ],
)
def test_words_of_a_phase(status: dict[str, str], words: str) -> None:
    seen = sight(build(activeRun="shop-1"), [run(arm64=status)], GOAL)
    assert seen.rows[1].words == words


@pytest.mark.req("BD-301")
def test_a_push_is_shown_when_the_build_has_ended() -> None:
    seen = sight(build(activeRun="shop-1"), [run(arm64={"phase": "Building"})], GOAL, pods=[pod("arm64", pushes=True)])
    assert seen.rows[1].words == "pushing"


@pytest.mark.req("BD-301")
def test_a_line_of_the_log_is_a_step() -> None:
    assert Step.of("STEP 3/12: RUN make -j4") == Step(3, 12, "RUN make -j4")
    assert Step.of("make: nothing to be done") is None


@pytest.mark.req("BD-301")
def test_in_a_pipe_each_change_is_one_line() -> None:
    stream = io.StringIO()
    board = LineBuildView(stream)
    for status in ({"phase": "Pending"}, {"phase": "Building"}, {"phase": "Building"}, {"phase": "Built"}):
        board.show("shop", sight(build(activeRun="shop-1"), [run(arm64=status)], GOAL))
    assert stream.getvalue().splitlines() == [
        "shop: amd64 build, arm64 build",
        "shop amd64: pending",
        "shop arm64: pending",
        "shop arm64: building",
        "shop arm64: built",
    ]


@pytest.mark.req("BD-301")
def test_on_a_terminal_each_architecture_has_a_bar_and_a_clock() -> None:
    from rich.console import Console

    now = dt.datetime(2026, 1, 1, 0, 1, 5, tzinfo=dt.UTC)
    at_work = run(
        amd64={"phase": "Built", "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:30Z"},
        arm64={"phase": "Building", "startTime": "2026-01-01T00:00:00Z"},
    )
    seen = sight(build(activeRun="shop-1"), [at_work], GOAL, pods=[pod("arm64")], steps={"p": Step(3, 4, "RUN x")})
    stream = io.StringIO()
    Console(file=stream, width=100).print(table({"shop": seen}, now))
    amd64, arm64 = stream.getvalue().splitlines()[1:]
    assert "0:30" in amd64
    assert "█" * 24 in amd64
    assert "1:05" in arm64
    assert arm64.count("█") == 11
    assert "STEP 3/4: RUN x" in arm64


@pytest.mark.req("BD-301")
def test_times_and_bars() -> None:
    assert (spent(5), spent(65), spent(3725)) == ("0:05", "1:05", "1:02:05")
    assert bar(BuildRow(architecture="a", phase="Failed")) == "█" * 24
    assert elapsed(BuildRow(architecture="a"), dt.datetime.now(dt.UTC)) is None
