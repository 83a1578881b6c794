"""What one tenant does to keep builds of others from starting, with a real API server, scheduler and builder."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import pytest
from builder_process import BUILDER_IMAGE, builder, define, image_build, runs, seed
from placement_cluster import until

from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, Resource

pytestmark = [pytest.mark.timeout(600), pytest.mark.req("BD-156")]

QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
BOUND: Final = 5.0
"""Seconds until the Job of somebody else is there, where the API server answers at once."""
RATIO: Final = 3.0
"""The same as a multiple of what the same requests take at that moment when a test makes them itself. Twenty pods that
start at once keep a small machine's API server busy, whoever made them: each request then takes a second or two."""
BUILDS: Final = 10
BOTH: Final = {"mode": "Explicit", "list": ["amd64", "arm64"]}
NOWHERE: Final = [{"architecture": each, "nodeSelector": {"no": "such"}} for each in ("amd64", "arm64")]


class Start(NamedTuple):
    """Seconds until a build has its Job, and for the same requests by hand."""

    took: float
    by_hand: float

    @property
    def is_late(self) -> bool:
        return self.took > max(BOUND, RATIO * self.by_hand)


class Tenants:
    """The hostile namespaces and the one that suffers, one registry that works and one that never answers."""

    def __init__(self, client: Client, registry: str, base: str, silent: str) -> None:
        self.client = client
        self.registry = registry
        self.base = base
        self.silent = silent
        self.victim = f"shop-{secrets.token_hex(4)}"
        self.control = f"control-{secrets.token_hex(4)}"
        self.namespaces: list[str] = []

    async def namespace(self, name: str) -> str:
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.namespaces.append(name)
        return name

    async def hog(self, prefix: str) -> str:
        return await self.namespace(f"{prefix}-{secrets.token_hex(4)}")

    async def build(self, namespace: str, name: str, *, base: str = "", repository: str = "", **spec: Any) -> None:
        wanted = {"architectures": BOTH, **spec}
        text = f"FROM {base or self.base}\nRUN true {namespace} {name}\n"
        target = f"{self.registry}/{repository or f'{namespace}/{name}'}"
        document = image_build(name, target, text, **wanted)
        await self.client.create(names.IMAGE_BUILDS, document, namespace=namespace)

    async def builds(self, namespace: str, **spec: Any) -> None:
        """Until each has had its Jobs; those that ended may be deleted."""
        for each in range(BUILDS):
            await self.build(namespace, f"hog{each}", **spec)
        seen = set[str]()

        async def made() -> bool:
            seen.update(each["metadata"]["uid"] for each in (await self.client.list(JOBS, namespace=namespace)).items)
            return len(seen) >= 2 * BUILDS

        await until(made, seconds=60)

    async def by_hand(self, name: str) -> float:
        """Seconds for the requests of a build that starts, without a builder."""
        loop, metadata = asyncio.get_running_loop(), {"name": f"by-hand-{name}"}
        begun = loop.time()
        await self.client.create(CONFIGMAPS, {"metadata": metadata}, namespace=self.control)
        await self.client.get(CONFIGMAPS, metadata["name"], namespace=self.control)
        for each in ("run", "inputs"):
            document = {"metadata": {"name": f"{metadata['name']}-{each}"}}
            await self.client.create(CONFIGMAPS, document, namespace=self.control)
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": BUILDER_IMAGE}]}}
        job = {"metadata": metadata, "spec": {"suspend": True, "template": template}}
        await self.client.create(JOBS, job, namespace=self.control)
        await self.client.list(JOBS, namespace=self.control)
        return loop.time() - begun

    async def starts(self, name: str) -> "Start":
        """A build of the other namespace, beside the same requests by hand."""
        took, by_hand = await asyncio.gather(self.started(name), self.by_hand(name))
        return Start(took, by_hand)

    async def started(self, name: str) -> float:
        """Seconds from the ImageBuild of the other namespace to its Job."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self.build(self.victim, name, architectures={"mode": "Explicit", "list": ["amd64"]})

        async def made() -> bool:
            found = (await self.client.list(JOBS, namespace=self.victim)).items
            return any(each["metadata"]["labels"].get(names.BUILD_LABEL) == name for each in found)

        await until(made, seconds=60)
        return loop.time() - begun


async def without_a_node(world: Tenants) -> None:
    namespace = await world.hog("nowhere")
    await world.builds(namespace, timeouts={"nodeWait": "168h"}, scheduling={"perArchitecture": NOWHERE})


async def without_a_place_by_quota(world: Tenants) -> None:
    namespace = await world.hog("quota")
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.client.create(QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota}, namespace=namespace)
    await world.builds(namespace)


async def larger_than_any_node(world: Tenants) -> None:
    namespace = await world.hog("large")
    asks = {"requests": {"cpu": "10k"}}
    sizes = [{"architecture": each, "resources": asks} for each in ("amd64", "arm64")]
    await world.builds(namespace, timeouts={"nodeWait": "168h"}, scheduling={"perArchitecture": sizes})


async def builds_that_never_end(world: Tenants) -> None:
    namespace = await world.hog("endless")
    await world.builds(namespace, source={"buildArgs": {"SANDBOX_BUILD": "seconds=3600"}})


async def builds_that_end_at_once(world: Tenants) -> None:
    await world.builds(await world.hog("quick"))


async def jobs_that_the_builder_did_not_make(world: Tenants) -> None:
    namespace = await world.hog("forged")
    for each in range(60):
        labels = {names.RUN_LABEL: f"forged-{each}", names.ROLE_LABEL: names.ARCH_ROLE}
        containers = [{"name": "x", "image": BUILDER_IMAGE}]
        template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": containers}}
        document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"j{each}", "labels": labels}}
        spec = {"suspend": True, "template": template}
        await world.client.create(JOBS, {**document, "spec": spec}, namespace=namespace)


async def a_registry_that_never_answers(world: Tenants) -> None:
    """Far more builds than the builder looks at side by side."""
    namespace = await world.hog("silent")
    async with asyncio.TaskGroup() as tasks:
        for each in range(150):
            tasks.create_task(world.build(namespace, f"hog{each}", base=f"{world.silent}/x{each}:1"))


async def the_repository_of_somebody_else(world: Tenants) -> None:
    namespace = await world.hog("name")
    for each in range(3):
        target = f"{world.victim}/beside-the-repository-of-somebody-else"
        await world.build(namespace, f"hog{each}", base=f"{world.silent}/x:1", repository=target)


async def finalizers_that_nobody_takes_off(world: Tenants) -> None:
    namespace = await world.hog("finalizers")
    await world.builds(namespace, timeouts={"nodeWait": "168h"}, scheduling={"perArchitecture": NOWHERE})
    held = MergePatch({"metadata": {"finalizers": ["example.com/never"]}})
    for each in await runs(world.client, namespace):
        await world.client.patch(names.IMAGE_BUILD_RUNS, each["metadata"]["name"], held, namespace=namespace)
    for each in (await world.client.list(JOBS, namespace=namespace)).items:
        await world.client.patch(JOBS, each["metadata"]["name"], held, namespace=namespace)
    for number in range(BUILDS):
        await world.client.delete(names.IMAGE_BUILDS, f"hog{number}", namespace=namespace)


HOGS: Final[tuple[Callable[[Tenants], Awaitable[None]], ...]] = (
    without_a_node,
    without_a_place_by_quota,
    larger_than_any_node,
    builds_that_end_at_once,
    builds_that_never_end,
    jobs_that_the_builder_did_not_make,
    finalizers_that_nobody_takes_off,
    the_repository_of_somebody_else,
    a_registry_that_never_answers,
)


@asynccontextmanager
async def silent_registry() -> AsyncIterator[str]:
    """Takes connections and never answers."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_builds_of_other_namespaces_start_whatever_tenants_do(sandbox, client, namespace, tmp_path):
    """All of it stays while the next is tried."""
    await define(client)
    base = f"quay.io/{namespace}/base:1"
    await seed(sandbox, base)
    async with silent_registry() as silent:
        conf = tmp_path / "registries.conf"
        conf.write_text(
            f"{sandbox.registries_conf.read_text()}\n"
            f'[[registry]]\nprefix = "{silent}"\nlocation = "{silent}"\ninsecure = true\n'
        )
        world = Tenants(client, sandbox.registry.address, base, silent)
        for each in (world.victim, world.control):
            await world.namespace(each)
        try:
            async with builder(sandbox, client, namespace, tmp_path, registries_conf=conf):
                took = {"nothing": await world.starts("beside-nothing")}
                for hog in HOGS:
                    await hog(world)
                    took[hog.__name__] = await world.starts(f"beside-{hog.__name__.replace('_', '-')}")
        finally:
            await tidy(world)
    (tmp_path / "took").write_text(repr(took))
    assert {name: start for name, start in took.items() if start.is_late} == {}


async def tidy(world: Tenants) -> None:
    free = MergePatch({"metadata": {"finalizers": None}})
    for namespace in world.namespaces:
        for resource in (names.IMAGE_BUILD_RUNS, JOBS):
            for each in (await world.client.list(resource, namespace=namespace)).items:
                if "example.com/never" in each["metadata"].get("finalizers", ()):
                    await world.client.patch(resource, each["metadata"]["name"], free, namespace=namespace)
        try:
            await world.client.delete(NAMESPACES, namespace)
        except NotFound:
            continue
