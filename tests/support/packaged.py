"""A cluster whose nodes run polyarch, on which a test installs a package and removes it again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from placement_cluster import pod

from polyarch.installation import uninstall, wait
from polyarch.installation.inventory import InventoryObject, survey
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS, NAMESPACES, PODS, Resource
from polyarch.objects import PartialObjectMetadata
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock

NAMESPACE = "polyarch-system"
SECONDS = 120.0
Document = dict[str, Any]


class Packaged:
    """The cluster before, with and after polyarch."""

    def __init__(self, sandbox: Sandbox, client: Client, before: dict[str, InventoryObject]) -> None:
        self.sandbox = sandbox
        self.client = client
        self._before = before

    def values(self) -> Document:
        """What an installation has to know here: the registry's mirrors, and that it is on loopback."""
        conf = self.sandbox.registries_conf.read_text()
        return {"registries": {"configuration": conf, "allowAddresses": ["127.0.0.0/8"]}}

    async def available(self, *switched_on: Resource) -> None:
        """Until the operator runs, and what these kinds of custom resources switch on is available."""
        await wait.available(
            self.client, NAMESPACE, switched_on=switched_on, seconds=SECONDS, tell=lambda _: None, every=0.2
        )

    async def placed(self, namespace: str, image: str) -> Document:
        """A new pod with this image, once it has its constraint."""
        await self.sandbox.registry.seed({image: ["linux/arm64"]})
        await self.client.create(PODS, pod(image, automountServiceAccountToken=False), namespace=namespace)

        async def constrained() -> Any:
            found = await self.client.get(PODS, "app", namespace=namespace)
            return found if "nodeAffinity" in (found["spec"].get("affinity") or {}) else None

        return dict(await self.until(constrained))

    async def gone(self, resource: Resource, name: str, namespace: str = "") -> None:
        async def absent() -> bool:
            try:
                await self.client.get(resource, name, namespace=namespace)
            except NotFound:
                return True
            return False

        await self.until(absent)

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := await condition()):
                await asyncio.sleep(0.2)
        return found

    async def deployments(self) -> list[str]:
        found = await self.client.list(DEPLOYMENTS, namespace=NAMESPACE, type=PartialObjectMetadata)
        return sorted(each.metadata.name for each in found.items)

    async def left(self) -> set[str]:
        """What is there now and was not before."""
        return (await everything(self.client)).keys() - self._before.keys()


async def everything(client: Client) -> dict[str, InventoryObject]:
    seen = await survey(client)
    assert not seen.unread
    return {str(each.ref): each for each in seen.found}


@asynccontextmanager
async def packaged(sandbox: Sandbox) -> AsyncIterator[Packaged]:
    """For one test alone; whatever it left is removed."""
    async with file_lock(sandbox.folder.root / ".packaged.lock"), sandbox.client() as client:
        cluster = Packaged(sandbox, client, await everything(client))
        try:
            yield cluster
        finally:
            await uninstall.remove(client, NAMESPACE, force=True, tell=lambda _: None)
            # `helm install --create-namespace` made it, and nobody removes it with the release.
            with suppress(NotFound):
                await client.delete(NAMESPACES, NAMESPACE)
            await cluster.gone(NAMESPACES, NAMESPACE)
