"""What is refused of PodPlacementConfigs and of the ClusterPodPlacementConfig, and in which words (PL-011, PL-031).

The schemas refuse what can be seen in one object (``api/crds``); here is what takes a look at others: one priority in a
namespace, a configuration of the cluster to refine, none left behind. Each rule says which object and field, what was
found, what is allowed and what to do next (PL-751). Pure: the operator's webhooks gather the objects.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final

import msgspec

from polyarch.placement.api.resources import NodeAffinityScoring, Plugins, PodPlacementConfig
from polyarch.placement.decide.scoring import precedence, selector_problem
from polyarch.placement.names import SINGLETON

MOST_NAMED: Final = 5
"""PodPlacementConfigs that a refusal lists (PL-011)."""
BAD_REQUEST: Final = 400
INVALID: Final = 422
FORBIDDEN: Final = 403


class Refusal(msgspec.Struct, frozen=True):
    """An answer of a validating webhook; ``code`` is the HTTP status that the client sees."""

    code: int
    message: str


class Submitted(msgspec.Struct, frozen=True):
    """A PodPlacementConfig that is created or updated, and what it is judged by."""

    config: PodPlacementConfig
    old: PodPlacementConfig | None
    """None: it is created."""
    others: Sequence[PodPlacementConfig]
    """Those of its namespace, itself included or not. A conflict that a cache does not show may still be there, so the
    caller asks the API server once before it accepts (PL-031)."""
    cluster_configured: bool
    """There is a ClusterPodPlacementConfig."""


def judge(submitted: Submitted) -> Refusal | None:
    """PL-031; the first rule that is broken, None if none is."""
    found = (rule(submitted) for rule in _RULES)
    return next((refusal for refusal in found if refusal is not None), None)


def _needs_the_cluster_configuration(submitted: Submitted) -> Refusal | None:
    if submitted.cluster_configured:
        return None
    return Refusal(
        BAD_REQUEST,
        f"{_name(submitted.config)}: there is no ClusterPodPlacementConfig, so it would have no effect; "
        f"create the ClusterPodPlacementConfig {SINGLETON} first",
    )


def _selector_parses(submitted: Submitted) -> Refusal | None:
    problem = selector_problem(submitted.config)
    if problem is None:
        return None
    return Refusal(INVALID, f"{_name(submitted.config)}: spec.labelSelector: {problem}; correct it, or leave it out")


def _each_architecture_once(submitted: Submitted) -> Refusal | None:
    scoring = _scoring(submitted.config.spec.plugins)
    if scoring is None or not scoring.enabled:
        return None
    return _repeated(scoring, _name(submitted.config))


def _priority_is_free(submitted: Submitted) -> Refusal | None:
    config, old = submitted.config, submitted.old
    priority = config.spec.priority
    if old is not None and old.spec.priority == priority:
        return None  # two that were created at once may have the same, and still have to be correctable (PL-032)
    taken = [
        other.metadata.name
        for other in submitted.others
        if other.spec.priority == priority and other.metadata.name != config.metadata.name
    ]
    if not taken:
        return None
    return Refusal(
        INVALID,
        f"{_name(config)}: spec.priority: {priority} is the priority of PodPlacementConfig {min(taken)}, too; "
        f"each of a namespace needs its own, from 0 to 255",
    )


_RULES: Final[tuple[Callable[[Submitted], Refusal | None], ...]] = (
    _needs_the_cluster_configuration,
    _selector_parses,
    _each_architecture_once,
    _priority_is_free,
)


def judge_cluster_configuration(plugins: Plugins | None) -> Refusal | None:
    """PL-011: no architecture twice, be the plugin enabled or not."""
    scoring = _scoring(plugins)
    return _repeated(scoring, f"ClusterPodPlacementConfig {SINGLETON}") if scoring is not None else None


def judge_removal(configs: Iterable[PodPlacementConfig]) -> Refusal | None:
    """PL-011: the ClusterPodPlacementConfig stays while PodPlacementConfigs refine it, wherever they are."""
    names = sorted(str(config.metadata.key) for config in configs)
    if not names:
        return None
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return Refusal(
        FORBIDDEN,
        f"ClusterPodPlacementConfig {SINGLETON}: PodPlacementConfigs depend on it: {', '.join(names[:MOST_NAMED])}"
        f"{more}; delete them first",
    )


def shadowed(configs: Iterable[PodPlacementConfig]) -> dict[str, str]:
    """Of the PodPlacementConfigs of one namespace those whose priority another one has, by name, and the one that
    counts before them (PL-032): condition ``Ready`` is False for them, reason ``ShadowedByPriority``."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for config in sorted(configs, key=precedence):
        before = first.setdefault(config.spec.priority, config.metadata.name)
        if before != config.metadata.name:
            found[config.metadata.name] = before
    return found


def _scoring(plugins: Plugins | None) -> NodeAffinityScoring | None:
    return plugins.node_affinity_scoring if plugins is not None else None


def _repeated(scoring: NodeAffinityScoring, subject: str) -> Refusal | None:
    field = "spec.plugins.nodeAffinityScoring.platforms"
    for (one, first), (other, second) in combinations(enumerate(scoring.platforms or ()), 2):
        if first.architecture == second.architecture:
            return Refusal(
                INVALID,
                f"{subject}: {field}[{one}] and [{other}] both have architecture {first.architecture}: keep one",
            )
    return None


def _name(config: PodPlacementConfig) -> str:
    return f"PodPlacementConfig {config.metadata.key}"
