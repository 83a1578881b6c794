"""What ``polyarch report`` is made of: inspections of the images of workloads, and facts from manifests.

Images are inspected once each, in parallel; an interrupt leaves what is known by then. With ``--pull-secrets`` the
secrets that a workload names are read by name, and only when a registry asks for a credential; they are never listed.
The answers to such a request count for that namespace alone.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.images.pod_images import wiring_of
from polyarch.cli.images.resolve import how
from polyarch.cli.input.objects import STANDARD_INPUT, FileDocument, documents_in
from polyarch.cli.input.pod_templates import templates_of
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.output.messages import Messages
from polyarch.clock import SystemClock
from polyarch.images.pull_secrets import PullSecrets, SecretClient
from polyarch.kube.client import Client
from polyarch.kube.resources import RUNTIME_CLASSES, SECRETS
from polyarch.kube.schema import Schema
from polyarch.manifests.scan import kinds
from polyarch.manifests.scan.pod_specs import unknown_images
from polyarch.objects import ObjectMeta, PartialObjectMetadata, RuntimeClass, Secret
from polyarch.oci.auth.credential_stores import ChainedCredentials, CredentialStore
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.image.contents import list_tags
from polyarch.oci.image.deep_inspection import look_deeper
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import Inspector, open_inspector
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.failures import Failure
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.crd import cluster_pod_placement_config, placement_policy
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Source
from polyarch.reports.facts import (
    CronJobObject,
    ImageInspections,
    ImageRecord,
    NodeObject,
    PodObject,
    ReportFacts,
    TemplateObject,
    WorkloadObject,
)
from polyarch.reports.gather import WORKLOADS, ImageLookup, nodes_of, plain, questions_of
from polyarch.reports.report import targets_of
from polyarch.reports.sums import newer_tags
from polyarch.reports.verdicts import to_ask
from polyarch.reports.workloads import Workload, WorkloadScale, of_cron_job, of_workload, scaled, workloads_of
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.crd import architecture_taints


class AlternativeOptions(NamedTuple):
    """What is asked about besides the images of workloads: possible ways out."""

    substitutes: Mapping[str, str] = {}
    targets: tuple[NodePlatform, ...] = ()
    suggest: bool = False
    """Also newer tags of images that lack a target."""


class ImageAnswers(msgspec.Struct, frozen=True):
    """What was learned."""

    answers: ImageInspections
    complete: bool


async def ask(
    facts: ReportFacts, options: ImageOptions, messages: Messages, *, client: Client | None, beyond: AlternativeOptions
) -> ImageAnswers:
    """Everything that a report needs to know of images. ``client``: with it pull secrets are read. Raises
    ``InvalidSetting`` for options that cannot be used."""
    secrets = PullSecrets(_reader(client), SystemClock()) if client is not None else None
    own = options.access.credentials()
    known: dict[ImageLookup, Inspection] = {}
    complete = True
    try:
        async with open_inspector(wiring_of(options), notice=messages.detail) as inspector:
            asker = _Asker(inspector, secrets, own, options, messages, known)
            try:
                await asker.ask(questions_of(facts, with_secrets=secrets is not None))
                await asker.ask(plain(to_ask(facts, _answers(known))))
                await asker.ask(plain(_substitutes(known, beyond)))
                if beyond.suggest:
                    await asker.ask(plain(await asker.newer(facts, beyond.targets)))
            except asyncio.CancelledError:
                complete = False  # what is known so far is the answer
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
    finally:
        if secrets is not None:
            await secrets.aclose()
    return ImageAnswers(_answers(known), complete)


class _Asker:
    """Asks, and keeps each answer as it comes."""

    def __init__(
        self,
        inspector: Inspector,
        secrets: PullSecrets | None,
        own: CredentialStore,
        options: ImageOptions,
        messages: Messages,
        known: dict[ImageLookup, Inspection],
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._own = own
        self._options = options
        self._messages = messages
        self._known = known

    async def ask(self, questions: Iterable[ImageLookup]) -> None:
        missing = [each for each in dict.fromkeys(questions) if each not in self._known]
        if not missing:
            return
        with self._messages.progress("inspecting images", len(missing)) as shown:

            async def one(question: ImageLookup) -> None:
                self._known[question] = await self._inspected(question)
                shown.advance()

            await map_concurrently(one, missing, at_once=self._inspector.settings.requests)
        for question in missing:
            self._messages.detail(how(self._known[question]))

    async def newer(self, facts: ReportFacts, targets: tuple[NodePlatform, ...]) -> list[str]:
        """Newer tags of images that lack a target, a few of each. What a registry does not list has none."""
        wanted = targets_of(facts, targets)
        lacking = {
            question.reference.canonical: question.reference
            for question, answer in self._known.items()
            if question.reference.tag is not None
            and question.reference.digest is None
            and answer.constrains
            and not all(target in answer.node_platforms for target in wanted)
        }

        repositories = {reference.name: reference for reference in lacking.values()}

        async def one(reference: Reference) -> tuple[str, ...]:
            try:
                return await list_tags(self._inspector.connection.using(self._own), reference)
            except Failure as failure:
                self._messages.detail(f"{reference.name}: no tags: {failure.error.message}")
                return ()

        lists = await map_concurrently(one, repositories.values(), at_once=self._options.access.concurrency)
        tags = dict(zip(repositories, lists, strict=True))
        return [
            f"{each.name}:{tag}" for each in lacking.values() for tag in newer_tags(each.tag or "", tags[each.name])
        ]

    async def _inspected(self, question: ImageLookup) -> Inspection:
        store = self._own
        if question.source is not None and self._secrets is not None:
            store = ChainedCredentials([self._secrets.lazy(question.source), self._own])
        answer = await self._inspector.inspect(question.reference, credentials=store, fresh=self._options.fresh)
        if self._options.deep is not None:
            answer = await look_deeper(self._inspector.connection, answer, self._options.deep)
        return answer


def _substitutes(known: Mapping[ImageLookup, Inspection], beyond: AlternativeOptions) -> Iterator[str]:
    """Those of images that are in use."""
    return (beyond.substitutes[each.image] for each in known if each.image in beyond.substitutes)


def _answers(known: Mapping[ImageLookup, Inspection]) -> ImageInspections:
    return ImageInspections(
        ImageRecord.of(question.image, answer, namespace=question.namespace) for question, answer in known.items()
    )


def _reader(client: Client) -> SecretClient:
    async def read(namespace: str, name: str) -> Secret:
        return await client.get(SECRETS, name, namespace=namespace, type=Secret)

    return read


# -- facts from manifests: those that somebody writes, and those that ``kubectl get -o yaml`` prints


_KINDS: Final = frozenset(each.kind for each in WORKLOADS)
DEFAULT_NAMESPACE: Final = "default"


def facts_from(paths: Sequence[str], note: "Notes") -> ReportFacts:
    """Of all files; :class:`UsageError` names file and line of what cannot be used. Found in a directory or by a
    pattern, that is noted and left out."""
    documents = [each for each in documents_in(paths, note) if each.kind]
    _refuse_two_clusters(documents)
    latest: dict[tuple[str, str, str], FileDocument] = {}
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
            note(f"{LEFT_OUT}{error}")
    found.note_rollouts_without_template()
    workloads = workloads_of(scaled(found.makers, scales_of(found.scales)), found.pods)
    if not workloads:
        raise UsageError(f"{', '.join(paths)}: nothing to report on; expected pods or objects with pod templates")
    return ReportFacts(
        source=Source("files", ", ".join(paths)),
        nodes=nodes_of(found.nodes),
        workloads=workloads,
        namespaces=found.labels,
        cppc=found.singletons.get(CPPCS.kind),
        policy=found.singletons.get(POLICIES.kind),
        taints=found.singletons.get(ARCHITECTURE_TAINTS.kind),
        runtime_classes=found.runtime_classes or None,
    )


LEFT_OUT: Final = "left out: "
"""A note begins so that says what the report knows nothing of."""


class Notes:
    """What was found besides, said once each."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)

    @property
    def left_out(self) -> int:
        """Number of things that may run, and of which nothing is known."""
        return sum(each.startswith(LEFT_OUT) for each in self.texts)


