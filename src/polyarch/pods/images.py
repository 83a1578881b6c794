"""The images of a pod, and how an answer about an image enters the decision (PL-210 to PL-212, PL-407).

Pure: answers come from ``polyarch.oci``. Two pure functions cache their results, because many pods have the same images
and parsing them again would be half of the time of an admission (PL-801).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.objects import Pod
from polyarch.oci.answer import Entry, Inspection, Status
from polyarch.oci.mirrors.unqualified import unqualified
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.platforms import NODE_SYSTEMS, NodePlatform, node_platforms
from polyarch.pods.finding import Finding, Verdict

TAG_TTL: Final = 600.0
"""How old the check of a tag may be, in seconds (RG-110)."""
LONGEST: Final = 1024
"""Longest text that is cached; references are shorter, but a pod may contain any text (PL-854)."""
MOST_ENTRIES: Final = 64
"""Largest index that is cached; a registry may return any number of entries (PL-854)."""
_AGING: Final = ("transient", "limit")
"""Failure classes in which the last good reading may be used (PL-407)."""


class ImageUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One distinct reference of a pod and how it is used there. ``text`` is the key of its answer."""

    text: str
    reference: Reference | None
    problem: str = ""
    """Why the reference is invalid (RG-015)."""
    always: bool = False
    """Some use has pull policy Always, so the tag must be checked again (PL-210, PL-404)."""
    never: bool = False
    """Every use has pull policy Never, so the image may exist on nodes only (PL-212)."""
    volume_only: bool = False
    """Used only as an image volume (PL-211)."""


def images_of(pod: Pod, *, searched: bool = False) -> tuple[ImageUse, ...]:
    """Each distinct reference once, in the order of the spec: containers, init containers, image volumes (PL-210).

    ``searched``: the nodes search several registries for short names (PL-424); otherwise these mean Docker Hub.
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
    """The API server's default; needed for manifests that it has not defaulted."""
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
    stale_for: float = 0.0,
) -> bool:
    """Whether an admission may use this answer without a request (PL-112); times are ``Clock.monotonic()``.

    An error is usable in two cases only: the image may exist on nodes only (PL-212), or there is a last good reading
    of a tag whose registry fails (PL-407).
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
    return age <= (max(TAG_TTL, stale_for) if answer.stale else TAG_TTL)


def findings(
    uses: tuple[ImageUse, ...], answers: Mapping[str, Inspection], *, final: bool, stale_for: float
) -> tuple[Finding, ...]:
    """A finding for each image. ``final``: the retry window has ended, so ``Always`` accepts stale ones (PL-407)."""
    return tuple(_finding(use, answers.get(use.text), final=final, stale_for=stale_for) for use in uses)


def _finding(use: ImageUse, answer: Inspection | None, *, final: bool, stale_for: float) -> Finding:
    if use.reference is None:
        return _unresolved(use, "invalid-reference", error_class="content", problem=use.problem)
    if answer is None:
        return _unresolved(use, "pending")
    if answer.status is Status.ERROR:
        answer = _standing_in(answer, use, final=final, stale_for=stale_for)
    if answer.stale and use.always and not final:
        return _unresolved(use, "stale", error_class="transient", host=_host(use, answer))
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
            return _failed(use, answer)


def _standing_in(answer: Inspection, use: ImageUse, *, final: bool, stale_for: float) -> Inspection:
    """The last good reading instead of a transient failure, if the policy allows it (PL-407)."""
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
    """The node platforms of these entries, and architecture names that are not valid on nodes (PL-233)."""
    return (_compared if len(entries) <= MOST_ENTRIES else _compared.__wrapped__)(entries)


@lru_cache(maxsize=4096)
def _compared(entries: tuple[Entry, ...]) -> tuple[tuple[NodePlatform, ...], tuple[str, ...]]:
    platforms = node_platforms(entry.platform for entry in entries)
    known = {pair.architecture for pair in platforms}
    named = {entry.platform.architecture for entry in entries if entry.platform.os in NODE_SYSTEMS}
    return platforms, tuple(sorted(named - known))


def _neutral(use: ImageUse, answer: Inspection) -> Finding:
    return Finding(text=use.text, verdict=Verdict.NEUTRAL, note="neutral", stale=answer.stale, always=use.always)


def _failed(use: ImageUse, answer: Inspection) -> Finding:
    error, host = answer.error, _host(use, answer)
    if error is None:  # unknown: the registry answered, and the content does not say
        return _unresolved(use, "unknown", error_class="content", host=host)
    if use.never:
        return Finding(text=use.text, verdict=Verdict.NEUTRAL, note="local")
    if error.code == "not-a-registry" and error.host not in ("", host):
        host = f"{error.host} (for {host})"  # where a redirect or a token endpoint led to
    else:
        host = error.host or host
    return _unresolved(use, error.code, error_class=error.error_class, host=host, status=error.status)


def _unresolved(
    use: ImageUse, note: str, *, error_class: str = "", host: str = "", status: int | None = None, problem: str = ""
) -> Finding:
    return Finding(
        text=use.text,
        verdict=Verdict.UNRESOLVED,
        note=note,
        always=use.always,
        error_class=error_class,
        host=host,
        status=status,
        problem=problem,
    )


def _host(use: ImageUse, answer: Inspection) -> str:
    if answer.source is not None:
        return answer.source.host
    return use.reference.registry if use.reference is not None else ""


def _digest_note(answer: Inspection) -> str:
    """The first 12 hex digits; an answer from a platforms file may have no digest."""
    return answer.digest.partition(":")[2][:12] or "resolved"
