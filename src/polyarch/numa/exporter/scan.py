"""One scan: asks the kubelet, reads the machine, and decides what the topology is (NE-060).

Everything that a scan reads is read here, in this order, and everything it decides is decided by the pure rules after
that. Files are read in the loop's own thread: sysfs and a tmpfs answer at once.
Imports no HTTP and writes no log, since a command scans in the same way and has to answer at once (NE-154).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from polyarch.clock import Clock
from polyarch.numa.api.scan_settings import ScanSettings
from polyarch.numa.decide.facts import Facts, Machine, ManagerStates
from polyarch.numa.decide.zones import Zones, zones
from polyarch.numa.exporter.allocatable import KnownAllocatable
from polyarch.numa.exporter.settings import ExporterSettings, HostSettings
from polyarch.numa.exporter.triggers.pacing import Wake
from polyarch.numa.host.kubelet.settings import Configz, KubeletSettingsSource, Sources
from polyarch.numa.host.kubelet.states import StateFiles
from polyarch.numa.host.machine.reading import MachineReader
from polyarch.numa.host.podresources.client import PodResources
from polyarch.numa.host.tree import host_files
from polyarch.numa.result import topology_object

Document = dict[str, Any]

STATE_DIRECTORY: Final = "var/lib/kubelet"
"""Of the kubelet, below the root."""


class Machines(Protocol):
    """``host.machine.reading.MachineReader``."""

    def read(self, kubelet: int) -> Machine: ...


class States(Protocol):
    """``host.kubelet.states.StateFiles``."""

    def read(self) -> ManagerStates: ...


class EndedPods(Protocol):
    """``exporter.cluster.terminal_pods.TerminalPods``."""

    def names(self) -> frozenset[tuple[str, str]]: ...


class Scanned(msgspec.Struct, frozen=True):
    """The result of a scan."""

    document: Document
    """The topology, without its owner."""
    zones: Zones
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
        allocatable: KnownAllocatable,
        machines: Machines,
        states: States,
        kubelet: KubeletSettingsSource,
        terminal: EndedPods | None = None,
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

    async def scan(self, wake: Wake) -> Scanned:
        """Raises ``PodResourcesError``, ``UnreadableMachine`` or ``NoKubeletSettings``."""
        if "socket" in wake.reasons:
            self._restarts += 1
        pods = tuple(await self._podresources.list())
        allocatable = await self._allocatable.current(refresh=wake.refreshes)
        kubelet = await self._kubelet.current(self._restarts)
        terminal = self._terminal.names() if self._terminal is not None else frozenset()
        facts = Facts(
            machine=self._machines.read(self._restarts),
            allocatable=allocatable,
            pods=pods,
            kubelet=kubelet.kubelet,
            states=self._states.read(),
            terminal=terminal,
        )
        found = zones(facts, self._settings, self._node)
        document = topology_object.document(facts, found, self._settings, refresh_period=self._refresh_period)
        return Scanned(document, found, kubelet.stale)


def scanner(
    settings: ExporterSettings,
    podresources: PodResources,
    *,
    clock: Clock,
    count: Callable[[str], None] = lambda _: None,
    configz: Configz | None = None,
    terminal: EndedPods | None = None,
) -> Scanner:
    """The scanner of this host. ``count`` gets the name of each file that could not be used."""
    host = settings.host
    files = host_files(host.root, host.sysfs)
    sources = Sources(
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
        allocatable=KnownAllocatable(podresources, clock=clock),
        machines=MachineReader(files, clock=clock, count=count),
        states=StateFiles(files.root, state_directory(host), count=count),
        kubelet=KubeletSettingsSource(sources, files.root, clock=clock, configz=configz),
        terminal=terminal,
    )


def state_directory(host: HostSettings) -> str:
    """The kubelet's directory, below the root (NE-069)."""
    return host.kubelet_state_dir or STATE_DIRECTORY
