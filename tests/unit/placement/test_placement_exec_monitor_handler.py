"""What the handler does with an ENoExecEvent, by its facts."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import ApiError, Conflict, NotFound, Unavailable
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import NODES, PODS
from polyarch.objects import ObjectKey
from polyarch.placement import names
from polyarch.placement.api import ENOEXECEVENTS, ENoExecEvent
from polyarch.placement.exec_monitor_handler import ATTEMPT_TIMEOUT, Handler

HOME = "polyarch-system"
ID = "3f" * 32
KEY = ObjectKey(HOME, "e")
STATUS = {"nodeName": "worker-1", "podName": "cart", "podNamespace": "shop", "containerID": f"cri-o://{ID}"}
ERROR = names.ENOEXEC_EVENT_ERROR_LABEL


class ExecMonitorHandlerWorld:
    """An API server that has one ENoExecEvent, one pod and one node; ``failures`` are raised by the next requests."""

    def __init__(self, status: Mapping[str, Any] | None = STATUS, *, namespace: str = HOME, **labels: str) -> None:
        self.key = ObjectKey(namespace, "e")
        metadata = {"name": "e", "namespace": namespace, "uid": "u", "labels": labels}
        self.events = {self.key: {"metadata": metadata, "status": status}}
        self.objects: dict[tuple[Any, str], Any] = {
            (PODS, "shop/cart"): {
                "metadata": {"name": "cart", "namespace": "shop", "uid": "p", "labels": {}},
                "spec": {"nodeName": "worker-1"},
                "status": {"containerStatuses": [{"name": "app", "containerID": f"cri-o://{ID}"}]},
            },
            (NODES, "worker-1"): {"metadata": {"name": "worker-1", "labels": {names.ARCH_KEY: "arm64"}}},
        }
        self.failures: list[Exception] = []
        self.requests: list[str] = []
        self.told: list[tuple[Regarding, str]] = []
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.handler = Handler(
            self,
            self,
            home=HOME,
            post=lambda pod, note: self.told.append((pod, note)),
            clock=self.clock,
            metrics=self.metrics,
        )

    @property
    def pod(self) -> Any:
        return self.objects[PODS, "shop/cart"]

    @property
    def error(self) -> str | None:
        return self.events[self.key]["metadata"]["labels"].get(ERROR)

    @property
    def is_consumed(self) -> bool:
        return self.key not in self.events

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    async def reconcile(self) -> Result:
        return await self.handler.reconcile(self.key)

    # -- the cache and the client --------------------------------------------------------------------------------------

    def get(self, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 2:
            return self._read(*arguments, **options)
        found = self.events.get(arguments[0])
        return None if found is None else msgspec.convert(found, ENoExecEvent)

    async def _read(self, resource: Any, name: str, *, namespace: str = "", type: Any) -> Any:
        self._asked("get", resource, name)
        path = f"{namespace}/{name}" if namespace else name
        if (resource, path) not in self.objects:
            raise NotFound(404)
        return msgspec.convert(self.objects[resource, path], type)

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "") -> Any:
        self._asked("patch", resource, name)
        metadata = self.pod["metadata"] if resource == PODS else self.events[ObjectKey(namespace, name)]["metadata"]
        change = patch.document["metadata"]
        if change.get("uid", metadata["uid"]) != metadata["uid"]:
            raise Conflict(409)
        metadata["labels"].update(change["labels"])

    async def delete(self, resource: Any, name: str, *, namespace: str = "", uid: str | None = None) -> None:
        self._asked("delete", resource, name)
        assert (resource, uid) == (ENOEXECEVENTS, "u")
        del self.events[ObjectKey(namespace, name)]

    def _asked(self, verb: str, resource: Any, name: str) -> None:
        self.requests.append(f"{verb} {resource.plural} {name}")
        if self.failures:
            raise self.failures.pop(0)


@pytest.mark.req("PL-610")
async def test_the_pod_gets_an_event_and_a_label_and_the_report_goes() -> None:
    world = ExecMonitorHandlerWorld()
    assert await world.reconcile() == NoRequeue()
    assert world.requests == ["get pods cart", "get nodes worker-1", "patch pods cart", "delete enoexecevents e"]
    assert world.pod["metadata"]["labels"] == {names.EXEC_FORMAT_ERROR_LABEL: "true"}
    ((pod, note),) = world.told
    assert (pod.kind, pod.namespace, pod.name, pod.uid) == ("Pod", "shop", "cart", "p")
    assert note == (
        "Container app ran a program that node worker-1 (arm64) cannot execute (exec format error): a binary for"
        " another architecture, or a script without a #! line."
    )
    assert world.is_consumed
    assert world.value("mto_enoexecevents_total") == 1
    assert world.value("polyarch_exec_format_error_pods_total", namespace="shop") == 1
    assert world.value("mto_enoexecevents_invalid_total") == 0


@pytest.mark.req("PL-610")
async def test_a_pod_that_has_the_label_is_not_patched() -> None:
    world = ExecMonitorHandlerWorld()
    world.pod["metadata"]["labels"][names.EXEC_FORMAT_ERROR_LABEL] = "true"
    await world.reconcile()
    assert "patch pods cart" not in world.requests
    assert len(world.told) == 1
    assert world.is_consumed


CONTAINERS = {
    "another runtime's prefix": ({"containerStatuses": [("app", f"containerd://{ID}")]}, "Container app ran"),
    "an init container": ({"initContainerStatuses": [("setup", f"cri-o://{ID}")]}, "Container setup ran"),
    "an ephemeral container": ({"ephemeralContainerStatuses": [("debug", f"cri-o://{ID}")]}, "Container debug ran"),
}


@pytest.mark.req("PL-610")
@pytest.mark.parametrize(("statuses", "begin"), CONTAINERS.values(), ids=CONTAINERS)
async def test_the_container_is_named_if_its_id_is_known(statuses: dict[str, Any], begin: str) -> None:
    world = ExecMonitorHandlerWorld()
    world.pod["status"] = {
        kind: [{"name": name, "containerID": each} for name, each in several] for kind, several in statuses.items()
    }
    await world.reconcile()
    assert world.told[0][1].startswith(begin)


@pytest.mark.req("PL-610")
async def test_the_container_before_a_restart_is_known() -> None:
    world = ExecMonitorHandlerWorld()
    last = {"terminated": {"containerID": f"cri-o://{ID}"}}
    statuses = [{"name": "app", "containerID": f"cri-o://{'1' * 64}", "lastState": last}]
    world.pod["status"] = {"containerStatuses": statuses}
    await world.reconcile()
    assert world.told[0][1].startswith("Container app ran")


FOREIGN: dict[str, Any] = {
    "no container of this id": {"containerStatuses": [{"name": "app", "containerID": f"cri-o://{'0' * 64}"}]},
    "no id yet": {"containerStatuses": [{"name": "app", "containerID": ""}, {"name": "b", "lastState": {}}]},
    "no status": {},
    "an id that only begins so": {"containerStatuses": [{"name": "app", "containerID": f"cri-o://{ID[:-1]}"}]},
}


@pytest.mark.req("PL-611")
@pytest.mark.parametrize("status", FOREIGN.values(), ids=FOREIGN)
async def test_a_report_about_a_container_that_the_pod_never_has_tells_nobody(status: dict[str, Any]) -> None:
    """The kubelet may be late to say which containers there are; after a minute it is not late any more."""
    world = ExecMonitorHandlerWorld()
    world.pod["status"] = status
    assert await world.reconcile() == RequeueAfter(0.5)
    assert not world.is_consumed
    world.clock.advance(60)
    await world.reconcile()
    assert world.is_consumed
    assert world.told == []
    assert not any(each.startswith("patch pods") for each in world.requests)


async def looked(world: ExecMonitorHandlerWorld, until: float) -> list[float]:
    """Reconciles as the controller does, and returns the times; stops at a time, or once the report is consumed."""
    times: list[float] = []
    start = world.clock.monotonic()
    while (time := world.clock.monotonic() - start) <= until and not world.is_consumed:
        times.append(time)
        result = await world.reconcile()
        if isinstance(result, RequeueAfter):
            world.clock.advance(result.seconds)
    return times


@pytest.mark.req("PL-611")
async def test_a_container_that_the_kubelet_tells_of_late_is_told_of() -> None:
    world = ExecMonitorHandlerWorld()
    status, world.pod["status"] = world.pod["status"], {}
    await looked(world, 1.3)
    world.pod["status"] = status
    times = await looked(world, 60)
    assert world.told[0][1].startswith("Container app ran")
    assert len(times) == 1


@pytest.mark.req("PL-611")
async def test_a_pod_without_the_container_is_looked_at_often_and_then_rarely() -> None:
    """A kubelet takes one or two seconds. The node is not read before the container is known."""
    world = ExecMonitorHandlerWorld()
    world.pod["status"] = {}
    times = await looked(world, 70)
    assert [each for each in times if each <= 2] == [0.0, 0.5, 1.0, 1.5]
    assert times[-1] == 60
    assert len(times) < 25
    assert set(world.requests) == {"get pods cart", "delete enoexecevents e"}


@pytest.mark.req("PL-611")
async def test_a_container_that_is_restarted_meanwhile_is_named_and_no_other_one() -> None:
    """Each start has an id of its own: the report is about one start, whichever the pod has now."""
    world = ExecMonitorHandlerWorld()
    before = {"terminated": {"containerID": f"containerd://{ID}"}}
    others = [{"name": name, "containerID": f"containerd://{letter * 64}"} for name, letter in (("a", "a"), ("b", "b"))]
    world.pod["status"] = {"containerStatuses": others}
    await looked(world, 1)
    assert world.told == []
    restarted = {"name": "b", "containerID": f"containerd://{'c' * 64}", "lastState": before}
    world.pod["status"] = {"containerStatuses": [others[0], restarted]}
    await looked(world, 60)
    assert [note[:16] for _, note in world.told] == ["Container b ran "]


@pytest.mark.req("PL-610")
@pytest.mark.parametrize("gone", [(PODS, "shop/cart"), (NODES, "worker-1")], ids=["pod", "node"])
async def test_a_report_about_what_is_gone_is_deleted(gone: Any) -> None:
    world = ExecMonitorHandlerWorld()
    del world.objects[gone]
    await world.reconcile()
    assert world.is_consumed
    assert world.told == []
    assert not any(each.startswith("patch") for each in world.requests)


@pytest.mark.req("PL-610")
async def test_a_pod_on_another_node_is_not_labelled() -> None:
    world = ExecMonitorHandlerWorld()
    world.pod["spec"]["nodeName"] = "worker-2"
    await world.reconcile()
    assert world.is_consumed
    assert (world.told, world.pod["metadata"]["labels"]) == ([], {})


@pytest.mark.req("PL-610")
async def test_a_pod_that_is_replaced_meanwhile_is_not_labelled() -> None:
    world = ExecMonitorHandlerWorld()
    original = world._read

    async def read(resource: Any, name: str, **options: Any) -> Any:
        found = await original(resource, name, **options)
        if resource == NODES:
            world.pod["metadata"]["uid"] = "another"
        return found

    world._read = read  # type: ignore[method-assign]
    await world.reconcile()
    assert world.is_consumed
    assert (world.told, world.pod["metadata"]["labels"]) == ([], {})


@pytest.mark.req("PL-610")
async def test_an_event_in_another_namespace_is_labelled_and_left() -> None:
    world = ExecMonitorHandlerWorld(namespace="shop")
    await world.reconcile()
    assert world.error == "wrong-namespace"
    assert world.requests == ["patch enoexecevents e"]
    await world.reconcile()
    assert world.requests == ["patch enoexecevents e"], "once"
    assert world.value("mto_enoexecevents_invalid_total") == 1


@pytest.mark.req("PL-610")
async def test_an_event_without_status_is_left_alone_for_a_minute() -> None:
    """The node side writes the status after the object."""
    world = ExecMonitorHandlerWorld(None)
    assert await world.reconcile() == RequeueAfter(60.0)
    world.clock.advance(30)
    assert await world.reconcile() == RequeueAfter(30.0)
    world.clock.advance(30)
    assert await world.reconcile() == NoRequeue()
    assert world.error == "pod-not-found"
    world.requests.clear()
    await world.reconcile()
    assert world.requests == []


@pytest.mark.req("PL-610")
async def test_a_status_that_comes_late_is_handled_all_the_same() -> None:
    world = ExecMonitorHandlerWorld(**{ERROR: "pod-not-found"})
    await world.reconcile()
    assert world.is_consumed


@pytest.mark.req("PL-610")
async def test_passing_errors_are_retried_for_ten_minutes() -> None:
    world = ExecMonitorHandlerWorld()
    for _ in range(20):
        world.failures = [Unavailable(503)]
        with pytest.raises(Unavailable):
            await world.reconcile()
        world.clock.advance(29)
    world.clock.advance(21)
    world.failures = [Unavailable(503)]
    await world.reconcile()
    assert world.error == "reconciliation-error"
    world.requests.clear()
    await world.reconcile()
    assert world.requests == [], "left to the administrator"


@pytest.mark.req("PL-610")
async def test_an_outage_of_the_api_server_gives_nothing_up() -> None:
    """What is tried first after it is the event itself, not its label."""
    world = ExecMonitorHandlerWorld()
    world.failures = [Unavailable(503)]
    with pytest.raises(Unavailable):
        await world.reconcile()
    world.clock.advance(3600)
    await world.reconcile()
    assert world.is_consumed


@pytest.mark.req("PL-610")
async def test_an_api_server_that_does_not_answer_is_a_passing_error() -> None:
    world = ExecMonitorHandlerWorld()

    async def never(*_: Any, **__: Any) -> Any:
        await world.clock.sleep(1e9)

    world._read = never  # type: ignore[method-assign]
    task = asyncio.create_task(world.reconcile())
    await world.clock.run(ATTEMPT_TIMEOUT)
    with pytest.raises(TimeoutError):
        await task


@pytest.mark.req("PL-610")
@pytest.mark.parametrize("error", [NotFound(404), Conflict(409)], ids=["gone", "replaced"])
async def test_an_event_that_is_gone_already_is_fine(error: ApiError) -> None:
    world = ExecMonitorHandlerWorld()
    original = world.delete

    async def delete(*arguments: Any, **options: Any) -> None:
        await original(*arguments, **options)
        raise error

    world.delete = delete  # type: ignore[method-assign]
    assert await world.reconcile() == NoRequeue()
    assert await world.reconcile() == NoRequeue()


@pytest.mark.req("PL-610")
async def test_an_event_that_is_being_deleted_is_left() -> None:
    world = ExecMonitorHandlerWorld()
    world.events[KEY]["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    await world.reconcile()
    assert world.requests == []
