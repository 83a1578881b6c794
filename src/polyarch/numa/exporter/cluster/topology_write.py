"""One write of the topology, from what is wanted and what the API server has, to what it has then (NE-111).

A change is a merge patch of the changed top-level fields. Where patches are forbidden, or not wanted, the object is
read, changed and sent back with its resourceVersion. Whatever was there meanwhile is found out and dealt with at once:
an object that is gone is created, one that somebody else has created is patched, and after a conflict the object is
read again, three times in a row at most (§16). Any other failure is raised; whoever called knows when to try again.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from polyarch.kube.errors import AlreadyExists, Conflict, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import Resource
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.result import difference

log = structlog.get_logger(__name__)

T = TypeVar("T")

RIGHTS: Final = (rule(TOPOLOGIES, "get", "list", "watch", "create", "update", "patch"),)
"""RBAC rules; create cannot be narrowed to a name, and the others are narrowed by an admission policy (NE-141)."""
CONFLICTS: Final = 3
"""In a row; a fourth is a failure like others."""

Document = dict[str, Any]
Operation = Literal["create", "update", "patch"]


class WritingClient(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[T], retry: bool = True
    ) -> T: ...

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, type: type[T], retry: bool = True
    ) -> T: ...

    async def patch(
        self, resource: Resource, name: str, patch: MergePatch, *, type: type[T], retry: bool = True
    ) -> T: ...

    async def replace(
        self, resource: Resource, document: Mapping[str, Any], *, complete: bool, type: type[T], retry: bool = True
    ) -> T: ...


class Sent(NamedTuple):
    """What the API server has now; ``operation`` is None if it had that already."""

    found: NodeResourceTopology
    operation: Operation | None
    size_ratio: float = 1.0
    """Size of a patch by that of the whole object."""


class TopologyMissing(NotFound):
    """The API server does not have the kind: its definition is not installed."""


class TopologyWrite:
    """Writes for one node."""

    def __init__(self, client: WritingClient, node: str) -> None:
        self._client = client
        self._node = node

    async def send(
        self,
        wanted: Document,
        found: NodeResourceTopology | None,
        *,
        stamps: Mapping[str, str],
        by_patch: bool = True,
        always: bool = False,
    ) -> Sent:
        """Raises ``KubernetesError``; nothing is tried again here but what a conflict or a race makes necessary.

        ``stamps`` are annotations that go along with a write and do not cause one (NE-019), unless ``always``.
        """
        for _ in range(CONFLICTS):
            try:
                if found is None:
                    return await self._create(wanted, stamps)
                if by_patch:
                    return await self._patch(wanted, found, stamps, always)
                return await self._put(wanted, stamps, always)
            except (AlreadyExists, Conflict) as error:
                log.debug("somebody else was faster, reading again", error=str(error))
                found = await self._read()
            except NotFound as error:
                if found is None:
                    raise missing(error) from None
                found = None
        raise Conflict(
            409,
            reason="Conflict",
            message=f"the topology has changed {CONFLICTS} times while it was written",
            verb="write",
            resource=str(TOPOLOGIES),
            name=self._node,
        )

    async def _read(self) -> NodeResourceTopology | None:
        try:
            return await self._client.get(TOPOLOGIES, self._node, type=NodeResourceTopology, retry=False)
        except NotFound:
            return None

    async def _create(self, wanted: Document, stamps: Mapping[str, str]) -> Sent:
        document = difference.stamped(wanted, stamps)
        return Sent(await self._client.create(TOPOLOGIES, document, type=NodeResourceTopology, retry=False), "create")

    async def _patch(
        self, wanted: Document, found: NodeResourceTopology, stamps: Mapping[str, str], always: bool
    ) -> Sent:
        change = _change(wanted, found, always)
        if change is None:
            return Sent(found, None)
        patch = MergePatch(_guarded(difference.stamped(change, stamps), found))
        answer = await self._client.patch(TOPOLOGIES, self._node, patch, type=NodeResourceTopology, retry=False)
        return Sent(answer, "patch", len(patch.body()) / len(msgspec.json.encode(wanted)))

    async def _put(self, wanted: Document, stamps: Mapping[str, str], always: bool) -> Sent:
        document: Document = await self._client.get(TOPOLOGIES, self._node, type=dict, retry=False)
        found = msgspec.convert(document, NodeResourceTopology)
        change = _change(wanted, found, always)
        if change is None:
            return Sent(found, None)
        body = difference.merged(document, difference.stamped(change, stamps))
        answer = await self._client.replace(TOPOLOGIES, body, complete=True, type=NodeResourceTopology, retry=False)
        return Sent(answer, "update")


def _change(wanted: Document, found: NodeResourceTopology, always: bool) -> Document | None:
    change = difference.change(wanted, found)
    return {} if change is None and always else change


def missing(error: NotFound) -> TopologyMissing:
    """With the next action."""
    return TopologyMissing(
        404,
        reason="NotFound",
        message=f"{TOPOLOGIES} is not served: install its definition ({error.message or error.reason})",
        verb=error.verb,
        resource=str(TOPOLOGIES),
        name=error.name,
    )


def _guarded(change: Document, found: NodeResourceTopology) -> Document:
    """A patch replaces the whole list of owners, also those of others: then nobody may have changed it meanwhile."""
    metadata = change.get("metadata") or {}
    if "ownerReferences" not in metadata:
        return change
    return {**change, "metadata": {**metadata, "resourceVersion": found.metadata.resource_version}}
