"""The result of a run: findings, counts, and what could not be completed.

Every output format renders a :class:`Report` and nothing else, so formats cannot disagree about a run.

Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from polyarch.manifests.finding import Finding, ObjectReference, Severity
from polyarch.manifests.scan.sets import ImageInspection
from polyarch.oci.inspection import Status
from polyarch.oci.reference import InvalidReference, parse

FailOn = Literal["error", "warning", "info", "never"]

INCOMPLETE_CLASSES = frozenset({"transient", "limit", "configuration"})
"""Error classes that a later or differently configured run may not have: a run with one is incomplete."""


class ImageAnswer(msgspec.Struct, frozen=True, gc=False):
    """One image of a run: its text, and a summary of the answer."""

    image: str
    status: str
    digest: str = ""
    platforms: tuple[str, ...] = ()
    code: str = ""
    error_class: str = ""
    message: str = ""

    @property
    def is_unresolved(self) -> bool:
        return self.status in (Status.UNKNOWN, Status.ERROR)


class Incomplete(msgspec.Struct, frozen=True, gc=False, order=True):
    """Something that could not be completed: an unreadable file, or an image whose registry gave no answer."""

    file: str
    """Empty for an image."""
    image: str
    message: str

    @property
    def why(self) -> str:
        """The message without the image, with whose full name errors of the registry client begin."""
        try:
            name = parse(self.image).canonical
        except InvalidReference:
            name = self.image
        return self.message.removeprefix(f"{name}: ")


class ExaminedFile(msgspec.Struct, frozen=True, gc=False):
    """A checked file and the objects found in it."""

    file: str
    objects: tuple[ObjectReference, ...] = ()
    pod_specs: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of a run, named as in its JSON document."""

    files: int
    objects: int
    pod_specs: int
    images: int
    errors: int
    warnings: int
    infos: int
    suppressed: int
    unresolved: int
    complete: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run. Everything is sorted: the same input gives the same report."""

    summary: Summary
    findings: tuple[Finding, ...]
    """Those that count."""
    suppressed: tuple[Finding, ...] = ()
    files: tuple[ExaminedFile, ...] = ()
    images: tuple[ImageAnswer, ...] = ()
    incomplete: tuple[Incomplete, ...] = ()
    fail_on: FailOn = "warning"
    show_suppressed: bool = False

    @classmethod
    def of(
        cls,
        findings: Iterable[Finding],
        *,
        files: Iterable[ExaminedFile] = (),
        images: Iterable[ImageAnswer] = (),
        incomplete: Iterable[Incomplete] = (),
        fail_on: FailOn = "warning",
        show_suppressed: bool = False,
    ) -> "Report":
        """Sorts and counts. Suppressed findings are separated; an image whose every MA001 is suppressed does not make
        the run incomplete.
        """
        ordered = sorted(findings, key=lambda finding: finding.order)
        counted = tuple(finding for finding in ordered if finding.suppressed is None)
        suppressed = tuple(finding for finding in ordered if finding.suppressed is not None)
        examined = tuple(sorted(files, key=lambda each: each.file))
        answered = tuple(sorted(images, key=lambda each: each.image))
        passed_over = _unknown_images(suppressed) - _unknown_images(counted)
        gaps = tuple(sorted({each for each in incomplete if each.image not in passed_over}))
        return cls(
            summary=Summary(
                files=len(examined),
                objects=sum(len(each.objects) for each in examined),
                pod_specs=sum(each.pod_specs for each in examined),
                images=len(answered),
                errors=_count(counted, Severity.ERROR),
                warnings=_count(counted, Severity.WARNING),
                infos=_count(counted, Severity.INFO),
                suppressed=len(suppressed),
                unresolved=sum(each.is_unresolved for each in answered),
                complete=not gaps,
            ),
            findings=counted,
            suppressed=suppressed,
            files=examined,
            images=answered,
            incomplete=gaps,
            fail_on=fail_on,
            show_suppressed=show_suppressed,
        )

    def untold(self, findings: Iterable[Finding]) -> list[Incomplete]:
        """What could not be completed and none of these findings names: MA001 says of its image why, too."""
        told = _unknown_images(findings)
        return [each for each in self.incomplete if each.file or each.image not in told]

    def fails(self, finding: Finding) -> bool:
        """Whether an unsuppressed finding makes the exit code 1."""
        return self.fail_on != "never" and finding.severity.rank >= Severity(self.fail_on).rank

    @property
    def exit_code(self) -> int:
        """3, 1 or 0; usage errors (2) never produce a report."""
        if not self.summary.complete:
            return 3
        return 1 if any(map(self.fails, self.findings)) else 0


def image_answers(answers: Iterable[ImageInspection]) -> list[ImageAnswer]:
    """Summaries of the answers; a text that is not a reference is unknown."""
    found = []
    for answer in answers:
        inspection = answer.inspection
        if answer.problem:
            found.append(ImageAnswer(answer.text, Status.UNKNOWN.value, code="not-a-reference", message=answer.problem))
        elif inspection is None:
            found.append(ImageAnswer(answer.text, Status.UNKNOWN.value))
        else:
            error = inspection.error
            found.append(
                ImageAnswer(
                    image=answer.text,
                    status=inspection.status.value,
                    digest=inspection.digest,
                    platforms=tuple(map(str, inspection.node_platforms)),
                    code=error.code if error else "",
                    error_class=error.error_class if error else "",
                    message=error.message if error else "",
                )
            )
    return found


def incomplete_images(images: Iterable[ImageAnswer]) -> list[Incomplete]:
    """The images that make a run incomplete with ``--unresolved auto``: a later run may get an answer."""
    return [
        Incomplete("", image.image, image.message or f"{image.image} could not be inspected: {image.code}")
        for image in images
        if image.error_class in INCOMPLETE_CLASSES
    ]


def _unknown_images(findings: Iterable[Finding]) -> set[str]:
    return {image for finding in findings if finding.rule == "MA001" for image in finding.images}


def _count(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(finding.severity is severity for finding in findings)
