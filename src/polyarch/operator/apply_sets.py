"""What the operator makes, in the cluster: what is cached of it, and how it is applied and deleted.

Kinds that every API server has are one apply set; each kind of a CRD that others install is another, which exists while
the kind is served. All are labelled as one part, so that nothing made by an earlier version or setting is forgotten.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog

from polyarch import names
from polyarch.clock import Clock
from polyarch.kube.apply import ApplyFailed, ApplyOperation, ApplyResult, ApplySet, Handler
from polyarch.kube.client import Client
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer, InformerFactory
from polyarch.kube.owners import delete_object
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    ObjectRef,
    Resource,
    by_kind,
    few,
)
from polyarch.kube.watch import KubernetesObject
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.operands import RolloutStatus

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)
Document = dict[str, Any]
Found = dict[ObjectRef, PartialObjectMetadata]

PREDECESSORS: Final = ("manager", "multiarch-tuning-operator")
"""Field managers of the predecessor's operator, whose fields are ours now."""
IN_CLUSTER: Final = (
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    MUTATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
IN_NAMESPACE: Final = (
    SERVICE_ACCOUNTS,
    SECRETS,
    CONFIGMAPS,
    SERVICES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    DEPLOYMENTS,
    DAEMONSETS,
)
RESTORED: Final = "PolyarchRestored"
"""The reason of events on operands."""
IMMUTABLE: Final = {
    "Deployment": ("spec", "selector"),
    "DaemonSet": ("spec", "selector"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "ClusterRole": ("aggregationRule",),
}
"""Kinds with a field that cannot be changed; of a ClusterRole by nobody but cluster administrators."""
GRANTED: Final = (ROLES, ROLE_BINDINGS)
"""Kinds in the operator's namespace and in those where a role may do more."""
POD_DRAIN_TIMEOUT: Final = 45.0
"""Seconds: the 30 s that a pod has to end in, and some until that is seen."""
RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class OperandApplySets:
    """The apply sets of one component. ``kinds``: pairs of a resource and a namespace; the objects' label ``label`` has
    the value ``part_of``."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        kinds: Iterable[tuple[Resource, str]],
        *,
        namespace: str,
        label: str = names.OPERAND_LABEL,
        part_of: str,
        clock: Clock,
        recorder: Recorder,
        required: bool = True,
    ) -> None:
        """``required``: the process is not ready before all kinds are cached. ``recorder`` tells on an operand what was
        put right."""
        self._recorder = recorder
        self._client = client
        self._informers = informers
        self._clock = clock
        self._namespace = namespace
        self._label = label
        self._part = part_of
        caches = informers if required else OptionalInformers(informers)
        self._main = ApplySet(client, caches, kinds=kinds, label=label, former=PREDECESSORS, clock=clock)
        self._optional: dict[Resource, tuple[ApplySet, OptionalInformers]] = {}
        self._handlers: list[Handler] = []
        self._pod_drain = PodDrain(client, namespace=namespace, clock=clock)

    def add_handler(self, handler: Handler) -> None:
        """Calls ``handler`` with every change of an operand."""
        self._handlers.append(handler)
        for apply_set in self._sets():
            apply_set.add_handler(handler)

    def serve(self, kinds: Iterable[Resource]) -> None:
        """The optional kinds that the API server has now."""
        served = set(kinds)
        for kind in served - self._optional.keys():
            caches = OptionalInformers(self._informers)
            namespace = self._namespace if kind.namespaced else ""
            apply_set = ApplySet(self._client, caches, kinds=[(kind, namespace)], label=self._label, clock=self._clock)
            for handler in self._handlers:
                apply_set.add_handler(handler)
            self._optional[kind] = apply_set, caches
            log.info("kind of operands is served", kind=str(kind))
        for kind in self._optional.keys() - served:
            self._optional.pop(kind)[1].close()
            log.info("kind of operands is no longer served", kind=str(kind))

    def get(self, resource: Resource, name: str) -> Unstructured | None:
        """An operand from the cache."""
        namespace = self._namespace if resource.namespaced else ""
        return self._main.get(resource, ObjectKey(namespace, name))

    def rollout(self, deployment: str) -> RolloutStatus:
        """How far a Deployment is, from the cache."""
        found = self.get(DEPLOYMENTS, deployment)
        return RolloutStatus.of(found.document if found is not None else None)

    def trusted_ca(self, resource: Resource, name: str) -> str:
        """``caBundle`` of a webhook configuration as it is now, from the cache; empty: none."""
        found = self.get(resource, name)
        webhooks = (found.document.get("webhooks") if found is not None else None) or [{}]
        return str((webhooks[0].get("clientConfig") or {}).get("caBundle") or "")

    async def apply(self, documents: Iterable[Document], *, keeps: Callable[[ObjectMeta], bool]) -> ApplyResult:
        """Applies the documents and prunes what is not among them. Those of an optional kind wait until it is cached.

        Raises :class:`ApplyFailed` after everything was tried.
        """
        desired: dict[ApplySet, list[Document]] = {apply_set: [] for apply_set in self._sets()}
        for document in documents:
            await self._delete_if_unchangeable(document)
            desired[self._set_of(document)].append(document)
        outcomes: list[ApplyResult] = []
        failures = {}
        for apply_set, wanted in desired.items():
            if not apply_set.has_synced:
                continue
            try:
                outcomes.append(await apply_set.apply(wanted, part_of=self._part, keeps=keeps))
            except ApplyFailed as error:
                outcomes.append(error.outcome)
                failures.update(error.failures)
        outcome = ApplyResult(
            *(
                tuple(part for outcome in outcomes for part in getattr(outcome, field))
                for field in ("applied", "deleted", "leaving", "contested", "repeated")
            )
        )
        for step in outcome.applied:
            self._post_restored(step)
        if failures:
            raise ApplyFailed(failures, outcome)
        return outcome

    def changed_by_others(self, documents: Iterable[Document]) -> tuple[ApplyOperation, ...]:
        """What somebody else has changed or deleted of these, by the caches."""
        return tuple(
            step
            for document in documents
            for step in self._set_of(document).changed_by_others([document], part_of=self._part)
        )

    def _set_of(self, document: Document) -> ApplySet:
        for kind, (apply_set, _) in self._optional.items():
            if (kind.api_version, kind.kind) == (document["apiVersion"], document["kind"]):
                return apply_set
        return self._main

    def _post_restored(self, step: ApplyOperation) -> None:
        """Post on an operand that others had changed what was put right, and who had changed it."""
        if not step.taken:
            return
        (resource, key), done = step.ref, "made again" if step.remade else "put right"
        found = self._set_of(step.document).get(resource, key)
        uid = found.metadata.uid if found is not None else ""
        note = (
            f"{done}, since it was changed: {few(f'{conflict.field} by {conflict.manager}' for conflict in step.taken)}"
        )
        self._recorder.event(
            Regarding(resource.api_version, resource.kind, key.namespace, key.name, uid),
            type="Warning",
            reason=RESTORED,
            action="Restore",
            note=note,
        )

    async def _delete_if_unchangeable(self, document: Document) -> None:
        """Delete an object that differs in a field that cannot be changed: it is created again."""
        resource = by_kind(document["apiVersion"], document["kind"]) if document["kind"] in IMMUTABLE else None
        found = self.get(resource, document["metadata"]["name"]) if resource is not None else None
        if resource is None or found is None or found.metadata.deletion_timestamp is not None:
            return
        field = IMMUTABLE[document["kind"]]  # an item of a list need not say its kind
        if _member(document, field) != _member(found.document, field):
            log.warning(
                "deleted an object, to create it with another immutable field",
                object=str(ObjectRef(resource, found.metadata.key)),
            )
            await delete_object(self._client, resource, found.metadata.key, uid=found.metadata.uid)

    @property
    def is_complete(self) -> bool:
        """Every cache is complete."""
        return all(apply_set.has_synced for apply_set in self._sets())

    async def live(self) -> Found:
        """Every operand that there is, by live lists."""
        found: Found = {}
        for apply_set in self._sets():
            found |= await apply_set.live(self._part)
        return found

    async def remove(self, found: Mapping[ObjectRef, PartialObjectMetadata]) -> None:
        """One step of deleting these operands, dependents first; what pods run with goes once they have ended."""
        if await self._pod_drain.is_waited_for(found):
            return
        by_set: dict[ApplySet, Found] = {}
        for ref, operand in found.items():
            optional = self._optional.get(ref.resource)
            by_set.setdefault(optional[0] if optional is not None else self._main, {})[ref] = operand
        for apply_set, operands in by_set.items():
            await apply_set.remove(operands)

    def _sets(self) -> list[ApplySet]:
        return [self._main, *(apply_set for apply_set, _ in self._optional.values())]

    def has_any_of(self, controllers: Collection[str]) -> bool:
        """Whether the caches show an object of one of these Deployments or DaemonSets."""
        cached = (sets.get(ref.resource, ref.key) for sets in self._sets() for ref in sets.cached(self._part))
        labels = (operand.metadata.labels or {} for operand in cached if operand is not None)
        return any(marks.get(names.CONTROLLER_LABEL) in controllers for marks in labels)

    def cached(self) -> list[ObjectRef]:
        """What the caches show."""
        return [ref for apply_set in self._sets() for ref in apply_set.cached(self._part)]


class OptionalInformers:
    """Informers that do not make the process unready, and that end together with their kind."""

    def __init__(self, informers: InformerFactory) -> None:
        self._informers = informers
        self._used: list[Informer[Any]] = []

    def informer(self, resource: Resource, type: type[T], /, **options: Any) -> Informer[T]:
        found = self._informers.informer(resource, type, required=False, **options)
        self._used.append(found)
        return found

    def close(self) -> None:
        for informer in self._used:
            self._informers.release(informer)


class PodDrain:
    """Waits until the pods of a Deployment or DaemonSet that was deleted have ended.

    A Deployment goes at once when it is deleted, and its pods some seconds later: they finish what they do, write what
    they have found, and give back their Leases. What they run with (ServiceAccount, roles, Secrets, Service) is deleted
    after them. A pod on a node that does not answer never ends, so there is a time limit.
    """

    def __init__(self, client: Client, *, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._since: dict[frozenset[str], float] = {}

    async def is_waited_for(self, left: Mapping[ObjectRef, PartialObjectMetadata]) -> bool:
        """Whether to wait for pods before more of ``left`` is deleted, which are objects that belong together.

        False while a Deployment or DaemonSet is among them, which goes first, and once the time is over.
        """
        controllers = frozenset(
            (operand.metadata.labels or {}).get(names.CONTROLLER_LABEL, "") for operand in left.values()
        ) - {""}
        if not controllers or any(ref.resource in (DEPLOYMENTS, DAEMONSETS) for ref in left):
            self._since.pop(controllers, None)
            return False
        found = await self._client.list(
            PODS,
            type=PartialObjectMetadata,
            namespace=self._namespace,
            label_selector=f"{names.CONTROLLER_LABEL} in ({','.join(sorted(controllers))})",
            field_selector=RUNNING,
        )
        if not found.items:
            self._since.pop(controllers, None)
            return False
        since = self._since.setdefault(controllers, self._clock.monotonic())
        if self._clock.monotonic() - since < POD_DRAIN_TIMEOUT:
            return True
        log.warning("pods do not end: what they run with is deleted", pods=[pod.metadata.name for pod in found.items])
        return False


def _member(document: Mapping[str, Any], field: Sequence[str]) -> Any:
    value: Any = document
    for name in field:
        value = (value or {}).get(name)
    return value


def operand_kinds(namespace: str, others: Iterable[str]) -> list[tuple[Resource, str]]:
    """The kinds of operands in the operator's namespace; ``others``: namespaces in which roles may be granted, too."""
    return [
        *((kind, "") for kind in IN_CLUSTER),
        *((kind, namespace) for kind in IN_NAMESPACE),
        *((kind, each) for kind in GRANTED for each in dict.fromkeys((namespace, *others))),
    ]


def belonging(found: Mapping[ObjectRef, PartialObjectMetadata], controller: str) -> Found:
    """The objects of one Deployment or DaemonSet."""
    return {
        ref: operand
        for ref, operand in found.items()
        if (operand.metadata.labels or {}).get(names.CONTROLLER_LABEL) == controller
    }
