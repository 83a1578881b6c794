"""The one sentence of each decision: which images decided, and what to do next (PL-247, PL-751).

Events, warnings, conditions and ``explain`` print these and have no words of their own. Of a failure they show class,
host, HTTP status and code, never a text that a registry sent. Pure.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Final

from polyarch.kube.objects.durations import format_duration
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide.decision import Decision, Finding, Reason, Verdict
from polyarch.platforms import PlatformSet

MAX_NAMED: Final = 4

_RULES: Final = {
    Reason.OPERATOR_NAMESPACE: "its namespace is the operator's own",
    Reason.KUBE_NAMESPACE: "namespaces that begin with kube- are never placed",
    Reason.EXCLUDED_NAMESPACE: "the PlacementPolicy's excludedNamespaces names its namespace",
    Reason.OPTED_OUT: "its annotation polyarch.dev/skip-placement is true",
    Reason.ALREADY_BOUND: "spec.nodeName already names its node",
    Reason.CONTROL_PLANE_POD: "its nodeSelector asks for control-plane nodes",
    Reason.DAEMON_SET_POD: "a DaemonSet chooses its node",
    Reason.ARCHITECTURE_ALREADY_REQUIRED: "its nodeSelector or node affinity already settles kubernetes.io/arch",
}


def ineligible(rule: Reason, namespace: str, *, was_gated: bool) -> str:
    """For a pod that is left alone, or released because it is to be left alone by now (PL-310)."""
    place = f" (namespace {namespace})" if rule in _NAMESPACE_RULES else ""
    if was_gated:
        return f"The pod is released without a constraint of ours: {_RULES[rule]}{place} ({rule.value})."
    return f"The pod is left alone: {_RULES[rule]}{place}."


_NAMESPACE_RULES: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE)


def sentence(decision: Decision, settings: Settings) -> str:
    """For every outcome that rests on images or preferences."""
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            text = f"The pod is limited to {listed(decision.architectures)}, what {_deciders(decision)}"
            text += _no_node(decision)
        case Reason.ALL_IMAGES_NEUTRAL:
            text = f"The pod needs no constraint: {_named(decision.images)} run on any architecture"
        case Reason.PREFERENCES_ONLY:
            text = "The pod's architectures are settled by its author; only preferences apply"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            text = f"No node can run the pod: {conflict(decision.images)}; {_remedy(decision.images)}"
        case Reason.FALLBACK_SET:
            text = f"{_failed(decision)}; the fallback {listed(decision.architectures)} is used"
            text += _no_node(decision) or "; check that the images run there"
        case Reason.PARTIALLY_CONSTRAINED:
            text = (
                f"{_failed(decision)}; the pod is limited to {listed(decision.architectures)}, what the others support"
            )
            text += _no_node(decision)
        case Reason.RELEASED_UNCONSTRAINED:
            text = (
                f"{_failed(decision)}; the pod is released without a constraint, correct the image or its pull secret"
            )
        case Reason.HELD_BY_POLICY:
            until = _until(settings, "it is resolved")
            text = f"{_failed(decision)}; the policy holds the pod{until}, correct the image or its pull secret"
        case Reason.IMAGES_NOT_RESOLVED_YET if decision.failure:
            text = f"{_failed(decision)}; the pod waits and the images are asked for again"
        case _:
            text = f"The pod waits for the platforms of {_named(decision.unresolved)}"
    return text + "."


def refused(decision: Decision, refusal: str) -> str:
    """For PL-305."""
    wanted = listed(decision.architectures) or "a marker that no node has"
    return (
        f"The API server refuses the node affinity ({refusal}): the pod is released without {wanted}; "
        "find the webhook or policy that refuses it."
    )


def held_refused(settings: Settings, refusal: str) -> str:
    """For PL-305, where the policy asks for a constraint in any case."""
    until = _until(settings, "it is accepted")
    return (
        f"The API server refuses the write that releases the pod ({refusal}); the policy holds the pod{until}; "
        "find the webhook or policy that refuses it."
    )


def held_undecided(settings: Settings) -> str:
    """For PL-306, where the policy asks for a constraint in any case."""
    until = _until(settings, "it can be decided")
    return (
        f"A bug of polyarch keeps the pod from being decided; the policy holds the pod{until}; "
        "see the controller's log."
    )


def _until(settings: Settings, end: str) -> str:
    limit = settings.hold_limit
    return f" for at most {format_duration(limit)}" if limit is not None else f" until {end}"


def unavailable(decision: Decision, *, deprovisioning: bool) -> str:
    """For PL-107. ``deprovisioning``: the ClusterPodPlacementConfig is being deleted."""
    waited = f": {_named(decision.unresolved)} would have to be asked for" if decision.unresolved else ""
    if deprovisioning:
        return (
            "The pod is let through without a constraint because the ClusterPodPlacementConfig is being deleted"
            f"{waited}; to have pods placed, create one once it is gone."
        )
    return (
        f"The pod is let through without a constraint because the placement controller is away{waited}; "
        "see its Deployment pod-placement-controller, and create the pod again once it is back."
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
    """As few images as show that nothing is common to all: one without a platform, or two, or all."""
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
        clauses.append(f"{len(shown) - MAX_NAMED} more images narrow that further")
    if _common(*constraining):
        clauses.append("none of it for the pod's operating system")
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
    stale = " (by a reading that could not be checked again)" if decision.stale else ""
    dropped: set[str] = set()
    for finding in constraining:
        dropped.update(finding.dropped)
    odd = f", without {listed(sorted(dropped))} which no node label can say" if dropped else ""
    verb = "supports" if len(constraining) == 1 else "all support"
    return f"{_named(constraining)} {verb}{stale}{odd}"


def _failed(decision: Decision) -> str:
    unresolved = decision.unresolved
    clauses = [_why(finding) for finding in unresolved[:MAX_NAMED]]
    if len(unresolved) > MAX_NAMED:
        clauses.append(f"{len(unresolved) - MAX_NAMED} more")
    return f"Image {'; '.join(clauses)}"


_HAPPENED: Final = {
    "pending": "is not answered yet",
    "not-found": "does not exist at {host}",
    "unauthorized": "may not be read at {host} with the credentials at hand",
    "denied": "may not be read at {host} with the credentials at hand",
    "credential-helper": "needs credentials for {host} that could not be had",
    "rate-limited": "has to wait for the rate limit of {host}",
    "timeout": "got no answer in time from {host}",
    "network": "could not be asked for, {host} is not reached",
    "server-error": "could not be had, {host} failed",
    "stale": "could not be checked again at {host}",
    "unknown": "does not say its platforms",
    "tls": "could not be asked for, the certificate of {host} is not trusted",
    "unknown-host": "could not be asked for, there is no host {host}",
    "refused-address": "may not be asked for, the address of {host} is refused",
    "refused-redirect": "may not be asked for, {host} leads to where it is refused",
    "blocked": "may not be asked for, {host} is blocked",
    "offline-miss": "has no answer in the platforms file, and no registry is asked",
}
"""By the code of a failure; for the others see ``_WHAT_CLASS``."""
_WHAT_CLASS: Final = {"content": "could not be read, what {host} sent is not usable"}


def _why(finding: Finding) -> str:
    """What happened first, then class and HTTP status for those who search for them (PL-751)."""
    if finding.problem:
        return f"{_quoted(finding.text)} is no valid reference: {finding.problem}"
    happened = _HAPPENED.get(finding.note) or _WHAT_CLASS.get(finding.error_class, "could not be had from {host}")
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
    return "; no node has any of these, so add one or it stays pending" if decision.no_matching_node else ""


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