class _Found:
    """What the files hold."""

    def __init__(self, note: Notes) -> None:
        self._note = note
        self.makers: list[Workload] = []
        self.pods: list[PodObject] = []
        self.nodes: list[NodeObject] = []
        self.labels: dict[str, dict[str, str]] = {}
        self.singletons: dict[str, Any] = {}
        self.runtime_classes: dict[str, RuntimeClass] = {}
        self.scales: list[FileDocument] = []

    def add(self, document: FileDocument) -> None:
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
            case RUNTIME_CLASSES.kind:
                found = document.into(RuntimeClass)
                self.runtime_classes[document.name] = RuntimeClass(ObjectMeta(name=document.name), found.scheduling)
            case kind if kind in _AUTOSCALERS:
                self.scales.append(document)
            case "Rollout" if isinstance(_member(document, "spec", "workloadRef"), dict):
                self.scales.append(document)
            case "Namespace":
                metadata = document.into(PartialObjectMetadata).metadata
                self.labels[metadata.name] = {"kubernetes.io/metadata.name": metadata.name, **(metadata.labels or {})}
            case CPPCS.kind:
                self.singletons[document.kind] = _singleton(
                    document, ClusterPodPlacementConfig, cluster_pod_placement_config()
                )
            case POLICIES.kind:
                self.singletons[document.kind] = _singleton(document, PlacementPolicy, placement_policy())
            case ARCHITECTURE_TAINTS.kind:
                self.singletons[document.kind] = _singleton(document, ArchitectureTaints, architecture_taints())
            case _:
                others = list(_others(document))
                self.makers += others
                if not others and (image := _unknown_image(document)):
                    self._note(
                        f"{LEFT_OUT}{document.where}: {document.kind} {document.name} names {image}, and polyarch does "
                        "not know the kind"
                    )

    def _add(self, maker: Workload) -> None:
        """Another group's kind of the same name, such as Volcano's Job, has its pods elsewhere: that nothing is in the
        way of it cannot be said."""
        if maker.template.spec.containers:
            self.makers.append(maker)
        else:
            self._note(
                f"{LEFT_OUT}{maker.source}: {maker.kind} {maker.metadata.name} has no containers at {maker.path}"
            )

    def note_rollouts_without_template(self) -> None:
        """An Argo Rollout whose ``workloadRef`` names what is not in the files runs nobody knows what."""
        known = {(each.metadata.namespace, each.kind, each.metadata.name) for each in self.makers}
        for each in self.scales:
            if each.kind not in _AUTOSCALERS and (target := _target(each, "workloadRef")) not in known:
                namespace, kind, name = target
                self._note(
                    f"{LEFT_OUT}{each.where}: {each.kind} {each.name} takes its pods from {kind} {namespace}/{name}, "
                    "which is not here"
                )


