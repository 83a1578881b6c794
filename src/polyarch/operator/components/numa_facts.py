"""What both controllers of NUMA know of a cluster, and what their plans say of it. Pure.

``numa_cluster`` reads the facts from caches, ``polyarch run operator --plan`` from files. Objects of kinds that only
some clusters have are documents as they are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from polyarch.kube.resources import Resource, few
from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, ZoneResource
from polyarch.objects import Condition
from polyarch.operator import settings
from polyarch.operator.operands import shortened
from polyarch.operator.owned_objects import Document
from polyarch.operator.settings import OperatorSettings
from polyarch.platforms import IMAGE_ARCHITECTURES

ReadDocument = Mapping[str, Any]
Platform = Literal["kubernetes", "openshift", "hypershift"]
USUAL_API_PORTS = (6443,)
POOLS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "machineconfigpools", "MachineConfigPool", namespaced=False
)
API_SERVERS: Final = Resource("config.openshift.io", "v1", "apiservers", "APIServer", namespaced=False)


def takes_exporter_image(environment: Mapping[str, str]) -> bool:
    """Whether ``imageSpec`` of a NUMAResourcesOperator is taken, by the variables of the operator's container."""
    return environment.get("EXPORTER_IMAGE_RESTRICTION", "").lower() == "false"


class NodeLabels(msgspec.Struct, frozen=True, gc=False):
    """A Node, as far as a plan reads it."""

    name: str
    labels: Mapping[str, str] = {}


class ExporterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMAResourcesOperator, and everything that a plan for it depends on, with no clock but for what has lasted."""

    object: ReadDocument
    """The NUMAResourcesOperator."""
    settings: OperatorSettings = OperatorSettings()
    image_architectures: tuple[str, ...] = IMAGE_ARCHITECTURES
    """Linux architectures of the exporters' image."""
    image_restricted: bool = True
    """``spec.imageSpec`` is not taken; the variable EXPORTER_IMAGE_RESTRICTION of the operator says otherwise."""
    platform: Platform = "kubernetes"
    version: tuple[int, int] = (1, 30)
    """Version of the API server."""
    served: frozenset[Resource] = frozenset()
    """Optional kinds that the API server has: those of cert-manager."""
    has_own_authority: bool = True
    """The operator has a CA of its own, and writes the certificate that a plan asks for."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the exporters' namespace; None: there is no such namespace."""
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS
    """Ports of the endpoints of the Service ``kubernetes``."""
    tls_profile: ReadDocument | None = None
    """``spec.tlsSecurityProfile`` of OpenShift's APIServer; None: none, or no OpenShift."""
    nodes: tuple[NodeLabels, ...] = ()
    pools: tuple[ReadDocument, ...] = ()
    """MachineConfigPools."""
    kubelet_configs: tuple[ReadDocument, ...] = ()
    """KubeletConfigs of OpenShift. Of HyperShift, the same object, read from the text of a ConfigMap whose metadata it
    keeps."""
    daemon_sets: Mapping[str, ReadDocument] = {}
    """DaemonSets of ours, by name."""
    waiting_pods: Mapping[str, tuple[str, ...]] = {}
    """``pod: reason`` of pods that are not ready, by DaemonSet."""
    stalled_for: Mapping[str, float] = {}
    """Seconds since the rollout of each DaemonSet last made progress."""
    evicts: bool = False
    """Some NUMAResourcesScheduler evicts pods: it has to know on which zones they are."""
    findings: Mapping[str, tuple[str, ...]] = {}
    """What :func:`findings` says of each node with a NodeResourceTopology."""
    api_problem: str = ""
    """Why the CustomResourceDefinition of NodeResourceTopology could not be brought up to date; empty: it was."""


def is_evicting(scheduler: ReadDocument) -> bool:
    """Whether a NUMAResourcesScheduler, valid or not, asks for preemption."""
    spec = scheduler.get("spec")
    return isinstance(spec, Mapping) and spec.get("preemptionMode") == "Enabled"


# -- the platform ------------------------------------------------------------------------------------------------------


CONFIG_GROUP: Final = "config.openshift.io"
CLUSTER_VERSIONS: Final = Resource(CONFIG_GROUP, "v1", "clusterversions", "ClusterVersion", namespaced=False)
INFRASTRUCTURES: Final = Resource(CONFIG_GROUP, "v1", "infrastructures", "Infrastructure", namespaced=False)


