"""One scan: asks the kubelet, reads the machine, and computes the topology.

Everything that a scan reads is read in :meth:`Scanner.scan`, in its order, and everything else is computed by pure
rules after that. Files are read in the loop's own thread: sysfs and a tmpfs answer at once. The module imports no
HTTP, no gRPC and no log library, since a command scans in the same way and has to answer at once.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import NodeZones, node_zones
from polyarch.numa.facts import Allocatable, HostSettings, ScanFacts
from polyarch.numa.host.kubelet import CheckpointFiles, Configz, KubeletSettingsSource
from polyarch.numa.host.machine import MachineReader, host_files
from polyarch.numa.host.podresources import (
    CallMetrics,
    NoCallMetrics,
    PodResources,
    PodResourcesError,
    RecordedResponses,
    parse_podresources_url,
)

Document = dict[str, Any]

STATE_DIRECTORY: Final = "var/lib/kubelet"
"""Of the kubelet, below the root."""
ALLOCATABLE_LIFETIME: Final = 600.0
"""Seconds for which the last allocatable resources are used while the kubelet does not answer."""


class ScanResult(msgspec.Struct, frozen=True):
    """The result of a scan."""

    document: Document
    """The topology, without its owner."""
    zones: NodeZones
    stale_settings: str = ""
    """Why the kubelet's settings are those of an earlier time; empty: they are not."""


class KnowsTerminalPods(Protocol):
    """``exporter.cluster.TerminalPods``, which imports a log library."""

    def names(self) -> frozenset[tuple[str, str]]: ...


class Scanner:
    """Makes one scan after the other, never two at once."""

    def __init__(
        self,
        settings: ExporterSettings,
        podresources: PodResources,
        *,
        clock: Clock,
        count: Callable[[str], None] = lambda _: None,
        configz: Configz | None = None,
        terminal: KnowsTerminalPods | None = None,
    ) -> None:
        """``count`` gets the name of each file that could not be used. Without ``terminal`` every listed pod counts."""
        host = settings.host
        files = host_files(host.root, host.sysfs)
        self._node = settings.hostname
        self._settings = settings.scan
        self._refresh_period = settings.triggers.sleep_interval
        self._podresources = podresources
        self._allocatable = AllocatableCache(podresources, clock=clock)
        self._machine = MachineReader(files, clock=clock, count=count)
        self._checkpoints = CheckpointFiles(files.root, state_directory(host), count=count)
        self._kubelet = KubeletSettingsSource(host, files.root, clock=clock, configz=configz)
        self._terminal = terminal
        self._restarts = 0

    async def scan(self, trigger: ScanTrigger) -> ScanResult:
        """Raises ``PodResourcesError``, ``UnreadableMachine`` or ``NoKubeletSettings``."""
        if "socket" in trigger.reasons:
            self._restarts += 1
        checkpoints = self._checkpoints.read()  # first: a pod that came since is listed, and nobody takes it for over
        pods = tuple(await self._podresources.list())
        allocatable = await self._allocatable.current(refresh=trigger.refreshes)
        kubelet = await self._kubelet.current(self._restarts)
        terminal = self._terminal.names() if self._terminal is not None else frozenset()
        facts = ScanFacts(
            machine=self._machine.read(self._restarts),
            allocatable=allocatable,
            pods=pods,
            kubelet=kubelet.kubelet,
            checkpoints=checkpoints,
            terminal=terminal,
        )
        zones = node_zones(facts, self._settings, self._node)
        document = topology_document(facts, zones, self._settings, refresh_period=self._refresh_period)
        return ScanResult(document, zones, kubelet.stale)


def state_directory(host: HostSettings) -> str:
    """The kubelet's directory, below the root."""
    return host.kubelet_state_dir or STATE_DIRECTORY


class AllocatableCache:
    """The allocatable resources in the kubelet's last response.

    They change when a device plugin or the kubelet restarts, and are requested again then, and now and then. A kubelet
    that lists pods but does not answer this is given ten minutes: the last response is nearly always still right.
    """

    def __init__(self, podresources: PodResources, *, clock: Clock) -> None:
        self._podresources = podresources
        self._clock = clock
        self._known: Allocatable | None = None
        self._known_at = 0.0
        self._overdue = False

    async def current(self, *, refresh: bool) -> Allocatable:
        """``refresh``: they may have changed.

        Raises ``PodResourcesError`` if they are not known, or too old.
        """
        if self._known is not None and not refresh and not self._overdue:
            return self._known
        try:
            allocatable = await self._podresources.allocatable()
        except PodResourcesError as error:
            age = self._clock.monotonic() - self._known_at
            if self._known is None or age >= ALLOCATABLE_LIFETIME:
                raise
            if not self._overdue:
                import structlog  # a third of the start of a command that scans once, and never gets here

                log = structlog.get_logger(__name__)
                log.warning("allocatable is not answered, going on with the last answer", problem=str(error))
            self._overdue = True
            return self._known
        self._known, self._known_at, self._overdue = allocatable, self._clock.monotonic(), False
        return allocatable


def open_podresources(url: str, *, metrics: CallMetrics | None = None, clock: Clock | None = None) -> PodResources:
    """A client for ``unix:///path`` or ``fake:///directory``; nothing is connected yet.

    Raises ValueError for any other URL.
    """
    address = parse_podresources_url(url)
    if address.fake:
        return RecordedResponses(address, metrics=metrics or NoCallMetrics())
    from polyarch.numa.host.kubelet_socket import KubeletSocket  # recorded responses are read without gRPC

    return KubeletSocket(address, metrics=metrics or NoCallMetrics(), clock=clock or SystemClock())
