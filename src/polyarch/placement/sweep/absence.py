"""Whether the API server can call the pod webhook, and when it can again (PL-370).

Two objects are watched, each by its name, so that no right beyond them is needed: the webhook configuration, and the
Deployment behind it. A cluster without that Deployment (the webhook runs elsewhere) is judged by the configuration
alone. What else may keep the API server from calling is not seen here, but the pods that it missed are found by the
next sweep.
"""

from collections.abc import Callable

import msgspec

from polyarch.kube.informer import OnDemand, Shares
from polyarch.kube.resources import DEPLOYMENTS, MUTATING_WEBHOOKS
from polyarch.kube.store import Change
from polyarch.objects import ObjectMeta, PartialObjectMetadata
from polyarch.placement import names


class DeploymentStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """apps/v1 DeploymentStatus: how many replicas serve."""

    available_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, gc=False):
    """apps/v1 Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    status: DeploymentStatus | None = None


class Absence:
    """``returned`` is called when the webhook is back, or was changed so that it may be."""

    def __init__(self, informers: Shares, *, namespace: str, returned: Callable[[], None]) -> None:
        self._configuration = OnDemand(
            informers,
            MUTATING_WEBHOOKS,
            PartialObjectMetadata,
            self._configuration_changed,
            name=names.WEBHOOK_CONFIGURATION,
        )
        self._deployment = OnDemand(
            informers, DEPLOYMENTS, Deployment, self._deployment_changed, namespace=namespace, name=names.WEBHOOK
        )
        self._returned = returned
        self._is_configured = False
        self._is_available = True

    @property
    def is_over(self) -> bool:
        """The webhook is registered, and a replica of it serves."""
        return self._is_configured and self._is_available

    def watch(self, wanted: bool) -> None:
        """Starts or ends the watches."""
        self._configuration.want(wanted)
        self._deployment.want(wanted)
        if not wanted:
            self._is_configured, self._is_available = False, True

    def _configuration_changed(self, change: Change[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        self._is_configured = new is not None
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._returned()

    def _deployment_changed(self, change: Change[Deployment]) -> None:
        was_available = self._is_available
        status = change.new.status if change.new is not None else None
        self._is_available = change.new is None or (status is not None and status.available_replicas > 0)
        if self._is_available and not was_available:
            self._returned()
