"""Templates of autoscalers and pools of clouds: a node that they make must carry its taint from the template. Pure.

An autoscaler simulates where a pending pod would fit on a node that does not exist yet. If the template lacks the taint
it makes a node for a pod that the taint then repels, and does so again. What templates say is read in
``images/node_templates.py``. What a patch would replace is said before anybody applies it, and what is not understood
is said, too, instead of being taken for right. Pools that only the cloud knows are known by labels of their nodes.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.images.node_templates import (
    AUTOSCALER_TAINTS,
    CLOUD_EFFECTS,
    Json,
    TemplateError,
    TemplateReading,
    annotation,
    entries,
    is_made,
    kind_of,
    mapping_at,
)
from polyarch.kube.patches import Operation, add, remove, replace, test
from polyarch.kube.resources import Resource
from polyarch.objects import Node
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture, normal_system
from polyarch.taints.names import DISABLED, MANAGED_TAINTS_ANNOTATION, OPT_OUT
from polyarch.taints.node_rules import architecture_of
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint, is_passing, parse_taints

_TAINTS: Final = ("spec", "template", "spec", "taints")
_STARTUP: Final = ("spec", "template", "spec", "startupTaints")


class NodeTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template or pool of nodes that would join without the taint of their architecture, or may."""

    kind: str
    api_version: str = ""
    """Empty: no object of the cluster describes it."""
    namespace: str = ""
    name: str
    architectures: tuple[str, ...] = ()
    """Those that its nodes may have, sorted."""
    patch: tuple[Operation, ...] = ()
    """What adds the taint; empty if no single taint is right for all of its nodes, or another one is in the way."""
    detail: str = ""
    command: str = ""
    """What adds the taint, for a shell."""


class NodeTemplates(msgspec.Struct, frozen=True):
    """What was found of all kinds."""

    lacking: tuple[NodeTemplate, ...] = ()
    notes: tuple[str, ...] = ()
    """What was looked at, and what was not."""


class _TemplateWriter(NamedTuple):
    """How the taints of one kind of templates are written."""

    write: Callable[[Json, "_TaintPatch"], tuple[Operation, ...]]
    replaces: str
    """What becomes of nodes that are there, once the patch is applied."""


class _TaintPatch(NamedTuple):
    """The taint that is added, and the entries of the list that it takes the place of."""

    wanted: Taint
    replaced: tuple[int, ...] = ()
    startup: tuple[int, ...] = ()
    """Of ``startupTaints``: with the same key and effect beside it no node could register."""


# -- one template ------------------------------------------------------------------------------------------------------


def lacking(resource: Resource, document: Json, settings: TaintSettings) -> NodeTemplate | None:
    """The template if its nodes would join without the taint; None if all is well or nothing is known of it."""
    try:
        if is_made(document):
            return None
        read = kind_of(resource).read(document)
    except TemplateError:
        return None
    if read.architectures is None or read.systems.isdisjoint(settings.operating_systems):
        return None
    if read.labels.get(OPT_OUT) == DISABLED:
        return None
    metadata = mapping_at(document, "metadata")
    found = NodeTemplate(
        kind=resource.kind,
        api_version=resource.api_version,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        architectures=tuple(sorted(read.architectures)),
    )
    if not read.architectures:
        return msgspec.structs.replace(found, detail=f"it makes no node: {read.why}")
    tainted = sorted(read.architectures & settings.tainted)
    if not tainted:
        return None
    if len(read.architectures) > 1:
        names = " or ".join(sorted(read.architectures))
        return msgspec.structs.replace(
            found,
            detail=f"its nodes may be {names}{f', because {read.why}' if read.why else ''}; one template has the same "
            f"taints for all: make a {resource.kind} for each architecture",
        )
    wanted = settings.taint(tainted[0])
    if _is_well(read, wanted):
        return None
    change, foreign = _changed(read, wanted, settings)
    if foreign is not None:
        return msgspec.structs.replace(
            found,
            detail=f"it has {foreign}, which is not polyarch's and excludes {wanted}: key and effect are unique on a "
            "node; remove that taint, or choose another key",
        )
    writer = _WRITERS[resource.group]
    patch = writer.write(document, change)
    unread = f"; what else stands there is not understood, and kept: {read.unread}" if read.unread else ""
    return msgspec.structs.replace(
        found,
        patch=patch,
        detail=f"{_detail(read, change)}{unread}. {writer.replaces}",
        command=_command(resource, found, patch),
    )


