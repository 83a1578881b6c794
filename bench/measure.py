"""What a run cost: CPU time and memory of processes from ``/proc``, requests from the API server's audit log.

Shapes: CPU in seconds of one core (user + system), memory in MiB resident, latencies in milliseconds.
"""

import asyncio
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyarch.sandbox.demo import audit
from polyarch.sandbox.demo.audit import AuditEvent

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
AUDIT_DELAY = 1.5
"""Seconds until the audit log surely holds what was done (the API server batches it for one second)."""


@dataclass(frozen=True)
class Figure:
    """One line of the table. ``limit`` is the budget, ``at_most`` which side of it is good.

    ``compared``: a cost that does not depend on how busy the machine is, so a regress of 20 % against the recorded
    value fails. ``source`` is the number of the budget.
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
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of a process now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
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
    """Requests between two moments, by user prefix. ``mark`` first, then ``requests``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def mark(self) -> None:
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    async def requests(self, user_prefix: str, *, namespaces: Iterable[str] = ()) -> Counter[str]:
        """Finished requests since ``mark`` of users whose name begins so: {``patch pods``: 12, …}."""
        await asyncio.sleep(AUDIT_DELAY)
        wanted = set(namespaces)
        counts: Counter[str] = Counter()
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for event in audit.read(log):
                if event.stage != "ResponseComplete" or not event.user.username.startswith(user_prefix):
                    continue
                if wanted and (event.object_ref is None or event.object_ref.namespace not in wanted):
                    continue
                counts[kind_of(event)] += 1
        return counts
