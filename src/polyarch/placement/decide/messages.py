"""The message of each decision: one sentence that names the deciding images and the next action (PL-247, PL-751).

Events, warnings, conditions and ``explain`` print it unchanged. For a failure it has class, host, HTTP status and code,
never text that a registry sent. Pure.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Final

from polyarch.kube.objects.durations import format_duration
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide.decision import Decision, Reason
from polyarch.platforms import PlatformSet
from polyarch.pods.finding import Finding, Verdict

MAX_NAMED: Final = 4

_RULES: Final = {
    Reason.OPERATOR_NAMESPACE: "it is in the operator's namespace",
    Reason.KUBE_NAMESPACE: "pods in kube-* namespaces are never placed",
    Reason.EXCLUDED_NAMESPACE: "its namespace is in the PlacementPolicy's excludedNamespaces",
    Reason.OPTED_OUT: "its annotation polyarch.dev/skip-placement is true",
    Reason.ALREADY_BOUND: "spec.nodeName is already set",
    Reason.CONTROL_PLANE_POD: "its nodeSelector selects control-plane nodes",
    Reason.DAEMON_SET_POD: "it belongs to a DaemonSet, which sets its node",
    Reason.ARCHITECTURE_ALREADY_REQUIRED: "its nodeSelector or node affinity already constrains kubernetes.io/arch",
}


def ineligible(rule: Reason, namespace: str, *, was_gated: bool) -> str:
    """For a pod that is not placed; ``was_gated``: it became ineligible after it was gated (PL-310)."""
    place = f" (namespace {namespace})" if rule in _NAMESPACE_RULES else ""
    if was_gated:
        return f"Pod is released without a constraint: {_RULES[rule]}{place} ({rule.value})."
    return f"Pod is skipped: {_RULES[rule]}{place}."


_NAMESPACE_RULES: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE)


def sentence(decision: Decision, settings: Settings) -> str:
    """For every outcome that depends on images or preferences."""
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            text = f"Pod is constrained to {listed(decision.architectures)}, supported by {_deciders(decision)}"
            text += _no_node(decision)
        case Reason.ALL_IMAGES_NEUTRAL:
            verb = "runs" if len(decision.images) == 1 else "run"
            text = f"Pod needs no constraint: {_named(decision.images)} {verb} on any architecture"
        case Reason.PREFERENCES_ONLY:
            text = "Pod already constrains kubernetes.io/arch itself; only preferences are added"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            text = f"No node can run the pod: {conflict(decision.images)}; {_remedy(decision.images)}"
        case Reason.FALLBACK_SET:
            text = f"{_failed(decision)}; pod is constrained to the fallback {listed(decision.architectures)}"
            text += _no_node(decision) or "; check that the images support it"
        case Reason.PARTIALLY_CONSTRAINED:
            text = (
                f"{_failed(decision)}; pod is constrained to {listed(decision.architectures)}, "
                "supported by the other images"
            )
            text += _no_node(decision)
        case Reason.RELEASED_UNCONSTRAINED:
            text = f"{_failed(decision)}; pod is released without a constraint; correct the image or its pull secret"
        case Reason.HELD_BY_POLICY:
            until = _until(settings, "the image is resolved")
            text = f"{_failed(decision)}; the policy holds the pod{until}; correct the image or its pull secret"
        case Reason.IMAGES_NOT_RESOLVED_YET if decision.failure:
            text = f"{_failed(decision)}; pod stays gated while polyarch retries"
        case _:
            text = f"Waiting for the platforms of {_named(decision.unresolved)}"
    return text + "."


def refused(decision: Decision, refusal: str) -> str:
    """For PL-305."""
    wanted = listed(decision.architectures) or "the term that no node matches"
    return (
        f"API server rejected the node affinity ({refusal}); pod is released without {wanted}; "
        "find the webhook or policy that rejects it."
    )


def held_refused(settings: Settings, refusal: str) -> str:
    """For PL-305, if the policy never releases a pod without a constraint."""
    until = _until(settings, "the write is accepted")
    return (
        f"API server rejected the write that removes the scheduling gate ({refusal}); "
        f"the policy holds the pod{until}; find the webhook or policy that rejects it."
    )


def held_undecided(settings: Settings) -> str:
    """For PL-306, if the policy never releases a pod without a constraint."""
    until = _until(settings, "it can be placed")
    return (
        f"Internal error of polyarch while placing the pod; the policy holds the pod{until}; see the controller's log."
    )


def _until(settings: Settings, end: str) -> str:
    limit = settings.hold_limit
    return f" for at most {format_duration(limit)}" if limit is not None else f" until {end}"


def unavailable(decision: Decision, *, deprovisioning: bool) -> str:
    """For PL-107. ``deprovisioning``: the ClusterPodPlacementConfig is being deleted."""
    unknown = f" and the platforms of {_named(decision.unresolved)} are unknown" if decision.unresolved else ""
    if deprovisioning:
        return (
            f"Pod is not constrained: the ClusterPodPlacementConfig is being deleted{unknown}; "
            "once it is gone, create another to place pods."
        )
    return (
        f"Pod is not constrained: the placement controller is down{unknown}; "
        "check Deployment pod-placement-controller, then recreate the pod."
    )


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


def _remedy(images: Sequence[Finding]) -> str:
    constraining = sum(finding.verdict is Verdict.CONSTRAINS for finding in images)
    if constraining > 1:
        return "publish the images for a common platform, or choose other tags"
    return "publish the image for a platform of the cluster's nodes, or choose another tag"


def _deciders(decision: Decision) -> str:
    constraining = [finding for finding in decision.images if finding.verdict is Verdict.CONSTRAINS]
    stale = " (last known platforms, which could not be revalidated)" if decision.stale else ""
    dropped: set[str] = set()
    for finding in constraining:
        dropped.update(finding.dropped)
    odd = f"; {listed(sorted(dropped))} ignored, as no node can have it" if dropped else ""
    return f"{_named(constraining)}{stale}{odd}"


def _failed(decision: Decision) -> str:
    unresolved = decision.unresolved
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
    "stale": "could not be revalidated at {host}",
    "unknown": "does not declare its platforms",
    "tls": "could not be inspected: the certificate of {host} is not trusted",
    "unknown-host": "could not be inspected: no such host {host}",
    "refused-address": "was not inspected: the address of {host} is not allowed",
    "refused-redirect": "was not inspected: {host} redirects to an address that is not allowed",
    "blocked": "was not inspected: {host} is blocked",
    "offline-miss": "is not in the platforms file, and registries are not contacted",
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


def _named(findings: Iterable[Finding]) -> str:
    texts = [finding.text for finding in findings]
    if len(texts) > MAX_NAMED:
        texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    return listed(texts)


def _no_node(decision: Decision) -> str:
    return (
        "; no node has any of these architectures: add one, or the pod stays Pending"
        if decision.no_matching_node
        else ""
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
