"""What of a status is to be written, and whether it may wait (BD-243, BD-324).

A plan holds the whole status as it should be. Written is only the difference from the stored one, as a merge patch: a
member that somebody added by hand is removed, one that was changed is put right, and an equal status costs no request.
Progress (a pod has started, a message reads otherwise) may wait two seconds for more of it; the end of something never
waits, as other steps stand on it. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from polyarch.builds.facts.history import ENDED, ENDED_CHILD

PACE: Final = 2.0
"""Seconds between two writes of progress to one object (BD-243)."""
_RESULTS: Final = ("image", "currentRun", "activeRun", "rebuildToken", "result", "index")
"""Members of which every change is an end or a beginning."""


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) that makes ``wanted`` of ``stored``; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in stored if wanted.get(name) is None and stored[name] is not None}
    for name, value in wanted.items():
        known = stored.get(name)
        if value is None or value == known:
            continue
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            if inner := difference(known, value):
                patch[name] = inner
        else:
            patch[name] = value
    return patch


def may_wait(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the difference is progress only: nothing ended, and no condition says anything new."""
    if any(stored.get(name) != wanted.get(name) for name in _RESULTS):
        return False
    if wanted.get("phase") in ENDED and stored.get("phase") != wanted.get("phase"):
        return False
    return _ended(wanted) <= _ended(stored) and _verdicts(wanted) == _verdicts(stored)


class Pace:
    """When progress of each object was written last; ``uid`` identifies the object."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    def rest(self, uid: str, now: float) -> float:
        """Seconds until progress may be written again; 0 if it may be now."""
        last = self._written.get(uid)
        return max(0.0, last + PACE - now) if last is not None else 0.0

    def wrote(self, uid: str, now: float) -> None:
        """Progress was written. What is older than the pace is forgotten."""
        self._written = {each: at for each, at in self._written.items() if now - at < PACE}
        self._written[uid] = now


def _architectures(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Of an ImageBuildRun; an ImageBuild has their names there."""
    return (each for each in status.get("architectures") or () if isinstance(each, Mapping))


def _ended(status: Mapping[str, Any]) -> set[tuple[Any, Any]]:
    return {
        (each.get("architecture"), each.get("phase"))
        for each in _architectures(status)
        if each.get("phase") in ENDED_CHILD
    }


def _verdicts(status: Mapping[str, Any]) -> set[tuple[Any, Any, Any]]:
    return {
        (each.get("type"), each.get("status"), each.get("reason"))
        for each in status.get("conditions") or ()
        if isinstance(each, Mapping)
    }
