"""The round of a build for which nothing new is started: what is wrong, and when it is looked at again. Pure.

Inputs that are wrong (BD-060, BD-320), a failure that nothing has released (BD-218), or what forbids a build for now.
"""

from collections.abc import Sequence
from typing import Final

from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.architectures.preflight import Preflight
from polyarch.builds.executions.carrying import carried
from polyarch.builds.executions.failures import LOOK_UP_INTERVAL, SECRET_INTERVAL, Hold, pause_since
from polyarch.builds.executions.moves import UNREACHABLE, Rules, moves
from polyarch.builds.executions.target import Target, target_of_execution
from polyarch.builds.executions.wanted import Wanted
from polyarch.builds.facts.facts import Facts, StepFailure
from polyarch.builds.facts.history import active_execution
from polyarch.builds.facts.problem import Problem
from polyarch.builds.facts.times import seconds
from polyarch.builds.plan import conditions
from polyarch.builds.plan.choice import Choice
from polyarch.builds.plan.rounds.decided import FIRST_RETRY, Round, standing, stored_tags

SPEC_REASONS: Final = frozenset(
    {
        "InvalidSpec",
        "ContainerfileInvalid",
        "ContainerfileMissing",
        "IndexForbidden",
        "ProfileForbidden",
        "NameTooLong",
        "DigestFormUnsupported",
        "KernelTypeUnsupportedForArchitecture",
    }
)
"""Reasons that only a change of the spec ends."""
INVALID_REASONS: Final = SPEC_REASONS | {"BaseImageArchitectureMissing", "BuilderImageArchitectureMissing"}
"""What cannot be built as it is said: ``Invalid``, though an image may get what it lacks. The others: ``Wait``."""
OBJECT_REASONS: Final = frozenset({"InputMissing", "SecretInvalid", "PodSecurityForbids", "NamespaceNotEnabled"})


def held(facts: Facts, known: Wanted, choice: Choice, hold: Hold) -> Round:
    """The newest execution failed, and nothing that failed it has changed (BD-218)."""
    return Round(
        decision="Held",
        reason=hold.causes[0].reason,
        message=hold.message,
        target=choice.target,
        ends_others=True,
        current=standing(facts),
        tags=stored_tags(facts),
        hold=hold,
        requeue_after=hold.requeue_after,
    )


def waiting(
    facts: Facts,
    known: Wanted,
    problems: Sequence[Problem],
    *,
    obstacle: Problem | None = None,
    target: Target | None = None,
    trouble: StepFailure | None = None,
    verdict: Preflight | None = None,
) -> Round:
    """Nothing new is started. What runs is looked at, but makes no further Jobs and publishes nothing (BD-023)."""
    active = active_execution(facts)
    done = None
    if active is not None:
        own = target_of_execution(active)
        rules = Rules(name=active.name, job_name=lambda _: "", host=lambda _: ("", ""), may_start=False)
        found = moves(facts, own, active, rules)
        done = carried(
            facts,
            own,
            found,
            before=active,
            name=active.name,
            serial=active.serial,
            tags=(),
            child_tags={},
            publishes=False,
        )
    first = problems[0] if problems else obstacle
    reason = first.reason if first is not None else known.resolved.wait
    messages = [each.message for each in problems] or [first.message if first is not None else known.resolved.message]
    undecided, pause = _patience(facts, problems, verdict)
    return Round(
        decision="Invalid" if any(each.reason in INVALID_REASONS for each in problems) else "Wait",
        reason=reason,
        message=" ".join(messages),
        target=target,
        before=active,
        carried=done,
        current=standing(facts),
        tags=stored_tags(facts),
        problems=tuple(problems),
        undecided=undecided,
        obstacle=obstacle,
        trouble=trouble,
        questions=done.questions if done is not None else (),
        requeue_after=sooner(pause, done.requeue_after if done is not None else None),
    )


def unreachable(what: str) -> Problem:
    """A registry that does not say what is there."""
    return Problem(reason=UNREACHABLE, message=f"{what}; it is tried again.")


def sooner(*times: float | None) -> float | None:
    """The first of some times, None for none."""
    return min((each for each in times if each is not None), default=None)


def _patience(facts: Facts, problems: Sequence[Problem], verdict: Preflight | None) -> tuple[bool, float | None]:
    """Whether it is too early to call the inputs invalid, and when to look again (BD-060, the failure table)."""
    reasons = {each.reason for each in problems}
    if reasons & OBJECT_REASONS:
        return False, SECRET_INTERVAL
    if not reasons or reasons <= SPEC_REASONS:
        return False, None
    if reasons != {UNREACHABLE}:
        return False, LOOK_UP_INTERVAL
    stored = conditions.stored(facts.wish.status, conditions.INPUTS_VALID)
    since = seconds(stored.get("lastTransitionTime")) if stored.get("reason") == UNREACHABLE else None
    since = since if since is not None else facts.now
    asked = verdict.retry_after if verdict is not None and verdict.retry_after is not None else 0.0
    if stored.get("status") == "False" and stored.get("reason") == UNREACHABLE:
        return False, max(asked, pause_since(since, facts.now))
    left = since + BuildTimes.of(facts.wish.spec).preflight - facts.now
    if left <= 0:
        return False, max(asked, pause_since(facts.now, facts.now))
    return True, min(left, max(asked, FIRST_RETRY))
