"""MachineOSConfig and MachineOSBuild as a front of the planner (BD-260 to BD-290). Pure.

What is built, again or not, the planner decides. Here are names, the objects in which a build is recorded, and what
users of their API find in its statuses. A write appears only where the stored object differs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.executions.carrying import kept
from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target, target_of_execution
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts
from polyarch.builds.facts.problem import Problem
from polyarch.builds.keys import canonical, handles
from polyarch.builds.machineos import vocabulary, wishes
from polyarch.builds.machineos.case import Case, Document, name_of, uid_of
from polyarch.builds.machineos.naming import build_name
from polyarch.builds.machineos.naming.build_name import keeps_stock_name, mixed_name, os_images, stock_name
from polyarch.builds.machineos.recording import ephemeral, reports, statuses
from polyarch.builds.machineos.recording.lifecycle import SEEDED, TERMINAL, stage_of
from polyarch.builds.machineos.recording.records import EXECUTION_FILE, encoded, execution_text, read
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.document import uid_of as placeholder
from polyarch.builds.plan.making import Making
from polyarch.builds.plan.own import record_text

CONFIG_MAP: Final = "ConfigMap"


class MachineFront:
    """The front of one MachineOSConfig."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def obstacle(self, facts: Facts) -> Problem | None:
        return wishes.trouble(self._case)

    # -- names ---------------------------------------------------------------------------------------------------------

    def name(self, facts: Facts, target: Target) -> tuple[str, int]:
        return self._name(target.architectures, target.build_key), 1

    def is_named(self, facts: Facts, target: Target, execution: Execution) -> bool:
        made_for = tuple(sorted(each.architecture for each in execution.keys))
        return execution.name in (
            self._name(target.architectures, target.build_key),
            self._name(made_for, execution.build_key),
        )

    def _name(self, architectures: Sequence[str], build_key: str) -> str:
        """The stock name where it can be kept (BD-263)."""
        case = self._case
        mixed = mixed_name(case.name, configuration=case.configuration, build_key=build_key)
        if not keeps_stock_name(architectures, case.spec.get("containerFile")):
            return mixed
        stock = self._stock_name()
        existing = case.build(stock)
        if existing is None:
            return stock
        made_for = [each.architecture for each in read(case.record(existing)).spec.architectures or ()]
        if not made_for:  # a stock builder's, whose architecture nothing tells; or it has never begun
            return mixed if stage_of(existing.get("status") or {}) == "Succeeded" else stock
        return stock if made_for == list(architectures) else mixed

    def _stock_name(self) -> str:
        case = self._case
        rendered: Document = case.rendered or {}
        spec: Mapping[str, Any] = rendered.get("spec") or {}
        annotations = (rendered.get("metadata") or {}).get("annotations") or {}
        images = os_images(
            os_image=str(spec.get("osImageURL") or ""),
            extensions_image=str(spec.get("baseOSExtensionsContainerImage") or ""),
            release=str(annotations.get(vocabulary.RELEASE) or ""),
        )
        return stock_name(case.name, configuration=case.configuration, spec=case.spec, os_images=images)

    def job_name(self, execution: str, architecture: str, *, architectures: int) -> str:
        return handles.machine_job(execution, architecture, architectures)

    def index_job_name(self, execution: str) -> str:
        return handles.machine_index_job(execution)

    def record_name(self, execution: str) -> str:
        return vocabulary.record(execution)

    def tags(self, facts: Facts, execution: str) -> tuple[str, ...]:
        return (handles.result_tag(execution),)

    def child_tag(self, facts: Facts, execution: str, architecture: str, *, architectures: int) -> str:
        if architectures == 1 and facts.wish.spec.output.index != "Always":
            return handles.result_tag(execution)
        return handles.child_tag(execution, architecture)

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        return _owner(vocabulary.BUILDS.api_version, vocabulary.BUILDS.kind, name, uid)

    # -- Jobs ----------------------------------------------------------------------------------------------------------

    def preparations(self, making: Making) -> Sequence[Write]:
        return ephemeral.preparations(self._case, making)

    def manifests(self, making: Making) -> Sequence[Mapping[str, Any]]:
        return ephemeral.manifests(self._case, making, self.record_name(making.execution))

    # -- executions ----------------------------------------------------------------------------------------------------

    def create(self, course: Course, state: State) -> Sequence[Write]:
        """The build and its record. A build of that name that is over is made again (BD-218, BD-279)."""
        case, target = self._case, course.target
        if target is None:
            return ()
        existing = case.build(state.name)
        begun = existing is not None and (
            case.record(existing) is not None or stage_of(existing.get("status") or {}) in TERMINAL
        )
        again = self._away(course, existing) if existing is not None and begun else ()
        labels = {vocabulary.PRE_BUILT: "true"} if state.reason == SEEDED else {}
        return (
            *again,
            self._build(state.name, target.repository, labels),
            self._record(course, None, _without_jobs(state)),
        )

    def _build(self, name: str, repository: str, labels: Mapping[str, str] = {}) -> Write:
        case = self._case
        metadata = {
            "name": name,
            "labels": {
                key: handles.short(text, handles.LONGEST_LABEL)
                for key, text in vocabulary.labels(
                    config=case.name, pool=case.pool_name, rendered=case.rendered_name
                ).items()
            }
            | dict(labels),
            "annotations": {vocabulary.PUSH_SECRET: case.push_secret},
            "finalizers": [vocabulary.FINALIZER],
            "ownerReferences": [
                _owner(vocabulary.CONFIGS.api_version, vocabulary.CONFIGS.kind, case.name, uid_of(case.config))
            ],
        }
        body = {
            "apiVersion": vocabulary.BUILDS.api_version,
            "kind": vocabulary.BUILDS.kind,
            "metadata": metadata,
            "spec": {
                "machineConfig": {"name": case.rendered_name},
                "machineOSConfig": {"name": case.name},
                "renderedImagePushSpec": f"{repository}:{handles.result_tag(name)}",
            },
        }
        return Write(verb="create", kind=vocabulary.BUILDS.kind, name=name, step="S1", body=body)

    def record(self, course: Course, before: Execution | None, state: State) -> Sequence[Write]:
        found: list[Write] = []
        record = self._record(course, before, state)
        stored = self._stored(state.name)
        if course.before is None or record.body["data"] != stored:
            found.append(record)
        found += ephemeral.owner_patches(self._case, state.name, _new_jobs(state))
        if state.phase == "Succeeded":
            found += statuses.digest(self._case, state, self.owner(state.name, _uid(state)))
        return (*found, *statuses.build_status(self._case, course, state))

    def supersede(self, course: Course, before: Execution, state: State) -> Sequence[Write]:
        """What its Jobs have made is kept; the build is deleted (BD-277)."""
        existing = self._case.build(before.name)
        if existing is None:
            return ()
        if self._case.record(existing) is None:
            return (_deletion(existing),)
        return (self._left(course, before, state), _deletion(existing))

    def report(self, course: Course) -> Sequence[Write]:
        chosen = course.execution.name if course.execution is not None else course.held
        if not chosen and course.current is not None and not course.problems:
            chosen = course.current.name
        found: list[Write] = []
        if reports.is_refused(course):
            chosen = self._refused_name(course)
            found += self._refused(course, chosen)
        if course.execution is not None:
            found += self._others(course, course.execution.name)
        return (*found, *self._honoured(course), *reports.writes(self._case, course, chosen))

    def _others(self, course: Course, name: str) -> list[Write]:
        """Builds of the config that have not succeeded give way to the one that is carried on (BD-277)."""
        gone = {before.name for before, _ in course.superseded}
        return [
            write
            for each in self._case.builds
            if name_of(each) not in (name, *gone) and _is_over(each, "Failed", "Interrupted")
            for write in self._away(course, each)
        ]

    def _refused_name(self, course: Course) -> str:
        """The name of a build that cannot be made, also where no keys are known to name it by."""
        case, architectures = self._case, course.architectures or ()
        if course.target is not None:
            return self._name(course.target.architectures, course.target.build_key)
        seen = {"architectures": list(architectures), "spec": build_name.spec_of(case.spec)}
        return self._name(architectures, canonical.digest(seen))

    def _refused(self, course: Course, name: str) -> list[Write]:
        """What cannot be built is a build that has failed, without any Job (BD-268)."""
        case = self._case
        existing = case.build(name)
        if existing is not None and stage_of(existing.get("status") or {}) in TERMINAL:
            return []
        made = [] if existing is not None else [self._build(name, course.facts.wish.spec.output.repository)]
        return [*self._others(course, name), *made, *statuses.refusal(case, name, existing, now=course.facts.now)]

    def _honoured(self, course: Course) -> list[Write]:
        """Once the annotation that asked for a rebuild is away, the next one asks for another (BD-279)."""
        case = self._case
        if vocabulary.REBUILD in case.annotations or course.execution is not None:
            return []
        found = []
        for build in case.builds:
            record = case.record(build)
            if record is not None and (known := read(record)).rebuild:
                data = {EXECUTION_FILE: encoded(msgspec.structs.replace(known, rebuild=""))}
                found.append(
                    Write(
                        verb="patch",
                        kind=CONFIG_MAP,
                        namespace=case.namespace,
                        name=record.name,
                        step="S10",
                        how="merge",
                        body={"data": data},
                    )
                )
        return found

    # -- records -------------------------------------------------------------------------------------------------------

    def _record(
        self, course: Course, before: Execution | None, state: State, owner: dict[str, Any] | None = None
    ) -> Write:
        case = self._case
        known = target_of_execution(before) if before is not None and before.keys else course.target
        if known is None:
            raise ValueError(f"{state.name} has neither a target nor a record")
        existing = case.build(state.name)
        bases = course.bases if course.before is before else None
        if bases is None:
            bases = read(case.record(existing)).bases if existing is not None else ()
        asks = vocabulary.REBUILD in case.annotations and state.forced is not None
        text = execution_text(
            case, state, known, before, bases=tuple(bases), rebuild="Asked" if asks else "", now=course.facts.now
        )
        own = ephemeral.marks(case, state.name, "")
        body = {
            "apiVersion": "v1",
            "kind": CONFIG_MAP,
            "metadata": {
                "name": self.record_name(state.name),
                "namespace": case.namespace,
                "labels": own.labels,
                "annotations": {
                    **own.annotations,
                    vocabulary.CONFIG_LABEL: case.name,
                    names.PUSH_SECRET_ANNOTATION: case.push_secret,
                },
                "finalizers": [names.IMAGES_FINALIZER],
                "ownerReferences": [owner or {**self.owner(state.name, _uid(state)), "blockOwnerDeletion": False}],
            },
            "data": {names.ARCHITECTURES_FILE: record_text(state), EXECUTION_FILE: text},
        }
        return Write(
            verb="patch",
            kind=CONFIG_MAP,
            namespace=case.namespace,
            name=self.record_name(state.name),
            step="S5",
            how="apply",
            body=body,
        )

    def _left(self, course: Course, before: Execution, state: State) -> Write:
        """The record of a build that goes: it is the config's from now on."""
        case = self._case
        owner = _owner(vocabulary.CONFIGS.api_version, vocabulary.CONFIGS.kind, case.name, uid_of(case.config))
        return self._record(course, before, state, {**owner, "controller": False, "blockOwnerDeletion": False})

    def _stored(self, name: str) -> dict[str, str] | None:
        existing = self._case.build(name)
        record = self._case.record(existing) if existing is not None else None
        if record is None:
            return None
        return {names.ARCHITECTURES_FILE: record.architectures, EXECUTION_FILE: record.execution}

    def _away(self, course: Course, build: Document) -> list[Write]:
        """A build that goes, with its Jobs and their inputs, whose names are needed again; its record stays."""
        facts, name = course.facts, name_of(build)
        before = next((each for each in facts.executions if each.name == name and each.uid == uid_of(build)), None)
        found: list[Write] = []
        if before is not None and self._case.record(build) is not None:
            found.append(self._left(course, before, kept(before)))
        return [*found, *ephemeral.deletions(self._case, facts.jobs, name), _deletion(build)]


def _deletion(build: Document) -> Write:
    return Write(verb="delete", kind=vocabulary.BUILDS.kind, name=name_of(build), step="S3", uid=uid_of(build))


def _is_over(build: Document, *stages: str) -> bool:
    deleting = (build.get("metadata") or {}).get("deletionTimestamp")
    return not deleting and stage_of(build.get("status") or {}) in stages


def _new_jobs(state: State) -> list[tuple[str, str]]:
    """Name and UID of every Job of an execution, if one of them is made in this round."""
    jobs = [(each.job, each.job_uid) for each in state.children if each.job and each.job_uid]
    return jobs if any(uid == placeholder("Job", name) for name, uid in jobs) else []


def _without_jobs(state: State) -> State:
    """As it is before its Jobs are made: a record never names a Job that may not exist."""
    children = tuple(
        ChildRecord(architecture=each.architecture, key=each.key) if each.phase == "Building" else each
        for each in state.children
    )
    return msgspec.structs.replace(state, phase="Pending", children=children)


def _uid(state: State) -> str:
    return state.uid or placeholder(vocabulary.BUILDS.kind, state.name)


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
