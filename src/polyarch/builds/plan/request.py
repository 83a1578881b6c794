"""What is wanted now: architectures, inputs, keys and destination, or what keeps them from being known. Pure.

Everything else in this package compares the :class:`DesiredBuild` with executions, Jobs and registries.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import Architectures, Forced, Pin
from polyarch.builds.api.validation import spec_problems
from polyarch.builds.architectures import ResolvedArchitectures, resolve_architectures
from polyarch.builds.base_images import pin_images
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, Execution, PinnedBase, Problem
from polyarch.builds.keys import BuildInputs, arch_key_document, build_key_document, effective_inputs
from polyarch.builds.names import normalised_repository

ATTESTATIONS_DROPPED = "Drop"


class DesiredBuild(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted now. ``architectures`` are in order."""

    namespace: str
    owner_name: str
    owner_uid: str
    architectures: tuple[str, ...]
    keys: Mapping[str, str]
    build_key: str
    pins: tuple[Pin, ...] = ()
    repository: str
    """Normalised."""
    staging: str = ""
    """Where Jobs push, if not to ``repository``."""
    format: str = "OCI"
    index_mode: str = "Auto"
    index_annotations: Mapping[str, str] = {}
    attestations: str = ATTESTATIONS_DROPPED
    required: tuple[str, ...] = ()
    """``output.partial.required``: with these an index of what succeeded is published."""
    partial: bool = False
    rules: Architectures = Architectures()
    """What the spec says about architectures: which it forbids."""
    forced: Forced | None = None
    """The rebuild token that is being honoured, with the architectures that it is for."""

    @property
    def pushed_to(self) -> str:
        """Where Jobs push children."""
        return self.staging or self.repository

    def forbids(self, architecture: str) -> bool:
        """Whether the spec, not the nodes, rules this architecture out."""
        if self.rules.mode == "Explicit":
            return architecture not in (self.rules.names or ())
        return architecture in (self.rules.exclude or ())

    def forces(self, architecture: str) -> bool:
        """Whether a rebuild was asked for that takes no former child of this architecture."""
        return self.forced is not None and architecture in (self.forced.architectures or ())

    def wants_index(self, count: int) -> bool:
        """Whether the result of ``count`` children is an index, or the one child itself."""
        return self.index_mode == "Always" or count > 1


def forced_alike(one: Forced, other: Forced | None, architecture: str) -> bool:
    """Whether both were asked for by the same token and are about this architecture."""
    return (
        other is not None
        and one.token == other.token
        and architecture in (one.architectures or ())
        and architecture in (other.architectures or ())
    )


def recorded_build(execution: Execution) -> DesiredBuild:
    """What an execution was made for, where what is wanted now is not known."""
    return DesiredBuild(
        namespace=execution.namespace,
        owner_name=execution.owner_name,
        owner_uid=execution.owner_uid,
        architectures=tuple(sorted(each.architecture for each in execution.keys)),
        keys={each.architecture: each.key for each in execution.keys},
        build_key=execution.build_key,
        pins=execution.pins,
        repository=execution.repository,
        format=execution.format,
        index_mode=execution.index_mode,
        index_annotations=execution.index_annotations,
        attestations=execution.attestations,
        required=execution.required,
        partial=bool(execution.required),
        forced=execution.forced,
    )


# -- from the facts ----------------------------------------------------------------------------------------------------


INVALID = "InvalidSpec"
INDEX_FORBIDDEN = "IndexForbidden"
KERNEL_UNSUPPORTED = "KernelTypeUnsupportedForArchitecture"
LARGE_PAGES = "64k-pages"
LARGE_PAGES_ON = "arm64"
"""The only architecture with that kernel, judged by what is built, not by where."""


class ResolvedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. Without ``target`` there are problems or questions, or ``resolved.wait`` says why."""

    resolved: ResolvedArchitectures
    inputs: BuildInputs = BuildInputs()
    target: DesiredBuild | None = None
    documents: Mapping[str, Mapping[str, Any]] = {}
    bases: tuple[PinnedBase, ...] | None = None
    """The pins for the next plan; None: as they are."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    lookups: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None


def resolve_request(facts: BuildFacts) -> ResolvedRequest:
    """What is wanted, before any execution is looked at: architectures, inputs, pins."""
    found, request = _resolve(facts), facts.request
    return msgspec.structs.replace(
        found,
        resolved=msgspec.structs.replace(found.resolved, message=request.worded(found.resolved.message)),
        problems=request.worded_problems(found.problems),
        warnings=request.worded_problems(found.warnings),
    )


