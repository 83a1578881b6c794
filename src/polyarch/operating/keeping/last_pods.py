"""Whether pods still run of a Deployment or DaemonSet that is gone: until they have ended they need their rights.

A Deployment goes at once when it is deleted, and its pods some seconds later: they finish what they do, write what they
have found, and give back their Leases. What they run with (ServiceAccount, roles, Secrets, Service) is deleted after
them. A pod on a node that does not answer never ends, so the patience with them ends.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, Ref, Resource
from polyarch.kube.responses import Listing
from polyarch.objects import PartialObjectMetadata
from polyarch.operating import names

log = structlog.get_logger(__name__)

PATIENCE: Final = 45.0
"""Seconds: the 30 s that a pod has to end in, and some until that is seen."""
RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class ListsPods(Protocol):
    """The part of the client that is needed here."""

    async def list(
        self,
        resource: Resource,
        *,
        type: type[PartialObjectMetadata],
        namespace: str,
        label_selector: str,
        field_selector: str,
    ) -> Listing[PartialObjectMetadata]: ...


class LastPods:
    """Pods in the namespace ``home``. What it remembers is since when it has waited for them."""

    def __init__(self, client: ListsPods, *, home: str, clock: Clock) -> None:
        self._client = client
        self._home = home
        self._clock = clock
        self._since: dict[frozenset[str], float] = {}

    async def run(self, left: Mapping[Ref, PartialObjectMetadata]) -> bool:
        """Whether to wait for pods before more of ``left`` is deleted, which are objects that belong together.

        False while a Deployment or DaemonSet is among them, which goes first, and once the patience has ended.
        """
        controllers = frozenset(
            (each.metadata.labels or {}).get(names.CONTROLLER_LABEL, "") for each in left.values()
        ) - {""}
        if not controllers or any(ref.resource in (DEPLOYMENTS, DAEMONSETS) for ref in left):
            self._since.pop(controllers, None)
            return False
        found = await self._client.list(
            PODS,
            type=PartialObjectMetadata,
            namespace=self._home,
            label_selector=f"{names.CONTROLLER_LABEL} in ({','.join(sorted(controllers))})",
            field_selector=RUNNING,
        )
        if not found.items:
            self._since.pop(controllers, None)
            return False
        since = self._since.setdefault(controllers, self._clock.monotonic())
        if self._clock.monotonic() - since < PATIENCE:
            return True
        log.warning("pods do not end: what they run with is deleted", pods=[each.metadata.name for each in found.items])
        return False
