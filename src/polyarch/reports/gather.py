"""Reads a cluster for a report: one list of each kind, in pages; nothing is watched and nothing written.

What the user has no right to list is left out and named, for a report of what one may see is better than none.
Kinds that the cluster does not have say nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from polyarch.builds.api.resources import ImageBuild
from polyarch.builds.names import IMAGE_BUILDS
from polyarch.images.node_fit import node_platform
from polyarch.images.pod_images import images_of
from polyarch.images.pull_secrets import PullSecretNames
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import (
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RUNTIME_CLASSES,
    STATEFULSETS,
    Resource,
)
from polyarch.kube.responses import ListResult
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.objects import ObjectMeta, PartialObjectMetadata, RuntimeClass
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.reference import Reference, parse
from polyarch.placement import names
from polyarch.placement.api import (
    CPPCS,
    ENOEXECEVENTS,
    POLICIES,
    ClusterPodPlacementConfig,
    ENoExecEvent,
    PlacementPolicy,
)
from polyarch.reports.document import Source
from polyarch.reports.facts import (
    CronJobObject,
    ExecFormatError,
    ImageInspections,
    NodeFact,
    NodeObject,
    PodObject,
    ReportFacts,
    WorkloadObject,
    cores_of,
)
from polyarch.reports.features import build_rows, numa_rows
from polyarch.reports.verdicts import WorkloadAssessor
from polyarch.reports.workloads import of_cron_job, of_workload, workloads_of
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints

MAX_CONCURRENT_LISTS: Final = 4
WORKLOADS: Final = (DEPLOYMENTS, STATEFULSETS, DAEMONSETS, REPLICASETS, JOBS)
TYPES: Final[dict[Resource, type[Any]]] = {
    NODES: NodeObject,
    PODS: PodObject,
    **dict.fromkeys(WORKLOADS, WorkloadObject),
    CRONJOBS: CronJobObject,
    NAMESPACES: PartialObjectMetadata,
    RUNTIME_CLASSES: RuntimeClass,
    CPPCS: ClusterPodPlacementConfig,
    POLICIES: PlacementPolicy,
    ARCHITECTURE_TAINTS: ArchitectureTaints,
    ENOEXECEVENTS: ENoExecEvent,
    TOPOLOGIES: NodeResourceTopology,
    IMAGE_BUILDS: ImageBuild,
}
"""What is listed, and what is kept of it."""
NECESSARY: Final = (str(PODS), str(NODES))
"""Without these a report answers nothing."""


class Lists(Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: Any) -> ListResult[Any]: ...


class ClusterIdentity(NamedTuple):
    """What is known of the cluster that is read."""

    name: str = ""
    home: str = DEFAULT_NAMESPACE
    """Polyarch's own namespace."""
    short_names_searched: bool = False
    """Its nodes search several registries for short names."""


async def gather(
    client: Lists, place: ClusterIdentity, *, taken_at: str, without: Collection[Resource] = ()
) -> ReportFacts:
    """The facts of a cluster. ``taken_at``: now, RFC 3339; ``without``: kinds that are not asked for. Raises
    ``KubernetesError`` if the API server cannot be asked at all."""
    unread: list[str] = []

    async def items(resource: Resource) -> Sequence[Any]:
        try:
            return (await client.list(resource, type=TYPES[resource])).items
        except NotFound:
            return ()
        except Forbidden:
            unread.append(str(resource))
            return ()

    asked = [each for each in TYPES if each not in without]
    lists = dict.fromkeys(TYPES, ()) | dict(
        zip(asked, await map_concurrently(items, asked, at_once=MAX_CONCURRENT_LISTS), strict=True)
    )
    facts = await asyncio.to_thread(assembled, lists, Source("cluster", place.name, taken_at), unread=unread)
    return msgspec.structs.replace(facts, home=place.home, short_names_searched=place.short_names_searched)


