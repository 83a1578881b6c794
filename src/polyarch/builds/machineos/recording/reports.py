"""What a MachineOSConfig and its pool tell about builds (BD-048, BD-279, BD-280, BD-283). Pure.

Both have other writers: of their statuses only our own conditions change, of the rest only our own members.
"""

from collections.abc import Iterator, Mapping
from math import floor
from typing import Any, Final

from polyarch.builds import names
from polyarch.builds.executions.failures import causes_of
from polyarch.builds.facts.times import written
from polyarch.builds.machineos import annotations as asked
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case, name_of, uid_of
from polyarch.builds.machineos.recording import records
from polyarch.builds.plan import conditions
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write

DEGRADED: Final = "ImageBuildDegraded"
_THERE: Final = ("UpToDate", "Retag", "Repoint")


def writes(case: Case, course: Course, chosen: str) -> Iterator[Write]:
    """``chosen``: the build for the pool's current configuration, as far as there is one."""
    yield from _config_status(case, course)
    yield from _config_annotations(case, course, chosen)
    yield from _pool(case, course, chosen)


def is_settled(course: Course) -> bool:
    """Whether inputs are wrong for good, and not only being tried still."""
    return any(each.type == conditions.INPUTS_VALID and each.status == "False" for each in course.conditions)


def is_refused(course: Course) -> bool:
    """Whether what is wrong is told as a build that has failed: the config is right enough to name one (BD-268)."""
    translated = any(each.severity == "Error" for each in course.facts.wish.problems)
    return bool(course.problems) and is_settled(course) and not translated


def _config_status(case: Case, course: Course) -> Iterator[Write]:
    stored: Mapping[str, Any] = case.config.get("status") or {}
    generation, now = course.facts.wish.generation, floor(course.facts.now)
    ours = conditions.merged(course.conditions, stored.get("conditions"), generation=generation, now=now)
    types = {each["type"] for each in ours}
    status: dict[str, Any] = {
        **stored,
        "observedGeneration": max(int(stored.get("observedGeneration") or 0), generation),
        "conditions": [*(each for each in stored.get("conditions") or () if each.get("type") not in types), *ours],
    }
    if course.current is not None and course.current.result:
        status["currentImagePullSpec"] = course.current.result
        status["machineOSBuild"] = {
            "group": vocabulary.GROUP,
            "resource": vocabulary.BUILDS.plural,
            "name": course.current.name,
        }
    if status != stored:
        kind, uid = vocabulary.CONFIGS.kind, uid_of(case.config)
        yield Write(verb="status", kind=kind, name=case.name, step="S10", uid=uid, body={"status": status})


def _config_annotations(case: Case, course: Course, chosen: str) -> Iterator[Write]:
    wanted: dict[str, str | None] = {}
    if course.architectures:
        wanted[names.ARCHITECTURES_ANNOTATION] = ",".join(course.architectures)
    if chosen:
        wanted[vocabulary.CURRENT_BUILD] = chosen
    if vocabulary.REBUILD in case.annotations and _is_honoured(case, course):
        wanted[vocabulary.REBUILD] = None
    if vocabulary.PRE_BUILT in case.annotations and case.builds and course.current is not None:
        wanted[vocabulary.PRE_BUILT] = None
    change = {key: text for key, text in wanted.items() if case.annotations.get(key) != text}
    if change:
        yield Write(
            verb="patch",
            kind=vocabulary.CONFIGS.kind,
            name=case.name,
            step="S10",
            how="merge",
            uid=uid_of(case.config),
            body={"metadata": {"annotations": change}},
        )


def _is_honoured(case: Case, course: Course) -> bool:
    """The build that was asked for is there, or what is asked for is none of this pool's architectures (BD-279)."""
    if any(records.read(case.record(each)).rebuild for each in case.builds):
        return True
    asking = asked.rebuild(case.annotations)
    listed = set(asking.architectures) if asking is not None else set()
    return bool(listed) and course.architectures is not None and not listed & set(course.architectures)


def _pool(case: Case, course: Course, chosen: str) -> Iterator[Write]:
    pool = case.pool
    if pool is None:
        return
    kind, name, uid = vocabulary.POOLS.kind, name_of(pool), uid_of(pool)
    if course.architectures:
        text = ",".join(course.architectures)
        known = (pool.get("metadata") or {}).get("annotations") or {}
        if known.get(names.ARCHITECTURES_ANNOTATION) != text:
            body: dict[str, Any] = {"metadata": {"annotations": {names.ARCHITECTURES_ANNOTATION: text}}}
            yield Write(verb="patch", kind=kind, name=name, step="S10", how="merge", uid=uid, body=body)
    said = _degraded(case, course, chosen)
    if said is None:
        return
    status: Mapping[str, Any] = pool.get("status") or {}
    known_conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    stored: Mapping[str, Any] = next((each for each in known_conditions if each.get("type") == DEGRADED), {})
    if all(stored.get(key) == text for key, text in said.items()):
        return
    since = stored.get("lastTransitionTime") if stored.get("status") == said["status"] else None
    ours = {"type": DEGRADED, **said, "lastTransitionTime": since or written(floor(course.facts.now))}
    others = [each for each in known_conditions if each.get("type") != DEGRADED]
    body = {"status": {**status, "conditions": [*others, ours]}}
    yield Write(verb="status", kind=kind, name=name, step="S10", uid=uid, body=body)


def _degraded(case: Case, course: Course, chosen: str) -> dict[str, str] | None:
    """Status, reason and message of the pool's condition; None where it stays as it is."""
    state = course.execution
    if is_refused(course):
        return _failed(case, chosen, "; ".join(f"{each.reason}: {each.message}" for each in course.problems))
    if state is not None and state.phase in ("Failed", "Interrupted"):
        return _failed(case, state.name, "; ".join(each.text for each in causes_of(state)))
    if state is not None and not state.finished:
        return {"status": "False", "reason": "Building", "message": f"{state.name} is being built."}
    if course.decision in _THERE or (state is not None and state.phase == "Succeeded"):
        return {"status": "False", "reason": "BuildSuccess", "message": ""}
    return None


def _failed(case: Case, build: str, why: str) -> dict[str, str]:
    message = f"Failed to build OS image for pool {case.pool_name} (MachineOSBuild: {build}): {why}"
    return {"status": "True", "reason": "BuildFailed", "message": conditions.within(message)}
