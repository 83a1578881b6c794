"""Types of the Kubernetes objects that polyarch reads.

They are frozen and declare only the fields that some rule reads; the decoder skips the rest. A value of these types is
therefore never sent back as an object: writes are patches (``polyarch.kube.patches``). The API server does not
distinguish ``null`` from an absent member, so members that may be null are ``| None``; a patch creates such a list and
appends to an empty one. Elements keep their order: an index here is an index in the stored object.
Instances hold no reference cycles and are not tracked by the garbage collector (``gc=False``): 10 000 of them in a
store cost no collection time.
"""

from collections.abc import Hashable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
import msgspec.inspect

from polyarch.selectors import LabelSelector
from polyarch.tolerations import Taint, Toleration

# -- metadata, and the key of an object within its resource ------------------------------------------------------------


class ObjectKey(NamedTuple):
    """Namespace and name of an object; ``namespace`` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``metadata.ownerReferences[]`` (meta/v1 OwnerReference)."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``metadata`` (meta/v1 ObjectMeta); times are RFC 3339 strings."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``; there is at most one."""
        return next((each for each in self.owner_references or () if each.controller), None)


class PartialObjectMetadata(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An object of any kind reduced to its metadata (meta/v1 PartialObjectMetadata)."""

    metadata: ObjectMeta = ObjectMeta()
    api_version: str = ""
    kind: str = ""


# -- status conditions, as a controller finds them ---------------------------------------------------------------------


Status = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition that a controller found (meta/v1). ``reason`` is a CamelCase word, ``message`` is for people."""

    type: str
    status: Status
    reason: str
    message: str = ""


# -- namespaces and secrets --------------------------------------------------------------------------------------------


class Namespace(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Namespace reduced to its metadata."""

    metadata: ObjectMeta = ObjectMeta()


DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
DOCKER_CONFIG = "kubernetes.io/dockercfg"


class Secret(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Secret; ``data`` is decoded from base64. The repr shows only its keys."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes | None] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key}, type={self.type!r}, keys={sorted(self.data or ())})"


# -- nodes -------------------------------------------------------------------------------------------------------------


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSpec."""

    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeSystemInfo(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSystemInfo: the platform that the kubelet was built for, and its runtime."""

    architecture: str = ""
    operating_system: str = ""
    container_runtime_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeStatus."""

    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class RuntimeClassScheduling(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """node.k8s.io/v1 Scheduling: what the pods of a RuntimeClass get at admission."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """node.k8s.io/v1 RuntimeClass: where its pods may run."""

    metadata: ObjectMeta = ObjectMeta()
    scheduling: RuntimeClassScheduling | None = None


# -- pods --------------------------------------------------------------------------------------------------------------


class NodeSelectorRequirement(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelectorTerm: all its expressions and fields must match; an empty one matches no node."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_expressions and not self.match_fields


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelector: one of its terms must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm | None = None


class NodeAffinity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Affinity without podAffinity and podAntiAffinity."""

    node_affinity: NodeAffinity | None = None


class PodSchedulingGate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Container: its name, image and pull policy."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""


class ImageVolumeSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 ImageVolumeSource: an image mounted as files."""

    reference: str = ""
    pull_policy: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Volume: only the source ``image``."""

    image: ImageVolumeSource | None = None


class LocalObjectReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 LocalObjectReference: an object in the pod's namespace."""

    name: str = ""


class PodOS(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodOS."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodSpec; ephemeral containers are deliberately left out."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
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


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodStatus: only the phase."""

    phase: str = ""


class Pod(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def required(self) -> NodeSelector | None:
        """``spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution``."""
        affinity = self.node_affinity
        return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None

    @property
    def preferred(self) -> list[PreferredSchedulingTerm] | None:
        """``spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution``."""
        affinity = self.node_affinity
        return affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None

    @property
    def node_affinity(self) -> NodeAffinity | None:
        return self.spec.affinity.node_affinity if self.spec.affinity is not None else None


# -- objects as people write them --------------------------------------------------------------------------------------


def without_null_values(content: Any, type: type[Any]) -> Any:
    """The JSON value as an API server takes it that reads it as this type: a null member is absent, and a null in a
    list or map is the empty value of its kind. Members that the type does not have are unchanged.
    """
    return _without_nulls(content, _type_info(type))  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _type_info(type: Hashable) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(type)


def _without_nulls(content: Any, info: msgspec.inspect.Type) -> Any:
    if isinstance(info, msgspec.inspect.UnionType):
        info = next((each for each in info.types if not isinstance(each, msgspec.inspect.NoneType)), info)
    match info:
        case msgspec.inspect.StructType() if isinstance(content, dict):
            fields = {field.encode_name: field.type for field in _type_info(info.cls).fields}  # type: ignore[attr-defined]
            return {
                name: _without_nulls(value, fields[name]) if name in fields else value
                for name, value in content.items()
                if value is not None or name not in fields
            }
        case msgspec.inspect.ListType() if isinstance(content, list):
            return [_without_nulls(_zero(info.item_type) if each is None else each, info.item_type) for each in content]
        case msgspec.inspect.DictType() if isinstance(content, dict):
            return {
                name: _without_nulls(_zero(info.value_type) if value is None else value, info.value_type)
                for name, value in content.items()
            }
    return content


def _zero(info: msgspec.inspect.Type) -> Any:
    match info:
        case msgspec.inspect.StructType():
            return {}
        case msgspec.inspect.StrType():
            return ""
    return None


def oldest_by_namespace(pods: Iterable[Pod], now: datetime) -> dict[str, float]:
    """Seconds since the oldest of these pods was created, by namespace."""
    ages: dict[str, float] = {}
    for pod in pods:
        if (created := pod.metadata.creation_timestamp) is not None:
            namespace, age = pod.metadata.namespace, (now - datetime.fromisoformat(created)).total_seconds()
            ages[namespace] = max(age, ages.get(namespace, 0.0))
    return ages


# -- workloads: rules judge a template as the pod that it would become -------------------------------------------------


class PodTemplate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpec = PodSpec()

    def pod(self, workload: ObjectMeta, *, kind: str = "") -> Pod:
        """The pod that a controller would create for this workload, without a name; ``kind`` names its owner."""
        metadata = self.metadata or ObjectMeta()
        owner = OwnerReference(kind=kind, name=workload.name, uid=workload.uid, controller=True)
        return Pod(
            metadata=ObjectMeta(
                namespace=workload.namespace,
                labels=metadata.labels,
                annotations=metadata.annotations,
                owner_references=[owner] if kind else None,
            ),
            spec=self.spec,
        )


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the specs of Deployments, StatefulSets, ReplicaSets and Jobs have in common."""

    template: PodTemplate = PodTemplate()
    replicas: int | None = None
    """None: the kind has none, or the default of 1."""


class WorkloadCondition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An entry of ``status.conditions``, such as ``Complete`` of a Job."""

    type: str = ""
    status: str = ""


class WorkloadStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the statuses have in common."""

    conditions: list[WorkloadCondition] | None = None


class Workload(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Deployment, StatefulSet, ReplicaSet or Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class JobTemplate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 JobTemplateSpec."""

    spec: WorkloadSpec = WorkloadSpec()


class CronJobSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """batch/v1 CronJobSpec."""

    job_template: JobTemplate = JobTemplate()


class CronJob(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 CronJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()

    @property
    def template(self) -> PodTemplate:
        return self.spec.job_template.spec.template


class UpdateStrategy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """apps/v1 DaemonSetUpdateStrategy: its type."""

    type: str = "RollingUpdate"


class DaemonSetSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """apps/v1 DaemonSetSpec."""

    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """apps/v1 DaemonSetStatus."""

    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_unavailable: int = 0


class DaemonSet(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """apps/v1 DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()

    @property
    def template(self) -> PodTemplate:
        return self.spec.template

    @property
    def is_rolled_out(self) -> bool:
        """Every pod is of the present template and available, or the user replaces pods by deleting them."""
        if self.spec.update_strategy.type == "OnDelete":
            return True
        status = self.status
        return (
            status.observed_generation >= self.metadata.generation
            and status.updated_number_scheduled >= status.desired_number_scheduled
            and not status.number_unavailable
        )


# -- whole objects -----------------------------------------------------------------------------------------------------


class Unstructured:
    """``document`` is the object as decoded JSON and must not be changed; ``metadata`` is the part that stores use."""

    __slots__ = ("document", "metadata")

    def __init__(self, document: dict[str, Any]) -> None:
        """Raises ``msgspec.ValidationError`` if ``metadata`` is invalid."""
        self.document = document
        self.metadata = msgspec.convert(document.get("metadata") or {}, ObjectMeta)

    def __repr__(self) -> str:
        return f"Unstructured({self.document.get('kind')} {self.metadata.key})"

    @property
    def status(self) -> dict[str, Any]:
        """``status``, empty if there is none."""
        return self.document.get("status") or {}


def decode_hook(type: type[Any], value: Any) -> Any:
    """``dec_hook`` of every decoder that may decode an :class:`Unstructured`."""
    if type is Unstructured:
        return Unstructured(value)
    if isinstance(value, type):  # ``type=object``: the caller ignores the content of the answer
        return value
    raise NotImplementedError(type)
