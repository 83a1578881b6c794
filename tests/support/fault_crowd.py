"""Pods of one scenario: created, watched until they are released, and counted by what became of them.

The pods ask for a scheduler that does not exist, so nothing but polyarch writes them: every write seen is polyarch's.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from fault_proxy import FaultProxy
from fault_table import Row
from namespaces import create_namespace
from own_roles import USERS
from placement_cluster import architectures, is_gated, labels, pod, until

from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, ApiError, ConnectionFailed
from polyarch.kube.informer import Informer
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox

PLATFORMS: Sequence[tuple[str, ...]] = (
    ("amd64", "arm64"),
    ("arm64", "s390x"),
    ("ppc64le", "s390x"),
    ("amd64", "ppc64le"),
)
"""What images of a scenario support, in turn: a pod placed by another's answer is told by it. Never one alone, as that
might be an operator bundle and would be looked into."""
AUDIT_DELAY = 1.5
IN_FLIGHT = 16
Expected = tuple[str, ...] | None
"""Architectures; None: no constraint is to be had (the image cannot be resolved)."""


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _AuditEvent(msgspec.Struct, rename="camel"):
    verb: str = ""
    user: _User = msgspec.field(default_factory=_User)
    object_ref: _Object | None = None
    response_status: _Status | None = None
    stage: str = ""


class AuditLog:
    """What polyarch asked the API server since this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._decode = msgspec.json.Decoder(_AuditEvent).decode

    async def events(self, namespace: str) -> list[_AuditEvent]:
        """Answered requests of polyarch's about a namespace; watches left out. The log is a second late."""
        await asyncio.sleep(AUDIT_DELAY)
        found = []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n") or namespace.encode() not in line:
                    continue
                event = self._decode(line)
                at = event.object_ref
                if event.stage != "ResponseComplete" or at is None or at.namespace != namespace:
                    continue
                if event.user.username in USERS and event.verb != "watch":
                    found.append(event)
        return found


class Crowd:
    """``writes``: how often a pod may be written, 2 where it may be told of as failing first."""

    def __init__(self, client: Client, namespace: str, audit: AuditLog, *, writes: int) -> None:
        self.client = client
        self.namespace = namespace
        self.expected: dict[str, Expected] = {}
        self.gated_at: dict[str, float] = {}
        self.released_at: dict[str, float] = {}
        self.began = asyncio.get_running_loop().time()
        self._audit = audit
        self._writes = writes

    def observe(self, change: ObjectChange[Pod]) -> None:
        if change.new is None:
            return
        now, name = asyncio.get_running_loop().time(), change.key.name
        gated = any(gate.name == names.GATE for gate in change.new.spec.scheduling_gates or ())
        (self.gated_at if gated else self.released_at).setdefault(name, now)

    async def create(
        self, images: Mapping[str, Expected], count: int, *, in_flight: int = IN_FLIGHT, **spec: Any
    ) -> list[str]:
        """So many pods of these images in turn; what the API server does not answer is sent again."""
        references = list(images)
        first = len(self.expected)
        jobs = [(f"pod-{first + at:04}", references[at % len(references)]) for at in range(count)]
        self.expected |= {name: images[image] for name, image in jobs}
        queue = iter(jobs)

        async def worker() -> None:
            for name, image in queue:
                await self._create(pod(image, name=name, **_SPEC, **spec))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(in_flight, count)):
                tasks.create_task(worker())
        return [name for name, _ in jobs]

    async def _create(self, document: dict[str, Any]) -> None:
        while True:
            try:
                await self.client.create(PODS, document, namespace=self.namespace)
                return
            except AlreadyExists:
                return
            except ConnectionFailed:
                await asyncio.sleep(0.2)
            except ApiError as error:
                if error.status not in (403, 429, 500, 503):  # 403: its caches after a restart are not complete
                    raise
                await asyncio.sleep(0.2)

    async def released(self, count: int | None = None, *, seconds: float) -> None:
        """Until so many pods (all, unless said otherwise) are without our gate. Too few is no error: it is counted."""
        wanted = len(self.expected) if count is None else count
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while len(self.released_at) < wanted and loop.time() < end:
            await asyncio.sleep(0.02)

    async def pods(self) -> dict[str, dict[str, Any]]:
        found = await self.client.list(PODS, namespace=self.namespace)
        return {each["metadata"]["name"]: each for each in found.items}

    async def row(self, scenario: str, *, registry: Iterable[FaultProxy] = (), **more: Any) -> Row:
        """What became of the pods, by what the API server has and has logged."""
        events = await self._audit.events(self.namespace)
        pods = await self.pods()
        row = Row(scenario=scenario, pods=len(self.expected), stall=self.stall(), **more)
        written: Counter[str] = Counter()
        for event in events:
            assert event.object_ref is not None
            if (event.verb, event.object_ref.resource) == ("patch", "pods"):
                ok = event.response_status is not None and event.response_status.code == 200
                written[event.object_ref.name] += ok
                row.refused_patches += not ok
        for name, expected in self.expected.items():
            document = pods.get(name)
            if document is None or is_gated(document):
                row.stuck += 1
                continue
            row.released += 1
            found = architectures(document)
            if names.SCHEDULING_GATE_LABEL not in labels(document):
                row.missed += 1
            elif expected is not None and found is None:
                row.unconstrained += 1
            elif set(found or ()) != set(expected or ()):
                row.wrong += 1
            # A gate is removed by one change of the spec; the audit log may lack the last second of a killed server.
            row.doubled += written[name] > self._writes or document["metadata"].get("generation", 1) > 2
        row.api_requests = round(len(events) / max(len(self.expected), 1), 2)
        row.registry_requests = sum(proxy.count(lambda seen: seen.at >= self.began) for proxy in registry)
        return row

    def stall(self, *, since: float = 0.0) -> float:
        """The longest time in which pods waited and none was released."""
        moments = [(at, 1) for name, at in self.gated_at.items()]
        moments += [(at, -1) for name, at in self.released_at.items() if name in self.gated_at]
        waiting, progress, widest = 0, 0.0, 0.0
        for at, step in sorted(moments):
            if step < 0 or not waiting:
                if step < 0 and at >= since:
                    widest = max(widest, at - max(progress, since))
                progress = at
            waiting += step
        return round(widest, 2)


