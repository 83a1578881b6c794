"""The images of a pod, what each contributes to a decision, and the words for it. Pure.

Every feature that decides by a pod's images uses these values and words, so that all judge the same answers alike, and
two events about one image agree. Answers come from ``polyarch.oci``. Two functions cache their results, because many
pods have the same images and parsing them again would be half of the time of an admission."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from polyarch.objects import Pod
from polyarch.oci.inspection import ERROR_CODES, WASM, Entry, Inspection, Status
from polyarch.oci.reference import InvalidReference, Reference, parse, unqualified
from polyarch.platforms import (
    NO_RUNTIMES,
    NODE_SYSTEMS,
    NodePlatform,
    NodeRuntimes,
    PlatformSet,
    crio_platforms,
    foreign_architectures,
    legacy_platforms,
    node_platforms,
    shared_platforms,
)

# -- what one image contributes to a decision about its pod ------------------------------------------------------------


class ImageEffect(StrEnum):
    """What one image contributes to the decision."""

    CONSTRAINS = "constrains"
    NEUTRAL = "neutral"
    UNRESOLVED = "unresolved"


class ImageFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One image of the pod, as the decision uses it.

    ``text`` is the reference as written in the pod. ``note`` is its value in the annotation: twelve hex
    digits of the digest, ``neutral``, ``wasm``, ``local``, ``pending`` or the code of the error.
    """

    text: str
    effect: ImageEffect
    note: str
    platforms: tuple[NodePlatform, ...] = ()
    stale: bool = False
    always: bool = False
    error_class: str = ""
    """Failure class of an unresolved image, which determines its retries; empty while it is pending."""
    host: str = ""
    status: int | None = None
    problem: str = ""
    """Why the reference is invalid."""
    dropped: tuple[str, ...] = ()
    """Architecture names of the image that are not valid on nodes."""
    foreign: tuple[str, ...] = ()
    """Architectures of ``platforms`` whose nodes run the image's programs of another one."""
    legacy: tuple[NodePlatform, ...] = ()
    """Platforms of nodes that most often run it, and count where nothing else is left."""
    crio: tuple[NodePlatform, ...] | None = None
    """Of an index: the platforms of the nodes with CRI-O that find an entry in it."""
    runtimes: NodeRuntimes = NO_RUNTIMES
    """Those of the cluster that the platforms hold for; until they are known, containerd's choice counts."""

    @property
    def is_pending(self) -> bool:
        return self.effect is ImageEffect.UNRESOLVED and not self.error_class

    def on(self, runtimes: NodeRuntimes) -> "ImageFacts":
        """The image on nodes that have these runtimes: of platforms that have CRI-O only, what it finds counts."""
        crio, found = runtimes.crio, self.crio
        if found is None or crio.isdisjoint((*self.platforms, *self.legacy, *found)):
            return self if runtimes is self.runtimes else msgspec.structs.replace(self, runtimes=runtimes)
        kept = {each for each in self.platforms if each not in crio} | crio.intersection(found)
        architectures = {each.architecture for each in kept}
        return msgspec.structs.replace(
            self,
            platforms=tuple(sorted(kept)),
            legacy=tuple(each for each in self.legacy if each not in crio),
            foreign=tuple(each for each in self.foreign if each in architectures),
            runtimes=runtimes,
        )

    @property
    def disputed(self) -> frozenset[NodePlatform]:
        """Platforms of which the nodes with CRI-O and those with containerd disagree about the image."""
        mixed = self.runtimes.mixed
        return frozenset() if self.crio is None else mixed & {*self.platforms, *self.legacy} - {*self.crio}

    @property
    def failure(self) -> str:
        """Class, host, HTTP status and code: the only details of a failure that pod owners see."""
        if self.is_pending:
            return "not answered yet"
        parts = [
            self.error_class,
            self.host,
            f"HTTP {self.status}" if self.status is not None else "",
            f"({self.note})",
        ]
        return " ".join(part for part in parts if part)


# -- the images of a pod, and how an answer about an image enters the decision -----------------------------------------

TAG_TTL: Final = 600.0
"""How old the check of a tag may be, in seconds."""
MAX_REFERENCE: Final = 1024
"""Longest text that is cached; references are shorter, but a pod may contain any text."""
MAX_ENTRIES: Final = 64
"""Largest index that is cached; a registry may return any number of entries."""
_AGING: Final = ("transient", "limit")
"""Failure classes in which the last good reading may be used."""


class ImageUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One distinct reference of a pod and how it is used there. ``text`` is the key of its answer."""

    text: str
    reference: Reference | None
    problem: str = ""
    """Why the reference is invalid."""
    always: bool = False
    """Some use has pull policy Always, so the tag must be checked again."""
    never: bool = False
    """Every use has pull policy Never, so the image may exist on nodes only."""
    volume_only: bool = False
    """Used only as an image volume."""


def images_of(pod: Pod, *, searched: bool = False) -> tuple[ImageUse, ...]:
    """Each distinct reference once, in the order of the spec: containers, init containers, image volumes.

    ``searched``: the nodes search several registries for short names; otherwise these mean Docker Hub.
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
    """The reference, or what is wrong with the text."""
    return (_read if len(text) <= MAX_REFERENCE else _read.__wrapped__)(text, searched)


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
    inspection: Inspection,
    *,
    arrived_at: float,
    now: float,
    stale_for: float = 0.0,
) -> bool:
    """Whether an admission may use this answer without a request; times are ``Clock.monotonic()``.

    An error is usable in two cases only: the image may exist on nodes only, or there is a last good reading
    of a tag whose registry fails.
    """
    if inspection.status is Status.ERROR:
        return use.never or _standing_in(inspection, use, final=False, stale_for=stale_for) is not inspection
    if inspection.status is Status.UNKNOWN:
        return False
    if inspection.checked_at is None or (use.reference is not None and use.reference.digest is not None):
        return True
    if use.always:
        return inspection.checked_at >= arrived_at and not inspection.stale
    age = now - inspection.checked_at
    return age <= (max(TAG_TTL, stale_for) if inspection.stale else TAG_TTL)


def image_facts(
    uses: tuple[ImageUse, ...], inspections: Mapping[str, Inspection], *, final: bool, stale_for: float
) -> tuple[ImageFacts, ...]:
    """A finding for each image. ``final``: the retry window has ended, so ``Always`` accepts stale ones."""
    return tuple(_facts_of(use, inspections.get(use.text), final=final, stale_for=stale_for) for use in uses)


def _facts_of(use: ImageUse, inspection: Inspection | None, *, final: bool, stale_for: float) -> ImageFacts:
    if use.reference is None:
        return _unresolved(use, "invalid-reference", error_class="content", problem=use.problem)
    if inspection is None:
        return _unresolved(use, "pending")
    if inspection.status is Status.ERROR:
        inspection = _standing_in(inspection, use, final=final, stale_for=stale_for)
    if inspection.stale and use.always and not final:
        return _unresolved(use, "stale", error_class="transient", host=_host(use, inspection))
    match inspection.status:
        case Status.RESOLVED if use.volume_only and (inspection.kind != "index" or not inspection.entries):
            return _neutral(use, inspection)
        case Status.RESOLVED:
            return _resolved(use, inspection)
        case Status.NEUTRAL:
            return _neutral(use, inspection)
        case Status.UNKNOWN if use.volume_only:
            return _neutral(use, inspection)
        case _:
            return _failed(use, inspection)


def _standing_in(inspection: Inspection, use: ImageUse, *, final: bool, stale_for: float) -> Inspection:
    """The last good reading instead of a transient failure, if the policy allows it."""
    good, age, error = inspection.last_good, inspection.last_good_age, inspection.error
    if good is None or age is None or age > stale_for or error is None or error.error_class not in _AGING:
        return inspection
    if use.always and not final:
        return inspection
    return msgspec.structs.replace(good, stale=True)


def _resolved(use: ImageUse, inspection: Inspection) -> ImageFacts:
    is_index = inspection.kind == "index"
    known = _platforms(inspection.entries, is_index)
    return ImageFacts(
        text=use.text,
        effect=ImageEffect.CONSTRAINS,
        note=_digest_note(inspection),
        platforms=known.platforms,
        stale=inspection.stale,
        always=use.always,
        dropped=known.dropped,
        foreign=known.foreign,
        legacy=known.legacy,
        crio=known.crio if is_index else None,
    )


class _EntryPlatforms(NamedTuple):
    """What the entries of an image say of nodes; the members are those of :class:`ImageFacts`."""

    platforms: tuple[NodePlatform, ...]
    dropped: tuple[str, ...]
    foreign: tuple[str, ...]
    legacy: tuple[NodePlatform, ...]
    crio: tuple[NodePlatform, ...]


def _platforms(entries: tuple[Entry, ...], is_index: bool) -> _EntryPlatforms:
    return (_compared if len(entries) <= MAX_ENTRIES else _compared.__wrapped__)(entries, is_index)


