"""MachineOSBuilds as executions: stages of their statuses, and records of what these cannot hold. Pure.

Consumers read the five conditions of a MachineOSBuild as one stage: which of them is True. Their API freezes
conditions once a terminal one is True, so the terminal write holds everything; times that may not change are never
written twice.
"""

from collections.abc import Iterable, Mapping
from math import floor
from typing import Any, Final, Literal

import msgspec

from polyarch.builds.api.resources import ArchitectureKey, Base, BuildIdentity, ImageBuildRunSpec
from polyarch.builds.facts.build_facts import ENDED, ENDED_CHILD, Execution, JobFacts, PinnedBase, seconds, written
from polyarch.builds.facts.objects import RunObject, execution_of
from polyarch.builds.keys import canonical_json, without_empty
from polyarch.builds.machineos.api import Document, ExecutionConfigMap, MachineOSConfigFacts, uid_of
from polyarch.builds.plan.image_build import run_status
from polyarch.builds.plan.request import DesiredBuild
from polyarch.objects import ObjectMeta

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
"""The reason of ``Succeeded`` where no build was needed."""
TERMINAL: Final = frozenset({"Failed", "Interrupted", "Succeeded"})
MAX_RELATED: Final = 10


def stage_of(status: Mapping[str, Any]) -> Stage | None:
    """The stored stage; None where no conditions are stored yet."""
    stored = status.get("conditions")
    if not stored:
        return None
    true = {each.get("type") for each in stored if each.get("status") == "True"}
    return next((stage for stage in CONDITIONS if stage in true), "")


def observed_stage(state: Execution, jobs: Iterable[JobFacts]) -> Stage:
    """The stage that an execution stands for: ``Prepared`` as long as no pod of its Jobs has begun."""
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
    if has_pods or any(each.phase in ENDED_CHILD for each in begun):
        return "Building"
    return "Prepared"


def stages_between(stored: Stage | None, wanted: Stage) -> tuple[Stage, ...]:
    """The stages to write one after the other: none is skipped or taken back that their API forbids to."""
    if stored is None:
        return ("", wanted) if wanted else ("",)
    if stored == wanted or stored in TERMINAL or not wanted or (stored, wanted) == ("Building", "Prepared"):
        return ()
    return (wanted,)


def stage_conditions(
    stage: Stage, stored: Iterable[Mapping[str, Any]] | None, *, now: float, reason: str = ""
) -> list[dict[str, Any]]:
    """All five conditions; their times change with their status only. ``reason`` is that of the True condition."""
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
    """What is stored, else when the first Job was made, else now: it may never change."""
    kept = stored.get("buildStart")
    return str(kept) if kept else str(written(floor(min((job.created for job in jobs), default=now))))


def build_end(start: str, *, now: float) -> str:
    """Strictly after the start, by whole seconds."""
    began = seconds(start) or 0.0
    return str(written(max(floor(now), floor(began) + 1)))


def related_objects(namespace: str, jobs: Iterable[str]) -> list[dict[str, str]]:
    """The Jobs, ten at most. Objects of the core group cannot be listed: an empty group is refused."""
    return [job_reference(namespace, name) for name in sorted(set(jobs))][:MAX_RELATED]


def job_reference(namespace: str, name: str) -> dict[str, str]:
    return {"group": "batch", "resource": "jobs", "namespace": namespace, "name": name}


# -- records -----------------------------------------------------------------------------------------------------------


