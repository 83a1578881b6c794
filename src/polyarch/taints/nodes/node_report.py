"""What the status says of nodes (TN-014, TN-025 to TN-027)."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from polyarch.objects import Condition
from polyarch.taints.api.resources import ArchitectureStatus, NodesStatus
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.rollout import HoldReason, named
from polyarch.taints.names import REGISTRATION_POLICY
from polyarch.taints.nodes.census import MANAGED, Census, State
from polyarch.taints.nodes.node_controller import NodeController
from polyarch.taints.nodes.registration import RegistrationKeeper
from polyarch.taints.nodes.taint_rollout import TaintRollout
from polyarch.taints.result.contribution import NODES_TAINTED, SAFE_TO_TAINT, Contribution, Problem

NOT_SERVED: Final = (
    "spec.nodes.atRegistration has no effect, as the API server serves no MutatingAdmissionPolicies: new nodes are "
    "tainted when they are seen; `polyarch taint plan --emit kubelet-flags` prints flags by which they register tainted"
)


class Configured(Protocol):
    """The part of ``TaintFacts`` that is needed here."""

    @property
    def settings(self) -> TaintSettings | None: ...


class NodeReport:
    """Its contribution; ``admission`` says why the webhook for pods is not available, or nothing."""

    def __init__(
        self,
        *,
        facts: Configured,
        nodes: NodeController,
        rollout: TaintRollout,
        registration: RegistrationKeeper,
        admission: Callable[[], str],
    ) -> None:
        self._facts = facts
        self._nodes = nodes
        self._rollout = rollout
        self._registration = registration
        self._admission = admission

    def contribution(self) -> Contribution:
        """What is said of nodes now."""
        settings = self._facts.settings or TaintSettings()
        census = self._nodes.census
        admission = self._admission()
        managed, tainted = census.number(*MANAGED), census.marked
        meant = census.number(State.TAINTED, State.WAITING)
        return Contribution(
            fields={
                "key": settings.key,
                "architectures": [msgspec.to_builtins(each) for each in self._rows(census)],
                "nodes": msgspec.to_builtins(
                    NodesStatus(
                        managed=managed,
                        tainted=tainted,
                        skipped=census.number(State.SKIPPED),
                        unknown=census.number(State.UNKNOWN),
                        summary=f"{tainted}/{meant}",
                    )
                ),
            },
            conditions=(self._tainted(settings), self._safe(settings)),
            problems=tuple(self._problems()),
            unready=(Problem(HoldReason.ADMISSION_NOT_READY, admission),) if admission else (),
        )

    def _rows(self, census: Census) -> list[ArchitectureStatus]:
        """The architectures of all nodes, managed or not: images that fit any run there, too (TN-031)."""
        holds = self._rollout.holds
        rows = []
        for architecture in census.architectures:
            waiting = census.number(State.WAITING, architecture=architecture)
            hold = holds.get(architecture) if waiting else None
            rows.append(
                ArchitectureStatus(
                    name=architecture,
                    nodes=census.number(*MANAGED, architecture=architecture),
                    tainted=census.number(State.TAINTED, architecture=architecture),
                    waiting=waiting,
                    reason=str(hold.reason) if hold is not None else "",
                )
            )
        return rows

    def _tainted(self, settings: TaintSettings) -> Condition:
        census = self._nodes.census
        waiting, done = census.number(State.WAITING), census.number(State.TAINTED)
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
        return self._nodes.census.number(State.WAITING, architecture=architecture) > 0

    def _has_no_policy(self, settings: TaintSettings) -> bool:
        return settings.at_registration == "policy" and self._registration.is_served is False

    def _problems(self) -> list[Problem]:
        holds = self._rollout.holds.values()
        found = [Problem(hold.reason, hold.message) for hold in holds if hold.reason is HoldReason.PODS_BECAME_PENDING]
        unwritten = self._nodes.unwritten
        if unwritten:
            first = next(iter(unwritten.values()))
            found.append(
                Problem("NodesNotWritten", f"nodes that cannot be written: {named(sorted(unwritten))}; {first}")
            )
        if self._registration.problem:
            found.append(Problem("RegistrationPolicyFailed", f"{REGISTRATION_POLICY}: {self._registration.problem}"))
        return found
