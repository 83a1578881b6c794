"""The conditions of the exporter's own Pod, and the pods of its node that have ended."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.errors import Unavailable
from polyarch.kube.informer import Informer
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import PODS
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone, Page
from polyarch.numa import names
from polyarch.numa.exporter.cluster import MAX_CONDITION_MESSAGE, OwnPod, PodPhase, TerminalPods, pods_of_node
from polyarch.objects import Condition, ObjectKey, ObjectMeta

FINE = Condition(names.PODRESOURCES_FETCHED, "True", "Scanned", "the last scan succeeded")
BROKEN = Condition(names.PODRESOURCES_FETCHED, "False", "ScanFailed", "list: no answer")


def api_with(*conditions: dict[str, str]) -> FakeApi:
    """The exporter's own Pod."""
    api = FakeApi()
    api.put(PODS, {"metadata": {"name": "rte-1", "namespace": "home"}, "status": {"conditions": list(conditions)}})
    return api


def conditions(api: FakeApi) -> dict[str, dict[str, str]]:
    return {each["type"]: each for each in api.read(PODS, "rte-1", "home")["status"]["conditions"]}


def written(api: FakeApi) -> list[list[dict[str, str]]]:
    """The conditions of each patch."""
    return [patch.document["status"]["conditions"] for _, patch in api.patches]


@asynccontextmanager
async def running(api):
    clock = ManualClock()
    pod = OwnPod(api, "home", "rte-1", clock=clock, chance=lambda: 0.5)
    task = asyncio.create_task(pod.run())
    try:
        yield SimpleNamespace(pod=pod, clock=clock, task=task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("NE-120")
async def test_conditions_are_written_when_they_change_and_only_then():
    api = api_with({"type": "Ready", "status": "False"})
    async with running(api) as world:
        for condition in (FINE, FINE, BROKEN, BROKEN, FINE):
            world.pod.set(condition)
            await world.clock.run(60)
        assert [[(each["type"], each["status"]) for each in patch] for patch in written(api)] == [
            [(names.PODRESOURCES_FETCHED, status)] for status in ("True", "False", "True")
        ]
        assert conditions(api)["Ready"] == {"type": "Ready", "status": "False"}


@pytest.mark.req("NE-120")
async def test_the_time_of_a_transition_moves_with_the_status_alone():
    api = api_with()
    async with running(api) as world:
        world.pod.set(BROKEN)
        await world.clock.run(60)
        since = conditions(api)[names.PODRESOURCES_FETCHED]["lastTransitionTime"]
        world.pod.set(msgspec.structs.replace(BROKEN, message="list: refused"))
        await world.clock.run(60)
        found = conditions(api)[names.PODRESOURCES_FETCHED]
        assert (found["lastTransitionTime"], found["message"]) == (since, "list: refused")
        world.pod.set(FINE)
        await world.clock.run(1)
        assert conditions(api)[names.PODRESOURCES_FETCHED]["lastTransitionTime"] != since


@pytest.mark.req("NE-120")
async def test_an_exporter_that_starts_again_writes_nothing_that_is_there_already():
    api = api_with({"type": FINE.type, "status": FINE.status, "reason": FINE.reason, "message": FINE.message})
    async with running(api) as world:
        world.pod.set(FINE)
        await world.clock.run(60)
        assert written(api) == []


@pytest.mark.req("NE-120")
async def test_a_write_that_fails_is_tried_again_with_what_is_true_by_then():
    api = api_with()
    api.refuse(PODS, "get", "patch", error=[Unavailable(503)])
    async with running(api) as world:
        world.pod.set(BROKEN)
        await world.clock.run(0.1)
        world.pod.set(FINE)
        await world.clock.run(30)
        assert [patch[0]["status"] for patch in written(api)] == ["True", "True"], "the first one was refused"


@pytest.mark.req("NE-120")
async def test_a_pod_that_is_gone_ends_the_writing_and_nothing_else():
    api = api_with()
    api.remove(PODS, "rte-1", "home")
    async with running(api) as world:
        world.pod.set(FINE)
        await world.clock.run(1)
        assert world.task.done()
        assert world.task.exception() is None
        world.pod.set(BROKEN)


@pytest.mark.req("NE-120")
async def test_the_cause_is_short():
    api = api_with()
    async with running(api) as world:
        world.pod.set(msgspec.structs.replace(BROKEN, message="x" * 5000))
        await world.clock.run(1)
        assert len(written(api)[0][0]["message"]) == MAX_CONDITION_MESSAGE


# -- pods that have ended ----------------------------------------------------------------------------------------------


class Nothing:
    """A client that is never asked: the test feeds the informer itself."""

    async def list_page(self, *_: Any, **__: Any) -> Page[Any]:
        raise AssertionError


def pod(name, phase, version):
    metadata = ObjectMeta(name=name, namespace="shop", uid=name, resource_version=str(version))
    return msgspec.convert({"metadata": msgspec.to_builtins(metadata), "status": {"phase": phase}}, PodPhase)


@pytest.mark.req("NE-068")
async def test_pods_that_succeeded_or_failed_are_terminal_from_the_first_scan_on():
    ended = []
    informer = Informer(Nothing(), PODS, PodPhase, selection=ListOptions(field_selector=pods_of_node("worker-1")))
    terminal = TerminalPods(informer, changed=lambda: ended.append(True))
    waiting = asyncio.create_task(terminal.known())
    await asyncio.sleep(0)
    assert not waiting.done(), "until all pods are known, scans wait"
    first = [pod("runs", "Running", 1), pod("done", "Succeeded", 2), pod("broken", "Failed", 3)]
    for output in (Init(), *map(InitApply, first), InitDone("3")):
        informer.take(output)
    await waiting
    assert terminal.names() == {("shop", "done"), ("shop", "broken")}
    assert ended == [], "what had ended before is nothing new"
    informer.take(Apply(pod("runs", "Succeeded", 4)))
    informer.take(Delete(ObjectKey("shop", "done"), "5"))
    assert (terminal.names(), ended) == ({("shop", "runs"), ("shop", "broken")}, [True])


@pytest.mark.req("NE-140")
def test_pods_are_asked_for_by_their_node():
    assert pods_of_node("worker-1") == "spec.nodeName=worker-1"
