"""How images, their platforms and their failures are worded for people (PL-247, PL-751).

Every feature that decides by the images of a pod uses these words, so that two events about one image agree. For a
failure there are class, host, HTTP status and code, never text that a registry sent. Pure.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Final

from polyarch.platforms import PlatformSet
from polyarch.pods.finding import Finding, Verdict

MAX_NAMED: Final = 4


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def platforms_of(finding: Finding) -> str:
    """``linux/amd64, linux/arm64``, or that there are none."""
    return ", ".join(map(str, finding.platforms)) or "no platform that a node can have"


def conflict(images: Sequence[Finding]) -> str:
    """The fewest images that have no common platform: one without any, or two, or all."""
    constraining = [finding for finding in images if finding.verdict is Verdict.CONSTRAINS]
    for finding in constraining:
        if not finding.platforms:
            return f"{finding.text} has no platform that a node can have"
    shown: Sequence[Finding] = constraining
    for index, left in enumerate(constraining):
        apart = next((right for right in constraining[:index] if not _common(left, right)), None)
        if apart is not None:
            shown = (apart, left)
            break
    clauses = [f"{finding.text} has {platforms_of(finding)}" for finding in shown[:MAX_NAMED]]
    if len(shown) > MAX_NAMED:
        clauses.append(f"{len(shown) - MAX_NAMED} more images")
    if _common(*constraining):
        clauses.append("none of them for the pod's operating system")
    return ", ".join(clauses)


def _common(*findings: Finding) -> PlatformSet:
    return reduce(and_, (PlatformSet.of(finding.platforms) for finding in findings))


def remedy(images: Sequence[Finding]) -> str:
    """What to do about images without a common platform."""
    constraining = sum(finding.verdict is Verdict.CONSTRAINS for finding in images)
    if constraining > 1:
        return "publish the images for a common platform, or choose other tags"
    return "publish the image for a platform of the cluster's nodes, or choose another tag"


def deciders(images: Iterable[Finding]) -> str:
    """The images that restrict the pod, and what is odd about their answers."""
    images = tuple(images)
    constraining = [finding for finding in images if finding.verdict is Verdict.CONSTRAINS]
    is_stale = any(finding.stale for finding in images)
    stale = " (last known platforms, which could not be revalidated)" if is_stale else ""
    dropped: set[str] = set()
    for finding in constraining:
        dropped.update(finding.dropped)
    odd = f"; {listed(sorted(dropped))} ignored, as no node can have it" if dropped else ""
    return f"{named(constraining)}{stale}{odd}"


def failed(unresolved: Sequence[Finding]) -> str:
    """Why the answers of these images are missing."""
    clauses = [_why(finding) for finding in unresolved[:MAX_NAMED]]
    if len(unresolved) > MAX_NAMED:
        clauses.append(f"{len(unresolved) - MAX_NAMED} more")
    return f"Image {'; '.join(clauses)}"


_HAPPENED: Final = {
    "pending": "is not resolved yet",
    "not-found": "does not exist at {host}",
    "unauthorized": "cannot be pulled from {host} with the available credentials",
    "denied": "cannot be pulled from {host} with the available credentials",
    "credential-helper": "needs credentials for {host}, but the credential helper failed",
    "rate-limited": "is delayed by the rate limit of {host}",
    "timeout": "could not be inspected: {host} timed out",
    "network": "could not be inspected: {host} is unreachable",
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


def _why(finding: Finding) -> str:
    """What happened, then class, HTTP status and code to search for (PL-751)."""
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


def named(findings: Iterable[Finding]) -> str:
    """The first images by name, and how many more there are."""
    texts = [finding.text for finding in findings]
    if len(texts) > MAX_NAMED:
        texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    return listed(texts)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