def platform_of(
    setting: settings.Platform, *, cluster_version: ReadDocument | None, infrastructure: ReadDocument | None
) -> Platform:
    """The platform: ``setting`` wins unless it is ``auto``. The objects are those named ``version`` and ``cluster``;
    None: there are none, or no such kinds. What could not be asked for is not to be taken for absent: ask again."""
    if setting != "auto":
        return setting
    if cluster_version is None:
        return "kubernetes"
    topology = ((infrastructure or {}).get("status") or {}).get("controlPlaneTopology")
    return "hypershift" if topology == "External" else "openshift"


# -- what a plan says --------------------------------------------------------------------------------------------------


EventType = Literal["Normal", "Warning"]


class ServingCertificate(msgspec.Struct, frozen=True):
    """A Secret that the operator itself has to fill, signed with its own CA."""

    namespace: str
    secret: str
    dns_names: tuple[str, ...]


class PlannedEvent(msgspec.Struct, frozen=True):
    """An Event on the object that was planned for, once as long as it stays true."""

    type: EventType
    reason: str
    message: str


class ExporterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconcile of exporters has to do. ``None`` leaves what is there as it is."""

    documents: tuple[Document, ...] | None = None
    """Everything that the object stands for, in the order of applying; what is not among it goes. None: nothing is
    created, changed or deleted."""
    namespace: Document | None = None
    """The namespace with the labels that it needs. It is not ours: it has no owner, and is never deleted."""
    certificate: ServingCertificate | None = None
    status: Mapping[str, Any] | None = None
    """Without its conditions."""
    conditions: tuple[Condition, ...] | None = None
    """None: reconciliation is paused."""
    events: tuple[PlannedEvent, ...] = ()
    requeue_after: float | None = None
    """Seconds; None: when something changes."""
    group_nodes: Mapping[str, tuple[str, ...]] = {}
    """Names of the nodes by group."""

    @property
    def is_degraded(self) -> bool:
        return any(condition.type == "Degraded" and condition.status == "True" for condition in self.conditions or ())


# -- conditions of both custom resources -------------------------------------------------------------------------------


AS_EXPECTED: Final = "AsExpected"
INTERNAL_ERROR: Final = "InternalError"
VALIDATION: Final = "ValidationErrorUnderNodeGroups"
CUSTOM_IMAGE: Final = "CustomUserImage"
INVALID_SCHEDULER_IMAGE: Final = "InvalidSchedulerImage"
OPERATOR_NAME: Final = "IncorrectNUMAResourcesOperatorResourceName"
SCHEDULER_NAME: Final = "IncorrectNUMAResourcesSchedulerResourceName"
POOL_UPDATING: Final = "MachineConfigPoolIsUpdating"
DAEMON_SET_UPDATING: Final = "DaemonSetIsUpdating"
DEPLOYMENT_UPDATING: Final = "DeploymentIsUpdating"

State = Literal["Available", "Progressing", "Degraded"]
STATES: Final[tuple[State, ...]] = ("Available", "Progressing", "Degraded")


class OperatorCondition(msgspec.Struct, frozen=True, gc=False):
    """Which of the three states holds, why, and the same for people."""

    state: State
    reason: str = AS_EXPECTED
    message: str = ""


def four(condition: OperatorCondition) -> tuple[Condition, ...]:
    """``Available``, ``Upgradeable``, ``Progressing`` and ``Degraded``: exactly one of the three states is True, and
    what is available can be upgraded."""
    message = shortened(condition.message)

    def of(kind: str, state: State) -> Condition:
        holds = condition.state == state
        return Condition(kind, "True" if holds else "False", condition.reason, message)

    return (
        of("Available", "Available"),
        of("Upgradeable", "Available"),
        of("Progressing", "Progressing"),
        of("Degraded", "Degraded"),
    )


# -- rollouts ----------------------------------------------------------------------------------------------------------


ROLLOUT_TIMEOUT: Final = 600.0
"""Seconds without progress after which a rollout counts as failed."""


class DaemonSetRolloutStatus(msgspec.Struct, frozen=True):
    """How far the rollout of a DaemonSet is."""

    ready: bool
    """Every pod is of the present template, and ready; also if there is to be none."""
    message: str
    """Empty if it is ready."""


def progress(wanted: ReadDocument, live: ReadDocument | None) -> DaemonSetRolloutStatus:
    """``wanted``: the DaemonSet as planned. A pod of an older template does not count, however ready it is."""
    where = f"{wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
    if live is None:
        return DaemonSetRolloutStatus(False, f"{where} is being created")
    metadata, status = live.get("metadata") or {}, live.get("status") or {}
    desired, ready, updated = (
        int(status.get(field) or 0) for field in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    )
    seen = status.get("observedGeneration") is not None and status["observedGeneration"] >= metadata.get(
        "generation", 0
    )
    if seen and has_template(live, wanted) and desired == ready == updated:
        return DaemonSetRolloutStatus(True, "")
    return DaemonSetRolloutStatus(False, f"{where} is updating ({ready}/{desired})")


def stuck(waiting: tuple[str, ...], message: str) -> str:
    """The message about a rollout that gets no further. ``waiting``: ``pod: reason``.

    The time is not counted on: a node that is down for days would mean a write of the status every minute.
    """
    stalled = f"{message} and has got no further for {ROLLOUT_TIMEOUT / 60:g} minutes or more"
    return f"{stalled}: {few(waiting)}" if waiting else stalled


def has_template(live: ReadDocument, wanted: ReadDocument) -> bool:
    """Whether a live DaemonSet or Deployment makes the pods of the wanted one: before that it is as it was before."""
    return bool(_template(live) == _template(wanted))


def _template(workload: ReadDocument) -> Any:
    """What makes a pod another one, as far as it cannot be written in another form by an API server."""
    template: Mapping[str, Any] = ((workload.get("spec") or {}).get("template")) or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return (
        annotations.get(names.CONFIG_HASH),
        [
            (container.get("name"), container.get("image"), tuple(container.get("args") or ()))
            for container in containers
        ],
    )


# -- settings of kubelets ----------------------------------------------------------------------------------------------


# For information: a node with findings publishes its zones all the same, but its kubelet does not keep containers to
# one of them.

CHECKED: Final = "TopologySettingsChecked"
CPU_MANAGER: Final = "without CPU manager policy static"
MEMORY_MANAGER: Final = "without memory manager policy Static"
NO_RESERVATION: Final = "without reserved CPUs"
TOPOLOGY_POLICY: Final = "with a topology manager policy other than single-numa-node and restricted"
ALIGNING: Final = frozenset(("single-numa-node", "restricted"))


def findings(topology: NodeResourceTopology) -> tuple[str, ...]:
    """The findings of one node; what its object does not tell is no finding."""
    attributes = {attribute.name: attribute.value for attribute in topology.attributes or ()}
    found = []
    if attributes.get(names.CPU_MANAGER_POLICY, "static") != "static":
        found.append(CPU_MANAGER)
    if attributes.get(names.MEMORY_MANAGER_POLICY, "Static") != "Static":
        found.append(MEMORY_MANAGER)
    cpus = [amounts for zone in topology.zones or () for amounts in zone.resources or () if amounts.name == "cpu"]
    if cpus and not any(_is_reserved(amounts) for amounts in cpus):
        found.append(NO_RESERVATION)
    if names.POLICY in attributes and attributes[names.POLICY] not in ALIGNING:
        found.append(TOPOLOGY_POLICY)
    return tuple(found)


def checked(nodes: Iterable[str], found: Mapping[str, tuple[str, ...]]) -> Condition:
    """The condition for the nodes of all groups. ``found``: by node that has published."""
    by_finding = defaultdict[str, list[str]](list)
    published = [node for node in sorted(nodes) if node in found]
    for node in published:
        for finding in found[node]:
            by_finding[finding].append(node)
    if not published:
        return Condition(CHECKED, "Unknown", "NothingPublished", "no node of a group has published its zones yet")
    if not by_finding:
        message = f"the kubelets of {len(published)} nodes are set to place containers by NUMA zone"
        return Condition(CHECKED, "True", "AsExpected", message)
    told = [
        f"{len(by_finding[finding])} of {len(published)} nodes {finding}: {few(by_finding[finding])}"
        for finding in (CPU_MANAGER, MEMORY_MANAGER, NO_RESERVATION, TOPOLOGY_POLICY)
        if finding in by_finding
    ]
    return Condition(CHECKED, "False", "SettingsDoNotAlign", "; ".join(told))


def _is_reserved(cpus: ZoneResource) -> bool:
    return str(cpus.capacity) != str(cpus.allocatable)
