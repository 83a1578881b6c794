"""What a pass over a NUMAResourcesScheduler does, from what was observed (NO-080 – NO-087).

One value says which objects there are to be, what the status says, and when to look again. Where something is wrong
with the custom resource, nothing is applied: what ran keeps running. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.durations import go_duration
from polyarch.kube.owners import Owner
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.numa.api.resources import NUMAResourcesScheduler
from polyarch.numa.api.settings import SchedulerSettings
from polyarch.numa.api.validation import scheduler_departures
from polyarch.numa.names import QOS_REQUEST, SCHEDULER, SCHEDULER_SINGLETON
from polyarch.numa.operator import conditions
from polyarch.numa.operator.conditions import Verdict
from polyarch.numa.operator.observed import USUAL_API_PORTS, Platform
from polyarch.numa.operator.rollout import has_template
from polyarch.numa.operator.scheduler import image, nodes
from polyarch.numa.operator.scheduler.image import ChosenImage, ImageRules
from polyarch.numa.operator.scheduler.nodes import Candidates, Seats
from polyarch.numa.operator.scheduler.objects import SchedulerParts, objects
from polyarch.objects import Condition, ObjectMeta
from polyarch.operating.labels import Document
from polyarch.operating.settings import Cluster, OperatorSettings

RECHECK: Final = 5.0
"""Seconds until the next look at a Deployment that is being rolled out."""
WITHOUT_RESERVATIONS: Final = "preemptionMode Enabled has no effect without reservations ({})"
BLIND: Final = "placement is blind to NUMA while the extender is down"


class SchedulerObserved(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass starts from."""

    document: Mapping[str, Any]
    """The custom resource, as it was read."""
    metadata: ObjectMeta
    owner: Owner | None
    operator: OperatorSettings
    cluster: Cluster
    platform: Platform
    version: str
    """``gitVersion`` of the API server."""
    candidates: Candidates
    image_rules: ImageRules = ImageRules()
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS
    deployment: Mapping[str, Any] | None = None
    """The Deployment as the cache has it, before this pass."""


class SchedulerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What follows. ``documents`` None: everything stays as it is."""

    verdict: Verdict
    status: Mapping[str, Any]
    """Without ``conditions``."""
    extra: tuple[Condition, ...] = ()
    """Conditions beside the usual four."""
    documents: tuple[Document, ...] | None = None
    requeue: float | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that had to be decided."""

    settings: SchedulerSettings
    image: ChosenImage
    seats: Seats
    informer: str


def plan(observed: SchedulerObserved) -> SchedulerPlan:
    """The plan of one pass."""
    if observed.metadata.name != SCHEDULER_SINGLETON:
        problem = f"the name must be {SCHEDULER_SINGLETON}: nothing is made for {observed.metadata.name}"
        return SchedulerPlan(verdict=Verdict("Degraded", conditions.SCHEDULER_NAME, problem), status={})
    wrong = scheduler_departures(observed.document)
    before = {
        name: value
        for name, value in (observed.document.get("status") or {}).items()
        if name in ("deployment", "schedulerName", "cacheResyncPeriod", "relatedObjects")
    }
    if wrong:
        problems = "; ".join(map(str, wrong))
        return SchedulerPlan(verdict=Verdict("Degraded", conditions.INTERNAL_ERROR, problems), status=before)
    settings = SchedulerSettings.of(msgspec.convert(observed.document, NUMAResourcesScheduler))
    choice = _chosen(settings, observed)
    extra = (_informer_condition(choice.informer, observed),)
    for reason, problem in (
        (conditions.INVALID_SCHEDULER_IMAGE, choice.image.problem),
        (conditions.INTERNAL_ERROR, choice.seats.problem),
    ):
        if problem:
            return SchedulerPlan(verdict=Verdict("Degraded", reason, problem), status=before, extra=extra)
    documents = tuple(_objects(choice, observed))
    wanted = next(each for each in documents if each["kind"] == DEPLOYMENTS.kind)
    is_ready = is_available(observed.deployment, wanted)
    return SchedulerPlan(
        verdict=_available(choice, observed) if is_ready else _progress(choice, observed),
        status=_status(choice, observed),
        extra=extra,
        documents=documents,
        requeue=None if is_ready else RECHECK,
    )


