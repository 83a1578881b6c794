"""The next step when ArchitectureTaints is being deleted, from what is there now (TN-073).

Nothing is remembered between steps but times, so the operator may be killed at any point, and another one goes on. The
role itself removes taints and lifts gates, at its pace. Where it is dead, or gets no further, the operator does. What
cannot be removed keeps the object, and so its name in condition ``Degraded``, but holds up nothing else. Pure.
"""

from enum import Enum
from typing import Final, NamedTuple

SETTLING: Final = 8.0
"""Seconds after the webhook is gone in which a pod may still get a gate: an admission takes up to 5 s, and API servers
learn of a configuration's deletion by a watch."""
PATIENCE: Final = 30.0
"""Seconds for which the role may remove nothing before the operator helps."""


class Step(Enum):
    """What to do next; every step can be repeated."""

    UNREGISTER = "delete the webhook configuration and the policy for new nodes"
    LET_ROLE_CLEAN = "wait until the role has removed taints and gates"
    CLEAN = "remove the taints and gates that are left"
    SETTLE = "wait until no admission can add a gate any more"
    REMOVE_ROLE = "delete the Deployment and all that belongs to it"
    RELEASE = "remove the finalizer of the ArchitectureTaints"
    FINISHED = "nothing is left"


class Left(NamedTuple):
    """What is left of taints, by live reads."""

    registered: bool = False
    """The webhook configuration, or the policy for nodes at registration."""
    marks: int = 0
    """Nodes with taints of ours, and pods with our gate or its label."""
    role: int = 0
    """Objects of the role."""
    lives: bool = False
    """The role works: a pod is available, and its Lease is renewed."""
    idle: float = 0.0
    """Seconds since the number of marks last fell."""
    settling: float = SETTLING
    """Seconds since the webhook was last seen."""
    finalizer: bool = False
    """On the ArchitectureTaints that is being deleted."""


def next_step(left: Left) -> Step:
    """The next step; ``FINISHED`` iff nothing is left."""
    if left.registered:
        return Step.UNREGISTER
    if left.marks:
        return Step.LET_ROLE_CLEAN if left.lives and left.idle < PATIENCE else Step.CLEAN
    if left.settling < SETTLING:
        return Step.SETTLE
    if left.role:
        return Step.REMOVE_ROLE
    return Step.RELEASE if left.finalizer else Step.FINISHED
