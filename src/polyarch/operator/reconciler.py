"""What the reconcilers of all components have in common.

A component has one reconciler: its objects are deployed while a custom resource or a flag asks for them, and are
uninstalled step by step afterwards. Every reconcile starts from what is there now, so it may be cut off anywhere, and
another replica goes on.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.apply import ApplyResult
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.metrics import Metrics
from polyarch.kube.owners import delete_object
from polyarch.kube.resources import Resource
from polyarch.objects import Condition, ObjectKey, PartialObjectMetadata
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.settings import OLDEST_KUBERNETES, ClusterCapabilities

log = structlog.get_logger(__name__)

STEP_TAKEN: Final = RequeueAfter(0.2)
"""A step was taken, or a cache does not show our own write yet."""
WAITING: Final = RequeueAfter(1.0)
"""Something of the cluster is waited for."""
CONTESTED: Final = RequeueAfter(30.0)
"""Another field manager keeps taking our fields back."""


class ComponentReconciler(Protocol):
    """The reconciler of one component, and what it watches."""

    def on_change(self, changed: Callable[..., None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""

    async def reconcile(self, key: ObjectKey) -> Result: ...


class ConditionMetrics:
    """The conditions of the operator's custom resources, as this process wrote them last."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauge = metrics.gauge(
            "polyarch_operator_condition",
            "Conditions of custom resources as the operator writes them: 1 if True, 0 if False, -1 if Unknown",
            ("kind", "type"),
        )
        self._shown: dict[str, set[str]] = {}

    def show(self, kind: str, conditions: Iterable[Condition]) -> None:
        """All conditions of the one object of a kind; none: it is gone."""
        values = {each.type: {"True": 1, "False": 0}.get(each.status, -1) for each in conditions}
        for gone in self._shown.get(kind, set()) - values.keys():
            self._gauge.remove(kind, gone)
        for type_, value in values.items():
            self._gauge.labels(kind, type_).set(value)
        self._shown[kind] = set(values)


class InitialSync:
    """Whether a new leader has reconciled all of these controllers once.

    Whoever waits for an operator after changed settings (``polyarch install --wait``) cannot tell "it has nothing to
    do" from "it has not begun" by the objects. The leader says it in its Lease. A reconcile that fails does not count,
    nor does one that ends with :data:`STEP_TAKEN`: it waits for a cache, or for its own write.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = set(names)

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def of(
        self, name: str, reconcile: Callable[[ObjectKey], Awaitable[Result]]
    ) -> Callable[[ObjectKey], Awaitable[Result]]:
        """The same reconcile, noted when it has ended."""

        async def noted(key: ObjectKey) -> Result:
            result = await reconcile(key)
            if result != STEP_TAKEN:
                self._missing.discard(name)
            return result

        return noted


def after_apply(outcome: ApplyResult, sets: OperandApplySets) -> Result:
    """The end of a reconcile that has applied these sets."""
    if outcome.contested:
        return CONTESTED
    return WAITING if outcome.leaving or not sets.is_complete else NoRequeue()


def needs_newer_kubernetes(cluster: ClusterCapabilities, what: str) -> str:
    """The problem if Kubernetes is too old to deploy anything; empty: there is none."""
    if cluster.version >= OLDEST_KUBERNETES:
        return ""
    return f"{what} need Kubernetes {'.'.join(map(str, OLDEST_KUBERNETES))} or newer"


async def exists(client: Client, resource: Resource, name: str, namespace: str = "") -> bool:
    """Whether the API server has this object, by a live read. Raises ``KubernetesError``."""
    try:
        await client.get(resource, name, namespace=namespace, type=PartialObjectMetadata)
    except NotFound:
        return False
    return True


def deletions_in_cluster(client: Client, sets: OperandApplySets) -> list[Callable[[], Awaitable[Any]]]:
    """Deletes the operands that have no namespace: all others go with that of the operator."""
    in_cluster = (ref for ref in sets.cached() if not ref.resource.namespaced)
    return [partial(delete_object, client, ref.resource, ref.key) for ref in in_cluster]


async def attempt_all(parts: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Run all parts, also after one has failed: in a namespace that is being deleted there is no second try."""
    for part in parts:
        try:
            await part()
        except KubernetesError as error:
            log.warning("left behind in a namespace that is being deleted", error=str(error))


def seconds_since(moment: str | None, clock: Clock) -> float:
    """Seconds since a timestamp of the API server; 0 without one."""
    return (clock.now() - msgspec.convert(moment, datetime)).total_seconds() if moment else 0.0
