"""The work of ``polyarch up``, ``down``, ``status`` and ``polyarch sandbox …``."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

import msgspec
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages, errors_only
from polyarch.cli.output.tables import Row, table
from polyarch.cli.sandbox.next_steps import after_up, option
from polyarch.kube.errors import ApiError, ConnectionFailed
from polyarch.numa.extender.settings import missing_library
from polyarch.oci.mirror_files import InvalidMirrorConfiguration, load_registries_conf
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.transport.tls import check_certificates
from polyarch.sandbox import binaries, document, processes, state, versions
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import Document
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.real import emulation
from polyarch.sandbox.registry.images import read_descriptions
from polyarch.sandbox.registry.seed import PushedImage
from polyarch.sandbox.state import Folder, Settings
from polyarch.yaml_loader import SafeLoader

T = TypeVar("T")
REAL_NODES = 2
"""How many ``up --real`` starts."""


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """The command line of ``polyarch up``; None where it says nothing."""

    name: str
    nodes: str | None = None
    real: bool = False
    numa: str | None = None
    taints: Sequence[str] | None = None
    register_taints: Sequence[str] | None = None
    polyarch: bool = True
    builds: bool = False
    replicas: int | None = None
    kubernetes: str | None = None
    fresh: bool = False
    demo: bool = False
    merge_kubeconfig: bool = False
    registries_conf: str | None = None
    ca: str | None = None
    assets: str = ""


def bring_up(wanted: SandboxOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Start what is missing, and describe the sandbox; 1 if a pod of the demo that could run did not."""
    settings = _settings(wanted)
    is_text = all(each.format == "text" for each in outputs)

    async def start() -> tuple[Document, int]:
        with shown(messages) as progress:
            sandbox = await Sandbox.start(
                settings,
                assets=wanted.assets,
                fresh=wanted.fresh,
                install=not wanted.demo,  # the demo does that itself, to show what it makes
                progress=progress,
            )
        if wanted.merge_kubeconfig:
            _merge(sandbox)
        if wanted.demo:
            from polyarch.cli.sandbox import demo as sandbox_demo

            outcome, code = await sandbox_demo.show(sandbox, quiet=not is_text)
            return await document.describe(sandbox, demo=outcome.demo), code
        return await document.describe(sandbox), 0

    result, code = _run(start(), messages)
    _print(result, outputs, lambda _: "" if wanted.demo else _summary(result, wanted))
    return code


def take_down(name: str, outputs: Sequence[Output], *, delete: bool, node: str, messages: Messages) -> int:
    """Stop every process of the sandbox, or of this node alone; ``delete``: forget its state, too."""

    async def end() -> None:
        sandbox = Sandbox.attach(name)
        if node:
            await sandbox.stop_node(node)
        elif delete:
            merged = sandbox.state.merged_kubeconfig
            await sandbox.delete()
            if merged:
                remove(Path(merged), sandbox.context)
        else:
            await sandbox.stop()

    _run(end(), messages)
    again = f"stopped; `polyarch up{option(name)}` starts it again"
    messages.remark(f"{f'node {node} of ' if node else ''}sandbox {name} {'deleted' if delete else again}")
    content = {"schemaVersion": document.SCHEMA_VERSION, "name": name, "deleted": delete}
    _print(content | ({"node": node} if node else {}), outputs, lambda _: "")
    return 0


