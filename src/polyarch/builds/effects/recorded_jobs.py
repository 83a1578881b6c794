"""Reads a Job by its name, where a record names it and the watch by label does not show it (BD-324).

One request, only when a Job was deleted or somebody took its label off.
"""

from typing import Protocol

from polyarch.builds.facts.facts import FoundJob
from polyarch.builds.facts.jobs import JobObject, found_job
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import JOBS, Resource


class Api(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[JobObject]) -> JobObject: ...


class RecordedJobs:
    """Asks the API server."""

    def __init__(self, client: Api) -> None:
        self._client = client

    async def find(self, namespace: str, name: str) -> FoundJob | None:
        """The Job; None if there is none, or it is being deleted."""
        try:
            return found_job(await self._client.get(JOBS, name, namespace=namespace, type=JobObject))
        except NotFound:
            return None
