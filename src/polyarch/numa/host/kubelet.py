"""The kubelet's settings and checkpoints.

Settings come from the exporter's own options, from the kubelet's ``/configz``, or from its configuration file, in this
order. ``/configz`` is preferred over the file because it shows what flags and drop-ins changed. A kubelet applies a new
configuration when it starts, so ``/configz`` is requested when its socket is another one; the file is read with every
scan, which costs less than a stat of it saves. Settings that were known once stay in use when no source answers.

This is the one module that reads YAML for a scan.
"""

import contextlib
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeVar, cast, get_args

import msgspec

from polyarch.clock import Clock
from polyarch.kube.patches import merge_patch
from polyarch.numa.facts import (
    Checkpoints,
    Container,
    CpuCheckpoint,
    Devices,
    HostSettings,
    KubeletSettings,
    MemoryBlock,
    MemoryCheckpoint,
    TopologyPolicy,
    TopologyScope,
    ZoneMemoryState,
    parse_cpu_list,
)
from polyarch.numa.host.machine import Count, HostRoot, os_error_text

CONFIGZ_REJECTED_INTERVAL: Final = 600.0
"""Seconds until ``/configz`` is requested again after a rejection: permissions and certificates change seldom."""
CONFIGZ_RETRY_INTERVAL: Final = 10.0
"""Seconds after a first failure: a kubelet that starts listens in a moment. After each further one it is twice as long,
as a port that a firewall closes holds up the scan that asks."""
DROP_IN: Final = ".conf"
MAX_NUMA_NODES: Final = "max-allowable-numa-nodes"
POD_LEVEL_MANAGERS: Final = "PodLevelResourceManagers"
CPU_CHECKPOINT: Final = "cpu_manager_state"
MEMORY_CHECKPOINT: Final = "memory_manager_state"
DEVICES_CHECKPOINT: Final = "kubelet_internal_checkpoint"


# -- settings for one scan after the other -----------------------------------------------------------------------------


class ConfigzUnavailable(Exception):  # noqa: N818 - the name says what is the matter
    """``/configz`` gave no answer."""

    def __init__(self, message: str, *, refused: bool) -> None:
        """``refused``: it will not give one soon (401, 403, 404, a certificate that does not verify)."""
        super().__init__(message)
        self.refused = refused


class Configz(Protocol):
    """The interface to the kubelet's port, see ``exporter.cluster.KubeletPort``."""

    async def get(self) -> bytes:
        """The answer of ``/configz``; raises ConfigzUnavailable."""
        ...


class InvalidKubeletConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """A configuration that no kubelet would start with, or that is none; the message begins with its place."""


class NoKubeletSettings(Exception):  # noqa: N818 - the name says what is the matter
    """No source is usable, and none ever was: the exporter ends with 2. ``problem`` names all of them."""

    def __init__(self, problem: str) -> None:
        self.problem = f"the kubelet's settings are not known: {problem}"
        super().__init__(
            f"{self.problem}; give --kubelet-config-file, or --topology-manager-policy and --topology-manager-scope"
        )


class CurrentKubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in use."""

    kubelet: KubeletSettings
    origin: Literal["options", "configz", "file"]
    stale: str = ""
    """Why they may not be the kubelet's any more (condition ``TopologySettingsStale``); empty: they are."""


