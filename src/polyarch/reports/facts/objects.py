"""The objects of a cluster as a report lists them: the fields that decide, and nothing that could be secret (RP-001).

Environment, commands and other people's annotations are not even decoded, so no later mistake can print them (RP-002).
Decoding is lenient: unknown fields are ignored, lists may be null. Pure.
"""

import msgspec

from polyarch.objects import Affinity, LocalObjectReference, ObjectMeta, PodOS, PodSchedulingGate, Volume
from polyarch.tolerations import Taint, Toleration

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


class NodeStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 NodeStatus."""

    allocatable: dict[str, Quantity] | None = None
    node_info: NodeInfoObject = NodeInfoObject()


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpecObject = NodeSpecObject()
    status: NodeStatusObject = NodeStatusObject()
