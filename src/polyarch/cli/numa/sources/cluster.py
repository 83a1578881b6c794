"""Nodes and pods of a cluster, read as whoever asks may read them. Nothing is written."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.numa.sources.extender import NoExtender, read_state, snapshot_of
from polyarch.cli.numa.sources.objects import Objects, SeenNode, SeenTopology, is_silent, snapshot
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.extender.state_document import Options
from polyarch.numa.fit.facts import PodObject
from polyarch.numa.snapshot import Snapshot
from polyarch.quantity import InvalidQuantity

T = TypeVar("T")
CORDONED: Final = "spec.unschedulable=true"
NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"


class SeenCluster(NamedTuple):
    """What was found."""

    snapshot: Snapshot
    """Reservations are those of the extender; there are none if ``options`` is None."""
    objects: Objects
    options: Options | None
    """Of the extender."""
    taken_at: datetime
    namespace: str
    """Of the kubeconfig's context."""
    notes: list[str]
    """What could not be read, and what follows from it."""
    details: list[str]
    """What was answered instead."""


async def read_cluster(
    command: str, client: Client, *, extender_namespace: str | None, exact: bool = True, sums: bool = True
) -> SeenCluster:
    """``sums``: pods and Nodes matter also where an extender knows the rest. Raises CommandError, and what the client
    raises."""
    notes: list[str] = []
    details: list[str] = []
    state = None
    try:
        state = await read_state(client, client.configuration, extender_namespace)
    except NoExtender as error:
        notes.append(f"without an extender ({error}): reservations are those that one would make now")
        if error.details:
            details.append(error.details)
    now = datetime.now(UTC)
    objects = Objects()
    if state is None or sums:
        objects = await _objects(client, notes)
    try:
        found = snapshot(objects, source="reconstructed", now=now, exact=exact)
    except InvalidQuantity as error:
        raise CouldNotComplete(f"{command}: a pod of the cluster: {error}") from None
    if state is not None:
        live = snapshot_of(state)
        found = _completed(live, found) if sums else _marked(live, await _cordoned(client, notes))
    return SeenCluster(
        snapshot=found,
        objects=objects,
        options=state.options if state is not None else None,
        taken_at=now,
        namespace=client.configuration.namespace,
        notes=notes,
        details=details,
    )


async def _objects(client: Client, notes: list[str]) -> Objects:
    try:
        topologies = (await client.list(TOPOLOGIES, type=SeenTopology)).items
    except NotFound:
        raise CouldNotComplete(
            f"the cluster has no {TOPOLOGIES.plural}.{TOPOLOGIES.group}; install component numa, or give --nrt FILE"
        ) from None
    nodes = await _listed(client, NODES, SeenNode, notes, "sums over nodes are not judged")
    lost = "what they hold and the objects do not show yet is missing"
    pods = await _listed(client, PODS, PodObject, notes, lost, field_selector=NOT_OVER)
    return Objects(topologies=topologies, nodes=nodes or (), pods=pods)


async def _listed(
    client: Client, resource: Resource, type: type[T], notes: list[str], without: str, **selection: Any
) -> list[T] | None:
    try:
        return (await client.list(resource, type=type, **selection)).items
    except Forbidden as error:
        notes.append(f"{resource.plural} not read: {error}; {without}")
        return None


async def _cordoned(client: Client, notes: list[str]) -> Collection[str]:
    """Only these nodes are read: of a large cluster all of them would be many megabytes for one mark."""
    without = "cordoned nodes are not marked"
    nodes = await _listed(client, NODES, SeenNode, notes, without, field_selector=CORDONED)
    return {each.metadata.name for each in nodes or () if each.spec.unschedulable}


def _marked(live: Snapshot, cordoned: Collection[str]) -> Snapshot:
    """The extender's view with the marks that it does not need itself."""
    nodes = (
        msgspec.structs.replace(node, is_cordoned=node.name in cordoned, is_stale=is_silent(node.facts, node.age))
        for node in live.nodes
    )
    return msgspec.structs.replace(live, nodes=tuple(nodes))


def _completed(live: Snapshot, read: Snapshot) -> Snapshot:
    """The extender's view, with what only the objects tell."""
    known = {each.name: each for each in read.nodes}
    nodes = []
    for node in live.nodes:
        seen = known.get(node.name)
        if seen is not None:
            node = msgspec.structs.replace(
                node, residents=seen.residents, is_cordoned=seen.is_cordoned, is_stale=seen.is_stale, age=seen.age
            )
        nodes.append(node)
    return Snapshot(source="live", nodes=tuple(nodes), knows_pods=read.knows_pods)
