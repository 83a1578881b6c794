"""The pods that ``polyarch explain`` explains, with the configuration that their decisions rest on.

From a cluster they are read with the permissions of the caller. From files a workload counts by its template, as the
pod that its controller would create; what is not given is assumed to have its default, and every assumption is noted.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.objects import FileDocument
from polyarch.cli.input.pod_templates import NATIVE_KINDS, templates_of
from polyarch.cli.options.common import ClusterFlags
from polyarch.images.node_fit import RuntimeClasses, node_platform
from polyarch.images.node_templates import KINDS as TEMPLATE_KINDS
from polyarch.images.node_templates import TemplateKind, platforms_of_template
from polyarch.images.pull_secrets import PullSecretNames, document_of
from polyarch.images.template_lists import read_templates
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Forbidden, NotFound
from polyarch.kube.resources import NAMESPACES, NODES, PODS, RUNTIME_CLASSES, SECRETS, Resource
from polyarch.manifests.scan.kinds import NAMES
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import (
    Namespace,
    Node,
    PartialObjectMetadata,
    Pod,
    RuntimeClass,
    Secret,
    without_null_values,
)
from polyarch.oci.auth.credential_stores import ChainedCredentials, CredentialStore, KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS, ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.crd import cluster_pod_placement_config, placement_policy, pod_placement_config
from polyarch.placement.decision import PlacementDecision
from polyarch.placement.facts import platforms_of
from polyarch.placement.patch import has_gate
from polyarch.placement.rules import ExaminedPod, PodFacts, WaitingTime, decide_after
from polyarch.placement.settings import ScoringTable, SettingsTable
from polyarch.platforms import NO_RUNTIMES, NodePlatform, NodeRuntimes
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.crd import architecture_taints
from polyarch.taints.names import SINGLETON
from polyarch.taints.settings import TaintSettings

# -- from the cluster


T = TypeVar("T")


class GivenPod(msgspec.Struct, frozen=True):
    """A pod to explain: the document as an API server would get it, and where it comes from."""

    document: dict[str, Any]
    pod: Pod
    namespace: str
    source: str
    is_complete: bool = True
    """False: the controller of its kind may fill in what the API server asks for, such as names of containers."""


class Configuration(msgspec.Struct, frozen=True):
    """Placement's configuration, from files or from a cluster."""

    table: SettingsTable
    scoring: ScoringTable
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of the namespaces that are known."""
    nodes: frozenset[NodePlatform] = frozenset()
    coming: frozenset[NodePlatform] = frozenset()
    """Platforms of the nodes that templates of autoscalers and clouds may make."""
    notes: tuple[str, ...] = ()
    """What was assumed, and what is given but not used."""
    taints: TaintSettings | None = None
    """What the ArchitectureTaints says; None: there is none, and tolerations are not explained."""
    machines: tuple[Node, ...] = ()
    """The nodes that are known."""
    runtime_classes: RuntimeClasses | None = None
    """None: nobody knows which there are, or what they add is in the pods already."""
    is_installed: bool = True
    """False: the cluster that was read has no ClusterPodPlacementConfig, so nothing places its pods."""

    @classmethod
    def of(
        cls,
        cppc: ClusterPodPlacementConfig | None,
        policy: PlacementPolicy | None,
        ppcs: Iterable[PodPlacementConfig],
        *,
        namespaces: Mapping[str, Mapping[str, str]],
        coming: frozenset[NodePlatform] = frozenset(),
        operator_namespace: str = DEFAULT_NAMESPACE,
        notes: Iterable[str] = (),
        taints: ArchitectureTaints | None = None,
        machines: Iterable[Node] = (),
        runtime_classes: RuntimeClasses | None = None,
    ) -> "Configuration":
        machines = tuple(machines)
        nodes = platforms_of([PartialObjectMetadata(each.metadata) for each in machines])
        assumed = [] if cppc is not None else ["no ClusterPodPlacementConfig given: assuming the defaults"]
        cppc = cppc or ClusterPodPlacementConfig()
        table = SettingsTable.of(policy, cppc, operator_namespace=operator_namespace)
        unused = [f"not used: {problem}" for problem in table.problems]
        scoring = ScoringTable.of(cppc, ppcs)
        unused += [f"PodPlacementConfig {key}: {problem}" for key, problem in scoring.problems.items()]
        settings = TaintSettings.of(taints.spec) if taints is not None else None
        unused += [f"not used: {problem}" for problem in settings.problems] if settings is not None else []
        return cls(
            table=table,
            scoring=scoring,
            namespaces=namespaces,
            nodes=nodes,
            coming=coming,
            notes=(*notes, *assumed, *unused),
            taints=settings,
            machines=machines,
            runtime_classes=runtime_classes,
        )

    @property
    def runtimes(self) -> NodeRuntimes:
        """The runtimes of the nodes that are known; one that does not say its own is left out."""
        said = [
            (node_platform(each.metadata.labels or {}), each.status.node_info.container_runtime_version)
            for each in self.machines
            if each.status.node_info.container_runtime_version
        ]
        return NodeRuntimes.of(said) if said else NO_RUNTIMES

    def facts(self, pod: Pod, namespace: str, *, stored: bool) -> PodFacts:
        """As the roles would have them for this pod."""
        labels = self.namespaces.get(namespace, {_NAME_LABEL: namespace})
        return PodFacts(
            pod=pod,
            namespace=namespace,
            settings=self.table.of_namespace(labels),
            sources=self.scoring.of_namespace(namespace),
            stored=stored,
            nodes=self.nodes,
            coming=self.coming,
            runtimes=self.runtimes,
        )


class SeenPod(msgspec.Struct, frozen=True):
    """The pod, the configuration that counts for it, and the credentials to ask for its images with."""

    given: GivenPod
    configuration: Configuration
    credentials: CredentialStore
    age: float
    """Seconds since its creation, by the clocks of API server and this machine."""

    is_bound: bool = False
    """It has a node."""

    @property
    def is_gated(self) -> bool:
        return has_gate(self.given.pod)

    def now(self, case: ExaminedPod, answers: Mapping[str, Inspection]) -> PlacementDecision:
        """What the controller would decide at this age; its own window began at most moments later."""
        return decide_after(case, answers, WaitingTime(self.age))


async def read_pod(
    name: str,
    *,
    namespace: str | None,
    cluster: ClusterFlags,
    credentials: CredentialStore,
) -> SeenPod:
    """Raises ``KubernetesError`` if the pod or placement's configuration cannot be read."""
    configuration = config.load(cluster.kubeconfig, cluster.context)
    name = name.removeprefix("pods/").removeprefix("pod/")
    place = namespace or configuration.namespace
    async with Client(configuration, role="cli") as client:
        try:
            document: dict[str, Any] = await client.get(PODS, name, namespace=place)
        except NotFound:
            raise CouldNotComplete(f"no pod {name!r} in namespace {place!r}; give another namespace with -n") from None
        pod = msgspec.convert(document, Pod)
        notes: list[str] = []
        facts = await _configuration(client, place, notes)
        documents = await _pull_secrets(client, pod, place, notes)
    facts = msgspec.structs.replace(facts, notes=(*facts.notes, *notes))
    # The scheduler has written nodeName since; the question is what would become of the pod that it was.
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    given = GivenPod(document, unbound, place, f"pod {place}/{name}")
    return SeenPod(
        given,
        facts,
        ChainedCredentials([KeyringCredentials(documents), credentials]),
        _age(pod),
        bool(pod.spec.node_name),
    )


