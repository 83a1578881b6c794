"""Pull secrets that a DaemonSet's pods have and its template does not name: those of their ServiceAccount (TN-031).

The API server adds them when it admits a pod, and the role may not read ServiceAccounts. So for a template whose images
fail with ``auth`` a pod of the DaemonSet is looked at, now and then.
"""

from typing import Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import KubernetesError
from polyarch.kube.requests import Selection
from polyarch.kube.resources import PODS, Resource
from polyarch.kube.watch import Page
from polyarch.objects import DaemonSet, Key, LocalObjectReference, Pod

log = structlog.get_logger(__name__)

EVERY: Final = 60.0
"""Seconds between two looks for one DaemonSet."""
LOOKED_AT: Final = 20
"""Pods that are listed: others may have the same labels."""


class ListsPods(Protocol):
    """The part of the client that is needed here."""

    async def list_page(
        self, resource: Resource, selection: Selection, *, type: type[Pod], continue_token: str = "", limit: int = ...
    ) -> Page[Pod]: ...


class PodPullSecrets:
    """What was found, by DaemonSet."""

    def __init__(self, client: ListsPods, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._found: dict[Key, tuple[str, ...]] = {}
        self._looked_at: dict[Key, float] = {}

    def given_to(self, key: Key, pod: Pod) -> Pod:
        """The pod of a template with the pull secrets that its like have."""
        own = [each.name for each in pod.spec.image_pull_secrets or ()]
        more = [name for name in self._found.get(key, ()) if name not in own]
        if not more:
            return pod
        secrets = [LocalObjectReference(name=name) for name in (*own, *more)]
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, image_pull_secrets=secrets))

    async def look(self, daemon_set: DaemonSet) -> bool:
        """Whether its pods have others than were known. At most once a minute, and never raises."""
        key, now = daemon_set.metadata.key, self._clock.monotonic()
        if now - self._looked_at.get(key, float("-inf")) < EVERY or daemon_set.spec.selector is None:
            return False
        self._looked_at[key] = now
        selection = Selection(key.namespace, daemon_set.spec.selector.query)
        try:
            page = await self._client.list_page(PODS, selection, type=Pod, limit=LOOKED_AT)
        except KubernetesError as error:
            log.warning("pods of a DaemonSet could not be listed", daemon_set=str(key), error=str(error))
            return False
        for pod in page.objects:
            if any(owner.uid == daemon_set.metadata.uid for owner in pod.metadata.owner_references or ()):
                names = tuple(each.name for each in pod.spec.image_pull_secrets or ())
                if names != self._found.get(key, ()):
                    self._found[key] = names
                    return True
                return False
        return False

    def forget(self, key: Key) -> None:
        """The DaemonSet is gone."""
        self._found.pop(key, None)
        self._looked_at.pop(key, None)
