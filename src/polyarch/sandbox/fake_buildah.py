"""The fake buildah, ``python -m polyarch.sandbox.fake_buildah``: takes the place of buildah in the build pods of a
sandbox.

A container of the builder image is run like one of polyarch's own: it reads the inputs of its Job, prints the steps of
the Containerfile, and writes a small real image of the pod's architecture as an OCI layout, all as the contract of
build pods says (``polyarch.builds``). No line of a Containerfile and no script is executed. The build argument
``SANDBOX_BUILD`` injects faults.
"""

import argparse
import datetime as dt
import hashlib
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.contract import EXIT_REASONS, TRANSIENT, BuildDocument, FailureMessage
from polyarch.platforms import Platform
from polyarch.sandbox.files import write_private
from polyarch.sandbox.pods.outcome import PodFault
from polyarch.sandbox.registry import images
from polyarch.sandbox.registry.images import Manifest

_READABLE: Final = 0o644
_ENTERABLE: Final = 0o755


def built_image(
    document: BuildDocument, containerfile: str, context: str, *, architecture: str, created: str
) -> Manifest:
    """The image of this build; ``context`` is the digest of its context's files, ``created`` an RFC 3339 time.

    The image is made of everything that its build was told, so that other inputs give another digest, and equal ones
    the same. Nothing of a base image is in it.
    """
    told: dict[str, Any] = {
        "containerfile": containerfile,
        "target": document.target,
        "arguments": dict(document.arguments),
        "images": dict(document.images),
        "context": [document.context, context],
    }
    digest = hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()
    return images.image(
        f"polyarch.sandbox/build@sha256:{digest}",
        Platform.of("linux", architecture),
        format="docker" if document.format == "Docker" else "oci",
        labels=dict(document.labels),
        created=created,
    )


def write_layout(folder: Path, manifest: Manifest, *, incomplete: bool = False) -> None:
    """Write the layout, readable for other users; ``incomplete`` leaves its last blob out."""
    shutil.rmtree(folder, ignore_errors=True)
    blobs = [manifest.content, *manifest.blobs]
    index = {"schemaVersion": 2, "manifests": [manifest.descriptor.document()]}
    _write(folder / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    for content in blobs[:-1] if incomplete else blobs:
        algorithm, _, name = images.digest_of(content).partition(":")
        _write(folder / "blobs" / algorithm / name, content)
    _write(folder / "index.json", msgspec.json.encode(index))
    for each in (folder, *folder.rglob("*")):
        each.chmod(_ENTERABLE if each.is_dir() else _READABLE)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def digest_of_context(folder: Path) -> str:
    """Of the names and contents of the files of a mounted context; empty if there are none."""
    digest = hashlib.sha256()
    seen = False
    for path in _files(folder):
        seen = True
        for part in (str(path.relative_to(folder)).encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8) + part)
    return f"sha256:{digest.hexdigest()}" if seen else ""


def _files(folder: Path) -> Iterator[Path]:
    """In the order of their names. What a kubelet keeps in folders that begin with ``..`` is there a second time, as
    links."""
    for path in sorted(folder.rglob("*") if folder.is_dir() else ()):
        if path.is_file() and not any(part.startswith("..") for part in path.relative_to(folder).parts):
            yield path


# -- injected faults: to fail, to be evicted, to take its time ---------------------------------------------------------
# The build argument ``SANDBOX_BUILD`` says them, several separated by commas, so that every architecture can have its
# own by an override:
#
#    exit=2               end with this exit code
#    exit=1*2             the same, in the first two attempts only
#    evict                be evicted by the node, the first time
#    vanish               succeed, and have the pod deleted before anybody reads its result
#    architecture=s390x   build for another architecture than asked for
#    layout               leave a blob out of the layout
#    seconds=20           take so long


