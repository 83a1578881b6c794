"""Nodes, reduced to what decisions read: labels, annotations, taints, and what the kubelet says it runs on.

``taints`` is ``None`` if the JSON has none: a patch creates the list then. Elements keep their order, so an index here
is an index in the stored object.
"""

import msgspec

from polyarch.model.meta import ObjectMeta
from polyarch.model.taint import Taint


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSpec."""

    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeSystemInfo(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSystemInfo: the platform that the kubelet was built for."""

    architecture: str = ""
    operating_system: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeStatus."""

    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
