"""A topology that is written once, for those who scan once: ``--oneshot`` and ``numa export --once --publish``.

Whatever is in the way is tried again by the caller, or never. Imports no server.
"""

from typing import Protocol

from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import NODES
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.exporter.cluster.publisher import owned
from polyarch.numa.exporter.cluster.topology_write import Document, Sent, TopologyWrite, WritingClient
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.names import TRIGGER
from polyarch.objects import PartialObjectMetadata


class OnceClient(WritingClient, Protocol):
    """The part of the client that is used."""


async def publish_once(client: OnceClient, document: Document, settings: ExporterSettings) -> Sent:
    """Writes the topology of a scan if the API server has another one. Raises ``KubernetesError``."""
    node = settings.hostname
    uid = await _uid(client, node) if settings.scan.add_nrt_owner else ""
    try:
        found = await client.get(TOPOLOGIES, node, type=NodeResourceTopology)
    except NotFound:
        found = None
    write, wanted, stamps = TopologyWrite(client, node), owned(document, node, uid), {TRIGGER: "reactive"}
    try:
        return await write.send(wanted, found, stamps=stamps, by_patch=settings.publish.patch_mode)
    except Forbidden:
        if not settings.publish.patch_mode or found is None:
            raise
    return await write.send(wanted, found, stamps=stamps, by_patch=False)


async def _uid(client: OnceClient, node: str) -> str:
    """Of the live Node; empty if there is none, or if it may not be read."""
    try:
        return (await client.get(NODES, node, type=PartialObjectMetadata)).metadata.uid
    except (NotFound, Forbidden):
        return ""
