"""What autoscalers have to know: a node that they make must carry the taint from its template (TN-028).

An autoscaler simulates where a pending pod would fit on a node that does not exist yet. If the template lacks the taint
it makes a node for a pod that the taint then repels, and does so again. ``startupTaints`` are no place for it:
autoscalers take them to go away. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.patches import Operation, add
from polyarch.kube.resources import Resource
from polyarch.platforms import normal_architecture
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.names import ARCH_KEY
from polyarch.tolerations import Taint

NODE_POOLS: Final = ("karpenter.sh", "NodePool")
MACHINE_SETS: Final = ("machine.openshift.io", "MachineSet")
KINDS: Final = (NODE_POOLS, MACHINE_SETS)
"""Group and kind of the templates that are understood."""
_LABELS: Final = "capacity.cluster-autoscaler.kubernetes.io/labels"
"""What a MachineSet tells the cluster autoscaler of the labels of its nodes, comma-separated."""


class NodeTemplate(msgspec.Struct, frozen=True):
    """A template of nodes without the taint of their architecture."""

    resource: Resource
    namespace: str
    name: str
    architectures: tuple[str, ...]
    patch: tuple[Operation, ...] = ()
    """What adds the taint; empty if no single taint is right for all of its nodes."""
    detail: str = ""

    @property
    def command(self) -> str:
        """The patch as a command of kubectl."""
        place = f" -n {self.namespace}" if self.namespace else ""
        patch = msgspec.json.encode(self.patch).decode()
        return f"kubectl patch {self.resource} {self.name}{place} --type=json -p '{patch}'"


class _Read(NamedTuple):
    """What one of these templates says."""

    architectures: frozenset[str]
    """Empty: it does not say."""
    taints: Any
    startup: Any = None


def lacking(resource: Resource, document: Mapping[str, Any], settings: TaintSettings) -> NodeTemplate | None:
    """The template if its nodes would join without the taint; None if all is well or nothing is known of it."""
    read = _node_pool(document) if resource.kind == NODE_POOLS[1] else _machine_set(document)
    tainted = sorted(read.architectures & settings.tainted)
    if not tainted:
        return None
    metadata = document.get("metadata") or {}
    several = len(read.architectures) > 1
    wanted = settings.taint(tainted[0])
    if not several and wanted in _taints(read.taints):
        return None
    if several:
        detail = (
            f"its nodes may be {' or '.join(sorted(read.architectures))}, and one template has the same taints for "
            f"all: make a {resource.kind} for each architecture"
        )
    elif wanted in _taints(read.startup):
        detail = f"{wanted} is among its startupTaints, which autoscalers take to go away; it belongs to its taints"
    else:
        detail = f"{wanted} is not among its taints"
    plain = {"key": wanted.key, "value": wanted.value, "effect": wanted.effect}
    place = "/spec/template/spec/taints"
    patch = add(f"{place}/-", plain) if isinstance(read.taints, list) else add(place, [plain])
    return NodeTemplate(
        resource,
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        tuple(sorted(read.architectures)),
        () if several else (patch,),
        detail,
    )


def _node_pool(document: Mapping[str, Any]) -> _Read:
    spec = _at(document, "spec", "template", "spec")
    found: frozenset[str] = frozenset()
    for each in spec.get("requirements") or ():
        if each.get("key") == ARCH_KEY and each.get("operator") == "In":
            named = frozenset(map(normal_architecture, each.get("values") or ()))
            found = found & named if found else named
    label = _at(document, "spec", "template", "metadata", "labels").get(ARCH_KEY)
    return _Read(found or _one(label), spec.get("taints"), spec.get("startupTaints"))


def _machine_set(document: Mapping[str, Any]) -> _Read:
    spec = _at(document, "spec", "template", "spec")
    label = _at(spec, "metadata", "labels").get(ARCH_KEY)
    told = _at(document, "metadata", "annotations").get(_LABELS, "")
    pairs = dict(each.strip().split("=", 1) for each in told.split(",") if "=" in each)
    return _Read(_one(label or pairs.get(ARCH_KEY)), spec.get("taints"))


def _one(architecture: str | None) -> frozenset[str]:
    return frozenset({normal_architecture(architecture)}) if architecture else frozenset()


def _taints(given: Any) -> list[Taint]:
    return [Taint(each.get("key", ""), each.get("value", ""), each.get("effect", "")) for each in given or ()]


def _at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for part in path:
        document = document.get(part) or {}
    return document
