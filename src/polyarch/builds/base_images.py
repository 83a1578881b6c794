"""The images that a build needs, their pins, and the checks before the first Job. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.builds.api.formats import BuildTimes
from polyarch.builds.api.resources import RunBuilder
from polyarch.builds.architectures import host_of
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, PinnedBase, Problem
from polyarch.builds.keys import BuildInputs
from polyarch.builds.names import canonical_image
from polyarch.oci.inspection import Entry, ErrorClass, Inspection, InspectionError, Status
from polyarch.oci.reference import InvalidReference, parse
from polyarch.platforms import Platform

LINUX: Final = "linux"
_ARM_ORDER: Final = ("v7", "v6", "v5")
"""What an arm node of the default variant can run, the best first."""


def child_of(answer: Inspection, architecture: str) -> str | None:
    """The digest of what linux/``architecture`` pulls, None if there is nothing for it.

    Empty if it is there and its digest is not known. Content that has no platform at all, such as an artifact, fits
    every architecture.
    """
    if answer.status is Status.NEUTRAL:
        return answer.digest
    if answer.status is not Status.RESOLVED:
        return None
    entry = _best(answer.entries, architecture)
    if entry is None:
        return None
    return entry.digest or ("" if answer.kind == "index" else answer.digest)


def children_of(answer: Inspection) -> Mapping[str, str]:
    """The child of every linux architecture that the image has, with the digests that are known."""
    names = sorted({each.platform.architecture for each in answer.entries if each.platform.os == LINUX})
    found = {name: child_of(answer, name) for name in names}
    return {name: digest for name, digest in found.items() if digest}


def platforms_of(answer: Inspection) -> str:
    """The platforms that there are, for a message."""
    return ", ".join(sorted({str(each) for each in answer.platforms})) or "no platform"


def _best(entries: Iterable[Entry], architecture: str) -> Entry | None:
    """The entry of the default variant, else the best that its nodes can run, else the lowest: never by position."""
    fitting = [each for each in entries if (each.platform.os, each.platform.architecture) == (LINUX, architecture)]
    return min(fitting, key=lambda each: (_rank(each.platform), each.digest), default=None)


def _rank(platform: Platform) -> tuple[int, str]:
    if platform.variant == Platform.of(LINUX, platform.architecture).variant:
        return 0, ""
    if platform.architecture == "arm" and platform.variant in _ARM_ORDER:
        return 1 + _ARM_ORDER.index(platform.variant), ""
    return 1 + len(_ARM_ORDER), platform.variant


# -- required images ---------------------------------------------------------------------------------------------------


ImageRole = Literal["base", "builder", "push"]


class RequiredImage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image that has to be there for the build of one architecture."""

    asked: str
    """The canonical reference that a registry is asked about, and that pins are kept by."""
    architecture: str
    """The architecture of the image that is built."""
    runs_on: str
    """The architecture that the image must have: the same, or that of the nodes where it is built."""
    reference: str
    """Canonical, as the Containerfile or the settings name it: the same as ``asked`` but for a substitution."""
    role: ImageRole = "base"
    required: bool = True
    """False: it is part of the key if there is one, and nothing pulls it."""


def required_images(facts: BuildFacts, architectures: Iterable[str], inputs: BuildInputs) -> tuple[RequiredImage, ...]:
    """Every image of every architecture, sorted."""
    return tuple(sorted({need for each in set(architectures) for need in _of(facts, each, inputs)}))


def _of(facts: BuildFacts, architecture: str, inputs: BuildInputs) -> Iterator[RequiredImage]:
    host = host_of(facts, architecture).architecture
    own = inputs.per_architecture.get(architecture)
    for base in own.bases if own is not None else ():
        if base.platform:
            yield RequiredImage(asked=base.pull, architecture=architecture, runs_on=base.platform, reference=base.name)
            continue
        # The child for the architecture itself is part of the key even if its stage runs elsewhere.
        yield RequiredImage(
            asked=base.pull,
            architecture=architecture,
            runs_on=architecture,
            reference=base.name,
            required=base.for_target or (base.for_build and host == architecture),
        )
        if base.for_build and host != architecture:
            yield RequiredImage(asked=base.pull, architecture=architecture, runs_on=host, reference=base.name)
    for image in _machine(inputs):
        yield RequiredImage(asked=image, architecture=architecture, runs_on=architecture, reference=image)
    for role, image in _tools(facts):
        yield RequiredImage(asked=image, architecture=architecture, runs_on=host, reference=image, role=role)