async def _configuration(client: Client, namespace: str, notes: list[str]) -> Configuration:
    cppc = await _get(client, CPPCS, names.SINGLETON, ClusterPodPlacementConfig)
    policy = await _get(client, POLICIES, names.SINGLETON, PlacementPolicy)
    ppcs: list[PodPlacementConfig] = []
    with contextlib.suppress(NotFound):
        ppcs = (await client.list(PPCS, type=PodPlacementConfig, namespace=namespace)).items
    labels: dict[str, Mapping[str, str]] = {}
    try:
        labels[namespace] = (await client.get(NAMESPACES, namespace, type=PartialObjectMetadata)).metadata.labels or {}
    except ApiError as error:
        notes.append(f"labels of the namespace not read: {error}")
    taints: ArchitectureTaints | None = None
    try:
        taints = await _get(client, ARCHITECTURE_TAINTS, SINGLETON, ArchitectureTaints)
    except Forbidden as error:
        notes.append(f"{ARCHITECTURE_TAINTS.kind} not read: {error}")
    machines: list[Node] = []
    try:
        machines = (await client.list(NODES, type=Node)).items
    except Forbidden as error:
        notes.append(f"nodes not read: {error}")
    coming: set[NodePlatform] = set()
    for kind in await read_templates(client):
        if kind.problem:
            notes.append(f"{kind.resource} not read: {kind.problem}")
        coming.update(*(platforms_of_template(kind.kind, each) for each in kind.documents))
    found = Configuration.of(
        cppc, policy, ppcs, namespaces=labels, coming=frozenset(coming), taints=taints, machines=machines
    )
    return msgspec.structs.replace(found, is_installed=cppc is not None)


async def _get(client: Client, resource: Resource, name: str, type: type[T]) -> T | None:
    try:
        return await client.get(resource, name, type=type)
    except NotFound:
        return None


async def _pull_secrets(client: Client, pod: Pod, namespace: str, notes: list[str]) -> list[Document]:
    documents = []
    for name in PullSecretNames.of(pod, namespace).names:
        try:
            secret = await client.get(SECRETS, name, namespace=namespace, type=Secret)
        except ApiError as error:
            notes.append(f"pull secret {namespace}/{name} is not used: {error}")
            continue
        document, problem = document_of(secret, f"{namespace}/{name}")
        if document is not None:
            documents.append(document)
        else:
            notes.append(problem)
    return documents