EXECUTION_FILE: Final = "execution.json"
Rebuild = Literal["", "Asked"]


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``execution.json``: an execution in the words of an ImageBuildRun."""

    schema: int = 1
    spec: ImageBuildRunSpec = ImageBuildRunSpec()
    status: dict[str, Any] = {}
    bases: tuple[Base, ...] = ()
    rebuild: Rebuild = ""
    """``Asked``: the annotation that asked for it has not been taken away yet."""


def read_record(stored: ExecutionConfigMap | None) -> ExecutionRecord:
    """The record; an empty one for a text that is none, as somebody may have edited it."""
    try:
        return msgspec.json.decode((stored.execution if stored is not None else "").encode(), type=ExecutionRecord)
    except (msgspec.DecodeError, RecursionError):
        return ExecutionRecord()


def recorded_executions(config: MachineOSConfigFacts) -> tuple[Execution, ...]:
    """Every MachineOSBuild of a config, and what builds that are gone have left."""
    own = tuple(_execution(config, each) for each in config.builds)
    return (*own, *(_left(config, each) for each in config.left))


def ended(stored: ExecutionConfigMap, *, namespace: str, uid: str) -> Execution | None:
    """The execution of a record that is being deleted, for who deletes its images; None if it made none.

    An image that a config took as it was is its user's.
    """
    record = read_record(stored)
    run = RunObject(metadata=ObjectMeta(name=stored.build, namespace=namespace, uid=uid), spec=record.spec)
    found = execution_of(msgspec.structs.replace(run, status=record.status), recorded=stored.architectures)
    if not found.repository or found.reason == SEEDED:
        return None
    return msgspec.structs.replace(found, deleting=True)


def recorded_pins(config: MachineOSConfigFacts) -> tuple[PinnedBase, ...]:
    """The pins of the newest build that has some."""
    ordered = sorted(config.builds, key=lambda each: str((each.get("metadata") or {}).get("creationTimestamp") or ""))
    records = [read_record(config.record(each)) for each in ordered] + [read_record(each) for each in config.left]
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
    config: MachineOSConfigFacts,
    state: Execution,
    target: DesiredBuild,
    before: Execution | None,
    *,
    bases: tuple[Base, ...],
    rebuild: Rebuild,
    now: float,
) -> str:
    """``execution.json`` of an execution."""
    spec = ImageBuildRunSpec(
        image_build=BuildIdentity(name=config.name, uid=uid_of(config.document)),
        serial=state.serial,
        build_key=state.build_key,
        architectures=[ArchitectureKey(architecture=each.architecture, key=each.key) for each in state.children],
        pins=list(state.pins) or None,
        repository=target.repository,
        format=target.format,
        index=target.index_mode,
        attestations=target.attestations,
        forced=state.forced,
        builder=state.builder if state.builder.image else None,
    )
    status = run_status(state, before.status if before is not None else {}, now=now)
    return encoded(ExecutionRecord(spec=spec, status=status, bases=bases, rebuild=rebuild))


def encoded(record: ExecutionRecord) -> str:
    return canonical_json(without_empty(msgspec.to_builtins(record))).decode()


def _execution(config: MachineOSConfigFacts, build: Document) -> Execution:
    """A MachineOSBuild. One without a record was made by a stock builder, or its making was cut off."""
    metadata = msgspec.convert(build.get("metadata") or {}, ObjectMeta)
    status: Mapping[str, Any] = build.get("status") or {}
    stored = config.record(build)
    record = read_record(stored)
    placed = msgspec.structs.replace(metadata, namespace=config.namespace)
    run = RunObject(metadata=placed, spec=record.spec, status=record.status or None)
    found = execution_of(run, recorded=stored.architectures if stored is not None else None)
    stage = stage_of(status)
    phase = found.phase
    if stage in TERMINAL:
        phase = msgspec.convert(stage, Literal["Succeeded", "Failed", "Interrupted"])
    elif phase in ENDED:  # its last write was cut off: it is made again from the record
        phase = "Building"
    changes: dict[str, Any] = {"phase": phase, "owner_uid": uid_of(config.document), "owner_name": config.name}
    if stage == "Succeeded" and not found.result:
        changes["result"] = str(status.get("digestedImagePushSpec") or "")
    if stage in TERMINAL and found.completed is None:
        changes["completed"] = seconds(status.get("buildEnd"))
    return msgspec.structs.replace(found, **changes)


def _left(config: MachineOSConfigFacts, stored: ExecutionConfigMap) -> Execution:
    """The images of a build that is gone: nobody's execution, so it is never current and never carried on."""
    record = read_record(stored)
    run = RunObject(metadata=ObjectMeta(name=stored.build, namespace=config.namespace), spec=record.spec)
    found = execution_of(msgspec.structs.replace(run, status=record.status), recorded=stored.architectures)
    return msgspec.structs.replace(found, phase="Superseded", owner_uid="", result="")
