"""The five conditions of a MachineOSBuild, and the steps that are allowed between them (BD-271 to BD-273).

Consumers read them as one stage: which condition is True. Their API freezes conditions once a terminal one is True, so
the terminal write holds everything; times that may not change are never written twice.
"""

from collections.abc import Iterable, Mapping
from math import floor
from typing import Any, Final, Literal

from polyarch.builds.executions.state import FINAL_CHILD, State
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.facts.times import seconds, written

Stage = Literal["", "Prepared", "Building", "Failed", "Interrupted", "Succeeded"]
"""The type of the condition that is True; empty: none is."""

CONDITIONS: Final[Mapping[Stage, tuple[str, str]]] = {
    "Prepared": ("Prepared", "Build Prepared and Pending"),
    "Building": ("Building", "Image Build In Progress"),
    "Failed": ("Failed", "Build Failed"),
    "Interrupted": ("Interrupted", "Build Interrupted"),
    "Succeeded": ("Ready", "Build Ready"),
}
"""Type → reason and message, in the order in which they stand in a status."""
SEEDED: Final = "PreBuiltImageSeeded"
"""The reason of ``Succeeded`` where no build was needed (BD-281)."""
TERMINAL: Final = frozenset({"Failed", "Interrupted", "Succeeded"})
MOST_RELATED: Final = 10


def stage_of(status: Mapping[str, Any]) -> Stage | None:
    """The stored stage; None where no conditions are stored yet."""
    stored = status.get("conditions")
    if not stored:
        return None
    true = {each.get("type") for each in stored if each.get("status") == "True"}
    return next((stage for stage in CONDITIONS if stage in true), "")


def observed_stage(state: State, jobs: Iterable[JobFacts]) -> Stage:
    """The stage that an execution stands for: ``Prepared`` as long as no pod of its Jobs has begun (BD-272)."""
    match state.phase:
        case "Succeeded" | "Failed" | "Interrupted":
            return state.phase
        case _:
            pass
    begun = [each for each in state.children if each.job]
    if not begun:
        return ""
    own = [job for job in jobs if job.run == state.name]
    has_pods = any(job.active or job.failed or job.succeeded or job.uncounted for job in own)
    if has_pods or any(each.phase in FINAL_CHILD for each in begun):
        return "Building"
    return "Prepared"


def steps(stored: Stage | None, wanted: Stage) -> tuple[Stage, ...]:
    """The stages to write one after the other: none is skipped or taken back that their API forbids to (BD-271)."""
    if stored is None:
        return ("", wanted) if wanted else ("",)
    if stored == wanted or stored in TERMINAL or not wanted or (stored, wanted) == ("Building", "Prepared"):
        return ()
    return (wanted,)


def conditions(
    stage: Stage, stored: Iterable[Mapping[str, Any]] | None, *, now: float, reason: str = ""
) -> list[dict[str, Any]]:
    """All five. The time of one changes with its status only; ``reason`` is another one for the True condition."""
    known = {each.get("type"): each for each in stored or ()}
    found: list[dict[str, Any]] = []
    for kind, (usual, message) in CONDITIONS.items():
        status = "True" if kind == stage else "False"
        before = known.get(kind) or {}
        unchanged = before.get("status") == status and before.get("lastTransitionTime")
        found.append(
            {
                "type": kind,
                "status": status,
                "reason": reason if reason and kind == stage else usual,
                "message": message,
                "lastTransitionTime": before["lastTransitionTime"] if unchanged else written(floor(now)),
            }
        )
    return found


def build_start(stored: Mapping[str, Any], jobs: Iterable[JobFacts], *, now: float) -> str:
    """What is stored, else when the first Job was made, else now: it may never change (BD-273)."""
    kept = stored.get("buildStart")
    return str(kept) if kept else str(written(floor(min((job.created for job in jobs), default=now))))


def build_end(start: str, *, now: float) -> str:
    """Strictly after the start, by whole seconds (BD-273)."""
    began = seconds(start) or 0.0
    return str(written(max(floor(now), floor(began) + 1)))


def related(namespace: str, jobs: Iterable[str]) -> list[dict[str, str]]:
    """The Jobs, ten at most. Objects of the core group cannot be listed: an empty group is refused (BD-273)."""
    return [job_reference(namespace, name) for name in sorted(set(jobs))][:MOST_RELATED]


def job_reference(namespace: str, name: str) -> dict[str, str]:
    return {"group": "batch", "resource": "jobs", "namespace": namespace, "name": name}
