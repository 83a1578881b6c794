"""KubeletConfiguration: the file, its drop-ins, and what ``/configz`` answers, as the settings that
decide how a kubelet places containers.

Missing keys mean the kubelet's defaults, an empty value is a missing one. Keys that are of no interest here may hold
anything. This is the one module that reads YAML for an exporter. Pure.

Format: k8s.io/kubelet ``config/v1beta1``; drop-ins: kubernetes.io/docs/reference/node/kubelet-config-directory-merging.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeVar, cast, get_args

import msgspec
import yaml

from polyarch.clock import Clock
from polyarch.numa.facts import (
    Checkpoints,
    CpuCheckpoint,
    KubeletSettings,
    MemoryBlock,
    MemoryCheckpoint,
    TopologyPolicy,
    TopologyScope,
    ZoneMemoryState,
    parse_cpu_list,
)
from polyarch.numa.host.machine import Count, HostRoot, os_error_text

MAX_NUMA_NODES: Final = "max-allowable-numa-nodes"
POD_LEVEL_MANAGERS: Final = "PodLevelResourceManagers"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InvalidKubeletConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """A configuration that no kubelet would start with, or that is none; the message begins with its place."""


def settings_from_files(main: tuple[str, bytes], drop_ins: Iterable[tuple[str, bytes]] = ()) -> KubeletSettings:
    """The settings of a file and its drop-ins, each as place and content, in the order in which they are merged.

    Raises UnusableConfiguration.
    """
    place, content = main
    merged = _document(place, content)
    for path, patch in drop_ins:
        merged = _merged(merged, _document(path, patch))
    return kubelet_settings(merged, place=place)


def settings_from_configz(content: bytes) -> KubeletSettings:
    """The settings in an answer of ``/configz``, which shows flags and drop-ins, too. Raises UnusableConfiguration."""
    try:
        found = msgspec.json.decode(content, type=dict[str, Any]).get("kubeletconfig")
    except ValueError as error:
        raise InvalidKubeletConfiguration(f"configz: {error}") from None
    if not isinstance(found, dict):
        raise InvalidKubeletConfiguration("configz: no kubeletconfig in the answer; is this a kubelet?")
    return kubelet_settings(found, place="configz")


def check_policy_and_scope(policy: str, scope: str, *, place: str) -> tuple[TopologyPolicy, TopologyScope]:
    """Both values if the kubelet knows them; raises UnusableConfiguration."""
    for key, value, known in (
        ("topologyManagerPolicy", policy, get_args(TopologyPolicy)),
        ("topologyManagerScope", scope, get_args(TopologyScope)),
    ):
        if value not in known:
            raise InvalidKubeletConfiguration(f"{place}: {key}: {value!r} is none of {', '.join(known)}")
    return cast("TopologyPolicy", policy), cast("TopologyScope", scope)


def kubelet_settings(document: Mapping[str, Any], *, place: str) -> KubeletSettings:
    """The settings in a KubeletConfiguration; raises UnusableConfiguration."""
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
        or any(_reserves(_options(document, key, place)) for key in ("kubeReserved", "systemReserved")),
    )


def yaml_mapping(place: str, content: bytes) -> dict[str, Any]:
    """The object that a text of YAML describes, of whatever kind. Raises UnusableConfiguration."""
    try:
        found = yaml.load(content, _LOADER)  # noqa: S506 - safe
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InvalidKubeletConfiguration(f"{place}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidKubeletConfiguration(f"{place}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise InvalidKubeletConfiguration(f"{place}: expected a KubeletConfiguration, found {_kind(found)}")
    return found


def _document(place: str, content: bytes) -> dict[str, Any]:
    found = yaml_mapping(place, content)
    kind = found.get("kind", "KubeletConfiguration")
    if kind != "KubeletConfiguration":
        raise InvalidKubeletConfiguration(f"{place}: kind: expected KubeletConfiguration, found {kind!r}")
    return found


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are merged key by key, everything else is replaced; null removes a key (RFC 7386)."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = _merged(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = value
    return result


def _text(document: Mapping[str, Any], key: str, default: str, place: str) -> str:
    value = document.get(key)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):  # 3 is a list of CPUs
        raise InvalidKubeletConfiguration(f"{place}: {key}: expected a text, found {_kind(value)}")
    return str(value)


def _options(document: Mapping[str, Any], key: str, place: str) -> tuple[tuple[str, str], ...]:
    """A map of names and values, sorted."""
    found = document.get(key)
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise InvalidKubeletConfiguration(f"{place}: {key}: expected a map, found {_kind(found)}")
    return tuple(sorted((str(name), _spelt(value)) for name, value in found.items()))


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reserves(resources: Iterable[tuple[str, str]]) -> bool:
    """Whether a list of quantities keeps CPUs for the system."""
    amount = dict(resources).get("cpu", "")
    return any(digit in "123456789" for digit in amount)


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return {dict: "a map", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")


# -- Where the kubelet's settings come from, and when they are read again.


CONFIGZ_REJECTED_INTERVAL: Final = 600.0
"""After a refusal ``/configz`` is asked again: rights and certificates change seldom."""
CONFIGZ_RETRY_INTERVAL: Final = 10.0
"""The same after a first failure: a kubelet that starts listens in a moment. After each further one it is twice as
long, as a port that a firewall closes holds up the scan that asks."""
DROP_IN: Final = ".conf"


class ConfigzUnavailable(Exception):  # noqa: N818 - the name says what is the matter
    """``/configz`` gave no answer."""

    def __init__(self, message: str, *, refused: bool) -> None:
        """``refused``: it will not give one soon (401, 403, 404, a certificate that does not verify)."""
        super().__init__(message)
        self.refused = refused


class Configz(Protocol):
    """The seam to the kubelet's port."""

    async def get(self) -> bytes:
        """The answer of ``/configz``; raises ConfigzUnavailable."""
        ...


