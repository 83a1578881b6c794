"""What templates of autoscalers and pools of clouds say of the nodes that they make. Pure.

Such nodes may not exist yet: the platforms that a cluster may get are those of its nodes and of its templates.

Sources: Karpenter's NodePool (``karpenter.sh/v1``), Cluster API's contract with the cluster autoscaler
(``capacity.cluster-autoscaler.kubernetes.io/…``), OpenShift's MachineSets, and the kinds by which EKS (ACK), AKS (Azure
Service Operator) and GKE (Config Connector) describe node pools.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.images.constraints import ARCH_KEYS, OS_KEYS
from polyarch.kube.resources import Resource
from polyarch.platforms import KNOWN_ARCHITECTURES, NODE_SYSTEMS, NodePlatform, normal_architecture, normal_system
from polyarch.selectors import Requirement
from polyarch.tolerations import Taint, parse_taints

Json = Mapping[str, Any]
ARCH_KEY: Final = ARCH_KEYS[0]
OS_KEY: Final = OS_KEYS[0]
OFFERED: Final = frozenset({"amd64", "arm64"})
"""What Karpenter's providers offer where a NodePool does not choose an architecture."""
AUTOSCALER_LABELS: Final = "capacity.cluster-autoscaler.kubernetes.io/labels"
AUTOSCALER_TAINTS: Final = "capacity.cluster-autoscaler.kubernetes.io/taints"
"""What Cluster API and OpenShift tell the cluster autoscaler of nodes that do not exist yet, comma-separated."""
OPENSHIFT_SYSTEM: Final = "machine.openshift.io/os-id"
"""A label of OpenShift's machines of another system than linux."""


class TemplateError(ValueError):
    """A template, or the part of it that decides, is not of the form that its kind documents."""


class TemplateReading(NamedTuple):
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

    @property
    def platforms(self) -> frozenset[NodePlatform]:
        """Those that its nodes may have; with an empty architecture where it does not say."""
        known = frozenset({""}) if self.architectures is None else self.architectures
        return frozenset(NodePlatform(os, each) for os in self.systems & NODE_SYSTEMS for each in known)


class TemplateKind(NamedTuple):
    """One kind of templates, and how it is read; what is not of its form is a :class:`TemplateError`."""

    group: str
    kind: str
    read: Callable[[Json], TemplateReading]


def kind_of(resource: Resource) -> TemplateKind:
    return next(each for each in KINDS if (each.group, each.kind) == (resource.group, resource.kind))


def is_made(document: Json) -> bool:
    """Another template that is looked at makes it: a MachineSet of a MachineDeployment."""
    owners = _list(mapping_at(document, "metadata"), "ownerReferences")
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


def node_pool(document: Json) -> TemplateReading:
    """A NodePool: its requirements and labels, by Karpenter's rules."""
    spec = mapping_at(document, "spec", "template", "spec")
    labels = _labels(mapping_at(document, "spec", "template", "metadata"), "labels")
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
    return TemplateReading(
        found, why, frozenset(systems), labels, _taints_of(spec, "taints"), _taints_of(spec, "startupTaints")
    )


def _requirements(spec: Json) -> Iterator[_PoolRequirement]:
    for at, each in enumerate(_list(spec, "requirements")):
        place = f"requirements[{at}]"
        key, operator, values, least = _members(each, place, "key", "operator", "values", "minValues")
        values = [] if values is None else values
        if not isinstance(key, str) or not key:
            raise TemplateError(f"{place}.key is {_shown(key)}")
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise TemplateError(f"{place}.values is {_shown(values)}, not a list of texts")
        if not isinstance(least, int | None):
            raise TemplateError(f"{place}.minValues is {_shown(least)}")
        if not isinstance(operator, str):
            raise TemplateError(f"{place}.operator is {_shown(operator)}")
        if operator in _BOUNDS:
            if len(values) != 1 or not re.fullmatch(r"\+?[0-9]{1,18}", values[0], re.ASCII):
                raise TemplateError(f"{place}.values is {_shown(values)}, not one integer as {operator} needs it")
            operator, more = _BOUNDS[operator]
            values = [str(int(values[0]) + more)]
        elif operator in ("Exists", "DoesNotExist"):
            values = []
        elif operator not in ("In", "NotIn") or (operator == "In" and not values):
            raise TemplateError(f"{place} has operator {_shown(operator)} with values {_shown(values)}")
        yield _PoolRequirement(Requirement(key, operator, tuple(values)), least or 0)


