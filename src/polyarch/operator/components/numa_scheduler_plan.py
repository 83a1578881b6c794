"""What a reconcile of a NUMAResourcesScheduler does, from its facts: objects, status, and when to reconcile again.
Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.durations import go_duration
from polyarch.kube.owners import Owner
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.numa.api.crds import scheduler_violations
from polyarch.numa.api.resources import NUMAResourcesScheduler, SchedulerSettings
from polyarch.numa.names import QOS_REQUEST, SCHEDULER, SCHEDULER_SINGLETON, SCHEDULING_MODE
from polyarch.objects import Condition, ObjectMeta
from polyarch.operator.components import numa_facts
from polyarch.operator.components.numa_facts import (
    USUAL_API_PORTS,
    OperatorCondition,
    PlannedEvent,
    Platform,
    has_template,
)
from polyarch.operator.components.numa_scheduler_objects import CONTROL_PLANE_KEYS, SchedulerParts, scheduler_objects
from polyarch.operator.owned_objects import Document
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.tolerations import REPELS, Taint, Toleration, uncovered

ROLLOUT_INTERVAL: Final = 5.0
"""Seconds until the next look at a Deployment that is being rolled out."""
WITHOUT_RESERVATIONS: Final = "preemptionMode Enabled has no effect without reservations (cacheResyncPeriod 0s)"
WITHOUT_EFFECT: Final = "set without effect: {}"
BLIND: Final = "placement is blind to NUMA while the extender is down"
DEDICATED_INFORMER: Final = Condition(
    "DedicatedInformerActive", "True", numa_facts.AS_EXPECTED, "the extender watches pods itself"
)
REMOVED_MODE: Final = f"annotation {SCHEDULING_MODE}: mode compat is removed and read as exact; remove the annotation"
EVICTS_NOW: Final = "preemptionMode Enabled, which had no effect in that mode, has one now"


# -- nodes -------------------------------------------------------------------------------------------------------------


USUAL_REPLICAS: Final = 3
_VERSION: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")


class NodeInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.nodeInfo``."""

    kubelet_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of a Node's status that is read."""

    node_info: NodeInfo | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """The part of a Node's spec that is read."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class SchedulableNode(msgspec.Struct, frozen=True, gc=False):
    """A Node, as far as it matters to where a scheduler runs."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class NodeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes a scheduler could run on. Small, so that nobody has to keep the nodes."""

    control_plane: int = 0
    workers: int = 0
    """Nodes without a taint that keeps polyarch's pods off, and not cordoned."""
    oldest_kubelet: tuple[int, int] | None = None

    @classmethod
    def of(cls, nodes: Iterable[SchedulableNode], tolerations: Sequence[Toleration] = ()) -> "NodeCounts":
        """``tolerations`` are those that the operator gives to all pods of polyarch."""
        control_plane = workers = 0
        oldest: tuple[int, int] | None = None
        for node in nodes:
            if _is_control_plane(node.metadata.labels or {}):
                control_plane += 1
            elif not _keeps_off(node.spec or NodeSpec(), tolerations):
                workers += 1
            info = (node.status or NodeStatus()).node_info or NodeInfo()
            if (version := _version(info.kubelet_version)) is not None:
                oldest = version if oldest is None else min(oldest, version)
        return cls(control_plane=control_plane, workers=workers, oldest_kubelet=oldest)

    def plus(self, other: "NodeCounts") -> "NodeCounts":
        """The counts of both pages of a list."""
        known = [counts.oldest_kubelet for counts in (self, other) if counts.oldest_kubelet is not None]
        return NodeCounts(
            control_plane=self.control_plane + other.control_plane,
            workers=self.workers + other.workers,
            oldest_kubelet=min(known, default=None),
        )


class SchedulerReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how often the scheduler runs."""

    replicas: int = 0
    on_control_plane: bool = False
    problem: str = ""


def replicas(wanted: int | None, found: NodeCounts, platform: Platform) -> SchedulerReplicas:
    """Replicas and kind of nodes; with a problem the Deployment stays as it is."""
    on_control_plane = platform != "hypershift" and found.control_plane > 0
    number = found.control_plane if on_control_plane else found.workers
    what = "control-plane nodes" if on_control_plane else "schedulable worker nodes"
    if platform == "openshift" and not on_control_plane:
        number, what = 0, "control-plane nodes"
    if wanted is None:
        if number == 0:
            return SchedulerReplicas(problem=f"there are no {what} on which the scheduler could run")
        return SchedulerReplicas(
            replicas=USUAL_REPLICAS if number >= USUAL_REPLICAS else 1, on_control_plane=on_control_plane
        )
    if wanted > number:
        return SchedulerReplicas(
            problem=f"spec.replicas is {wanted}, and there are only {number} {what}: lower it, or unset it"
        )
    return SchedulerReplicas(replicas=wanted, on_control_plane=on_control_plane)


def _is_control_plane(labels: Mapping[str, str]) -> bool:
    return any(key in labels for key in CONTROL_PLANE_KEYS)


def _keeps_off(spec: NodeSpec, tolerations: Sequence[Toleration]) -> bool:
    repelling = [taint for taint in spec.taints or () if taint.effect in REPELS]
    return bool(spec.unschedulable) or bool(uncovered(repelling, tolerations))


def _version(text: str) -> tuple[int, int] | None:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found is not None else None


# -- the image ---------------------------------------------------------------------------------------------------------


# By default the stock image of the API server's own version. Whoever asks for it may have the image checked against a
# list of digests.

OVERRIDE: Final = "KUBE_SCHEDULER_IMAGE"
VALIDATION: Final = "SCHEDULER_IMAGE_VALIDATION"
DIGESTS: Final = "SCHEDULER_IMAGE_DIGESTS"
STOCK: Final = "registry.k8s.io/kube-scheduler"
_DIGEST: Final = re.compile(r"@(sha256:[0-9a-f]{64})\Z")
PLUGIN_IMAGE: Final = "noderesourcetopology-scheduler"
"""In the name of the image that the NUMA Resources Operator runs."""
_MINOR: Final = re.compile(r":v?1\.([0-9]+)(?:[.+-][^/@]*)?(?:@.*)?\Z")
_RELEASE: Final = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+)")


class ImageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's environment says about the image."""

    override: str = ""
    """Instead of the stock image."""
    digests: frozenset[str] | None = None
    """Those that are allowed; None: any image is."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ImageRules":
        listed = frozenset(digest.strip() for digest in environment.get(DIGESTS, "").split(",") if digest.strip())
        checks = environment.get(VALIDATION, "").lower() == "true"
        return cls(override=environment.get(OVERRIDE, ""), digests=listed if checks else None)


class ChosenImage(msgspec.Struct, frozen=True):
    """``problem``: why it must not run (reason ``InvalidSchedulerImage``); ``warning``: what to know about it."""

    image: str
    problem: str = ""
    warning: str = ""


def chosen(wanted: str, rules: ImageRules, *, version: str) -> ChosenImage:
    """``wanted``: ``imageSpec``, empty if unset; ``version``: the API server's ``gitVersion``."""
    image = wanted or rules.override or f"{STOCK}:v{release_of(version)}"
    if rules.digests is not None:
        found = _DIGEST.search(image)
        if found is None:
            return ChosenImage(image, f"image {image} must be given by its digest (…@sha256:<64 hexadecimal digits>)")
        if found[1] not in rules.digests:
            return ChosenImage(image, f"the digest of image {image} is not among those of {DIGESTS}")
    return ChosenImage(image, warning=_warning(image, version))


def release_of(version: str) -> str:
    """``1.33.2`` of ``v1.33.2-eks-1a2b3c``: what distributions append names no image."""
    found = _RELEASE.match(version)
    return found[1] if found is not None else version.removeprefix("v")


