"""Templates of autoscalers and pools of clouds: a node that they make must carry its taint from the template. Pure.

An autoscaler simulates where a pending pod would fit on a node that does not exist yet. If the template lacks the taint
it makes a node for a pod that the taint then repels, and does so again. Read here is what each kind of template says of
architecture, system and taints. What a patch would replace is said before anybody applies it, and what is not
understood is said, too, instead of being taken for right.

Sources: Karpenter's NodePool (``karpenter.sh/v1``), Cluster API's contract with the cluster autoscaler
(``capacity.cluster-autoscaler.kubernetes.io/…``), OpenShift's MachineSets, and the kinds by which EKS (ACK), AKS (Azure
Service Operator) and GKE (Config Connector) describe node pools. Pools that only the cloud knows are known by labels of
their nodes.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.images.constraints import ARCH_KEYS, OS_KEYS
from polyarch.kube.patches import Operation, add, remove, replace, test
from polyarch.kube.resources import Resource
from polyarch.objects import Node
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture, normal_system
from polyarch.selectors import InvalidSelector, Requirement
from polyarch.taints.names import ARCH_KEY, DISABLED, MANAGED_TAINTS_ANNOTATION, OPT_OUT, OS_KEY
from polyarch.taints.node_rules import architecture_of, parse_record
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint, is_passing

Json = Mapping[str, Any]
OFFERED: Final = frozenset({"amd64", "arm64"})
"""What Karpenter's providers offer where a NodePool does not choose an architecture."""
AUTOSCALER_LABELS: Final = "capacity.cluster-autoscaler.kubernetes.io/labels"
AUTOSCALER_TAINTS: Final = "capacity.cluster-autoscaler.kubernetes.io/taints"
"""What Cluster API and OpenShift tell the cluster autoscaler of nodes that do not exist yet, comma-separated."""
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


class _TemplateReading(NamedTuple):
    """What one of these templates says."""

    architectures: frozenset[str] | None
    """None: it does not say."""
    why: str = ""
    """Why its nodes may have several architectures, or none."""
    systems: frozenset[str] = frozenset({"linux"})
    labels: Mapping[str, str] = {}
    taints: Sequence[Taint] = ()
    startup: Sequence[Taint] = ()


class _TemplateKind(NamedTuple):
    """One kind of templates: how it is read, and how its taints are written."""

    group: str
    kind: str
    read: Callable[[Json], _TemplateReading]
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
    kind = next(each for each in KINDS if (each.group, each.kind) == (resource.group, resource.kind))
    if _is_made(document):
        return None
    read = kind.read(document)
    if read.architectures is None or read.systems.isdisjoint(settings.operating_systems):
        return None
    if read.labels.get(OPT_OUT) == DISABLED:
        return None
    metadata = document.get("metadata") or {}
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
    patch = kind.write(document, change)
    return msgspec.structs.replace(
        found, patch=patch, detail=f"{_detail(read, change)}. {kind.replaces}", command=_command(resource, found, patch)
    )


def _is_well(read: _TemplateReading, wanted: Taint) -> bool:
    pair = (wanted.key, wanted.effect)
    return [each for each in (*read.taints, *read.startup) if (each.key, each.effect) == pair] == [wanted] and (
        wanted in read.taints
    )


def _changed(read: _TemplateReading, wanted: Taint, settings: TaintSettings) -> tuple[_TaintPatch, Taint | None]:
    """What becomes of entries with the same key and effect, and one that is in the way."""
    pair = (wanted.key, wanted.effect)
    beside = [at for at, each in enumerate(read.taints) if (each.key, each.effect) == pair]
    startup = [at for at, each in enumerate(read.startup) if (each.key, each.effect) == pair]
    for taint in (*(read.taints[at] for at in beside), *(read.startup[at] for at in startup)):
        value = normal_architecture(taint.value)
        if value != wanted.value and (settings.ownership != "adopt" or value not in KNOWN_ARCHITECTURES):
            return _TaintPatch(wanted), taint
    return _TaintPatch(wanted, tuple(beside), tuple(startup)), None


def _detail(read: _TemplateReading, change: _TaintPatch) -> str:
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


def unsaid(resource: Resource, document: Json) -> bool:
    """Whether a template says nothing of its architecture, so that nothing is known of it."""
    kind = next(each for each in KINDS if (each.group, each.kind) == (resource.group, resource.kind))
    return not _is_made(document) and kind.read(document).architectures is None


def _is_made(document: Json) -> bool:
    """Another template that is looked at makes it: a MachineSet of a MachineDeployment."""
    owners = _at(document, "metadata").get("ownerReferences") or ()
    return any(each.get("controller") and each.get("kind") == "MachineDeployment" for each in owners)


# -- Karpenter ---------------------------------------------------------------------------------------------------------


