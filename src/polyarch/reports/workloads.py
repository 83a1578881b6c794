"""Workloads of a cluster with their pods: each pod counts for the topmost controller that owns it.

A Deployment counts and not its ReplicaSets, a CronJob and not its Jobs. What is owned by a kind that nobody lists (an
Argo Rollout, say) counts as that owner, by its name. An owner that is gone does not count: the last one that exists is
the workload, and owners that own each other end where they began. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.names import GROUP, OWN_GROUP
from polyarch.objects import Container, ObjectMeta, OwnerReference, Pod, PodSpec
from polyarch.placement.decision import read_record
from polyarch.placement.names import GATE
from polyarch.reports.facts import (
    ContainerObject,
    CronJobObject,
    PodFact,
    PodObject,
    PodSpecObject,
    RunningImage,
    TemplateObject,
    WorkloadFact,
    WorkloadObject,
    requests_of,
)

# -- objects with a pod template: every kind as one value --------------------------------------------------------------
# Annotations of others are left out here, and with them what their authors may have written into them.

POD_PATH: Final = "spec"
TEMPLATE_PATH: Final = "spec.template.spec"
CRON_JOB_PATH: Final = f"spec.jobTemplate.{TEMPLATE_PATH}"
_ENDED: Final = ("Complete", "Failed")
_OWN_PREFIXES: Final = (f"{GROUP}/", f"{OWN_GROUP}/")


class Workload(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An object with a pod template."""

    kind: str
    metadata: ObjectMeta
    template: TemplateObject
    path: str = TEMPLATE_PATH
    replicas: int = 1
    has_ended: bool = False
    """It makes no pod again: a Job that is done, a revision of the past."""
    source: str = ""


def of_workload(kind: str, workload: WorkloadObject, *, source: str = "") -> Workload:
    """Of every kind whose template is at :data:`TEMPLATE_PATH`."""
    replicas = _replicas(kind, workload)
    done = any(each.type in _ENDED and each.status == "True" for each in workload.status.conditions or ())
    has_ended = (kind == "Job" and done) or (kind == "ReplicaSet" and replicas == 0)
    return Workload(
        kind=kind,
        metadata=workload.metadata,
        template=workload.spec.template,
        replicas=0 if has_ended else replicas,
        has_ended=has_ended,
        source=source,
    )


def of_cron_job(job: CronJobObject, *, source: str = "") -> Workload:
    """It weighs what one of its runs does."""
    spec = job.spec.job_template.spec
    return Workload(
        kind="CronJob",
        metadata=job.metadata,
        template=spec.template,
        path=CRON_JOB_PATH,
        replicas=0 if job.spec.suspend else _count(spec.parallelism, 1),
        source=source,
    )


class WorkloadScale(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What another object says of the number of pods of a workload: an autoscaler, or an Argo Rollout that takes its
    template from a Deployment."""

    namespace: str
    kind: str
    name: str
    least: int = 0
    most: int | None = None
    replicas: int | None = None
    """Of a Rollout: how many it runs of the template."""
    replaces: bool = False
    """The workload's own pods are scaled down for them."""


def scaled(makers: Iterable[Workload], scales: Iterable[WorkloadScale]) -> Iterator[Workload]:
    """The workloads with as many pods as these objects have them run. A workload at 0 that an autoscaler targets stays
    there, as Kubernetes has it."""
    by_target: dict[tuple[str, str, str], list[WorkloadScale]] = {}
    for scale in scales:
        by_target.setdefault((scale.namespace, scale.kind, scale.name), []).append(scale)
    for maker in makers:
        replicas = maker.replicas
        found = by_target.get((maker.metadata.namespace, maker.kind, maker.metadata.name), ())
        for scale in sorted(found, key=lambda each: each.replicas is None):
            if scale.replicas is not None:
                replicas = scale.replicas if scale.replaces else replicas + scale.replicas
            elif replicas:
                replicas = max(replicas, scale.least)
                replicas = replicas if scale.most is None else min(replicas, scale.most)
        yield maker if replicas == maker.replicas else msgspec.structs.replace(maker, replicas=replicas)


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
            runtime_class_name=spec.runtime_class_name,
            # A scheduler writes it to pods that exist; in a template somebody else did.
            node_name="" if kind == "Pod" else spec.node_name,
        ),
    )


