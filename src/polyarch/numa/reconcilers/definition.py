"""Keeps the definition of NodeResourceTopology: made where there is none, completed where it lacks something (NO-044).

It is never owned and never deleted, since objects of other producers depend on it as well.
"""

from typing import Any, Final

import structlog

from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.resources import CRDS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import definition
from polyarch.numa.api.topology_sync import beyond_ours, is_behind
from polyarch.objects import Key, PartialObjectMetadata
from polyarch.operating.labels import PART_OF

log = structlog.get_logger(__name__)

NAME: Final = str(TOPOLOGIES)
NAMED: Final = 3
"""Fields that a log line names."""


class TopologyDefinition:
    """``cache``: the definition's metadata; it is read as a whole only when it is another one than last time."""

    def __init__(self, client: Client, cache: Informer[PartialObjectMetadata]) -> None:
        self._client = client
        self._cache = cache
        self._checked = ""

    async def sync(self, *, left_alone: bool) -> str:
        """Brings it up to date; why that failed, empty if it did not."""
        seen = self._cache.store.get(Key("", NAME))
        if left_alone or (seen is not None and seen.metadata.resource_version == self._checked):
            return ""
        try:
            self._checked = await self._sync()
        except KubernetesError as error:
            return f"CustomResourceDefinition {NAME}: {error}"
        return ""

    async def _sync(self) -> str:
        """Its resourceVersion afterwards."""
        ours = definition()
        try:
            installed: dict[str, Any] = await self._client.get(CRDS, NAME)
        except NotFound:
            written: PartialObjectMetadata = await self._client.apply(CRDS, _marked(ours))
            log.info("definition made", definition=NAME)
            return written.metadata.resource_version
        if not is_behind(installed, ours):
            if others := beyond_ours(installed, ours):
                log.info("definition left alone: it has more than ours", definition=NAME, more=others[:NAMED])
            return str(installed["metadata"]["resourceVersion"])
        made_by_us = PART_OF.items() <= (installed["metadata"].get("labels") or {}).items()
        written = await self._client.apply(CRDS, _marked(ours) if made_by_us else ours)
        log.info("definition completed", definition=NAME)
        return written.metadata.resource_version


def _marked(ours: dict[str, Any]) -> dict[str, Any]:
    """As one that we made, which an uninstall looks for; what is not applied again would be lost."""
    described = ours["metadata"]
    return {**ours, "metadata": {**described, "labels": {**described.get("labels", {}), **PART_OF}}}
