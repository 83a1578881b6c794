"""What has to be known before the first node of an architecture is tainted (TN-025).

The webhook's registration and its endpoints are watched here (``plan.availability`` judges them); DaemonSets and
unscheduled pods are asked of the rooms that watch them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from polyarch.kube.informer import Informer
from polyarch.kube.rbac import rule
from polyarch.kube.resources import ENDPOINT_SLICES, MUTATING_WEBHOOKS
from polyarch.kube.store import IndexFunction
from polyarch.objects import Key
from polyarch.taints.decide.rollout import Safety
from polyarch.taints.names import ROLE
from polyarch.taints.plan.availability import EndpointSlice, WebhookConfiguration, admission_problem

RIGHTS: Final = (rule(MUTATING_WEBHOOKS, "list", "watch", names=[ROLE]),)
"""RBAC rules for all namespaces."""
RIGHTS_AT_HOME: Final = (rule(ENDPOINT_SLICES, "list", "watch"),)
"""RBAC rules for the namespace in which polyarch runs."""
SERVICE_LABEL: Final = "kubernetes.io/service-name"


class KnowsSafety(Protocol):
    """What is known of an architecture before its first node is tainted."""

    def of(self, architecture: str) -> Safety: ...


class KnowsUncovered(Protocol):
    """The part of the room ``daemonsets`` that is needed here."""

    def uncovered(self, architecture: str) -> Sequence[str] | None:
        """DaemonSets with a pod on such a node and without the toleration; None: not known yet."""


class KnowsUndecided(Protocol):
    """The part of the room ``unscheduled`` that is needed here."""

    def undecided(self, architecture: str) -> Sequence[str] | None:
        """Unscheduled pods that may run there and wait for answers; None: not known yet."""


class KnowsRunning(Protocol):
    """The part of the room ``unscheduled`` that goes through the pods on nodes."""

    @property
    def is_done(self) -> bool:
        """They tolerate what they should, or the policy leaves them alone."""


class Watches(Protocol):
    """The part of a process that is needed here."""

    def informer(
        self,
        resource: Any,
        type: type[Any],
        /,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: dict[str, IndexFunction[Any]] | None = None,
    ) -> Informer[Any]: ...


class ClusterSafety:
    """The facts, from caches. ``namespace`` is where polyarch runs."""

    def __init__(
        self,
        watches: Watches,
        *,
        namespace: str,
        daemon_sets: KnowsUncovered,
        pods: KnowsUndecided,
        running: KnowsRunning,
    ) -> None:
        self._namespace = namespace
        self._daemon_sets = daemon_sets
        self._pods = pods
        self._running = running
        self._configurations: Informer[WebhookConfiguration] = watches.informer(
            MUTATING_WEBHOOKS, WebhookConfiguration, field_selector=f"metadata.name={ROLE}"
        )
        self._slices: Informer[EndpointSlice] = watches.informer(
            ENDPOINT_SLICES, EndpointSlice, namespace=namespace, label_selector=f"{SERVICE_LABEL}={ROLE}"
        )

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls ``handler`` when the webhook's registration or its endpoints change."""
        for informer in (self._configurations, self._slices):
            informer.add_handler(lambda _: handler())

    def of(self, architecture: str) -> Safety:
        """What is known of one architecture."""
        return Safety(
            admission=self.admission,
            uncovered=self._daemon_sets.uncovered(architecture),
            undecided=self._pods.undecided(architecture),
            running_prepared=self._running.is_done,
        )

    @property
    def admission(self) -> str:
        """Why the webhook for pods is not registered or not available; empty: it is both."""
        return admission_problem(
            self._configurations.store.get(Key("", ROLE)), self._slices.store.values(), namespace=self._namespace
        )