def _machine(inputs: BuildInputs) -> Iterator[str]:
    if inputs.machine is not None:
        yield from (
            canonical_image(each) for each in (inputs.machine.os_image, inputs.machine.extensions_image) if each
        )


def _tools(facts: BuildFacts) -> Iterator[tuple[ImageRole, str]]:
    """The images that the pods of the build run."""
    builder = facts.request.spec.builder
    if image := builder.image or facts.settings.builder_image:
        yield "builder", canonical_image(image)
    if image := builder.push_image or facts.settings.push_image:
        yield "push", canonical_image(image)


def builder_lookups(facts: BuildFacts) -> tuple[BuildLookup, ...]:
    """What the images of pods lead to now, where that is not known; nothing where registries are for Jobs only."""
    if facts.leaves_registries_to_jobs:
        return ()
    return each_once(_tool_lookup(image) for _, image in _tools(facts) if image not in facts.images)


def builder_images(facts: BuildFacts) -> RunBuilder:
    """The images of pods with the digests that are known, for an execution to keep.

    A tag means one image for all nodes of an execution, and the next execution sees where it has moved to.
    """
    found: dict[ImageRole, tuple[str, str]] = {}
    for role, image in _tools(facts):
        answer = facts.images.get(image)
        known = answer.digest if answer is not None and answer.status in _USABLE else ""
        found[role] = image, _digest_in(image) or known
    image, digest = found.get("builder", ("", ""))
    push_image, push_digest = found.get("push", ("", ""))
    return RunBuilder(image=image, digest=digest, push_image=push_image, push_digest=push_digest)


def _tool_lookup(image: str) -> BuildLookup:
    """Where a tag leads is asked anew: nothing tells that it has moved."""
    return _inspect(image, revalidate=not _digest_in(image))


def _digest_in(image: str) -> str:
    try:
        return parse(image).digest or ""
    except InvalidReference:
        return ""


def pinned_image(image: str, digest: str) -> str:
    """What a pod pulls: the name at this digest; without one the name as it is."""
    return f"{parse(image).name}@{digest}" if digest else image


# -- pins --------------------------------------------------------------------------------------------------------------


RETRY_SECONDS: Final = 60.0
"""When a pin whose interval is over is tried again after a registry gave no answer."""
_USABLE: Final = frozenset({Status.RESOLVED, Status.NEUTRAL})