def _unknown_image(document: FileDocument) -> str:
    """The first image that an object of a kind names that nobody knows; empty: it seems to run nothing."""
    group = str(document.content.get("apiVersion") or "").rpartition("/")[0]
    if document.node is None or kinds.is_known(document.kind, group) or kinds.runs_nothing(group):
        return ""
    return next((text for text, _, _ in unknown_images(document.node, "", set())), "")


_AUTOSCALERS: Final = {
    "HorizontalPodAutoscaler": ("minReplicas", 1, "maxReplicas"),
    "ScaledObject": ("minReplicaCount", 0, "maxReplicaCount"),
}
"""Kinds that scale the workload of their ``scaleTargetRef``: the members with the least and the most replicas, and the
least without one."""


def scales_of(documents: Iterable[FileDocument]) -> Iterator[WorkloadScale]:
    """What autoscalers, and Rollouts that refer to a workload, say of numbers of pods. One that scales a Rollout scales
    what the Rollout runs."""
    documents = list(documents)
    rollouts = {_place(each): each for each in documents if each.kind not in _AUTOSCALERS}
    limits: dict[tuple[str, str, str], tuple[int, int | None]] = {}
    for each in documents:
        if each.kind in _AUTOSCALERS:
            least, usual, most = _AUTOSCALERS[each.kind]
            target = _target(each, "scaleTargetRef")
            limits[target] = _number(each, least, usual), _number(each, most, None)
    for target, (low, high) in limits.items():
        if target not in rollouts:
            yield WorkloadScale(namespace=target[0], kind=target[1], name=target[2], least=low, most=high)
    for place, each in rollouts.items():
        low, high = limits.get(place, (0, None))
        replicas = _number(each, "replicas", 1)
        if replicas:
            replicas = max(low, replicas if high is None else min(high, replicas))
        namespace, kind, name = _target(each, "workloadRef")
        replaces = _member(each, "spec", "workloadRef", "scaleDown") in ("onsuccess", "progressively")
        yield WorkloadScale(namespace=namespace, kind=kind, name=name, replicas=replicas, replaces=replaces)


