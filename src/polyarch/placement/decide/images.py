"""The images of a pod, and what an answer says of one to the decision (PL-210 to PL-212, PL-407).

Pure: the answers come from ``polyarch.oci`` and are only read here. Two pure functions remember their last results, as
pods come in series with the same images, and reading them anew would be half of the time of an admission (PL-801).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.model.pod import Pod
from polyarch.oci.answer import Entry, Inspection, Status
from polyarch.oci.mirrors.unqualified import unqualified
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.placement.decide.decision import Finding, Verdict
from polyarch.platforms import NODE_SYSTEMS, NodePlatform, node_platforms

LONGEST: Final = 1024
"""Characters of a text that is remembered; a reference is shorter, but anything may stand in a pod (PL-854)."""
MOST_ENTRIES: Final = 64
"""Entries of an index that is remembered: who has a registry may state a thousand in each of many (PL-854)."""
_AGING: Final = ("transient", "limit")
"""Classes of failure in which the last good reading may stand in (PL-407)."""


class ImageUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One distinct reference of a pod and how it is used there. ``text`` is the key of its answer."""

    text: str
    reference: Reference | None
    problem: str = ""
    """What is wrong with the text, if it names no image (RG-015)."""
    always: bool = False
    """Some use has pull policy Always: its tag has to be fresh (PL-210, PL-404)."""
    never: bool = False
    """Every use has pull policy Never: it may exist on nodes only (PL-212)."""
    volume_only: bool = False
    """Used as files only (PL-211)."""


def images_of(pod: Pod, *, searched: bool = False) -> tuple[ImageUse, ...]:
    """Each distinct reference once, in the order of the spec: containers, init containers, image volumes (PL-210).

    ``searched``: the nodes search several registries for short names (PL-424), which else are Docker Hub's.
    """
    found: dict[str, tuple[bool, bool, bool]] = {}
    for text, policy, is_volume in _uses(pod):
        policy = policy or _default_policy(text)
        always, never, volume_only = found.get(text, (False, True, True))
        found[text] = (always or policy == "Always", never and policy == "Never", volume_only and is_volume)
    return tuple(_use(text, *how, searched) for text, how in found.items())