def _is_well(read: TemplateReading, wanted: Taint) -> bool:
    pair = (wanted.key, wanted.effect)
    lasting = (*read.taints, *(each for each in read.elsewhere if each not in read.taints))
    return [each for each in (*lasting, *read.startup) if (each.key, each.effect) == pair] == [wanted] and (
        wanted in lasting
    )


def _changed(read: TemplateReading, wanted: Taint, settings: TaintSettings) -> tuple[_TaintPatch, Taint | None]:
    """What becomes of entries with the same key and effect, and one that is in the way."""
    pair = (wanted.key, wanted.effect)
    beside = [at for at, each in enumerate(read.taints) if (each.key, each.effect) == pair]
    startup = [at for at, each in enumerate(read.startup) if (each.key, each.effect) == pair]
    for taint in (*(read.taints[at] for at in beside), *(read.startup[at] for at in startup)):
        value = normal_architecture(taint.value)
        if value != wanted.value and (settings.ownership != "adopt" or value not in KNOWN_ARCHITECTURES):
            return _TaintPatch(wanted), taint
    for taint in read.elsewhere:
        if (taint.key, taint.effect) == pair and taint != wanted:
            return _TaintPatch(wanted), taint
    return _TaintPatch(wanted, tuple(beside), tuple(startup)), None


def _detail(read: TemplateReading, change: _TaintPatch) -> str:
    wanted = change.wanted
    if change.replaced and wanted not in read.taints:
        present = ", ".join(str(read.taints[at]) for at in change.replaced)
        return f"it has {present} where {wanted} belongs"
    if change.replaced:
        return f"it has several taints with key and effect of {wanted}, with which no node can register"
    if change.startup:
        return f"{wanted} is among its startupTaints, which autoscalers take to go away; it belongs to its taints"
    return f"{wanted} is not among its taints"


def _command(resource: Resource, found: NodeTemplate, patch: tuple[Operation, ...]) -> str:
    place = f" -n {found.namespace}" if found.namespace else ""
    text = msgspec.json.encode(patch).decode()
    return f"kubectl patch {resource} {found.name}{place} --type=json -p {shlex.quote(text)}"


def unsaid(resource: Resource, document: Json) -> str:
    """Why nothing is known of what a template's nodes are like, the rest of a sentence about it; empty: it is known."""
    try:
        if is_made(document):
            return ""
        read = kind_of(resource).read(document)
    except TemplateError as error:
        return f"not understood: {error}"
    if read.architectures is not None:
        return ""
    unread = f", and this of it is not understood: {read.unread}" if read.unread else ""
    return f"nothing says which architecture its nodes have{unread}"


# -- Karpenter ---------------------------------------------------------------------------------------------------------


