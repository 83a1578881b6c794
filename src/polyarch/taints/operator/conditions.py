"""The conditions of ArchitectureTaints that the operator writes (TN-013, TN-014, TN-073).

The role's leader writes the status. What it cannot know, or cannot say because no pod of it runs, the operator says, as
a field manager of its own: an entry of the list has one writer at a time. Pure.
"""

from collections.abc import Iterable
from typing import Final

from polyarch.kube.objects.conditions import Condition
from polyarch.operating.rollouts import Rollout
from polyarch.taints import names

FIELD_MANAGER: Final = "polyarch-operator"
NAMED_AT_MOST: Final = 5
LONGEST: Final = 4096
"""Characters of one message."""


def while_deployed(rollout: Rollout, problems: Iterable[str], covered: Condition | None) -> tuple[Condition, ...]:
    """While the object exists. ``covered``: condition ``AffinityCovered``; None in modes that have none."""
    found = [covered] if covered is not None else []
    if not rollout.available:
        told = "; ".join([f"Deployment {names.ROLE}: {rollout.summary}", *_few(list(problems))])
        found.append(_condition("Ready", "False", "RoleNotAvailable", told))
    return tuple(found)


def while_leaving(failures: Iterable[str]) -> tuple[Condition, ...]:
    """While the object is being deleted. ``failures``: what the operator itself could not remove, and why."""
    several = list(failures)
    if not several:
        return ()
    told = f"taints or gates could not be removed: {'; '.join(_few(several))}"
    return (_condition("Degraded", "True", "NotRemoved", told),)


def _few(several: list[str]) -> list[str]:
    more = len(several) - NAMED_AT_MOST
    return [*several[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else [])]


def _condition(type: str, status: str, reason: str, message: str) -> Condition:
    shown = message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"
    return Condition(type, "True" if status == "True" else "False", reason, shown)
