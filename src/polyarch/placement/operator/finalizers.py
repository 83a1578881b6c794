"""Which finalizers of ours belong on the ClusterPodPlacementConfig and on the controller's Deployment (PL-003, PL-013).

They keep an object from going before what depends on it has: pods behind our gate, PodPlacementConfigs, reports of the
exec-format-error monitor. The rule is level-based: it says what should be there now, whatever happened before. An
object that is being deleted takes no finalizer that it does not have, so then none is wanted that is not there already.
Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from polyarch.placement.names import (
    ENOEXEC_EVENTS_FINALIZER,
    NO_POD_PLACEMENT_CONFIG_FINALIZER,
    POD_PLACEMENT_FINALIZER,
)


class Dependents(NamedTuple):
    """What is there; each told by a live read when it is about to be believed gone (PL-522)."""

    deleting: bool
    """The ClusterPodPlacementConfig has a deletion timestamp."""
    webhook_configured: bool
    """The pod webhook's configuration or Deployment exists: pods may still be gated."""
    gated_pods: int
    """Pods that carry our gate and are waited for; those that nobody can release are not (PL-521)."""
    configs: int
    """PodPlacementConfigs of all namespaces."""
    monitor_enabled: bool
    monitor_objects: int
    """ENoExecEvents and objects of the monitor that are still to be cleaned up (PL-630)."""


class Changes(NamedTuple):
    """Names to be added and removed; finalizers of others are not touched."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


def of_configuration(state: Dependents, present: Iterable[str]) -> Changes:
    """For the ClusterPodPlacementConfig, which has ``present`` now."""
    monitored = (state.monitor_enabled and not state.deleting) or state.monitor_objects > 0
    wanted = {
        POD_PLACEMENT_FINALIZER: _pods_depend(state),
        NO_POD_PLACEMENT_CONFIG_FINALIZER: state.configs > 0,
        ENOEXEC_EVENTS_FINALIZER: monitored,
    }
    return _changes(wanted, present, may_add=not state.deleting)


def of_controller(state: Dependents, present: Iterable[str], *, deleting: bool) -> Changes:
    """For the controller's Deployment: it goes last, since it lifts the gates. ``deleting``: the Deployment's own."""
    return _changes({POD_PLACEMENT_FINALIZER: _pods_depend(state)}, present, may_add=not deleting)


def _pods_depend(state: Dependents) -> bool:
    return not state.deleting or state.webhook_configured or state.gated_pods > 0


def _changes(wanted: dict[str, bool], present: Iterable[str], *, may_add: bool) -> Changes:
    there = frozenset(present)
    return Changes(
        add=tuple(name for name, is_wanted in wanted.items() if may_add and is_wanted and name not in there),
        remove=tuple(name for name, is_wanted in wanted.items() if not is_wanted and name in there),
    )
