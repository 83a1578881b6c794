"""Writes the taints of one node: one PATCH, decided again whenever somebody else was faster (TN-024).

The controller and the command line use the same function.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from polyarch.kube.errors import Conflict, Invalid, KubernetesError, NotFound
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import NODES, Resource
from polyarch.objects import Node, PartialObjectMetadata
from polyarch.taints.decide.node_taints import NodeDecision
from polyarch.taints.result.node_patch import node_patch

AGAIN: Final = 5
"""How often a node is read and decided again at once."""


class WritesNodes(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, type: type[Node]) -> Node: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, dry_run: bool = False
    ) -> PartialObjectMetadata: ...


class Contended(KubernetesError):  # noqa: N818 - what happened
    """The node changed between every read and write; it is tried again later."""


class NodeWrite(msgspec.Struct, frozen=True):
    """How it ended: the node as it was decided about, and the decision."""

    node: Node | None
    """None: it is gone."""
    decision: NodeDecision | None = None
    resource_version: str = ""
    """After the write; empty: there was nothing to write."""

    @property
    def is_written(self) -> bool:
        return bool(self.resource_version)


async def write_node(
    client: WritesNodes,
    node: Node,
    decide: Callable[[Node], NodeDecision],
    *,
    dry_run: bool = False,
    changed: Callable[[], Any] = lambda: None,
) -> NodeWrite:
    """Decides about the node and writes it. ``changed`` is called when somebody else's write came in between.

    Raises :class:`Contended` after six tries, and ``KubernetesError`` for what the API server does not accept.
    """
    name = node.metadata.name
    for attempt in range(AGAIN + 1):
        decision = decide(node)
        operations = node_patch(node, decision)
        if not operations:
            return NodeWrite(node, decision)
        try:
            written = await client.patch(NODES, name, JsonPatch(operations), dry_run=dry_run)
        except NotFound:
            return NodeWrite(None)
        except Conflict:
            changed()
        except Invalid as error:
            if not error.is_failed_test:
                raise
            changed()
        else:
            return NodeWrite(node, decision, written.metadata.resource_version)
        if attempt == AGAIN:
            break
        try:
            node = await client.get(NODES, name, type=Node)
        except NotFound:
            return NodeWrite(None)
    raise Contended(f"node {name} changed between every read and write, {AGAIN + 1} times; it is tried again later")
