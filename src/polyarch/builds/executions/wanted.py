"""What is wanted, from the facts: architectures, inputs, pins, keys; or what keeps it from being known. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import Forced, Pin
from polyarch.builds.api.validation import spec_problems
from polyarch.builds.architectures.pins import Pinned, pinning
from polyarch.builds.architectures.resolution import Resolved, resolve
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Execution, Facts, PinnedBase, Question
from polyarch.builds.facts.problem import Problem
from polyarch.builds.keys import handles
from polyarch.builds.keys.composition import arch_key, build_key
from polyarch.builds.keys.inputs import Inputs, effective

INVALID = "InvalidSpec"
INDEX_FORBIDDEN = "IndexForbidden"
KERNEL_UNSUPPORTED = "KernelTypeUnsupportedForArchitecture"
LARGE_PAGES = "64k-pages"
LARGE_PAGES_ON = "arm64"
"""The only architecture with that kernel, judged by what is built, not by where (BD-269)."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. Without ``target`` there are problems or questions, or ``resolved.wait`` says why."""

    resolved: Resolved
    inputs: Inputs = Inputs()
    target: Target | None = None
    documents: Mapping[str, Mapping[str, Any]] = {}
    bases: tuple[PinnedBase, ...] | None = None
    """The pins for the next plan; None: as they are."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    questions: tuple[Question, ...] = ()
    requeue_after: float | None = None


def wanted(facts: Facts) -> Wanted:
    """Steps 1 to 3 of BD-090."""
    invalid = _invalid(facts)
    if invalid:
        return Wanted(resolved=Resolved(), problems=invalid, warnings=_translation(facts, "Warning"))
    resolved = resolve(facts)
    if resolved.wait:
        return Wanted(resolved=resolved, requeue_after=resolved.requeue_after)
    if asked := _unknown_entitlements(facts):
        return Wanted(resolved=resolved, questions=asked)
    inputs = effective(
        facts.wish, facts.inputs, resolved.architectures, operator_namespace=facts.settings.operator_namespace
    )
    problems = (*inputs.errors, *_forbidden(facts, resolved))
    warnings = (*_translation(facts, "Warning"), *inputs.warnings)
    if problems:
        return Wanted(resolved=resolved, inputs=inputs, problems=problems, warnings=warnings)
    pinned = pinning(facts, resolved.architectures, inputs)
    if pinned.questions:
        return Wanted(resolved=resolved, inputs=inputs, questions=pinned.questions)
    target, documents = target_of(facts, inputs, pinned.pulled)
    return Wanted(
        resolved=resolved,
        inputs=inputs,
        target=target,
        documents=documents,
        bases=pinned.bases,
        warnings=warnings,
        requeue_after=_sooner(resolved.requeue_after, pinned),
    )


def target_of(
    facts: Facts, inputs: Inputs, pulled: Mapping[tuple[str, str], str]
) -> tuple[Target, dict[str, Mapping[str, Any]]]:
    """The target with these pins: (canonical reference as named, architecture) → digest of the child."""
    spec, output = facts.wish.spec, facts.wish.spec.output
    keys, documents = {}, {}
    for architecture in sorted(inputs.per_architecture):
        own = {name: digest for (name, runs_on), digest in pulled.items() if runs_on == architecture}
        key = arch_key(inputs, architecture, own)
        keys[architecture], documents[architecture] = key.hex, key.document
    pins = tuple(
        Pin(reference=name, architecture=runs_on, digest=digest) for (name, runs_on), digest in sorted(pulled.items())
    )
    required = output.partial.required if output.partial is not None else None
    target = Target(
        namespace=facts.wish.namespace,
        owner_name=facts.wish.name,
        owner_uid=facts.wish.uid,
        architectures=tuple(keys),
        keys=keys,
        build_key=build_key(output, keys).hex,
        pins=pins,
        repository=handles.repository(output.repository),
        staging=handles.repository(output.staging_repository) if output.staging_repository else "",
        format=output.format,
        index_mode=output.index,
        index_annotations=dict(sorted((output.annotations or {}).items())),
        attestations=output.attestations,
        required=tuple(sorted(set(required or ()))),
        partial=bool(required),
        rules=spec.architectures,
    )
    return target, documents


def as_executed(facts: Facts, inputs: Inputs, execution: Execution) -> Target:
    """The target with an execution's pins: they are younger than the wish's until the wish's status is written."""
    pulled = {(pin.reference, pin.architecture): pin.digest for pin in execution.pins}
    return target_of(facts, inputs, pulled)[0]


def with_force(target: Target, forced: Forced | None) -> Target:
    """The same, with the rebuild that is asked for."""
    return msgspec.structs.replace(target, forced=forced)


def _invalid(facts: Facts) -> tuple[Problem, ...]:
    """What admission would have refused (BD-012); a MachineOSConfig's translation is not the user's text."""
    if facts.wish.kind != "ImageBuild":
        return _translation(facts, "Error")
    return tuple(Problem(reason=INVALID, message=f"{each}") for each in spec_problems(facts.wish.spec))


def _forbidden(facts: Facts, resolved: Resolved) -> tuple[Problem, ...]:
    found = []
    if facts.wish.spec.output.index == "Never" and resolved.is_multi:
        message = (
            f"spec.output.index is Never, but there are {len(resolved.architectures)} architectures "
            f"({', '.join(resolved.architectures)}): set it to Auto, or name one in spec.architectures.list."
        )
        found.append(Problem(reason=INDEX_FORBIDDEN, message=message))
    machine = facts.wish.machine
    others = [each for each in resolved.architectures if each != LARGE_PAGES_ON]
    if machine is not None and machine.kernel_type == LARGE_PAGES and others:
        message = (
            f"kernelType {LARGE_PAGES} exists for {LARGE_PAGES_ON} only, but the pool has nodes of "
            f"{', '.join(others)}: move them to another pool, or take the kernel type out of the pool's MachineConfigs."
        )
        found.append(Problem(reason=KERNEL_UNSUPPORTED, message=message))
    return tuple(found)


def _unknown_entitlements(facts: Facts) -> tuple[Question, ...]:
    """Whether they are there is part of a machine OS's keys (BD-074)."""
    entitled = facts.wish.machine.entitled if facts.wish.machine is not None else ()
    secrets = [each.object for each in entitled if each.kind == "Secret" and each.object not in facts.inputs.secrets]
    config_maps = [
        each.object for each in entitled if each.kind == "ConfigMap" and each.object not in facts.inputs.config_maps
    ]
    if not facts.inputs.readable:
        secrets = []
    return (
        *(Question(reference=each, what="secret") for each in secrets),
        *(Question(reference=each, what="configmap") for each in config_maps),
    )


def _translation(facts: Facts, severity: str) -> tuple[Problem, ...]:
    return tuple(each for each in facts.wish.problems if each.severity == severity)


def _sooner(one: float | None, pinned: Pinned) -> float | None:
    known = [each for each in (one, pinned.requeue_after) if each is not None]
    return min(known, default=None)