ARGUMENT: Final = "SANDBOX_BUILD"
_WISH: Final = re.compile(r"(?P<name>[a-z]+)(?:=(?P<value>[a-z0-9.]+))?(?:\*(?P<times>[0-9]{1,3}))?")
_ONCE: Final = ("evict", "vanish")
"""These happen in the first attempt only, unless ``*N`` says otherwise: else their Job would never end."""
MAXIMUM_SECONDS: Final = 3600.0


class UnknownFault(ValueError):  # noqa: N818 - what is wrong
    """The argument's text is none of those above; the text is the message."""


class InjectedFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt is asked for."""

    exit: int | None = None
    evict: bool = False
    vanish: bool = False
    architecture: str = ""
    layout: bool = False
    seconds: float | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, str], attempt: int = 0) -> "InjectedFaults":
        """From the build's arguments, for the attempt of this number, from 0. Raises UnknownFault."""
        return read_faults(arguments.get(ARGUMENT, ""), attempt)


def read_faults(text: str, attempt: int) -> InjectedFaults:
    found: dict[str, object] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _WISH.fullmatch(part)
        if match is None:
            raise _unknown(part)
        name, value = match["name"], match["value"]
        times = match["times"] or ("1" if name in _ONCE else None)
        meant = _value(name, value)
        if meant is None:
            raise _unknown(part)
        if times is None or attempt < int(times):
            found[name] = meant
    return msgspec.convert(found, InjectedFaults)


def counts(text: str) -> bool:
    """Whether the number of the attempt matters."""
    return "*" in text or any(name in text for name in _ONCE)


def _value(name: str, value: str | None) -> object:
    """None: it cannot be meant."""
    match name:
        case "exit" if value is not None and value.isdigit() and 0 < int(value) < 256:
            return int(value)
        case "architecture" if value is not None and re.fullmatch(r"[a-z0-9]{2,16}", value):
            return value
        case "seconds" if value is not None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return min(float(value), MAXIMUM_SECONDS)
        case "evict" | "vanish" | "layout" if value is None:
            return True
        case _:
            return None


def _unknown(part: str) -> UnknownFault:
    return UnknownFault(
        f"{ARGUMENT}: {part!r} is not known; expected exit=CODE, evict, vanish, architecture=ARCH, layout or "
        "seconds=N, several separated by commas, each with *N for the first N attempts only"
    )


# -- the script of a build: the lines that buildah would print, and how it ends ----------------------------------------


