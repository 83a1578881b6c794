"""Objects of the API as they are read for these commands, and the snapshot that they make. No input, no output."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.facts import ENDED, MIRROR, NodeFacts, NodeStatusObject, PodObject, node_facts, pod_facts
from polyarch.numa.names import EXPORTER_POD_LABELS, LAST_SCAN
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, SnapshotPod, Source
from polyarch.objects import ObjectMeta

LONGEST_SILENCE: Final = 900.0
"""Seconds for which an exporter may be silent: it tells of scans that change nothing every few minutes at most."""
PERIODS: Final = 3


class Write(msgspec.Struct, frozen=True, gc=False):
    """An entry of ``metadata.managedFields``."""

    time: str | None = None


class WrittenMeta(ObjectMeta, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """With the times at which the object was written."""

    managed_fields: list[Write] | None = None


class SeenTopology(NodeResourceTopology, frozen=True, gc=False, rename="camel"):
    """An object, and when it was written."""

    metadata: WrittenMeta = WrittenMeta()


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """core/v1 NodeSpec."""

    unschedulable: bool = False


class SeenNode(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatusObject = NodeStatusObject()


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found."""

    topologies: Sequence[SeenTopology] = ()
    nodes: Sequence[SeenNode] = ()
    pods: Sequence[PodObject] | None = None
    """None: nobody knows which pods there are."""

    def topology(self, name: str) -> SeenTopology | None:
        return next((each for each in self.topologies if each.metadata.name == name), None)


class Event(NamedTuple):
    """An event of a pod: reasons of other plugins are quoted, not computed again."""

    reason: str
    note: str
    reporter: str = ""


def snapshot(objects: Objects, *, source: Source, now: datetime) -> Snapshot:
    """Without reservations. Raises ``InvalidQuantity`` for a pod that asks for something that is none."""
    topologies = {each.metadata.name: each for each in objects.topologies}
    nodes = {each.metadata.name: each for each in objects.nodes}
    pods, exporters = _by_node(objects.pods or ())
    found = []
    for name in sorted({**topologies, **nodes}):
        node, topology = nodes.get(name), topologies.get(name)
        allocatable = (node.status.allocatable or {}) if node is not None else None
        facts = node_facts(name, topology, allocatable, node.status.kubelet if node is not None else "")
        age = _age(topology, now) if topology is not None else None
        found.append(
            NodeSnapshot(
                facts=facts,
                residents=tuple(map(_resident, pods.get(name, ()))),
                is_cordoned=node is not None and node.spec.unschedulable,
                age=age,
                is_stale=topology is not None and _is_stale(facts, age, exporters),
            )
        )
    return Snapshot(source=source, nodes=tuple(found), knows_pods=objects.pods is not None)


def _by_node(pods: Iterable[PodObject]) -> tuple[Mapping[str, Sequence[PodObject]], Collection[str]]:
    """Pods that are not over, and the nodes on which an exporter runs."""
    found: dict[str, list[PodObject]] = defaultdict(list)
    exporters = set()
    for each in pods:
        name = each.spec.node_name if each.spec is not None else None
        phase = each.status.phase if each.status is not None else None
        if name and phase not in ENDED:
            found[name].append(each)
            if EXPORTER_POD_LABELS.items() <= (each.metadata.labels or {}).items() and phase in (None, "Running"):
                exporters.add(name)
    return found, exporters


def _resident(pod: PodObject) -> SnapshotPod:
    controller = pod.metadata.controller
    is_static = MIRROR in (pod.metadata.annotations or {})
    facts = pod_facts(pod)
    if not facts.uid:  # of a file that somebody wrote
        facts = msgspec.structs.replace(facts, uid=facts.full_name)
    return SnapshotPod(facts, is_static or (controller is not None and controller.kind == "DaemonSet"))


def written(topologies: Iterable[SeenTopology]) -> Iterator[datetime]:
    """When the objects were written, and when their exporters scanned."""
    for each in topologies:
        metadata = each.metadata
        scanned = (metadata.annotations or {}).get(LAST_SCAN)
        yield from _times(scanned, metadata.creation_timestamp, *(each.time for each in metadata.managed_fields or ()))


def times_of(pods: Iterable[PodObject]) -> Iterator[datetime]:
    """When pods were made and admitted."""
    for each in pods:
        started = each.status.start_time if each.status is not None else None
        yield from _times(each.metadata.creation_timestamp, started)


def _age(topology: SeenTopology, now: datetime) -> float | None:
    times = list(written([topology]))
    return max(0.0, (now - max(times)).total_seconds()) if times else None


def _times(*texts: str | None) -> Iterator[datetime]:
    for text in texts:
        try:
            time = datetime.fromisoformat(text or "")
        except ValueError:
            continue
        yield time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _is_stale(facts: NodeFacts, age: float | None, exporters: Collection[str]) -> bool:
    """A node among others with exporters that has none, or whose exporter tells when it scans and has not for long."""
    if exporters and facts.name not in exporters:
        return True
    return is_silent(facts, age)


def is_silent(facts: NodeFacts, age: float | None) -> bool:
    """The exporter tells when it scans, and has not for long."""
    longest = max(LONGEST_SILENCE, PERIODS * (facts.settings.refresh_period or 0.0))
    return bool(facts.last_scan) and age is not None and age > longest
