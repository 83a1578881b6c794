"""What makes pods: every kind of workload as one value, whatever its object looks like.

Annotations of others are left out here, and with them what their authors may have written into them (RP-002). Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.objects import Container, ObjectMeta, OwnerReference, Pod, PodSpec
from polyarch.operating.names import GROUP, OWN_GROUP
from polyarch.reports.facts.objects import (
    ContainerObject,
    CronJobObject,
    PodObject,
    PodSpecObject,
    TemplateObject,
    WorkloadObject,
)

POD_PATH: Final = "spec"
TEMPLATE_PATH: Final = "spec.template.spec"
CRON_JOB_PATH: Final = f"spec.jobTemplate.{TEMPLATE_PATH}"
_ENDED: Final = ("Complete", "Failed")
_OWN_PREFIXES: Final = (f"{GROUP}/", f"{OWN_GROUP}/")


class Maker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An object with a pod template."""

    kind: str
    metadata: ObjectMeta
    template: TemplateObject
    path: str = TEMPLATE_PATH
    replicas: int = 1
    has_ended: bool = False
    """It makes no pod again: a Job that is done, a revision of the past."""
    source: str = ""


def of_workload(kind: str, workload: WorkloadObject, *, source: str = "") -> Maker:
    """Of every kind whose template is at :data:`TEMPLATE_PATH`."""
    replicas = _replicas(kind, workload)
    done = any(each.type in _ENDED and each.status == "True" for each in workload.status.conditions or ())
    has_ended = (kind == "Job" and done) or (kind == "ReplicaSet" and replicas == 0)
    return Maker(
        kind=kind,
        metadata=workload.metadata,
        template=workload.spec.template,
        replicas=0 if has_ended else replicas,
        has_ended=has_ended,
        source=source,
    )


def of_cron_job(job: CronJobObject, *, source: str = "") -> Maker:
    """It weighs what one of its runs does."""
    spec = job.spec.job_template.spec
    return Maker(
        kind="CronJob",
        metadata=job.metadata,
        template=spec.template,
        path=CRON_JOB_PATH,
        replicas=0 if job.spec.suspend else _count(spec.parallelism, 1),
        source=source,
    )


def pod_of(spec: PodSpecObject, metadata: ObjectMeta, *, namespace: str, kind: str) -> Pod:
    """As rules judge it: the pod that would be created, with labels and our annotations only."""
    owner = OwnerReference(kind=kind, controller=True)
    return Pod(
        metadata=ObjectMeta(
            namespace=namespace,
            labels=metadata.labels,
            annotations=own_annotations(metadata.annotations),
            owner_references=None if kind == "Pod" else [owner],
        ),
        spec=PodSpec(
            containers=_containers(spec.containers),
            init_containers=_containers(spec.init_containers),
            volumes=[each for each in spec.volumes or () if each.image is not None] or None,
            image_pull_secrets=spec.image_pull_secrets,
            service_account_name=spec.service_account_name,
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            scheduling_gates=spec.scheduling_gates,
            os=spec.os,
            tolerations=spec.tolerations,
        ),
    )


def own_annotations(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """Those of polyarch and of its predecessor."""
    return {key: value for key, value in (annotations or {}).items() if key.startswith(_OWN_PREFIXES)} or None


def is_over(pod: PodObject) -> bool:
    """Nothing of the pod will run again."""
    return pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp is not None


def _containers(containers: list[ContainerObject] | None) -> list[Container] | None:
    if containers is None:
        return None
    return [Container(each.name, each.image, each.image_pull_policy) for each in containers]


def _replicas(kind: str, workload: WorkloadObject) -> int:
    spec = workload.spec
    if kind == "DaemonSet":
        return _count(workload.status.desired_number_scheduled, 1)
    if kind == "Job":
        return 0 if spec.suspend else _count(spec.parallelism, 1)
    return _count(spec.replicas, 1)


def _count(number: int | None, default: int) -> int:
    return default if number is None else max(0, number)
