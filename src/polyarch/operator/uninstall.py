"""The next step of an uninstall, from what is there now. Pure.

Nothing is remembered between steps but times, so the operator may be killed at any point, and another one goes on.
"""

from enum import Enum
from typing import Final, NamedTuple

SETTLING: Final = 8.0
"""Seconds after the webhook is gone in which a pod may still get a gate: an admission takes up to 5 s, and API servers
learn of a configuration's deletion by a watch."""
GATES_SECONDS: Final = 120.0
"""The controller's time to remove all gates."""
RELEASE_SECONDS: Final = 60.0
"""The operator's time to remove the gates that are left."""

STEP_INTERVAL: Final = 0.2
"""Seconds until the next step."""
MAX_REPEATED: Final = 10
"""Repetitions after which the pause does not grow any more (11 s)."""
ROLE_IDLE_TIMEOUT: Final = 30.0
"""Seconds for which the role may remove nothing before the operator helps."""


class UninstallBackoff:
    """Seconds until the next step: soon, and ever later while a step is repeated and nothing is deleted.

    Something may be held by others for ever. An object that goes without being watched, such as a Lease, is progress.
    """

    def __init__(self) -> None:
        self._last: tuple[Enum, int] | None = None
        self._repeated = 0

    def after(self, step: Enum, *, left: int) -> float:
        """``left``: the number of objects that there were before the step."""
        self._repeated = min(self._repeated + 1, MAX_REPEATED) if (step, left) == self._last else 0
        self._last = step, left
        return STEP_INTERVAL * 1.5**self._repeated


# -- placement ---------------------------------------------------------------------------------------------------------


# What has to be waited for is timed by timestamps that the API server keeps: the controller's Deployment is deleted as
# soon as the webhook is deleted, but its finalizer keeps it, and so its pods go on removing gates. The time since its
# ``deletionTimestamp`` is the time that gates have had. Pods are never left gated while the controller is taken away,
# unless time is up; then the operator removes the gates itself, and what it cannot remove is named.


class PlacementUninstallStep(Enum):
    """What to do next; every step can be repeated."""

    DELETE_WEBHOOK_CONFIGURATION = "delete the pod webhook's configuration"
    REMOVE_MONITOR = "remove the exec-format-error monitor"
    WAIT_FOR_CONFIGS = "wait until all PodPlacementConfigs are deleted"
    REMOVE_WEBHOOK = "delete the webhook's Deployment and all that belongs to it"
    RETIRE_CONTROLLER = "request the deletion of the controller, which goes on until its finalizer is removed"
    WAIT_FOR_GATES = "wait until the controller has removed all gates"
    RELEASE_PODS = "remove the gates that are left, without a decision"
    REMOVE_CONTROLLER = "delete the controller's Deployment and all that belongs to it"
    RELEASE_CONFIGURATION = "remove the finalizers of the ClusterPodPlacementConfig"
    FINISHED = "nothing is left"


class RemainingController(NamedTuple):
    """The controller's Deployment, which has our finalizer, and the objects that belong to it."""

    objects: int = 0
    """Their number, the Deployment included."""
    exists: bool = False
    """The Deployment exists."""
    deleting_for: float | None = None
    """Seconds since its deletion was requested; None: it was not."""


class RemainingPlacement(NamedTuple):
    """What still exists of placement, by live reads."""

    configuration: bool = False
    """A ClusterPodPlacementConfig that is being deleted, with a finalizer of ours."""
    configs: int = 0
    """PodPlacementConfigs that it is kept for."""
    webhook_configured: bool = False
    webhook: int = 0
    """Number of objects of the webhook."""
    monitor: bool = False
    """Anything of the exec-format-error monitor, which has its own steps."""
    controller: RemainingController = RemainingController()
    gated: int = 0
    """Pods with our gate."""
    releasing_for: float = 0.0
    """Seconds for which this process has been removing gates itself; counts where no Deployment tells the time."""
    forced: bool = False
    """Gates are removed at once: the annotation ``force-uninstall`` is set."""


