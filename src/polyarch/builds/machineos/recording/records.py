"""MachineOSBuilds as executions, by their own records: what of an execution their kind has no place for (BD-049). Pure.

``architectures.json`` is for people and Jobs; ``execution.json`` beside it holds an execution as the planner knows one:
what it is made from, how far it is, and the pins (BD-061). A record outlives its build if the build is made again under
the same name or is superseded: then it belongs to the MachineOSConfig, and its images can still be used (BD-092).
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from polyarch.builds.api.resources import (
    ArchitectureKey,
    Base,
    BuildIdentity,
    ImageBuildRunSpec,
)
from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.executions import RunObject, execution_of
from polyarch.builds.facts.facts import Execution, PinnedBase
from polyarch.builds.facts.history import ENDED
from polyarch.builds.facts.times import seconds
from polyarch.builds.keys import canonical
from polyarch.builds.machineos.case import Case, Document, StoredRecord, uid_of
from polyarch.builds.machineos.recording.lifecycle import SEEDED, TERMINAL, stage_of
from polyarch.builds.plan.own import run_status
from polyarch.objects import ObjectMeta

EXECUTION_FILE: Final = "execution.json"
Rebuild = Literal["", "Asked"]


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``execution.json``: an execution in the words of an ImageBuildRun."""

    schema: int = 1
    spec: ImageBuildRunSpec = ImageBuildRunSpec()
    status: dict[str, Any] = {}
    bases: tuple[Base, ...] = ()
    rebuild: Rebuild = ""
    """``Asked``: the annotation that asked for it has not been taken away yet (BD-279)."""


def read(stored: StoredRecord | None) -> ExecutionRecord:
    """The record; an empty one for a text that is none, as somebody may have edited it."""
    try:
        return msgspec.json.decode((stored.execution if stored is not None else "").encode(), type=ExecutionRecord)
    except (msgspec.DecodeError, RecursionError):
        return ExecutionRecord()


def executions(case: Case) -> tuple[Execution, ...]:
    """Every MachineOSBuild of a config, and what builds that are gone have left."""
    own = tuple(_execution(case, each) for each in case.builds)
    return (*own, *(_left(case, each) for each in case.left))


def ended(stored: StoredRecord, *, namespace: str, uid: str) -> Execution | None:
    """The execution of a record that is being deleted, for who deletes its images; None if it made none (BD-282).

    An image that a config took as it was is its user's.
    """
    record = read(stored)
    run = RunObject(metadata=ObjectMeta(name=stored.build, namespace=namespace, uid=uid), spec=record.spec)
    found = execution_of(msgspec.structs.replace(run, status=record.status), recorded=stored.architectures)
    if not found.repository or found.reason == SEEDED:
        return None
    return msgspec.structs.replace(found, deleting=True)


def pins(case: Case) -> tuple[PinnedBase, ...]:
    """The pins of the newest build that has some."""
    ordered = sorted(case.builds, key=lambda each: str((each.get("metadata") or {}).get("creationTimestamp") or ""))
    records = [read(case.record(each)) for each in ordered] + [read(each) for each in case.left]
    bases = next((each.bases for each in reversed(records) if each.bases), ())
    return tuple(
        PinnedBase(
            reference=each.reference,
            digest=each.digest,
            children={child.architecture: child.digest for child in each.children or ()},
            resolved=seconds(each.resolved_time) or 0.0,
        )
        for each in bases
    )


def execution_text(
    case: Case,
    state: State,
    target: Target,
    before: Execution | None,
    *,
    bases: tuple[Base, ...],
    rebuild: Rebuild,
    now: float,
) -> str:
    """``execution.json`` of an execution after a round."""
    spec = ImageBuildRunSpec(
        image_build=BuildIdentity(name=case.name, uid=uid_of(case.config)),
        serial=state.serial,
        build_key=state.build_key,
        architectures=[ArchitectureKey(architecture=each.architecture, key=each.key) for each in state.children],
        pins=list(state.pins) or None,
        repository=target.repository,
        format=target.format,
        index=target.index_mode,
        attestations=target.attestations,
        forced=state.forced,
    )
    status = run_status(state, before.status if before is not None else {}, now=now)
    return encoded(ExecutionRecord(spec=spec, status=status, bases=bases, rebuild=rebuild))


def encoded(record: ExecutionRecord) -> str:
    return canonical.encode(canonical.without_empty(msgspec.to_builtins(record))).decode()


def _execution(case: Case, build: Document) -> Execution:
    """A MachineOSBuild. One without a record was made by a stock builder, or its making was cut off."""
    metadata = msgspec.convert(build.get("metadata") or {}, ObjectMeta)
    status: Mapping[str, Any] = build.get("status") or {}
    stored = case.record(build)
    record = read(stored)
    placed = msgspec.structs.replace(metadata, namespace=case.namespace)
    run = RunObject(metadata=placed, spec=record.spec, status=record.status or None)
    found = execution_of(run, recorded=stored.architectures if stored is not None else None)
    stage = stage_of(status)
    phase = found.phase
    if stage in TERMINAL:
        phase = msgspec.convert(stage, Literal["Succeeded", "Failed", "Interrupted"])
    elif phase in ENDED:  # its last write was cut off: it is made again from the record
        phase = "Building"
    changes: dict[str, Any] = {"phase": phase, "owner_uid": uid_of(case.config), "owner_name": case.name}
    if stage == "Succeeded" and not found.result:
        changes["result"] = str(status.get("digestedImagePushSpec") or "")
    if stage in TERMINAL and found.completed is None:
        changes["completed"] = seconds(status.get("buildEnd"))
    return msgspec.structs.replace(found, **changes)


def _left(case: Case, stored: StoredRecord) -> Execution:
    """The images of a build that is gone: nobody's execution, so it is never current and never carried on."""
    record = read(stored)
    run = RunObject(metadata=ObjectMeta(name=stored.build, namespace=case.namespace), spec=record.spec)
    found = execution_of(msgspec.structs.replace(run, status=record.status), recorded=stored.architectures)
    return msgspec.structs.replace(found, phase="Superseded", owner_uid="", result="")
