"""The facts of one report: nodes, workloads with their pods, configuration, and what images say.

Facts and readings hold what decides, and nothing that could be secret: no Secret, no environment, no command line, and
of the annotations only ours. What is not here cannot leak from a snapshot (``--save``). Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import (
    Affinity,
    LocalObjectReference,
    ObjectMeta,
    Pod,
    PodOS,
    PodSchedulingGate,
    RuntimeClass,
    Volume,
)
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Kind, Status
from polyarch.oci.reference import InvalidReference, parse
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform
from polyarch.quantity import InvalidQuantity, thousandths
from polyarch.reports.document import SCHEMA as REPORT_SCHEMA
from polyarch.reports.document import PartRow, Report, Source
from polyarch.taints.api import ArchitectureTaints
from polyarch.tolerations import Taint, Toleration


class Requests(msgspec.Struct, frozen=True, gc=False):
    """Of one pod, in thousandths."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(self.cpu + other.cpu, self.memory + other.memory)

    def at_least(self, other: "Requests") -> "Requests":
        """The larger of the two, of each resource."""
        return Requests(max(self.cpu, other.cpu), max(self.memory, other.memory))


class NodeFact(msgspec.Struct, frozen=True, gc=False):
    """One node."""

    name: str
    os: str
    architecture: str
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()
    cores: int = 0
    """Allocatable, in thousandths."""
    runtime: str = ""
    """``containerRuntimeVersion``; empty: not known, which counts as containerd."""

    @property
    def platform(self) -> NodePlatform:
        return NodePlatform(self.os, self.architecture)


class RunningImage(msgspec.Struct, frozen=True, gc=False):
    """What one container runs."""

    container: str
    image_id: str


class PodFact(msgspec.Struct, frozen=True, gc=False):
    """One pod that has not ended."""

    name: str
    node: str = ""
    """Empty: it waits for one."""
    running: tuple[RunningImage, ...] = ()
    reason: str = ""
    """Of its decision record; empty: it has none."""
    is_gated: bool = False
    waits_for: str = ""
    """Why it does not run although it is on a node, such as ``ImagePullBackOff``; empty: it runs."""


class WorkloadFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What makes pods, or a bare pod: its template, how many there shall be, and those that there are."""

    namespace: str
    kind: str
    name: str
    template: Pod
    """As the pod that would be created: without a name, with labels and our annotations only."""
    path: str
    """Of the pod specification within the object, such as ``spec.template.spec``."""
    requests: Requests = Requests()
    """Of one pod."""
    replicas: int = 0
    pods: tuple[PodFact, ...] = ()
    problems: tuple[str, ...] = ()
    source: str = ""

    @property
    def is_daemon_set(self) -> bool:
        return self.kind == "DaemonSet"

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


class ExecFormatError(msgspec.Struct, frozen=True, gc=False):
    """A container that was started on a node which cannot run it (ENoExecEvent)."""

    pod: str
    """``NAMESPACE/NAME``."""
    created: str


class ReportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read, without what images say."""

    source: Source
    nodes: tuple[NodeFact, ...] = ()
    workloads: tuple[WorkloadFact, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    """Labels of the namespaces that are known."""
    cppc: ClusterPodPlacementConfig | None = None
    policy: PlacementPolicy | None = None
    taints: ArchitectureTaints | None = None
    exec_format_errors: tuple[ExecFormatError, ...] = ()
    numa: tuple[PartRow, ...] = ()
    builds: tuple[PartRow, ...] = ()
    unread: tuple[str, ...] = ()
    """What nobody was allowed to list, as ``cronjobs.batch``."""
    home: str = DEFAULT_NAMESPACE
    """The namespace of polyarch itself, which placement leaves alone."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry."""
    runtime_classes: dict[str, RuntimeClass] | None = None
    """By name; None: nobody knows which there are."""

    def labels(self, namespace: str) -> Mapping[str, str]:
        """Of a namespace; of one that is not known, its name alone."""
        return self.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})


# -- what images say ---------------------------------------------------------------------------------------------------
# A reading is the part of an inspection that decides, with nothing of how it was asked: no credential, no request, no
# text that a registry sent. It becomes an Inspection again for the rules of the features, so that a report from a
# snapshot is made by the same functions as one from a cluster.


class ImageRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one image says."""

    image: str
    """The reference as the workload writes it."""
    status: Status
    namespace: str = ""
    """The namespace whose pull secrets it was asked with; empty: it holds for all."""
    kind: Kind = ""
    digest: str = ""
    platforms: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    """Of the manifests, in the order of the platforms."""
    stated: tuple[str, ...] = ()
    """The platforms as the index spells them, in the same order; none: no spelling differs."""
    code: str = ""
    """Of the error."""
    host: str = ""
    http_status: int | None = None

    @classmethod
    def of(cls, image: str, answer: Inspection, *, namespace: str = "") -> "ImageRecord":
        """What is kept of an answer; the last good reading of a registry that fails now counts as its answer."""
        if answer.status is Status.ERROR and answer.last_good is not None:
            answer = answer.last_good
        error = answer.error
        host = answer.source.host if answer.source is not None else answer.reference.registry
        entries = tuple(filter(_can_be_read_again, answer.entries))
        return cls(
            image=image,
            status=answer.status,
            namespace=namespace,
            kind=answer.kind,
            digest=answer.digest,
            platforms=tuple(str(each.platform) for each in entries),
            digests=tuple(each.digest for each in entries),
            stated=tuple(each.stated for each in entries) if any(each.stated for each in entries) else (),
            code=error.code if error is not None else "",
            host=(error.host or host) if error is not None else "",
            http_status=error.status if error is not None else None,
        )

    @property
    def inspection(self) -> Inspection:
        """For the rules. Raises ``ValueError`` for a reading that nobody wrote this way."""
        error = None
        if self.status is Status.ERROR:
            error = InspectionError.of(self.code, "", status=self.http_status, host=self.host)
        stated = self.stated or ("",) * len(self.platforms)
        entries = tuple(
            Entry(Platform.parse(platform), digest, stated=spelling)
            for platform, digest, spelling in zip(self.platforms, self.digests, stated, strict=True)
        )
        return Inspection(parse(self.image), self.status, self.kind, digest=self.digest, entries=entries, error=error)


def _can_be_read_again(entry: Entry) -> bool:
    """An index may name anything as a platform; what no node can be is of no use here."""
    try:
        return Platform.parse(str(entry.platform)).node == entry.platform.node
    except InvalidPlatform:
        return False


class ImageInspections:
    """Answers by namespace and by the text of the reference; one without a namespace holds for all."""

    def __init__(self, readings: Iterable[ImageRecord] = ()) -> None:
        self.readings = tuple(sorted(readings, key=lambda each: (each.namespace, each.image)))
        self._shared: dict[str, Inspection] = {}
        self._own: dict[str, dict[str, Inspection]] = {}
        for each in self.readings:
            try:
                answer = each.inspection
            except (InvalidReference, InvalidPlatform):
                continue  # it is asked for as an image without an answer, which is what it is
            if each.namespace:
                self._own.setdefault(each.namespace, {})[each.image] = answer
            else:
                self._shared[each.image] = answer
        self._views: dict[str, Mapping[str, Inspection]] = {}

    def of(self, namespace: str) -> Mapping[str, Inspection]:
        """For the pods of a namespace, by the texts of their images."""
        own = self._own.get(namespace)
        if own is None:
            return self._shared
        if namespace not in self._views:
            self._views[namespace] = {**self._shared, **own}
        return self._views[namespace]

    @property
    def everywhere(self) -> Mapping[str, Inspection]:
        """Of all namespaces, by the texts of the images; what one namespace was told counts before another's error."""
        found = dict(self._shared)
        for own in self._own.values():
            for image, answer in own.items():
                if image not in found or found[image].status is Status.ERROR:
                    found[image] = answer
        return found


# -- snapshots: facts and readings in a file, for a report where the cluster is not reachable --------------------------
# A snapshot of another version is refused rather than guessed at, and so is anything that is no snapshot: a report of
# half the facts would look like a report.

SNAPSHOT_SCHEMA: Final = "polyarch.dev/report-snapshot/v1"


