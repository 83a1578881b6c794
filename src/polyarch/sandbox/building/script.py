"""The course of one build: the lines that buildah would print, and how it ends (BD-144, BD-147). Pure.

Of the Containerfile only ``RUN exit N`` and ``RUN false`` mean something here: they fail, as they would. What a build
is asked for besides (``mishaps``) happens when its steps are done.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.jobs.contract import EXIT_REASONS, TRANSIENT, BuildDocument, FailureMessage
from polyarch.sandbox.building.mishaps import Mishaps

_FAILS: Final = re.compile(r"RUN\s+(?:false|exit\s+(?P<code>[1-9][0-9]{0,2}))\s*", re.IGNORECASE)
_FROM: Final = re.compile(r"FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE)
_CONTINUED: Final = re.compile(r"\\[ \t]*\n")
EVICTED_CODE: Final = 137
STEP_SECONDS: Final = 0.15
"""How long a step takes unless the build is asked to take its time."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed before each pause, and then the end; ``exit`` 0: the image is written."""

    lines: tuple[str, ...]
    pause: float
    exit: int = 0
    failed: FailureMessage | None = None


def course(document: BuildDocument, containerfile: str, wanted: Mishaps) -> Course:
    """The whole build of one architecture."""
    steps = list(_steps(containerfile))
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        lines.append(f"STEP {number}/{len(steps)}: {_pinned(step, document)}")
        if (match := _FAILS.fullmatch(step)) is not None:
            code = int(match["code"] or 1)
            problem = f'building at STEP "{step}": while running runtime: exit status {code}'
            lines.append(f"Error: {problem}")
            failed = FailureMessage(reason="BuildFailed", message=f"{step}: exit {code}")
            return Course(lines=tuple(lines), pause=_pause(wanted, lines), exit=TRANSIENT, failed=failed)
    if wanted.evict:
        return Course(lines=tuple(lines), pause=_pause(wanted, lines), exit=EVICTED_CODE)
    if wanted.exit is not None:
        lines.append(f"Error: the build was asked to end with exit code {wanted.exit}")
        failed = FailureMessage(reason=_reason(wanted.exit), message=f"asked to end with exit code {wanted.exit}")
        return Course(lines=tuple(lines), pause=_pause(wanted, lines), exit=wanted.exit, failed=failed)
    return Course(lines=(*lines, f"COMMIT for linux/{document.architecture}"), pause=_pause(wanted, [*lines, ""]))


def _reason(code: int) -> str:
    return EXIT_REASONS.get(code, ("BuildFailed",))[0]


def refused(problem: str) -> Course:
    """A build that does not begin: its user's error."""
    failed = FailureMessage(reason="ContainerfileInvalid", message=problem)
    return Course(lines=(f"Error: {problem}",), pause=0.0, exit=names.USER_ERROR, failed=failed)


def _pause(wanted: Mishaps, lines: list[str]) -> float:
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
