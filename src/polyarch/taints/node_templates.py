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
from polyarch.selectors import Requirement
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


class _TemplateError(ValueError):
    """A template, or the part of it that decides, is not of the form that its kind documents."""


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
    elsewhere: Sequence[Taint] = ()
    """Taints that nodes get from another list than the one that is patched."""
    unread: str = ""
    """Text of an annotation that autoscalers pass over, and that a patch keeps."""


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
    kind = _kind(resource)
    try:
        if _is_made(document):
            return None
        read = kind.read(document)
    except _TemplateError:
        return None
    if read.architectures is None or read.systems.isdisjoint(settings.operating_systems):
        return None
    if read.labels.get(OPT_OUT) == DISABLED:
        return None
    metadata = _at(document, "metadata")
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
    unread = f"; what else stands there is not understood, and kept: {read.unread}" if read.unread else ""
    return msgspec.structs.replace(
        found,
        patch=patch,
        detail=f"{_detail(read, change)}{unread}. {kind.replaces}",
        command=_command(resource, found, patch),
    )


def _is_well(read: _TemplateReading, wanted: Taint) -> bool:
    pair = (wanted.key, wanted.effect)
    lasting = (*read.taints, *(each for each in read.elsewhere if each not in read.taints))
    return [each for each in (*lasting, *read.startup) if (each.key, each.effect) == pair] == [wanted] and (
        wanted in lasting
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
    for taint in read.elsewhere:
        if (taint.key, taint.effect) == pair and taint != wanted:
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


def unsaid(resource: Resource, document: Json) -> str:
    """Why nothing is known of what a template's nodes are like, the rest of a sentence about it; empty: it is known."""
    try:
        if _is_made(document):
            return ""
        read = _kind(resource).read(document)
    except _TemplateError as error:
        return f"not understood: {error}"
    if read.architectures is not None:
        return ""
    unread = f", and this of it is not understood: {read.unread}" if read.unread else ""
    return f"nothing says which architecture its nodes have{unread}"


def _kind(resource: Resource) -> _TemplateKind:
    return next(each for each in KINDS if (each.group, each.kind) == (resource.group, resource.kind))


def _is_made(document: Json) -> bool:
    """Another template that is looked at makes it: a MachineSet of a MachineDeployment."""
    owners = _list(_at(document, "metadata"), "ownerReferences")
    return any(
        isinstance(each, Mapping) and each.get("controller") and each.get("kind") == "MachineDeployment"
        for each in owners
    )


# -- Karpenter ---------------------------------------------------------------------------------------------------------


class _PoolRequirement(NamedTuple):
    """An entry of ``spec.requirements``, by Karpenter's rules, which are not those of the scheduler: ``Gte``, ``Lte``,
    ``minValues``, and ``NotIn`` without values."""

    requirement: Requirement
    min_values: int = 0


_BOUNDS: Final = {"Gt": ("Gt", 0), "Gte": ("Gt", -1), "Lt": ("Lt", 0), "Lte": ("Lt", 1)}


def _node_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec", "template", "spec")
    labels = _labels(_at(document, "spec", "template", "metadata"), "labels")
    requirements = [
        *_requirements(spec),
        *(_PoolRequirement(Requirement(key, "In", (value,))) for key, value in labels.items()),
    ]
    of_architecture = [each for each in requirements if each.requirement.key in ARCH_KEYS]
    of_system = [each for each in requirements if each.requirement.key in OS_KEYS]
    possible = _possible(of_architecture, OFFERED)
    # Nodes are labelled as Go names architectures: whatever else a requirement asks for, no node has.
    found, names = possible & KNOWN_ARCHITECTURES, sorted(possible - KNOWN_ARCHITECTURES)
    systems = _possible(of_system, frozenset({"linux", "windows"})) if of_system else {"linux"}
    least = max((each.min_values for each in of_architecture), default=0)
    if not found:
        why = f"its requirements for {ARCH_KEY} exclude each other"
        if names:
            right = normal_architecture(names[0])
            why = f"no node is labelled {ARCH_KEY}={names[0]}{f'; write {right}' * (right in KNOWN_ARCHITECTURES)}"
    elif least > len(found):
        why = f"it asks for {least} values of {ARCH_KEY} (minValues) and admits {len(found)}; Karpenter launches it "
        why, found = f"{why}only with MinValuesPolicy BestEffort", frozenset()
    elif not of_architecture:
        why = f"it has no requirement for {ARCH_KEY}{_elsewhere(each.requirement for each in requirements)}"
    else:
        why = f"its requirements for {ARCH_KEY} admit both" if found == OFFERED else ""
    return _TemplateReading(
        found, why, frozenset(systems), labels, _taints_of(spec, "taints"), _taints_of(spec, "startupTaints")
    )


def _requirements(spec: Json) -> Iterator[_PoolRequirement]:
    for at, each in enumerate(_list(spec, "requirements")):
        place = f"requirements[{at}]"
        key, operator, values, least = _members(each, place, "key", "operator", "values", "minValues")
        values = [] if values is None else values
        if not isinstance(key, str) or not key:
            raise _TemplateError(f"{place}.key is {_shown(key)}")
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise _TemplateError(f"{place}.values is {_shown(values)}, not a list of texts")
        if not isinstance(least, int | None):
            raise _TemplateError(f"{place}.minValues is {_shown(least)}")
        if not isinstance(operator, str):
            raise _TemplateError(f"{place}.operator is {_shown(operator)}")
        if operator in _BOUNDS:
            if len(values) != 1 or not re.fullmatch(r"\+?[0-9]{1,18}", values[0], re.ASCII):
                raise _TemplateError(f"{place}.values is {_shown(values)}, not one integer as {operator} needs it")
            operator, more = _BOUNDS[operator]
            values = [str(int(values[0]) + more)]
        elif operator in ("Exists", "DoesNotExist"):
            values = []
        elif operator not in ("In", "NotIn") or (operator == "In" and not values):
            raise _TemplateError(f"{place} has operator {_shown(operator)} with values {_shown(values)}")
        yield _PoolRequirement(Requirement(key, operator, tuple(values)), least or 0)


def _possible(requirements: Sequence[_PoolRequirement], offered: frozenset[str]) -> frozenset[str]:
    """The values that all requirements admit: those that are offered, and those that one of them names."""
    all_of = [each.requirement for each in requirements]
    named = {value for each in all_of if each.operator == "In" for value in each.values}
    return frozenset(value for value in offered | named if all(each.matches({each.key: value}) for each in all_of))


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
    told, unread = _told_labels(document)
    return _machines({**told, **_labels(_at(spec, "metadata"), "labels")}, _taints_of(spec, "taints"), unread=unread)


def _cluster_api(document: Json) -> _TemplateReading:
    """The autoscaler takes the annotations' word before the template's, and passes over what is no label or taint."""
    told, unread = _told_labels(document)
    text = _annotation(document, AUTOSCALER_TAINTS)
    unread += [each for each in _entries(text) if not parse_record(each)]
    taints = [taint for each in _entries(text) for taint in parse_record(each) or (_NO_TAINT,)]
    elsewhere = _taints_of(_at(document, "spec", "template", "spec"), "taints")
    labels = {**_labels(_at(document, "spec", "template", "metadata"), "labels"), **told}
    return _machines(labels, taints, elsewhere=elsewhere, unread=unread)


def _told_labels(document: Json) -> tuple[dict[str, str], list[str]]:
    """What the annotation says, and what of it is no label."""
    told = _entries(_annotation(document, AUTOSCALER_LABELS))
    return dict(each.split("=", 1) for each in told if "=" in each), [each for each in told if "=" not in each]


def _entries(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _annotation(document: Json, name: str) -> str:
    return _labels(_at(document, "metadata"), "annotations").get(name, "")


def _machines(
    labels: Mapping[str, str], taints: Sequence[Taint], *, elsewhere: Sequence[Taint] = (), unread: Sequence[str]
) -> _TemplateReading:
    architecture = labels.get(ARCH_KEY)
    return _TemplateReading(
        frozenset({normal_architecture(architecture)}) if architecture else None,
        systems=frozenset({normal_system(labels.get(OS_KEY, "linux"))}),
        labels=labels,
        taints=taints,
        elsewhere=elsewhere,
        unread=", ".join(map(repr, unread)),
    )


def _write_annotation(document: Json, change: _TaintPatch) -> tuple[Operation, ...]:
    annotations = _at(document, "metadata", "annotations")
    present = _entries(_annotation(document, AUTOSCALER_TAINTS))
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
_ARM_SIZES: Final = re.compile(r"standard_[a-z]+\d+(-\d+)?[a-z]*(p[a-z]*_|.*_gb\d00_)", re.ASCII | re.IGNORECASE)
"""Sizes of Azure with Arm processors: a ``p`` among the additive features, and Grace."""


def _ack_node_group(document: Json) -> _TemplateReading:
    spec = _at(document, "spec")
    image = str(spec.get("amiType") or "")
    architecture = {"ARM_64": "arm64", "x86_64": "amd64"}.get(next(iter(re.findall("ARM_64|x86_64", image)), ""))
    return _TemplateReading(
        frozenset({architecture}) if architecture else None,
        systems=frozenset({"windows" if image.startswith("WINDOWS") else "linux"}),
        labels=_labels(spec, "labels"),
        taints=_taints_of(spec, "taints", cloud=True),
    )


def _gke_node_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec", "nodeConfig")
    machine = str(spec.get("machineType") or "")
    return _TemplateReading(
        frozenset({"arm64" if _ARM_MACHINES.match(machine) else "amd64"}) if machine else None,
        systems=frozenset({"windows" if "WINDOWS" in str(spec.get("imageType") or "").upper() else "linux"}),
        labels=_labels(spec, "labels"),
        taints=_taints_of(spec, "taint", cloud=True),
    )


def _aks_agent_pool(document: Json) -> _TemplateReading:
    spec = _at(document, "spec")
    size = str(spec.get("vmSize") or "")
    return _TemplateReading(
        frozenset({"arm64" if _ARM_SIZES.match(size) else "amd64"}) if size else None,
        systems=frozenset({normal_system(str(spec.get("osType") or "Linux"))}),
        labels=_labels(spec, "nodeLabels"),
        taints=_texts_of(spec, "nodeTaints"),
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
        there = next(at for at in range(len(path) - 1, -1, -1) if at == 0 or _at(document, *path[:at]))
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


_NO_TAINT: Final = Taint()
"""Stands for an entry that is no taint, so that positions stay those of the list."""


def _taints_of(spec: Json, name: str, *, cloud: bool = False) -> list[Taint]:
    """``cloud``: effects are written as ``NO_SCHEDULE``."""
    spelled = {text: effect for effect, text in _CLOUD_EFFECTS.items()} if cloud else {}
    found = []
    for at, each in enumerate(_list(spec, name)):
        members = key, _, effect = [each or "" for each in _members(each, f"{name}[{at}]", "key", "value", "effect")]
        if not key or not all(isinstance(each, str) for each in members):
            raise _TemplateError(f"{name}[{at}] is {_shown(each)}, not a taint")
        found.append(Taint(members[0], members[1], spelled.get(effect, effect)))
    return found


def _texts_of(spec: Json, name: str) -> list[Taint]:
    found: list[Taint] = []
    for at, each in enumerate(_list(spec, name)):
        taints = parse_record(each) if isinstance(each, str) else ()
        if len(taints) != 1:
            raise _TemplateError(f"{name}[{at}] is {_shown(each)}, not a taint")
        found += taints
    return found


def _list(spec: Json, name: str) -> list[Any]:
    found = spec.get(name)
    if not isinstance(found, list | None):
        raise _TemplateError(f"{name} is {_shown(found)}, not a list")
    return found or []


def _labels(metadata: Json, name: str) -> dict[str, str]:
    found = metadata.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise _TemplateError(f"{name} is {_shown(found)}, not names and texts")
    return dict(found)


def _members(value: object, place: str, *names: str) -> list[Any]:
    if not isinstance(value, Mapping):
        raise _TemplateError(f"{place} is {_shown(value)}, not an object")
    return [value.get(name) for name in names]


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _pointer(path: Sequence[str]) -> str:
    return "".join(f"/{part}" for part in path)


def _at(document: Json, *path: str) -> Mapping[str, Any]:
    for part in path:
        found = document.get(part)
        if not isinstance(found, Mapping | None):
            raise _TemplateError(f"{part} is {_shown(found)}, not an object")
        document = found or {}
    return document