class InvalidFile(ValueError):  # noqa: N818 - what is the case
    """The text is not what it has to be; the message says what was expected and what was found."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one report is made of."""

    schema_version: str = SNAPSHOT_SCHEMA
    facts: ReportFacts
    readings: tuple[ImageRecord, ...] = ()
    complete: bool = True

    @property
    def answers(self) -> ImageInspections:
        return ImageInspections(self.readings)


class _Head(msgspec.Struct):
    schema_version: str = msgspec.field(default="", name="schemaVersion")
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""


def encode_snapshot(facts: ReportFacts, answers: ImageInspections, *, complete: bool = True) -> bytes:
    """The content of the file: equal facts, equal bytes."""
    snapshot = Snapshot(facts=facts, readings=answers.readings, complete=complete)
    return msgspec.json.encode(snapshot, order="deterministic") + b"\n"


def decode_snapshot(content: bytes) -> Snapshot:
    """Raises :class:`InvalidFile`."""
    head = _head(content, SNAPSHOT_SCHEMA)
    if head.schema_version != SNAPSHOT_SCHEMA:
        raise InvalidFile(f"expected a snapshot of schema {SNAPSHOT_SCHEMA}, {_found(head)}; make one with --save FILE")
    try:
        snapshot = msgspec.json.decode(content, type=Snapshot)
        _ = snapshot.answers
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidFile(
            f"expected a snapshot of schema {SNAPSHOT_SCHEMA}, but: {error}; make one with --save FILE"
        ) from None
    return snapshot