def show_status(name: str, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Every component of the sandbox and whether it is well; 1 if one is not."""

    async def look() -> Document:
        return await document.describe(Sandbox.attach(name))

    result = _run(look(), messages)
    _print(result, outputs, lambda colour: _status(result, colour))
    well = result.processes and all(process.healthy for process in result.processes)
    return 0 if well and all(node.ready for node in result.nodes) else 1


def fetch_binaries(
    minor: str, assets: str, outputs: Sequence[Output], *, real: bool, nodes: str, messages: Messages
) -> int:
    """Find, download or build the binaries, and print where they are; with ``real`` those of such ``nodes``, too."""
    if nodes and not real:
        raise UsageError("--nodes: simulated nodes need no binaries of their own; add --real, or leave --nodes out")
    try:
        kubernetes = versions.kubernetes_version(minor)
        architectures = [name for name, count in state.parse_nodes(nodes).items() if count]
        own = versions.host_architecture()
        if problem := next(filter(None, (emulation.problem(each) for each in architectures if each != own)), ""):
            raise SandboxError(f"--nodes {nodes}: {problem}")
    except SandboxError as error:
        raise UsageError(str(error)) from error

    async def get() -> dict[str, Path]:
        with shown(messages) as progress:
            wanted = versions.with_real_nodes(architectures) if real else versions.PROGRAMS
            programs = versions.of_version(wanted, kubernetes)
            return await binaries.find(programs=programs, assets=assets, progress=progress)

    found = _run(get(), messages)
    content = {
        "schemaVersion": document.SCHEMA_VERSION,
        "kubernetes": kubernetes,
        "etcd": versions.ETCD,
        "registry": versions.REGISTRY,
        "binaries": {program: str(path) for program, path in found.items()},
    }
    _print(content, outputs, lambda _: "".join(f"{program}\t{path}\n" for program, path in found.items()))
    return 0


def seed_registry(file: str, name: str, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Push images to the sandbox's registry, and print their digests."""
    data = _read_yaml(file)
    try:
        read_descriptions(data, file)
    except SandboxError as error:
        raise UsageError(str(error)) from error

    async def push() -> list[PushedImage]:
        sandbox = Sandbox.attach(name)
        if not _running(sandbox.folder):
            raise SandboxError(f"sandbox {name} is stopped; `polyarch up{option(name)}` starts it")
        return await sandbox.registry.seed(data, origin=file)

    pushed = _run(push(), messages)
    lines = [f"{image.image}\t{image.digest}\t{','.join(image.children)}\n" for image in pushed]
    content = {"schemaVersion": document.SCHEMA_VERSION, "images": msgspec.to_builtins(pushed)}
    _print(content, outputs, lambda _: "".join(lines))
    return 0


def list_sandboxes(outputs: Sequence[Output]) -> int:
    """The sandboxes on this machine."""
    try:
        found = [(folder, _running(folder)) for folder in state.sandboxes()]
    except SandboxError as error:
        raise CouldNotComplete(str(error)) from error
    rows = [Row((folder.name, str(running or "none"), str(folder.kubeconfig))) for folder, running in found]
    listed = [
        {"name": folder.name, "running": running > 0, "kubeconfig": str(folder.kubeconfig)} for folder, running in found
    ]
    content = {"schemaVersion": document.SCHEMA_VERSION, "sandboxes": listed}
    _print(content, outputs, lambda colour: table(("NAME", "PROCESSES", "KUBECONFIG"), rows, colour=colour))
    return 0


def _running(folder: Folder) -> int:
    return sum(processes.is_running(record) for record in processes.load(folder.records).values())


def _settings(wanted: SandboxOptions) -> Settings:
    """What is asked for; what is not said stays as it was the last time."""
    try:
        known = None if wanted.fresh else Folder.of(wanted.name).load()
        settings = known.settings if known else Settings(name=wanted.name)
        changes: dict[str, Any] = {"polyarch": wanted.polyarch}
        if wanted.real:
            changes["real"] = True
            if known is None:
                changes["nodes"] = {versions.host_architecture(): REAL_NODES}
        if wanted.nodes is not None:
            changes["nodes"] = state.parse_nodes(wanted.nodes)
        if wanted.builds:
            changes["builds"] = True
        if wanted.replicas is not None:
            changes["replicas"] = wanted.replicas
        if wanted.kubernetes is not None:
            versions.kubernetes_version(wanted.kubernetes)
            changes["kubernetes"] = wanted.kubernetes
        if wanted.numa and wanted.polyarch and (problem := missing_library()):
            raise CouldNotComplete(f"up: --numa: {problem}")
        if wanted.numa is not None:
            changes["numa"] = NumaLayout.parse(wanted.numa) if wanted.numa else None
        if wanted.taints is not None:
            changes["taints"] = state.parse_taints(wanted.taints)
        if wanted.register_taints is not None:
            changes["register_taints"] = state.parse_taints(wanted.register_taints, "--register-with-taints")
        if wanted.registries_conf is not None:
            changes["registries_conf"] = _file("--registries-conf", wanted.registries_conf, _read_registries_conf)
        if wanted.ca is not None:
            changes["ca"] = _file("--ca", wanted.ca, _read_certificates)
        return msgspec.structs.replace(settings, **changes)
    except SandboxError as error:
        raise UsageError(str(error)) from error


def _file(option: str, path: str, read: Callable[[Path], object]) -> str:
    """An absolute path: the sandbox's processes have another working folder.

    The file is read here, because the path is recorded: the processes would end on a bad file at every later ``up``.
    """
    if not path:
        return ""
    if not Path(path).is_file():
        raise UsageError(f"{option} {path}: no such file")
    try:
        read(Path(path))
    except InvalidMirrorConfiguration as error:
        raise UsageError(f"{option} {error}") from None
    except (OSError, InvalidSetting) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{option} {path}: {problem}") from None
    return str(Path(path).absolute())


def _read_registries_conf(path: Path) -> None:
    load_registries_conf(path, {})


def _read_certificates(path: Path) -> None:
    check_certificates(path.read_text("ascii", errors="ignore"))


def _run(work: Coroutine[object, object, T], messages: Messages) -> T:
    # stdout is for the answer; a live table on stderr is no place for warnings that it shows better.
    errors_only(verbose=messages.verbose)
    try:
        return asyncio.run(work)
    except SandboxError as error:
        raise CouldNotComplete(str(error)) from error
    except (ApiError, ConnectionFailed) as error:
        raise CouldNotComplete(f"the sandbox's API server: {error}; see `polyarch status`") from error


def _merge(sandbox: Sandbox) -> None:
    path = user_file()
    merge(path, msgspec.json.decode(sandbox.kubeconfig.read_bytes()))
    sandbox.remember_merge(str(path))


def _read_yaml(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return yaml.load(text, SafeLoader)  # noqa: S506 - safe
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not YAML or JSON: {error}") from error


def _print(content: Any, outputs: Sequence[Output], text: Callable[[bool], str]) -> None:
    def render(form: str, colour: bool) -> str:
        return text(colour) if form == "text" else document_text(msgspec.to_builtins(content), form)

    emit(outputs, render)


def _summary(result: Document, wanted: SandboxOptions) -> str:
    counts: dict[str, int] = {}
    for node in result.nodes:
        counts[node.architecture] = counts.get(node.architecture, 0) + 1
    nodes = ", ".join(f"{count} {architecture}" for architecture, count in counts.items()) or "none"
    if result.numa:
        nodes += f"; NUMA cells of each: {result.numa}"
    following = after_up(
        Folder(Path(result.kubeconfig).parent),
        name=result.name,
        installed=wanted.polyarch,
        has_cells=bool(result.numa),
        builds_to=result.registry.address if wanted.builds else "",
    )
    return f"""\
sandbox     {result.name} (Kubernetes {result.version})
API server  {result.api_server}
nodes       {nodes}
registry    {result.registry.address} (plain HTTP; also serves docker.io, quay.io and others)
kubeconfig  {result.kubeconfig}

{following}"""


def _status(result: Document, colour: bool) -> str:
    if not result.processes:
        return f"sandbox {result.name} is stopped; `polyarch up{option(result.name)}` starts it\n"
    rows = [
        Row(
            (
                process.name,
                str(process.pid),
                f"{process.memory / 2**20:.0f} MiB" if process.memory else "",
                process.url,
                process.detail or ("" if process.healthy else "not ") + "healthy",
            ),
            "" if process.healthy else "red",
        )
        for process in result.processes
    ]
    rows += [
        Row((f"node {node.name}", "", "", "", "ready" if node.ready else "not ready"), "" if node.ready else "red")
        for node in result.nodes
    ]
    shown_rows = table(("COMPONENT", "PID", "MEMORY", "ADDRESS", "STATE"), rows, colour=colour)
    cells = f"NUMA cells of each node: {result.numa}\n" if result.numa else ""
    return f"{shown_rows}\n{cells}logs: {Path(result.audit_log).parent}\n"


# -- progress of the steps, on stderr: a bar on a terminal, plain lines in a pipe


LINE_SECONDS = 10.0
"""In a pipe, a step that counts something says so this often."""


class TerminalProgress:
    """One line that lives: what is done now, how far it is. Finished steps stay above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._text = ""
        self._began = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._finish(done=failure is None)
        self._progress.stop()

    def step(self, text: str) -> None:
        self._finish(done=True)
        self._text, self._began = text, time.monotonic()
        self._task = self._progress.add_task(text, total=None, count="")

    def advance(self, done: int, total: int, detail: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total or None, count=_count(done, total, detail))

    def _finish(self, *, done: bool) -> None:
        if self._task is None:
            return
        self._progress.remove_task(self._task)
        self._task = None
        mark = "[green]✓[/]" if done else "[red]✗[/]"
        self._progress.console.print(f"{mark} {self._text} [dim]{time.monotonic() - self._began:.1f} s[/]")


class LineProgress:
    """One line for each step, and one in a while for what a long step counts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def step(self, text: str) -> None:
        self._told = time.monotonic()
        print(text, file=self._stream, flush=True)

    def advance(self, done: int, total: int, detail: str = "") -> None:
        if time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            print(f"  {_count(done, total, detail)}", file=self._stream, flush=True)


def _count(done: int, total: int, detail: str) -> str:
    if detail == "nodes":
        return f"{done} of {total} nodes are ready"
    if detail == "bytes":
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
    if detail.startswith("go: downloading"):
        return detail.removeprefix("go: ")[:60]
    return f"{done} of {total} packages" if total else detail[-60:]


class NoProgress:
    """Nothing, for ``-q``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, text: str) -> None:
        """Not told."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """Not told."""


def shown(messages: Messages) -> TerminalProgress | LineProgress | NoProgress:
    """What fits stderr and the command line; use it as a context manager."""
    if messages.quiet:
        return NoProgress()
    console = Console(stderr=True, highlight=False)
    return TerminalProgress(console) if console.is_terminal else LineProgress(sys.stderr)


# -- ``--merge-kubeconfig``: the sandbox's context in the user's own kubeconfig, beside what is there


SECTIONS = ("clusters", "users", "contexts")
BACKUP_SUFFIX = ".before-polyarch"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where kubectl would write: the first file of ``KUBECONFIG``, else ``~/.kube/config``."""
    listed = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]) if listed else Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"