class KubeletSettingsSource:
    """The settings for one scan after the other."""

    def __init__(self, host: HostSettings, root: HostRoot, *, clock: Clock, configz: Configz | None = None) -> None:
        """Without ``configz`` the file alone is read; all paths are below ``root``."""
        self._host = host
        self._configz = configz if host.kubelet_config != "file" else None
        self._clock = clock
        self._file = _ConfigurationFile(root, host.kubelet_config_file, host.kubelet_config_dir)
        self._kubelet: Hashable = None
        self._due = float("-inf")
        self._answer: KubeletSettings | None = None
        """The settings in the last answer of ``/configz``; None while the file counts."""
        self._failures = 0
        self._problem = ""
        """Why it gave no answer the last time."""
        self._known: CurrentKubeletSettings | None = None

    async def current(self, kubelet: Hashable = None) -> CurrentKubeletSettings:
        """The settings as of now; ``kubelet`` is the identity of its socket. Raises NoKubeletSettings."""
        host, problems = self._host, []
        if host.topology_manager_policy is not None and host.topology_manager_scope is not None:
            return _settings_from_options(host.topology_manager_policy, host.topology_manager_scope)
        if self._configz is not None:
            await self._ask(self._configz, kubelet)
            if self._answer is not None:
                self._known = CurrentKubeletSettings(kubelet=self._answer, origin="configz", stale=self._problem)
                return self._known
            problems.append(self._problem)
        if host.kubelet_config != "configz":
            try:
                self._known = CurrentKubeletSettings(kubelet=self._file.settings(), origin="file")
            except InvalidKubeletConfiguration as error:
                problems.append(str(error))
            else:
                return self._known
        stale = "; ".join(problems) or "/configz is not asked here"
        if self._known is None:
            raise NoKubeletSettings(stale)
        self._known = msgspec.structs.replace(self._known, stale=stale)
        return self._known

    async def _ask(self, configz: Configz, kubelet: Hashable) -> None:
        now = self._clock.monotonic()
        if kubelet == self._kubelet and now < self._due:
            return
        failures = self._failures if kubelet == self._kubelet else 0
        self._kubelet, self._failures, wait = kubelet, 0, CONFIGZ_REJECTED_INTERVAL
        try:
            self._answer, self._problem = settings_from_configz(await configz.get()), ""
        except (ConfigzUnavailable, InvalidKubeletConfiguration) as error:
            self._problem = str(error)
            if isinstance(error, ConfigzUnavailable) and error.refused:
                self._answer = None
            else:
                self._failures = failures + 1
                wait = min(CONFIGZ_RETRY_INTERVAL * 2.0 ** min(failures, 6), CONFIGZ_REJECTED_INTERVAL)
        self._due = now + wait


def _settings_from_options(policy: str, scope: str) -> CurrentKubeletSettings:
    """The settings that the exporter was given; the others are not known, and empty."""
    try:
        known = check_policy_and_scope(policy, scope, place="the exporter's options")
    except InvalidKubeletConfiguration as error:
        raise NoKubeletSettings(str(error)) from None
    return CurrentKubeletSettings(
        kubelet=KubeletSettings(policy=known[0], scope=known[1], cpu_manager_policy="", memory_manager_policy=""),
        origin="options",
    )


class _ConfigurationFile:
    """The configuration file with its drop-ins, decoded again when the content of one of them changes."""

    def __init__(self, root: HostRoot, path: str, directory: str) -> None:
        self._root = root
        self._path = path
        self._directory = directory
        self._digest = b""
        self._decoded: KubeletSettings | InvalidKubeletConfiguration | None = None

    def settings(self) -> KubeletSettings:
        """The settings now; raises InvalidKubeletConfiguration."""
        try:
            contents = [(self._root.path(path), self._root.bytes(path)) for path in self._paths()]
        except OSError as error:
            raise InvalidKubeletConfiguration(os_error_text(error)) from None
        digest = _digest(contents)
        if self._decoded is None or digest != self._digest:
            self._digest = digest
            try:
                self._decoded = settings_from_files(contents[0], contents[1:])
            except InvalidKubeletConfiguration as error:
                self._decoded = error
        if isinstance(self._decoded, InvalidKubeletConfiguration):
            raise self._decoded
        return self._decoded

    def _paths(self) -> list[str]:
        """The file, then drop-ins as a kubelet takes them: by name. A directory that does not exist has none."""
        if not self._directory:
            return [self._path]
        try:
            names = self._root.names(self._directory)
        except FileNotFoundError:
            names = []
        return [self._path, *(f"{self._directory}/{name}" for name in names if name.endswith(DROP_IN))]


def _digest(contents: list[tuple[str, bytes]]) -> bytes:
    digest = hashlib.sha256()
    for place, content in contents:
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.digest()


# -- KubeletConfiguration ----------------------------------------------------------------------------------------------

# Missing keys mean the kubelet's defaults, an empty value is a missing one. Keys that are of no interest here may hold
# anything. Format: k8s.io/kubelet ``config/v1beta1``; drop-ins:
# kubernetes.io/docs/reference/node/kubelet-config-directory-merging.


def settings_from_files(main: tuple[str, bytes], drop_ins: Iterable[tuple[str, bytes]] = ()) -> KubeletSettings:
    """The settings of a file and its drop-ins, each as place and content, in the order in which they are merged.

    Raises InvalidKubeletConfiguration.
    """
    place, content = main
    merged = _configuration(place, content)
    for path, patch in drop_ins:
        merged = merge_patch(merged, _configuration(path, patch))
    return kubelet_settings(merged, place=place)