@lru_cache(maxsize=4096)
def _compared(entries: tuple[Entry, ...], is_index: bool) -> _EntryPlatforms:
    found = (entry.platform if is_index else entry.platform.plain for entry in entries)
    stated = [each for each in found if not each.is_wasm]
    platforms = node_platforms(stated)
    valid = {pair.architecture for pair in platforms} | {each.architecture for each in stated if not each.is_usual}
    named = {each.architecture for each in stated if each.os in NODE_SYSTEMS}
    return _EntryPlatforms(
        platforms,
        tuple(sorted(named - valid)),
        foreign_architectures(stated),
        legacy_platforms(platforms),
        crio_platforms((entry.platform, entry.stated) for entry in entries),
    )


def _neutral(use: ImageUse, inspection: Inspection) -> ImageFacts:
    note = WASM if inspection.neutral_reason == WASM else "neutral"
    return ImageFacts(text=use.text, effect=ImageEffect.NEUTRAL, note=note, stale=inspection.stale, always=use.always)


def _failed(use: ImageUse, inspection: Inspection) -> ImageFacts:
    error, host = inspection.error, _host(use, inspection)
    if error is None:  # unknown: the registry answered, and the content does not say
        return _unresolved(use, "unknown", error_class="content", host=host)
    if use.never:
        return ImageFacts(text=use.text, effect=ImageEffect.NEUTRAL, note="local")
    if error.code == "not-a-registry" and error.host not in ("", host):
        host = f"{error.host} (for {host})"  # where a redirect or a token endpoint led to
    else:
        host = error.host or host
    return _unresolved(use, error.code, error_class=error.error_class, host=host, status=error.status)


def _unresolved(
    use: ImageUse, note: str, *, error_class: str = "", host: str = "", status: int | None = None, problem: str = ""
) -> ImageFacts:
    return ImageFacts(
        text=use.text,
        effect=ImageEffect.UNRESOLVED,
        note=note,
        always=use.always,
        error_class=error_class,
        host=host,
        status=status,
        problem=problem,
    )


def _host(use: ImageUse, inspection: Inspection) -> str:
    if inspection.source is not None:
        return inspection.source.host
    return use.reference.registry if use.reference is not None else ""


def _digest_note(inspection: Inspection) -> str:
    """The first 12 hex digits; an answer from a platforms file may have no digest."""
    return inspection.digest.partition(":")[2][:12] or "resolved"


def common_platforms(
    images: Iterable[ImageFacts], compatibility: Iterable[tuple[str, frozenset[str]]] = ()
) -> PlatformSet:
    """The platforms of the nodes that run all of these images. An image without an answer restricts nothing.

    ``compatibility``: architectures of nodes that run programs of others.
    """
    found = [each for each in images if each.effect is ImageEffect.CONSTRAINS]
    sets = [PlatformSet.of(each.platforms) for each in found]
    common = shared_platforms(sets, (each.having(image.legacy) for each, image in zip(sets, found, strict=True)))
    return common.having(
        NodePlatform(platform.os, node)
        for node, runs in compatibility
        for platform in common.members or ()
        if platform.architecture in runs
    )


def on_crio(images: Iterable[ImageFacts]) -> list[ImageFacts]:
    """The images as nodes take them that have CRI-O."""
    return [
        each.on(NodeRuntimes(frozenset((*each.platforms, *each.legacy, *(each.crio or ()))), is_known=True))
        for each in images
    ]


# -- images that could not be read -------------------------------------------------------------------------------------

PAGES: Final = "https://github.com/polyarch/polyarch/blob/main/docs/guide"
PRIVATE_REGISTRIES: Final = f"{PAGES}/placement.md#private-registries"
CLOUD_PAGES: Final = {
    "On EKS": (f"{PAGES}/eks.md", r".*\.dkr[.-]ecr(-fips)?\..*\.(amazonaws\.com(\.cn)?|on\.aws)|public\.ecr\.aws"),
    "On GKE": (f"{PAGES}/gke.md", r"(.*\.)?gcr\.io|.*\.pkg\.dev"),
    "On AKS": (f"{PAGES}/aks.md", r".*\.azurecr\.(io|cn|us|de)"),
}
"""The page of each cloud whose nodes pull by an identity of their own, and its registries (a pattern of hosts)."""
_REFUSED: Final = "refused (401 or 403)"
_UNREAD: Final = {
    "auth": _REFUSED,
    "absent": "not found",
    "limit": "rate-limited",
    "offline-miss": "not looked up offline",
    "tls": "with a certificate that is not trusted",
    "blocked": "not allowed to be asked for",
    "refused-address": "not allowed to be asked for",
    "refused-redirect": "not allowed to be asked for",
    "malformed": "malformed",
    "ambiguous-manifest": "malformed",
    "content": "unsupported",
}
"""Words by the code of a failure, else by its class; every other one is a registry that gave no answer."""
_CURES: Final = {
    "rate-limited": "ask again later, or with credentials, which registries limit less",
    "not looked up offline": "list them in the file of --platforms-file, or have their registries asked without "
    "--offline",
    "malformed": "push what is malformed again",
}
"""What to do, by the words of ``_UNREAD``; images that are refused have the pages of their clouds besides."""


