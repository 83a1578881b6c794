"""Load on a real API server: create many pods concurrently, and measure for each the time until it may be scheduled.

A pod is *released* when it exists without a scheduling gate: either in the answer to the create request, or with the
watch event that shows it without the gate. Times are milliseconds since the create request.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import Pod


@dataclass
class Run:
    """The result of one run; ``seconds`` is the time from the first creation to the last release."""

    pods: int = 0
    seconds: float = 0.0
    released_ms: dict[str, float] = field(default_factory=dict)
    create_ms: list[float] = field(default_factory=list)
    inline: int = 0
    constrained: int = 0
    unreleased: list[str] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.released_ms) / self.seconds if self.seconds else 0.0

    @property
    def times(self) -> list[float]:
        return list(self.released_ms.values())


def pod(image: str, *, name: str = "", generate: str = "load-", secrets: Iterable[str] = ()) -> dict[str, Any]:
    """A pod as a controller writes it, about 2 KiB when stored."""
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": generate}
    metadata["labels"] = {"app": "load", "pod-template-hash": "5d4f8c7b96"}
    container = {
        "name": "main",
        "image": image,
        "command": ["/bin/service", "--listen", ":8080"],
        "env": [{"name": f"SETTING_{number}", "value": "x" * 16} for number in range(8)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    }
    # An unknown scheduler: measurement ends when the pod may be scheduled.
    spec: dict[str, Any] = {"containers": [container], "schedulerName": "nobody", "terminationGracePeriodSeconds": 0}
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def gated(pod: Pod) -> bool:
    return bool(pod.spec.scheduling_gates)


def constrained(pod: Pod) -> bool:
    return pod.required is not None


async def make_namespace(client: Client, name: str, labels: Mapping[str, str] | None = None) -> str:
    """Create a namespace and wait for its default ServiceAccount, without which it accepts no pods."""
    await client.create(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}},
    )
    probe = pod("registry.example.com/probe:1", name="probe")
    for _ in range(200):
        try:
            await client.create(PODS, probe, namespace=name, dry_run=True, retry=False)
            return name
        except Exception as error:
            if "serviceaccount" not in str(error):
                raise
            await asyncio.sleep(0.05)
    raise TimeoutError(f"namespace {name} has no default ServiceAccount after 10 s")


async def drive(
    client: Client,
    namespace: str,
    documents: Iterable[dict[str, Any]],
    *,
    in_flight: int = 32,
    per_second: float | None = None,
    deadline: float = 120.0,
    on_released: Callable[[int], None] | None = None,
) -> Run:
    """Create the pods, ``in_flight`` at a time or ``per_second``, until all are released or ``deadline`` ends."""
    run = Run()
    sent: dict[str, float] = {}
    seen_free: dict[str, tuple[float, bool]] = {}
    progress = asyncio.Event()

    def changed(change: ObjectChange[Pod]) -> None:
        if change.new is not None and not gated(change.new):
            name = change.key.name
            if name not in seen_free:
                seen_free[name] = (time.perf_counter(), constrained(change.new))
                progress.set()
                if on_released is not None:
                    on_released(len(seen_free))

    informer: Informer[Pod] = Informer(client, PODS, Pod, selection=ListOptions(namespace=namespace))
    informer.add_handler(changed)
    watching = asyncio.create_task(informer.run())
    await informer.synced()
    queue = iter(list(documents))
    begin = time.perf_counter()

    async def create(document: dict[str, Any]) -> None:
        started = time.perf_counter()
        created = await client.create(PODS, document, namespace=namespace, type=Pod)
        ended = time.perf_counter()
        name = created.metadata.name
        run.pods += 1
        run.create_ms.append((ended - started) * 1000)
        sent[name] = started
        if not gated(created):
            run.inline += 1
            run.released_ms[name] = (ended - started) * 1000
            run.constrained += constrained(created)

    async def worker() -> None:
        for document in queue:
            await create(document)

    try:
        if per_second is None:
            await asyncio.gather(*(worker() for _ in range(in_flight)))
        else:
            async with asyncio.TaskGroup() as group:
                for number, document in enumerate(queue):
                    await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
                    group.create_task(create(document))
        end = time.perf_counter()
        limit = end + deadline
        while missing := [name for name in sent if name not in run.released_ms and name not in seen_free]:
            progress.clear()
            try:
                await asyncio.wait_for(progress.wait(), max(0.0, min(limit - time.perf_counter(), 1.0)))
            except TimeoutError:
                if time.perf_counter() >= limit:
                    run.unreleased = missing
                    break
        for name, (at, has_constraint) in seen_free.items():
            if name in sent and name not in run.released_ms:
                run.released_ms[name] = (at - sent[name]) * 1000
                run.constrained += has_constraint
                end = max(end, at)
        run.seconds = end - begin
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return run


async def watch_released(
    client: Client, namespace: str, count: int, *, start: Callable[[], Awaitable[object]], deadline: float = 120.0
) -> Run:
    """Call ``start``, then wait until ``count`` pods that a controller creates are released; times since ``start``."""
    run = Run()
    enough = asyncio.Event()
    begin = 0.0

    def changed(change: ObjectChange[Pod]) -> None:
        if change.new is None or change.key.name in run.released_ms or gated(change.new):
            return
        run.released_ms[change.key.name] = (time.perf_counter() - begin) * 1000
        run.constrained += constrained(change.new)
        if len(run.released_ms) >= count:
            enough.set()

    informer: Informer[Pod] = Informer(client, PODS, Pod, selection=ListOptions(namespace=namespace))
    informer.add_handler(changed)
    watching = asyncio.create_task(informer.run())
    try:
        await informer.synced()
        begin = time.perf_counter()
        await start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), deadline)
        run.seconds = max(run.times, default=0.0) / 1000
        run.pods = len(run.released_ms)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return run
