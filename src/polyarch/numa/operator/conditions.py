"""The conditions that both custom resources have, from one verdict (NO-090). Pure."""

from typing import Final, Literal

import msgspec

from polyarch.objects import Condition

AS_EXPECTED: Final = "AsExpected"
INTERNAL_ERROR: Final = "InternalError"
VALIDATION: Final = "ValidationErrorUnderNodeGroups"
CUSTOM_IMAGE: Final = "CustomUserImage"
INVALID_SCHEDULER_IMAGE: Final = "InvalidSchedulerImage"
OPERATOR_NAME: Final = "IncorrectNUMAResourcesOperatorResourceName"
SCHEDULER_NAME: Final = "IncorrectNUMAResourcesSchedulerResourceName"
POOL_UPDATING: Final = "MachineConfigPoolIsUpdating"
DAEMON_SET_UPDATING: Final = "DaemonSetIsUpdating"
DEPLOYMENT_UPDATING: Final = "DeploymentIsUpdating"

State = Literal["Available", "Progressing", "Degraded"]
STATES: Final[tuple[State, ...]] = ("Available", "Progressing", "Degraded")
LONGEST: Final = 4096
"""Characters of one message."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """How it is, why, and the same for people."""

    state: State
    reason: str = AS_EXPECTED
    message: str = ""


def four(verdict: Verdict) -> tuple[Condition, ...]:
    """``Available``, ``Upgradeable``, ``Progressing`` and ``Degraded``: exactly one of the three states is True, and
    what is available can be upgraded."""
    message = verdict.message if len(verdict.message) <= LONGEST else verdict.message[: LONGEST - 1] + "…"

    def of(kind: str, state: State) -> Condition:
        holds = verdict.state == state
        return Condition(kind, "True" if holds else "False", verdict.reason, message)

    return (
        of("Available", "Available"),
        of("Upgradeable", "Available"),
        of("Progressing", "Progressing"),
        of("Degraded", "Degraded"),
    )