def is_available(deployment: Mapping[str, Any] | None, wanted: Document) -> bool:
    """Whether condition Available of the Deployment is True, for its current generation (NO-086).

    The pass that changes it has read it as it was before, available: so it counts only with the pods that are wanted.
    """
    if deployment is None or not has_template(deployment, wanted) or _replicas(deployment) != _replicas(wanted):
        return False
    status = deployment.get("status") or {}
    current = (deployment.get("metadata") or {}).get("generation", 0)
    known = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    return bool(status.get("observedGeneration", -1) >= current and known.get("Available") == "True")


def _replicas(deployment: Mapping[str, Any]) -> int:
    return int((deployment.get("spec") or {}).get("replicas", 1))


def _chosen(wanted: SchedulerSettings, observed: SchedulerObserved) -> Choice:
    return Choice(
        settings=wanted,
        image=image.chosen(wanted.image, observed.image_rules, version=observed.version),
        seats=nodes.seats(wanted.replicas, observed.candidates, observed.platform),
        informer=nodes.informer(wanted.informer, observed.candidates, observed.platform),
    )


def _objects(choice: Choice, observed: SchedulerObserved) -> list[Document]:
    return objects(
        SchedulerParts(
            settings=choice.settings,
            operator=observed.operator,
            owner=observed.owner,
            image=choice.image.image,
            informer=choice.informer,
            replicas=choice.seats.replicas,
            guaranteed=(observed.metadata.annotations or {}).get(QOS_REQUEST) == "guaranteed",
            on_control_plane=choice.seats.on_control_plane,
            cluster=observed.cluster,
            api_server_ports=observed.api_server_ports,
        )
    )


def _progress(choice: Choice, observed: SchedulerObserved) -> Verdict:
    found = (observed.deployment or {}).get("status") or {}
    where = f"{observed.operator.numa_home}/{SCHEDULER}"
    told = f"{where} is updating ({found.get('availableReplicas', 0)}/{choice.seats.replicas})"
    return Verdict("Progressing", conditions.DEPLOYMENT_UPDATING, told)


def _available(choice: Choice, observed: SchedulerObserved) -> Verdict:
    settings = choice.settings
    lacking = "mode compat" if settings.mode == "compat" else "cacheResyncPeriod 0s"
    remarks = (
        choice.image.warning,
        BLIND if settings.ignorable else "",
        WITHOUT_RESERVATIONS.format(lacking) if settings.preempts and not settings.evicts else "",
    )
    told = "; ".join((f"scheduler {choice.settings.name} is deployed", *filter(None, remarks)))
    return Verdict("Available", message=told)


def _status(choice: Choice, observed: SchedulerObserved) -> Document:
    """NO-012, NO-094."""
    home = observed.operator.numa_home
    related: list[Document] = [
        {"group": "", "resource": "namespaces", "name": home},
        {"group": DEPLOYMENTS.group, "resource": DEPLOYMENTS.plural, "namespace": home, "name": SCHEDULER},
    ]
    return {
        "deployment": {"namespace": home, "name": SCHEDULER},
        "schedulerName": choice.settings.name,
        "cacheResyncPeriod": go_duration(choice.settings.resync_period),
        "relatedObjects": related,
    }


def _informer_condition(informer: str, observed: SchedulerObserved) -> Condition:
    """NO-083."""
    oldest = observed.candidates.oldest_kubelet
    told = f"the oldest kubelet is of version {oldest[0]}.{oldest[1]}" if oldest is not None else "no kubelet is known"
    dedicated = informer == "Dedicated"
    return Condition("DedicatedInformerActive", "True" if dedicated else "False", conditions.AS_EXPECTED, told)
