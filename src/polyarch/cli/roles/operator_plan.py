"""``polyarch run operator --plan``: what the NUMA operator would apply, as YAML, from files that describe a cluster.

Only a custom resource is needed. What no file says is as in a new cluster: plain Kubernetes, a namespace that is fit
for exporters, no exporters yet.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import FileDocument, read_documents
from polyarch.cli.output.documents import manifest_text
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, ENDPOINT_SLICES, NAMESPACES, NODES, few
from polyarch.kube.schema import Schema
from polyarch.numa.api.crds import operator_spec, scheduler_spec, unknown_members
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.names import SCHEDULER
from polyarch.objects import Condition, PartialObjectMetadata
from polyarch.operator.components.numa_exporter_plan import PRIVILEGED, plan_exporters
from polyarch.operator.components.numa_facts import (
    API_SERVERS,
    CLUSTER_VERSIONS,
    INFRASTRUCTURES,
    POOLS,
    USUAL_API_PORTS,
    ExporterFacts,
    ExporterPlan,
    NodeLabels,
    Platform,
    findings,
    four,
    is_evicting,
    platform_of,
)
from polyarch.operator.components.numa_node_groups import HOSTED_KEY, HOSTED_LABEL, KUBELET_CONFIGS
from polyarch.operator.components.numa_scheduler_plan import NodeCounts, SchedulableNode, SchedulerFacts
from polyarch.operator.components.numa_scheduler_plan import plan_scheduler as scheduler_plan
from polyarch.operator.operands import tolerated
from polyarch.operator.settings import DEFAULT_IMAGE, OLDEST_KUBERNETES, ClusterCapabilities, OperatorSettings
from polyarch.yaml_loader import SafeLoader

JsonObject = Mapping[str, Any]


class ShownPlan(msgspec.Struct, frozen=True):
    """The plan for one custom resource."""

    given: JsonObject
    documents: Sequence[JsonObject] | None
    """None: nothing is changed."""
    status: JsonObject
    conditions: Sequence[Condition] | None
    """None: the status is left alone, too."""
    remarks: Sequence[str] = ()
    """What the documents do not show, for people."""

    @classmethod
    def of(cls, observed: ExporterFacts | SchedulerFacts) -> "ShownPlan":
        if isinstance(observed, ExporterFacts):
            made = plan_exporters(observed)
            namespace = [made.namespace] if made.namespace is not None else []
            documents = None if made.documents is None else [*namespace, *made.documents]
            return cls(observed.object, documents, made.status or {}, made.conditions, tuple(_remarks(made)))
        found = scheduler_plan(observed)
        conditions = (*four(found.condition), *found.extra)
        events = tuple(event.message for event in found.events)
        return cls(observed.document, found.documents, found.status, conditions, events)

    @property
    def is_degraded(self) -> bool:
        return any(each.type == "Degraded" and each.status == "True" for each in self.conditions or ())


def plans_text(plans: Iterable[ShownPlan]) -> str:
    """Every document of a plan, then its custom resource."""
    return manifest_text(document for each in plans for document in _documents(each))


def remarks(shown: ShownPlan) -> Iterator[str]:
    """What to say besides."""
    if shown.conditions is None:
        yield "reconciliation is paused: nothing is changed, the status neither"
    elif shown.documents is None:
        yield f"nothing is created, changed or deleted for {shown.given['kind']}"
    yield from shown.remarks


def _remarks(made: ExporterPlan) -> Iterator[str]:
    for group, nodes in made.group_nodes.items():
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield f"node group {group}: {count}{f' ({few(nodes)})' if nodes else ''}"
    if (signed := made.certificate) is not None:
        yield f"the operator signs Secret {signed.namespace}/{signed.secret} for {', '.join(signed.dns_names)}"
    for each in made.events:
        yield each.message


def _documents(shown: ShownPlan) -> Iterator[JsonObject]:
    yield from shown.documents or ()
    if shown.conditions is not None:
        given = shown.given
        status = {**shown.status, "conditions": msgspec.to_builtins(shown.conditions)}
        name = (given.get("metadata") or {}).get("name")
        yield {"apiVersion": given["apiVersion"], "kind": given["kind"], "metadata": {"name": name}, "status": status}


# -- the cluster that files describe


CONFIG_MAPS: Final = "ConfigMap"
PLANNED_FOR: Final[Mapping[str, Schema]] = {OPERATORS.kind: operator_spec(), SCHEDULERS.kind: scheduler_spec()}
UNDERSTOOD: Final = (
    *PLANNED_FOR,
    NODES.kind,
    NAMESPACES.kind,
    DAEMONSETS.kind,
    DEPLOYMENTS.kind,
    TOPOLOGIES.kind,
    ENDPOINT_SLICES.kind,
    CLUSTER_VERSIONS.kind,
    INFRASTRUCTURES.kind,
    API_SERVERS.kind,
    POOLS.kind,
    KUBELET_CONFIGS.kind,
    CONFIG_MAPS,
)
"""Kinds that a plan depends on."""


def read_observed(paths: Iterable[str], settings: OperatorSettings) -> tuple[ExporterFacts | SchedulerFacts, ...]:
    """One value per NUMAResourcesOperator and NUMAResourcesScheduler. Raises :class:`UsageError` that names file and
    line."""
    by_kind: dict[str, list[FileDocument]] = defaultdict(list)
    for path in paths:
        for document in read_documents(path):
            if document.kind not in UNDERSTOOD:
                kind = document.kind or "an object without kind"
                raise document.error(f"a plan does not depend on {kind}; give {', '.join(UNDERSTOOD)}")
            document.into(PartialObjectMetadata)
            by_kind[document.kind].append(document)
    for kind, schema in PLANNED_FOR.items():
        for document in by_kind[kind]:
            _refuse_misspelt(document, schema)
    settings = msgspec.structs.replace(settings, image=settings.image or DEFAULT_IMAGE)
    cluster = _Cluster(by_kind, settings)
    found: tuple[ExporterFacts | SchedulerFacts, ...] = (
        *(cluster.for_exporters(each.content) for each in by_kind[OPERATORS.kind]),
        *(cluster.for_scheduler(each) for each in by_kind[SCHEDULERS.kind]),
    )
    if not found:
        raise UsageError(f"--plan: there is no {' or '.join(PLANNED_FOR)} in the files; give at least one")
    return found


class _Cluster:
    """The objects of the files."""

    def __init__(self, by_kind: Mapping[str, Sequence[FileDocument]], settings: OperatorSettings) -> None:
        self._by_kind = by_kind
        self._settings = settings

    def for_exporters(self, operator: dict[str, Any]) -> ExporterFacts:
        settings = self._settings
        namespaces = {each["metadata"]["name"]: each for each in self._of(NAMESPACES.kind)}
        home = namespaces.get(settings.numa_home)
        configured = (self._first(API_SERVERS.kind) or {}).get("spec") or {}
        return ExporterFacts(
            object=operator,
            settings=settings,
            platform=self._platform,
            version=self._version,
            namespace_labels=PRIVILEGED if home is None else home["metadata"].get("labels") or {},
            api_server_ports=self._ports,
            tls_profile=configured.get("tlsSecurityProfile"),
            nodes=tuple(
                NodeLabels(each["metadata"]["name"], each["metadata"].get("labels") or {})
                for each in self._of(NODES.kind)
            ),
            pools=self._of(POOLS.kind),
            kubelet_configs=(*self._of(KUBELET_CONFIGS.kind), *_hosted(self._by_kind.get(CONFIG_MAPS, ()))),
            daemon_sets={each["metadata"]["name"]: each for each in self._at_home(DAEMONSETS.kind)},
            evicts=any(map(is_evicting, self._of(SCHEDULERS.kind))),
            findings={
                each.name: findings(each.into(NodeResourceTopology)) for each in self._by_kind.get(TOPOLOGIES.kind, ())
            },
        )

    def for_scheduler(self, scheduler: FileDocument) -> SchedulerFacts:
        deployments = {each["metadata"]["name"]: each for each in self._at_home(DEPLOYMENTS.kind)}
        return SchedulerFacts(
            document=scheduler.content,
            metadata=scheduler.into(PartialObjectMetadata).metadata,
            owner=None,
            operator=self._settings,
            cluster=ClusterCapabilities(openshift=self._platform != "kubernetes"),
            platform=self._platform,
            version="v{}.{}.0".format(*self._version),
            node_counts=self._candidates,
            api_server_ports=self._ports,
            deployment=deployments.get(SCHEDULER),
        )

    @property
    def _platform(self) -> Platform:
        return platform_of(
            self._settings.platform,
            cluster_version=self._first(CLUSTER_VERSIONS.kind),
            infrastructure=self._first(INFRASTRUCTURES.kind),
        )

    @property
    def _candidates(self) -> NodeCounts:
        nodes = (each.into(SchedulableNode) for each in self._by_kind.get(NODES.kind, ()))
        return NodeCounts.of(nodes, tolerated(self._settings))

    @property
    def _version(self) -> tuple[int, int]:
        """That of the kubelets, which follow the API server."""
        return self._candidates.oldest_kubelet or OLDEST_KUBERNETES

    @property
    def _ports(self) -> tuple[int, ...]:
        ports = [
            port["port"]
            for each in self._of(ENDPOINT_SLICES.kind)
            if each["metadata"]["name"] == "kubernetes"
            for port in each.get("ports") or ()
        ]
        return tuple(sorted(set(ports))) or USUAL_API_PORTS

    def _at_home(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self._of(kind) if each["metadata"].get("namespace") == self._settings.numa_home]

    def _of(self, kind: str) -> tuple[dict[str, Any], ...]:
        return tuple(each.content for each in self._by_kind.get(kind, ()))

    def _first(self, kind: str) -> dict[str, Any] | None:
        return next(iter(self._of(kind)), None)


def _refuse_misspelt(document: FileDocument, schema: Schema) -> None:
    if wrong := unknown_members(document.content, schema):
        told = "; ".join(f"line {document.line_of(f'.{each.field}')}: {each}" for each in wrong)
        raise document.error(told)


def _hosted(config_maps: Iterable[FileDocument]) -> list[dict[str, Any]]:
    """The KubeletConfigs that HyperShift keeps as texts, with the metadata of their ConfigMaps."""
    found = []
    for each in config_maps:
        metadata = each.content.get("metadata") or {}
        if HOSTED_LABEL not in (metadata.get("labels") or {}):
            continue
        try:
            content = yaml.load(str((each.content.get("data") or {}).get(HOSTED_KEY) or ""), SafeLoader)  # noqa: S506
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise each.error(f"data.{HOSTED_KEY} is not YAML ({' '.join(str(error).split())})") from None
        found.append({**(content if isinstance(content, dict) else {}), "metadata": metadata})
    return found
