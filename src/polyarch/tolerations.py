"""Taints of nodes, tolerations of pods, and which toleration covers which taint: Kubernetes' own rule.

Source: ``ToleratesTaint`` of ``k8s.io/component-helpers`` (``k8s.io/api/core/v1/toleration.go``). A toleration that
expires covers nothing here: with ``NoExecute`` and ``tolerationSeconds`` the pod is evicted after that time. Pure.
"""

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
REPELS = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that keep a pod off a node; the other one only makes the node less wanted."""


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with this toleration may stay on a node with this taint for as long as it likes."""
    if toleration.effect not in ("", taint.effect):
        return False
    if taint.effect == NO_EXECUTE and toleration.toleration_seconds is not None:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)


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
