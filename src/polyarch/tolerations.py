"""Taints of nodes, tolerations of pods, and which toleration covers which taint: Kubernetes' own rule.

Source: ``ToleratesTaint`` of ``k8s.io/component-helpers`` (``k8s.io/api/core/v1/toleration.go``). A toleration that
expires covers nothing here: with ``NoExecute`` and ``tolerationSeconds`` the pod is evicted after that time. Pure.
"""

import re
from collections.abc import Iterable

import msgspec


class Taint(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Taint. Key and effect identify it on its node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None

    def __str__(self) -> str:
        """As ``kubectl taint`` takes it: ``key=value:effect``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Toleration. An absent operator means ``Equal``; an absent effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")
"""Of tolerations; the empty one means ``Equal``."""
REPELS = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that keep a pod off a node; the other one only makes the node less wanted."""
_DECIMAL = re.compile(r"-?[1-9][0-9]{0,18}|0", re.ASCII)

# Taints that somebody takes off again by himself: the lifecycle of nodes, autoscalers, agents that are not ready yet. A
# node that carries one now is no sign of what the nodes of its pool are like.
_PASSING = frozenset(
    {
        *(
            f"node.kubernetes.io/{condition}"
            for condition in (
                "not-ready",
                "unreachable",
                "unschedulable",
                "memory-pressure",
                "disk-pressure",
                "pid-pressure",
                "network-unavailable",
                "out-of-disk",
                "out-of-service",
            )
        ),
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "cloud.google.com/impending-node-termination",
        "UpdateInProgress",
    }
)
_PASSING_PREFIXES = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
    "aws-node-termination-handler/",
)
_PASSING_NAMES = ("agent-not-ready", "not-ready", "uninitialized", "unregistered", "initializing")
"""Last parts of keys that CNI and CSI agents, cloud providers, Cluster API and Karpenter use while a node starts."""


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with this toleration may stay on a node with this taint for as long as it likes.

    ``Gt`` and ``Lt`` (KEP-5471) compare the taint's value with the toleration's as integers. Where an API server does
    not have these operators, no pod has them.
    """
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if taint.effect == NO_EXECUTE and toleration.toleration_seconds is not None:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            value, bound = _decimal(taint.value), _decimal(toleration.value)
            if value is None or bound is None:
                return False
            return value > bound if toleration.operator == "Gt" else value < bound
        case _:
            return False


def _decimal(text: str) -> int | None:
    """A 64-bit integer as Kubernetes writes one: without a plus sign and without leading zeros."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def is_passing(taint: Taint) -> bool:
    """Whether the taint goes away by itself: it says how the node is now, not what it is for."""
    key = taint.key
    return key in _PASSING or key.startswith(_PASSING_PREFIXES) or key.rpartition("/")[2] in _PASSING_NAMES


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration] | None) -> bool:
    """Whether any of them covers the taint."""
    return any(covers(each, taint) for each in tolerations or ())


def uncovered(taints: Iterable[Taint], tolerations: Iterable[Toleration] | None) -> tuple[Taint, ...]:
    """Those of the taints that no toleration covers, in their order."""
    held = tuple(tolerations or ())
    return tuple(taint for taint in taints if not is_tolerated(taint, held))


def tolerating(taint: Taint) -> Toleration:
    """The toleration that covers this taint and nothing else, as polyarch writes it: with its operator, which
    other controllers compare, and for ever."""
    return Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)


def parse_taint(text: str) -> Taint | None:
    """The taint that ``key=value:effect`` names; None for another text."""
    left, colon, effect = text.strip().rpartition(":")
    key, _, value = left.partition("=")
    return Taint(key=key, value=value, effect=effect) if colon and key and effect else None


def parse_taints(text: str) -> tuple[Taint, ...]:
    """The taints of a list with commas; what is not one is passed over."""
    return tuple(taint for each in text.split(",") if (taint := parse_taint(each)) is not None)