class NoKubeletSettings(Exception):  # noqa: N818 - the name says what is the matter
    """No source is usable, and none ever was: the exporter ends with 2. ``problem`` names all of them."""

    def __init__(self, problem: str) -> None:
        self.problem = f"the kubelet's settings are not known: {problem}"
        super().__init__(
            f"{self.problem}; give --kubelet-config-file, or --topology-manager-policy and --topology-manager-scope"
        )


class KubeletSettingsSources(msgspec.Struct, frozen=True, kw_only=True):
    """Which sources there are; all paths are below the tree."""

    policy: str | None = None
    scope: str | None = None
    """With ``policy`` these are the settings, and no kubelet is asked."""
    mode: Literal["auto", "configz", "file"] = "auto"
    file: str = "/podresources/config.yaml"
    directory: str = ""
    """Of drop-ins; empty: none."""


class CurrentKubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in use."""

    kubelet: KubeletSettings
    origin: Literal["options", "configz", "file"]
    stale: str = ""
    """Why they are not known any more to be the kubelet's (condition ``TopologySettingsStale``); empty: they are."""


class KubeletSettingsSource:
    """The settings for one scan after the other."""

    def __init__(
        self, sources: KubeletSettingsSources, tree: HostRoot, *, clock: Clock, configz: Configz | None = None
    ) -> None:
        """Without ``configz`` the file alone is read."""
        self._sources = sources
        self._configz = configz if sources.mode != "file" else None
        self._clock = clock
        self._file = _ConfigurationFile(tree, sources.file, sources.directory)
        self._kubelet: Hashable = None
        self._due = float("-inf")
        self._answer: KubeletSettings | None = None
        """What ``/configz`` said; None while the file counts."""
        self._failures = 0
        self._problem = ""
        """Why it gave no answer the last time."""
        self._known: CurrentKubeletSettings | None = None

    async def current(self, kubelet: Hashable = None) -> CurrentKubeletSettings:
        """The settings as of now; ``kubelet`` is the identity of its socket. Raises NoKubeletSettings."""
        sources, problems = self._sources, []
        if sources.policy is not None and sources.scope is not None:
            return _settings_from_options(sources.policy, sources.scope)
        if self._configz is not None:
            await self._ask(self._configz, kubelet)
            if self._answer is not None:
                self._known = CurrentKubeletSettings(kubelet=self._answer, origin="configz", stale=self._problem)
                return self._known
            problems.append(self._problem)
        if sources.mode != "configz":
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


class _ConfigurationFile:
    """The configuration file with its drop-ins, decoded again when the content of one of them changes."""

    def __init__(self, tree: HostRoot, path: str, directory: str) -> None:
        self._tree = tree
        self._path = path
        self._directory = directory
        self._digest = b""
        self._found: KubeletSettings | InvalidKubeletConfiguration | None = None

    def settings(self) -> KubeletSettings:
        """What they say now; raises UnusableConfiguration."""
        try:
            contents = [(self._tree.path(path), self._tree.bytes(path)) for path in self._paths()]
        except OSError as error:
            raise InvalidKubeletConfiguration(os_error_text(error)) from None
        digest = _digest(contents)
        if self._found is None or digest != self._digest:
            self._digest, self._found = digest, _decoded(contents)
        if isinstance(self._found, InvalidKubeletConfiguration):
            raise self._found
        return self._found

    def _paths(self) -> list[str]:
        """The file, then drop-ins as a kubelet takes them: by name. A directory that is not there has none."""
        if not self._directory:
            return [self._path]
        try:
            names = self._tree.names(self._directory)
        except FileNotFoundError:
            names = []
        return [self._path, *(f"{self._directory}/{name}" for name in names if name.endswith(DROP_IN))]


def _settings_from_options(policy: str, scope: str) -> CurrentKubeletSettings:
    """What the exporter was told; the rest is not known, and empty."""
    try:
        known = check_policy_and_scope(policy, scope, place="the exporter's options")
    except InvalidKubeletConfiguration as error:
        raise NoKubeletSettings(str(error)) from None
    return CurrentKubeletSettings(
        kubelet=KubeletSettings(policy=known[0], scope=known[1], cpu_manager_policy="", memory_manager_policy=""),
        origin="options",
    )


