"""The program: it builds one architecture and ends with the exit code that the contract of build pods gives it."""

import argparse
import datetime as dt
import sys
import time
from pathlib import Path

import msgspec

from polyarch.builds.jobs import contract
from polyarch.builds.jobs.contract import BuildDocument
from polyarch.sandbox.building import product, script
from polyarch.sandbox.building.mishaps import ARGUMENT, Mishaps, UnknownMishap, counts
from polyarch.sandbox.building.script import Course
from polyarch.sandbox.files import write_private
from polyarch.sandbox.pods.fate import Fate


def main(arguments: list[str] | None = None) -> int:
    """Build; the exit code."""
    given = _parser().parse_args(arguments)
    document = msgspec.json.decode((given.inputs / contract.BUILD_DOCUMENT).read_bytes(), type=BuildDocument)
    containerfile = (given.inputs / contract.CONTAINERFILE).read_text(encoding="utf-8")
    try:
        wanted = Mishaps.of(document.arguments, _attempt(given.attempts, document))
    except UnknownMishap as error:
        return _end(script.refused(str(error)), given.termination_log)
    course = script.course(document, containerfile, wanted)
    code = _end(course, given.termination_log)
    if code == script.EVICTED_CODE and wanted.evict:
        _ask(given.fate, Fate.EVICT)
    if code:
        return code
    manifest = product.image(
        document,
        containerfile,
        product.digest_of_context(given.context),
        architecture=wanted.architecture or document.architecture,
        created=_created(document.timestamp),
    )
    product.write_layout(given.layout, manifest, incomplete=wanted.layout)
    _say(f"--> {manifest.digest.partition(':')[2][:12]}")
    if wanted.vanish:
        _ask(given.fate, Fate.VANISH)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m polyarch.sandbox.building")
    for name in ("inputs", "context", "layout", "termination-log", "fate", "attempts"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    return parser


def _attempt(path: Path, document: BuildDocument) -> int:
    """The number of this attempt of the Job, from 0; counted only if somebody asked for it."""
    if not counts(document.arguments.get(ARGUMENT, "")):
        return 0
    number = int(path.read_text(encoding="ascii")) if path.exists() else 0
    write_private(path, str(number + 1).encode())
    return number


def _end(course: Course, termination_log: Path) -> int:
    for line in course.lines:
        _say(line)
        time.sleep(course.pause)
    if course.failed is not None:
        termination_log.write_bytes(msgspec.json.encode(course.failed))
    return course.exit


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _ask(path: Path, fate: Fate) -> None:
    write_private(path, fate.value.encode())


def _created(timestamp: int | None) -> str:
    at = dt.datetime.now(dt.UTC) if timestamp is None else dt.datetime.fromtimestamp(timestamp, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    sys.exit(main())
