"""Keeps the report of what could run where as new as the policy says.

The leader of the placement controller does this, for it has what it takes: the answers that placement has already, the
credentials, mirrors and limits to ask for the others, and room in memory. What makes a report is loaded when a policy
first wants one, and no round stands in the way of pods: the calculations run in a thread, and registries are asked as
for other work that nobody waits for."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from prometheus_client import Gauge

from polyarch.clock import Clock, deadline
from polyarch.kube.errors import KubernetesError, SeenErrors
from polyarch.kube.metrics import Metrics
from polyarch.placement.facts import ClusterFacts

log = structlog.get_logger(__name__)

SOON: Final = 5.0
"""Seconds until it is looked again for the ConfigMap that the operator makes; that costs one request."""
LATER: Final = 60.0
"""Seconds after the end of a round that failed when it had listed everything."""

Sums = list[tuple[str, str, float, int]]
"""Target, verdict, cores and number of workloads."""


class ReportNotReady(Exception):  # noqa: N818 - what is the case
    """A report cannot be made now; the message says what is missing and who brings it."""

    def __init__(self, message: str, *, again: float = LATER) -> None:
        """``again``: seconds until it is worth another try."""
        super().__init__(message)
        self.again = again


class ReportGenerator(Protocol):
    """One round: it reads, asks, writes the ConfigMap, and says the sums."""

    async def make(self) -> Sums: ...


class ReportMetrics:
    """The sums of the newest report."""

    def __init__(self, metrics: Metrics) -> None:
        labels = ("target", "verdict")
        self._cores: Gauge = metrics.gauge(
            "polyarch_report_weight_cores", "CPU that workloads request, by what is to be said of a target", labels
        )
        self._workloads: Gauge = metrics.gauge(
            "polyarch_report_workloads", "Workloads, by what is to be said of a target", labels
        )

    def show(self, sums: Sums) -> None:
        """Instead of those before; none: there is no report."""
        for gauge in (self._cores, self._workloads):
            gauge.clear()
        for target, verdict, cores, workloads in sums:
            self._cores.labels(target, verdict).set(cores)
            self._workloads.labels(target, verdict).set(workloads)


class ReportController:
    """``load`` makes what makes reports, once."""

    def __init__(
        self, load: Callable[[], ReportGenerator], *, facts: ClusterFacts, metrics: Metrics, clock: Clock
    ) -> None:
        self._load = load
        self._loaded: ReportGenerator | None = None
        self._facts = facts
        self._metrics = ReportMetrics(metrics)
        self._clock = clock
        self._causes = SeenErrors()
        self._told = ""
        self._wake = asyncio.Event()
        facts.on_change(lambda namespace: self._wake.set() if namespace is None else None)

    async def run(self) -> None:
        """Makes a report at the policy's interval, until cancelled; for the leader alone."""
        last: float | None = None
        wait: float | None = None
        try:
            while True:
                self._wake.clear()
                if not self._is_wanted:
                    last = None
                    self._metrics.show([])
                    await self._wake.wait()
                    continue
                if last is not None:
                    due = last + (self._facts.table.spec.report_interval if wait is None else wait)
                    if (rest := due - self._clock.monotonic()) > 0:
                        await self._rest(rest)
                        continue
                last = self._clock.monotonic()
                wait = await self._round()
                if wait is not None:
                    last = self._clock.monotonic()
        finally:
            self._metrics.show([])

    @property
    def _is_wanted(self) -> bool:
        return self._facts.is_complete and not self._facts.is_deprovisioning and self._facts.table.spec.report_enabled

    async def _rest(self, seconds: float) -> None:
        try:
            async with deadline(self._clock, seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _round(self) -> float | None:
        """Seconds until it is to be tried again, if it failed; what was found before stays until then."""
        if self._loaded is None:
            self._loaded = self._load()
        try:
            self._metrics.show(await self._loaded.make())
        except ReportNotReady as error:
            self._tell(str(error))
            return error.again
        except KubernetesError as error:
            self._tell(str(error))
        except Exception as error:
            log.error(
                "the report failed with an internal error", exc_info=error if self._causes.is_new(error) else None
            )
        else:
            self._told = ""
            return None
        return LATER

    def _tell(self, problem: str) -> None:
        """Once, until another problem occurs or it is over."""
        if problem != self._told:
            self._told = problem
            log.warning("the report could not be made", problem=problem)
