"""MA208: a bundle image with platforms other than linux/amd64, which catalog tools expect wherever the operator runs.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.oci.answer import Inspection
from polyarch.platforms import NodePlatform

RULE = Rule(
    id="MA208",
    severity=Severity.INFO,
    title="A bundle image is not for linux/amd64 alone",
    meaning="A bundle image holds data only; catalog tools expect linux/amd64 as its only platform.",
)

_EXPECTED = NodePlatform("linux", "amd64")


@dataclass(frozen=True)
class BundleImageAnswer:
    """The image that the bundle is shipped as (``--bundle-image``)."""

    text: str
    inspection: Inspection


def check(facts: ObjectFacts, image: BundleImageAnswer) -> Iterator[Draft]:
    platforms = image.inspection.node_platforms
    if len(image.inspection.entries) <= 1 and platforms in ((), (_EXPECTED,)):
        return
    listed = ", ".join(map(str, image.inspection.platforms))
    yield Draft(
        rule=RULE,
        message=f"the bundle image {image.text} of {facts.object.reference} has {listed}, but catalog tools expect "
        f"{_EXPECTED} alone",
        hint=f"build the bundle image for {_EXPECTED}; it holds data and never runs",
        node=facts.object.node,
        pointer=facts.object.pointer,
        images=(image.text,),
    )
