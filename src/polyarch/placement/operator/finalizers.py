"""Which finalizers belong on the ClusterPodPlacementConfig and on the controller's Deployment (PL-003, PL-013).

Finalizers keep an object until its dependents are gone: gated pods, PodPlacementConfigs, and objects of the
exec-format-error monitor. The rule is level-based: it computes the wanted finalizers from the current state alone. The
API server rejects new finalizers on an object that is being deleted, so then none is added. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from polyarch.placement.names import (
    ENOEXEC_EVENTS_FINALIZER,
    NO_POD_PLACEMENT_CONFIG_FINALIZER,
    POD_PLACEMENT_FINALIZER,
)


class Dependents(NamedTuple):
    """Current state of the dependents. Before a count is taken as zero it is confirmed by a live read (PL-522)."""

    deleting: bool
    """The ClusterPodPlacementConfig has a deletion timestamp."""
    webhook_configured: bool
    """The pod webhook's configuration or Deployment exists: pods may still be gated."""
    gated_pods: int
    """Pods with our gate that are waited for; pods that nobody can release do not count (PL-521)."""
    configs: int
    """PodPlacementConfigs of all namespaces."""
    monitor_enabled: bool
    monitor_objects: int
    """ENoExecEvents and monitor objects that still have to be cleaned up (PL-630)."""


class Changes(NamedTuple):
    """Finalizers to add and to remove; finalizers of others are not touched."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


def of_configuration(state: Dependents, present: Iterable[str]) -> Changes:
    """For the ClusterPodPlacementConfig; ``present``: its finalizers now."""
    monitored = (state.monitor_enabled and not state.deleting) or state.monitor_objects > 0
    wanted = {
        POD_PLACEMENT_FINALIZER: _pods_depend(state),
        NO_POD_PLACEMENT_CONFIG_FINALIZER: state.configs > 0,
        ENOEXEC_EVENTS_FINALIZER: monitored,
    }
    return _changes(wanted, present, may_add=not state.deleting)


def of_controller(state: Dependents, present: Iterable[str], *, deleting: bool) -> Changes:
    """For the controller's Deployment, which is deleted last because it removes the gates. ``deleting``: the Deployment
    itself has a deletion timestamp."""
    return _changes({POD_PLACEMENT_FINALIZER: _pods_depend(state)}, present, may_add=not deleting)


def _pods_depend(state: Dependents) -> bool:
    return not state.deleting or state.webhook_configured or state.gated_pods > 0


def _changes(wanted: dict[str, bool], present: Iterable[str], *, may_add: bool) -> Changes:
    there = frozenset(present)
    return Changes(
        add=tuple(name for name, is_wanted in wanted.items() if may_add and is_wanted and name not in there),
        remove=tuple(name for name, is_wanted in wanted.items() if not is_wanted and name in there),
    )