def _write_template(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
    """A list of taints as Kubernetes has it, in ``spec.template.spec``."""
    startup = mapping_at(document, "spec", "template", "spec").get("startupTaints") or ()
    place = _pointer(_STARTUP)
    moved = [test(f"{place}/{at}", startup[at]) for at in change.startup]
    moved += [remove(f"{place}/{at}") for at in reversed(change.startup)]
    return (*moved, *_written(document, _TAINTS, msgspec.to_builtins(change.wanted), change.replaced))


# -- Cluster API, and OpenShift's machines -----------------------------------------------------------------------------


def _write_annotation(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
    annotations = mapping_at(document, "metadata", "annotations")
    present = entries(annotation(document, AUTOSCALER_TAINTS))
    kept = [each for at, each in enumerate(present) if at not in change.replaced]
    text = ",".join(map(str, [*kept, change.wanted]))
    place = "/metadata/annotations"
    if not annotations:
        return (add(place, {AUTOSCALER_TAINTS: text}),)
    return (add(f"{place}/{AUTOSCALER_TAINTS.replace('/', '~1')}", text),)


# -- pools of clouds that an object of the cluster describes -----------------------------------------------------------


def _cloud_list(*path: str) -> Callable[[Json, _TaintPatch], tuple[Operation, ...]]:
    """Writes a list whose effects are spelled as the clouds spell them."""

    def write(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
        taint = {**msgspec.to_builtins(change.wanted), "effect": CLOUD_EFFECTS[change.wanted.effect]}
        return _written(document, path, taint, change.replaced)

    return write


def _text_list(*path: str) -> Callable[[Json, _TaintPatch], tuple[Operation, ...]]:
    return lambda document, change: _written(document, path, str(change.wanted), change.replaced)


def _written(document: Json, path: Sequence[str], taint: object, replaced: Sequence[int]) -> tuple[Operation, ...]:
    """The taint in the place of the first entry that it replaces, which is tested, else at the end."""
    place, present = _pointer(path), mapping_at(document, *path[:-1]).get(path[-1])
    if not isinstance(present, list):
        there = next(at for at in range(len(path) - 1, -1, -1) if at == 0 or mapping_at(document, *path[:at]))
        value: object = [taint]
        for name in reversed(path[there + 1 :]):
            value = {name: value}
        return (add(_pointer(path[: there + 1]), value),)
    if not replaced:
        return (add(f"{place}/-", taint),)
    first, *more = replaced
    tests = (test(f"{place}/{at}", present[at]) for at in replaced)
    return (*tests, *(remove(f"{place}/{at}") for at in reversed(more)), replace(f"{place}/{first}", taint))


_DRIFT: Final = "Applying the patch makes Karpenter replace every node of the pool (drift)"
_NEW_ONLY: Final = "Nodes that are there keep what they have; new ones come with the taint"
_TELLS: Final = (
    "The annotation tells the cluster autoscaler and replaces no machine; the nodes themselves get the taint from "
    "their bootstrap configuration (register-with-taints), or from polyarch as they register"
)
_CLOUD: Final = "Look up what your cloud does to nodes that are there when the taints of their pool change"

_WRITERS: Final = {
    "karpenter.sh": _TemplateWriter(_write_template, _DRIFT),
    "machine.openshift.io": _TemplateWriter(_write_template, _NEW_ONLY),
    "cluster.x-k8s.io": _TemplateWriter(_write_annotation, _TELLS),
    "eks.services.k8s.aws": _TemplateWriter(_cloud_list("spec", "taints"), _CLOUD),
    "container.cnrm.cloud.google.com": _TemplateWriter(_cloud_list("spec", "nodeConfig", "taint"), _CLOUD),
    "containerservice.azure.com": _TemplateWriter(_text_list("spec", "nodeTaints"), _CLOUD),
}
"""By the group of the template."""
UNREAD_KINDS: Final = (
    ("hypershift.openshift.io", "NodePool"),
    ("infrastructure.cluster.x-k8s.io", "AWSManagedMachinePool"),
    ("infrastructure.cluster.x-k8s.io", "AzureManagedMachinePool"),
    ("infrastructure.cluster.x-k8s.io", "GCPManagedMachinePool"),
    ("eks.aws.upbound.io", "NodeGroup"),
    ("container.gcp.upbound.io", "NodePool"),
    ("containerservice.azure.upbound.io", "KubernetesClusterNodePool"),
    ("cloud.google.com", "ComputeClass"),
)
"""Kinds that make nodes as well and are not looked at, which a plan says."""


# -- pools that only the cloud knows -----------------------------------------------------------------------------------


class _CloudPool(NamedTuple):
    kind: str
    label: str
    """Of a node: the name of its pool."""
    command: str
    whole: bool
    """The command replaces the whole list of taints, so it has to name the others, too."""


_CLOUDS: Final = (
    _CloudPool(
        "EKS node group",
        "eks.amazonaws.com/nodegroup",
        "aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {name} --taints {taints}",
        whole=False,
    ),
    _CloudPool(
        "GKE node pool",
        "cloud.google.com/gke-nodepool",
        "gcloud container node-pools update {name} --cluster CLUSTER --node-taints {taints}",
        whole=True,
    ),
    _CloudPool(
        "AKS node pool",
        "kubernetes.azure.com/agentpool",
        "az aks nodepool update --resource-group GROUP --cluster-name CLUSTER --name {name} --node-taints {taints}",
        whole=True,
    ),
)
_OF_KARPENTER: Final = "karpenter.sh/nodepool"


def cloud_pools(nodes: Iterable[Node], settings: TaintSettings) -> tuple[NodeTemplate, ...]:
    """Pools of the nodes' clouds whose definition nobody here can read, and that seem to lack the taint: no node of
    theirs carries it but for polyarch."""
    pools: dict[tuple[_CloudPool, str], list[Node]] = {}
    for node in nodes:
        labels = node.metadata.labels or {}
        cloud = next((each for each in _CLOUDS if each.label in labels), None)
        if cloud is not None and _OF_KARPENTER not in labels and labels.get(OPT_OUT) != DISABLED:
            pools.setdefault((cloud, labels[cloud.label]), []).append(node)
    found = (_cloud_pool(cloud, name, members, settings) for (cloud, name), members in sorted(pools.items()))
    return tuple(each for each in found if each is not None)


def _cloud_pool(cloud: _CloudPool, name: str, nodes: Sequence[Node], settings: TaintSettings) -> NodeTemplate | None:
    architectures = {architecture_of(node) for node in nodes} - {""}
    systems = {normal_system(node.status.node_info.operating_system or "linux") for node in nodes}
    if (
        len(architectures) != 1
        or not architectures <= settings.tainted
        or systems.isdisjoint(settings.operating_systems)
    ):
        return None
    wanted = settings.taint(next(iter(architectures)))
    if any(wanted in map(_plain, node.spec.taints or ()) and not _has_record(node, wanted) for node in nodes):
        return None
    shared = _shared(nodes, settings) if cloud.whole else []
    what = (
        shlex.quote(
            f"addOrUpdateTaints=[{{key={wanted.key},value={wanted.value},effect={CLOUD_EFFECTS[wanted.effect]}}}]"
        )
        if not cloud.whole
        else shlex.quote(",".join(map(str, [*shared, wanted])))
    )
    whole = "; the command replaces the whole list of taints, so it names those that its nodes have now" * cloud.whole
    return NodeTemplate(
        kind=cloud.kind,
        name=name,
        architectures=tuple(architectures),
        detail=f"its definition is not in the cluster, and no node has {wanted} from it{whole}. {_CLOUD}",
        command=cloud.command.format(name=shlex.quote(name), taints=what),
    )


def _shared(nodes: Sequence[Node], settings: TaintSettings) -> list[Taint]:
    """The lasting taints that all nodes of a pool have, without ours."""
    first, *rest = [list(map(_plain, node.spec.taints or ())) for node in nodes]
    return [
        each
        for each in first
        if not is_passing(each) and each.key != settings.key and all(each in others for others in rest)
    ]


def _plain(taint: Taint) -> Taint:
    return Taint(taint.key, taint.value, taint.effect)


def _has_record(node: Node, taint: Taint) -> bool:
    return taint in parse_taints((node.metadata.annotations or {}).get(MANAGED_TAINTS_ANNOTATION, ""))


def _pointer(path: Sequence[str]) -> str:
    return "".join(f"/{part}" for part in path)