def _decoded(contents: list[tuple[str, bytes]]) -> KubeletSettings | InvalidKubeletConfiguration:
    try:
        return settings_from_files(contents[0], contents[1:])
    except InvalidKubeletConfiguration as error:
        return error


def _digest(contents: list[tuple[str, bytes]]) -> bytes:
    found = hashlib.sha256()
    for place, content in contents:
        found.update(f"{place}\0{len(content)}\0".encode() + content)
    return found.digest()


# -- The checkpoints of the kubelet's CPU and memory managers: ``cpu_manager_state`` and ``memory_manager_state``


CPU_CHECKPOINT: Final = "cpu_manager_state"
MEMORY_CHECKPOINT: Final = "memory_manager_state"

Blocks = dict[str, tuple[MemoryBlock, ...]]
"""By uid of the pod."""

_State = TypeVar("_State", CpuCheckpoint, MemoryCheckpoint)


class _CpuFile(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str


class _ZoneMemory(msgspec.Struct):
    """One resource of one cell; bytes."""

    allocatable: int
    free: int


class _MemoryZone(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _ZoneMemory]
    cells: list[int]


class _Block(msgspec.Struct, rename="camel"):
    """What one container was given; bytes."""

    type: str
    size: int
    numa_affinity: list[int]


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[int, _MemoryZone] | None = None
    """By cell; null with the policy None."""
    entries: dict[str, dict[str, list[_Block]]] | None = None
    """By uid of the pod and name of the container."""


class CheckpointFiles:
    """Both files, scan after scan: each is decoded again when its content changes."""

    def __init__(self, tree: HostRoot, directory: str, *, count: Count = lambda _: None) -> None:
        """``directory``: the kubelet's, within the tree. ``count`` gets the name of a file from which nothing can be
        learned, once until its content changes.
        """
        self._cpu = _CheckpointFile(tree, f"{directory}/{CPU_CHECKPOINT}", lambda: count(CPU_CHECKPOINT))
        self._memory = _CheckpointFile(tree, f"{directory}/{MEMORY_CHECKPOINT}", lambda: count(MEMORY_CHECKPOINT))
        self._tree = tree
        self._pods = f"{directory}/pods"
        self._states = Checkpoints()
        self._blocks: Blocks = {}

    def read(self) -> Checkpoints:
        """What they say now."""
        cpu, memory = self._cpu.changed(), self._memory.changed()
        if cpu is not None:
            self._states = msgspec.structs.replace(self._states, cpu=self._cpu.judged(_cpu_checkpoint(cpu), "static"))
        if memory is not None:
            found, self._blocks = _memory_checkpoint(memory)
            self._states = msgspec.structs.replace(self._states, memory=self._memory.judged(found, "Static"))
        return self._without_leftovers()

    def _without_leftovers(self) -> Checkpoints:
        state = self._states.memory
        if state is None or not self._blocks:
            return self._states
        try:
            there = set(self._tree.names(self._pods))
        except OSError:
            return self._states
        ended = tuple(block for pod, blocks in self._blocks.items() if pod not in there for block in blocks)
        return msgspec.structs.replace(self._states, memory=msgspec.structs.replace(state, ended=ended))


def read_checkpoints(tree: HostRoot, directory: str, count: Count = lambda _: None) -> Checkpoints:
    """The states, read once."""
    return CheckpointFiles(tree, directory, count=count).read()


class _CheckpointFile:
    """One of them, and its content when it was last looked at."""

    def __init__(self, tree: HostRoot, path: str, count: Callable[[], None]) -> None:
        self._tree = tree
        self._path = path
        self._count = count
        self._content: bytes | None = None

    def changed(self) -> bytes | None:
        """The content if it is another one than before; one that cannot be read is empty."""
        try:
            content = self._tree.bytes(self._path)
        except OSError:
            content = b""
        if content == self._content:
            return None
        self._content = content
        return content

    def judged(self, state: _State | None, policy: str) -> _State | None:
        """The state, counted if nothing follows from it."""
        if state is None or state.policy != policy:
            self._count()
        return state


def _cpu_checkpoint(content: bytes) -> CpuCheckpoint | None:
    try:
        found = msgspec.json.decode(content, type=_CpuFile)
        return CpuCheckpoint(found.policy_name, parse_cpu_list(found.default_cpu_set))
    except ValueError:
        return None


def _memory_checkpoint(content: bytes) -> tuple[MemoryCheckpoint | None, Blocks]:
    try:
        found = msgspec.json.decode(content, type=_MemoryFile)
    except ValueError:
        return None, {}
    cells = (
        ZoneMemoryState(cell, resource, room.allocatable, room.free, tuple(sorted(set(state.cells))))
        for cell, state in sorted((found.machine_state or {}).items())
        for resource, room in sorted(state.memory_map.items())
    )
    blocks = {
        pod: tuple(
            MemoryBlock(each.type, each.size, tuple(sorted(set(each.numa_affinity))))
            for held in containers.values()
            for each in held
        )
        for pod, containers in sorted((found.entries or {}).items())
    }
    return MemoryCheckpoint(found.policy_name, tuple(cells)), blocks