def decode_report(content: bytes) -> Report:
    """A report that ``-o json`` wrote. Raises :class:`InvalidFile`."""
    head = _head(content, REPORT_SCHEMA)
    if head.api_version != REPORT_SCHEMA:
        raise InvalidFile(f"expected a report of schema {REPORT_SCHEMA}, {_found(head)}; make one with -o json=FILE")
    try:
        return msgspec.json.decode(content, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFile(
            f"expected a report of schema {REPORT_SCHEMA}, but: {error}; make one with -o json=FILE"
        ) from None


def _head(content: bytes, schema: str) -> _Head:
    try:
        return msgspec.json.decode(content, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFile(f"expected JSON of schema {schema}, but: {error}; the file may be cut off") from None


def _found(head: _Head) -> str:
    version = head.schema_version or head.api_version
    return f"found {version}" if version else "found a document without a schema"


# -- the objects of a cluster, as they are listed ----------------------------------------------------------------------
# Environment, commands and other people's annotations are not even decoded, so no later mistake can print them.
# Decoding is lenient: unknown fields are ignored, lists may be null.

Quantity = str | int | float


class ResourceLists(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Container: its image and what it asks for."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    resources: ResourceLists | None = None
    restart_policy: str | None = None


class PodSpecObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodSpec."""

    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    volumes: list[Volume] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    service_account_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    os: PodOS | None = None
    tolerations: list[Toleration] | None = None
    runtime_class_name: str = ""
    overhead: dict[str, Quantity] | None = None
    resources: ResourceLists | None = None


class WaitingState(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ContainerStateWaiting; its message may quote anything."""

    reason: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ContainerState."""

    waiting: WaitingState | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename={"image_id": "imageID"}):
    """core/v1 ContainerStatus: what it runs, or why it does not."""

    name: str = ""
    image_id: str = ""
    state: ContainerState | None = None


class PodStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodStatus."""

    phase: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpecObject = PodSpecObject()
    status: PodStatusObject = PodStatusObject()


class TemplateObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpecObject = PodSpecObject()


class WorkloadSpecObject(msgspec.Struct, frozen=True, gc=False):
    """What the specs of Deployments, StatefulSets, ReplicaSets, DaemonSets and Jobs have in common."""

    template: TemplateObject = TemplateObject()
    replicas: int | None = None
    parallelism: int | None = None
    suspend: bool | None = None


class ConditionObject(msgspec.Struct, frozen=True, gc=False):
    """An entry of ``status.conditions``."""

    type: str = ""
    status: str = ""


class WorkloadStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What the statuses have in common."""

    desired_number_scheduled: int | None = None
    conditions: list[ConditionObject] | None = None


class WorkloadObject(msgspec.Struct, frozen=True, gc=False):
    """A Deployment, StatefulSet, ReplicaSet, DaemonSet or Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpecObject = WorkloadSpecObject()
    status: WorkloadStatusObject = WorkloadStatusObject()


class JobTemplateObject(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 JobTemplateSpec."""

    spec: WorkloadSpecObject = WorkloadSpecObject()


class CronJobSpecObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """batch/v1 CronJobSpec."""

    job_template: JobTemplateObject = JobTemplateObject()
    suspend: bool | None = None


class CronJobObject(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 CronJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpecObject = CronJobSpecObject()


class NodeSpecObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 NodeSpec."""

    taints: list[Taint] | None = None


class NodeInfoObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 NodeSystemInfo."""

    architecture: str = ""
    operating_system: str = ""
    container_runtime_version: str = ""


class NodeStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 NodeStatus."""

    allocatable: dict[str, Quantity] | None = None
    node_info: NodeInfoObject = NodeInfoObject()


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpecObject = NodeSpecObject()
    status: NodeStatusObject = NodeStatusObject()


# -- what a pod requests, as the scheduler counts it -------------------------------------------------------------------
# Source: k8s.io/component-helpers/resource (PodRequests): the sum of the containers and sidecars, or what an init
# container needs beside the sidecars before it if that is more, then the overhead; spec.resources replaces the sum. A
# quantity that makes no sense makes the whole pod weigh nothing, and is named.

CPU: Final = "cpu"
MEMORY: Final = "memory"
NOTHING: Final = Requests()


def requests_of(spec: PodSpecObject) -> tuple[Requests, tuple[str, ...]]:
    """What a pod asks for, and what makes no sense in it: then it asks for nothing."""
    problems: list[str] = []
    sidecars, peak = NOTHING, NOTHING
    for each in spec.init_containers or ():
        own = _container(each, problems)
        if each.restart_policy == "Always":
            sidecars += own
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars + own)
    total = sidecars
    for each in spec.containers or ():
        total += _container(each, problems)
    total = total.at_least(peak)
    if spec.resources is not None:
        asked = {
            name
            for each in (*(spec.init_containers or ()), *(spec.containers or ()))
            if each.resources is not None
            for name in (*(each.resources.requests or ()), *(each.resources.limits or ()))
        }
        total = _whole(spec.resources, total, asked, problems)
    total += _listed(spec.overhead, "overhead", problems)
    return (NOTHING if problems else total), tuple(problems)


def cores_of(quantities: Mapping[str, Quantity] | None) -> int:
    """Thousandths of the CPUs of a node; 0 if the text makes no sense."""
    return _listed(quantities, "allocatable", []).cpu


def _container(container: ContainerObject, problems: list[str]) -> Requests:
    lists = container.resources
    if lists is None:
        return NOTHING
    # The API server defaults an absent request to the limit; manifests from files have not been there.
    asked = {**(lists.limits or {}), **(lists.requests or {})}
    return _listed(asked, f"container {container.name}", problems)


def _whole(lists: ResourceLists, total: Requests, asked: Collection[str], problems: list[str]) -> Requests:
    """``total``: what the containers ask for together; ``asked``: of what. That is what the API server takes for an
    absent request of the pod, and the pod's limit where no container asks for anything."""
    limits = {name: amount for name, amount in (lists.limits or {}).items() if name not in asked}
    said = {**limits, **(lists.requests or {})}
    found = _listed(said, "spec.resources", problems)
    return Requests(
        found.cpu if CPU in said else total.cpu,
        found.memory if MEMORY in said else total.memory,
    )


def _listed(quantities: Mapping[str, Quantity] | None, place: str, problems: list[str]) -> Requests:
    amounts = {CPU: 0, MEMORY: 0}
    for name in amounts:
        quantity = (quantities or {}).get(name)
        if quantity is None:
            continue
        try:
            amount = thousandths(quantity, "up")
        except InvalidQuantity as error:
            problems.append(f"{place}: {name}: {error}")
            continue
        if amount < 0:
            problems.append(f"{place}: {name}: {quantity} is less than nothing")
        else:
            amounts[name] = amount
    return Requests(amounts[CPU], amounts[MEMORY])
