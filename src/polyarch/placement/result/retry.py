"""Retry windows of unresolved images: how long a pod waits, and what follows (PL-330 to PL-334).

Times are seconds since this process's first attempt for the pod, on the monotonic clock. How long to wait between
attempts is in ``images.backoff``. Pure: no clock of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from polyarch.images.pod_images import Finding
from polyarch.oci.answer import Inspection
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide.decision import Decision, Outcome, Progress
from polyarch.placement.decide.rules import Assessment, Case, assess, conclude

SHORT_WINDOW: Final = 30.0
"""For failures that waiting rarely cures: absent, auth, configuration."""
FAILING_AFTER: Final = 2.0
"""When a waiting pod is labelled as failing (PL-332)."""
NEVER: Final = float("inf")

_LASTING: Final = ("absent", "auth", "configuration")


def window(error_class: str, retry_window: float) -> float:
    """How long a failure of this class is retried; a pending image has the class ``""``."""
    if error_class == "content":
        return 0.0
    return min(retry_window, SHORT_WINDOW) if error_class in _LASTING else retry_window


def deadline(unresolved: Iterable[Finding], settings: Settings) -> float:
    """When the pod gives up: the earliest end among its unresolved images; :data:`NEVER` if there are none."""
    return min((window(finding.error_class, settings.retry_window) for finding in unresolved), default=NEVER)


class Waited(NamedTuple):
    """How long a pod has waited, and its state since."""

    seconds: float = 0.0
    """Since this process's first attempt for the pod."""
    pending: bool = False
    """One of its images has neither answered nor failed since the pod was first seen: the pod waits for it, whatever
    the results of the others."""
    held: bool = False
    """The pod is already held, and stays held during a new attempt for an image."""


def decide_after(case: Case, answers: Mapping[str, Inspection], waited: Waited) -> Decision:
    """The decision for a stored pod, from the present answers and its waiting time."""
    assessment = assess(case, answers)
    reached = progress(assessment, case.settings, waited)
    return conclude(case, assess(case, answers, final=True) if reached.is_final else assessment, reached)


def progress(assessment: Assessment, settings: Settings, waited: Waited) -> Progress:
    """The progress of waiting; ``WAITING`` also if there is nothing to wait for."""
    unresolved = assessment.unresolved if not assessment.is_impossible else ()
    if not unresolved:
        return Progress.WAITING
    elapsed = waited.seconds
    if elapsed >= deadline(unresolved, settings):
        held_out = settings.unresolved_action == "hold" and elapsed >= _hold_limit(settings)
        stays_held = settings.unresolved_action == "hold" and waited.held and not held_out
        if stays_held or not waited.pending:
            return Progress.HOLD_ENDED if held_out else Progress.ENDED
    failing = elapsed >= FAILING_AFTER and any(not finding.is_pending for finding in unresolved)
    return Progress.FAILING if failing else Progress.WAITING


def _hold_limit(settings: Settings) -> float:
    return settings.hold_limit if settings.hold_limit is not None else NEVER


def next_change(decision: Decision, settings: Settings, elapsed: float) -> float | None:
    """Seconds until a time limit changes the pod's progress; None if only an answer can."""
    unresolved = decision.unresolved
    if not unresolved or decision.outcome is Outcome.PLACED:
        return None
    ends = [FAILING_AFTER, deadline(unresolved, settings)]
    if settings.unresolved_action == "hold" and settings.hold_limit is not None:
        ends.append(settings.hold_limit)
    return min((end - elapsed for end in ends if end > elapsed), default=None)
