"""The course: what was decided in one round, before a front-end turns it into objects and writes. Pure.

The planner decides with executions, children and Jobs alone; whether an execution is an ImageBuildRun or a
MachineOSBuild is the front-end's matter (``front``)."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from polyarch.builds.api.resources import Base, LastFailure
from polyarch.builds.architectures import auto_profile, scheduling_of
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, Execution, Problem
from polyarch.builds.jobs.manifests import RegistryJobSpec
from polyarch.builds.jobs.results import IndexJobRequest
from polyarch.builds.jobs.spec import (
    ArchitectureJobSpec,
    ExternalImage,
    JobMetadata,
    ProfileName,
    forbidden_by_pod_security,
)
from polyarch.builds.keys import BaseImage, BuildInputs
from polyarch.builds.plan.document import BuildDecision, PlannedArchitecture, PlannedEvent, PlannedIndex, Write
from polyarch.builds.plan.request import DesiredBuild
from polyarch.builds.plan.reuse import ExecutionState
from polyarch.objects import Condition
from polyarch.oci.reference import parse


class PlanOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one wish."""

    facts: BuildFacts
    decision: BuildDecision
    reason: str
    message: str
    architectures: tuple[str, ...] | None = None
    """D; None where it is not known, and the last one stays."""
    target: DesiredBuild | None = None
    """None where the keys are not known: inputs are missing, wrong, or not to be read."""
    documents: Mapping[str, Mapping[str, Any]] = {}
    per_architecture: tuple[PlannedArchitecture, ...] = ()
    index: PlannedIndex = PlannedIndex()
    before: Execution | None = None
    """The execution that is worked on, as it is stored; None where it is new or there is none."""
    execution: ExecutionState | None = None
    """The same as it is after this round."""
    held: str = ""
    """Name of the execution that has failed and that nothing has released yet."""
    superseded: tuple[tuple[Execution, ExecutionState], ...] = ()
    current: ExecutionState | None = None
    """The execution whose result is the published one after this round."""
    index_work: IndexJobRequest | None = None
    """A Job is made that publishes a result."""
    awaited: str = ""
    """UID of the index Job of a finished execution that is still needed."""
    problems: tuple[Problem, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Of the wish."""
    summary: str = ""
    tags: tuple[str, ...] = ()
    """``output.tags`` as they stand on the result after this round."""
    rebuild_token: str = ""
    """The last one that was honoured, after this round."""
    bases: tuple[Base, ...] | None = None
    """The pins after this round; None: as they are."""
    last_failure: LastFailure | None = None
    events: tuple[PlannedEvent, ...] = ()
    requeue_after: float | None = None


# -- Orders: what the Job of one architecture is made from, once everything about it is decided (S4). Pure.


MAX_INPUTS: Final = 1024 * 1024
"""Bytes that API servers take in one ConfigMap."""


class JobInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The Job of one architecture, as far as the planner knows it."""

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


def architecture_job_spec(making: JobInputs, identity: JobMetadata) -> ArchitectureJobSpec:
    """The order for a Job that belongs to this identity."""
    facts, spec = making.facts, making.facts.wish.spec
    own = making.inputs.per_architecture[making.architecture]
    return ArchitectureJobSpec(
        identity=identity,
        spec=spec,
        architecture=making.architecture,
        host=making.host,
        profile=profile_of(facts, making.architecture, making.host),
        containerfile=own.containerfile,
        arguments=own.args,
        images=[_image(base, making) for base in own.bases],
        context_data=_context(facts),
        repository=making.target.pushed_to,
        tag=making.tag,
        settings=facts.settings,
    )


def index_job_spec(facts: BuildFacts, work: IndexJobRequest, identity: JobMetadata) -> RegistryJobSpec:
    """The order for the Job that publishes a result."""
    return RegistryJobSpec(identity=identity, spec=facts.wish.spec, settings=facts.settings, document=work.document)


def profile_of(facts: BuildFacts, architecture: str, host: str) -> ProfileName:
    """The security profile of the pod."""
    match facts.wish.spec.builder.security_profile:
        case "UserNamespace":
            return "UserNamespace"
        case "Rootless":
            return "Rootless"
        case "Privileged":
            return "Privileged"
        case _:
            return auto_profile(facts, architecture, host).name


def unread_runtimes(facts: BuildFacts, architectures: Iterable[str]) -> tuple[BuildLookup, ...]:
    """RuntimeClasses whose handlers have to be known before Jobs of these architectures are made."""
    named = {name for _, name in _runtimes(facts, architectures)} - facts.runtime_handlers.keys()
    return tuple(BuildLookup(reference=each, what="runtimeclass") for each in sorted(named))


def _runtimes(facts: BuildFacts, architectures: Iterable[str]) -> list[tuple[str, str]]:
    found = ((each, scheduling_of(facts, each).runtime_class_name) for each in sorted(architectures))
    return [(architecture, name) for architecture, name in found if name]


def forbidden(facts: BuildFacts, architectures: Iterable[str]) -> Sequence[Problem]:
    """What keeps pods of builds from being made, said before a Job is."""
    found = []
    if facts.wish.spec.builder.security_profile == "Privileged" and not facts.settings.allow_privileged:
        message = (
            "spec.builder.securityProfile is Privileged, which the builder does not allow: use Auto, or have the "
            "administrator set builds.allowPrivileged: true in the values of the installation."
        )
        found.append(Problem(reason="ProfileForbidden", message=message))
    for architecture, name in _runtimes(facts, architectures):
        if name in facts.runtime_handlers and facts.runtime_handlers[name] is None:
            field = f"spec.scheduling.perArchitecture[{architecture}].runtimeClassName"
            message = f"RuntimeClass {name}, which {field} names, does not exist; create it or correct the name."
            found.append(Problem(reason="InputMissing", message=message, architecture=architecture))
    said = forbidden_by_pod_security(facts.wish.namespace, facts.inputs.pod_security)
    if said is not None:
        found.append(Problem(reason="PodSecurityForbids", message=f"{said[:1].upper()}{said[1:]}."))
    return found


def oversized(manifests: Iterable[Mapping[str, Any]]) -> Sequence[Problem]:
    """What of these objects no API server takes: a Run of it would only wait to fail. The largest one is told."""
    found = [
        (sum(sizes.values()), sizes) for each in manifests if each["kind"] == "ConfigMap" for sizes in [_sizes(each)]
    ]
    size, sizes = max(found, key=lambda each: each[0], default=(0, {}))
    if size <= MAX_INPUTS:
        return ()
    files = ", ".join(f"{name} {sizes[name]}" for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
    message = (
        f"What a Job would be given is {size} bytes ({files}), and a ConfigMap takes {MAX_INPUTS}: have fewer or "
        "shorter build arguments and labels, which it holds twice, or move parts of the Containerfile into the context."
    )
    return (Problem(reason="InvalidSpec", message=message),)


def _sizes(config_map: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each file, as API servers count them."""
    texts = {name: len(text.encode("utf-8", "surrogatepass")) for name, text in (config_map.get("data") or {}).items()}
    binary = {name: len(base64.b64decode(text)) for name, text in (config_map.get("binaryData") or {}).items()}
    return texts | binary


def _image(base: BaseImage, making: JobInputs) -> ExternalImage:
    """What is pulled for a base: the pinned child, for the stages of the host its own."""
    pulled = {(pin.reference, pin.architecture): pin.digest for pin in making.target.pins}
    architecture = making.architecture if base.for_target else making.host
    digest = pulled.get((base.name, architecture))
    return ExternalImage(written=base.written, pull=f"{parse(base.pull).name}@{digest}" if digest else base.pull)


def _context(facts: BuildFacts) -> Mapping[str, Any] | None:
    context = facts.wish.spec.source.context
    if context.type != "ConfigMap" or context.config_map is None:
        return None
    return facts.inputs.config_maps.get(context.config_map.name)


# -- What differs between the kinds of builds: names, and the objects that an execution and a wish are recorded in.


class BuildKind(Protocol):
    """The kind of a build, for the planner."""

    def obstacle(self, facts: BuildFacts) -> Problem | None:
        """What forbids a new execution now although everything else is right: ``Suspended``, ``PoolDegraded``."""
        ...

    def name(self, facts: BuildFacts, target: DesiredBuild) -> tuple[str, int]:
        """Name and serial of the next execution for this target."""
        ...

    def is_named(self, facts: BuildFacts, target: DesiredBuild, execution: Execution) -> bool:
        """Whether the wish can have this execution, which makes or has what is wanted, as its own."""
        ...

    def job_name(self, execution: str, architecture: str, *, architectures: int) -> str:
        """Of ``architectures`` Jobs the one that builds this architecture."""
        ...

    def index_job_name(self, execution: str) -> str: ...

    def record_name(self, execution: str) -> str:
        """The ConfigMap of BD-049."""
        ...

    def tags(self, facts: BuildFacts, execution: str) -> tuple[str, ...]:
        """What the result is tagged with, the execution's own tag first."""
        ...

    def child_tag(self, facts: BuildFacts, execution: str, architecture: str, *, architectures: int) -> str:
        """The tag of a child; empty where it has none."""
        ...

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        """The controller owner reference to an execution."""
        ...

    def manifests(self, making: JobInputs) -> Sequence[Mapping[str, Any]]:
        """What has to be created for one architecture, in order, its Job last (S4)."""
        ...

    def preparations(self, making: JobInputs) -> Sequence[Write]:
        """What has to be there before these, beyond them (S4)."""
        ...

    def create(self, course: PlanOutcome, state: ExecutionState) -> Sequence[Write]:
        """The execution itself (S1)."""
        ...

    def record(self, course: PlanOutcome, before: Execution | None, state: ExecutionState) -> Sequence[Write]:
        """Status and ConfigMap of an execution (S5, S9): nothing where they are stored already."""
        ...

    def supersede(self, course: PlanOutcome, before: Execution, state: ExecutionState) -> Sequence[Write]:
        """What makes an older execution end, after its Jobs were taken over or deleted (S3)."""
        ...

    def report(self, course: PlanOutcome) -> Sequence[Write]:
        """The status of the wish and what else is told about it (S10): nothing where it is stored already."""
        ...
