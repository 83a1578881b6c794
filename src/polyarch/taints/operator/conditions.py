"""The conditions of ArchitectureTaints that the operator writes (TN-013, TN-014, TN-073).

The role's leader writes the status. What it cannot know the operator applies as a field manager of its own. What it
cannot say, because no pod of it runs, the operator sets until the leader is back. Pure.
"""

from collections.abc import Sequence
from typing import Final

from polyarch.objects import Condition
from polyarch.operating.rollouts import Rollout
from polyarch.taints import names

FIELD_MANAGER: Final = "polyarch-operator"
DEPLOYED: Final = "Deployed"
"""Only there while it is False."""
SILENCE: Final = 30.0
"""Seconds without an available pod after which what the leader said last is no longer true."""
NAMED_AT_MOST: Final = 5
LONGEST: Final = 4096
"""Characters of one message."""


def not_available(rollout: Rollout, problems: Sequence[str]) -> Condition:
    """No pod of the role is available. ``problems``: objects that the API server refused."""
    told = "; ".join([f"Deployment {names.ROLE}: {rollout.summary}", *_few(problems)])
    return Condition("Ready", "False", "RoleNotAvailable", _shortened(told))


def refused(problems: Sequence[str]) -> Condition | None:
    """Not everything of the role is as it should be, whatever its leader says; None: it is."""
    return Condition(DEPLOYED, "False", "OperandRefused", _shortened("; ".join(_few(problems)))) if problems else None


def not_removed(failures: Sequence[str]) -> Condition:
    """The object is being deleted, and this is what the operator itself could not remove, and why."""
    told = f"taints or gates could not be removed: {'; '.join(_few(failures))}"
    return Condition("Degraded", "True", "NotRemoved", _shortened(told))


def _few(several: Sequence[str]) -> list[str]:
    more = len(several) - NAMED_AT_MOST
    return [*several[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else [])]


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"
