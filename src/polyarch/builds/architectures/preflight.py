"""Preflight: before any Job exists, everything that the build stands on has to be there for every architecture.

Every external reference, the builder image and the push image (BD-059, BD-060, BD-063). All architectures are checked
before anything is reported, so that one message lists every problem. A tag that has a pin is asked about again first:
what Jobs pull is what the registry says now (BD-061).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.builds.architectures.children import child_of, platforms_of
from polyarch.builds.architectures.needs import Need, Role, needs
from polyarch.builds.architectures.pins import Seen, each_once, look_up
from polyarch.builds.facts.facts import Facts, Question
from polyarch.builds.facts.problem import Problem
from polyarch.builds.keys.inputs import Inputs
from polyarch.oci.answer import ErrorClass, InspectionError, Status
from polyarch.oci.reference import parse

Reason = Literal[
    "BaseImageArchitectureMissing",
    "BuilderImageArchitectureMissing",
    "BaseImageNotFound",
    "BaseImageUnauthorized",
    "BaseImageUnusable",
    "RegistryUnreachable",
]
_OF_CLASS: Final[Mapping[ErrorClass, Reason]] = {
    "absent": "BaseImageNotFound",
    "auth": "BaseImageUnauthorized",
    "limit": "RegistryUnreachable",
    "transient": "RegistryUnreachable",
    "content": "BaseImageUnusable",
    "configuration": "BaseImageUnusable",
}
_ORDER: Final[Sequence[Reason]] = (
    "BaseImageArchitectureMissing",
    "BuilderImageArchitectureMissing",
    "BaseImageNotFound",
    "BaseImageUnauthorized",
    "BaseImageUnusable",
    "RegistryUnreachable",
)
_MISSING: Final = frozenset(_ORDER[:2])
_CALLED: Final[Mapping[Role, str]] = {
    "base": "The base image ", "builder": "The builder image ", "push": "The push image ",
}  # fmt: skip
_CURES: Final[Mapping[Role, str]] = {
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


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. With ``questions`` it is not final."""

    problems: tuple[Problem, ...] = ()
    """They keep the build from being made; one that concerns several architectures names them in its message."""
    unreachable: tuple[Problem, ...] = ()
    """Registries that gave no answer: asked again within ``timeouts.preflight``, then ``RegistryUnreachable``."""
    warnings: tuple[Problem, ...] = ()
    """With ``preflight: Warn``: architectures that an image does not have."""
    questions: tuple[Question, ...] = ()
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

    reason: Reason
    text: str
    retry_after: float | None = None
    may_warn: bool = False
    """``preflight: Warn`` lets the build go on: at worst its Job finds nothing to pull."""


def preflight(facts: Facts, architectures: Iterable[str], inputs: Inputs) -> Preflight:
    """Judges every image. Where registries are for Jobs only, their pods find out (BD-178)."""
    if facts.leaves_registries_to_jobs:
        return Preflight()
    everything = frozenset(architectures)
    questions: list[Question] = []
    found: dict[tuple[int, str, Role, str, bool], list[Need]] = {}
    waits: list[float] = []
    lenient = facts.wish.spec.base_images.preflight == "Warn"
    for need in needs(facts, everything, inputs):
        seen = _judged(facts, need)
        if seen.question is not None:
            questions.append(seen.question)
        elif need.required and (verdict := _verdict(need, seen)) is not None:
            warns = lenient and verdict.may_warn
            key = _ORDER.index(verdict.reason), need.asked, need.role, verdict.text, warns
            found.setdefault(key, []).append(need)
            waits += [verdict.retry_after] if verdict.retry_after is not None else []
    if questions:
        return Preflight(questions=each_once(questions))
    problems = [
        _problem(_ORDER[order], role, text, members, everything, "Warning" if warns else "Error")
        for (order, _, role, text, warns), members in sorted(found.items())
    ]
    errors = [each for each in problems if each.severity == "Error"]
    return Preflight(
        problems=tuple(each for each in errors if each.reason != "RegistryUnreachable"),
        unreachable=tuple(each for each in errors if each.reason == "RegistryUnreachable"),
        warnings=tuple(each for each in problems if each.severity == "Warning"),
        retry_after=max(waits, default=None),
    )


def _judged(facts: Facts, need: Need) -> Seen:
    """As the pins see it; but before a Job is made, the pin of a tag is trusted only where the policy says so."""
    if need.role != "base":
        answer = facts.images.get(need.asked)
        if answer is None:
            return Seen(question=Question(reference=need.asked, what="inspect"))
        return Seen(answer=answer)
    seen = look_up(facts, need.asked, need.runs_on)
    trusted = seen.pin is None or seen.replaces or facts.wish.spec.base_images.policy != "OnBuild"
    if trusted or parse(need.asked).digest is not None:
        return seen
    return Seen(question=Question(reference=need.asked, what="inspect", revalidate=True))


def _verdict(need: Need, seen: Seen) -> _Verdict | None:
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
    reason: Reason = "BaseImageArchitectureMissing" if need.role == "base" else "BuilderImageArchitectureMissing"
    there = f"it has {platforms_of(answer)}" if answer.kind == "index" else f"it is {platforms_of(answer)} only"
    # One image of another architecture would be pulled without a word: it is never built on (BD-063).
    may_warn = need.role != "base" or answer.kind == "index"
    return _Verdict(reason, f"({there}); {_CURES[need.role]}", may_warn=may_warn)


def _failed(error: InspectionError) -> _Verdict:
    reason = _OF_CLASS[error.error_class]
    detail = f"{error.code}: {error.message}" if error.message else error.code
    return _Verdict(reason, f"{_FAILURES[reason]} ({detail})", error.retry_after)


def _problem(
    reason: Reason,
    role: Role,
    text: str,
    members: Sequence[Need],
    everything: frozenset[str],
    severity: Literal["Error", "Warning"],
) -> Problem:
    """One sentence for all architectures that it is the same for."""
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