def _age(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    if created is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())


# -- from files


_NAME_LABEL: Final = "kubernetes.io/metadata.name"


def configuration_from(documents: Iterable[FileDocument]) -> Configuration:
    """From the documents of ``--objects``; :class:`UsageError` for an object of another kind."""
    cppc: ClusterPodPlacementConfig | None = None
    policy: PlacementPolicy | None = None
    ppcs: list[PodPlacementConfig] = []
    namespaces: dict[str, Mapping[str, str]] = {}
    nodes: list[Node] = []
    taints: ArchitectureTaints | None = None
    runtime_classes: dict[str, RuntimeClass] = {}
    coming: set[NodePlatform] = set()
    for document in documents:
        match document.kind:
            case CPPCS.kind:
                crd = cluster_pod_placement_config()
                cppc = _singleton(document, document.into(ClusterPodPlacementConfig, crd), cppc)
            case POLICIES.kind:
                policy = _singleton(document, document.into(PlacementPolicy, placement_policy()), policy)
            case PPCS.kind:
                ppcs.append(document.into(PodPlacementConfig, pod_placement_config()))
            case "Namespace":
                metadata = document.into(Namespace).metadata
                namespaces[metadata.name] = {_NAME_LABEL: metadata.name, **(metadata.labels or {})}
            case "Node":
                nodes.append(document.into(Node))
            case RUNTIME_CLASSES.kind:
                runtime_classes[document.name] = document.into(RuntimeClass)
            case ARCHITECTURE_TAINTS.kind:
                taints = _singleton(document, document.into(ArchitectureTaints, architecture_taints()), taints)
            case kind if (template := _template_kind(document)) is not None:
                coming |= platforms_of_template(template, document.content)
            case kind:
                kinds = (
                    CPPCS.kind,
                    PPCS.kind,
                    POLICIES.kind,
                    ARCHITECTURE_TAINTS.kind,
                    RUNTIME_CLASSES.kind,
                    "Namespace",
                    "Node",
                    *dict.fromkeys(each.kind for each in TEMPLATE_KINDS),
                )
                expected = ", ".join(kinds)
                raise document.error(f"--objects takes {expected}, not {kind or 'an object without kind'}")
    return Configuration.of(
        cppc,
        policy,
        ppcs,
        namespaces=namespaces,
        coming=frozenset(coming),
        taints=taints,
        machines=nodes,
        runtime_classes=runtime_classes or None,
    )


def _template_kind(document: FileDocument) -> TemplateKind | None:
    group = str(document.content.get("apiVersion")).rpartition("/")[0]
    return next((each for each in TEMPLATE_KINDS if (each.group, each.kind) == (group, document.kind)), None)


def _singleton(document: FileDocument, found: Any, known: Any) -> Any:
    if found.metadata.name != names.SINGLETON:
        raise document.error(f"the {document.kind} must be named {names.SINGLETON!r}, not {found.metadata.name!r}")
    if known is not None:
        raise document.error(f"there is a {document.kind} {names.SINGLETON!r} already")
    return found


def pods_from(documents: Iterable[FileDocument], *, namespace: str) -> tuple[list[GivenPod], list[UsageError]]:
    """Pods, and the pods of workloads' templates; other objects are skipped, as manifests hold many kinds. Then what is
    wrong with those that cannot be read, which keeps none of the others from being explained.

    ``namespace`` counts where an object names none. :class:`UsageError` if there is no pod at all.
    """
    documents = list(documents)
    pods: list[GivenPod] = []
    problems: list[UsageError] = []
    for document in documents:
        try:
            pods += _pods_of(document, namespace)
        except UsageError as error:
            problems.append(error)
    if not pods and problems:
        raise problems[0]
    if not pods:
        files = ", ".join(dict.fromkeys(document.file for document in documents)) or "the files"
        kinds = f"{', '.join(NAMES)} or a Kubeflow job"
        raise UsageError(f"{files}: nothing to explain; expected objects of the kinds {kinds}")
    return pods, problems


def _pods_of(document: FileDocument, namespace: str) -> Iterator[GivenPod]:
    if document.kind == "Pod":
        content = {
            "metadata": {},
            "spec": {},
            **without_null_values(document.content, Pod),
        }  # patches add to its metadata
        yield GivenPod(content, document.into(Pod), document.namespace or namespace, document.where)
        return
    name = document.name or document.kind.lower()
    for made in templates_of(document, namespace=namespace):
        content = {"spec": {}, **without_null_values(made.content, Pod)}
        source = f"{document.kind} {name}, {document.where}"
        yield GivenPod(content, made.into(Pod), made.namespace, source, document.kind in NATIVE_KINDS)
