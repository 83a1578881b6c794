"""The state of a sandbox on disk: one folder with its paths, ports and settings.

``$XDG_STATE_HOME/polyarch/sandbox/<name>/`` holds everything of one sandbox, so ``down`` and ``up`` find the same
cluster again and several sandboxes can run side by side. Ports lie below the range that the kernel uses for outgoing
connections. They are chosen under a lock, and never collide with those of another sandbox, running or not."""

import contextlib
import itertools
import os
import random
import re
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.files import write_json
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.network import DEFAULT_POD_NETWORK, remove_sockets
from polyarch.sandbox.processes import Record
from polyarch.sandbox.versions import kubernetes_version

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
DEFAULT_NAME = "default"
DEFAULT_NODES = {"amd64": 2, "arm64": 2, "ppc64le": 1, "s390x": 1}
MAXIMUM_NODES = 5_000
MAXIMUM_REPLICAS = 10
PORT_RANGE = (20_000, 32_000)
LOOPBACK = "127.0.0.1"
NAMESPACE = "polyarch-system"
"""The namespace of polyarch's own objects: ServiceAccounts, Leases, Secrets."""


class Taint(msgspec.Struct, frozen=True):
    """A taint of every node of one architecture, or of all nodes (``*``)."""

    architecture: str
    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str, option: str = "--taint") -> "Taint":
        """``ARCHITECTURE:KEY[=VALUE]:EFFECT``, the value of this option."""
        pattern = r"([^:=]+):([^:=]+)(?:=([^:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)"
        match = re.fullmatch(pattern, text)
        if match is None:
            raise SandboxError(
                f"{option} {text!r}: expected ARCHITECTURE:KEY[=VALUE]:EFFECT, "
                "for example arm64:kubernetes.io/arch=arm64:NoSchedule, with * for every architecture"
            )
        if match[1] != "*":
            _check_known(match[1], f"{option} {text!r}")
        return cls(match[1], match[2], match[3] or "", match[4])


class NodeBatch(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of one architecture that joined the fleet together."""

    architecture: str
    count: int


def joined(fleet: Sequence[NodeBatch], nodes: Mapping[str, int]) -> tuple[NodeBatch, ...]:
    """The batches of a fleet after it has grown to these counts.

    A node's number is its place among all batches. So a node keeps its number, and with it address and zone, when
    nodes of another architecture join, and one that left and comes back has its former number.
    """
    known: dict[str, int] = {}
    for batch in fleet:
        known[batch.architecture] = known.get(batch.architecture, 0) + batch.count
    more = {architecture: count - known.get(architecture, 0) for architecture, count in nodes.items()}
    return (*fleet, *(NodeBatch(architecture, count) for architecture, count in more.items() if count > 0))


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of a sandbox; recorded, so that a later ``up`` without options starts the same one."""

    name: str = DEFAULT_NAME
    nodes: dict[str, int] = msgspec.field(default_factory=DEFAULT_NODES.copy)
    real: bool = False
    """``--real``: kubelets and containers, not simulated ones."""
    numa: NumaLayout | None = None
    taints: tuple[Taint, ...] = ()
    register_taints: tuple[Taint, ...] = ()
    """``--register-with-taints``: taints of a node's first moment; nobody sets or removes them afterwards."""
    polyarch: bool = True
    """False for ``--only control-plane``: do not install polyarch."""
    builds: bool = False
    """Install component builds, too; from then on the sandbox has it."""
    replicas: int = 1
    """Replicas of each role of polyarch."""
    kubernetes: str = ""
    """Minor version of the control plane and the nodes, such as 1.30; empty: the usual one."""
    registries_conf: str = ""
    ca: str = ""
    seed_images: bool = True
    api_server_of_pods: str = ""
    """Where the programs of pods find the API server, if something stands between (a proxy that injects faults)."""

    def __post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None:
            raise SandboxError(
                f"sandbox name {self.name!r}: use up to 40 of a-z, 0-9 and '-', starting and ending with a-z or 0-9"
            )
        for architecture, count in self.nodes.items():
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9_.]{0,30}[a-z0-9])?", architecture):
                raise SandboxError(
                    f"--nodes: {architecture!r} is not an architecture; write for example amd64=3,arm64=2"
                )
            if count < 0:
                raise SandboxError(f"--nodes {architecture}={count}: the number of nodes cannot be negative")
        if not 1 <= self.replicas <= MAXIMUM_REPLICAS:
            raise SandboxError(f"--replicas {self.replicas}: expected a number from 1 to {MAXIMUM_REPLICAS}")
        if sum(self.nodes.values()) > MAXIMUM_NODES:
            raise SandboxError(f"--nodes: {sum(self.nodes.values())} nodes; at most {MAXIMUM_NODES} are simulated")

    @property
    def kubernetes_version(self) -> str:
        """The full version, such as 1.30.14. SandboxError if there is none: only what is started needs it, so a sandbox
        of a version that is no longer pinned can still be deleted."""
        return kubernetes_version(self.kubernetes)