def unread_images(images: Iterable[ImageFacts]) -> dict[str, tuple[ImageFacts, ...]]:
    """Images that registries did not show, each once, by how: ``refused …``, ``not found``, ``unreachable``, …

    One that was read and states no platform is not among them, and neither is an invalid reference.
    """
    failed = {each.text: each for each in images if each.error_class and each.note in ERROR_CODES}
    found: dict[str, list[ImageFacts]] = {word: [] for word in (*_UNREAD.values(), "unreachable")}
    for each in failed.values():
        found[_UNREAD.get(each.note) or _UNREAD.get(each.error_class, "unreachable")].append(each)
    return {word: tuple(several) for word, several in found.items() if several}


def cures(unread: Mapping[str, Iterable[ImageFacts]]) -> str:
    """What lets polyarch read the images of :func:`unread_images`; empty if nothing is known to."""
    known = (_page(unread.get(_REFUSED, ())), *(cure for word, cure in _CURES.items() if word in unread))
    return "; ".join(filter(None, known))


def _page(refused: Iterable[ImageFacts]) -> str:
    """What lets polyarch read images that registries refuse to it, with the page that says how; empty for none."""
    hosts = {each.host.partition(":")[0] for each in refused}
    if not hosts:
        return ""
    pages = [page for page, pattern in CLOUD_PAGES.values() if any(re.fullmatch(pattern, host) for host in hosts)]
    if pages:
        return f"give polyarch an identity that may read them, as the nodes have: {', '.join(pages)}"
    return f"give their pods pull secrets, or polyarch credentials for all: {PRIVATE_REGISTRIES}"


# -- words for people --------------------------------------------------------------------------------------------------
# For a failure there are class, host, HTTP status and code, never text that a registry sent.

MAX_NAMED: Final = 4


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def platforms_of(finding: ImageFacts) -> str:
    """``linux/amd64, linux/arm64``, or that there are none."""
    return ", ".join(map(str, finding.platforms)) or "no platform that a node can have"


def conflict(images: Sequence[ImageFacts]) -> str:
    """The fewest images that have no common platform: one without any, or two, or all."""
    constraining = [finding for finding in images if finding.effect is ImageEffect.CONSTRAINS]
    for finding in constraining:
        if not finding.platforms:
            return f"{finding.text} has no platform that a node can have"
    shown: Sequence[ImageFacts] = constraining
    for index, left in enumerate(constraining):
        apart = next((right for right in constraining[:index] if not common_platforms((left, right))), None)
        if apart is not None:
            shown = (apart, left)
            break
    clauses = [f"{finding.text} has {platforms_of(finding)}" for finding in shown[:MAX_NAMED]]
    if len(shown) > MAX_NAMED:
        clauses.append(f"{len(shown) - MAX_NAMED} more images")
    if common_platforms(constraining):
        clauses.append("none of them for the pod's operating system")
    return ", ".join(clauses)


def remedy(images: Sequence[ImageFacts]) -> str:
    """What to do about images without a common platform."""
    constraining = sum(finding.effect is ImageEffect.CONSTRAINS for finding in images)
    if constraining > 1:
        return "publish the images for a common platform, or choose other tags"
    return "publish the image for a platform of the cluster's nodes, or choose another tag"


def deciders(images: Iterable[ImageFacts]) -> str:
    """The images that restrict the pod, and what is odd about their answers."""
    images = tuple(images)
    constraining = [finding for finding in images if finding.effect is ImageEffect.CONSTRAINS]
    is_stale = any(finding.stale for finding in images)
    stale = " (last known platforms, which could not be revalidated)" if is_stale else ""
    dropped: set[str] = set()
    for finding in constraining:
        dropped.update(finding.dropped)
    odd = f"; {listed(sorted(dropped))} ignored, as no node can have it" if dropped else ""
    return f"{named(constraining)}{stale}{odd}"


