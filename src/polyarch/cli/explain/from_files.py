"""Pods and placement's configuration from files, so that both can be tried before anything is applied (PL-731).

Workloads count by their template: the pod that their controller would create. What is not given is assumed as the
defaults have it, and every assumption is said.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.explain.templates import templates_of
from polyarch.cli.input.objects import Document
from polyarch.manifests.scan.pod_specs import KINDS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import Namespace, Node, PartialObjectMetadata, Pod
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS, ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.facts import architectures_of
from polyarch.placement.rules import PodFacts
from polyarch.placement.settings import ScoringTable, SettingsTable
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.settings import TaintSettings

_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class GivenPod(msgspec.Struct, frozen=True):
    """A pod to explain: the document as an API server would get it, and where it comes from."""

    document: dict[str, Any]
    pod: Pod
    namespace: str
    source: str


class Configuration(msgspec.Struct, frozen=True):
    """Placement's configuration, from files or from a cluster."""

    table: SettingsTable
    scoring: ScoringTable
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of the namespaces that are known."""
    nodes: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What was assumed, and what is given but not used."""
    taints: TaintSettings | None = None
    """What the ArchitectureTaints says; None: there is none, and tolerations are not explained."""
    machines: tuple[Node, ...] = ()
    """The nodes whose taints are explained."""

    @classmethod
    def of(
        cls,
        cppc: ClusterPodPlacementConfig | None,
        policy: PlacementPolicy | None,
        ppcs: Iterable[PodPlacementConfig],
        *,
        namespaces: Mapping[str, Mapping[str, str]],
        nodes: frozenset[str] = frozenset(),
        operator_namespace: str = DEFAULT_NAMESPACE,
        notes: Iterable[str] = (),
        taints: ArchitectureTaints | None = None,
        machines: Iterable[Node] = (),
    ) -> "Configuration":
        assumed = [] if cppc is not None else ["no ClusterPodPlacementConfig given: assuming the defaults"]
        cppc = cppc or ClusterPodPlacementConfig()
        table = SettingsTable.of(policy, cppc, operator_namespace=operator_namespace)
        unused = [f"not used: {problem}" for problem in table.problems]
        scoring = ScoringTable.of(cppc, ppcs)
        unused += [f"PodPlacementConfig {key}: {problem}" for key, problem in scoring.problems.items()]
        settings = TaintSettings.of(taints.spec) if taints is not None else None
        unused += [f"not used: {problem}" for problem in settings.problems] if settings is not None else []
        return cls(table, scoring, namespaces, nodes, (*notes, *assumed, *unused), settings, tuple(machines))

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
        )


def configuration_from(documents: Iterable[Document]) -> Configuration:
    """From the documents of ``--objects``; :class:`UsageError` for an object of another kind."""
    cppc: ClusterPodPlacementConfig | None = None
    policy: PlacementPolicy | None = None
    ppcs: list[PodPlacementConfig] = []
    namespaces: dict[str, Mapping[str, str]] = {}
    nodes: list[Node] = []
    taints: ArchitectureTaints | None = None
    for document in documents:
        match document.kind:
            case CPPCS.kind:
                cppc = _singleton(document, document.into(ClusterPodPlacementConfig), cppc)
            case POLICIES.kind:
                policy = _singleton(document, document.into(PlacementPolicy), policy)
            case PPCS.kind:
                ppcs.append(document.into(PodPlacementConfig))
            case "Namespace":
                metadata = document.into(Namespace).metadata
                namespaces[metadata.name] = {_NAME_LABEL: metadata.name, **(metadata.labels or {})}
            case "Node":
                nodes.append(document.into(Node))
            case ARCHITECTURE_TAINTS.kind:
                taints = _singleton(document, document.into(ArchitectureTaints), taints)
            case kind:
                kinds = (CPPCS.kind, PPCS.kind, POLICIES.kind, ARCHITECTURE_TAINTS.kind, "Namespace", "Node")
                expected = ", ".join(kinds)
                raise document.error(f"--objects takes {expected}, not {kind or 'an object without kind'}")
    labelled = [PartialObjectMetadata(each.metadata) for each in nodes]
    return Configuration.of(
        cppc,
        policy,
        ppcs,
        namespaces=namespaces,
        nodes=architectures_of(labelled),
        taints=taints,
        machines=nodes,
    )


def _singleton(document: Document, found: Any, known: Any) -> Any:
    if found.metadata.name != names.SINGLETON:
        raise document.error(f"the {document.kind} must be named {names.SINGLETON!r}, not {found.metadata.name!r}")
    if known is not None:
        raise document.error(f"there is a {document.kind} {names.SINGLETON!r} already")
    return found


def pods_from(documents: Iterable[Document], *, namespace: str) -> list[GivenPod]:
    """Pods, and the pods of workloads' templates; other objects are skipped, as manifests hold many kinds.

    ``namespace`` counts where an object names none. :class:`UsageError` if there is no pod at all.
    """
    documents = list(documents)
    pods = [pod for document in documents for pod in _pods_of(document, namespace)]
    if not pods:
        files = ", ".join(dict.fromkeys(document.file for document in documents)) or "the files"
        kinds = f"{', '.join(KINDS)} or a Kubeflow job"
        raise UsageError(f"{files}: nothing to explain; expected objects of the kinds {kinds}")
    return pods


def _pods_of(document: Document, namespace: str) -> Iterator[GivenPod]:
    if document.kind == "Pod":
        content = {"metadata": {}, **document.content}  # patches add labels and annotations to it
        yield GivenPod(content, document.into(Pod), document.namespace or namespace, document.where)
        return
    name = document.name or document.kind.lower()
    for made in templates_of(document, namespace=namespace):
        yield GivenPod(made.content, made.into(Pod), made.namespace, f"{document.kind} {name}, {document.where}")
