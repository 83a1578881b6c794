"""What the extender writes, and with which rights: kicks, Bindings, Events, dumps."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from numa_extender import OURS, ExtenderWorld
from numa_nodes import cell, container, node, pod

from polyarch.kube.errors import Conflict, ConnectionFailed
from polyarch.kube.rbac import Permission, grants
from polyarch.kube.resources import NODES, PODS
from polyarch.numa import names
from polyarch.numa.extender.diagnostics import ResyncDebugFiles, StalenessCheck
from polyarch.numa.extender.requeue import CAPACITIES, NodeAnnotationSignal, StorageCapacitySignal
from polyarch.numa.extender.service import PodBinder
from polyarch.numa.extender.wire import ExtenderBindingArgs
from polyarch.numa.reservations import StaleExporter
from polyarch.operator.components.numa_scheduler_objects import extender_rules, kick_rules

WATCHED = {
    Permission(verb, group, plural)
    for verb in ("get", "list", "watch")
    for group, plural in (("topology.node.k8s.io", "noderesourcetopologies"), ("", "nodes"), ("", "pods"))
}
TOLD = {Permission(verb, "events.k8s.io", "events") for verb in ("create", "patch")}
REVIEWS = {
    Permission("create", "authentication.k8s.io", "tokenreviews"),
    Permission("create", "authorization.k8s.io", "subjectaccessreviews"),
}
USUAL = WATCHED | TOLD | REVIEWS
BUDGETS = {Permission(verb, "policy", "poddisruptionbudgets") for verb in ("list", "watch")}


@pytest.mark.req("NS-165")
def test_the_operator_lets_an_extender_read_tell_and_kick():
    assert set(grants(extender_rules(preempts=False))) == USUAL
    one = Permission("get", "storage.k8s.io", "csistoragecapacities", names.KICK)
    assert set(grants(kick_rules())) == {
        one,
        one._replace(verb="patch"),
        Permission("create", "storage.k8s.io", "csistoragecapacities"),
    }


@pytest.mark.req("NS-165")
def test_the_operator_lets_an_extender_evict_only_where_preemption_is_on():
    evicts = {Permission("create", "", "pods/eviction"), Permission("patch", "", "pods/status")} | BUDGETS
    assert set(grants(extender_rules(preempts=True))) == USUAL | evicts


def capacity(world):
    return world.api.read(CAPACITIES, names.KICK, "home")


def kicked(world):
    return [verb for verb, _, _ in world.api.requests]


@pytest.fixture
async def world():
    world = ExtenderWorld(node(cell(0, cpu=8, memory=16), name="a"))
    async with world.kicking(StorageCapacitySignal(world.api, "home")):
        yield world


@pytest.fixture
async def annotating():
    world = ExtenderWorld()
    async with world.kicking(NodeAnnotationSignal(world.api)):
        yield world


@pytest.mark.req("NS-141")
async def test_the_first_kick_makes_the_object_of_a_class_that_does_not_exist(world):
    world.kicks.wake("a")
    await world.clock.run(0)
    found = capacity(world)
    assert found["storageClassName"] == "polyarch-numa-kick"
    first = int(found["metadata"]["annotations"][names.KICKS])
    await world.clock.run(5)
    world.kicks.wake("a")
    await world.clock.run(0)
    assert int(capacity(world)["metadata"]["annotations"][names.KICKS]) > first
    assert "polyarch_numa_kicks_total 2.0" in world.page()


@pytest.mark.req("NS-140")
async def test_at_most_one_kick_a_second_and_the_last_wish_is_not_lost(world):
    world.kicks.wake("a")
    await world.clock.run(0)
    for _ in range(10):
        world.kicks.wake("a")
        await world.clock.run(0.05)
    assert kicked(world) == ["patch", "create"]
    await world.clock.run(1)
    assert kicked(world) == ["patch", "create", "patch"]
    await world.clock.run(10)
    assert kicked(world) == ["patch", "create", "patch"], "nobody wished for more"


@pytest.mark.req("NS-141")
async def test_a_kick_that_fails_is_tried_again(world):
    away = [ConnectionFailed("no API server")] * 2

    async def hook(verb, resource, name):
        if away:
            raise away.pop()

    world.api.hook = hook
    world.kicks.wake("a")
    await world.clock.run(5)
    assert capacity(world)["metadata"]["name"] == names.KICK


@pytest.mark.req("NS-141")
async def test_a_node_may_be_annotated_instead(annotating):
    annotating.api.put(NODES, {"metadata": {"name": "a"}})
    annotating.kicks.wake("a")
    await annotating.clock.run(0)
    assert annotating.api.read(NODES, "a")["metadata"]["annotations"][names.KICKS]


@pytest.mark.req("NS-141")
async def test_a_node_that_is_gone_is_not_annotated_for_ever(annotating):
    """The node with room was deleted before it could be annotated."""
    annotating.kicks.wake("gone")
    await annotating.clock.run(10)
    assert kicked(annotating) == ["patch"]


def binding():
    world = ExtenderWorld(node(cell(0, cpu=8, memory=16), name="a"), node(cell(0, cpu=2, memory=16), name="b"))
    world.api.put(PODS, {"metadata": {"name": "web", "namespace": "default", "uid": "web"}, "spec": {}})
    return world, PodBinder(world.api, world.engine, clock=world.clock)


def bound_to(world):
    return world.api.read(PODS, "web", "default")["spec"].get("nodeName")


def web(cpu=2.0):
    return pod(container("app", cpu=cpu, memory=1), name="web", scheduler_name=OURS)


ASKED = ExtenderBindingArgs("web", "default", "web", "a")


@pytest.mark.req("NS-088")
async def test_the_binding_is_made_and_the_reservation_is_bound_at_once():
    world, binds = binding()
    world.engine.filter(web(), ["a"], 1.0)
    assert await binds.bind(ASKED) == ""
    assert bound_to(world) == "a"
    (entry,) = world.books.reservations(1.0)
    assert entry.state == "bound"


@pytest.mark.req("NS-088")
async def test_without_room_there_is_no_binding():
    world, binds = binding()
    world.engine.filter(web(cpu=4), ["a"], 1.0)
    problem = await binds.bind(ExtenderBindingArgs("web", "default", "web", "b"))
    assert "cannot align" in problem
    assert not bound_to(world)


@pytest.mark.req("NS-088")
async def test_a_binding_that_is_refused_is_told_and_the_cells_stay_held_for_the_next_try():
    world, binds = binding()
    world.engine.filter(web(), ["a"], 1.0)
    conflict = Conflict(409, reason="Conflict", message="pod web is already assigned to node b")
    world.api.refuse(PODS, "bind", error=conflict)
    assert "already assigned" in await binds.bind(ASKED)
    (entry,) = world.books.reservations(1.0)
    assert entry.state == "held"


@pytest.mark.req("NS-088")
async def test_a_pod_that_did_not_pass_filter_is_not_bound():
    world, binds = binding()
    assert "filter" in await binds.bind(ASKED)
    assert not bound_to(world)


@pytest.mark.req("NS-107")
def test_one_event_for_each_silence_of_an_exporter():
    extender = ExtenderWorld()
    now, told = [], []
    recorder = SimpleNamespace(event=lambda regarding, **said: told.append((regarding.name, said["reason"])))
    silence = StalenessCheck(lambda _: now, recorder=recorder, metrics=extender.metrics)
    now[:] = [StaleExporter("a", 301.0)]
    silence.look(1.0)
    now[:] = [StaleExporter("a", 302.0), StaleExporter("b", 300.0)]
    silence.look(2.0)
    assert told == [("a", "ExporterSilent"), ("b", "ExporterSilent")]
    assert 'polyarch_numa_unsettled_seconds{node="a"} 302.0' in extender.page()
    now[:] = []
    silence.look(3.0)
    assert "unsettled_seconds{" not in extender.page()
    now[:] = [StaleExporter("a", 300.0)]
    silence.look(4.0)
    assert len(told) == 3, "another silence"


@pytest.mark.req("NS-107")
async def test_a_dump_is_written_as_a_whole_and_a_directory_that_is_not_there_ends_nothing(tmp_path):
    dumps = ResyncDebugFiles(str(tmp_path / "dumps"))
    task = asyncio.create_task(dumps.run())
    dumps.write("a", {"nodeName": "a"})
    await asyncio.sleep(0.05)
    (tmp_path / "dumps").mkdir()
    dumps.write("a", {"nodeName": "a", "fingerprintExpected": "pfp0v001"})
    async with asyncio.timeout(10):
        while not (tmp_path / "dumps" / "a.json").exists():
            await asyncio.sleep(0.01)
    assert json.loads((tmp_path / "dumps" / "a.json").read_bytes())["fingerprintExpected"] == "pfp0v001"
    assert [each.name for each in (tmp_path / "dumps").iterdir()] == ["a.json"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
