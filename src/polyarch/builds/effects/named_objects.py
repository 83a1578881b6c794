"""Objects that are read by their names, as no watch shows them: one request each, only when a plan asks.

A Job that a record names and the watch by label does not show was deleted, or somebody took its label off (BD-324). A
RuntimeClass says by which handler pods run, and nodes say of handlers what they can do (BD-152).
"""

from typing import Any, Final, Protocol

import structlog

from polyarch.builds.facts.facts import FoundJob
from polyarch.builds.facts.jobs import JobObject, found_job
from polyarch.builds.facts.nodes import RuntimeClassObject
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.rbac import rule
from polyarch.kube.resources import JOBS, RUNTIME_CLASSES, Resource

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(JOBS, "get"), rule(RUNTIME_CLASSES, "get"))
"""RBAC rules in the whole cluster."""


class Api(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[Any]) -> Any: ...


class NamedObjects:
    """Asks the API server."""

    def __init__(self, client: Api) -> None:
        self._client = client

    async def job(self, namespace: str, name: str) -> FoundJob | None:
        """The Job; None if there is none, or it is being deleted."""
        try:
            return found_job(await self._client.get(JOBS, name, namespace=namespace, type=JobObject))
        except NotFound:
            return None

    async def runtime_handler(self, name: str) -> str | None:
        """The handler of a RuntimeClass; None if there is no such class. One that may not be read is taken to have the
        handler of its own name, as most do."""
        try:
            found = await self._client.get(RUNTIME_CLASSES, name, type=RuntimeClassObject)
        except NotFound:
            return None
        except Forbidden as error:
            log.warning("a RuntimeClass may not be read", runtime_class=name, error=str(error))
            return name
        handler: str = found.handler
        return handler
