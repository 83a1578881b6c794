"""An image that was built before, taken as the first result of a config (BD-281). Pure.

The build of it is recorded like one of ours, with the keys of now: so nothing is built until one of its inputs changes.
"""

from polyarch.builds.api.resources import IndexStatus
from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target
from polyarch.builds.executions.wanted import Wanted
from polyarch.builds.facts.facts import ChildRecord, Facts, Question
from polyarch.builds.facts.times import written
from polyarch.builds.keys import handles
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case
from polyarch.builds.machineos.recording.lifecycle import SEEDED
from polyarch.oci.answer import Inspection, Status
from polyarch.oci.reference import parse


def image_of(case: Case) -> str:
    """The image that is to be taken, canonical; empty if there is none, or the config has a build already."""
    text = case.annotations.get(vocabulary.PRE_BUILT, "")
    begun = case.builds or vocabulary.CURRENT_BUILD in case.annotations
    return handles.image(text) if text and not begun else ""


def question(facts: Facts, image: str, case: Case) -> Question | None:
    """What has to be known first: that the Secret is there with which images are pushed, and what the image has."""
    if case.push_secret and case.push_secret not in facts.inputs.secrets:
        return Question(reference=case.push_secret, what="secret")
    if image not in facts.images:
        return Question(reference=image, what="inspect")
    return None


def is_possible(facts: Facts, image: str, case: Case) -> bool:
    """Whether the image can be taken; the planner says what is wrong with a Secret."""
    secret = facts.inputs.secrets.get(case.push_secret)
    usable = not case.push_secret or (secret is not None and not secret.invalid)
    answer = facts.images.get(image)
    return usable and answer is not None and answer.status is Status.RESOLVED and bool(answer.digest)


def state(facts: Facts, known: Wanted, target: Target, name: str, image: str) -> State:
    """The build as it is recorded: what the image has of the architectures that are wanted."""
    answer = facts.images[image]
    index = None
    if answer.kind == "index":
        index = IndexStatus(answer.media_type, answer.digest, 0, written(facts.now))
    return State(
        name=name,
        build_key=target.build_key,
        phase="Succeeded",
        children=tuple(_child(facts, target, answer, each) for each in target.architectures),
        index=index,
        result=f"{parse(image).name}@{answer.digest}",
        reason=SEEDED,
        started=facts.now,
        completed=facts.now,
        repository=target.repository,
        pins=target.pins,
    )


def _child(facts: Facts, target: Target, answer: Inspection, architecture: str) -> ChildRecord:
    found = [
        each for each in answer.entries if (each.platform.os, each.platform.architecture) == ("linux", architecture)
    ]
    if not found:
        return ChildRecord(architecture=architecture, key=target.keys[architecture])
    return ChildRecord(
        architecture=architecture,
        phase="Built",
        key=target.keys[architecture],
        digest=found[0].digest or answer.digest,
        size=found[0].size or 0,
        variant=found[0].platform.variant,
        completed=facts.now,
    )