def _uses(pod: Pod) -> Iterator[tuple[str, str, bool]]:
    """Reference, pull policy, and whether it is mounted only."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers or ():
            yield container.image, container.image_pull_policy, False
    for volume in pod.spec.volumes or ():
        if volume.image is not None and volume.image.reference:
            yield volume.image.reference, volume.image.pull_policy, True


def _use(text: str, always: bool, never: bool, volume_only: bool, searched: bool) -> ImageUse:
    reference, problem = _parsed(text, searched)
    return ImageUse(
        text=text, reference=reference, problem=problem, always=always, never=never, volume_only=volume_only
    )


def _parsed(text: str, searched: bool = False) -> tuple[Reference | None, str]:
    """The reference, or what is wrong with the text (RG-015)."""
    return (_read if len(text) <= LONGEST else _read.__wrapped__)(text, searched)


@lru_cache(maxsize=4096)
def _read(text: str, searched: bool) -> tuple[Reference | None, str]:
    try:
        reference = parse(text)
    except InvalidReference as error:
        return None, f"{error.problem}; {error.hint}" if error.hint else error.problem
    if reference.transport != "docker":
        return None, "a directory cannot be pulled; write an image name such as quay.io/team/app:1.0"
    return (searched and unqualified(text)) or reference, ""


def _default_policy(text: str) -> str:
    """What the API server fills in; manifests that never met one do not have it."""
    reference, _ = _parsed(text)
    if reference is not None and reference.tag == "latest" and reference.digest is None:
        return "Always"
    return "IfNotPresent"


def usable_now(
    use: ImageUse,
    answer: Inspection,
    *,
    arrived_at: float,
    now: float,
    tag_ttl: float = 600.0,
    stale_for: float = 0.0,
) -> bool:
    """Whether an admission may decide by this answer without asking anybody (PL-112); times are ``Clock.monotonic()``.

    An error is usable only where the rules read something into it: an image that may exist on nodes only (PL-212), or
    the last good reading of a tag whose registry fails (PL-407).
    """
    if answer.status is Status.ERROR:
        return use.never or _standing_in(answer, use, final=False, stale_for=stale_for) is not answer
    if answer.status is Status.UNKNOWN:
        return False
    if answer.checked_at is None or (use.reference is not None and use.reference.digest is not None):
        return True
    if use.always:
        return answer.checked_at >= arrived_at and not answer.stale
    age = now - answer.checked_at
    return age <= (max(tag_ttl, stale_for) if answer.stale else tag_ttl)


def findings(
    uses: tuple[ImageUse, ...], answers: Mapping[str, Inspection], *, final: bool, stale_for: float
) -> tuple[Finding, ...]:
    """What every image says. ``final``: the retry window is over, so a stale reading serves ``Always`` too (PL-407)."""
    return tuple(_finding(use, answers.get(use.text), final=final, stale_for=stale_for) for use in uses)


def _finding(use: ImageUse, answer: Inspection | None, *, final: bool, stale_for: float) -> Finding:
    if use.reference is None:
        return Finding(
            text=use.text,
            verdict=Verdict.UNRESOLVED,
            note="invalid-reference",
            error_class="content",
            problem=use.problem,
            always=use.always,
        )
    if answer is None:
        return Finding(text=use.text, verdict=Verdict.UNRESOLVED, note="pending", always=use.always)
    if answer.status is Status.ERROR:
        answer = _standing_in(answer, use, final=final, stale_for=stale_for)
    if answer.stale and use.always and not final:
        return Finding(
            text=use.text,
            verdict=Verdict.UNRESOLVED,
            note="stale",
            error_class="transient",
            host=_host(use, answer),
            always=True,
        )
    match answer.status:
        case Status.RESOLVED if use.volume_only and (answer.kind != "index" or not answer.entries):
            return _neutral(use, answer)
        case Status.RESOLVED:
            return _resolved(use, answer)
        case Status.NEUTRAL:
            return _neutral(use, answer)
        case Status.UNKNOWN if use.volume_only:
            return _neutral(use, answer)
        case _:
            return _unresolved(use, answer)


def _standing_in(answer: Inspection, use: ImageUse, *, final: bool, stale_for: float) -> Inspection:
    """The last good reading in place of a passing failure, as far as the policy lets it (PL-407)."""
    good, age, error = answer.last_good, answer.last_good_age, answer.error
    if good is None or age is None or age > stale_for or error is None or error.error_class not in _AGING:
        return answer
    if use.always and not final:
        return answer
    return msgspec.structs.replace(good, stale=True)


def _resolved(use: ImageUse, answer: Inspection) -> Finding:
    platforms, dropped = _platforms(answer.entries)
    return Finding(
        text=use.text,
        verdict=Verdict.CONSTRAINS,
        note=_digest_note(answer),
        platforms=platforms,
        stale=answer.stale,
        always=use.always,
        dropped=dropped,
    )


def _platforms(entries: tuple[Entry, ...]) -> tuple[tuple[NodePlatform, ...], tuple[str, ...]]:
    """What nodes can have of these, and architecture names that cannot be the value of a node's label (PL-233)."""
    return (_compared if len(entries) <= MOST_ENTRIES else _compared.__wrapped__)(entries)


@lru_cache(maxsize=4096)
def _compared(entries: tuple[Entry, ...]) -> tuple[tuple[NodePlatform, ...], tuple[str, ...]]:
    platforms = node_platforms(entry.platform for entry in entries)
    known = {pair.architecture for pair in platforms}
    named = {entry.platform.architecture for entry in entries if entry.platform.os in NODE_SYSTEMS}
    return platforms, tuple(sorted(named - known))


def _neutral(use: ImageUse, answer: Inspection) -> Finding:
    return Finding(text=use.text, verdict=Verdict.NEUTRAL, note="neutral", stale=answer.stale, always=use.always)


def _unresolved(use: ImageUse, answer: Inspection) -> Finding:
    error = answer.error
    if error is None:  # unknown: reachable, and its content does not say
        return Finding(
            text=use.text,
            verdict=Verdict.UNRESOLVED,
            note="unknown",
            error_class="content",
            host=_host(use, answer),
            always=use.always,
        )
    if use.never:
        return Finding(text=use.text, verdict=Verdict.NEUTRAL, note="local")
    return Finding(
        text=use.text,
        verdict=Verdict.UNRESOLVED,
        note=error.code,
        error_class=error.error_class,
        host=error.host or _host(use, answer),
        status=error.status,
        always=use.always,
    )


def _host(use: ImageUse, answer: Inspection) -> str:
    if answer.source is not None:
        return answer.source.host
    return use.reference.registry if use.reference is not None else ""


def _digest_note(answer: Inspection) -> str:
    """The first 12 hex digits; an answer from a file may have no digest."""
    return answer.digest.partition(":")[2][:12] or "resolved"
