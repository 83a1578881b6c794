"""The plan for a MachineOSConfig: names and objects for the planner, images that are taken as they are. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import Base, IndexStatus
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    BuildStep,
    ChildRecord,
    Execution,
    Problem,
    current_execution,
    published_architectures,
    written,
)
from polyarch.builds.keys import canonical_digest
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import Document, MachineOSConfigFacts, name_of, uid_of
from polyarch.builds.machineos.build_name import keeps_stock_name, mixed_name, os_images, spec_of, stock_name
from polyarch.builds.machineos.job_objects import (
    job_deletions,
    job_preparations,
    machine_job_manifests,
    machine_object_labels,
    owner_patches,
)
from polyarch.builds.machineos.records import (
    EXECUTION_FILE,
    SEEDED,
    TERMINAL,
    encoded,
    execution_text,
    read_record,
    stage_of,
)
from polyarch.builds.machineos.request import rollout_blocker
from polyarch.builds.machineos.status import (
    build_status_writes,
    build_uid,
    digest_writes,
    is_refused,
    refusal_writes,
    report_writes,
    stock_events,
)
from polyarch.builds.names import (
    MAX_LABEL,
    canonical_image,
    child_tag,
    machine_index_job_name,
    machine_job_name,
    result_tag,
    shortened,
)
from polyarch.builds.plan.document import BuildPlan, PlannedEvent, Write, uid_placeholder
from polyarch.builds.plan.executions import ExecutionNames
from polyarch.builds.plan.image_build import record_text
from polyarch.builds.plan.kind import JobInputs, PlanOutcome, owner_reference
from polyarch.builds.plan.planner import plan_build as planned
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest, recorded_build, resolve_request
from polyarch.builds.plan.update import ExecutionUpdate, recorded_state
from polyarch.objects import Condition
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse


def seeded_image(config: MachineOSConfigFacts) -> str:
    """The image that is to be taken, canonical; empty if there is none, or the config has a build already."""
    text = config.annotations.get(api.PRE_BUILT, "")
    begun = config.builds or api.CURRENT_BUILD in config.annotations
    return canonical_image(text) if text and not begun else ""


def seeding_lookup(facts: BuildFacts, image: str, config: MachineOSConfigFacts) -> BuildLookup | None:
    """What has to be known first: that the Secret is there with which images are pushed, and what the image has."""
    if config.push_secret and config.push_secret not in facts.inputs.secrets:
        return BuildLookup(reference=config.push_secret, what="secret")
    if image not in facts.images:
        return BuildLookup(reference=image, what="inspect")
    return None


def can_be_seeded(facts: BuildFacts, image: str, config: MachineOSConfigFacts) -> bool:
    """Whether the image can be taken; the planner says what is wrong with a Secret."""
    secret = facts.inputs.secrets.get(config.push_secret)
    usable = not config.push_secret or (secret is not None and not secret.invalid)
    answer = facts.images.get(image)
    return usable and answer is not None and answer.status is Status.RESOLVED and bool(answer.digest)


def seeded_state(facts: BuildFacts, known: ResolvedRequest, target: DesiredBuild, name: str, image: str) -> Execution:
    """The build as it is recorded: what the image has of the architectures that are wanted."""
    answer = facts.images[image]
    index = None
    if answer.kind == "index":
        index = IndexStatus(answer.media_type, answer.digest, 0, written(facts.now))
    return Execution(
        namespace=target.namespace,
        name=name,
        build_key=target.build_key,
        phase="Succeeded",
        children=tuple(_child(facts, target, answer, each) for each in target.architectures),
        index=index,
        result=f"{parse(image).name}@{answer.digest}",
        reason=SEEDED,
        started=facts.now,
        completed=facts.now,
        repository=target.repository,
        pins=target.pins,
    )


def _child(facts: BuildFacts, target: DesiredBuild, answer: Inspection, architecture: str) -> ChildRecord:
    found = [
        each for each in answer.entries if (each.platform.os, each.platform.architecture) == ("linux", architecture)
    ]
    if not found:
        return ChildRecord(architecture=architecture, key=target.keys[architecture])
    return ChildRecord(
        architecture=architecture,
        phase="Built",
        key=target.keys[architecture],
        digest=found[0].digest or answer.digest,
        size=found[0].size or 0,
        variant=found[0].platform.variant,
        completed=facts.now,
    )


# -- the kind ----------------------------------------------------------------------------------------------------------


CONFIG_MAP: Final = "ConfigMap"


class MachineOSConfigKind:
    """One MachineOSConfig, whose executions are MachineOSBuilds."""

    name: Final = "MachineOSConfig"
    execution_kind: Final = api.BUILDS.kind

    def __init__(self, config: MachineOSConfigFacts) -> None:
        self._config = config

    def blocker(self, facts: BuildFacts) -> Problem | None:
        return rollout_blocker(self._config)

    # -- names ---------------------------------------------------------------------------------------------------------

    def next_execution(self, facts: BuildFacts, target: DesiredBuild) -> tuple[str, int]:
        return self._build_name(target.architectures, target.build_key), 1

    def can_own(self, target: DesiredBuild, execution: Execution) -> bool:
        made_for = tuple(sorted(each.architecture for each in execution.keys))
        return execution.name in (
            self._build_name(target.architectures, target.build_key),
            self._build_name(made_for, execution.build_key),
        )

    def _build_name(self, architectures: Sequence[str], build_key: str) -> str:
        """The stock name where it can be kept."""
        config = self._config
        mixed = mixed_name(config.name, configuration=config.configuration, build_key=build_key)
        if not keeps_stock_name(architectures, config.spec.get("containerFile")):
            return mixed
        stock = self._stock_name()
        existing = config.build(stock)
        if existing is None:
            return stock
        made_for = [each.architecture for each in read_record(config.record(existing)).spec.architectures or ()]
        if not made_for:  # a stock builder's, whose architecture nothing tells; or it has never begun
            return mixed if stage_of(existing.get("status") or {}) == "Succeeded" else stock
        return stock if made_for == list(architectures) else mixed

    def _stock_name(self) -> str:
        config = self._config
        rendered: Document = config.rendered or {}
        spec: Mapping[str, Any] = rendered.get("spec") or {}
        annotations = (rendered.get("metadata") or {}).get("annotations") or {}
        images = os_images(
            os_image=str(spec.get("osImageURL") or ""),
            extensions_image=str(spec.get("baseOSExtensionsContainerImage") or ""),
            release=str(annotations.get(api.RELEASE) or ""),
        )
        return stock_name(config.name, configuration=config.configuration, spec=config.spec, os_images=images)

    def execution_names(self, facts: BuildFacts, execution: str, architectures: Sequence[str]) -> ExecutionNames:
        own, count = result_tag(execution), len(architectures)
        is_alone = count == 1 and facts.request.spec.output.index != "Always"
        return ExecutionNames(
            execution=execution,
            record=api.record_name(execution),
            index_job=machine_index_job_name(execution),
            tags=(own,),
            jobs={each: machine_job_name(execution, each, count) for each in architectures},
            child_tags={each: own if is_alone else child_tag(execution, each) for each in architectures},
        )

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        return owner_reference(api.BUILDS, name, uid)

    def job_writes(self, job_inputs: JobInputs) -> Sequence[Write]:
        manifests = machine_job_manifests(self._config, job_inputs, api.record_name(job_inputs.execution))
        return [
            *job_preparations(self._config, job_inputs),
            *(Write.create(body, step=BuildStep.CREATE_JOB) for body in manifests),
        ]

    # -- executions ----------------------------------------------------------------------------------------------------

    def create(self, outcome: PlanOutcome, state: Execution) -> Sequence[Write]:
        """The build and its record. A build of that name that is over is made again."""
        config, target = self._config, outcome.target
        if target is None:
            return ()
        existing = config.build(state.name)
        begun = existing is not None and (
            config.record(existing) is not None or stage_of(existing.get("status") or {}) in TERMINAL
        )
        again = self._away(outcome, existing) if existing is not None and begun else ()
        labels = {api.PRE_BUILT: "true"} if state.reason == SEEDED else {}
        return (
            *again,
            self._build(state.name, target.repository, labels),
            self._record(outcome, None, _without_jobs(state)),
        )

    def _build(self, name: str, repository: str, labels: Mapping[str, str] = {}) -> Write:
        config = self._config
        metadata = {
            "name": name,
            "labels": {
                key: shortened(text, MAX_LABEL)
                for key, text in api.build_labels(
                    config=config.name, pool=config.pool_name, rendered=config.rendered_name
                ).items()
            }
            | dict(labels),
            "annotations": {api.PUSH_SECRET: config.push_secret},
            "finalizers": [api.FINALIZER],
            "ownerReferences": [owner_reference(api.CONFIGS, config.name, uid_of(config.document))],
        }
        body = {
            "apiVersion": api.BUILDS.api_version,
            "kind": api.BUILDS.kind,
            "metadata": metadata,
            "spec": {
                "machineConfig": {"name": config.rendered_name},
                "machineOSConfig": {"name": config.name},
                "renderedImagePushSpec": f"{repository}:{result_tag(name)}",
            },
        }
        return Write.create(body, step=BuildStep.CREATE_EXECUTION)

    def record(self, outcome: PlanOutcome, before: Execution | None, state: Execution) -> Sequence[Write]:
        found: list[Write] = []
        record = self._record(outcome, before, state)
        stored = self._stored(state.name)
        if outcome.before is None or record.body["data"] != stored:
            found.append(record)
        found += owner_patches(self._config, state.name, _new_jobs(state))
        if state.phase == "Succeeded":
            found += digest_writes(self._config, state, self.owner(state.name, build_uid(state)))
        return (*found, *build_status_writes(self._config, outcome, state))

    def supersede(self, outcome: PlanOutcome, before: Execution, state: Execution) -> Sequence[Write]:
        """What its Jobs have made is kept; the build is deleted."""
        existing = self._config.build(before.name)
        if existing is None:
            return ()
        if self._config.record(existing) is None:
            return (_deletion(existing),)
        return (self._left(outcome, before, state), _deletion(existing))

    def report(self, outcome: PlanOutcome) -> Sequence[Write]:
        chosen = outcome.execution.name if outcome.execution is not None else ""
        if outcome.hold is not None:
            chosen = outcome.hold.execution
        if not chosen and outcome.current is not None and not outcome.problems:
            chosen = outcome.current.name
        found: list[Write] = []
        if is_refused(outcome):
            chosen = self._refused_name(outcome)
            found += self._refused(outcome, chosen)
        if outcome.execution is not None:
            found += self._others(outcome, outcome.execution.name)
        return (*found, *self._honoured(outcome), *report_writes(self._config, outcome, chosen))

    def _others(self, outcome: PlanOutcome, name: str) -> list[Write]:
        """Builds of the config that have not succeeded give way to the one that is carried on."""
        gone = {before.name for before, _ in outcome.superseded}
        return [
            write
            for each in self._config.builds
            if name_of(each) not in (name, *gone) and _is_over(each, "Failed", "Interrupted")
            for write in self._away(outcome, each)
        ]

    def _refused_name(self, outcome: PlanOutcome) -> str:
        """The name of a build that cannot be made, also where no keys are known to name it by."""
        config, architectures = self._config, outcome.architectures or ()
        if outcome.target is not None:
            return self._build_name(outcome.target.architectures, outcome.target.build_key)
        seen = {"architectures": list(architectures), "spec": spec_of(config.spec)}
        return self._build_name(architectures, canonical_digest(seen))

    def _refused(self, outcome: PlanOutcome, name: str) -> list[Write]:
        """What cannot be built is a build that has failed, without any Job."""
        config = self._config
        existing = config.build(name)
        if existing is not None and stage_of(existing.get("status") or {}) in TERMINAL:
            return []
        made = [] if existing is not None else [self._build(name, outcome.facts.request.spec.output.repository)]
        return [*self._others(outcome, name), *made, *refusal_writes(config, name, existing, now=outcome.facts.now)]

    def _honoured(self, outcome: PlanOutcome) -> list[Write]:
        """Once the annotation that asked for a rebuild is away, the next one asks for another."""
        config = self._config
        if api.REBUILD in config.annotations or outcome.execution is not None:
            return []
        found = []
        for build in config.builds:
            record = config.record(build)
            if record is not None and (known := read_record(record)).rebuild:
                data = {EXECUTION_FILE: encoded(msgspec.structs.replace(known, rebuild=""))}
                found.append(
                    Write.merge(
                        CONFIG_MAP, record.name, {"data": data}, namespace=config.namespace, step=BuildStep.REPORT
                    )
                )
        return found

    # -- records -------------------------------------------------------------------------------------------------------

    def _record(
        self, outcome: PlanOutcome, before: Execution | None, state: Execution, owner: dict[str, Any] | None = None
    ) -> Write:
        config = self._config
        known = recorded_build(before) if before is not None and before.keys else outcome.target
        if known is None:
            raise ValueError(f"{state.name} has neither a target nor a record")
        existing = config.build(state.name)
        bases = outcome.bases if outcome.before is before else None
        if bases is None:
            bases = read_record(config.record(existing)).bases if existing is not None else ()
        asks = api.REBUILD in config.annotations and state.forced is not None
        text = execution_text(
            config, state, known, before, bases=tuple(bases), rebuild="Asked" if asks else "", now=outcome.facts.now
        )
        own = machine_object_labels(config, state.name, "")
        body = {
            "apiVersion": "v1",
            "kind": CONFIG_MAP,
            "metadata": {
                "name": api.record_name(state.name),
                "namespace": config.namespace,
                "labels": own.labels,
                "annotations": {
                    **own.annotations,
                    api.CONFIG_LABEL: config.name,
                    names.PUSH_SECRET_ANNOTATION: config.push_secret,
                },
                "finalizers": [names.IMAGES_FINALIZER],
                "ownerReferences": [owner or {**self.owner(state.name, build_uid(state)), "blockOwnerDeletion": False}],
            },
            "data": {names.ARCHITECTURES_FILE: record_text(state), EXECUTION_FILE: text},
        }
        return Write.apply(body, step=BuildStep.RECORD_PROGRESS)

    def _left(self, outcome: PlanOutcome, before: Execution, state: Execution) -> Write:
        """The record of a build that goes: it is the config's from now on."""
        config = self._config
        owner = owner_reference(api.CONFIGS, config.name, uid_of(config.document))
        return self._record(outcome, before, state, {**owner, "controller": False, "blockOwnerDeletion": False})

    def _stored(self, name: str) -> dict[str, str] | None:
        existing = self._config.build(name)
        record = self._config.record(existing) if existing is not None else None
        if record is None:
            return None
        return {names.ARCHITECTURES_FILE: record.architectures, EXECUTION_FILE: record.execution}

    def _away(self, outcome: PlanOutcome, build: Document) -> list[Write]:
        """A build that goes, with its Jobs and their inputs, whose names are needed again; its record stays."""
        facts, name = outcome.facts, name_of(build)
        before = next((each for each in facts.executions if each.name == name and each.uid == uid_of(build)), None)
        found: list[Write] = []
        if before is not None and self._config.record(build) is not None:
            found.append(self._left(outcome, before, recorded_state(before)))
        return [*found, *job_deletions(self._config, facts.jobs, name), _deletion(build)]