_FAILS: Final = re.compile(r"RUN\s+(?:false|exit\s+(?P<code>[1-9][0-9]{0,2}))\s*", re.IGNORECASE)
_FROM: Final = re.compile(r"FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE)
_CONTINUED: Final = re.compile(r"\\[ \t]*\n")
EVICTED_CODE: Final = 137
STEP_SECONDS: Final = 0.15
"""How long a step takes unless the build is asked to take its time."""


class BuildScript(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed before each pause, and then the end; ``exit`` 0: the image is written."""

    lines: tuple[str, ...]
    pause: float
    exit: int = 0
    failed: FailureMessage | None = None


def build_script(document: BuildDocument, containerfile: str, wanted: InjectedFaults) -> BuildScript:
    """The whole build of one architecture.

    Of the Containerfile only ``RUN exit N`` and ``RUN false`` mean something here: they fail, as they would. Injected
    faults happen when its steps are done.
    """
    steps = list(_steps(containerfile))
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        lines.append(f"STEP {number}/{len(steps)}: {_pinned(step, document)}")
        if (match := _FAILS.fullmatch(step)) is not None:
            code = int(match["code"] or 1)
            problem = f'building at STEP "{step}": while running runtime: exit status {code}'
            lines.append(f"Error: {problem}")
            failed = FailureMessage(reason="BuildFailed", message=f"{step}: exit {code}")
            return BuildScript(lines=tuple(lines), pause=_pause(wanted, lines), exit=TRANSIENT, failed=failed)
    if wanted.evict:
        return BuildScript(lines=tuple(lines), pause=_pause(wanted, lines), exit=EVICTED_CODE)
    if wanted.exit is not None:
        lines.append(f"Error: the build was asked to end with exit code {wanted.exit}")
        failed = FailureMessage(reason=_reason(wanted.exit), message=f"asked to end with exit code {wanted.exit}")
        return BuildScript(lines=tuple(lines), pause=_pause(wanted, lines), exit=wanted.exit, failed=failed)
    return BuildScript(lines=(*lines, f"COMMIT for linux/{document.architecture}"), pause=_pause(wanted, [*lines, ""]))


def _reason(code: int) -> str:
    return EXIT_REASONS.get(code, ("BuildFailed",))[0]


def refused_build(problem: str) -> BuildScript:
    """A build that does not begin: its user's error."""
    failed = FailureMessage(reason="ContainerfileInvalid", message=problem)
    return BuildScript(lines=(f"Error: {problem}",), pause=0.0, exit=names.USER_ERROR, failed=failed)


def _pause(wanted: InjectedFaults, lines: list[str]) -> float:
    return STEP_SECONDS if wanted.seconds is None else wanted.seconds / max(1, len(lines))


def _pinned(step: str, document: BuildDocument) -> str:
    """``FROM`` names what is pulled, as buildah prints it."""
    match = _FROM.match(step)
    pulled = document.images.get(match["image"]) if match is not None else None
    return step if match is None or pulled is None else step[: match.start("image")] + pulled + step[match.end() :]


def _steps(containerfile: str) -> Iterator[str]:
    """The instructions, each on one line."""
    for line in _CONTINUED.sub(" ", containerfile).splitlines():
        if (text := " ".join(line.split())) and not text.startswith("#"):
            yield text


# -- the program: it ends with the exit code that the contract of build pods gives it ----------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Build; the exit code."""
    given = _parser().parse_args(arguments)
    document = msgspec.json.decode((given.inputs / contract.BUILD_DOCUMENT).read_bytes(), type=BuildDocument)
    containerfile = (given.inputs / contract.CONTAINERFILE).read_text(encoding="utf-8")
    try:
        wanted = InjectedFaults.of(document.arguments, _attempt(given.attempts, document))
    except UnknownFault as error:
        return _end(refused_build(str(error)), given.termination_log)
    script = build_script(document, containerfile, wanted)
    code = _end(script, given.termination_log)
    if code == EVICTED_CODE and wanted.evict:
        _ask(given.fault, PodFault.EVICT)
    if code:
        return code
    manifest = built_image(
        document,
        containerfile,
        digest_of_context(given.context),
        architecture=wanted.architecture or document.architecture,
        created=_created(document.timestamp),
    )
    write_layout(given.layout, manifest, incomplete=wanted.layout)
    _say(f"--> {manifest.digest.partition(':')[2][:12]}")
    if wanted.vanish:
        _ask(given.fault, PodFault.VANISH)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m polyarch.sandbox.fake_buildah")
    for name in ("inputs", "context", "layout", "termination-log", "fault", "attempts"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    return parser


def _attempt(path: Path, document: BuildDocument) -> int:
    """The number of this attempt of the Job, from 0; counted only if somebody asked for it."""
    if not counts(document.arguments.get(ARGUMENT, "")):
        return 0
    number = int(path.read_text(encoding="ascii")) if path.exists() else 0
    write_private(path, str(number + 1).encode())
    return number


def _end(script: BuildScript, termination_log: Path) -> int:
    for line in script.lines:
        _say(line)
        time.sleep(script.pause)
    if script.failed is not None:
        termination_log.write_bytes(msgspec.json.encode(script.failed))
    return script.exit


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _ask(path: Path, fault: PodFault) -> None:
    write_private(path, fault.value.encode())


def _created(timestamp: int | None) -> str:
    at = dt.datetime.now(dt.UTC) if timestamp is None else dt.datetime.fromtimestamp(timestamp, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    sys.exit(main())
