"""Workloads, reduced to what a warm-up needs of them: images, pull secrets and the namespace (PL-380).

Labels and annotations are dropped when an object is decoded: the annotation of ``kubectl apply`` alone is as large as
the whole object, and thousands of them stay in the cache. Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.kube.resources import CRONJOBS, DAEMONSETS, DEPLOYMENTS, STATEFULSETS, Resource
from polyarch.objects import Container, LocalObjectReference, ObjectMeta, Pod, PodSpec, Volume
from polyarch.placement.api.settings import WarmUpKind


class TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``template.spec``: what pulling its images depends on."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None


class Template(msgspec.Struct, frozen=True, gc=False):
    """core/v1 PodTemplateSpec."""

    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False):
    """The spec of a Deployment, StatefulSet, DaemonSet or Job."""

    template: Template = Template()


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A Deployment, StatefulSet or DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()

    def __post_init__(self) -> None:
        _reduce(self)

    @property
    def template(self) -> TemplateSpec:
        return self.spec.template.spec


class JobTemplate(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 JobTemplateSpec."""

    spec: WorkloadSpec = WorkloadSpec()


class CronJobSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """batch/v1 CronJobSpec."""

    job_template: JobTemplate = JobTemplate()


class CronJob(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 CronJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()

    def __post_init__(self) -> None:
        _reduce(self)

    @property
    def template(self) -> TemplateSpec:
        return self.spec.job_template.spec.template.spec


KINDS: Final[Mapping[WarmUpKind, tuple[Resource, type[Workload | CronJob]]]] = {
    "Deployment": (DEPLOYMENTS, Workload),
    "StatefulSet": (STATEFULSETS, Workload),
    "DaemonSet": (DAEMONSETS, Workload),
    "CronJob": (CRONJOBS, CronJob),
}
"""By the words of ``warmUp.kinds``."""


def pod_of(workload: Workload | CronJob) -> Pod:
    """The pod that would be created, as far as its images go. The secrets of its ServiceAccount are not known."""
    spec = workload.template
    return Pod(
        metadata=ObjectMeta(namespace=workload.metadata.namespace),
        spec=PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            volumes=spec.volumes,
            image_pull_secrets=spec.image_pull_secrets,
        ),
    )


def _reduce(workload: Workload | CronJob) -> None:
    metadata = workload.metadata
    bare = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    msgspec.structs.force_setattr(workload, "metadata", bare)
