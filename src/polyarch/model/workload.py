"""Workloads, reduced to their pod template and to how far a DaemonSet's rollout is.

A template is what the pods of tomorrow are made of: rules that judge pods judge it as the pod that it would become.
"""

import msgspec

from polyarch.model.meta import ObjectMeta, OwnerReference
from polyarch.model.pod import Pod, PodSpec
from polyarch.model.selector import LabelSelector


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
