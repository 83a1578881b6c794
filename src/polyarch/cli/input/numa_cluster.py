"""What the NUMA operator would see of a cluster, from files (``run operator --plan``).

Only the custom resource is needed. What no file says is as in a new cluster: plain Kubernetes, a namespace that is fit
for exporters, no exporters yet.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import Document, read_documents
from polyarch.kube.resources import DAEMONSETS, ENDPOINT_SLICES, NAMESPACES, NODES
from polyarch.model.meta import PartialObjectMetadata
from polyarch.numa.api.crds import operator_spec
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.api.validation import unknown_members
from polyarch.numa.operator.detection import CLUSTER_VERSIONS, INFRASTRUCTURES, platform_of
from polyarch.numa.operator.kubelet_configs import HOSTED_KEY, HOSTED_LABEL, KUBELET_CONFIGS
from polyarch.numa.operator.kubelet_findings import findings
from polyarch.numa.operator.observed import USUAL_API_PORTS, NodeLabels, Observed
from polyarch.numa.operator.plan import PRIVILEGED
from polyarch.operating.settings import DEFAULT_IMAGE, OperatorSettings

POOLS: Final = "MachineConfigPool"
API_SERVERS: Final = "APIServer"
CONFIG_MAPS: Final = "ConfigMap"
UNDERSTOOD: Final = (
    OPERATORS.kind,
    NODES.kind,
    NAMESPACES.kind,
    DAEMONSETS.kind,
    TOPOLOGIES.kind,
    ENDPOINT_SLICES.kind,
    CLUSTER_VERSIONS.kind,
    INFRASTRUCTURES.kind,
    API_SERVERS,
    POOLS,
    KUBELET_CONFIGS.kind,
    CONFIG_MAPS,
)
"""Kinds that a plan depends on."""


def read_observed(paths: Iterable[str], settings: OperatorSettings) -> tuple[Observed, ...]:
    """One value per NUMAResourcesOperator in the files. Raises :class:`UsageError` that names file and line."""
    several = [document for path in paths for document in read_documents(path)]
    by_kind: dict[str, list[Document]] = defaultdict(list)
    for document in several:
        if document.kind not in UNDERSTOOD:
            raise document.error(
                f"a plan does not depend on {document.kind or 'an object without kind'}; give {', '.join(UNDERSTOOD)}"
            )
        by_kind[document.kind].append(document)
    operators = by_kind[OPERATORS.kind]
    if not operators:
        raise UsageError(f"--plan: there is no {OPERATORS.kind} in the files; give at least one")
    for each in operators:
        _refuse_misspelt(each)
    settings = msgspec.structs.replace(settings, image=settings.image or DEFAULT_IMAGE)
    return tuple(_observed(each, by_kind, settings) for each in operators)


def _observed(operator: Document, by_kind: Mapping[str, Sequence[Document]], settings: OperatorSettings) -> Observed:
    def contents(kind: str) -> tuple[dict[str, Any], ...]:
        return tuple(each.content for each in by_kind.get(kind, ()) if each.into(PartialObjectMetadata))

    def first(kind: str) -> dict[str, Any] | None:
        return next(iter(contents(kind)), None)

    operator.into(PartialObjectMetadata)
    namespaces = {each["metadata"]["name"]: each for each in contents(NAMESPACES.kind)}
    home = namespaces.get(settings.numa_home)
    ports = [
        port["port"]
        for each in contents(ENDPOINT_SLICES.kind)
        if each["metadata"]["name"] == "kubernetes"
        for port in each.get("ports") or ()
    ]
    return Observed(
        object=operator.content,
        settings=settings,
        platform=platform_of(
            settings.platform,
            cluster_version=first(CLUSTER_VERSIONS.kind),
            infrastructure=first(INFRASTRUCTURES.kind),
        ),
        namespace_labels=PRIVILEGED if home is None else home["metadata"].get("labels") or {},
        api_server_ports=tuple(sorted(set(ports))) or USUAL_API_PORTS,
        tls_profile=((first(API_SERVERS) or {}).get("spec") or {}).get("tlsSecurityProfile"),
        nodes=tuple(
            NodeLabels(each["metadata"]["name"], each["metadata"].get("labels") or {}) for each in contents(NODES.kind)
        ),
        pools=contents(POOLS),
        kubelet_configs=(*contents(KUBELET_CONFIGS.kind), *_hosted(by_kind.get(CONFIG_MAPS, ()))),
        daemon_sets={
            each["metadata"]["name"]: each
            for each in contents(DAEMONSETS.kind)
            if each["metadata"].get("namespace") == settings.numa_home
        },
        findings={each.name: findings(each.into(NodeResourceTopology)) for each in by_kind.get(TOPOLOGIES.kind, ())},
    )


def _refuse_misspelt(operator: Document) -> None:
    if wrong := unknown_members(operator.content, operator_spec()):
        told = "; ".join(f"line {operator.line_of(f'.{each.field}')}: {each}" for each in wrong)
        raise operator.error(told)


def _hosted(config_maps: Iterable[Document]) -> list[dict[str, Any]]:
    """The KubeletConfigs that HyperShift keeps as texts, with the metadata of their ConfigMaps."""
    found = []
    for each in config_maps:
        metadata = each.content.get("metadata") or {}
        if HOSTED_LABEL not in (metadata.get("labels") or {}):
            continue
        try:
            content = yaml.safe_load((each.content.get("data") or {}).get(HOSTED_KEY) or "")
        except yaml.YAMLError as error:
            raise each.error(f"data.{HOSTED_KEY} is not YAML ({' '.join(str(error).split())})") from None
        found.append({**(content if isinstance(content, dict) else {}), "metadata": metadata})
    return found
