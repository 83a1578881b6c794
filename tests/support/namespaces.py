"""Namespaces of tests."""

from collections.abc import Mapping

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import NAMESPACES, SERVICE_ACCOUNTS, Resource
from polyarch.sandbox.tasks import until

SECONDS = 60.0


async def create_namespace(client: Client, name: str, labels: Mapping[str, str] | None = None) -> None:
    """A namespace in which pods can be created: a controller has given it its ServiceAccount."""
    metadata = {"name": name, "labels": dict(labels or {})}
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    async def has_account() -> bool:
        try:
            await client.get(SERVICE_ACCOUNTS, "default", namespace=name)
        except NotFound:
            return False
        return True

    assert await until(has_account, seconds=SECONDS), f"namespace {name} has no ServiceAccount after {SECONDS:g} s"


async def is_served(client: Client, resource: Resource) -> bool:
    """Whether the API server answers for this version: discovery lists it a moment before."""
    try:
        await client.list(resource, limit=1)
    except NotFound:
        return False
    return True
