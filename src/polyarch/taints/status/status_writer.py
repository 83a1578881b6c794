"""Writes the status of ArchitectureTaints: at most every 10 s, and only what changed (TN-014).

The leader runs it as a controller with one key. Each pass asks the parts of the role for their contributions and looks
again in 10 s; a change of the object is answered at once, unless the last write was less than 10 s ago. A configuration
from a file has no status: there the same values are logged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.conditions import merged
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import Resource
from polyarch.objects import Key, PartialObjectMetadata
from polyarch.taints.api.resources import ARCHITECTURE_TAINTS, ArchitectureTaints, ArchitectureTaintsStatus
from polyarch.taints.names import SINGLETON
from polyarch.taints.result.contribution import DEGRADED, Contribution, composed

log = structlog.get_logger(__name__)

EVERY: Final = 10.0
"""Least seconds between two writes, and between two looks."""
OBJECT: Final = Key("", SINGLETON)

Part = Callable[[], Contribution]


class Configured(Protocol):
    """The part of ``TaintFacts`` that is needed here."""

    @property
    def configuration(self) -> ArchitectureTaints | None: ...


class AppliesStatus(Protocol):
    """The part of the client that is needed here."""

    async def apply(
        self, resource: Resource, document: Mapping[str, Any], *, subresource: str = ""
    ) -> PartialObjectMetadata: ...


class StatusWriter:
    """The writer. ``parts`` contribute; ``from_file``: the configuration has no object in the cluster."""

    def __init__(
        self,
        facts: Configured,
        client: AppliesStatus,
        parts: Sequence[Part],
        *,
        clock: Clock,
        from_file: bool = False,
    ) -> None:
        self._facts = facts
        self._client = client
        self._parts = tuple(parts)
        self._clock = clock
        self._from_file = from_file
        self._written_at: float | None = None
        self._logged: ArchitectureTaintsStatus | None = None
        self.is_degraded = False
        """What condition ``Degraded`` was at the last look."""

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        found = self._facts.configuration
        if found is None:
            self.is_degraded = False
            return Done()
        rest = 0.0 if self._written_at is None else self._written_at + EVERY - self._clock.monotonic()
        if rest > 0:
            return After(rest)
        status = self._status(found)
        self.is_degraded = any((each["type"], each["status"]) == (DEGRADED, "True") for each in status["conditions"])
        if self._from_file:
            self._log(status)
        elif not self._is_there(status, found):
            await self._write(status, found)
        return After(EVERY)

    def _status(self, found: ArchitectureTaints) -> dict[str, Any]:
        fields, conditions = composed(part() for part in self._parts)
        generation = found.metadata.generation
        known = [msgspec.to_builtins(each) for each in found.status.conditions or ()]
        return {
            "observedGeneration": generation,
            **fields,
            "conditions": merged(conditions, known, generation=generation, now=self._clock.now()),
        }

    def _is_there(self, status: dict[str, Any], found: ArchitectureTaints) -> bool:
        """Whether the object says so already; a condition of others (``AffinityCovered``) is none of this."""
        wanted = msgspec.convert(status, ArchitectureTaintsStatus)
        own = {each.type: each for each in wanted.conditions or ()}
        theirs = {each.type: each for each in found.status.conditions or () if each.type in own}
        rest = msgspec.structs.replace(found.status, conditions=wanted.conditions)
        return theirs == own and rest == wanted

    async def _write(self, status: dict[str, Any], found: ArchitectureTaints) -> None:
        metadata = {"name": found.metadata.name, "uid": found.metadata.uid}
        document = {
            "apiVersion": ARCHITECTURE_TAINTS.api_version,
            "kind": ARCHITECTURE_TAINTS.kind,
            "metadata": metadata,
            "status": status,
        }
        self._written_at = self._clock.monotonic()
        try:
            await self._client.apply(ARCHITECTURE_TAINTS, document, subresource="status")
        except NotFound:
            log.info("the configuration is gone: its status is not written")

    def _log(self, status: dict[str, Any]) -> None:
        """Times of conditions are not kept anywhere, so they are compared without them."""
        typed = msgspec.convert(status, ArchitectureTaintsStatus)
        conditions = [msgspec.structs.replace(each, last_transition_time="") for each in typed.conditions or ()]
        shown = msgspec.structs.replace(typed, conditions=conditions)
        if shown != self._logged:
            self._logged = shown
            log.info("status", **msgspec.to_builtins(shown))
