"""What is to be done about one MachineOSConfig: the planner's plan, and what only their API has (BD-281, BD-286).

An image that was built before is taken as it is; a build that adds an architecture is announced, since it rolls out to
every node of the pool; stock reasons of events go with the writes that they tell of.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from polyarch.builds.api.resources import Base
from polyarch.builds.executions.wanted import wanted
from polyarch.builds.facts.facts import Facts
from polyarch.builds.facts.history import current_execution, published_architectures
from polyarch.builds.machineos import seeding, vocabulary
from polyarch.builds.machineos.case import Case
from polyarch.builds.machineos.front import MachineFront
from polyarch.builds.machineos.recording import stock_events
from polyarch.builds.machineos.recording.lifecycle import SEEDED
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Plan, PlannedEvent
from polyarch.builds.plan.planner import plan as planned
from polyarch.objects import Condition

SEEDED_CONDITION: Final = "Seeded"
"""Of a config whose first result was taken as it was."""


def plan(facts: Facts, case: Case) -> Plan:
    """The plan for a MachineOSConfig."""
    seeded = _seeded(facts, case)
    if seeded is not None:
        return seeded
    found = planned(facts, MachineFront(case))
    told = (*found.events, *_rollout(facts, case, found), *stock_events.of(facts, case, found))
    return msgspec.structs.replace(found, events=told)


def _seeded(facts: Facts, case: Case) -> Plan | None:
    """The plan that takes an image as it is, where one is named and nothing keeps it from being taken (BD-281)."""
    image = seeding.image_of(case)
    if not image:
        return None
    known = wanted(facts)
    target = known.target
    asked = seeding.question(facts, image, case)
    questions = (*known.questions, *((asked,) if asked is not None else ()))
    if questions:
        return Plan(decision="Wait", reason="Asking", message=f"{image} is looked up first.", questions=questions)
    if target is None or not seeding.is_possible(facts, image, case):
        return None
    front = MachineFront(case)
    name, _ = front.name(facts, target)
    made = seeding.state(facts, known, target, name, image)
    message = f"{made.result} is taken as it is: annotation {vocabulary.PRE_BUILT} names it."
    course = Course(
        facts=facts,
        decision="Reassemble",
        reason=SEEDED,
        message=message,
        architectures=target.architectures,
        target=target,
        execution=made,
        current=made,
        conditions=(Condition(SEEDED_CONDITION, "True", SEEDED, message),),
        bases=tuple(Base(reference=each.reference, digest=each.digest) for each in known.bases or ()),
    )
    writes = (*front.create(course, made), *front.record(course, None, made), *front.report(course))
    return Plan(
        decision=course.decision,
        reason=SEEDED,
        message=message,
        architectures=target.architectures,
        keys=target.keys,
        build_key=target.build_key,
        execution=name,
        conditions=course.conditions,
        writes=writes,
    )


def _rollout(facts: Facts, case: Case, found: Plan) -> Iterator[PlannedEvent]:
    """Nodes compare what they run with the whole of a pull spec, so another architecture is another image (BD-286)."""
    current = current_execution(facts)
    joining = [each for each in found.architectures if each not in published_architectures(current)]
    if current is None or found.decision not in ("Build", "Reassemble") or not joining:
        return
    message = (
        f"With {', '.join(joining)} the image of pool {case.pool_name} gets another digest, so all of its nodes are "
        f"updated, also those of other architectures. To put that off: annotation {vocabulary.ON_NEW}: NextBuild."
    )
    yield PlannedEvent(type="Normal", reason="RolloutExpected", message=message, execution=found.execution)