def _possible(requirements: Sequence[_PoolRequirement], offered: frozenset[str]) -> frozenset[str]:
    """The values that all requirements admit: those that are offered, and those that one of them names."""
    all_of = [each.requirement for each in requirements]
    found = set(offered).union(*(each.values for each in all_of if each.operator == "In"))
    bounds: dict[str, Requirement] = {}
    for each in all_of:
        match each.operator:
            case "In":
                found.intersection_update(each.values)
            case "NotIn":
                found.difference_update(each.values)
            case "DoesNotExist":
                found.clear()
            case "Gt" | "Lt":
                sign = 1 if each.operator == "Gt" else -1
                tightest = bounds.setdefault(each.operator, each)
                if sign * int(each.values[0]) > sign * int(tightest.values[0]):
                    bounds[each.operator] = each
    return frozenset(value for value in found if all(each.matches({each.key: value}) for each in bounds.values()))


_INSTANCES: Final = re.compile(r"instance-type|instance-(family|category|generation)|sku-|machine-(family|type)")


def _elsewhere(requirements: Iterable[Requirement]) -> str:
    keys = sorted({each.key for each in requirements if _INSTANCES.search(each.key)})
    leave = "leaves" if len(keys) == 1 else "leave"
    return f" (what {' and '.join(keys)} {leave} of the architectures was not looked at)" if keys else ""


# -- Cluster API, and OpenShift's machines -----------------------------------------------------------------------------


def openshift_machine_set(document: Json) -> TemplateReading:
    """A MachineSet of OpenShift."""
    spec = mapping_at(document, "spec", "template", "spec")
    told, unread = _told_labels(document)
    own = _labels(mapping_at(document, "spec", "template", "metadata"), "labels")
    system = {OS_KEY: own[OPENSHIFT_SYSTEM]} if OPENSHIFT_SYSTEM in own else {}
    return _machines(
        {**system, **told, **_labels(mapping_at(spec, "metadata"), "labels")}, _taints_of(spec, "taints"), unread=unread
    )


def cluster_api(document: Json) -> TemplateReading:
    """The autoscaler takes the annotations' word before the template's, and passes over what is no label or taint."""
    told, unread = _told_labels(document)
    text = annotation(document, AUTOSCALER_TAINTS)
    unread += [each for each in entries(text) if not parse_taints(each)]
    taints = [taint for each in entries(text) for taint in parse_taints(each) or (_NO_TAINT,)]
    elsewhere = _taints_of(mapping_at(document, "spec", "template", "spec"), "taints")
    labels = {**_labels(mapping_at(document, "spec", "template", "metadata"), "labels"), **told}
    return _machines(labels, taints, elsewhere=elsewhere, unread=unread)


def _told_labels(document: Json) -> tuple[dict[str, str], list[str]]:
    """What the annotation says, and what of it is no label."""
    told = entries(annotation(document, AUTOSCALER_LABELS))
    return dict(each.split("=", 1) for each in told if "=" in each), [each for each in told if "=" not in each]