def merge(path: Path, ours: Mapping[str, Any]) -> None:
    """Put our entries into the file and make our context the current one."""
    document = _read(path)
    for section in SECTIONS:
        added = ours[section]
        names = {entry["name"] for entry in added}
        document[section] = [*_without(document, section, names), *added]
    document["current-context"] = ours["current-context"]
    _write(path, document)


def remove(path: Path, name: str) -> None:
    """Take the entries called ``name`` out again; a file that has none is left as it is."""
    if not path.exists():
        return
    document = _read(path)
    before = {section: list(document.get(section) or []) for section in SECTIONS}
    after = {section: _without(document, section, {name}) for section in SECTIONS}
    if before == after:
        return
    document.update(after)
    if document.get("current-context") == name:
        document["current-context"] = ""
    _write(path, document)


def _without(document: Mapping[str, Any], section: str, names: set[str]) -> list[Any]:
    entries = document.get(section) or []
    return [entry for entry in entries if not (isinstance(entry, dict) and entry.get("name") in names)]


def _read(path: Path) -> dict[str, Any]:
    empty = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), SafeLoader)  # noqa: S506 - safe
    except FileNotFoundError:
        return empty
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"--merge-kubeconfig: {path} is not YAML ({error}); fix it, or run without the option"
        ) from error
    if document is None:
        return empty
    if not isinstance(document, dict) or not all(isinstance(document.get(s) or [], list) for s in SECTIONS):
        raise UsageError(f"--merge-kubeconfig: {path} is not a kubeconfig; fix it, or run without the option")
    return document


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        _write_private(backup, path.read_bytes())
    # The target of a symbolic link is replaced, not the link.
    _write_private(path.resolve(), yaml.safe_dump(document, sort_keys=False).encode())


def _write_private(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
