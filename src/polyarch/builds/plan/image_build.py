"""ImageBuild and ImageBuildRun: the objects in which our own kind of build is recorded.

A front-end in the sense of ``front``; it decides nothing. A write appears only where the stored object differs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import ArchitectureKey, ArchitectureStatus, BuildIdentity, ImageBuildRunSpec
from polyarch.builds.facts.build_facts import BuildFacts, ChildRecord, Execution, Problem, written
from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import JobMetadata
from polyarch.builds.keys import OUTLINES_FILE, canonical_digest, canonical_json, key_outline, without_empty
from polyarch.builds.names import child_tag, index_job_name, job_name, object_labels, record_name, result_tag, run_name
from polyarch.builds.plan import conditions
from polyarch.builds.plan.actions import MAX_MESSAGE, progress_summary
from polyarch.builds.plan.document import Write, uid_placeholder
from polyarch.builds.plan.kind import JobInputs, PlanOutcome, architecture_job_spec
from polyarch.builds.plan.request import DesiredBuild
from polyarch.builds.plan.reuse import FINAL_CHILD, ExecutionState, usable
from polyarch.durations import format_duration

SCHEMA: Final = 1
"""Of ``architectures.json``."""


class ImageBuildKind:
    """The front of ImageBuild."""

    def obstacle(self, facts: BuildFacts) -> Problem | None:
        if not facts.wish.spec.suspend:
            return None
        message = "spec.suspend is true: no new build is started; set it to false to go on."
        return Problem(reason="Suspended", message=message)

    def name(self, facts: BuildFacts, target: DesiredBuild) -> tuple[str, int]:
        same = [
            each.serial
            for each in facts.executions
            if each.owner_name == facts.wish.name and each.build_key == target.build_key
        ]
        serial = 1 + max(same, default=0)
        return run_name(facts.wish.name, target.build_key, serial), serial

    def is_named(self, facts: BuildFacts, target: DesiredBuild, execution: Execution) -> bool:
        return True

    def job_name(self, execution: str, architecture: str, *, architectures: int) -> str:
        return job_name(execution, architecture)

    def index_job_name(self, execution: str) -> str:
        return index_job_name(execution)

    def record_name(self, execution: str) -> str:
        return record_name(execution)

    def tags(self, facts: BuildFacts, execution: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((result_tag(execution), *(facts.wish.spec.output.tags or ()))))

    def child_tag(self, facts: BuildFacts, execution: str, architecture: str, *, architectures: int) -> str:
        if facts.wish.spec.output.arch_tags == "None":
            return ""
        if architectures == 1 and facts.wish.spec.output.index != "Always":
            return result_tag(execution)
        return child_tag(execution, architecture)

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        return _owner(names.IMAGE_BUILD_RUNS.api_version, names.IMAGE_BUILD_RUNS.kind, name, uid)

    def manifests(self, making: JobInputs) -> Sequence[Mapping[str, Any]]:
        wish = making.facts.wish
        marks = object_labels(
            image_build=wish.name,
            execution=making.execution,
            role=names.ARCH_ROLE,
            architecture=making.architecture,
            arch_key=making.target.keys[making.architecture],
        )
        identity = JobMetadata(
            namespace=wish.namespace,
            job=making.job,
            owners=(making.owner,),
            labels=marks.labels,
            annotations=marks.annotations,
            execution=making.execution,
            record=self.record_name(making.execution),
        )
        return architecture_manifests(architecture_job_spec(making, identity))

    def preparations(self, making: JobInputs) -> Sequence[Write]:
        return ()

    def create(self, course: PlanOutcome, state: ExecutionState) -> Sequence[Write]:
        wish, target = course.facts.wish, course.target
        if target is None:
            return ()
        spec = ImageBuildRunSpec(
            image_build=BuildIdentity(name=wish.name, uid=wish.uid, generation=wish.generation),
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
        )
        marks = object_labels(image_build=wish.name, execution=state.name, role="")
        metadata = {
            "name": state.name,
            "namespace": wish.namespace,
            "labels": marks.labels,
            "annotations": {**marks.annotations, names.ARCHITECTURES_ANNOTATION: ",".join(target.architectures)},
            "ownerReferences": [_owner(names.IMAGE_BUILDS.api_version, names.IMAGE_BUILDS.kind, wish.name, wish.uid)],
        }
        body = {
            "apiVersion": names.IMAGE_BUILD_RUNS.api_version,
            "kind": names.IMAGE_BUILD_RUNS.kind,
            "metadata": metadata,
            "spec": _full(spec),
        }
        return (_write("create", names.IMAGE_BUILD_RUNS.kind, wish.namespace, state.name, step="S1", body=body),)

    def record(self, course: PlanOutcome, before: Execution | None, state: ExecutionState) -> Sequence[Write]:
        return (*self._status(course, before, state), *self._record(course, before, state))

    def supersede(self, course: PlanOutcome, before: Execution, state: ExecutionState) -> Sequence[Write]:
        return self._status(course, before, state, step="S3")

    def report(self, course: PlanOutcome) -> Sequence[Write]:
        facts = course.facts
        wish = facts.wish
        found: list[Write] = []
        status = self._wish_status(course)
        if status != _comparable(wish.status):
            body = {"status": status}
            found.append(
                _write(
                    "status", names.IMAGE_BUILDS.kind, wish.namespace, wish.name, step="S10", uid=wish.uid, body=body
                )
            )
        if course.architectures:
            text = ",".join(course.architectures)
            if wish.annotations.get(names.ARCHITECTURES_ANNOTATION) != text:
                metadata = {"metadata": {"annotations": {names.ARCHITECTURES_ANNOTATION: text}}}
                found.append(
                    _write(
                        "patch",
                        names.IMAGE_BUILDS.kind,
                        wish.namespace,
                        wish.name,
                        step="S10",
                        how="merge",
                        uid=wish.uid,
                        body=metadata,
                    )
                )
        return found

    def _status(
        self, course: PlanOutcome, before: Execution | None, state: ExecutionState, *, step: str = ""
    ) -> Sequence[Write]:
        namespace = course.facts.wish.namespace
        status = run_status(state, before.status if before is not None else {}, now=course.facts.now)
        if before is not None and status == _comparable(before.status):
            return ()
        chosen = step or ("S9" if state.finished else "S5")
        body = {"status": status}
        kind = names.IMAGE_BUILD_RUNS.kind
        return (_write("status", kind, namespace, state.name, step=chosen, uid=state.uid, body=body),)

    def _record(self, course: PlanOutcome, before: Execution | None, state: ExecutionState) -> Sequence[Write]:
        """The ConfigMap of BD-049. Of what is not final only the key is told: it is no place to follow progress."""
        namespace = course.facts.wish.namespace
        text = record_text(state)
        if before is not None and before.recorded == text:
            return ()
        name = self.record_name(state.name)
        marks = object_labels(image_build=course.facts.wish.name, execution=state.name, role="")
        uid = state.uid or uid_placeholder(names.IMAGE_BUILD_RUNS.kind, state.name)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": marks.labels,
                **({"annotations": marks.annotations} if marks.annotations else {}),
                "ownerReferences": [self.owner(state.name, uid)],
            },
            "data": {names.ARCHITECTURES_FILE: text, **_outlines(course, state)},
        }
        return (_write("patch", "ConfigMap", namespace, name, step="S5", how="apply", body=body),)

    def _wish_status(self, course: PlanOutcome) -> dict[str, Any]:
        wish, current, state = course.facts.wish, course.current, course.execution
        known = wish.status
        status: dict[str, Any] = {
            "observedGeneration": wish.generation,
            "conditions": conditions.merged(
                course.conditions, known.get("conditions"), generation=wish.generation, now=course.facts.now
            ),
            "architectures": list(course.architectures)
            if course.architectures is not None
            else list(known.get("architectures") or ()),
            "image": current.result if current is not None else "",
            "images": _images(current),
            "tags": list(course.tags),
            "currentRun": current.name if current is not None else "",
            "activeRun": state.name if state is not None and not state.finished else "",
            "buildKey": course.target.build_key if course.target is not None else known.get("buildKey", ""),
            "bases": [_full(each) for each in course.bases] if course.bases is not None else known.get("bases"),
            "rebuildToken": course.rebuild_token,
            "lastFailure": _last_failure(course),
            "summary": course.summary,
        }
        return _comparable(status)


IMAGE_BUILD: Final = ImageBuildKind()


def run_status(state: ExecutionState, stored: Mapping[str, Any], *, now: float) -> dict[str, Any]:
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


def record_text(state: ExecutionState) -> str:
    """``architectures.json`` of an execution, with what a failure is held by."""
    members = [
        _full(child_status(each)) if each.phase in FINAL_CHILD else {"architecture": each.architecture, "key": each.key}
        for each in state.children
    ]
    document = {
        "schema": SCHEMA,
        "architectures": members,
        "index": _full(state.index) if state.index is not None else None,
        "witness": dict(state.witness),
    }
    return canonical_json(without_empty(document)).decode()


def _outlines(course: PlanOutcome, state: ExecutionState) -> dict[str, str]:
    """What each key was made of, by short hashes: by them ``build plan`` says later what has changed."""
    found = {
        each.architecture: key_outline(course.documents[each.architecture])
        for each in state.children
        if each.architecture in course.documents and canonical_digest(course.documents[each.architecture]) == each.key
    }
    return {OUTLINES_FILE: canonical_json(found).decode()} if found else {}


def _last_failure(course: PlanOutcome) -> dict[str, Any] | None:
    known = course.last_failure
    return {**_full(known), "message": conditions.within(known.message)} if known is not None else None


def _images(current: ExecutionState | None) -> list[dict[str, str]]:
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


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _write(verb: Any, kind: str, namespace: str, name: str, **fields: Any) -> Write:
    return Write(verb=verb, kind=kind, namespace=namespace, name=name, **fields)