def entries(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def annotation(document: Json, name: str) -> str:
    return _labels(mapping_at(document, "metadata"), "annotations").get(name, "")


def _machines(
    labels: Mapping[str, str], taints: Sequence[Taint], *, elsewhere: Sequence[Taint] = (), unread: Sequence[str]
) -> TemplateReading:
    architecture = labels.get(ARCH_KEY)
    return TemplateReading(
        frozenset({normal_architecture(architecture)}) if architecture else None,
        systems=frozenset({normal_system(labels.get(OS_KEY, "linux"))}),
        labels=labels,
        taints=taints,
        elsewhere=elsewhere,
        unread=", ".join(map(repr, unread)),
    )


# -- pools of clouds that an object of the cluster describes -----------------------------------------------------------

CLOUD_EFFECTS: Final = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
_ARM_MACHINES: Final = re.compile(r"(t2a|c4a|n4a|a4x)(-|$)")
"""Machine series of Google Cloud with Arm processors."""
_ARM_SIZES: Final = re.compile(r"standard_[a-z]+\d+(-\d+)?[a-z]*(p[a-z]*_|.*_gb\d00_)", re.ASCII | re.IGNORECASE)
"""Sizes of Azure with Arm processors: a ``p`` among the additive features, and Grace."""
MAX_SIZE_LENGTH: Final = 128
"""Characters of a size. The pattern takes the square of them, and a namespaced object says what they are."""


def ack_node_group(document: Json) -> TemplateReading:
    """A Nodegroup of EKS."""
    spec = mapping_at(document, "spec")
    image = str(spec.get("amiType") or "")
    architecture = {"ARM_64": "arm64", "x86_64": "amd64"}.get(next(iter(re.findall("ARM_64|x86_64", image)), ""))
    return TemplateReading(
        frozenset({architecture}) if architecture else None,
        systems=frozenset({"windows" if image.startswith("WINDOWS") else "linux"}),
        labels=_labels(spec, "labels"),
        taints=_taints_of(spec, "taints", cloud=True),
    )


def gke_node_pool(document: Json) -> TemplateReading:
    """A ContainerNodePool of GKE."""
    spec = mapping_at(document, "spec", "nodeConfig")
    machine = str(spec.get("machineType") or "")
    return TemplateReading(
        frozenset({"arm64" if _ARM_MACHINES.match(machine) else "amd64"}) if machine else None,
        systems=frozenset({"windows" if "WINDOWS" in str(spec.get("imageType") or "").upper() else "linux"}),
        labels=_labels(spec, "labels"),
        taints=_taints_of(spec, "taint", cloud=True),
    )


def aks_agent_pool(document: Json) -> TemplateReading:
    """A ManagedClustersAgentPool of AKS."""
    spec = mapping_at(document, "spec")
    size = str(spec.get("vmSize") or "")
    if len(size) > MAX_SIZE_LENGTH:
        raise TemplateError(f"vmSize is {_shown(size)}, which has more than {MAX_SIZE_LENGTH} characters")
    return TemplateReading(
        frozenset({"arm64" if _ARM_SIZES.match(size) else "amd64"}) if size else None,
        systems=frozenset({normal_system(str(spec.get("osType") or "Linux"))}),
        labels=_labels(spec, "nodeLabels"),
        taints=_texts_of(spec, "nodeTaints"),
    )


KINDS: Final = (
    TemplateKind("karpenter.sh", "NodePool", node_pool),
    TemplateKind("machine.openshift.io", "MachineSet", openshift_machine_set),
    TemplateKind("cluster.x-k8s.io", "MachineDeployment", cluster_api),
    TemplateKind("cluster.x-k8s.io", "MachineSet", cluster_api),
    TemplateKind("cluster.x-k8s.io", "MachinePool", cluster_api),
    TemplateKind("eks.services.k8s.aws", "Nodegroup", ack_node_group),
    TemplateKind("container.cnrm.cloud.google.com", "ContainerNodePool", gke_node_pool),
    TemplateKind("containerservice.azure.com", "ManagedClustersAgentPool", aks_agent_pool),
)
"""The templates that are understood."""
RESOURCES: Final = {
    "karpenter.sh": ("nodepools",),
    "machine.openshift.io": ("machinesets",),
    "cluster.x-k8s.io": ("machinedeployments", "machinesets", "machinepools"),
    "eks.services.k8s.aws": ("nodegroups",),
    "container.cnrm.cloud.google.com": ("containernodepools",),
    "containerservice.azure.com": ("managedclustersagentpools",),
}
"""The same, as rights name them."""


def platforms_of_template(kind: TemplateKind, document: Json) -> frozenset[NodePlatform]:
    """The platforms of the nodes that a template may make; none of one that is being deleted, or is
    not understood."""
    try:
        if mapping_at(document, "metadata").get("deletionTimestamp") or is_made(document):
            return frozenset()
        return kind.read(document).platforms
    except TemplateError:
        return frozenset()


# -- documents ---------------------------------------------------------------------------------------------------------


_NO_TAINT: Final = Taint()
"""Stands for an entry that is no taint, so that positions stay those of the list."""


def _taints_of(spec: Json, name: str, *, cloud: bool = False) -> list[Taint]:
    """``cloud``: effects are written as ``NO_SCHEDULE``."""
    spelled = {text: effect for effect, text in CLOUD_EFFECTS.items()} if cloud else {}
    found = []
    for at, each in enumerate(_list(spec, name)):
        members = key, _, effect = [each or "" for each in _members(each, f"{name}[{at}]", "key", "value", "effect")]
        if not key or not all(isinstance(each, str) for each in members):
            raise TemplateError(f"{name}[{at}] is {_shown(each)}, not a taint")
        found.append(Taint(members[0], members[1], spelled.get(effect, effect)))
    return found


def _texts_of(spec: Json, name: str) -> list[Taint]:
    found: list[Taint] = []
    for at, each in enumerate(_list(spec, name)):
        taints = parse_taints(each) if isinstance(each, str) else ()
        if len(taints) != 1:
            raise TemplateError(f"{name}[{at}] is {_shown(each)}, not a taint")
        found += taints
    return found


def _list(spec: Json, name: str) -> list[Any]:
    found = spec.get(name)
    if not isinstance(found, list | None):
        raise TemplateError(f"{name} is {_shown(found)}, not a list")
    return found or []


def _labels(metadata: Json, name: str) -> dict[str, str]:
    found = metadata.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise TemplateError(f"{name} is {_shown(found)}, not names and texts")
    return dict(found)


def _members(value: object, place: str, *names: str) -> list[Any]:
    if not isinstance(value, Mapping):
        raise TemplateError(f"{place} is {_shown(value)}, not an object")
    return [value.get(name) for name in names]


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def mapping_at(document: Json, *path: str) -> Mapping[str, Any]:
    for part in path:
        found = document.get(part)
        if not isinstance(found, Mapping | None):
            raise TemplateError(f"{part} is {_shown(found)}, not an object")
        document = found or {}
    return document
