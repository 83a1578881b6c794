"""MachineOSConfigs and what their builds depend on, as watches show them."""

import base64

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.builds import names
from polyarch.builds.controller.informers import BuildInformers, BuildRef, RecordConfigMap
from polyarch.builds.controller.machine_os import MachineOSConfigReader, MachineOSMetrics
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.facts.objects import BuildObject, JobObject, NodeObject, PodObject, StoredRun
from polyarch.builds.machineos import api
from polyarch.builds.machineos.job_objects import CERTIFICATE
from polyarch.builds.machineos.status import STOCK_BUILDER_REASON
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.places import NO_OTHERS
from polyarch.kube.informer import Informer
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS
from polyarch.kube.watch import Apply, Delete, Init, InitDone
from polyarch.objects import Namespace, ObjectKey, Unstructured

GONE = "2027-01-01T00:00:00Z"


class Shares:
    """Complete, empty caches of every kind, kept by the name of the kind."""

    def __init__(self):
        self.made = {}

    def informer(self, resource, type, /, **options):
        made = self.made[resource.kind] = Informer(None, resource, type)
        made.take(Init())
        made.take(InitDone())
        return made

    def release(self, informer): ...


class MachineConfigWorld:
    def __init__(self, *, has_controller=False):
        self.shares, self.metrics = Shares(), Metrics()
        kinds = {
            "builds": (names.IMAGE_BUILDS, BuildObject),
            "runs": (names.IMAGE_BUILD_RUNS, StoredRun),
            "jobs": (JOBS, JobObject),
            "pods": (PODS, PodObject),
            "records": (CONFIGMAPS, RecordConfigMap),
            "nodes": (NODES, NodeObject),
            "namespaces": (NAMESPACES, Namespace),
        }
        self.informers = BuildInformers(**{name: self.shares.informer(*kind) for name, kind in kinds.items()})
        self.told = []
        self.reader = MachineOSConfigReader(
            self.informers,
            self.shares,
            namespace=api.NAMESPACE,
            settings=PlanSettings(),
            clock=ManualClock(),
            metrics=BuildMetrics(self.metrics),
            own_metrics=MachineOSMetrics(self.metrics),
            places=lambda namespace: NO_OTHERS,
            recorder=self,
        )
        self.reader.start(has_controller=has_controller)
        self.version = 0

    def event(self, regarding, *, type, reason, note, action):
        self.told.append((regarding.kind, regarding.name, regarding.uid, reason))

    def put(self, name, **metadata):
        self.show("MachineOSConfig", name, **metadata)

    def show(self, kind, name, *, spec=None, status=None, **metadata):
        source = self.shares.made[kind]
        self.version += 1
        metadata |= {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.version)}
        document = {"metadata": metadata, "spec": spec or {}, "status": status or {}}
        source.take(
            Apply(Unstructured(document) if source.type is Unstructured else msgspec.convert(document, source.type))
        )

    def drop(self, name):
        self.version += 1
        self.shares.made["MachineOSConfig"].take(Delete(ObjectKey("", name), str(self.version)))


@pytest.mark.req("BD-290")
@pytest.mark.parametrize("waits_for_builds", [False, True])
def test_the_deletion_of_a_config_is_told_once(waits_for_builds):
    world = MachineConfigWorld()
    world.put("worker")
    world.put("infra")
    if waits_for_builds:
        world.put("worker", deletionTimestamp=GONE)
    world.drop("worker")
    assert world.told == [("MachineOSConfig", "worker", "uid-worker", "ConfigDeleted")]


@pytest.mark.req("BD-074")
@pytest.mark.parametrize(
    ("stored", "seen"), [(base64.b64encode(CERTIFICATE.encode()).decode(), True), ("?", False), (None, False)]
)
def test_the_cas_of_nodes_are_an_input_of_every_build(stored, seen):
    world = MachineConfigWorld(has_controller=True)
    world.put("worker")
    woken = []
    world.reader.subscribe(woken.append)
    document = {"metadata": {"name": "machine-config-controller", "uid": "c", "resourceVersion": "9"}}
    source = world.shares.made["ControllerConfig"]
    source.take(Apply(msgspec.convert({**document, "spec": {"additionalTrustBundle": stored}}, source.type)))
    assert [each.name for each in woken] == ["worker"]
    facts = world.reader.facts(woken[0])
    assert bool(facts.request.machine.trust) is seen


@pytest.mark.req("BD-231")
def test_the_images_of_configs_and_builds_that_stay_are_in_use():
    """What a config shows is what nodes roll out to; what leaves holds nothing back."""
    world = MachineConfigWorld()
    world.show("MachineOSConfig", "worker", status={"currentImagePullSpec": "registry.example.com/os@sha256:1"})
    world.show("MachineOSConfig", "infra", status={"currentImagePullSpec": "no"}, deletionTimestamp=GONE)
    world.show("MachineOSBuild", "worker-2", status={"digestedImagePushSpec": "registry.example.com/os@sha256:2"})
    world.show("MachineOSBuild", "worker-1", status={"digestedImagePushSpec": "no"}, deletionTimestamp=GONE)
    assert set(world.reader.published()) == {"registry.example.com/os@sha256:1", "registry.example.com/os@sha256:2"}
    assert [world.reader.lives(f"uid-worker-{each}") for each in (1, 2, 3)] == [False, True, False]


@pytest.mark.req("BD-260")
@pytest.mark.parametrize(("replicas", "builds"), [(None, False), (1, False), (0, True)])
def test_a_stock_builder_counts_while_somebody_wants_it_to_run(replicas, builds):
    """A Deployment without replicas has one."""
    world = MachineConfigWorld()
    world.show("MachineOSConfig", "worker", spec={"machineConfigPool": {"name": "worker"}})
    world.show("Deployment", api.STOCK_DEPLOYMENT, spec={"replicas": replicas})
    ref = BuildRef("MachineOSConfig", api.NAMESPACE, "worker")
    found = world.reader.plan(world.reader.facts(ref))
    assert (found.reason != STOCK_BUILDER_REASON) is builds