def _deletion(build: Document) -> Write:
    return Write(
        verb="delete", kind=api.BUILDS.kind, name=name_of(build), step=BuildStep.END_SUPERSEDED, uid=uid_of(build)
    )


def _is_over(build: Document, *stages: str) -> bool:
    deleting = (build.get("metadata") or {}).get("deletionTimestamp")
    return not deleting and stage_of(build.get("status") or {}) in stages


def _new_jobs(state: Execution) -> list[tuple[str, str]]:
    """Name and UID of every Job of an execution, if one of them is made now."""
    jobs = [(each.job, each.job_uid) for each in state.children if each.job and each.job_uid]
    return jobs if any(uid == uid_placeholder("Job", name) for name, uid in jobs) else []


def _without_jobs(state: Execution) -> Execution:
    """The execution before its Jobs are made: a record never names a Job that may not exist."""
    children = tuple(
        ChildRecord(architecture=each.architecture, key=each.key) if each.phase == "Building" else each
        for each in state.children
    )
    return msgspec.structs.replace(state, phase="Pending", children=children)


# -- the plan ----------------------------------------------------------------------------------------------------------


SEEDED_CONDITION: Final = "Seeded"
"""The condition of a config whose first result was taken as it was."""


def plan_machine_os(facts: BuildFacts, config: MachineOSConfigFacts) -> BuildPlan:
    """The plan for a MachineOSConfig."""
    seeded = _seeded(facts, config)
    if seeded is not None:
        return seeded
    found = planned(facts, MachineOSConfigKind(config))
    told = (*found.events, *_rollout(facts, config, found), *stock_events(facts, config, found))
    return msgspec.structs.replace(found, events=told)


