"""On which platform the operator runs (NO-030), and which kinds exporters have objects of there.

The platform is asked for until there is an answer, and never guessed.
"""

from collections.abc import Collection, Mapping
from typing import Any

import structlog

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import Resource
from polyarch.numa.operator.detection import CLUSTER_VERSIONS, INFRASTRUCTURES, platform_of
from polyarch.numa.operator.exporters.openshift import CONSTRAINTS, MACHINE_CONFIGS
from polyarch.numa.operator.observed import Platform
from polyarch.operating.settings import OperatorSettings

log = structlog.get_logger(__name__)


class Platforms:
    """Remembers only what no later look can change: that a cluster is OpenShift's."""

    def __init__(self, client: Client, settings: OperatorSettings) -> None:
        self._client = client
        self._given = settings.platform
        self._known: Platform | None = None

    async def find(self, *, openshift: bool) -> Platform:
        """``openshift``: the API group of its configuration is served. Raises ``KubernetesError``: then ask again."""
        if self._given != "auto":
            return self._given
        if not openshift:
            return "kubernetes"
        if self._known is None and (found := await self._look()) is not None:
            self._known = found
            log.info("platform found", platform=found)
        return self._known or "kubernetes"

    async def _look(self) -> Platform | None:
        """None: the group is served, and nothing in it says that this is OpenShift. Others serve a part of it, too."""
        version = await self._read(CLUSTER_VERSIONS, "version")
        if version is None:
            return None
        infrastructure = await self._read(INFRASTRUCTURES, "cluster")
        return platform_of("auto", cluster_version=version, infrastructure=infrastructure)

    async def _read(self, resource: Resource, name: str) -> Mapping[str, Any] | None:
        try:
            return await self._client.get(resource, name)
        except NotFound:
            return None


def optional_kinds(platform: Platform, served: Collection[Resource]) -> frozenset[Resource]:
    """``served``: what discovery found of cert-manager and Prometheus."""
    openshift = {"openshift": (CONSTRAINTS, MACHINE_CONFIGS), "hypershift": (CONSTRAINTS,), "kubernetes": ()}
    return frozenset((*served, *openshift[platform]))
