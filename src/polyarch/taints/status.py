"""Writes the status of ArchitectureTaints: at most every 10 s, and only what changed.

The leader runs it as a controller with one key. Each pass asks the parts of the role for their contributions and looks
again in 10 s; a change of the object is answered at once, unless the last write was less than 10 s ago. A configuration
from a file has no status: there the same values are logged. The part about nodes, :class:`NodeStatusPart`, is made
here, since census, rollout and registration policy all have a share in it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.conditions import AppliesStatus, merged
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import NotFound
from polyarch.objects import Condition, ObjectKey
from polyarch.taints.api import (
    ARCHITECTURE_TAINTS,
    DEGRADED,
    NODES_TAINTED,
    SAFE_TO_TAINT,
    ArchitectureStatus,
    ArchitectureTaints,
    ArchitectureTaintsStatus,
    NodesStatus,
    Problem,
    StatusPart,
    composed,
)
from polyarch.taints.facts import TaintFacts
from polyarch.taints.names import REGISTRATION_POLICY, SINGLETON
from polyarch.taints.node_rules import RolloutPauseReason, named
from polyarch.taints.nodes import MANAGED, NodeController, NodeTaintState, TaintedNodeIndex
from polyarch.taints.registration import RegistrationPolicyController
from polyarch.taints.rollout import TaintRollout
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

WRITE_INTERVAL: Final = 10.0
"""Least seconds between two writes, and between two looks."""
OBJECT: Final = ObjectKey("", SINGLETON)

Part = Callable[[], StatusPart]


class StatusWriter:
    """The writer. ``parts`` contribute; ``from_file``: the configuration has no object in the cluster."""

    def __init__(
        self,
        facts: TaintFacts,
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

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass."""
        found = self._facts.configuration
        if found is None:
            self.is_degraded = False
            return NoRequeue()
        rest = 0.0 if self._written_at is None else self._written_at + WRITE_INTERVAL - self._clock.monotonic()
        if rest > 0:
            return RequeueAfter(rest)
        status = self._status(found)
        self.is_degraded = any((each["type"], each["status"]) == (DEGRADED, "True") for each in status["conditions"])
        if self._from_file:
            self._log(status)
        elif not self._is_there(status, found):
            await self._write(status, found)
        return RequeueAfter(WRITE_INTERVAL)

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


# -- the contribution about nodes --------------------------------------------------------------------------------------

NOT_SERVED: Final = (
    "spec.nodes.atRegistration has no effect, as the API server serves no MutatingAdmissionPolicies: new nodes are "
    "tainted when they are seen; `polyarch taint plan --emit kubelet-flags` prints flags by which they register tainted"
)


class NodeStatusPart:
    """Its contribution; ``admission`` says why the webhook for pods is not available, or nothing."""

    def __init__(
        self,
        *,
        facts: TaintFacts,
        nodes: NodeController,
        rollout: TaintRollout,
        registration: RegistrationPolicyController,
        admission: Callable[[], str],
    ) -> None:
        self._facts = facts
        self._nodes = nodes
        self._rollout = rollout
        self._registration = registration
        self._admission = admission

    def contribution(self) -> StatusPart:
        """What is said of nodes now."""
        settings = self._facts.settings or TaintSettings()
        census = self._nodes.census
        admission = self._admission()
        managed, tainted = census.number(*MANAGED), census.marked
        meant = census.number(NodeTaintState.TAINTED, NodeTaintState.WAITING)
        return StatusPart(
            fields={
                "key": settings.key,
                "architectures": [msgspec.to_builtins(each) for each in self._rows(census)],
                "nodes": msgspec.to_builtins(
                    NodesStatus(
                        managed=managed,
                        tainted=tainted,
                        skipped=census.number(NodeTaintState.SKIPPED),
                        unknown=census.number(NodeTaintState.UNKNOWN),
                        summary=f"{tainted}/{meant}",
                    )
                ),
            },
            conditions=(self._tainted(settings), self._safe(settings)),
            problems=tuple(self._problems()),
            unready=(Problem(RolloutPauseReason.ADMISSION_NOT_READY, admission),) if admission else (),
        )

    def _rows(self, census: TaintedNodeIndex) -> list[ArchitectureStatus]:
        """The architectures of all nodes, managed or not: images that fit any run there, too."""
        holds = self._rollout.holds
        rows = []
        for architecture in census.architectures:
            waiting = census.number(NodeTaintState.WAITING, architecture=architecture)
            hold = holds.get(architecture) if waiting else None
            rows.append(
                ArchitectureStatus(
                    name=architecture,
                    nodes=census.number(*MANAGED, architecture=architecture),
                    tainted=census.number(NodeTaintState.TAINTED, architecture=architecture),
                    waiting=waiting,
                    reason=str(hold.reason) if hold is not None else "",
                )
            )
        return rows

    def _tainted(self, settings: TaintSettings) -> Condition:
        census = self._nodes.census
        waiting, done = census.number(NodeTaintState.WAITING), census.number(NodeTaintState.TAINTED)
        if settings.state == "removing":
            left = census.marked
            message = f"{left} nodes still carry a taint of polyarch" if left else "no node carries a taint of polyarch"
            return Condition(NODES_TAINTED, "False", "Removing", message)
        note = f"; {NOT_SERVED}" if self._has_no_policy(settings) else ""
        if not waiting:
            said = f"{done} nodes carry their taint" if done else "no node has to carry a taint"
            return Condition(NODES_TAINTED, "True", "AllTainted", f"{said}{note}")
        message = f"{waiting} nodes wait for their taint, {done} carry it{note}"
        if settings.state == "paused":
            return Condition(NODES_TAINTED, "False", "Paused", message)
        held = {each: hold for each, hold in self._rollout.holds.items() if self._waits(each)}
        if held:
            return Condition(NODES_TAINTED, "False", str(next(iter(held.values())).reason), message)
        return Condition(NODES_TAINTED, "False", "InProgress", message)

    def _safe(self, settings: TaintSettings) -> Condition:
        """Only what holds nodes back: an architecture without nodes may wait for as long as it likes."""
        if settings.state != "active":
            return Condition(SAFE_TO_TAINT, "Unknown", settings.state.capitalize(), "nothing is tainted now")
        held = {each: hold for each, hold in self._rollout.holds.items() if self._waits(each)}
        if not held:
            return Condition(SAFE_TO_TAINT, "True", "NothingWaits")
        message = "; ".join(f"{architecture}: {hold.message}" for architecture, hold in held.items())
        return Condition(SAFE_TO_TAINT, "False", str(next(iter(held.values())).reason), message)

    def _waits(self, architecture: str) -> bool:
        return self._nodes.census.number(NodeTaintState.WAITING, architecture=architecture) > 0

    def _has_no_policy(self, settings: TaintSettings) -> bool:
        return settings.at_registration == "policy" and self._registration.is_served is False

    def _problems(self) -> list[Problem]:
        holds = self._rollout.holds.values()
        found = [
            Problem(hold.reason, hold.message)
            for hold in holds
            if hold.reason is RolloutPauseReason.PODS_BECAME_PENDING
        ]
        unwritten = self._nodes.unwritten
        if unwritten:
            first = next(iter(unwritten.values()))
            found.append(
                Problem("NodesNotWritten", f"nodes that cannot be written: {named(sorted(unwritten))}; {first}")
            )
        if self._registration.problem:
            found.append(Problem("RegistrationPolicyFailed", f"{REGISTRATION_POLICY}: {self._registration.problem}"))
        return found
