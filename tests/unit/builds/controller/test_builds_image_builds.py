"""Who is looked at again: a change wakes the builds that it can concern, and no others."""

from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.builds import names
from polyarch.builds.architectures import NodeIndex
from polyarch.builds.controller.image_builds import ImageBuildReader
from polyarch.builds.controller.informers import BuildInformers, BuildRef, RecordConfigMap
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.facts.objects import BuildObject, JobObject, NodeObject, PodObject, RunObject
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import BuildPlan, PlannedArchitecture
from polyarch.kube.informer import Informer
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS
from polyarch.kube.watch import Apply, Delete, Init, InitDone
from polyarch.objects import Namespace, ObjectKey

pytestmark = pytest.mark.req("BD-346")

COVERED = BuildPlan(decision="UpToDate", reason="Covered", message="")


class NoServer:
    """Nothing is asked of an API server here."""


class ImageBuildWorld:
    """Builds ``web`` and ``shop`` in the namespace ``team``, ``web`` with a Run; ``woken`` are those that are woken."""

    def __init__(self) -> None:
        self.version = 0
        self.informers = BuildInformers(
            builds=informer(names.IMAGE_BUILDS, BuildObject),
            runs=informer(names.IMAGE_BUILD_RUNS, RunObject),
            jobs=informer(JOBS, JobObject),
            pods=informer(PODS, PodObject),
            records=informer(CONFIGMAPS, RecordConfigMap),
            nodes=informer(NODES, NodeObject),
            namespaces=informer(NAMESPACES, Namespace),
        )
        self.plan = COVERED
        self.reader = ImageBuildReader(
            self.informers,
            NodeIndex(),
            lambda facts: self.plan,
            settings=PlanSettings(),
            clock=ManualClock(),
            metrics=BuildMetrics(Metrics()),
        )
        self._woken: list[str] = []
        self.reader.subscribe(lambda ref: self._woken.append(ref.name))
        self.node("amd64-1", "amd64")
        for name in ("web", "shop"):
            self.build(name)
        self.run("web-1", "web")
        self.look("web", "shop")

    @property
    def woken(self) -> list[str]:
        """Since it was asked last."""
        found, self._woken[:] = sorted(set(self._woken)), []
        return found

    def look(self, *builds: str, plan: BuildPlan = COVERED) -> None:
        """A pass over these builds, with this outcome."""
        self.plan = plan
        for name in builds:
            facts = self.reader.facts(BuildRef("ImageBuild", "team", name))
            assert facts is not None
            self.reader.plan(facts)
        self._woken.clear()

    def put(self, source: Informer[Any], name: str, namespace: str = "team", **document: Any) -> None:
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(self.version)}
        metadata |= document.pop("metadata", {})
        source.take(Apply(msgspec.convert({"metadata": metadata, **document}, source.type)))

    def drop(self, source: Informer[Any], name: str) -> None:
        self.version += 1
        source.take(Delete(ObjectKey("team", name), str(self.version)))

    def build(self, name: str, **metadata: Any) -> None:
        self.put(
            self.informers.builds, name, spec={"output": {"repository": f"quay.io/team/{name}"}}, metadata=metadata
        )

    def run(self, name: str, build: str, **status: Any) -> None:
        spec = {"imageBuild": {"name": build, "uid": build}, "repository": f"quay.io/team/{build}"}
        self.put(self.informers.runs, name, spec=spec, status=status)

    def job(self, name: str, run: str, *, ended: bool = False, **metadata: Any) -> None:
        conditions = [{"type": "Complete", "status": "True"}] if ended else []
        marks = {"labels": {names.RUN_LABEL: run, names.ARCHITECTURE_LABEL: "amd64"}, **metadata}
        self.put(self.informers.jobs, name, status={"conditions": conditions}, metadata=marks)

    def node(self, name: str, architecture: str, *, ready: str = "True", beat: int = 0) -> None:
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"2027-01-01T00:00:{beat:02}Z"}
        info = {"architecture": architecture, "operatingSystem": "linux"}
        labels = {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"}
        status = {"nodeInfo": info, "conditions": [condition]}
        self.put(self.informers.nodes, name, "", status=status, metadata={"labels": labels})


def informer(resource: Any, type: Any) -> Informer[Any]:
    """Complete, and empty."""
    made: Informer[Any] = Informer(NoServer(), resource, type)  # type: ignore[arg-type]
    made.take(Init())
    made.take(InitDone())
    return made


@pytest.fixture
def world() -> ImageBuildWorld:
    return ImageBuildWorld()


def test_a_changed_build_wakes_itself(world: ImageBuildWorld) -> None:
    world.build("shop", generation=2)
    assert world.woken == ["shop"]


def test_what_belongs_to_a_run_wakes_the_build_of_that_run(world: ImageBuildWorld) -> None:
    label = {"labels": {names.RUN_LABEL: "web-1"}}
    world.run("web-1", "web", phase="Building")
    assert world.woken == ["web"]
    world.job("web-1-amd64", "web-1")
    assert world.woken == ["web"]
    world.put(world.informers.pods, "web-1-amd64-x", metadata=label)
    assert world.woken == ["web"]
    world.put(world.informers.records, "web-1-arch", metadata=label)
    assert world.woken == ["web"]


@pytest.mark.req("BD-079")
def test_a_run_whose_name_is_too_long_for_a_label_is_found_by_its_annotation(world: ImageBuildWorld) -> None:
    name = "w" * 100
    world.run(name, "shop")
    world.look("web", "shop")
    world.job("long", "shortened-0123456789", annotations={names.RUN_LABEL: name})
    assert world.woken == ["shop"]


@pytest.mark.req("BD-324")
def test_a_job_that_is_deleted_or_loses_its_label_wakes_its_build(world: ImageBuildWorld) -> None:
    """To a watch by label both are the same."""
    world.job("web-1-amd64", "web-1")
    world.look("web", "shop")
    world.drop(world.informers.jobs, "web-1-amd64")
    assert world.woken == ["web"]


def test_what_is_of_no_run_wakes_nobody(world: ImageBuildWorld) -> None:
    world.job("other", "somebody-elses")
    assert world.woken == []


@pytest.mark.req("BD-154")
def test_a_job_that_ends_anywhere_wakes_who_waits_for_room(world: ImageBuildWorld) -> None:
    world.job("web-1-amd64", "web-1")
    queued = PlannedArchitecture(architecture="amd64", action="Wait", reason="Queued")
    world.look("shop", plan=BuildPlan(decision="InProgress", reason="", message="", per_architecture=(queued,)))
    world.run("shop-1", "shop", phase="Pending", architectures=[{"phase": "Pending", "reason": "Queued"}])
    world.woken.clear()
    world.job("web-1-amd64", "web-1", annotations={"seen": "again"})
    assert world.woken == ["web"]
    world.job("web-1-amd64", "web-1", ended=True)
    assert world.woken == ["shop", "web"]


@pytest.mark.req("BD-093")
def test_a_job_of_somebody_else_wakes_who_waits_for_it(world: ImageBuildWorld) -> None:
    world.job("web-1-amd64", "web-1")
    shared = PlannedArchitecture(architecture="amd64", action="Wait", job="web-1-amd64")
    world.look("shop", plan=BuildPlan(decision="InProgress", reason="", message="", per_architecture=(shared,)))
    world.job("web-1-amd64", "web-1", annotations={"seen": "again"})
    assert world.woken == ["shop", "web"]


@pytest.mark.req("BD-042")
def test_a_node_of_another_architecture_wakes_all_that_could_run_there(world: ImageBuildWorld) -> None:
    world.node("arm64-1", "arm64")
    assert world.woken == ["shop", "web"]


@pytest.mark.req("BD-100")
def test_a_heartbeat_wakes_nobody(world: ImageBuildWorld) -> None:
    world.node("amd64-1", "amd64", beat=10)
    assert world.woken == []


@pytest.mark.req("BD-218")
def test_whether_a_node_is_ready_matters_only_to_what_is_under_way_or_held(world: ImageBuildWorld) -> None:
    world.look("web", plan=BuildPlan(decision="Held", reason="", message=""))
    world.node("amd64-1", "amd64", ready="False")
    assert world.woken == ["web"]


@pytest.mark.req("BD-153")
def test_another_pod_security_level_wakes_the_builds_of_its_namespace(world: ImageBuildWorld) -> None:
    world.put(world.informers.namespaces, "team", "", metadata={"labels": {"team": "yes"}})
    world.put(
        world.informers.namespaces,
        "elsewhere",
        "",
        metadata={"labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
    )
    assert world.woken == []
    world.put(
        world.informers.namespaces, "team", "", metadata={"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    )
    assert world.woken == ["shop", "web"]


def test_a_build_that_is_going_is_not_woken_by_nodes_any_more(world: ImageBuildWorld) -> None:
    world.build("shop", deletionTimestamp="2027-01-01T00:00:00Z")
    assert world.reader.facts(BuildRef("ImageBuild", "team", "shop")) is None
    assert world.woken == ["shop"]
    world.node("arm64-1", "arm64")
    assert world.woken == ["web"]


@pytest.mark.req("BD-348")
def test_with_runs_and_jobs_goes_what_was_made_of_them(world: ImageBuildWorld) -> None:
    """Each is some kilobytes: a builder that has seen thousands of Runs of a few ImageBuilds kept them all."""
    world.drop(world.informers.runs, "web-1")
    for number in range(30):
        run = f"web-{number}"
        world.run(run, "web")
        world.job(f"{run}-amd64", run)
        world.look("web", "shop")
        assert len(world.reader._converted) == len(world.informers._converted) == 1
        world.drop(world.informers.jobs, f"{run}-amd64")
        world.drop(world.informers.runs, run)
        world.look("web", "shop")
    assert len(world.reader._converted) == len(world.informers._converted) == 0
