"""An API server in memory that also serves watches of single objects by name, and can be made to refuse any request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from memory_api import MemoryApi

from polyarch.kube.errors import ApiError, Forbidden, NotFound
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NODES, Resource
from polyarch.kube.watch import Bookmark, ObjectChanged, ObjectDeleted, Page
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import ObjectKey

NODE = "worker-1"


class FollowedApi(MemoryApi):
    """``refuse`` maps a verb to the error that it gets; ``(verb, resource)`` is in ``requests`` either way."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: dict[tuple[str, Resource], ApiError] = {}
        self.served = True
        self.silent = False
        """Watches are open, but show nothing."""
        self._streams: list[tuple[Resource, str, asyncio.Queue[Any]]] = []

    def refuse(self, resource: Resource, *verbs: str, error: ApiError | None = None) -> None:
        for verb in verbs:
            self.refusals[verb, resource] = error or Forbidden(403, reason="Forbidden", verb=verb)

    def allow(self) -> None:
        self.refusals.clear()

    def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        super().delete(resource, name, namespace)
        self.version += 1
        self._tell(resource, name, ObjectDeleted(ObjectKey(namespace, name), str(self.version)))

    def node(self, uid: str, **status: Any) -> None:
        """Registers the Node, perhaps again."""
        self.put(NODES, {"metadata": {"name": NODE, "uid": uid}, "status": status})

    def topology(self) -> dict[str, Any]:
        return self.read(TOPOLOGIES, NODE)

    def verbs(self, resource: Resource = TOPOLOGIES) -> list[str]:
        """Of all requests for this resource but watches and lists."""
        return [verb for verb, name, _ in self.requests if name == str(resource) and verb not in ("watch", "list")]

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: Any, continue_token: str = "", limit: int = 500
    ) -> Page[Any]:
        name = _name(selection)
        await self._before("list", resource, name)
        return Page([msgspec.convert(each, type) for each in self._named(resource, name)], str(self.version))

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        selection: ListOptions,
        *,
        type: Any,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncIterator[Any]:
        name = _name(selection)
        await self._before("watch", resource, name)
        events: asyncio.Queue[Any] = asyncio.Queue()
        entry = (resource, name, events)
        if initial_events:
            for each in self._named(resource, name):
                events.put_nowait(each)
            events.put_nowait(Bookmark(str(self.version), initial_end=True))
        self._streams.append(entry)
        try:
            yield _stream(events, type)
        finally:
            self._streams.remove(entry)

    async def is_served(self, resource: Resource) -> bool:
        return self.served

    async def _before(self, verb: str, resource: Resource, name: str) -> None:
        await super()._before(verb, resource, name)
        if not self.served and resource is TOPOLOGIES:
            raise NotFound(404, reason="NotFound", message="the server could not find the requested resource")
        if (error := self.refusals.get((verb, resource))) is not None:
            raise error

    def _named(self, resource: Resource, name: str) -> list[dict[str, Any]]:
        found = self.objects.get((resource, "", name))
        return [found] if found is not None else []

    def _store(self, resource: Resource, document: dict[str, Any]) -> dict[str, Any]:
        stored = super()._store(resource, document)
        self._tell(resource, stored["metadata"]["name"], stored)
        return stored

    def _tell(self, resource: Resource, name: str, event: Any) -> None:
        for watched, of, events in self._streams:
            if not self.silent and (watched, of) == (resource, name):
                events.put_nowait(event)


def _name(selection: ListOptions) -> str:
    field, _, name = selection.field_selector.partition("=")
    assert field == "metadata.name", "an exporter never watches more than its own objects"
    return name


async def _stream(events: asyncio.Queue[Any], type: Any) -> AsyncIterator[list[Any]]:
    while True:
        event = await events.get()
        yield [ObjectChanged(msgspec.convert(event, type)) if isinstance(event, dict) else event]