def _warning(image: str, version: str) -> str:
    """What an image names no version of, such as a digest alone, is not judged."""
    if PLUGIN_IMAGE in image:
        return (
            f"image {image} seems to be the scheduler with the plugin, and it is run as a stock kube-scheduler; "
            "remove spec.imageSpec for that of the cluster's version"
        )
    found, own = _MINOR.search(image), release_of(version).split(".")
    if found is None or len(own) < 2 or not own[1].isdigit() or abs(int(found[1]) - int(own[1])) <= 1:
        return ""
    return f"image {image} is more than one minor version away from the API server ({version})"


# -- the plan ----------------------------------------------------------------------------------------------------------


class SchedulerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMAResourcesScheduler, and everything that a plan for it depends on."""

    document: Mapping[str, Any]
    """The custom resource, as it was read."""
    metadata: ObjectMeta
    owner: Owner | None
    operator: OperatorSettings
    cluster: ClusterCapabilities
    platform: Platform
    version: str
    """``gitVersion`` of the API server."""
    node_counts: NodeCounts
    image_rules: ImageRules = ImageRules()
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS
    deployment: Mapping[str, Any] | None = None
    """The Deployment as the cache has it, before this reconcile."""
    image_architectures: tuple[str, ...] | None = None
    """Linux architectures of :attr:`image`; None: nobody can say."""

    @property
    def image(self) -> str:
        """The image of the kube-scheduler, if the custom resource is valid."""
        spec = self.document.get("spec")
        wanted = spec.get("imageSpec") if isinstance(spec, dict) else None
        return chosen(str(wanted or ""), self.image_rules, version=self.version).image


class SchedulerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconcile of the scheduler has to do. ``documents`` None: everything stays as it is."""

    condition: OperatorCondition
    status: Mapping[str, Any]
    """Without ``conditions``."""
    extra: tuple[Condition, ...] = ()
    """Conditions beside the usual four."""
    documents: tuple[Document, ...] | None = None
    requeue_after: float | None = None
    events: tuple[PlannedEvent, ...] = ()


def plan_scheduler(facts: SchedulerFacts) -> SchedulerPlan:
    """The plan. Where something is wrong with the custom resource, nothing is applied: what ran keeps running."""
    if facts.metadata.name != SCHEDULER_SINGLETON:
        problem = f"the name must be {SCHEDULER_SINGLETON}: nothing is made for {facts.metadata.name}"
        return SchedulerPlan(condition=OperatorCondition("Degraded", numa_facts.SCHEDULER_NAME, problem), status={})
    wrong = scheduler_violations(facts.document)
    before = {
        name: value
        for name, value in (facts.document.get("status") or {}).items()
        if name in ("deployment", "schedulerName", "cacheResyncPeriod", "relatedObjects")
    }
    if wrong:
        problems = "; ".join(map(str, wrong))
        return SchedulerPlan(
            condition=OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, problems), status=before
        )
    settings = SchedulerSettings.of(msgspec.convert(facts.document, NUMAResourcesScheduler))
    image = chosen(settings.image, facts.image_rules, version=facts.version)
    where = replicas(settings.replicas, facts.node_counts, facts.platform)
    extra = (DEDICATED_INFORMER,)
    events = _events(settings)
    for reason, problem in (
        (numa_facts.INVALID_SCHEDULER_IMAGE, image.problem or _runs_nowhere(facts)),
        (numa_facts.INTERNAL_ERROR, where.problem),
    ):
        if problem:
            return SchedulerPlan(
                condition=OperatorCondition("Degraded", reason, problem), status=before, extra=extra, events=events
            )
    parts = SchedulerParts(
        settings=settings,
        operator=facts.operator,
        owner=facts.owner,
        image=image.image,
        replicas=where.replicas,
        guaranteed=(facts.metadata.annotations or {}).get(QOS_REQUEST) == "guaranteed",
        on_control_plane=where.on_control_plane,
        image_architectures=facts.image_architectures,
        cluster=facts.cluster,
        api_server_ports=facts.api_server_ports,
    )
    documents = tuple(scheduler_objects(parts))
    wanted = next(document for document in documents if document["kind"] == DEPLOYMENTS.kind)
    is_ready = is_available(facts.deployment, wanted)
    return SchedulerPlan(
        condition=_available(settings, image) if is_ready else _progress(parts, facts.deployment, image),
        status=_status(parts),
        extra=extra,
        events=events,
        documents=documents,
        requeue_after=None if is_ready else ROLLOUT_INTERVAL,
    )