def own_annotations(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """Those of polyarch and of its predecessor."""
    return {key: value for key, value in (annotations or {}).items() if key.startswith(_OWN_PREFIXES)} or None


def is_terminal(pod: PodObject) -> bool:
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


# -- pods to their topmost controllers ---------------------------------------------------------------------------------

LISTED: Final = frozenset(
    {
        *(("apps", kind) for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")),
        *(("batch", kind) for kind in ("Job", "CronJob")),
    }
)
"""Group and kind of the owners that would be there if they existed."""


class _Top(NamedTuple):
    """The workload that something belongs to."""

    namespace: str
    kind: str
    name: str


class _Members:
    """What was found of one workload."""

    __slots__ = ("made", "maker", "pods")

    def __init__(self) -> None:
        self.maker: Workload | None = None
        self.made: list[Workload] = []
        self.pods: list[PodObject] = []

    @property
    def lives(self) -> bool:
        """There are pods of it, or there will be."""
        makers = (*self.made, self.maker) if self.maker is not None else self.made
        return bool(self.pods) or not all(each.has_ended for each in makers)


def workloads_of(makers: Iterable[Workload], pods: Iterable[PodObject]) -> tuple[WorkloadFact, ...]:
    """Every workload with its pods that have not ended, by namespace, kind and name."""
    makers = tuple(makers)
    owners = _Owners(makers)
    found: dict[_Top, _Members] = {}
    for maker in makers:
        top = owners.top(maker.kind, maker.metadata)
        members = found.setdefault(top, _Members())
        if (maker.kind, maker.metadata.name) == (top.kind, top.name):
            members.maker = maker
        else:
            members.made.append(maker)
    for pod in pods:
        if not is_terminal(pod):
            found.setdefault(owners.top("Pod", pod.metadata), _Members()).pods.append(pod)
    return tuple(_fact(top, found[top]) for top in sorted(found) if found[top].lives)


class _Owners:
    """Who owns what, by uid; in files, which have none, by kind and name."""

    def __init__(self, makers: Iterable[Workload]) -> None:
        self._by_uid: dict[str, Workload] = {}
        self._by_name: dict[_Top, Workload] = {}
        for maker in makers:
            if maker.metadata.uid:
                self._by_uid[maker.metadata.uid] = maker
            self._by_name[_Top(maker.metadata.namespace, maker.kind, maker.metadata.name)] = maker
        self._tops: dict[tuple[str, str, str], _Top] = {}

    def top(self, kind: str, metadata: ObjectMeta) -> _Top:
        """The topmost controller that exists, or that is of a kind that is not listed."""
        owner = metadata.controller
        if owner is None:
            return _Top(metadata.namespace, kind, metadata.name)
        known = (metadata.namespace, owner.kind, owner.uid or owner.name)
        if kind != "Pod" or known not in self._tops:
            top = self._climbed(kind, metadata)
            if kind != "Pod" or top.kind == "Pod":
                return top
            self._tops[known] = top
        return self._tops[known]

    def _climbed(self, kind: str, metadata: ObjectMeta) -> _Top:
        here = _Top(metadata.namespace, kind, metadata.name)
        seen = {here}
        while (owner := metadata.controller) is not None:
            maker = self._found(owner, metadata.namespace)
            if maker is None:
                if is_listed_kind(owner) or owner.kind == "Node":
                    return here
                return _Top(metadata.namespace, owner.kind, owner.name)
            metadata = maker.metadata
            above = _Top(metadata.namespace, maker.kind, metadata.name)
            if above in seen:
                return min(seen)
            here = above
            seen.add(here)
        return here

    def _found(self, owner: OwnerReference, namespace: str) -> Workload | None:
        if owner.uid in self._by_uid:
            return self._by_uid[owner.uid]
        found = self._by_name.get(_Top(namespace, owner.kind, owner.name))
        if found is None or (owner.uid and found.metadata.uid):
            return None  # one of the same name that came later
        return found


def is_listed_kind(owner: OwnerReference) -> bool:
    """Whether owners of this kind are listed, so that one which is not found is gone."""
    return (owner.api_version.rpartition("/")[0], owner.kind) in LISTED


def _fact(top: _Top, members: _Members) -> WorkloadFact:
    chosen = members.maker or _newest(members.made)
    pods = sorted(members.pods, key=lambda each: each.metadata.name)
    if chosen is None:  # bare pods, or those of an owner that nobody lists
        newest = max(pods, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
        template, path, source = TemplateObject(newest.metadata, newest.spec), POD_PATH, ""
        replicas = len(pods)
    else:
        template, path, source = chosen.template, chosen.path, chosen.source
        replicas = chosen.replicas if members.maker is not None else sum(each.replicas for each in members.made)
    requests, problems = requests_of(template.spec)
    foreign = members.maker is None and top.kind != "Pod"
    return WorkloadFact(
        namespace=top.namespace,
        kind=top.kind,
        name=top.name,
        template=pod_of(template.spec, template.metadata or ObjectMeta(), namespace=top.namespace, kind=top.kind),
        path=f"{TEMPLATE_PATH} of its {chosen.kind} {chosen.metadata.name}" if foreign and chosen is not None else path,
        requests=requests,
        replicas=replicas,
        pods=tuple(map(_pod, pods)),
        problems=problems,
        source=source,
    )


def _newest(made: list[Workload]) -> Workload | None:
    made = [each for each in made if not each.has_ended] or made
    return max(made, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None)


def _pod(pod: PodObject) -> PodFact:
    record = read_record(pod.metadata.annotations)
    return PodFact(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        running=tuple(_running(pod)),
        reason=record.reason if record is not None else "",
        is_gated=any(each.name == GATE for each in pod.spec.scheduling_gates or ()),
        waits_for=_waits_for(pod) if pod.spec.node_name else "",
    )


def _waits_for(pod: PodObject) -> str:
    """The reason of its first container that waits; a kubelet that has said nothing yet leaves it pending."""
    for each in pod.status.container_statuses or ():
        if each.state is not None and each.state.waiting is not None:
            return each.state.waiting.reason or "ContainerWaiting"
    return pod.status.phase if pod.status.phase == "Pending" else ""


def _running(pod: PodObject) -> Iterator[RunningImage]:
    for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
        for each in statuses or ():
            if each.image_id:
                yield RunningImage(each.name, each.image_id)