def _seeded(facts: BuildFacts, config: MachineOSConfigFacts) -> BuildPlan | None:
    """The plan that takes an image as it is, where one is named and nothing keeps it from being taken."""
    image = seeded_image(config)
    if not image:
        return None
    request = resolve_request(facts)
    target = request.target
    asked = seeding_lookup(facts, image, config)
    lookups = (*request.lookups, *((asked,) if asked is not None else ()))
    if lookups:
        return BuildPlan(decision="Wait", reason="Asking", message=f"{image} is looked up first.", lookups=lookups)
    if target is None or not can_be_seeded(facts, image, config):
        return None
    kind = MachineOSConfigKind(config)
    name, _ = kind.next_execution(facts, target)
    made = seeded_state(facts, request, target, name, image)
    message = f"{made.result} is taken as it is: annotation {api.PRE_BUILT} names it."
    outcome = PlanOutcome(
        facts=facts,
        request=request,
        decision="Reassemble",
        reason=SEEDED,
        message=message,
        target=target,
        update=ExecutionUpdate(recorded=made),
        current=made,
        conditions=(Condition(SEEDED_CONDITION, "True", SEEDED, message),),
        bases=tuple(Base(reference=each.reference, digest=each.digest) for each in request.bases or ()),
    )
    writes = (*kind.create(outcome, made), *kind.record(outcome, None, made), *kind.report(outcome))
    return BuildPlan(
        decision=outcome.decision,
        reason=SEEDED,
        message=message,
        architectures=target.architectures,
        keys=target.keys,
        build_key=target.build_key,
        execution=name,
        conditions=outcome.conditions,
        writes=writes,
    )


def _rollout(facts: BuildFacts, config: MachineOSConfigFacts, found: BuildPlan) -> Iterator[PlannedEvent]:
    """Nodes compare what they run with the whole of a pull spec, so another architecture is another image."""
    current = current_execution(facts)
    joining = [each for each in found.architectures if each not in published_architectures(current)]
    if current is None or found.decision not in ("Build", "Reassemble") or not joining:
        return
    message = (
        f"With {', '.join(joining)} the image of pool {config.pool_name} gets another digest, so all of its nodes are "
        f"updated, also those of other architectures. To put that off: annotation {api.ON_NEW}: NextBuild."
    )
    yield PlannedEvent(type="Normal", reason="RolloutExpected", message=message, execution=found.execution)