def _node_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec", "template", "spec")
    labels = _at(document, "spec", "template", "metadata", "labels")
    requirements = [*_requirements(spec), *(Requirement(key, "In", (value,)) for key, value in labels.items())]
    of_architecture = [each for each in requirements if each.key in ARCH_KEYS]
    of_system = [each for each in requirements if each.key in OS_KEYS]
    found = _possible(of_architecture, OFFERED, normal_architecture)
    systems = _possible(of_system, frozenset({"linux", "windows"}), normal_system) if of_system else {"linux"}
    if not found:
        why = f"its requirements for {ARCH_KEY} exclude each other"
    elif not of_architecture:
        why = f"it has no requirement for {ARCH_KEY}{_elsewhere(requirements)}"
    else:
        why = f"its requirements for {ARCH_KEY} admit both" if found == OFFERED else ""
    return _TemplateReading(
        found, why, frozenset(systems), labels, _taints_of(spec.get("taints")), _taints_of(spec.get("startupTaints"))
    )


def _requirements(spec: Json) -> Iterator[Requirement]:
    for each in spec.get("requirements") or ():
        try:
            yield Requirement.parse(each)
        except InvalidSelector:
            continue


def _possible(
    requirements: Sequence[Requirement], offered: frozenset[str], normal: Callable[[str], str]
) -> frozenset[str]:
    """The values that all requirements admit: those that are offered, and those that one of them names."""
    normalised = [Requirement(each.key, each.operator, tuple(map(normal, each.values))) for each in requirements]
    named = {value for each in normalised if each.operator == "In" for value in each.values}
    return frozenset(value for value in offered | named if all(each.matches({each.key: value}) for each in normalised))


_INSTANCES: Final = re.compile(r"instance-type|instance-(family|category|generation)|sku-|machine-(family|type)")


def _elsewhere(requirements: Iterable[Requirement]) -> str:
    keys = sorted({each.key for each in requirements if _INSTANCES.search(each.key)})
    return f" (what {' and '.join(keys)} leave of the architectures was not looked at)" if keys else ""