def next_placement_step(left: RemainingPlacement) -> PlacementUninstallStep:
    """The next step; ``FINISHED`` iff nothing is left."""
    if left.webhook_configured:
        return PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION
    if left.monitor:
        return PlacementUninstallStep.REMOVE_MONITOR
    if left.configs and not left.forced:
        return PlacementUninstallStep.WAIT_FOR_CONFIGS
    if left.webhook:
        return PlacementUninstallStep.REMOVE_WEBHOOK
    if (step := _controller_step(left)) is not None:
        return step
    return PlacementUninstallStep.RELEASE_CONFIGURATION if left.configuration else PlacementUninstallStep.FINISHED


def _controller_step(left: RemainingPlacement) -> PlacementUninstallStep | None:
    controller = left.controller
    if not controller.exists:  # nobody but the operator can remove gates
        if left.gated and left.releasing_for < RELEASE_SECONDS:
            return PlacementUninstallStep.RELEASE_PODS
        return PlacementUninstallStep.REMOVE_CONTROLLER if controller.objects else None
    since = controller.deleting_for
    if since is None:
        return PlacementUninstallStep.RETIRE_CONTROLLER
    waits = SETTLING if left.forced else GATES_SECONDS
    if not left.gated:
        return PlacementUninstallStep.WAIT_FOR_GATES if since < SETTLING else PlacementUninstallStep.REMOVE_CONTROLLER
    if since < GATES_SECONDS and not left.forced:
        return PlacementUninstallStep.WAIT_FOR_GATES
    return (
        PlacementUninstallStep.RELEASE_PODS
        if since < waits + RELEASE_SECONDS
        else PlacementUninstallStep.REMOVE_CONTROLLER
    )


# -- taints ------------------------------------------------------------------------------------------------------------


# The role itself removes taints and gates, at its pace. Where it is dead, or gets no further, the operator does. What
# cannot be removed keeps the object, and so its name in condition ``Degraded``, but holds up nothing else.


class TaintsUninstallStep(Enum):
    """What to do next; every step can be repeated."""

    UNREGISTER = "delete the webhook configuration and the policy for new nodes"
    LET_ROLE_CLEAN = "wait until the role has removed taints and gates"
    CLEAN = "remove the taints and gates that are left"
    SETTLE = "wait until no admission can add a gate any more"
    REMOVE_ROLE = "delete the Deployment and all that belongs to it"
    RELEASE = "remove the finalizer of the ArchitectureTaints"
    FINISHED = "nothing is left"


class RemainingTaints(NamedTuple):
    """What still exists of taints, by live reads."""

    registered: bool = False
    """The webhook configuration, or the policy for nodes at registration."""
    marks: int = 0
    """Nodes with taints of ours, and pods with our gate or its label."""
    role: int = 0
    """Number of objects of the role."""
    lives: bool = False
    """The role works: a pod is available, and its Lease is renewed."""
    idle: float = 0.0
    """Seconds since the number of marks last fell."""
    settling: float = SETTLING
    """Seconds since the webhook was last seen."""
    finalizer: bool = False
    """The terminating ArchitectureTaints has our finalizer."""


def next_taints_step(left: RemainingTaints) -> TaintsUninstallStep:
    """The next step; ``FINISHED`` iff nothing is left."""
    if left.registered:
        return TaintsUninstallStep.UNREGISTER
    if left.marks:
        return (
            TaintsUninstallStep.LET_ROLE_CLEAN
            if left.lives and left.idle < ROLE_IDLE_TIMEOUT
            else TaintsUninstallStep.CLEAN
        )
    if left.settling < SETTLING:
        return TaintsUninstallStep.SETTLE
    if left.role:
        return TaintsUninstallStep.REMOVE_ROLE
    return TaintsUninstallStep.RELEASE if left.finalizer else TaintsUninstallStep.FINISHED
