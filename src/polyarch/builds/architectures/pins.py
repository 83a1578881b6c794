"""Pins: which child of a base image each architecture builds on (BD-061).

All architectures of one plan see one snapshot of a reference: either the pin that the wish has, whose index is looked
up by digest where a child is not recorded, or one answer for the tag. Which of the two it is says
``baseImages.policy``:

* ``Never``: the pin, once there is one;
* ``Interval``: the pin until the interval is over, then a new answer;
* ``OnBuild``: the pin to plan with; a new answer once the plan needs a Job (``Facts.pins_fresh``).

References that have no pin yet are asked for.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.architectures.children import child_of, children_of
from polyarch.builds.architectures.needs import needs
from polyarch.builds.facts.facts import Facts, PinnedBase, Question
from polyarch.builds.keys.inputs import Inputs
from polyarch.oci.answer import Inspection, Status
from polyarch.oci.reference import parse

RETRY_SECONDS: Final = 60.0
"""When a pin whose interval is over is tried again after a registry gave no answer."""
_USABLE: Final = frozenset({Status.RESOLVED, Status.NEUTRAL})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one reference: the pin, a registry's answer, or what has to be asked."""

    pin: PinnedBase | None = None
    answer: Inspection | None = None
    replaces: bool = False
    """The answer is about the reference itself and not about the pinned index: it is the next pin if it can be used."""
    question: Question | None = None

    def child(self, architecture: str) -> str | None:
        """As :func:`~polyarch.builds.architectures.children.child_of`; None also if it is not known yet.

        A registry that does not answer does not take a pin away."""
        if self.answer is not None and self.answer.status in _USABLE:
            return child_of(self.answer, architecture)
        return self.pin.children.get(architecture) if self.pin is not None else None


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The pins of a plan. A reference without a child for an architecture is not among them."""

    pins: Mapping[str, Mapping[str, str]] = {}
    """Architecture that is built → canonical reference as the Containerfile has it → digest of its child: what keys
    are made of."""
    pulled: Mapping[tuple[str, str], str] = {}
    """Canonical reference as the Containerfile has it and architecture → digest of the child: what Jobs pull, also for
    stages that run on another architecture than the one that is built."""
    bases: tuple[PinnedBase, ...] = ()
    """What is recorded for the next plan, sorted by reference."""
    questions: tuple[Question, ...] = ()
    requeue_after: float | None = None
    """Seconds until a pin has to be resolved again."""


def pinning(facts: Facts, architectures: Iterable[str], inputs: Inputs) -> Pinned:
    """The pins so far, to plan with. Where registries are for Jobs only nothing is asked or pinned (BD-178)."""
    if facts.leaves_registries_to_jobs:
        return Pinned()
    pins: dict[str, dict[str, str]] = {each: {} for each in sorted(architectures)}
    pulled: dict[tuple[str, str], str] = {}
    bases: dict[str, PinnedBase] = {}
    questions: list[Question] = []
    for need in needs(facts, architectures, inputs):
        if need.role != "base":
            continue
        seen = look_up(facts, need.asked, need.runs_on)
        if seen.question is not None:
            questions.append(seen.question)
            continue
        if child := seen.child(need.runs_on):
            pulled[need.reference, need.runs_on] = child
            if need.runs_on == need.architecture:
                pins[need.architecture][need.reference] = child
        if (base := _recorded(facts, need.asked, seen)) is not None:
            bases[need.asked] = base
    timed = bases.values() if facts.wish.spec.base_images.policy == "Interval" else ()
    return Pinned(
        pins=pins,
        pulled=pulled,
        bases=tuple(bases[each] for each in sorted(bases)),
        questions=each_once(questions),
        requeue_after=min((_due(facts, each) or RETRY_SECONDS for each in timed), default=None),
    )


def each_once(questions: Iterable[Question]) -> tuple[Question, ...]:
    """One question per reference, sorted: the strictest of those that there are."""
    strict: dict[str, bool] = {}
    for each in questions:
        strict[each.reference] = strict.get(each.reference, False) or each.revalidate
    return tuple(Question(reference=each, what="inspect", revalidate=strict[each]) for each in sorted(strict))


def look_up(facts: Facts, asked: str, architecture: str) -> Seen:
    """What decides about the child of a base for an architecture."""
    pin = next((each for each in facts.wish.pins if each.reference == asked), None)
    answer = facts.images.get(asked)
    if pin is None:
        return Seen(answer=answer, replaces=True) if answer is not None else Seen(question=_inspect(asked))
    policy = facts.wish.spec.base_images.policy
    due = _due(facts, pin) == 0
    if (policy == "OnBuild" or due) and facts.pins_fresh and answer is not None:
        return Seen(pin=pin, answer=answer, replaces=True)
    if due:
        return Seen(pin=pin, question=_inspect(asked, revalidate=True))
    if architecture in pin.children:
        return Seen(pin=pin)
    pinned = msgspec.structs.replace(parse(asked), tag=None, digest=pin.digest).canonical
    answer = facts.images.get(pinned)
    return Seen(pin=pin, answer=answer) if answer is not None else Seen(pin=pin, question=_inspect(pinned))


def _inspect(reference: str, *, revalidate: bool = False) -> Question:
    return Question(reference=reference, what="inspect", revalidate=revalidate)


def _recorded(facts: Facts, asked: str, seen: Seen) -> PinnedBase | None:
    """The next pin. One whose image is the same is as old as before, except where its age decides."""
    if seen.answer is None or seen.answer.status not in _USABLE:
        return seen.pin
    children = children_of(seen.answer)
    if not seen.replaces and seen.pin is not None:
        return msgspec.structs.replace(seen.pin, children={**children, **seen.pin.children})
    if not seen.answer.digest:
        return seen.pin
    new = PinnedBase(reference=asked, digest=seen.answer.digest, children=children, resolved=facts.now)
    same = seen.pin is not None and (seen.pin.digest, seen.pin.children) == (new.digest, new.children)
    return seen.pin if same and facts.wish.spec.base_images.policy != "Interval" else new


def _due(facts: Facts, pin: PinnedBase) -> float | None:
    """Seconds until its interval is over; None if it has none."""
    interval = BuildTimes.of(facts.wish.spec).interval
    return max(0.0, pin.resolved + interval - facts.now) if interval is not None else None