def settings_from_configz(content: bytes) -> KubeletSettings:
    """The settings in an answer of ``/configz``, which shows flags and drop-ins, too.

    Raises InvalidKubeletConfiguration.
    """
    try:
        configuration = msgspec.json.decode(content, type=dict[str, Any]).get("kubeletconfig")
    except ValueError as error:
        raise InvalidKubeletConfiguration(f"configz: {error}") from None
    if not isinstance(configuration, dict):
        raise InvalidKubeletConfiguration("configz: no kubeletconfig in the answer; is this a kubelet?")
    return kubelet_settings(configuration, place="configz")


def kubelet_settings(document: Mapping[str, Any], *, place: str) -> KubeletSettings:
    """The settings in a KubeletConfiguration; raises InvalidKubeletConfiguration."""
    policy, scope = check_policy_and_scope(
        _text(document, "topologyManagerPolicy", "none", place),
        _text(document, "topologyManagerScope", "container", place),
        place=place,
    )
    options = _options(document, "topologyManagerPolicyOptions", place)
    limit = dict(options).get(MAX_NUMA_NODES)
    if limit is not None and not (limit.isascii() and limit.isdigit()):
        raise InvalidKubeletConfiguration(
            f"{place}: topologyManagerPolicyOptions.{MAX_NUMA_NODES}: {limit!r} is not a number of cells"
        )
    return KubeletSettings(
        policy=policy,
        scope=scope,
        max_numa_nodes=None if limit is None else int(limit),
        topology_options=options,
        cpu_manager_policy=_text(document, "cpuManagerPolicy", "none", place),
        cpu_manager_options=_options(document, "cpuManagerPolicyOptions", place),
        memory_manager_policy=_text(document, "memoryManagerPolicy", "None", place),
        pod_level_managers=dict(_options(document, "featureGates", place)).get(POD_LEVEL_MANAGERS) == "true",
        reserves_cpus=bool(_text(document, "reservedSystemCPUs", "", place))
        or any(_reserves_cpus(_options(document, key, place)) for key in ("kubeReserved", "systemReserved")),
    )


def check_policy_and_scope(policy: str, scope: str, *, place: str) -> tuple[TopologyPolicy, TopologyScope]:
    """Both values if the kubelet knows them; raises InvalidKubeletConfiguration."""
    for key, value, known in (
        ("topologyManagerPolicy", policy, get_args(TopologyPolicy)),
        ("topologyManagerScope", scope, get_args(TopologyScope)),
    ):
        if value not in known:
            raise InvalidKubeletConfiguration(f"{place}: {key}: {value!r} is none of {', '.join(known)}")
    return cast("TopologyPolicy", policy), cast("TopologyScope", scope)


def yaml_mapping(place: str, content: bytes) -> dict[str, Any]:
    """The object that a text of YAML describes, of whatever kind. Raises InvalidKubeletConfiguration."""
    import yaml  # most exporters ask the kubelet and read no file

    from polyarch.yaml_loader import SafeLoader

    try:
        document = yaml.load(content, SafeLoader)  # noqa: S506 - safe
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InvalidKubeletConfiguration(f"{place}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidKubeletConfiguration(f"{place}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(document, dict):
        raise InvalidKubeletConfiguration(f"{place}: expected a KubeletConfiguration, found {_type_name(document)}")
    return document


def _configuration(place: str, content: bytes) -> dict[str, Any]:
    document = yaml_mapping(place, content)
    kind = document.get("kind", "KubeletConfiguration")
    if kind != "KubeletConfiguration":
        raise InvalidKubeletConfiguration(f"{place}: kind: expected KubeletConfiguration, found {kind!r}")
    return document


def _text(document: Mapping[str, Any], key: str, default: str, place: str) -> str:
    value = document.get(key)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):  # 3 is a list of CPUs
        raise InvalidKubeletConfiguration(f"{place}: {key}: expected a text, found {_type_name(value)}")
    return str(value)


