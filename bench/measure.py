"""Measurements: CPU time and memory of processes from ``/proc``, requests from the API server's audit log.

Units: CPU in seconds of one core (user + system), resident memory in MiB, latencies in milliseconds.
"""

import asyncio
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyarch.sandbox.demo import workloads
from polyarch.sandbox.demo.workloads import AuditEvent

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
AUDIT_DELAY = 1.5
"""Seconds until the audit log is complete (the API server batches it for one second)."""


@dataclass(frozen=True)
class Figure:
    """One line of the table. ``limit`` is the budget: an upper bound, or without ``at_most`` a lower one.

    ``compared`` figures do not depend on the load of the machine; a regression of 20 % against the record fails.
    ``source`` is the requirement number of the budget.
    """

    name: str
    value: float
    unit: str
    source: str = ""
    limit: float | None = None
    at_most: bool = True
    compared: bool = False
    note: str = ""

    @property
    def kept(self) -> bool:
        if self.limit is None:
            return True
        return self.value <= self.limit if self.at_most else self.value >= self.limit


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; 0 if there are no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def kind_of(event: AuditEvent) -> str:
    """Verb and resource: ``patch pods``, ``patch pods/status``."""
    if event.object_ref is None:
        return event.verb
    sub = f"/{event.object_ref.subresource}" if event.object_ref.subresource else ""
    return f"{event.verb} {event.object_ref.resource}{sub}"


class AuditLog:
    """Counts requests by user prefix: call ``mark`` first, then ``requests``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def mark(self) -> None:
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    async def requests(self, user_prefix: str, *, namespaces: Iterable[str] = ()) -> Counter[str]:
        """Finished requests since ``mark`` by users with this name prefix: {``patch pods``: 12, …}."""
        await asyncio.sleep(AUDIT_DELAY)
        wanted = set(namespaces)
        counts: Counter[str] = Counter()
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for event in workloads.read(log):
                if event.stage != "ResponseComplete" or not event.user.username.startswith(user_prefix):
                    continue
                if wanted and (event.object_ref is None or event.object_ref.namespace not in wanted):
                    continue
                counts[kind_of(event)] += 1
        return counts
