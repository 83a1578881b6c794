"""What the API server serves: its version and the optional groups that operands need (PL-504, PL-720).

Groups come and go with their CRDs, so they are asked for once a minute.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.resources import Resource
from polyarch.operating import serving
from polyarch.operating.monitoring import scraping
from polyarch.operating.settings import Cluster

log = structlog.get_logger(__name__)

EVERY: Final = 60.0
OPENSHIFT: Final = "config.openshift.io"
MONITORING: Final = frozenset((scraping.SERVICE_MONITORS, scraping.RULES))
ISSUING: Final = frozenset((serving.ISSUERS, serving.CERTIFICATES))
OPTIONAL: Final = MONITORING | ISSUING
"""Kinds of CRDs that others install."""


class Discovery:
    """What was found last; ``cluster`` is None before the first answer."""

    def __init__(self, client: Client, changed: Callable[[], None], *, clock: Clock) -> None:
        self._client = client
        self._changed = changed
        self._clock = clock
        self.cluster: Cluster | None = None
        self.served: frozenset[Resource] = frozenset()
        self.release = ""
        """``gitVersion`` of the API server, such as ``v1.33.2``."""

    async def run(self) -> None:
        """Asks every minute until cancelled; what cannot be read stays as it was."""
        while True:
            await self._clock.sleep(EVERY)
            try:
                await self.look()
            except KubernetesError as error:
                log.warning("discovery failed", error=str(error))

    async def look(self) -> Cluster:
        """Asks once, and tells of a change. Raises ``KubernetesError``."""
        groups = {resource.group for resource in OPTIONAL}
        found = {group: await self._client.discover(group) for group in (OPENSHIFT, *sorted(groups))}
        served = frozenset(kind for kind in OPTIONAL if kind in found[kind.group])
        version = msgspec.json.decode(await self._client.raw("GET", "/version"))
        self.release = str(version.get("gitVersion") or "")
        cluster = Cluster(
            openshift=bool(found[OPENSHIFT]),
            monitoring=served >= MONITORING,
            version=version_of(version),
        )
        if (cluster, served) != (self.cluster, self.served):
            self.cluster, self.served = cluster, served
            log.info("discovered the cluster", cluster=msgspec.to_builtins(cluster), kinds=sorted(map(str, served)))
            self._changed()
        return cluster


def version_of(answer: dict[str, Any]) -> tuple[int, int]:
    """Major and minor of an answer to ``/version``; some providers write ``30+``."""
    major, minor = (int(re.match(r"\d*", str(answer.get(part, "")))[0] or 0) for part in ("major", "minor"))  # type: ignore[index]  # this pattern matches any text
    return major, minor
