"""Which pod a failed exec belongs to, found in the moment its line is read (PL-603 to PL-606).

The process often ends within a millisecond, so ``/proc`` is read at once, in the reading thread. Of the processes that
a container runtime forks the cgroup is remembered beforehand, because that of a container's first program is gone
first: the runtime reports the error and ends.

Runs in the reading thread alone.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from polyarch.placement.execmonitor import cgroups, pod_logs
from polyarch.placement.execmonitor.cgroups import Container
from polyarch.placement.execmonitor.limits import Limits
from polyarch.placement.execmonitor.trace import ENOEXEC, Forked, Returned

PROC: Final = Path("/proc")
POD_LOGS: Final = Path("/var/log/pods")
REMEMBERED: Final = 4096
"""Forked processes."""
PERIOD: Final = 600.0
"""Seconds for which a forked process is remembered."""
LATER: Final = 0.05
"""Seconds after which a forked process is looked at again: some runtimes fork first and move the child afterwards."""
MOST_LATER: Final = 256

Unreported = Literal["duplicate", "limited", "unattributed", "not_a_pod"]


class Report(msgspec.Struct, frozen=True, gc=False):
    """What the ENoExecEvent will say."""

    pod_uid: str
    pod_namespace: str
    pod_name: str
    container_id: str


class Attribution:
    """``now``: seconds on a clock that does not go back."""

    def __init__(
        self, *, proc: Path = PROC, logs: Path = POD_LOGS, now: Callable[[], float], limits: Limits | None = None
    ) -> None:
        self._proc = proc
        self._logs = logs
        self._now = now
        self._limits = limits or Limits()
        self._forked: dict[int, tuple[float, Container]] = {}
        self._later: deque[tuple[float, int]] = deque(maxlen=MOST_LATER)

    def forked(self, event: Forked) -> None:
        """Remembers the child's container."""
        if not self._remember(event.pid):
            self._later.append((self._now() + LATER, event.pid))

    def look_again(self) -> float | None:
        """Looks at the children that were in no container yet; returns the seconds until the next one is due."""
        while self._later and self._later[0][0] <= self._now():
            self._remember(self._later.popleft()[1])
        return max(0.0, self._later[0][0] - self._now()) if self._later else None

    def failed(self, event: Returned) -> Report | Unreported | None:
        """The report, or why there is none; None if the call did not fail with ENOEXEC."""
        if event.ret != ENOEXEC:
            return None
        container, is_known = self._container(event.pid)
        if container is None:
            return "not_a_pod" if is_known else "unattributed"
        now = self._now()
        if self._limits.is_duplicate(container.id, now):
            return "duplicate"
        pod = self._pod(container.pod_uid)
        if pod is None:
            return "unattributed"
        if not self._limits.admit(container.id, now):
            return "limited"
        return Report(container.pod_uid, pod.namespace, pod.name, container.id)

    def _container(self, pid: int) -> tuple[Container | None, bool]:
        """The container now, else when the process was forked; and whether anything is known of the process."""
        text = self._read(pid)
        if text is not None and (container := cgroups.parse(text)) is not None:
            return container, True
        kept = self._forked.get(pid)
        if kept is not None and self._now() - kept[0] < PERIOD:
            return kept[1], True
        return None, text is not None

    def _remember(self, pid: int) -> bool:
        """False if the process lives in no container now."""
        text = self._read(pid)
        if text is None:
            return True
        container = cgroups.parse(text)
        if container is None:
            return False
        self._forked.pop(pid, None)
        self._forked[pid] = self._now(), container
        if len(self._forked) > REMEMBERED:
            del self._forked[next(iter(self._forked))]
        return True

    def _read(self, pid: int) -> str | None:
        try:
            return (self._proc / str(pid) / "cgroup").read_text("utf-8", "replace")
        except OSError:
            return None

    def _pod(self, uid: str) -> pod_logs.PodName | None:
        try:
            return pod_logs.find((entry.name for entry in self._logs.iterdir()), uid)
        except OSError:
            return None
