"""What this process remembers of one pod: how long it has waited, and what was said about it.

No decision needs it: a process that starts without it looks at every pod again and may repeat an event. Dropped when
the pod leaves the watch or its uid changes. Times are ``Clock.monotonic()``.
"""

from datetime import datetime
from typing import Final

from polyarch.objects import Pod
from polyarch.taints import names
from polyarch.taints.lookups.waiter import Waiter

PATIENCE: Final = 8.0
"""Seconds from the first sight of a pod for which an image counts as being asked for, even if the pod's time is over:
after a restart the first answers are a moment away."""


class PodMemory:
    """One pod."""

    __slots__ = (
        "architectures",
        "is_blocked",
        "is_judged",
        "is_unknown",
        "is_waiting",
        "refusals",
        "repeated_at",
        "settled",
        "unanswered",
        "waiter",
    )

    def __init__(self, uid: str, now: float) -> None:
        self.waiter: Final = Waiter(uid, now)
        self.settled: object = None
        """What the last decision was made from, if nothing but a change of that can make it another one."""
        self.is_judged = False
        self.is_unknown = False
        """Some answer is missing."""
        self.is_waiting = False
        """So that its decision is still to come: its time is not over, or the policy keeps its gate nevertheless."""
        self.is_blocked = False
        """No node can run it."""
        self.architectures: tuple[str, ...] = ()
        """What is known of A while an answer is missing."""
        self.refusals = 0
        """Writes in a row that the API server refused."""
        self.unanswered = 0
        self.repeated_at: float | None = None
        """When it was last said that the gate stays beyond its time."""


def waited(pod: Pod, memory: PodMemory, *, now: float, moment: datetime) -> float:
    """Seconds for which the pod has waited: since its creation, but at least since this process has seen it.

    By the wall clock, as nothing else outlives the process that saw the pod first; if that clock is slow, pods wait
    longer after a change of the leader, and if it is fast, still for :data:`PATIENCE`.
    """
    since_seen = now - memory.waiter.seen_at
    created = pod.metadata.creation_timestamp
    if created is None:
        return since_seen
    try:
        age = (moment - datetime.fromisoformat(created)).total_seconds()
    except ValueError:
        return since_seen
    return max(age, since_seen)


def counted(pod: Pod, memory: PodMemory, limit: float, *, pending: bool, now: float, moment: datetime) -> float:
    """The same, as it counts towards ``limit``: less than that while an image is asked for that is worth a last moment
    of patience. ``pending``: one has neither answered nor failed yet."""
    seconds = waited(pod, memory, now=now, moment=moment)
    if pending and seconds >= limit:
        return min(seconds, limit - (memory.waiter.seen_at + PATIENCE - now))
    return seconds


def has_gate(pod: Pod) -> bool:
    """Whether the pod carries our gate."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())
