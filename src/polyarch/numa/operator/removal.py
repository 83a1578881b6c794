"""Which NodeResourceTopologies nobody keeps any more (NO-071). Pure."""

from collections.abc import Collection, Iterable, Mapping

from polyarch.numa.names import NODE_GROUP_LABEL
from polyarch.objects import ObjectMeta


def stale_topologies(
    topologies: Iterable[ObjectMeta], *, group_nodes: Mapping[str, Collection[str]], exporters_on: Collection[str]
) -> tuple[str, ...]:
    """Names of objects of ours whose node is in no group and has no exporter any more. ``exporters_on``: nodes with an
    exporter's pod, which may still be ending. Objects without our label belong to others."""
    kept = {node for nodes in group_nodes.values() for node in nodes} | set(exporters_on)
    ours = (each for each in topologies if NODE_GROUP_LABEL in (each.labels or {}) and each.deletion_timestamp is None)
    return tuple(sorted(each.name for each in ours if each.name not in kept))
