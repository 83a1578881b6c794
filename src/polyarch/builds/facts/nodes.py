"""Nodes as builds see them: what they run says the kubelet, and labels only where it says nothing (BD-040)."""

import sys
from typing import Final

import msgspec

from polyarch.builds.api.forms import is_architecture
from polyarch.builds.facts.facts import NodeFacts
from polyarch.builds.facts.times import seconds
from polyarch.builds.names import ARCH_KEY, OS_KEY
from polyarch.objects import NodeSpec, NodeSystemInfo, ObjectMeta
from polyarch.platforms import normal_architecture, normal_system

NODE_IMAGES: Final = (
    "machineconfiguration.openshift.io/currentImage",
    "machineconfiguration.openshift.io/desiredImage",
)
"""Annotations that name the image that a node runs or will run (BD-231): the only ones that are kept."""


class NodeMeta(ObjectMeta, frozen=True, gc=False, omit_defaults=True):
    """Metadata of a node. Thousands of nodes have much the same labels: each text of them is kept once (BD-348)."""

    def __post_init__(self) -> None:
        kept = {key: text for key in NODE_IMAGES if (text := (self.annotations or {}).get(key)) is not None}
        msgspec.structs.force_setattr(self, "annotations", kept or None)
        labels = {sys.intern(key): sys.intern(text) for key, text in (self.labels or {}).items()}
        msgspec.structs.force_setattr(self, "labels", labels or None)


class NodeCondition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 NodeCondition without its times: heartbeats change nothing."""

    type: str = ""
    status: str = ""


class RuntimeFeatures(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeRuntimeHandlerFeatures."""

    user_namespaces: bool | None = None


class RuntimeHandler(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 NodeRuntimeHandler; the default one has no name."""

    name: str = ""
    features: RuntimeFeatures | None = None


class RuntimeClassObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """node.k8s.io/v1 RuntimeClass: which handler runs the pods that name it."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeStatus."""

    node_info: NodeSystemInfo = NodeSystemInfo()
    conditions: list[NodeCondition] | None = None
    runtime_handlers: list[RuntimeHandler] | None = None


class NodeObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a core/v1 Node."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def node_facts(node: NodeObject) -> NodeFacts:
    """Equal for two states of a node that make no difference to builds."""
    labels, info = node.metadata.labels or {}, node.status.node_info
    system, other_system = _told(info.operating_system, labels.get(OS_KEY, ""))
    architecture, other_architecture = _told(info.architecture, labels.get(ARCH_KEY, ""))
    architecture = normal_architecture(architecture)
    return NodeFacts(
        name=node.metadata.name,
        architecture=architecture if is_architecture(architecture) else "",
        operating_system=normal_system(system),
        mismatch=other_system or other_architecture,
        labels=labels,
        created=seconds(node.metadata.creation_timestamp) or 0.0,
        deleting=node.metadata.deletion_timestamp is not None,
        ready=any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ()),
        schedulable=not node.spec.unschedulable,
        taints=tuple(sorted((each.key, each.value, each.effect) for each in node.spec.taints or ())),
        user_namespaces=frozenset(
            each.name
            for each in node.status.runtime_handlers or ()
            if each.features is not None and each.features.user_namespaces
        ),
    )


def _told(status: str, label: str) -> tuple[str, bool]:
    """What counts, and whether the label says something else than the status."""
    return status or label, bool(status and label and status != label)
