"""The condition ``Ready`` of PodPlacementConfigs and of the PlacementPolicy, and values that count as absent.

PL-030, PL-032, PL-033, PL-041 and PL-750. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from polyarch.objects import Condition
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.names import SINGLETON
from polyarch.placement.operator.validation import shadowed
from polyarch.placement.settings import (
    INVALID_SELECTOR,
    WEIGHTS,
    LogVerbosity,
    ScoringArchitecture,
    SettingsTable,
    selector_problem,
)

READY: Final = "Ready"
Reason = Literal[
    "Valid",
    "InvalidLabelSelector",
    "ShadowedByPriority",
    "NoClusterPodPlacementConfig",
    "OverrideSelectorInvalid",
    "FallbackArchitectureMissing",
]
"""Of ``Ready``. The guide has a table of them."""


def of_configs(configs: Iterable[PodPlacementConfig]) -> dict[str, Condition]:
    """``Ready`` of each PodPlacementConfig of one namespace, by its name."""
    several = list(configs)
    before = shadowed(several)
    return {each.metadata.name: _of_config(each, before) for each in several}


def _of_config(config: PodPlacementConfig, before: Mapping[str, str]) -> Condition:
    if (problem := selector_problem(config)) is not None:
        return _not_ready(INVALID_SELECTOR, f"it matches no pod: spec.labelSelector: {problem}")
    if (other := before.get(config.metadata.name)) is not None:
        return _not_ready(
            "ShadowedByPriority",
            f"PodPlacementConfig {other} has the same priority {config.spec.priority} and goes first; "
            "give this one a priority of its own",
        )
    return _valid()


def of_policy(table: SettingsTable, *, configured: bool) -> Condition:
    """``Ready`` of the PlacementPolicy (PL-041). ``configured``: the ClusterPodPlacementConfig exists."""
    values = "; ".join(table.problems)
    if not configured:
        return _not_ready(
            "NoClusterPodPlacementConfig",
            f"it has no effect without a ClusterPodPlacementConfig; create the one that is called {SINGLETON}",
        )
    if table.invalid_overrides:
        return _not_ready("OverrideSelectorInvalid", values)
    if table.lacks_fallback:
        return _not_ready(
            "FallbackArchitectureMissing",
            "action fallback without a fallback architecture counts as hold; set "
            "spec.onUnresolved.fallbackArchitectures, or spec.fallbackArchitecture of the ClusterPodPlacementConfig",
        )
    return _valid(values)


def _valid(message: str = "") -> Condition:
    reason: Reason = "Valid"
    return Condition(READY, "True", reason, message)


def _not_ready(reason: Reason, message: str) -> Condition:
    return Condition(READY, "False", reason, message)


def matched(
    policy: PlacementPolicy, table: SettingsTable, namespaces: Iterable[Mapping[str, str]]
) -> list[dict[str, object]]:
    """``status.overrides``: for how many of these namespaces (their labels) each entry is the one that applies."""
    counts = {entry.get("name", ""): 0 for entry in policy.overrides}
    for labels in namespaces:
        if (name := table.override_of(labels)) is not None:
            counts[name] += 1
    return [{"name": name, "matchedNamespaces": count} for name, count in counts.items()]


def ignored_values(configuration: ClusterPodPlacementConfig) -> tuple[str, ...]:
    """Values of a stored ClusterPodPlacementConfig that the schema no longer allows: their defaults apply (PL-750)."""
    spec = configuration.spec
    found = []
    if spec.log_verbosity not in get_args(LogVerbosity):
        found.append(_ignored("logVerbosity", spec.log_verbosity, get_args(LogVerbosity), "Normal"))
    allowed = get_args(ScoringArchitecture)
    if spec.fallback_architecture and spec.fallback_architecture not in allowed:
        found.append(_ignored("fallbackArchitecture", spec.fallback_architecture, allowed, "none"))
    scoring = spec.plugins.node_affinity_scoring if spec.plugins is not None else None
    for index, platform in enumerate((scoring.platforms if scoring is not None else None) or ()):
        field = f"plugins.nodeAffinityScoring.platforms[{index}]"
        if platform.architecture not in allowed:
            found.append(_ignored(f"{field}.architecture", platform.architecture, allowed, "no preference"))
        low, high = WEIGHTS
        if not low <= platform.weight <= high:
            found.append(
                f"spec.{field}.weight: {platform.weight} is outside {low} to {high}; it counts as no preference"
            )
    return tuple(found)


def _ignored(field: str, value: str, allowed: Iterable[str], default: str) -> str:
    return f"spec.{field}: {value[:40]!r} is none of {', '.join(allowed)}; it counts as {default}"