_SPEC: dict[str, Any] = {"schedulerName": "nobody", "automountServiceAccountToken": False}


@asynccontextmanager
async def watched(client: Client, crowd: Crowd) -> AsyncIterator[None]:
    """The crowd sees its pods as they change."""
    informer: Informer[Pod] = Informer(client, PODS, Pod, selection=ListOptions(namespace=crowd.namespace))
    informer.add_handler(crowd.observe)
    watching = asyncio.create_task(informer.run())
    try:
        await informer.synced()
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


CASE = "fault-test"
"""Label of a namespace whose value names an override of :data:`POLICY`."""
POLICY: dict[str, Any] = {
    "overrides": [
        {"name": name, "namespaceSelector": {"matchLabels": {CASE: name}}, **spec}
        for name, spec in {
            "gated": {"inline": {"enabled": False}},
            "hold": {"inline": {"enabled": False}, "onUnresolved": {"action": "hold", "retryWindow": "5s"}},
            "short": {"inline": {"enabled": False}, "onUnresolved": {"action": "release", "retryWindow": "5s"}},
        }.items()
    ],
}
"""``spec`` of the PlacementPolicy."""
NAMESPACE_PREFIX = "faults-"


@asynccontextmanager
async def crowd_in(client: Client, audit_log: Path, case: str = "gated", *, writes: int = 1) -> AsyncIterator[Crowd]:
    """Pods in a namespace of their own; ``case`` is an override of the policy, empty for the defaults."""
    name = f"{NAMESPACE_PREFIX}{secrets.token_hex(4)}"
    await create_namespace(client, name, {CASE: case} if case else {})
    crowd = Crowd(client, name, AuditLog(audit_log), writes=writes)
    async with watched(client, crowd):
        yield crowd
    await client.delete(NAMESPACES, name)


async def seed(sandbox: Sandbox, host: str, count: int, *, folder: str = "", **more: Any) -> dict[str, Expected]:
    """New images of ``host``, which are in ``folder`` of the sandbox's registry, and the architectures of each."""
    prefix = secrets.token_hex(3)
    images: dict[str, Expected] = {}
    described = {}
    for at in range(count):
        supported = PLATFORMS[at % len(PLATFORMS)]
        repository = f"{prefix}-{at}"
        platforms = [f"linux/{architecture}" for architecture in supported]
        described[f"{sandbox.registry.address}/{folder or host}/{repository}:1"] = {"platforms": platforms, **more}
        images[f"{host}/{repository}:1"] = supported
    await sandbox.registry.seed(described)
    return images


__all__ = ["AuditLog", "Crowd", "Expected", "crowd_in", "seed", "until", "watched"]