def _runs_nowhere(facts: SchedulerFacts) -> str:
    """Why no node can run both containers; empty: one can."""
    own, theirs = facts.cluster.image_architectures, facts.image_architectures
    if theirs is None or set(own) & set(theirs):
        return ""
    return (
        f"image {facts.image} is for {', '.join(theirs) or 'no architecture of Linux'}, and {facts.operator.image}, "
        f"which runs beside it in one pod, for {', '.join(own)}; set spec.imageSpec to an image for one of these"
    )


def is_available(deployment: Mapping[str, Any] | None, wanted: Document) -> bool:
    """Whether condition Available of the Deployment is True, for its current generation.

    The reconcile that changes it has read it as it was before, available: so it counts only with the pods that are
    wanted.
    """
    if deployment is None or not has_template(deployment, wanted) or _replicas(deployment) != _replicas(wanted):
        return False
    status = deployment.get("status") or {}
    current = (deployment.get("metadata") or {}).get("generation", 0)
    known = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or ()}
    return bool(status.get("observedGeneration", -1) >= current and known.get("Available") == "True")


def _replicas(deployment: Mapping[str, Any]) -> int:
    return int((deployment.get("spec") or {}).get("replicas", 1))


def _progress(parts: SchedulerParts, deployment: Mapping[str, Any] | None, image: ChosenImage) -> OperatorCondition:
    available = ((deployment or {}).get("status") or {}).get("availableReplicas", 0)
    message = f"{parts.home}/{SCHEDULER} is updating ({available}/{parts.replicas})"
    return OperatorCondition(
        "Progressing", numa_facts.DEPLOYMENT_UPDATING, "; ".join(filter(None, (message, image.warning)))
    )


def _events(settings: SchedulerSettings) -> tuple[PlannedEvent, ...]:
    if not settings.has_removed_mode:
        return ()
    message = f"{REMOVED_MODE}; {EVICTS_NOW}" if settings.evicts else REMOVED_MODE
    return (PlannedEvent("Warning", "SchedulingModeRemoved", message),)


def _available(settings: SchedulerSettings, image: ChosenImage) -> OperatorCondition:
    warnings = (
        image.warning,
        BLIND if settings.ignorable else "",
        WITHOUT_RESERVATIONS if settings.preempts and not settings.evicts else "",
        WITHOUT_EFFECT.format(" and ".join(settings.without_effect)) if settings.without_effect else "",
    )
    message = "; ".join((f"scheduler {settings.name} is deployed", *filter(None, warnings)))
    return OperatorCondition("Available", message=message)


def _status(parts: SchedulerParts) -> Document:
    namespace = parts.home
    related: list[Document] = [
        {"group": "", "resource": "namespaces", "name": namespace},
        {"group": DEPLOYMENTS.group, "resource": DEPLOYMENTS.plural, "namespace": namespace, "name": SCHEDULER},
    ]
    return {
        "deployment": {"namespace": namespace, "name": SCHEDULER},
        "schedulerName": parts.settings.name,
        "cacheResyncPeriod": go_duration(parts.settings.resync_period),
        "relatedObjects": related,
    }
