"""In-memory state of one gated pod: waiting times, results of PATCHes, events already posted.

No decision needs it: a process that starts without it counts waiting from its own first attempt (PL-330) and may repeat
an event. It is kept per pod and dropped when the uid changes. Each part is changed by one module only.
"""

from typing import Final

from polyarch.oci.answer import Inspection
from polyarch.placement.controller.patch_history import PatchHistory
from polyarch.placement.controller.told import Told
from polyarch.placement.controller.windows import Windows


class GatedPod:
    """State of one gated pod. Times are ``Clock.monotonic()``."""

    __slots__ = ("failed_once", "faults", "hold", "patches", "seen_at", "share", "told", "uid", "windows")

    def __init__(self, uid: str, now: float, *, standby_delay: float) -> None:
        self.uid = uid
        self.seen_at: Final = now
        self.windows = Windows()
        """How long it has waited for images; changed by the inquiry about them."""
        self.failed_once: dict[str, Inspection] = NONE_FAILED
        """Failures of images that may exist on nodes only, by reference text (PL-212); changed by the inquiry."""
        self.patches = PatchHistory()
        """Changed by ``releases``, as are the next two."""
        self.told = Told()
        self.hold = Hold()
        self.faults = Faults()
        """Changed by ``pod_controller``."""
        self.share = Share(standby_delay)
        """Changed by ``standby``."""

    def waits(self, now: float, *, begun: float | None) -> None:
        """It waits for look-ups (``images.attempts``)."""
        self.windows.waits(now, begun=begun)

    def waits_for_nothing(self, now: float) -> None:
        """No look-up can provide what is missing (``images.attempts``)."""
        self.windows.waits_for_nothing(now)


NONE_FAILED: Final[dict[str, Inspection]] = {}
"""Shared by all pods without such a failure; never mutated."""


class Hold:
    """When holding of the pod began: by policy, for a rejected release, or for an internal error."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since: float | None = None

    def begin(self, now: float) -> None:
        self.since = now if self.since is None else self.since

    def end(self) -> None:
        self.since = None


class Faults:
    """Consecutive reconciles of the pod that failed with an internal error (PL-306)."""

    __slots__ = ("count", "since")

    def __init__(self) -> None:
        self.count = 0
        self.since: float | None = None

    def met(self, now: float) -> float:
        """Counts one more; returns the seconds since the first."""
        self.count += 1
        self.since = now if self.since is None else self.since
        return now - self.since

    def over(self) -> None:
        """A reconcile succeeded."""
        self.count, self.since = 0, None


class Share:
    """How long a standby leaves the pod to the leader (PL-530)."""

    __slots__ = ("delay", "waited")

    def __init__(self, delay: float) -> None:
        self.delay: Final = delay
        """Seconds from the first sight of the pod to the standby's first reconcile."""
        self.waited = False
        """The pod has waited for an image since it was last left to the leader."""
