"""What goes after a deletion or when a node leaves its group, in which order, and that it ends."""

from typing import Any

import pytest
from fake_api import FakeApi
from fake_recorder import FakeRecorder
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, ObjectRef, Resource
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import ObjectKey, PartialObjectMetadata, Unstructured
from polyarch.operator.components.numa_cluster import TopologyPoller
from polyarch.operator.components.numa_exporter_reconciler import ExporterUninstaller
from polyarch.operator.components.numa_scheduler_objects import CAPACITIES
from polyarch.operator.components.numa_scheduler_reconciler import SchedulerUninstaller

HOME = "home"
DAEMON_SET = ObjectRef(DAEMONSETS, ObjectKey(HOME, "numaresourcesoperator-all"))


class Sets:
    """The operands, as far as they are asked for here."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    async def live(self) -> dict[ObjectRef, PartialObjectMetadata]:
        listed = await self._api.list(DAEMONSETS, type=PartialObjectMetadata)
        return {ObjectRef(DAEMONSETS, each.metadata.key): each for each in listed.items}


class NumaUninstallWorld:
    def __init__(self) -> None:
        self.clock, self.api, self.told = ManualClock(), FakeApi(), FakeRecorder()
        api: Any = self.api
        told: Any = self.told
        sets: Any = Sets(self.api)
        self.exporters = ExporterUninstaller(api, sets, told, namespace=HOME, clock=self.clock)
        self.scheduler = SchedulerUninstaller(api, told, namespace=HOME, clock=self.clock)
        self.census = TopologyPoller(api, self.clock)

    def put(self, resource: Resource, name: str, *, namespace: str = "", **metadata: Any) -> None:
        spec = {"nodeName": metadata.pop("node", "")}
        self.api.put(
            resource, {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec, "zones": []}
        )

    def deleted(self, kind: Resource, name: str, **status: Any) -> Unstructured:
        """The custom resource, whose deletion was asked for now."""
        moment = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        document = {
            "metadata": {"name": name, "uid": "u", "finalizers": [names.FINALIZER], "deletionTimestamp": moment},
            "status": status,
        }
        self.api.put(kind, document)
        return self.live(kind, name)

    def live(self, kind: Resource, name: str) -> Unstructured:
        return Unstructured(self.api.read(kind, name))

    def is_free(self, kind: Resource, name: str) -> bool:
        return (kind, "", name) not in self.api.objects


@pytest.fixture
def world() -> NumaUninstallWorld:
    made = NumaUninstallWorld()
    made.put(DAEMONSETS, DAEMON_SET.key.name, namespace=HOME)
    made.put(PODS, "exporter", namespace=HOME, labels=dict(names.EXPORTER_POD_LABELS), node="a")
    for node, labels in (("a", {names.NODE_GROUP_LABEL: "all"}), ("foreign", {})):
        made.put(TOPOLOGIES, node, labels=labels)
    return made


@pytest.mark.req("NO-072")
async def test_exporters_first_then_what_they_published_then_the_object(world: NumaUninstallWorld) -> None:
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    assert await world.exporters.uninstall(live, at_once=False) == RequeueAfter(1.0)
    assert world.api.deleted == [DAEMON_SET.key.name]
    assert await world.exporters.uninstall(live, at_once=False) == RequeueAfter(1.0)
    assert world.api.deleted == [DAEMON_SET.key.name], "its pod would write the object again"
    await world.api.delete(PODS, "exporter", namespace=HOME)
    await world.exporters.uninstall(live, at_once=False)
    assert world.api.deleted[-1] == "a"
    assert not world.is_free(OPERATORS, names.OPERATOR_SINGLETON)
    assert await world.exporters.uninstall(live, at_once=False) == NoRequeue()
    assert world.is_free(OPERATORS, names.OPERATOR_SINGLETON)
    assert (TOPOLOGIES, "", "foreign") in world.api.objects
    assert world.told.events == []


@pytest.mark.req("NO-072")
async def test_after_two_minutes_it_is_let_go_and_an_event_says_what_is_left(world: NumaUninstallWorld) -> None:
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    await world.exporters.uninstall(live, at_once=False)
    world.clock.advance(119)
    await world.exporters.uninstall(live, at_once=False)
    assert not world.is_free(OPERATORS, names.OPERATOR_SINGLETON)
    world.clock.advance(1)
    assert await world.exporters.uninstall(live, at_once=False) == NoRequeue()
    assert world.is_free(OPERATORS, names.OPERATOR_SINGLETON)
    ((reason, _, note),) = world.told.events
    assert reason == "CleanupIncomplete"
    assert "pods home/exporter" in note


@pytest.mark.req("NO-072")
@pytest.mark.parametrize(
    ("resource", "name", "namespace", "labels"),
    [
        (DAEMONSETS, DAEMON_SET.key.name, HOME, {}),
        (PODS, "exporter", HOME, dict(names.EXPORTER_POD_LABELS)),
        (TOPOLOGIES, "a", "", {names.NODE_GROUP_LABEL: "all"}),
    ],
    ids=["DaemonSet", "Pod", "NodeResourceTopology"],
)
async def test_what_others_hold_is_named_with_its_finalizer(
    world: NumaUninstallWorld, resource: Resource, name: str, namespace: str, labels: dict[str, str]
) -> None:
    held = {"finalizers": ["example.com/held"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put(resource, name, namespace=namespace, labels=labels, **held)
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    for _ in range(4):
        await world.exporters.uninstall(live, at_once=False)
    world.clock.advance(120)
    await world.exporters.uninstall(live, at_once=False)
    ((_, _, note),) = world.told.events
    assert f"{resource.kind} {f'{namespace}/' * bool(namespace)}{name} is held by finalizer example.com/held" in note


@pytest.mark.req("NO-072")
async def test_a_node_that_is_down_does_not_keep_the_topologies_of_all_others(world: NumaUninstallWorld) -> None:
    """Its pod stays until somebody deletes the Node."""
    world.put(TOPOLOGIES, "up", labels={names.NODE_GROUP_LABEL: "all"})
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    await world.exporters.uninstall(live, at_once=False)
    assert await world.exporters.uninstall(live, at_once=False) == RequeueAfter(1.0)
    assert (TOPOLOGIES, "", "up") not in world.api.objects
    assert (TOPOLOGIES, "", "a") in world.api.objects
    world.clock.advance(120)
    assert await world.exporters.uninstall(live, at_once=False) == NoRequeue()
    assert (TOPOLOGIES, "", "a") not in world.api.objects


@pytest.mark.req("NO-072")
async def test_when_the_namespace_goes_the_topologies_go_before_the_rights(world: NumaUninstallWorld) -> None:
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    assert await world.exporters.uninstall(live, at_once=True) == NoRequeue()
    assert world.api.deleted == [DAEMON_SET.key.name, "a"]
    assert (TOPOLOGIES, "", "foreign") in world.api.objects
    ((reason, _, note),) = world.told.events
    assert reason == "CleanupIncomplete"
    assert "pods home/exporter" in note


@pytest.mark.req("NO-072")
async def test_an_object_of_another_name_takes_nothing_with_it(world: NumaUninstallWorld) -> None:
    """A manifest that was copied with its finalizer, under a definition that does not check names."""
    live = world.deleted(OPERATORS, "copied")
    assert await world.exporters.uninstall(live, at_once=False) == NoRequeue()
    assert world.is_free(OPERATORS, "copied")
    assert world.api.deleted == []


@pytest.mark.req("NO-072")
async def test_a_missing_right_does_not_keep_the_object_for_ever(world: NumaUninstallWorld) -> None:
    async def refused(verb: str, resource: Resource, name: str) -> None:
        if (verb, resource) == ("delete", DAEMONSETS):
            raise Forbidden(403, verb="delete", resource="daemonsets.apps", name=name)

    world.api.hook = refused
    live = world.deleted(OPERATORS, names.OPERATOR_SINGLETON)
    with pytest.raises(Forbidden):
        await world.exporters.uninstall(live, at_once=False)
    world.clock.advance(120)
    assert await world.exporters.uninstall(live, at_once=False) == NoRequeue()
    ((_, _, note),) = world.told.events
    assert "delete daemonsets.apps" in note


@pytest.mark.req("NO-071")
async def test_a_node_that_left_all_groups_loses_its_object_once_its_exporter_is_gone(
    world: NumaUninstallWorld,
) -> None:
    await world.census.look()
    assert await world.exporters.delete_stale(world.census, {"all": ("a",)}) == 0
    assert world.api.deleted == []
    assert await world.exporters.delete_stale(world.census, {"all": ()}) == 1, "its exporter still ends"
    assert world.api.deleted == []
    await world.api.delete(PODS, "exporter", namespace=HOME)
    assert await world.exporters.delete_stale(world.census, {"all": ()}) == 0
    assert world.api.deleted[-1] == "a"
    assert (TOPOLOGIES, "", "foreign") in world.api.objects
    asked = len(world.api.requests)
    await world.exporters.delete_stale(world.census, {"all": ()})
    assert len(world.api.requests) == asked, "nothing is left to look at"


@pytest.mark.req("NO-073")
async def test_the_scheduler_goes_with_its_kick_object_and_pods_that_wait_are_told(world: NumaUninstallWorld) -> None:
    world.put(DEPLOYMENTS, names.SCHEDULER, namespace=HOME)
    world.put(CAPACITIES, "polyarch-numa-kick", namespace=HOME)
    for number in range(120):
        metadata = {"name": f"pending-{number}", "namespace": "team"}
        pending = {"metadata": metadata, "spec": {"schedulerName": "numa"}, "status": {"phase": "Pending"}}
        world.api.put(PODS, pending)
    live = world.deleted(SCHEDULERS, names.SCHEDULER_SINGLETON, schedulerName="numa")
    assert await world.scheduler.uninstall(live, at_once=False) == RequeueAfter(1.0)
    assert world.api.deleted == [names.SCHEDULER, "polyarch-numa-kick"]
    assert world.told.events == []
    assert await world.scheduler.uninstall(live, at_once=False) == NoRequeue()
    assert world.is_free(SCHEDULERS, names.SCHEDULER_SINGLETON)
    assert len(world.told.events) == 100
    selector = "spec.schedulerName=numa,spec.nodeName=,status.phase=Pending"
    assert ("list", str(PODS), selector) in world.api.requests
