"""The loop of an exporter: waits for a trigger, scans, and leaves the result to the publisher.

It never waits for the API server. A scan that fails changes nothing in the cluster but a condition of the own Pod; it
is made again after a backoff, or as soon as anything else asks for a scan.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, deadline, is_cancelled
from polyarch.kube.errors import SeenErrors
from polyarch.kube.requests import Random, backoff
from polyarch.numa import names
from polyarch.numa.exporter.publisher import Publisher, PublishRequest
from polyarch.numa.exporter.scan import Scanner, ScanResult
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.server import ExporterMetrics
from polyarch.numa.exporter.topology_document import fingerprint_status
from polyarch.numa.exporter.triggers import ScanTriggers
from polyarch.numa.host.kubelet import NoKubeletSettings
from polyarch.numa.host.machine import UnreadableMachine
from polyarch.numa.host.podresources import PodResourcesError
from polyarch.objects import Condition

log = structlog.get_logger(__name__)

T = TypeVar("T")

LIVENESS_INTERVAL: Final = 30.0
"""Seconds after which the loop shows that it lives although nothing asks for a scan."""
LIVENESS_MARGIN: Final = 60.0
"""Seconds above three periods in which a loop that lives has gone round once."""
SCAN_BACKOFF: Final = (1.0, 30.0)
"""Seconds of the backoff after a failed scan: at first, and at most."""


class ScanFailed(Exception):  # noqa: N818 - what happened
    """A scan had no result; the message is its cause in a few words."""


class ConditionWriter(Protocol):
    """Writes conditions of the exporter's own Pod, or nowhere."""

    def set(self, condition: Condition) -> None: ...


class NullConditions:
    """Takes conditions where there is no Pod to write them to."""

    def set(self, condition: Condition) -> None:
        pass


class ScanLoop:
    """Runs scans; ``status_file`` gets the pods of the fingerprint after each."""

    def __init__(
        self,
        *,
        triggers: ScanTriggers,
        scanner: Scanner,
        publisher: Publisher,
        metrics: ExporterMetrics,
        clock: Clock,
        chance: Random,
        period: float,
        ready: Callable[[], Coroutine[Any, Any, None]],
        conditions: ConditionWriter | None = None,
        status_file: "FingerprintStatusFile | None" = None,
    ) -> None:
        """``period``: seconds of the timer that scans; 0 without one. ``ready`` returns when a scan can be made."""
        self._triggers = triggers
        self._scanner = scanner
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._period = period
        self._ready = ready
        self._conditions = conditions or NullConditions()
        self._status_file = status_file
        self._causes = SeenErrors()
        self._failures = 0
        self._problem = ""
        self._stale = False
        self._warned: set[str] = set()
        self._alive_at = clock.monotonic()

    async def run(self) -> None:
        """Scans until cancelled. Raises ``NoKubeletSettings`` if they were never known: the process ends then."""
        await self._wait_alive(self._ready())
        while True:
            trigger = await self._wait_alive(self._triggers.next())
            try:
                await self.once(trigger)
            except ScanFailed as error:
                self._failed(trigger, str(error))

    async def once(self, trigger: ScanTrigger) -> None:
        """One scan and what follows from it. Raises ``ScanFailed`` and ``NoKubeletSettings``."""
        began = self._clock.monotonic()
        self._metrics.woken(trigger.trigger, seconds=max(0.0, began - trigger.since))
        try:
            result = await self._scanner.scan(trigger)
        except (PodResourcesError, UnreadableMachine) as error:
            self._metrics.scanned(trigger.trigger, seconds=self._clock.monotonic() - began, success=False)
            raise ScanFailed(str(error)) from None
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, NoKubeletSettings) or (isinstance(error, asyncio.CancelledError) and is_cancelled()):
                raise
            self._metrics.scanned(trigger.trigger, seconds=self._clock.monotonic() - began, success=False)
            if self._causes.is_new(error):
                log.exception("unexpected error in a scan")
            raise ScanFailed(f"unexpected error in a scan: {error!r}") from error
        ended = self._clock.monotonic()
        self._metrics.scanned(trigger.trigger, seconds=ended - began, success=True)
        self._succeeded(trigger, result, ended)

    def stalled(self) -> str | None:
        """The liveness check: None as long as the loop goes round."""
        since, limit = self._clock.monotonic() - self._alive_at, 3 * self._period + LIVENESS_MARGIN
        return None if since < limit else f"the scan loop has not gone round for {since:.0f} s (limit {limit:.0f} s)"

    async def _wait_alive(self, awaited: Coroutine[Any, Any, T]) -> T:
        """The result of ``awaited``. However long that takes, the loop counts as alive."""
        task = asyncio.create_task(awaited, name="scan loop waits")
        try:
            while not task.done():
                self._alive_at = self._clock.monotonic()
                with suppress(TimeoutError):
                    async with deadline(self._clock, LIVENESS_INTERVAL):
                        await asyncio.wait({task})
            return task.result()
        finally:
            task.cancel()
            self._alive_at = self._clock.monotonic()

    def _succeeded(self, trigger: ScanTrigger, result: ScanResult, ended: float) -> None:
        if self._problem:
            log.info("scans succeed again", failures=self._failures)
        self._failures, self._problem = 0, ""
        self._metrics.show(result.zones)
        for warning in result.zones.warnings:
            self._metrics.fact_failed(warning.reason, warning.count)
            if warning.message and warning.reason not in self._warned:  # once each
                self._warned.add(warning.reason)
                log.warning("a scan found something odd", reason=warning.reason, what=warning.message)
        before = self._publisher.fingerprint
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self._publisher.offer(PublishRequest(result.document, trigger.trigger, ended, now))
        if self._status_file is not None:
            self._status_file.write(fingerprint_status(result.zones, before))
        self._conditions.set(Condition(names.PODRESOURCES_FETCHED, "True", "Scanned", "the last scan succeeded"))
        if result.stale_settings or self._stale:
            self._set_stale_settings(result.stale_settings)

    def _set_stale_settings(self, stale: str) -> None:
        self._stale = True
        if stale:
            self._conditions.set(Condition(names.SETTINGS_STALE, "True", "NoSource", stale))
        else:
            self._conditions.set(Condition(names.SETTINGS_STALE, "False", "Read", "the kubelet's settings are known"))

    def _failed(self, trigger: ScanTrigger, problem: str) -> None:
        base, cap = SCAN_BACKOFF
        after = max(base, backoff(self._failures + 1, base=base, cap=cap, random=self._chance))
        if problem != self._problem:
            log.warning("scan failed, the published topology stays", problem=problem, again_in=round(after, 1))
        self._failures += 1
        self._problem = problem
        self._conditions.set(Condition(names.PODRESOURCES_FETCHED, "False", "ScanFailed", problem))
        self._triggers.put_back(trigger, after=after)


class FingerprintStatusFile:
    """The file that ``--pods-fingerprint-status-file`` names.

    It is replaced as a whole, so that no reader sees half of it. A file that cannot be written is logged once per
    cause.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._beside = self._path.with_name(f".{self._path.name}.new")
        self._problem = ""

    def write(self, status: Mapping[str, Any]) -> None:
        try:
            self._beside.write_bytes(msgspec.json.encode(status))
            self._beside.replace(self._path)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("fingerprint status file cannot be written", path=str(self._path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
