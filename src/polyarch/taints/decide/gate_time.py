"""How long a stored pod waits for answers, and what that means for its decision (TN-046, TN-048).

Seconds are counted from the pod's creation, so that a new leader does not start again. Pure: no clock of its own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from polyarch.oci.answer import Inspection
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import PodDecision, Progress
from polyarch.taints.decide.rules import Case, decide


class Waited(NamedTuple):
    """How long a stored pod has waited for its images, and what is still to come."""

    seconds: float = 0.0
    """Since the pod was created."""
    pending: bool = False
    """One of its images has neither answered nor failed since this process first saw the pod."""
    released: bool = False
    """Placement lifts its gate now, so the pod cannot wait any longer (TN-046)."""


def progress(settings: TaintSettings, waited: Waited) -> Progress:
    """What missing answers mean after this time."""
    if waited.released or waited.seconds >= settings.gate_timeout:
        return Progress.ENDED
    return Progress.WAITING if waited.pending else Progress.FAILING


def decide_after(case: Case, answers: Mapping[str, Inspection], waited: Waited) -> PodDecision:
    """The decision about a stored pod, from the present answers and its waiting time."""
    return decide(case, answers, progress(case.settings, waited))


def next_change(decision: PodDecision, settings: TaintSettings, waited: Waited) -> float | None:
    """Seconds until the time of the gate ends; None if only an answer can change the decision."""
    if not decision.unresolved or waited.seconds >= settings.gate_timeout:
        return None
    return settings.gate_timeout - waited.seconds
