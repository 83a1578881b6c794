"""ImageBuild and ImageBuildRun: names, objects and statuses of our own kind of build.

A write appears only where the stored object differs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import (
    ArchitectureKey,
    ArchitectureStatus,
    BuildIdentity,
    ImageBuildRunSpec,
    LastFailure,
)
from polyarch.builds.facts.build_facts import (
    ENDED_CHILD,
    BuildFacts,
    BuildStep,
    ChildRecord,
    Execution,
    Problem,
    written,
)
from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import JobMetadata
from polyarch.builds.keys import OUTLINES_FILE, canonical_digest, canonical_json, key_outline, without_empty
from polyarch.builds.names import child_tag, index_job_name, job_name, object_labels, record_name, result_tag, run_name
from polyarch.builds.plan import conditions
from polyarch.builds.plan.actions import MAX_MESSAGE, progress_summary
from polyarch.builds.plan.choice import is_new_token
from polyarch.builds.plan.document import Write, uid_placeholder
from polyarch.builds.plan.executions import (
    FAULTY_CHILD,
    ExecutionNames,
    ended_by_itself,
    usable,
)
from polyarch.builds.plan.kind import JobInputs, PlanOutcome, architecture_job_spec, owner_reference
from polyarch.builds.plan.request import DesiredBuild
from polyarch.builds.plan.update import PARTIAL, recorded_state
from polyarch.durations import format_duration

SCHEMA: Final = 1
"""The schema of ``architectures.json``."""


class ImageBuildKind:
    """ImageBuild, whose executions are ImageBuildRuns."""

    name: Final = "ImageBuild"
    execution_kind: Final = names.IMAGE_BUILD_RUNS.kind

    def blocker(self, facts: BuildFacts) -> Problem | None:
        if not facts.request.spec.suspend:
            return None
        message = "spec.suspend is true: no new build is started; set it to false to go on."
        return Problem(reason="Suspended", message=message)

    def next_execution(self, facts: BuildFacts, target: DesiredBuild) -> tuple[str, int]:
        same = [
            each.serial
            for each in facts.executions
            if each.owner_name == facts.request.name and each.build_key == target.build_key
        ]
        serial = 1 + max(same, default=0)
        return run_name(facts.request.name, target.build_key, serial), serial

    def can_own(self, target: DesiredBuild, execution: Execution) -> bool:
        return True

    def execution_names(self, facts: BuildFacts, execution: str, architectures: Sequence[str]) -> ExecutionNames:
        output = facts.request.spec.output
        own = result_tag(execution)
        is_alone = len(architectures) == 1 and output.index != "Always"
        child_tags = {each: own if is_alone else child_tag(execution, each) for each in architectures}
        return ExecutionNames(
            execution=execution,
            record=record_name(execution),
            index_job=index_job_name(execution),
            tags=tuple(dict.fromkeys((own, *(output.tags or ())))),
            jobs={each: job_name(execution, each) for each in architectures},
            child_tags=dict.fromkeys(architectures, "") if output.arch_tags == "None" else child_tags,
        )

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        return owner_reference(names.IMAGE_BUILD_RUNS, name, uid)

    def job_writes(self, job_inputs: JobInputs) -> Sequence[Write]:
        request = job_inputs.facts.request
        labels = object_labels(
            image_build=request.name,
            execution=job_inputs.execution,
            role=names.ARCH_ROLE,
            architecture=job_inputs.architecture,
            arch_key=job_inputs.target.keys[job_inputs.architecture],
        )
        metadata = JobMetadata(
            namespace=request.namespace,
            job=job_inputs.job,
            owners=(job_inputs.owner,),
            labels=labels.labels,
            annotations=labels.annotations,
            execution=job_inputs.execution,
            record=record_name(job_inputs.execution),
        )
        manifests = architecture_manifests(architecture_job_spec(job_inputs, metadata))
        return [Write.create(body, step=BuildStep.CREATE_JOB) for body in manifests]

    def create(self, outcome: PlanOutcome, state: Execution) -> Sequence[Write]:
        request, target = outcome.facts.request, outcome.target
        if target is None:
            return ()
        spec = ImageBuildRunSpec(
            image_build=BuildIdentity(name=request.name, uid=request.uid, generation=request.generation),
            serial=state.serial,
            build_key=target.build_key,
            architectures=[ArchitectureKey(architecture=each, key=target.keys[each]) for each in target.architectures],
            pins=list(target.pins),
            repository=target.repository,
            format=target.format,
            index=target.index_mode,
            index_annotations=dict(target.index_annotations) or None,
            attestations=target.attestations,
            required=list(target.required) or None,
            forced=target.forced,
            builder=state.builder if state.builder.image else None,
        )
        labels = object_labels(image_build=request.name, execution=state.name, role="")
        metadata = {
            "name": state.name,
            "namespace": request.namespace,
            "labels": labels.labels,
            "annotations": {**labels.annotations, names.ARCHITECTURES_ANNOTATION: ",".join(target.architectures)},
            "ownerReferences": [owner_reference(names.IMAGE_BUILDS, request.name, request.uid)],
        }
        body = {
            "apiVersion": names.IMAGE_BUILD_RUNS.api_version,
            "kind": names.IMAGE_BUILD_RUNS.kind,
            "metadata": metadata,
            "spec": _full(spec),
        }
        return (Write.create(body, step=BuildStep.CREATE_EXECUTION),)

    def record(self, outcome: PlanOutcome, before: Execution | None, state: Execution) -> Sequence[Write]:
        return (*self._status(outcome, before, state), *self._record(outcome, before, state))

    def supersede(self, outcome: PlanOutcome, before: Execution, state: Execution) -> Sequence[Write]:
        return self._status(outcome, before, state, step=BuildStep.END_SUPERSEDED)

    def report(self, outcome: PlanOutcome) -> Sequence[Write]:
        request, kind = outcome.facts.request, names.IMAGE_BUILDS.kind
        target: dict[str, Any] = {"namespace": request.namespace, "uid": request.uid, "step": BuildStep.REPORT}
        found: list[Write] = []
        status = self._request_status(outcome)
        if status != _comparable(request.status):
            found.append(Write.status(kind, request.name, status, **target))
        text = ",".join(outcome.architectures or ())
        if text and request.annotations.get(names.ARCHITECTURES_ANNOTATION) != text:
            body = {"metadata": {"annotations": {names.ARCHITECTURES_ANNOTATION: text}}}
            found.append(Write.merge(kind, request.name, body, **target))
        return found

    def _status(
        self, outcome: PlanOutcome, before: Execution | None, state: Execution, *, step: BuildStep | None = None
    ) -> Sequence[Write]:
        namespace = outcome.facts.request.namespace
        status = run_status(state, before.status if before is not None else {}, now=outcome.facts.now)
        if before is not None and status == _comparable(before.status):
            return ()
        chosen = step or (BuildStep.RECORD_END if state.finished else BuildStep.RECORD_PROGRESS)
        kind = names.IMAGE_BUILD_RUNS.kind
        return (Write.status(kind, state.name, status, namespace=namespace, step=chosen, uid=state.uid),)

    def _record(self, outcome: PlanOutcome, before: Execution | None, state: Execution) -> Sequence[Write]:
        """The ConfigMap with the architectures; of those that are not final it has the key only."""
        namespace = outcome.facts.request.namespace
        text = record_text(state)
        if before is not None and before.recorded == text:
            return ()
        name = record_name(state.name)
        labels = object_labels(image_build=outcome.facts.request.name, execution=state.name, role="")
        uid = state.uid or uid_placeholder(names.IMAGE_BUILD_RUNS.kind, state.name)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels.labels,
                **({"annotations": labels.annotations} if labels.annotations else {}),
                "ownerReferences": [self.owner(state.name, uid)],
            },
            "data": {names.ARCHITECTURES_FILE: text, **_outlines(outcome.request.documents, state)},
        }
        return (Write.apply(body, step=BuildStep.RECORD_PROGRESS),)

    def _request_status(self, outcome: PlanOutcome) -> dict[str, Any]:
        request, current, state = outcome.facts.request, outcome.current, outcome.execution
        known = request.status
        status: dict[str, Any] = {
            "observedGeneration": request.generation,
            "conditions": conditions.merged(
                outcome.conditions, known.get("conditions"), generation=request.generation, now=outcome.facts.now
            ),
            "architectures": list(outcome.architectures)
            if outcome.architectures is not None
            else list(known.get("architectures") or ()),
            "image": current.result if current is not None else "",
            "images": _images(current),
            "tags": list(outcome.tags),
            "currentRun": current.name if current is not None else "",
            "activeRun": state.name if state is not None and not state.finished else "",
            "buildKey": outcome.target.build_key if outcome.target is not None else known.get("buildKey", ""),
            "bases": [_full(each) for each in outcome.bases] if outcome.bases is not None else known.get("bases"),
            "rebuildToken": _rebuild_token(outcome),
            "lastFailure": _last_failure(outcome),
            "summary": conditions.build_summary(outcome),
        }
        return _comparable(status)


IMAGE_BUILD: Final = ImageBuildKind()


def run_status(state: Execution, stored: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """``status`` of an ImageBuildRun."""
    took = state.completed - state.started if state.completed is not None and state.started is not None else None
    return _comparable(
        {
            "phase": state.phase,
            "architectures": [_full(child_status(each)) for each in state.children],
            "index": _full(state.index) if state.index is not None else None,
            "result": state.result,
            "conditions": conditions.merged(
                conditions.execution_conditions(state), stored.get("conditions"), generation=1, now=now
            ),
            "startTime": written(state.started),
            "completionTime": written(state.completed),
            "duration": format_duration(took) if took is not None else "",
            "summary": progress_summary(state.children),
        }
    )


def child_status(child: ChildRecord) -> ArchitectureStatus:
    """``status.architectures[]`` of an ImageBuildRun."""
    return ArchitectureStatus(
        architecture=child.architecture,
        phase=child.phase,
        key=child.key,
        execution=child.execution,
        host=child.host,
        profile=child.profile,
        job=child.job,
        job_uid=child.job_uid,
        node=child.node,
        attempts=child.attempts,
        digest=child.digest,
        size=child.size,
        media_type=child.media_type,
        variant=child.variant,
        reused_from=child.reused_from,
        start_time=written(child.started),
        completion_time=written(child.completed),
        reason=child.reason,
        message=conditions.within(child.message, MAX_MESSAGE),
    )


def record_text(state: Execution) -> str:
    """``architectures.json`` of an execution, with what a failure is held by."""
    members = [
        _full(child_status(each)) if each.phase in ENDED_CHILD else {"architecture": each.architecture, "key": each.key}
        for each in state.children
    ]
    document = {
        "schema": SCHEMA,
        "architectures": members,
        "index": _full(state.index) if state.index is not None else None,
        "witness": dict(state.witness),
    }
    return canonical_json(without_empty(document)).decode()


def _outlines(documents: Mapping[str, Mapping[str, Any]], state: Execution) -> dict[str, str]:
    """What each key was made of, by short hashes: by them ``build plan`` says later what has changed."""
    found = {
        child.architecture: key_outline(documents[child.architecture])
        for child in state.children
        if child.architecture in documents and canonical_digest(documents[child.architecture]) == child.key
    }
    return {OUTLINES_FILE: canonical_json(found).decode()} if found else {}


def _rebuild_token(outcome: PlanOutcome) -> str:
    """The last rebuild token that was honoured: its execution exists, or it names nothing that is wanted."""
    token = outcome.facts.request.spec.rebuild.token
    if not token or (outcome.decision in ("Wait", "Invalid") and is_new_token(outcome.facts)):
        return outcome.facts.request.rebuild_honoured
    return token


def _last_failure(outcome: PlanOutcome) -> dict[str, Any] | None:
    """The failure of the newest execution that ended by itself, if it failed."""
    state = outcome.execution
    if state is None or not state.finished:
        ended = ended_by_itself(outcome.facts)
        if not ended:
            return None
        state = recorded_state(ended[-1])
    if state.phase not in ("Failed", "Interrupted") and (state.phase, state.reason) != ("Succeeded", PARTIAL):
        return None
    faulty = [child for child in state.children if child.phase in FAULTY_CHILD]
    failure = LastFailure(
        run=state.name,
        reason=faulty[0].reason if faulty else state.reason,
        architectures=[child.architecture for child in faulty] or None,
    )
    return {**_full(failure), "message": conditions.within(state.message)}


def _images(current: Execution | None) -> list[dict[str, str]]:
    if current is None or not current.result:
        return []
    repository = current.result.partition("@")[0]
    return [
        {"architecture": each.architecture, "reference": f"{repository}@{each.digest}"}
        for each in current.children
        if usable(each)
    ]


def _comparable(status: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty members, which the API server need not keep."""
    return {name: value for name, value in status.items() if value not in (None, "", [], {}, ())}


def _full(value: Any) -> Any:
    return msgspec.to_builtins(value)
