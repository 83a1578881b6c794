"""Facts from manifests: those that somebody writes, and those that ``kubectl get -o yaml`` prints (RP-002).

Workloads count by their templates, in every kind that ``polyarch lint`` knows; replicas times requests give the weight.
Nodes, namespaces and our configuration are used if they are among the files. The same object twice counts once; pods
of two clusters would add up to a cluster that does not exist, so they are refused (RP-050).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.explain.templates import templates_of
from polyarch.cli.input.objects import STANDARD_INPUT, Document, documents_in
from polyarch.objects import ObjectMeta, PartialObjectMetadata
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, ClusterPodPlacementConfig, PlacementPolicy
from polyarch.reports.document import Source
from polyarch.reports.facts import CronJobObject, Facts, NodeObject, PodObject, TemplateObject, WorkloadObject
from polyarch.reports.gather import WORKLOADS, nodes_of
from polyarch.reports.workloads import Maker, of_cron_job, of_workload, workloads_of
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints

_KINDS: Final = frozenset(each.kind for each in WORKLOADS)
DEFAULT_NAMESPACE: Final = "default"


def facts_from(paths: Sequence[str], note: "Notes") -> Facts:
    """Of all files; :class:`UsageError` names file and line of what cannot be used. Found in a directory or by a
    pattern, that is noted and left out."""
    documents = [each for each in documents_in(paths, note) if each.kind]
    _refuse_two_clusters(documents)
    latest: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        key = (document.kind, document.namespace, document.name or f"{document.where}")
        if key in latest:
            note(f"{document.kind} {document.name}: {document.where} is used, not {latest[key].where}")
        latest[key] = document
    found = _Found(note)
    named = {STANDARD_INPUT, *map(os.path.normpath, paths)}
    for document in latest.values():
        try:
            found.add(document)
        except UsageError as error:
            if os.path.normpath(document.file) in named:
                raise
            note(f"left out: {error}")
    workloads = workloads_of(found.makers, found.pods)
    if not workloads:
        raise UsageError(f"{', '.join(paths)}: nothing to report on; expected pods or objects with pod templates")
    return Facts(
        source=Source("files", ", ".join(paths)),
        nodes=nodes_of(found.nodes),
        workloads=workloads,
        namespaces=found.labels,
        cppc=found.singletons.get(CPPCS.kind),
        policy=found.singletons.get(POLICIES.kind),
        taints=found.singletons.get(ARCHITECTURE_TAINTS.kind),
    )


class Notes:
    """What was found besides, said once each."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)


class _Found:
    """What the files hold."""

    def __init__(self, note: Notes) -> None:
        self._note = note
        self.makers: list[Maker] = []
        self.pods: list[PodObject] = []
        self.nodes: list[NodeObject] = []
        self.labels: dict[str, dict[str, str]] = {}
        self.singletons: dict[str, Any] = {}

    def add(self, document: Document) -> None:
        """:class:`UsageError` for an object that is not as its kind is."""
        match document.kind:
            case "Pod":
                self.pods.append(_in_namespace(document.into(PodObject), document))
            case "CronJob":
                job = _in_namespace(document.into(CronJobObject), document)
                self._add(of_cron_job(job, source=document.where))
            case kind if kind in _KINDS:
                workload = _in_namespace(document.into(WorkloadObject), document)
                self._add(of_workload(kind, workload, source=document.where))
            case "Node":
                self.nodes.append(document.into(NodeObject))
            case "Namespace":
                metadata = document.into(PartialObjectMetadata).metadata
                self.labels[metadata.name] = {"kubernetes.io/metadata.name": metadata.name, **(metadata.labels or {})}
            case CPPCS.kind:
                self.singletons[document.kind] = _singleton(document, ClusterPodPlacementConfig)
            case POLICIES.kind:
                self.singletons[document.kind] = _singleton(document, PlacementPolicy)
            case ARCHITECTURE_TAINTS.kind:
                self.singletons[document.kind] = _singleton(document, ArchitectureTaints)
            case _:
                self.makers += _others(document)

    def _add(self, maker: Maker) -> None:
        """Another group's kind of the same name, such as Volcano's Job, has its pods elsewhere: that nothing is in the
        way of it cannot be said."""
        if maker.template.spec.containers:
            self.makers.append(maker)
        else:
            self._note(
                f"left out: {maker.source}: {maker.kind} {maker.metadata.name} has no containers at {maker.path}"
            )


def _refuse_two_clusters(documents: Iterable[Document]) -> None:
    """One object cannot have two uids."""
    seen: dict[tuple[str, str, str], tuple[str, Document]] = {}
    for document in documents:
        metadata = document.content.get("metadata")
        uid = str(metadata.get("uid") or "") if isinstance(metadata, dict) else ""
        if not uid or not document.name:
            continue
        known, first = seen.setdefault((document.kind, document.namespace, document.name), (uid, document))
        if known != uid:
            raise document.error(
                f"{document.kind} {document.name} has another uid than in {first.where}: these are objects of two "
                "clusters; report on one at a time"
            )


def _others(document: Document) -> Iterator[Maker]:
    """Every other kind with pod templates: each of them is a workload."""
    made = list(templates_of(document, namespace=document.namespace or DEFAULT_NAMESPACE))
    for each in made:
        pod = each.into(PodObject)
        name = pod.metadata.generate_name.rstrip("-") if len(made) > 1 else document.name
        yield Maker(
            kind=document.kind,
            metadata=ObjectMeta(name=name or document.kind.lower(), namespace=document.namespace or DEFAULT_NAMESPACE),
            template=TemplateObject(pod.metadata, pod.spec),
            replicas=_replicas(document),
            source=document.where,
        )


def _replicas(document: Document) -> int:
    spec = document.content.get("spec")
    number = spec.get("replicas") if isinstance(spec, dict) else None
    return max(0, number) if isinstance(number, int) else 1


def _in_namespace(found: Any, document: Document) -> Any:
    if document.namespace:
        return found
    metadata = msgspec.structs.replace(found.metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(found, metadata=metadata)


def _singleton(document: Document, type: type[Any]) -> Any:
    found = document.into(type)
    if found.metadata.name != names.SINGLETON:
        raise document.error(f"the {document.kind} must be named {names.SINGLETON!r}, not {found.metadata.name!r}")
    return msgspec.structs.replace(found, metadata=ObjectMeta(name=names.SINGLETON))