def _write_template(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
    """A list of taints as Kubernetes has it, in ``spec.template.spec``."""
    startup = _at(document, "spec", "template", "spec").get("startupTaints") or ()
    place = _pointer(_STARTUP)
    moved = [test(f"{place}/{at}", startup[at]) for at in change.startup]
    moved += [remove(f"{place}/{at}") for at in reversed(change.startup)]
    return (*moved, *_written(document, _TAINTS, msgspec.to_builtins(change.wanted), change.replaced))


# -- Cluster API, and OpenShift's machines -----------------------------------------------------------------------------


def _openshift_machine_set(document: Json) -> _TemplateReading:
    spec = _at(document, "spec", "template", "spec")
    return _machines(document, _at(spec, "metadata", "labels"), _taints_of(spec.get("taints")))


def _cluster_api(document: Json) -> _TemplateReading:
    told = _at(document, "metadata", "annotations").get(AUTOSCALER_TAINTS, "")
    return _machines(document, _at(document, "spec", "template", "metadata", "labels"), parse_record(told))


def _machines(document: Json, own: Mapping[str, str], taints: Sequence[Taint]) -> _TemplateReading:
    told = _at(document, "metadata", "annotations").get(AUTOSCALER_LABELS, "")
    labels = {**dict(each.strip().split("=", 1) for each in told.split(",") if "=" in each), **own}
    architecture = labels.get(ARCH_KEY)
    return _TemplateReading(
        frozenset({normal_architecture(architecture)}) if architecture else None,
        systems=frozenset({normal_system(labels.get(OS_KEY, "linux"))}),
        labels=labels,
        taints=taints,
    )


def _write_annotation(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
    annotations = _at(document, "metadata", "annotations")
    present = parse_record(annotations.get(AUTOSCALER_TAINTS, ""))
    kept = [each for at, each in enumerate(present) if at not in change.replaced]
    text = ",".join(map(str, [*kept, change.wanted]))
    place = "/metadata/annotations"
    if not annotations:
        return (add(place, {AUTOSCALER_TAINTS: text}),)
    return (add(f"{place}/{AUTOSCALER_TAINTS.replace('/', '~1')}", text),)


# -- pools of clouds that an object of the cluster describes -----------------------------------------------------------

_CLOUD_EFFECTS: Final = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
_ARM_MACHINES: Final = re.compile(r"(t2a|c4a|n4a|a4x)(-|$)")
"""Machine series of Google Cloud with Arm processors."""
_ARM_SIZES: Final = re.compile(r"standard_[a-z]+\d+(-\d+)?[a-z]*p[a-z]*_", re.ASCII | re.IGNORECASE)
"""Sizes of Azure with Arm processors: a ``p`` among the additive features."""


def _ack_node_group(document: Json) -> _TemplateReading:
    spec = _at(document, "spec")
    image = str(spec.get("amiType") or "")
    architecture = {"ARM_64": "arm64", "x86_64": "amd64"}.get(next(iter(re.findall("ARM_64|x86_64", image)), ""))
    return _TemplateReading(
        frozenset({architecture}) if architecture else None,
        systems=frozenset({"windows" if image.startswith("WINDOWS") else "linux"}),
        labels=_at(spec, "labels"),
        taints=_taints_of(spec.get("taints"), cloud=True),
    )


def _gke_node_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec", "nodeConfig")
    machine = str(spec.get("machineType") or "")
    return _TemplateReading(
        frozenset({"arm64" if _ARM_MACHINES.match(machine) else "amd64"}) if machine else None,
        systems=frozenset({"windows" if "WINDOWS" in str(spec.get("imageType") or "").upper() else "linux"}),
        labels=_at(spec, "labels"),
        taints=_taints_of(spec.get("taint"), cloud=True),
    )


def _aks_agent_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec")
    size = str(spec.get("vmSize") or "")
    return _TemplateReading(
        frozenset({"arm64" if _ARM_SIZES.match(size) else "amd64"}) if size else None,
        systems=frozenset({normal_system(str(spec.get("osType") or "Linux"))}),
        labels=_at(spec, "nodeLabels"),
        taints=parse_record(",".join(map(str, spec.get("nodeTaints") or ()))),
    )


def _cloud_list(*path: str) -> Callable[[Json, _TaintPatch], tuple[Operation, ...]]:
    """Writes a list whose effects are spelled as the clouds spell them."""

    def write(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
        taint = {**msgspec.to_builtins(change.wanted), "effect": _CLOUD_EFFECTS[change.wanted.effect]}
        return _written(document, path, taint, change.replaced)

    return write


def _text_list(*path: str) -> Callable[[Json, _TaintPatch], tuple[Operation, ...]]:
    return lambda document, change: _written(document, path, str(change.wanted), change.replaced)


def _written(document: Json, path: Sequence[str], taint: object, replaced: Sequence[int]) -> tuple[Operation, ...]:
    """The taint in the place of the first entry that it replaces, which is tested, else at the end."""
    place, present = _pointer(path), _at(document, *path[:-1]).get(path[-1])
    if not isinstance(present, list):
        return (add(place, [taint]),)
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

KINDS: Final = (
    _TemplateKind("karpenter.sh", "NodePool", _node_pool, _write_template, _DRIFT),
    _TemplateKind("machine.openshift.io", "MachineSet", _openshift_machine_set, _write_template, _NEW_ONLY),
    _TemplateKind("cluster.x-k8s.io", "MachineDeployment", _cluster_api, _write_annotation, _TELLS),
    _TemplateKind("cluster.x-k8s.io", "MachineSet", _cluster_api, _write_annotation, _TELLS),
    _TemplateKind("cluster.x-k8s.io", "MachinePool", _cluster_api, _write_annotation, _TELLS),
    _TemplateKind("eks.services.k8s.aws", "Nodegroup", _ack_node_group, _cloud_list("spec", "taints"), _CLOUD),
    _TemplateKind(
        "container.cnrm.cloud.google.com",
        "ContainerNodePool",
        _gke_node_pool,
        _cloud_list("spec", "nodeConfig", "taint"),
        _CLOUD,
    ),
    _TemplateKind(
        "containerservice.azure.com",
        "ManagedClustersAgentPool",
        _aks_agent_pool,
        _text_list("spec", "nodeTaints"),
        _CLOUD,
    ),
)
"""The templates that are understood."""


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
            f"addOrUpdateTaints=[{{key={wanted.key},value={wanted.value},effect={_CLOUD_EFFECTS[wanted.effect]}}}]"
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
    return taint in parse_record((node.metadata.annotations or {}).get(MANAGED_TAINTS_ANNOTATION, ""))


# -- documents ---------------------------------------------------------------------------------------------------------


def _taints_of(given: Any, *, cloud: bool = False) -> list[Taint]:
    """``cloud``: effects are written as ``NO_SCHEDULE``."""
    spelled = {text: effect for effect, text in _CLOUD_EFFECTS.items()} if cloud else {}
    return [
        Taint(each.get("key", ""), each.get("value") or "", spelled.get(each.get("effect", ""), each.get("effect", "")))
        for each in given or ()
    ]


def _pointer(path: Sequence[str]) -> str:
    return "".join(f"/{part}" for part in path)


def _at(document: Json, *path: str) -> Mapping[str, Any]:
    for part in path:
        found = document.get(part)
        document = found if isinstance(found, Mapping) else {}
    return document