def parse_nodes(text: str) -> dict[str, int]:
    """Counts by architecture from ``amd64=3,arm64=2``; an architecture without ``=`` means one node."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        architecture, separator, count = part.partition("=")
        if architecture in counts:
            raise SandboxError(f"--nodes {text!r}: {architecture} is given twice")
        if separator and not (count.isascii() and count.isdigit()):
            raise SandboxError(f"--nodes {text!r}: {part!r} is not ARCHITECTURE=NUMBER, for example amd64=3,arm64=2")
        _check_known(architecture, f"--nodes {text!r}")
        counts[architecture] = int(count) if separator else 1
    return counts


def parse_taints(texts: Iterable[str], option: str = "--taint") -> tuple[Taint, ...]:
    """Taints from the values of an option; ``''`` means none, which removes those of an earlier ``up``."""
    return tuple(Taint.parse(text, option) for text in texts if text)


def _check_known(architecture: str, option: str) -> None:
    """A misspelt architecture would replace the nodes with nodes that no image fits."""
    if architecture not in KNOWN_ARCHITECTURES:
        known = ", ".join(sorted(KNOWN_ARCHITECTURES))
        raise SandboxError(f"{option}: {architecture!r} is not a known architecture; expected one of {known}")


class Ports(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One port on 127.0.0.1 for each listener."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    registry: int
    registry_storage: int


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of ``sandbox.json``."""

    settings: Settings
    ports: Ports
    fleet: tuple[NodeBatch, ...] = ()
    """All nodes there ever were, in the order in which they joined."""
    pod_network: int = DEFAULT_POD_NETWORK
    """The second number of its pods' addresses; no other sandbox has it."""
    owner: Record | None = None
    """The process with which this sandbox ends (a test session); None: it runs until ``polyarch down``."""
    merged_kubeconfig: str = ""
    installed: bool = False
    """The sandbox has installed polyarch, so ``--only control-plane`` uninstalls it."""

    @property
    def api_server_of_pods(self) -> str:
        """The URL at which programs of pods find the API server."""
        return self.settings.api_server_of_pods or f"https://{LOOPBACK}:{self.ports.apiserver}"


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds all sandboxes."""
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    return Path(base) / "polyarch" / "sandbox"


class Folder:
    """The paths of one sandbox."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "sandbox.json"
        self.lock = root.parent / f".{root.name}.lock"
        self.pki = root / "pki"
        self.logs = root / "logs"
        self.records = root / "processes"
        self.configuration = root / "configuration"
        self.etcd = root / "etcd"
        self.registry = root / "registry"
        self.access = root / "configuration" / "registry-access.json"
        self.kubeconfig = root / "kubeconfig"
        self.audit_log = root / "logs" / "audit.log"
        self.registry_log = root / "logs" / "registry-access.log"
        self.registries_conf = root / "registries.conf"
        self.values = root / "values.json"

    @classmethod
    def of(cls, name: str, home: Path | None = None) -> "Folder":
        return cls((home or state_home()) / name)

    @property
    def name(self) -> str:
        return self.root.name

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of a component or a polyarch role."""
        return self.configuration / f"{user}.kubeconfig"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def output(self, name: str) -> Path:
        """The standard output of a process whose log holds only its standard error."""
        return self.logs / f"{name}.out"

    def load(self) -> State | None:
        """The recorded state; None if there is no sandbox of this name."""
        try:
            content = self.state.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=State)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SandboxError(f"{self.state}: {error}; run `polyarch up --name {self.name} --fresh`") from error

    def save(self, state: State) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.state, state)

    def delete(self) -> None:
        """Delete the folder; the lock beside it stays."""
        if self.root.exists():
            remove_sockets(self.root)
            shutil.rmtree(self.root)


def sandboxes(home: Path | None = None) -> list[Folder]:
    """Every sandbox with a recorded state, sorted by name."""
    home = home or state_home()
    if not home.is_dir():
        return []
    return [Folder(path) for path in sorted(home.iterdir()) if (path / "sandbox.json").is_file()]


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket() as probe:
        # Servers set it too: a port whose last connections are in TIME_WAIT is usable.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose_ports(others: Sequence[Ports] = (), *, within: tuple[int, int] = PORT_RANGE) -> Ports:
    """Free ports that no other sandbox has recorded; call it under the lock that all sandboxes share."""
    taken = {port for ports in others for port in msgspec.structs.astuple(ports)}
    order = random.SystemRandom().sample(range(*within), within[1] - within[0])
    names = [field.name for field in msgspec.structs.fields(Ports)]
    chosen = list(itertools.islice((port for port in order if port not in taken and is_free(port)), len(names)))
    if len(chosen) < len(names):
        raise SandboxError(f"no {len(names)} free ports on {LOOPBACK} in {within[0]}-{within[1]}")
    return Ports(**dict(zip(names, chosen, strict=True)))


def recorded(home: Path, *, besides: str) -> list[State]:
    """The state of every other sandbox; one whose state cannot be read is skipped."""
    found = []
    for folder in sandboxes(home):
        if folder.name == besides:
            continue
        with contextlib.suppress(SandboxError):
            state = folder.load()
            if state is not None:
                found.append(state)
    return found
