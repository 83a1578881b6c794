"""An image in a text, as the rules on images see it.

A place of any kind, so that images of containers and those that a bundle lists are judged alike.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.facts import NO_SETS, Draft, PodFacts
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import Answer
from polyarch.oci.answer import Inspection, InspectionError, InspectionWarning, Status

PUSH_AGAIN = "push the image again with a current tool"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImagePlace:
    """An image in a text."""

    subject: str
    """The object, as a sentence names it."""
    holder: str
    """What names the image: ``container web``."""
    text: str
    """As it is written."""
    answer: Answer
    index: Inspection | None
    """What its tag shows, where it has a digest, too (MA004)."""
    node: Node
    pointer: str
    document: int
    options: LintOptions
    constrains: bool = True
    """Whether its platforms matter to where a pod can run."""

    @property
    def name(self) -> str:
        """The image that was asked for."""
        return self.answer.text

    @property
    def resolved(self) -> Inspection | None:
        """The answer, if it tells platforms."""
        inspection = self.answer.inspection
        return inspection if inspection is not None and inspection.status is Status.RESOLVED else None

    def warnings(self, *codes: str) -> Iterator[InspectionWarning]:
        """The warnings of the inspection with one of these codes."""
        inspection = self.answer.inspection
        yield from (each for each in (inspection.warnings if inspection else ()) if each.code in codes)

    def told(self, error: InspectionError) -> str:
        """What happened: the error of an answer begins with the image, which the sentence has already."""
        name = self.answer.reference.canonical if self.answer.reference is not None else self.name
        return error.message.removeprefix(f"{name}: ")

    def draft(
        self,
        rule: Rule,
        message: str,
        hint: str,
        *,
        sub: str = "",
        severity: Severity | None = None,
        platforms: PlatformSets = NO_SETS,
        repair: Repair | None = None,
    ) -> Draft:
        """A finding at this place."""
        return Draft(
            rule=rule,
            sub=sub,
            severity=severity,
            message=message,
            hint=hint,
            node=self.node,
            pointer=self.pointer,
            images=(self.name,) if self.name else (),
            platforms=platforms,
            repair=repair,
        )


def places_of(facts: PodFacts) -> Iterator[ImagePlace]:
    """The images of a pod."""
    subject = str(facts.pod_spec.object.reference)
    for image in facts.supported.images:
        use = image.use
        yield ImagePlace(
            subject=subject,
            holder=f"{'volume' if use.role == 'volume' else 'container'} {use.container}".strip(),
            text=use.text,
            answer=image.answer,
            index=facts.answers.indexes.get(image.answer.text),
            node=use.node,
            pointer=use.pointer,
            document=facts.pod_spec.document.index,
            options=facts.options,
            constrains=image.platforms is not None and not image.platforms.is_everything,
        )