def assembled(lists: Mapping[Resource, Sequence[Any]], source: Source, *, unread: Sequence[str] = ()) -> ReportFacts:
    """The facts of objects that were listed."""
    makers = [of_workload(kind.kind, each) for kind in WORKLOADS for each in lists[kind]]
    makers += map(of_cron_job, lists[CRONJOBS])
    workloads = workloads_of(makers, lists[PODS])
    return ReportFacts(
        source=source,
        nodes=nodes_of(lists[NODES]),
        workloads=workloads,
        namespaces={each.metadata.name: dict(each.metadata.labels or {}) for each in lists[NAMESPACES]},
        cppc=_singleton(lists[CPPCS]),
        policy=_singleton(lists[POLICIES]),
        taints=_singleton(lists[ARCHITECTURE_TAINTS]),
        exec_format_errors=tuple(sorted(map(_exec_format_error, lists[ENOEXECEVENTS]), key=lambda each: each.pod)),
        numa=numa_rows(lists[TOPOLOGIES], workloads),
        builds=build_rows(lists[IMAGE_BUILDS]),
        unread=tuple(sorted(unread)),
        runtime_classes=None
        if str(RUNTIME_CLASSES) in unread
        else {each.metadata.name: _without_annotations(each) for each in lists[RUNTIME_CLASSES]},
    )


def nodes_of(nodes: Sequence[NodeObject]) -> tuple[NodeFact, ...]:
    """By name."""
    found = []
    for node in nodes:
        labels, info = node.metadata.labels or {}, node.status.node_info
        platform = node_platform(labels, info.architecture, info.operating_system)
        found.append(
            NodeFact(
                name=node.metadata.name,
                os=platform.os,
                architecture=platform.architecture,
                labels=labels,
                taints=tuple(node.spec.taints or ()),
                cores=cores_of(node.status.allocatable),
                runtime=info.container_runtime_version,
            )
        )
    return tuple(sorted(found, key=lambda each: each.name))


def _without_annotations(found: RuntimeClass) -> RuntimeClass:
    return msgspec.structs.replace(found, metadata=ObjectMeta(name=found.metadata.name))


def _singleton(objects: Sequence[Any]) -> Any:
    """The one named ``cluster``, with its name alone: other metadata may hold what its author applied."""
    found = next((each for each in objects if each.metadata.name == names.SINGLETON), None)
    return None if found is None else msgspec.structs.replace(found, metadata=ObjectMeta(name=names.SINGLETON))


def _exec_format_error(event: ENoExecEvent) -> ExecFormatError:
    status = event.status
    pod = f"{status.pod_namespace}/{status.pod_name}" if status is not None and status.pod_name else event.metadata.name
    return ExecFormatError(pod, event.metadata.creation_timestamp or "")


# -- questions: the images that a report has to know about, each once --------------------------------------------------
# An image that is asked for with the pull secrets of a namespace is a question of that namespace: its answer counts
# there alone.


class ImageLookup(NamedTuple):
    """An image, and the pull secrets that it is asked with; without them it is asked for all."""

    image: str
    reference: Reference
    source: PullSecretNames | None

    @property
    def namespace(self) -> str:
        return self.source.namespace if self.source is not None else ""


def questions_of(facts: ReportFacts, *, with_secrets: bool) -> Iterator[ImageLookup]:
    """The images of workloads that are not only counted."""
    for judged in WorkloadAssessor(facts, ImageInspections(), ()).judged():
        if judged.is_excluded:
            continue
        workload = judged.workload
        source = PullSecretNames.of(workload.template, workload.namespace) if with_secrets else None
        if source is not None and not source.names:
            source = None
        for use in images_of(workload.template, searched=facts.short_names_searched):
            if use.reference is not None:
                yield ImageLookup(use.text, use.reference, source)


def plain(images: Iterable[str]) -> Iterator[ImageLookup]:
    """About images of no namespace. Raises ``InvalidReference``."""
    for image in images:
        yield ImageLookup(image, parse(image), None)
