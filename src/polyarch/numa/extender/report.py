"""The state document of the running extender (NS-087), encoded a few nodes at a time: no question waits for it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from polyarch.clock import Clock
from polyarch.numa.extender.engine import Engine
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import CacheState, NodeState, Options, State, document

AT_ONCE: Final = 100
"""Nodes between two looks at whether somebody else has something to do."""
_encode: Final = msgspec.json.Encoder().encode


class _Pieces(State, frozen=True, kw_only=True):
    nodes: tuple[msgspec.Raw, ...] = ()  # type: ignore[assignment]


class Report:
    """Writes the document of ``/numa/state``."""

    def __init__(
        self,
        engine: Engine,
        *,
        caches: Callable[[], Mapping[str, CacheState]],
        problem: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._caches = caches
        self._problem = problem
        self._clock = clock

    async def state(self, names: frozenset[str]) -> bytes:
        """Of the nodes of these names; of all without one."""
        books, now = self._engine.books, self._clock.monotonic()
        wanted = sorted(name for name in books.names() if not names or name in names)
        pieces: list[msgspec.Raw] = []
        for start in range(0, len(wanted), AT_ONCE):
            states: list[NodeState] = [books.node_state(name, now) for name in wanted[start : start + AT_ONCE]]
            pieces += [msgspec.Raw(_encode(each)) for each in states]
            await asyncio.sleep(0)
        found = set(wanted)
        return document(
            _Pieces(
                problem=self._problem(),
                options=options(self._engine.settings),
                caches=self._caches(),
                nodes=tuple(pieces),
                reservations=tuple(each for each in books.reservations(now) if each.node in found),
                verdicts=tuple(self._engine.verdicts(now)),
            )
        )


def options(settings: ExtenderSettings) -> Options:
    """What decisions depend on beside the cluster."""
    return Options(
        mode=settings.mode,
        scheduler_name=settings.scheduler_name,
        strategy=settings.strategy,
        weights=settings.weights,
        restricted=settings.restricted,
        best_effort=settings.best_effort,
        unknown_nodes=settings.unknown_nodes,
        candidates=settings.candidates,
        reservations=settings.reservations,
        evicts=settings.evicts,
    )
