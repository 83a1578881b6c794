"""Runs with architectures that wait for a Job, in the order in which they get one (BD-154).

How many Jobs are under way is limited in the whole cluster, and an older Run comes first: what waits in it takes the
places of a younger one. But only what could begin if there were a place: not what its own build holds back, and not
Runs that nobody carries on.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from polyarch.builds.facts.executions import Run
from polyarch.builds.facts.facts import Execution
from polyarch.builds.facts.history import ENDED
from polyarch.builds.facts.times import seconds
from polyarch.objects import Key

NO_LIMIT: Final = 0
AT_WORK: Final = frozenset({"Building", "WaitingForNode"})

Limit = Callable[[Key], int | None]
"""Of a build: its ``maxParallel`` (``NO_LIMIT``: none); None if it does not wait for Jobs any more."""


class _Waiting(msgspec.Struct, frozen=True):
    build: Key
    created: float
    queued: int
    at_work: int


class JobQueue:
    """All Runs that wait."""

    def __init__(self) -> None:
        self._waiting: dict[Key, _Waiting] = {}

    def run_changed(self, key: Key, run: Run | None) -> None:
        """A Run as it is now; None: it is gone."""
        waiting = _waiting(run) if run is not None else None
        if waiting is not None:
            self._waiting[key] = waiting
        else:
            self._waiting.pop(key, None)

    def before(self, active: Execution | None, limit: Limit) -> int:
        """How many architectures of older Runs get a Job before one of this Run; without one, of all."""
        own = Key(active.namespace, active.name) if active is not None else None
        return sum(
            _places(each, limit(each.build))
            for key, each in self._waiting.items()
            if key != own and (active is None or (each.created, key) < (active.created, own))
        )


def _places(waiting: _Waiting, limit: int | None) -> int:
    if limit is None:
        return 0
    return waiting.queued if limit == NO_LIMIT else min(waiting.queued, max(0, limit - waiting.at_work))


def _waiting(run: Run) -> _Waiting | None:
    status = run.status or {}
    if status.get("phase") in ENDED:
        return None
    architectures = status.get("architectures")
    found = [each for each in (architectures if isinstance(architectures, list) else ()) if isinstance(each, Mapping)]
    queued = sum(_is_queued(each) for each in found)
    if not queued:
        return None
    metadata = run.metadata
    return _Waiting(
        build=Key(metadata.namespace, run.spec.image_build.name),
        created=seconds(metadata.creation_timestamp) or 0.0,
        queued=queued,
        at_work=sum(each.get("phase") in AT_WORK for each in found),
    )


def _is_queued(architecture: Mapping[str, Any]) -> bool:
    return architecture.get("phase") == "Pending" and architecture.get("reason") == "Queued"
