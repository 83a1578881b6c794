"""The order in which the monitor is removed, when it is disabled or placement is uninstalled (PL-630).

Level-based: each pass of the operator observes what is there and takes the next step; nothing is remembered but the
time since when the handler is waited for. A step is done when what it removes is gone by a live read (PL-522). Pure.
"""

from enum import Enum
from typing import Final

import msgspec

MOST_SECONDS: Final = 60.0
"""For the handler to consume the events that are left."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What of the monitor exists now."""

    node_side: int
    """Objects with the label ``controller=enoexec-event-daemon``: DaemonSet, ServiceAccount, roles and bindings."""
    failed_events: int
    """ENoExecEvents with an error label, in the operator's namespace."""
    events: int
    """The other ENoExecEvents there."""
    waited: float
    """Seconds since this operator first saw the node side gone and events left; 0 if it does so now."""
    handler_finalizer: bool
    """The finalizer is on the handler's Deployment."""
    handler: int
    """Objects with the label ``controller=enoexec-event-handler-controller``, and the monitor's PrometheusRules."""
    configuration_finalizer: bool
    """The finalizer is on the ClusterPodPlacementConfig."""


class Step(Enum):
    """What to do next; its text is for conditions and the log."""

    DELETE_NODE_SIDE = "deleting the DaemonSet enoexec-event-daemon and its rights"
    DELETE_FAILED_EVENTS = "deleting ENoExecEvents that could not be handled"
    WAIT = "waiting for the handler to consume the last ENoExecEvents"
    DELETE_EVENTS = "deleting the ENoExecEvents that the handler did not consume"
    DROP_HANDLER_FINALIZER = "removing the finalizer of the Deployment enoexec-event-handler-controller"
    DELETE_HANDLER = "deleting the handler, its rights, and the monitor's rules"
    DROP_CONFIGURATION_FINALIZER = "removing the monitor's finalizer of the ClusterPodPlacementConfig"
    DONE = "nothing of the monitor is left"


def next_step(observed: Observed) -> Step:
    """The first step that is not done yet. Without a handler nobody consumes events: they are deleted at once."""
    if observed.node_side:
        return Step.DELETE_NODE_SIDE
    if observed.failed_events:
        return Step.DELETE_FAILED_EVENTS
    if observed.events:
        return Step.WAIT if observed.handler and observed.waited < MOST_SECONDS else Step.DELETE_EVENTS
    if observed.handler_finalizer:
        return Step.DROP_HANDLER_FINALIZER
    if observed.handler:
        return Step.DELETE_HANDLER
    return Step.DROP_CONFIGURATION_FINALIZER if observed.configuration_finalizer else Step.DONE
