"""Preferred node affinity: its sources, and the terms they add to one pod (PL-203, PL-240 to PL-242).

Sources are the enabled ``nodeAffinityScoring`` plugins: those of matching PodPlacementConfigs (by priority descending,
then name ascending), then that of the ClusterPodPlacementConfig. They are compiled once per change of such an object.
Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

import msgspec

from polyarch.objects import Key
from polyarch.placement.api.resources import ClusterPodPlacementConfig, PodPlacementConfig, ScoringPlatform
from polyarch.placement.api.settings import WEIGHTS, ScoringArchitecture
from polyarch.placement.decide.decision import PreferenceEntry
from polyarch.placement.names import CLUSTER_SOURCE, NAMESPACED_SOURCE_PREFIX
from polyarch.selectors import InvalidSelector, Selector

INVALID_SELECTOR: Final = "InvalidLabelSelector"
"""Logged for a PodPlacementConfig that matches no pod because of its selector (PL-033)."""


class Source(msgspec.Struct, frozen=True, gc=False):
    """One enabled plugin. Without ``selector`` it applies to every pod."""

    name: str
    platforms: tuple[tuple[str, int], ...]
    """Architecture and weight, in the object's order."""
    selector: Selector | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it applies to a pod with these labels, without the keys of PL-004 (PL-033)."""
        return self.selector is None or self.selector.matches(labels)


class ScoringTable(msgspec.Struct, frozen=True):
    """The sources of every namespace."""

    cluster: tuple[Source, ...] = ()
    namespaced: Mapping[str, tuple[Source, ...]] = msgspec.field(default_factory=dict)
    """By namespace; the cluster's source is the last of each."""
    problems: Mapping[Key, str] = msgspec.field(default_factory=dict)
    """PodPlacementConfigs with an invalid selector, which match no pod (PL-033)."""

    @classmethod
    def of(cls, cppc: ClusterPodPlacementConfig | None, ppcs: Iterable[PodPlacementConfig]) -> "ScoringTable":
        """The table for these objects; an absent CPPC counts as not enabled (PL-203)."""
        cluster: tuple[Source, ...] = ()
        if cppc is not None and (platforms := _enabled(cppc)) is not None:
            cluster = (Source(CLUSTER_SOURCE, platforms),)
        sources: dict[str, list[Source]] = {}
        problems: dict[Key, str] = {}
        for ppc in sorted(ppcs, key=precedence):
            try:
                selector = None if ppc.spec.label_selector is None else Selector.parse(ppc.spec.label_selector)
            except InvalidSelector as error:
                problems[ppc.metadata.key] = str(error)
                continue
            if (platforms := _enabled(ppc)) is not None:
                name = NAMESPACED_SOURCE_PREFIX + ppc.metadata.name
                sources.setdefault(ppc.metadata.namespace, []).append(Source(name, platforms, selector))
        return cls(cluster, {namespace: (*own, *cluster) for namespace, own in sources.items()}, problems)

    def of_namespace(self, namespace: str) -> tuple[Source, ...]:
        """The sources by precedence."""
        return self.namespaced.get(namespace, self.cluster)


def selector_problem(ppc: PodPlacementConfig) -> str | None:
    """Why the selector is invalid; None if it is valid."""
    try:
        if ppc.spec.label_selector is not None:
            Selector.parse(ppc.spec.label_selector)
    except InvalidSelector as error:
        return str(error)
    return None


def precedence(ppc: PodPlacementConfig) -> tuple[int, str]:
    """Sort key: priority descending, then name ascending, so equal priorities have a fixed order (PL-032)."""
    return -ppc.spec.priority, ppc.metadata.name


def _enabled(config: ClusterPodPlacementConfig | PodPlacementConfig) -> tuple[tuple[str, int], ...] | None:
    plugins = config.spec.plugins
    scoring = plugins.node_affinity_scoring if plugins is not None else None
    if scoring is None or not scoring.enabled:
        return None
    return tuple((each.architecture, each.weight) for each in scoring.platforms or () if _is_usable(each))


def _is_usable(platform: ScoringPlatform) -> bool:
    """Whether the API server accepts it; an older schema may have admitted an invalid one."""
    return platform.architecture in get_args(ScoringArchitecture) and WEIGHTS[0] <= platform.weight <= WEIGHTS[1]


def preferences(
    sources: Iterable[Source], *, already_preferred: bool
) -> tuple[tuple[tuple[str, int], ...], tuple[PreferenceEntry, ...]]:
    """The preferred terms to add as (architecture, weight), and every platform of every source: added or skipped.

    The first source that names an architecture sets its weight. If the user's view has an architecture preference,
    nothing is added, not even for other architectures (PL-240). Identical entries are listed once (PL-242).
    """
    terms: dict[str, int] = {}
    entries: dict[PreferenceEntry, None] = {}
    for source in sources:
        for architecture, weight in source.platforms:
            skipped = already_preferred or architecture in terms
            if not skipped:
                terms[architecture] = weight
            entries.setdefault(PreferenceEntry(architecture, weight, source.name, skipped))
    return tuple(terms.items()), tuple(entries)
