"""MA211: an index names manifests that the registry does not have, in objects of every kind.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.bundle.service_version import KIND, ImageText, ServiceVersion, deployed_images
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.oci.answer import InspectionWarning

RULE = Rule(
    id="MA211",
    severity=Severity.ERROR,
    title="An index names manifests that its registry does not have",
    meaning="Nodes of that platform cannot pull the image. Usually a mirror copied only one platform.",
)


def check(facts: ObjectFacts) -> Iterator[Draft]:
    seen: set[str] = set()
    for place in _places(facts):
        answer = facts.answers.of(place.text)
        if place.text in seen or answer.inspection is None:
            continue
        seen.add(place.text)
        gone = [warning for warning in answer.inspection.warnings if warning.code == "child-missing"]
        if gone:
            source = answer.inspection.source
            host = source.host if source is not None else answer.reference.host_for_requests if answer.reference else ""
            yield _incomplete(str(facts.object.reference), place, gone, host)


def _incomplete(subject: str, place: ImageText, gone: list[InspectionWarning], host: str) -> Draft:
    missing = "; ".join(warning.message or "a manifest that the index names is not there" for warning in gone)
    return Draft(
        rule=RULE,
        message=f"{subject} uses {place.text}, but {host or 'the registry'} lacks a part of it: {missing}",
        hint="copy the whole index to the registry, with all of its platforms",
        node=place.node,
        pointer=place.pointer,
        images=(place.text,),
    )


def _places(facts: ObjectFacts) -> Iterator[ImageText]:
    yield from deployed_images(each.pod_spec for each in facts.pods)
    if facts.object.kind == KIND:
        yield from ServiceVersion.of(facts.object, ()).related