class BaseImageLookup(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one reference: the pin, a registry's answer, or what has to be asked."""

    pin: PinnedBase | None = None
    answer: Inspection | None = None
    replaces: bool = False
    """The answer is about the reference itself and not about the pinned index: it is the next pin if it can be used."""
    lookup: BuildLookup | None = None

    def child(self, architecture: str) -> str | None:
        """As :func:`~polyarch.builds.base_images.child_of`; None also if it is not known yet.

        A registry that does not answer does not take a pin away."""
        if self.answer is not None and self.answer.status in _USABLE:
            return child_of(self.answer, architecture)
        return self.pin.children.get(architecture) if self.pin is not None else None


class PinSet(msgspec.Struct, frozen=True, kw_only=True):
    """The pins of a plan. A reference without a child for an architecture is not among them."""

    pins: Mapping[str, Mapping[str, str]] = {}
    """Architecture that is built → canonical reference as the Containerfile has it → digest of its child: what keys
    are made of."""
    pulled: Mapping[tuple[str, str], str] = {}
    """Canonical reference as the Containerfile has it and architecture → digest of the child: what Jobs pull, also for
    stages that run on another architecture than the one that is built."""
    bases: tuple[PinnedBase, ...] = ()
    """What is recorded for the next plan, sorted by reference."""
    lookups: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None
    """Seconds until a pin has to be resolved again."""


def pin_images(facts: BuildFacts, architectures: Iterable[str], inputs: BuildInputs) -> PinSet:
    """The pins so far, to plan with. Where registries are for Jobs only nothing is asked or pinned."""
    if facts.leaves_registries_to_jobs:
        return PinSet()
    pins: dict[str, dict[str, str]] = {each: {} for each in sorted(architectures)}
    pulled: dict[tuple[str, str], str] = {}
    bases: dict[str, PinnedBase] = {}
    lookups: list[BuildLookup] = []
    for need in required_images(facts, architectures, inputs):
        if need.role != "base":
            continue
        seen = look_up(facts, need.asked, need.runs_on)
        if seen.lookup is not None:
            lookups.append(seen.lookup)
            continue
        if child := seen.child(need.runs_on):
            pulled[need.reference, need.runs_on] = child
            if need.runs_on == need.architecture:
                pins[need.architecture][need.reference] = child
        if (base := _recorded(facts, need.asked, seen)) is not None:
            bases[need.asked] = base
    timed = bases.values() if facts.request.spec.base_images.policy == "Interval" else ()
    return PinSet(
        pins=pins,
        pulled=pulled,
        bases=tuple(bases[each] for each in sorted(bases)),
        lookups=each_once(lookups),
        requeue_after=min((_due(facts, each) or RETRY_SECONDS for each in timed), default=None),
    )


def each_once(lookups: Iterable[BuildLookup]) -> tuple[BuildLookup, ...]:
    """One lookup per reference, sorted: the strictest of those that there are."""
    strict: dict[str, bool] = {}
    for each in lookups:
        strict[each.reference] = strict.get(each.reference, False) or each.revalidate
    return tuple(BuildLookup(reference=each, what="inspect", revalidate=strict[each]) for each in sorted(strict))


def look_up(facts: BuildFacts, asked: str, architecture: str) -> BaseImageLookup:
    """What decides about the child of a base for an architecture."""
    pin = next((each for each in facts.request.pins if each.reference == asked), None)
    answer = facts.images.get(asked)
    if pin is None:
        return (
            BaseImageLookup(answer=answer, replaces=True)
            if answer is not None
            else BaseImageLookup(lookup=_inspect(asked))
        )
    policy = facts.request.spec.base_images.policy
    due = _due(facts, pin) == 0
    if (policy == "OnBuild" or due) and facts.pins_fresh and answer is not None:
        return BaseImageLookup(pin=pin, answer=answer, replaces=True)
    if due:
        return BaseImageLookup(pin=pin, lookup=_inspect(asked, revalidate=True))
    if architecture in pin.children:
        return BaseImageLookup(pin=pin)
    pinned = msgspec.structs.replace(parse(asked), tag=None, digest=pin.digest).canonical
    answer = facts.images.get(pinned)
    return (
        BaseImageLookup(pin=pin, answer=answer)
        if answer is not None
        else BaseImageLookup(pin=pin, lookup=_inspect(pinned))
    )


def _inspect(reference: str, *, revalidate: bool = False) -> BuildLookup:
    return BuildLookup(reference=reference, what="inspect", revalidate=revalidate)


def _recorded(facts: BuildFacts, asked: str, seen: BaseImageLookup) -> PinnedBase | None:
    """The next pin. One whose image is the same is as old as before, except where its age decides."""
    if seen.answer is None or seen.answer.status not in _USABLE:
        return seen.pin
    children = children_of(seen.answer)
    if not seen.replaces and seen.pin is not None:
        return msgspec.structs.replace(seen.pin, children={**children, **seen.pin.children})
    if not seen.answer.digest:
        return seen.pin
    new = PinnedBase(reference=asked, digest=seen.answer.digest, children=children, resolved=facts.now)
    same = seen.pin is not None and (seen.pin.digest, seen.pin.children) == (new.digest, new.children)
    return seen.pin if same and facts.request.spec.base_images.policy != "Interval" else new


def _due(facts: BuildFacts, pin: PinnedBase) -> float | None:
    """Seconds until its interval is over; None if it has none."""
    interval = BuildTimes.of(facts.request.spec).interval
    return max(0.0, pin.resolved + interval - facts.now) if interval is not None else None


# -- preflight checks --------------------------------------------------------------------------------------------------


PreflightReason = Literal[
    "BaseImageArchitectureMissing",
    "BuilderImageArchitectureMissing",
    "BaseImageNotFound",
    "BaseImageUnauthorized",
    "BaseImageUnusable",
    "RegistryUnreachable",
]
_OF_CLASS: Final[Mapping[ErrorClass, PreflightReason]] = {
    "absent": "BaseImageNotFound",
    "auth": "BaseImageUnauthorized",
    "limit": "RegistryUnreachable",
    "transient": "RegistryUnreachable",
    "content": "BaseImageUnusable",
    "configuration": "BaseImageUnusable",
}
_ORDER: Final[Sequence[PreflightReason]] = (
    "BaseImageArchitectureMissing",
    "BuilderImageArchitectureMissing",
    "BaseImageNotFound",
    "BaseImageUnauthorized",
    "BaseImageUnusable",
    "RegistryUnreachable",
)
_MISSING: Final = frozenset(_ORDER[:2])
_CALLED: Final[Mapping[ImageRole, str]] = {
    "base": "The base image ", "builder": "The builder image ", "push": "The push image ",
}  # fmt: skip
_CURES: Final[Mapping[ImageRole, str]] = {
    "base": "use one that has it, name another one in spec.baseImages.substitute, or leave the architecture out in "
    "spec.architectures",
    "builder": "name one that has it in spec.builder.image",
    "push": "name one that has it in spec.builder.pushImage",
}
_FAILURES: Final[Mapping[str, str]] = {
    "BaseImageNotFound": "does not exist; correct its name or tag, or push it",
    "BaseImageUnauthorized": "may not be read; name a Secret that may in spec.output.pullSecrets",
    "BaseImageUnusable": "cannot be used",
    "RegistryUnreachable": "could not be looked up and is tried again",
}


class PreflightResult(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. With ``lookups`` it is not final."""

    problems: tuple[Problem, ...] = ()
    """They keep the build from being made; one that concerns several architectures names them in its message."""
    unreachable: tuple[Problem, ...] = ()
    """Registries that gave no answer: asked again within ``timeouts.preflight``, then ``RegistryUnreachable``."""
    warnings: tuple[Problem, ...] = ()
    """Architectures that an image does not have, with ``preflight: Warn``."""
    lookups: tuple[BuildLookup, ...] = ()
    retry_after: float | None = None
    """Seconds that a registry asked to be left alone for."""

    @property
    def reason(self) -> str:
        """The first of the reasons that there are; empty if nothing is wrong."""
        return next((each.reason for each in (*self.problems, *self.unreachable)), "")

    @property
    def message(self) -> str:
        """Every problem."""
        return " ".join(each.message for each in (*self.problems, *self.unreachable))


class _Verdict(msgspec.Struct, frozen=True):
    """What is wrong with one image for one architecture."""

    reason: PreflightReason
    text: str
    retry_after: float | None = None
    may_warn: bool = False
    """``preflight: Warn`` lets the build go on: at worst its Job finds nothing to pull."""


def preflight(facts: BuildFacts, architectures: Iterable[str], inputs: BuildInputs) -> PreflightResult:
    """Judges every image. Where registries are for Jobs only, their pods find out."""
    if facts.leaves_registries_to_jobs:
        return PreflightResult()
    everything = frozenset(architectures)
    lookups: list[BuildLookup] = []
    found: dict[tuple[int, str, ImageRole, str, bool], list[RequiredImage]] = {}
    waits: list[float] = []
    lenient = facts.request.spec.base_images.preflight == "Warn"
    for need in required_images(facts, everything, inputs):
        seen = _judged(facts, need)
        if seen.lookup is not None:
            lookups.append(seen.lookup)
        elif need.required and (verdict := _verdict(need, seen)) is not None:
            warns = lenient and verdict.may_warn
            key = _ORDER.index(verdict.reason), need.asked, need.role, verdict.text, warns
            found.setdefault(key, []).append(need)
            waits += [verdict.retry_after] if verdict.retry_after is not None else []
    if lookups:
        return PreflightResult(lookups=each_once(lookups))
    problems = [
        _problem(_ORDER[order], role, text, members, everything, "Warning" if warns else "Error")
        for (order, _, role, text, warns), members in sorted(found.items())
    ]
    errors = [each for each in problems if each.severity == "Error"]
    return PreflightResult(
        problems=tuple(each for each in errors if each.reason != "RegistryUnreachable"),
        unreachable=tuple(each for each in errors if each.reason == "RegistryUnreachable"),
        warnings=tuple(each for each in problems if each.severity == "Warning"),
        retry_after=max(waits, default=None),
    )


def _judged(facts: BuildFacts, need: RequiredImage) -> BaseImageLookup:
    """The lookup of a base; before a Job is made, the pin of a tag is trusted only where the policy says so."""
    if need.role != "base":
        answer = facts.images.get(need.asked)
        if answer is None:
            return BaseImageLookup(lookup=_tool_lookup(need.asked))
        return BaseImageLookup(answer=answer)
    seen = look_up(facts, need.asked, need.runs_on)
    trusted = seen.pin is None or seen.replaces or facts.request.spec.base_images.policy != "OnBuild"
    if trusted or parse(need.asked).digest is not None:
        return seen
    return BaseImageLookup(lookup=BuildLookup(reference=need.asked, what="inspect", revalidate=True))


def _verdict(need: RequiredImage, seen: BaseImageLookup) -> _Verdict | None:
    """None if the image fits."""
    answer = seen.answer
    if answer is None:
        return None  # the pin has a child for it
    if answer.error is not None:
        return _failed(answer.error)
    if answer.status is Status.UNKNOWN:
        return _Verdict("BaseImageUnusable", "says nothing about its platform; use an image that does")
    if child_of(answer, need.runs_on) is not None:
        return None
    reason: PreflightReason = (
        "BaseImageArchitectureMissing" if need.role == "base" else "BuilderImageArchitectureMissing"
    )
    there = f"it has {platforms_of(answer)}" if answer.kind == "index" else f"it is {platforms_of(answer)} only"
    # One image of another architecture would be pulled without a word: it is never built on.
    may_warn = need.role != "base" or answer.kind == "index"
    return _Verdict(reason, f"({there}); {_CURES[need.role]}", may_warn=may_warn)


def _failed(error: InspectionError) -> _Verdict:
    reason = _OF_CLASS[error.error_class]
    detail = f"{error.code}: {error.message}" if error.message else error.code
    return _Verdict(reason, f"{_FAILURES[reason]} ({detail})", error.retry_after)


def _problem(
    reason: PreflightReason,
    role: ImageRole,
    text: str,
    members: Sequence[RequiredImage],
    everything: frozenset[str],
    severity: Literal["Error", "Warning"],
) -> Problem:
    """One sentence for all architectures that it concerns."""
    concerned = sorted({each.architecture for each in members})
    need = members[0]
    shown = need.asked if need.reference == need.asked else f"{need.asked} (for {need.reference})"
    lacking = sorted({each.runs_on for each in members})
    whom = "" if frozenset(concerned) == everything else f", needed for {', '.join(concerned)},"
    if reason in _MISSING:
        whom = "" if concerned == lacking else whom
        text = f"has nothing for {', '.join(f'linux/{each}' for each in lacking)} {text}"
    alone = concerned[0] if len(concerned) == 1 and len(everything) > 1 else ""
    return Problem(
        reason=reason, architecture=alone, severity=severity, message=f"{_CALLED[role]}{shown}{whom} {text}."
    )