def _options(document: Mapping[str, Any], key: str, place: str) -> tuple[tuple[str, str], ...]:
    """A map of names and values, sorted."""
    options = document.get(key)
    if options is None:
        return ()
    if not isinstance(options, dict):
        raise InvalidKubeletConfiguration(f"{place}: {key}: expected a map, found {_type_name(options)}")
    return tuple(sorted((str(name), _option_text(value)) for name, value in options.items()))


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reserves_cpus(resources: Iterable[tuple[str, str]]) -> bool:
    """Whether a list of quantities keeps CPUs for the system."""
    amount = dict(resources).get("cpu", "")
    return any(digit in "123456789" for digit in amount)


def _type_name(value: object) -> str:
    if value is None:
        return "nothing"
    return {dict: "a map", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")


# -- checkpoints -------------------------------------------------------------------------------------------------------

# The checkpoints of the kubelet's CPU, memory and device managers show what podresources does not: what finished init
# containers still hold. They are the kubelet's own files, whose format may change with its version, so whatever is not
# as expected means: not known. Nothing is ever refused because of them. The kubelet renames new files over old ones, so
# no half-written file is seen.
#
# Memory of a terminated pod stays in the file until the kubelet admits another pod, and so do devices until somebody
# wants one. The pod's directory goes with the pod's object, and its volumes with its containers, without a change of
# the file, so both are looked for every time; which of the others have ended is for those to say who know what the
# kubelet lists. Formats: k8s.io/kubernetes
# ``pkg/kubelet/cm/cpumanager/state``, ``…/memorymanager/state`` and ``…/devicemanager/checkpoint``.

Held = dict[str, dict[str, Container]]
"""By uid of the pod and name of the container."""

_Checkpoint = TypeVar("_Checkpoint", CpuCheckpoint, MemoryCheckpoint)


class CheckpointFiles:
    """The files, scan after scan: each is decoded again when its content changes."""

    def __init__(self, root: HostRoot, directory: str, *, count: Count = lambda _: None) -> None:
        """``directory``: the kubelet's, below the root. ``count`` gets the name of a file from which nothing can be
        learned, once until its content changes.
        """
        self._cpu = _CheckpointFile(root, f"{directory}/{CPU_CHECKPOINT}", lambda: count(CPU_CHECKPOINT))
        self._memory = _CheckpointFile(root, f"{directory}/{MEMORY_CHECKPOINT}", lambda: count(MEMORY_CHECKPOINT))
        self._devices = _CheckpointFile(root, f"{directory}/device-plugins/{DEVICES_CHECKPOINT}", lambda: None)
        self._count = count
        self._root = root
        self._pods = f"{directory}/pods"
        self._checkpoints = Checkpoints()
        self._memory_of: Held = {}
        self._devices_of: Held = {}

    def read(self) -> Checkpoints:
        """Their content now."""
        cpu, memory, devices = self._cpu.changed(), self._memory.changed(), self._devices.changed()
        if cpu is not None:
            decoded = self._cpu.counted(_cpu_checkpoint(cpu), "static")
            self._checkpoints = msgspec.structs.replace(self._checkpoints, cpu=decoded)
        if memory is not None:
            checkpoint, self._memory_of = _memory_checkpoint(memory)
            self._checkpoints = msgspec.structs.replace(
                self._checkpoints, memory=self._memory.counted(checkpoint, "Static")
            )
        if devices is not None:
            self._devices_of = self._decoded_devices(devices)
        return self._with_pods()

    def _decoded_devices(self, content: bytes) -> Held:
        """Without a device plugin there is no such file."""
        try:
            return _device_checkpoint(content) if content else {}
        except ValueError:
            self._count(DEVICES_CHECKPOINT)
            return {}

    def _with_pods(self) -> Checkpoints:
        checkpoint = self._checkpoints.memory
        memory_of = self._memory_of if checkpoint is not None else {}
        if not memory_of and not self._devices_of:
            return self._checkpoints
        there = {*memory_of, *self._devices_of}
        with contextlib.suppress(OSError):
            there.intersection_update(self._root.names(self._pods))
        pods = {uid: _joined(memory_of.get(uid, {}), self._devices_of.get(uid, {})) for uid in sorted(there)}
        mounted = frozenset(uid for uid in there - memory_of.keys() if self._has_volumes(uid))
        gone = (each for uid, held in memory_of.items() if uid not in there for each in held.values())
        memory = checkpoint and msgspec.structs.replace(
            checkpoint, ended=tuple(block for container in gone for block in container.memory)
        )
        return msgspec.structs.replace(
            self._checkpoints,
            memory=memory,
            pods=tuple(containers for uid, containers in pods.items() if uid not in mounted),
            mounted=tuple(containers for uid, containers in pods.items() if uid in mounted),
        )

    def _has_volumes(self, uid: str) -> bool:
        """Most pods have one, and the kubelet removes its directory when all containers have ended."""
        volumes = f"{self._pods}/{uid}/volumes"
        with contextlib.suppress(OSError):
            return any(self._root.names(f"{volumes}/{plugin}") for plugin in self._root.names(volumes))
        return False


def _joined(memory: Mapping[str, Container], devices: Mapping[str, Container]) -> tuple[Container, ...]:
    nothing = Container(name="")
    return tuple(
        Container(name=name, memory=memory.get(name, nothing).memory, devices=devices.get(name, nothing).devices)
        for name in sorted({*memory, *devices})
    )


class _CheckpointFile:
    """One of them, and its last content."""

    def __init__(self, root: HostRoot, path: str, count: Callable[[], None]) -> None:
        self._root = root
        self._path = path
        self._count = count
        self._content: bytes | None = None

    def changed(self) -> bytes | None:
        """The content if it has changed; the content of a file that cannot be read is empty."""
        try:
            content = self._root.bytes(self._path)
        except OSError:
            content = b""
        if content == self._content:
            return None
        self._content = content
        return content

    def counted(self, checkpoint: _Checkpoint | None, policy: str) -> _Checkpoint | None:
        """The checkpoint, counted if nothing follows from it."""
        if checkpoint is None or checkpoint.policy != policy:
            self._count()
        return checkpoint


class _CpuFile(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str


class _ZoneMemory(msgspec.Struct):
    """One resource of one zone; bytes."""

    allocatable: int
    free: int


class _MemoryZone(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _ZoneMemory]
    cells: list[int]


class _Block(msgspec.Struct, rename="camel"):
    """A block of one container; bytes."""

    type: str
    size: int
    numa_affinity: list[int]


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[int, _MemoryZone] | None = None
    """By zone; null with the policy None."""
    entries: dict[str, dict[str, list[_Block]]] | None = None
    """By uid of the pod and name of the container."""


def _cpu_checkpoint(content: bytes) -> CpuCheckpoint | None:
    try:
        file = msgspec.json.decode(content, type=_CpuFile)
        return CpuCheckpoint(file.policy_name, parse_cpu_list(file.default_cpu_set))
    except ValueError:
        return None


class _DeviceEntry(msgspec.Struct, rename="pascal"):
    """Devices of one resource that a container holds, by zone; ``-1`` is none."""

    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[int, list[str]] = msgspec.field(name="DeviceIDs")


class _DeviceData(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_DeviceEntry] | None = None


class _DeviceFile(msgspec.Struct, rename="pascal"):
    data: _DeviceData


def _memory_checkpoint(content: bytes) -> tuple[MemoryCheckpoint | None, Held]:
    try:
        file = msgspec.json.decode(content, type=_MemoryFile)
    except ValueError:
        return None, {}
    zones = (
        ZoneMemoryState(zone, resource, memory.allocatable, memory.free, tuple(sorted(set(state.cells))))
        for zone, state in sorted((file.machine_state or {}).items())
        for resource, memory in sorted(state.memory_map.items())
    )
    held = {
        pod: {
            name: Container(
                name=name,
                memory=tuple(
                    MemoryBlock(block.type, block.size, tuple(sorted(set(block.numa_affinity)))) for block in blocks
                ),
            )
            for name, blocks in containers.items()
        }
        for pod, containers in sorted((file.entries or {}).items())
    }
    return MemoryCheckpoint(file.policy_name, tuple(zones)), held


def _device_checkpoint(content: bytes) -> Held:
    """Raises ValueError."""
    found: dict[str, dict[str, list[Devices]]] = {}
    for entry in msgspec.json.decode(content, type=_DeviceFile).data.pod_device_entries or ():
        held = found.setdefault(entry.pod_uid, {}).setdefault(entry.container_name, [])
        held += [Devices(entry.resource_name, tuple(ids), (zone,)) for zone, ids in sorted(entry.device_ids.items())]
    return {
        pod: {name: Container(name=name, devices=tuple(held)) for name, held in containers.items()}
        for pod, containers in found.items()
    }
