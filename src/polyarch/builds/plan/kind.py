"""What the planner hands to the kind of a build, and what it needs of one: ImageBuild or MachineOSConfig.

The planner decides with executions, children and Jobs alone. A kind decides nothing about what is built: it gives
names, and turns a :class:`PlanOutcome` into the objects in which executions and build requests are recorded."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from polyarch.builds.api.resources import Base, Builder, RunBuilder
from polyarch.builds.architectures import auto_profile
from polyarch.builds.base_images import pinned_image
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    Execution,
    Problem,
    RequestKind,
    WriteFailure,
)
from polyarch.builds.jobs.results import IndexJobRequest
from polyarch.builds.jobs.spec import ArchitectureJobSpec, JobMetadata, ProfileName, PulledImage
from polyarch.builds.keys import BaseImage, BuildInputs
from polyarch.builds.plan.document import BuildDecision, Write
from polyarch.builds.plan.executions import ExecutionNames
from polyarch.builds.plan.failures import FailureHold
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest
from polyarch.builds.plan.update import ExecutionUpdate
from polyarch.kube.resources import Resource
from polyarch.objects import Condition
from polyarch.oci.reference import parse


class PlanOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one build, before writes are made of it."""

    facts: BuildFacts
    request: ResolvedRequest
    decision: BuildDecision
    reason: str
    message: str
    target: DesiredBuild | None = None
    """None where the keys are not known: inputs are missing, wrong, or not to be read."""
    before: Execution | None = None
    """The execution that goes on, as it is stored; None where it is new or there is none."""
    update: ExecutionUpdate | None = None
    """The execution as it is afterwards."""
    supersedes: bool = False
    """Other executions under way end."""
    superseded: tuple[tuple[Execution, Execution], ...] = ()
    """These others, as they are stored and as they end."""
    current: Execution | None = None
    """The execution whose result is the published one afterwards."""
    tags: tuple[str, ...] = ()
    """``output.tags`` as they stand on this result."""
    retag: Write | None = None
    """The write that moves tags to it."""
    tag_job: IndexJobRequest | None = None
    """The Job that moves them instead, where it has to be made."""
    tag_job_uid: str = ""
    """The Job that moves tags, where it exists and is still needed."""
    hold: FailureHold | None = None
    blocker: Problem | None = None
    """What keeps a new execution from being made."""
    problems: tuple[Problem, ...] = ()
    undecided: bool = False
    """True while a registry is still being tried: it is too early to call the inputs invalid."""
    failure: WriteFailure | None = None
    """A write that failed, outside of any execution."""
    warnings: tuple[Problem, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """The conditions of the build request."""
    bases: tuple[Base, ...] | None = None
    """The pins of base images; None: they stay as they are."""
    lookups: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None

    @property
    def execution(self) -> Execution | None:
        """The execution that was begun or goes on, as it is afterwards."""
        return self.update.state if self.update is not None else None

    @property
    def execution_name(self) -> str:
        """The execution that the plan is about: under way, failed, or published."""
        if self.update is not None:
            return self.update.recorded.name
        if self.hold is not None:
            return self.hold.execution
        return self.current.name if self.current is not None else ""

    @property
    def architectures(self) -> tuple[str, ...] | None:
        """The desired architectures; None where they are not known, and the last ones stay."""
        return self.request.resolved.architectures or None


class JobInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the Job of one architecture is made from."""

    facts: BuildFacts
    target: DesiredBuild
    inputs: BuildInputs
    architecture: str
    execution: str
    """Name of the execution that the Job is for."""
    owner: dict[str, Any]
    """Reference to that execution."""
    job: str
    host: str
    """The architecture of the nodes where it runs."""
    tag: str
    """The tag of the child; empty: none."""
    builder: RunBuilder
    """The images of its pod, which all Jobs of the execution have."""


class BuildKind(Protocol):
    """What differs between ImageBuild and MachineOSConfig: names, objects and statuses. All of it is pure."""

    @property
    def name(self) -> RequestKind: ...

    @property
    def execution_kind(self) -> str:
        """``ImageBuildRun`` or ``MachineOSBuild``."""
        ...

    def blocker(self, facts: BuildFacts) -> Problem | None:
        """What forbids a new execution now although everything else is right: ``Suspended``, ``PoolDegraded``."""
        ...

    def next_execution(self, facts: BuildFacts, target: DesiredBuild) -> tuple[str, int]:
        """Name and serial of the next execution for this target."""
        ...

    def can_own(self, target: DesiredBuild, execution: Execution) -> bool:
        """Whether the build can have this execution, which makes or has what is wanted, as its own by its name."""
        ...

    def execution_names(self, facts: BuildFacts, execution: str, architectures: Sequence[str]) -> ExecutionNames:
        """Names of everything that an execution for these architectures makes."""
        ...

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        """The controller owner reference to an execution."""
        ...

    def job_writes(self, job_inputs: JobInputs) -> Sequence[Write]:
        """What is written for the Job of one architecture, in order, the Job last."""
        ...

    def create(self, outcome: PlanOutcome, state: Execution) -> Sequence[Write]:
        """The execution itself."""
        ...

    def record(self, outcome: PlanOutcome, before: Execution | None, state: Execution) -> Sequence[Write]:
        """Status and ConfigMap of an execution: nothing where they are stored already."""
        ...

    def supersede(self, outcome: PlanOutcome, before: Execution, state: Execution) -> Sequence[Write]:
        """What makes an older execution end, after its Jobs were taken over or deleted."""
        ...

    def report(self, outcome: PlanOutcome) -> Sequence[Write]:
        """The status of the build request and its annotations: nothing where they are stored already."""
        ...


def owner_reference(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """The controller owner reference to an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def architecture_job_spec(job_inputs: JobInputs, metadata: JobMetadata) -> ArchitectureJobSpec:
    """The spec of the Job of one architecture."""
    facts, spec = job_inputs.facts, job_inputs.facts.request.spec
    spec = msgspec.structs.replace(spec, builder=_with_images(spec.builder, job_inputs.builder))
    own = job_inputs.inputs.per_architecture[job_inputs.architecture]
    return ArchitectureJobSpec(
        metadata=metadata,
        spec=spec,
        architecture=job_inputs.architecture,
        host=job_inputs.host,
        profile=_profile(facts, job_inputs.architecture, job_inputs.host),
        containerfile=own.containerfile,
        arguments=own.args,
        images=[_image(base, job_inputs) for base in own.bases],
        context_data=_context(facts),
        repository=job_inputs.target.pushed_to,
        tag=job_inputs.tag,
        settings=facts.settings,
    )


def _with_images(builder: Builder, images: RunBuilder) -> Builder:
    """What an execution has kept goes before what is named now."""
    return msgspec.structs.replace(
        builder,
        image=pinned_image(images.image, images.digest) or builder.image,
        push_image=pinned_image(images.push_image, images.push_digest) or builder.push_image,
    )


def _profile(facts: BuildFacts, architecture: str, host: str) -> ProfileName:
    """The security profile of the pod."""
    match facts.request.spec.builder.security_profile:
        case "UserNamespace" | "Rootless" | "Privileged" as profile:
            return profile
        case _:
            return auto_profile(facts, architecture, host).name


def _image(base: BaseImage, job_inputs: JobInputs) -> PulledImage:
    """What is pulled for a base: the pinned child, for the stages of the host its own."""
    pulled = {(pin.reference, pin.architecture): pin.digest for pin in job_inputs.target.pins}
    architecture = base.platform or (job_inputs.architecture if base.for_target else job_inputs.host)
    digest = pulled.get((base.name, architecture))
    return PulledImage(written=base.written, pull=f"{parse(base.pull).name}@{digest}" if digest else base.pull)


def _context(facts: BuildFacts) -> Mapping[str, Any] | None:
    context = facts.request.spec.source.context
    if context.type != "ConfigMap" or context.config_map is None:
        return None
    return facts.inputs.config_maps.get(context.config_map.name)
