"""An image reference in a text, the input of the rules for images.

Images of containers and images that a bundle lists have the same type, so the rules treat them alike.

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
    """An image reference in a text."""

    subject: str
    """Name of the object for messages."""
    holder: str
    """Name of what uses the image: ``container web``."""
    text: str
    """As it is written."""
    answer: Answer
    index: Inspection | None
    """The index that its tag points to, if it has a digest, too (MA004)."""
    node: Node
    pointer: str
    document: int
    options: LintOptions
    constrains: bool = True
    """Whether its platforms limit where a pod can run."""

    @property
    def name(self) -> str:
        """The image that was looked up."""
        return self.answer.text

    @property
    def resolved(self) -> Inspection | None:
        """The inspection, if it has platforms."""
        inspection = self.answer.inspection
        return inspection if inspection is not None and inspection.status is Status.RESOLVED else None

    def warnings(self, *codes: str) -> Iterator[InspectionWarning]:
        """The warnings of the inspection with one of these codes."""
        inspection = self.answer.inspection
        yield from (each for each in (inspection.warnings if inspection else ()) if each.code in codes)

    def told(self, error: InspectionError) -> str:
        """The error message without the image, which the finding names already."""
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