def provisos(images: Iterable[ImageFacts], architectures: Sequence[str]) -> str:
    """On what it depends that nodes of these architectures run the images; a clause for each reason, or nothing."""
    images = tuple(images)
    foreign = [each for each in images if "amd64" in architectures and "amd64" in each.foreign]
    legacy = [
        each
        for each in images
        if each.effect is ImageEffect.CONSTRAINS
        and "arm64" in architectures
        and all(pair.architecture != "arm64" for pair in each.platforms)
    ]
    known = any(each.runtimes.is_known for each in images)
    clauses = []
    if foreign:
        choice = "" if known else ", but CRI-O does not choose them from an index"
        clauses.append(f"nodes of amd64 run the 386 programs of {named(foreign)}{choice}")
    if legacy:
        choice = "" if known else "containerd and "
        clauses.append(f"nodes of arm64 run {named(legacy)} only with {choice}a processor that has the 32-bit mode")
    for architecture in architectures:
        disputed = [each for each in images if any(pair.architecture == architecture for pair in each.disputed)]
        if disputed:
            clauses.append(
                f"the runtimes of the nodes of {architecture} disagree: containerd finds them in the index of "
                f"{named(disputed)}, CRI-O does not"
            )
    if wasm := [each for each in images if each.note == WASM]:
        clauses.append(f"{named(wasm)} is WebAssembly, which needs a RuntimeClass with a shim for it")
    return "".join(f"; {clause}" for clause in clauses)


def failed(unresolved: Sequence[ImageFacts]) -> str:
    """Why the answers of these images are missing."""
    clauses = [_why(finding) for finding in unresolved[:MAX_NAMED]]
    if len(unresolved) > MAX_NAMED:
        clauses.append(f"{len(unresolved) - MAX_NAMED} more")
    return f"Image {'; '.join(clauses)}"


_NO_ANSWER: Final = "could not be inspected: {host} does not answer"
"""Refused, timed out or broken off: the author of a pod, who chooses host and port, learns no more. The log tells."""
_HAPPENED: Final = {
    "pending": "is not resolved yet",
    "not-found": "does not exist at {host}",
    "unauthorized": "cannot be pulled from {host} with the available credentials",
    "denied": "cannot be pulled from {host} with the available credentials",
    "credential-helper": "needs credentials for {host}, but the credential helper failed",
    "rate-limited": "is delayed by the rate limit of {host}",
    "tenant-limit": "is delayed: its namespace has too many requests waiting for {host}",
    "timeout": _NO_ANSWER,
    "network": _NO_ANSWER,
    "server-error": "could not be inspected: {host} returned a server error",
    "not-a-registry": "could not be inspected: {host} answered with a web page or the like, not as a registry",
    "digest-mismatch": "could not be inspected: {host} sent other content than the digest names",
    "stale": "could not be revalidated at {host}",
    "unknown": "does not declare its platforms",
    "tls": "could not be inspected: the certificate of {host} is not trusted",
    "unknown-host": "could not be inspected: no such host {host}",
    "refused-address": "was not inspected: the address of {host} is not allowed",
    "refused-redirect": "was not inspected: {host} redirects to an address that is not allowed",
    "blocked": "was not inspected: {host} is blocked",
    "offline-miss": "is in no platforms file, and no registry is asked",
}
"""By the code of a failure; other codes use ``_HAPPENED_BY_CLASS``."""
_HAPPENED_BY_CLASS: Final = {"content": "could not be inspected: {host} sent an invalid response"}


def _why(finding: ImageFacts) -> str:
    """What happened, then class, HTTP status and code to search for."""
    if finding.problem:
        return f"{_quoted(finding.text)} is not a valid reference: {finding.problem}"
    happened = _HAPPENED.get(finding.note) or _HAPPENED_BY_CLASS.get(
        finding.error_class, "could not be inspected at {host}"
    )
    text = f"{finding.text} {happened.format(host=finding.host or 'its registry')}"
    code = finding.note if finding.note not in _HAPPENED else ""
    status = f"HTTP {finding.status}" if finding.status is not None else ""
    details = ", ".join(part for part in (finding.error_class, status, code) if part)
    return f"{text} ({details})" if details else text


def named(findings: Iterable[ImageFacts]) -> str:
    """The first images by name, and how many more there are."""
    texts = [finding.text for finding in findings]
    if len(texts) > MAX_NAMED:
        texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    return listed(texts)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
