"""What one process remembers of a pod that carries our gate: since when, and what it was told already.

Nothing of this is needed to decide; a process that starts with an empty memory only counts its waiting from its own
first attempt (PL-330) and may tell once more what another told before. Keyed by pod, void when the uid changes.
"""

from collections.abc import Iterable
from typing import Final

from polyarch.kube.client.jsonpatch import Operation, add, pointer, remove, test
from polyarch.model.pod import Pod
from polyarch.placement import names

TELL_REFUSAL_EVERY: Final = 300.0
TELL_HELD_EVERY: Final = 3600.0
REFUSED_FIRST: Final = 1.0
REFUSED_LAST: Final = 60.0
IN_LINE: Final = 600.0
"""Seconds after which a pod whose images were not even asked for counts as attempted."""


class GatedPod:
    """Times are ``Clock.monotonic()``; None: not yet."""

    __slots__ = (
        "conflict",
        "faults",
        "faulty_since",
        "first_attempt",
        "gate_told",
        "held_since",
        "held_told_at",
        "moved_on_at",
        "moved_on_waits",
        "parked",
        "pending_since",
        "refusal",
        "refusal_told_at",
        "refusals",
        "refused_since",
        "seen_at",
        "silence_told_at",
        "silent_since",
        "standby_delay",
        "told_failing",
        "uid",
        "unanswered",
        "waiting_since",
        "written_from",
    )

    def __init__(self, uid: str, now: float, *, standby_delay: float) -> None:
        self.uid = uid
        self.seen_at = now
        self.standby_delay = standby_delay
        """How long a standby leaves the pod to the leader (PL-530)."""
        self.first_attempt: float | None = None
        """The windows of PL-330 run from here."""
        self.waiting_since: float | None = None
        """When it first had to wait for an image, be it only in line."""
        self.pending_since: float | None = None
        """Since when it waits for an image of which no attempt has ended."""
        self.written_from = ""
        """The resourceVersion that our last PATCH was made from: not to be written from again (PL-304)."""
        self.moved_on_at: float | None = None
        """When the API server said that the pod is not what our cache shows; None: it did not, for this version."""
        self.moved_on_waits = 0
        self.conflict = False
        """It said so with HTTP 409."""
        self.parked = False
        """It waited for an image since it was last written."""
        self.told_failing = False
        self.gate_told = 0
        """How often it was decided whether to tell of the gate: at first sight, and after 2 s (PL-710)."""
        self.held_since: float | None = None
        self.held_told_at: float | None = None
        self.refusal = ""
        self.refusals = 0
        self.refused_since: float | None = None
        self.refusal_told_at: float | None = None
        self.unanswered = 0
        """Writes in a row that the API server did not answer."""
        self.silent_since: float | None = None
        """Since when, if it refused the pod before: that time is none in which the refusal persisted."""
        self.silence_told_at: float | None = None
        self.faults = 0
        self.faulty_since: float | None = None

    def waits(self, now: float, *, begun: Iterable[float | None]) -> None:
        """The pod waits for images of which attempts have ``begun`` at these times; None: it still stands in line.

        Standing in line is nobody's failure, so the windows do not run meanwhile; but not for ever.
        """
        self.waiting_since = now if self.waiting_since is None else self.waiting_since
        if self.first_attempt is None:
            times = [time for time in begun if time is not None]
            if times or self.in_line_until(now) <= 0:
                self.first_attempt = max(min(times, default=now), self.waiting_since)

    def waits_for_nothing(self, now: float) -> None:
        """What is not known of the pod's images cannot be asked for, so the windows run."""
        self.first_attempt = now if self.first_attempt is None else self.first_attempt

    def put_off(self, now: float, *, pending: bool) -> float | None:
        """Seconds for which the pod is not given up because an image is ``pending``: not answered and not failed since
        the pod was first looked at, or asked for anew (its check has become too old, or other credentials count). Each
        gets its attempt, so it decides nothing which of them answers first (PL-330). None if there is none, or if it
        takes too long.
        """
        if not pending:
            self.pending_since = None
            return None
        self.pending_since = now if self.pending_since is None else self.pending_since
        left = self.pending_since + IN_LINE - now
        return left if left > 0 else None

    def in_line_until(self, now: float) -> float:
        """Seconds for which the pod may go on standing in line."""
        return (self.waiting_since if self.waiting_since is not None else now) + IN_LINE - now

    def elapsed(self, now: float) -> float:
        """Seconds since this process's first attempt for the pod."""
        return now - self.first_attempt if self.first_attempt is not None else 0.0

    def refused(self, refusal: str, now: float) -> float:
        """Notes a refusal of the API server; the seconds until the next try (PL-305)."""
        self.refusals += 1
        self.refusal = refusal
        if self.refused_since is None:
            self.refused_since = now
        elif self.silent_since is not None:
            self.refused_since += now - self.silent_since
        self.silent_since = None
        return min(REFUSED_FIRST * 2.0 ** min(self.refusals - 1, 10), REFUSED_LAST)

    def not_answered(self, now: float) -> int:
        """Notes that the API server did not answer; how often in a row by now."""
        self.unanswered += 1
        if self.refused_since is not None and self.silent_since is None:
            self.silent_since = now
        return self.unanswered

    def refused_for(self, now: float) -> float:
        """Seconds for which the API server has refused the pod, those left out in which it did not answer (PL-305)."""
        if self.refused_since is None:
            return 0.0
        return (self.silent_since if self.silent_since is not None else now) - self.refused_since

    def may_tell_refusal(self, now: float) -> bool:
        """Whether a refusal is news: the first time, then every five minutes (PL-305)."""
        if self.refusal_told_at is not None and now - self.refusal_told_at < TELL_REFUSAL_EVERY:
            return False
        self.refusal_told_at = now
        return True

    def may_tell_silence(self, now: float) -> bool:
        """The same for writes that got no answer: a pod that stays gated for want of one is in the log."""
        if self.silence_told_at is not None and now - self.silence_told_at < TELL_REFUSAL_EVERY:
            return False
        self.silence_told_at = now
        return True

    def may_tell_held(self, now: float) -> bool:
        """On entering and then hourly (PL-334)."""
        if self.held_told_at is not None and now - self.held_told_at < TELL_HELD_EVERY:
            return False
        self.held_told_at = now
        return True


def carries_gate(pod: Pod) -> bool:
    """Whether our gate is on the pod, whatever its labels say."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def bare_release(pod: Pod) -> tuple[Operation, ...]:
    """Takes our gate off a pod that a bug of ours keeps from being decided, and says so in the state label (PL-306)."""
    metadata = pod.metadata
    label = {names.SCHEDULING_GATE_LABEL: names.REMOVED}
    gates = [at for at, gate in enumerate(pod.spec.scheduling_gates or ()) if gate.name == names.GATE]
    path = "/spec/schedulingGates"
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        add("/metadata/labels", label)
        if metadata.labels is None
        else add(pointer("metadata", "labels", names.SCHEDULING_GATE_LABEL), names.REMOVED),
        *(
            operation
            for at in reversed(gates)
            for operation in (test(f"{path}/{at}/name", names.GATE), remove(f"{path}/{at}"))
        ),
    )