def _resolve(facts: BuildFacts) -> ResolvedRequest:
    invalid = _invalid(facts)
    if invalid:
        return ResolvedRequest(
            resolved=ResolvedArchitectures(), problems=invalid, warnings=_translation(facts, "Warning")
        )
    resolved = resolve_architectures(facts)
    if resolved.wait:
        return ResolvedRequest(resolved=resolved, requeue_after=resolved.requeue_after)
    if asked := _unknown_entitlements(facts):
        return ResolvedRequest(resolved=resolved, lookups=asked)
    inputs = effective_inputs(
        facts.request, facts.inputs, resolved.architectures, operator_namespace=facts.settings.operator_namespace
    )
    problems = (*inputs.errors, *_forbidden(facts, resolved))
    warnings = (*_translation(facts, "Warning"), *inputs.warnings)
    if problems:
        return ResolvedRequest(resolved=resolved, inputs=inputs, problems=problems, warnings=warnings)
    pinned = pin_images(facts, resolved.architectures, inputs)
    if pinned.lookups:
        return ResolvedRequest(resolved=resolved, inputs=inputs, lookups=pinned.lookups)
    target, documents = desired_build(facts, inputs, pinned.pulled)
    return ResolvedRequest(
        resolved=resolved,
        inputs=inputs,
        target=target,
        documents=documents,
        bases=pinned.bases,
        warnings=warnings,
        requeue_after=sooner(resolved.requeue_after, pinned.requeue_after),
    )


def desired_build(
    facts: BuildFacts, inputs: BuildInputs, pulled: Mapping[tuple[str, str], str]
) -> tuple[DesiredBuild, dict[str, Mapping[str, Any]]]:
    """The target with these pins: (canonical reference as named, architecture) → digest of the child."""
    spec, output = facts.request.spec, facts.request.spec.output
    keys, documents = {}, {}
    for architecture in sorted(inputs.per_architecture):
        elsewhere = {base.name: base.platform for base in inputs.per_architecture[architecture].bases if base.platform}
        own = {
            name: digest for (name, runs_on), digest in pulled.items() if runs_on == elsewhere.get(name, architecture)
        }
        key = arch_key_document(inputs, architecture, own)
        keys[architecture], documents[architecture] = key.hex, key.document
    pins = tuple(
        Pin(reference=name, architecture=runs_on, digest=digest) for (name, runs_on), digest in sorted(pulled.items())
    )
    required = output.partial.required if output.partial is not None else None
    target = DesiredBuild(
        namespace=facts.request.namespace,
        owner_name=facts.request.name,
        owner_uid=facts.request.uid,
        architectures=tuple(keys),
        keys=keys,
        build_key=build_key_document(output, keys).hex,
        pins=pins,
        repository=normalised_repository(output.repository),
        staging=normalised_repository(output.staging_repository) if output.staging_repository else "",
        format=output.format,
        index_mode=output.index,
        index_annotations=dict(sorted((output.annotations or {}).items())),
        attestations=output.attestations,
        required=tuple(sorted(set(required or ()))),
        partial=bool(required),
        rules=spec.architectures,
    )
    return target, documents


def as_executed(facts: BuildFacts, inputs: BuildInputs, execution: Execution) -> DesiredBuild:
    """The target with an execution's pins: they are younger than the build's until its status is written."""
    pulled = {(pin.reference, pin.architecture): pin.digest for pin in execution.pins}
    return desired_build(facts, inputs, pulled)[0]


def with_force(target: DesiredBuild, forced: Forced | None) -> DesiredBuild:
    """The desired build with the rebuild that is asked for."""
    return msgspec.structs.replace(target, forced=forced)


def _invalid(facts: BuildFacts) -> tuple[Problem, ...]:
    """What admission would have refused; a MachineOSConfig's translation is not the user's text."""
    if facts.request.kind != "ImageBuild":
        return _translation(facts, "Error")
    return tuple(Problem(reason=INVALID, message=f"{each}") for each in spec_problems(facts.request.spec))


def _forbidden(facts: BuildFacts, resolved: ResolvedArchitectures) -> tuple[Problem, ...]:
    found = []
    if facts.request.spec.output.index == "Never" and resolved.is_multi:
        message = (
            f"spec.output.index is Never, but there are {len(resolved.architectures)} architectures "
            f"({', '.join(resolved.architectures)}): set it to Auto, or name one in spec.architectures.list."
        )
        found.append(Problem(reason=INDEX_FORBIDDEN, message=message))
    machine = facts.request.machine
    others = [each for each in resolved.architectures if each != LARGE_PAGES_ON]
    if machine is not None and machine.kernel_type == LARGE_PAGES and others:
        message = (
            f"kernelType {LARGE_PAGES} exists for {LARGE_PAGES_ON} only, but the pool has nodes of "
            f"{', '.join(others)}: move them to another pool, or take the kernel type out of the pool's MachineConfigs."
        )
        found.append(Problem(reason=KERNEL_UNSUPPORTED, message=message))
    return tuple(found)


def _unknown_entitlements(facts: BuildFacts) -> tuple[BuildLookup, ...]:
    """Whether they are there is part of a machine OS's keys."""
    entitled = facts.request.machine.entitled if facts.request.machine is not None else ()
    secrets = [each.object for each in entitled if each.kind == "Secret" and each.object not in facts.inputs.secrets]
    config_maps = [
        each.object for each in entitled if each.kind == "ConfigMap" and each.object not in facts.inputs.config_maps
    ]
    if not facts.inputs.readable:
        secrets = []
    return (
        *(BuildLookup(reference=each, what="secret") for each in secrets),
        *(BuildLookup(reference=each, what="configmap") for each in config_maps),
    )


def _translation(facts: BuildFacts, severity: str) -> tuple[Problem, ...]:
    return tuple(each for each in facts.request.problems if each.severity == severity)


def sooner(*times: float | None) -> float | None:
    """The first of some times, None for none."""
    return min((time for time in times if time is not None), default=None)
