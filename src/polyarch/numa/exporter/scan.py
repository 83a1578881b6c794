"""One scan: asks the kubelet, reads the machine, and decides what the topology is.

Everything that a scan reads is read here, in this order, and everything it decides is decided by the pure rules after
that. Files are read in the loop's own thread: sysfs and a tmpfs answer at once.
Imports no HTTP and writes no log, since a command scans in the same way and has to answer at once."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.settings import ExporterSettings, HostSettings
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import NodeZones, node_zones
from polyarch.numa.facts import Allocatable, Checkpoints, Machine, ScanFacts, ScanSettings
from polyarch.numa.host.kubelet import CheckpointFiles, Configz, KubeletSettingsSource, KubeletSettingsSources
from polyarch.numa.host.machine import MachineReader, host_files
from polyarch.numa.host.podresources import (
    CallMetrics,
    NoCallMetrics,
    PodResources,
    PodResourcesError,
    parse_podresources_url,
)

ALLOCATABLE_LIFETIME: Final = 600.0
"""Seconds for which the last answer is used while there is no other."""


class AllocatableCache:
    """The last answer."""

    def __init__(self, podresources: PodResources, *, clock: Clock) -> None:
        self._podresources = podresources
        self._clock = clock
        self._known: Allocatable | None = None
        self._asked_at = 0.0
        self._overdue = False

    async def current(self, *, refresh: bool) -> Allocatable:
        """``refresh``: something tells that it may have changed.

        Raises ``PodResourcesError`` if it is not known, or not known well enough any more.
        """
        if self._known is not None and not refresh and not self._overdue:
            return self._known
        try:
            found = await self._podresources.allocatable()
        except PodResourcesError as error:
            age = self._clock.monotonic() - self._asked_at
            if self._known is None or age >= ALLOCATABLE_LIFETIME:
                raise
            if not self._overdue:
                import structlog  # a third of the start of a command that scans once, and never gets here

                log = structlog.get_logger(__name__)
                log.warning("allocatable is not answered, going on with the last answer", problem=str(error))
            self._overdue = True
            return self._known
        self._known, self._asked_at, self._overdue = found, self._clock.monotonic(), False
        return found


# -- One scan: asks the kubelet, reads the machine, and decides what the topology is.


Document = dict[str, Any]

STATE_DIRECTORY: Final = "var/lib/kubelet"
"""Of the kubelet, below the root."""


class ReadsMachine(Protocol):
    """``host.machine.reading.MachineReader``."""

    def read(self, kubelet: int) -> Machine: ...


class ReadsCheckpoints(Protocol):
    """``host.kubelet.states.StateFiles``."""

    def read(self) -> Checkpoints: ...


class KnowsTerminalPods(Protocol):
    """``exporter.cluster.terminal_pods.TerminalPods``."""

    def names(self) -> frozenset[tuple[str, str]]: ...


class ScanResult(msgspec.Struct, frozen=True):
    """The result of a scan."""

    document: Document
    """The topology, without its owner."""
    zones: NodeZones
    stale_settings: str = ""
    """Why the kubelet's settings are those of an earlier time; empty: they are not."""


class Scanner:
    """Makes one scan after the other, never two at once."""

    def __init__(
        self,
        node: str,
        settings: ScanSettings,
        *,
        refresh_period: float,
        podresources: PodResources,
        allocatable: AllocatableCache,
        machines: ReadsMachine,
        states: ReadsCheckpoints,
        kubelet: KubeletSettingsSource,
        terminal: KnowsTerminalPods | None = None,
    ) -> None:
        """``refresh_period``: seconds of the timer that scans. Without ``terminal`` every listed pod counts."""
        self._node = node
        self._settings = settings
        self._refresh_period = refresh_period
        self._podresources = podresources
        self._allocatable = allocatable
        self._machines = machines
        self._states = states
        self._kubelet = kubelet
        self._terminal = terminal
        self._restarts = 0

    async def scan(self, wake: ScanTrigger) -> ScanResult:
        """Raises ``PodResourcesError``, ``UnreadableMachine`` or ``NoKubeletSettings``."""
        if "socket" in wake.reasons:
            self._restarts += 1
        pods = tuple(await self._podresources.list())
        allocatable = await self._allocatable.current(refresh=wake.refreshes)
        kubelet = await self._kubelet.current(self._restarts)
        terminal = self._terminal.names() if self._terminal is not None else frozenset()
        facts = ScanFacts(
            machine=self._machines.read(self._restarts),
            allocatable=allocatable,
            pods=pods,
            kubelet=kubelet.kubelet,
            states=self._states.read(),
            terminal=terminal,
        )
        found = node_zones(facts, self._settings, self._node)
        document = topology_document(facts, found, self._settings, refresh_period=self._refresh_period)
        return ScanResult(document, found, kubelet.stale)


def scanner(
    settings: ExporterSettings,
    podresources: PodResources,
    *,
    clock: Clock,
    count: Callable[[str], None] = lambda _: None,
    configz: Configz | None = None,
    terminal: KnowsTerminalPods | None = None,
) -> Scanner:
    """The scanner of this host. ``count`` gets the name of each file that could not be used."""
    host = settings.host
    files = host_files(host.root, host.sysfs)
    sources = KubeletSettingsSources(
        policy=host.topology_manager_policy,
        scope=host.topology_manager_scope,
        mode=host.kubelet_config,
        file=host.kubelet_config_file,
        directory=host.kubelet_config_dir,
    )
    return Scanner(
        settings.hostname,
        settings.scan,
        refresh_period=settings.triggers.sleep_interval,
        podresources=podresources,
        allocatable=AllocatableCache(podresources, clock=clock),
        machines=MachineReader(files, clock=clock, count=count),
        states=CheckpointFiles(files.root, state_directory(host), count=count),
        kubelet=KubeletSettingsSource(sources, files.root, clock=clock, configz=configz),
        terminal=terminal,
    )


def state_directory(host: HostSettings) -> str:
    """The kubelet's directory, below the root."""
    return host.kubelet_state_dir or STATE_DIRECTORY


# -- Which client a URL asks for. Each is imported when it is needed: a saved answer is read without gRPC.


def open_podresources(url: str, *, counting: CallMetrics | None = None, clock: Clock | None = None) -> PodResources:
    """A client for ``unix:///path`` or ``fake:///directory``; nothing is connected yet.

    Raises ValueError for any other URL.
    """
    address = parse_podresources_url(url)
    if address.fake:
        from polyarch.numa.host.podresources import RecordedResponses

        return RecordedResponses(address, counting=counting or NoCallMetrics())
    from polyarch.numa.host.kubelet_socket import KubeletSocket

    return KubeletSocket(address, counting=counting or NoCallMetrics(), clock=clock or SystemClock())