def _place(document: FileDocument) -> tuple[str, str, str]:
    return document.namespace or DEFAULT_NAMESPACE, document.kind, document.name


def _target(document: FileDocument, member: str) -> tuple[str, str, str]:
    """The workload that it is about. KEDA's targets are Deployments unless they say otherwise."""
    kind, name = (_member(document, "spec", member, part) for part in ("kind", "name"))
    return document.namespace or DEFAULT_NAMESPACE, str(kind or "Deployment"), str(name or "")


def _number(document: FileDocument, member: str, usual: Any) -> Any:
    found = _member(document, "spec", member)
    return max(0, found) if isinstance(found, int) else usual


def _member(document: FileDocument, *path: str) -> Any:
    found: Any = document.content
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _refuse_two_clusters(documents: Iterable[FileDocument]) -> None:
    """One object cannot have two uids."""
    seen: dict[tuple[str, str, str], tuple[str, FileDocument]] = {}
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


def _others(document: FileDocument) -> Iterator[Workload]:
    """Every other kind with pod templates: each of them is a workload."""
    made = list(templates_of(document, namespace=document.namespace or DEFAULT_NAMESPACE))
    for each in made:
        pod = each.into(PodObject)
        name = pod.metadata.generate_name.rstrip("-") if len(made) > 1 else document.name
        yield Workload(
            kind=document.kind,
            metadata=ObjectMeta(name=name or document.kind.lower(), namespace=document.namespace or DEFAULT_NAMESPACE),
            template=TemplateObject(pod.metadata, pod.spec),
            replicas=_replicas(document),
            source=document.where,
        )


def _replicas(document: FileDocument) -> int:
    spec = document.content.get("spec")
    number = spec.get("replicas") if isinstance(spec, dict) else None
    return max(0, number) if isinstance(number, int) else 1


def _in_namespace(found: Any, document: FileDocument) -> Any:
    if document.namespace:
        return found
    metadata = msgspec.structs.replace(found.metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(found, metadata=metadata)


def _singleton(document: FileDocument, type: type[Any], crd: Schema) -> Any:
    found = document.into(type, crd)
    if found.metadata.name != names.SINGLETON:
        raise document.error(f"the {document.kind} must be named {names.SINGLETON!r}, not {found.metadata.name!r}")
    return msgspec.structs.replace(found, metadata=ObjectMeta(name=names.SINGLETON))
