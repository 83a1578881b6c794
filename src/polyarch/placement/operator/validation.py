"""Validation of PodPlacementConfigs and the ClusterPodPlacementConfig against other objects (PL-011, PL-031).

The CRD schemas validate one object by itself (``api/crds``). The rules here need other objects: priorities are unique
in a namespace, a ClusterPodPlacementConfig exists, and it is not deleted while PodPlacementConfigs depend on it. Each
message names the object and field, the value found, what is allowed and the next step (PL-751). Pure: the operator's
webhooks gather the objects.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final

import msgspec

from polyarch.kube.resources import few
from polyarch.placement.api import NodeAffinityScoring, Plugins, PodPlacementConfig
from polyarch.placement.names import SINGLETON
from polyarch.placement.settings import precedence, selector_problem

"""PodPlacementConfigs listed in one message (PL-011)."""
BAD_REQUEST: Final = 400
INVALID: Final = 422
FORBIDDEN: Final = 403


class Refusal(msgspec.Struct, frozen=True):
    """A denial by a validating webhook; ``code`` is the HTTP status that the client sees."""

    code: int
    message: str


class Submitted(msgspec.Struct, frozen=True):
    """A PodPlacementConfig that is created or updated, with the objects it is validated against."""

    config: PodPlacementConfig
    old: PodPlacementConfig | None
    """None: it is created."""
    others: Sequence[PodPlacementConfig]
    """All of its namespace, with or without itself. A cache may lag behind, so the caller lists them from the API
    server once before it accepts (PL-031)."""
    cluster_configured: bool
    """A ClusterPodPlacementConfig exists."""
    cluster_leaving: bool = False
    """It is being deleted, which waits until there are no PodPlacementConfigs any more."""


def judge(submitted: Submitted) -> Refusal | None:
    """The first violated rule of PL-031; None: the object is valid."""
    found = (rule(submitted) for rule in _RULES)
    return next((refusal for refusal in found if refusal is not None), None)


def _needs_the_cluster_configuration(submitted: Submitted) -> Refusal | None:
    if submitted.cluster_configured and submitted.cluster_leaving and submitted.old is None:
        return Refusal(
            BAD_REQUEST,
            f"{_name(submitted.config)}: the ClusterPodPlacementConfig {SINGLETON} is being deleted, so it would have "
            f"no effect; wait until it is gone, and create it again first",
        )
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
        return None  # two created at the same time may share a priority, and must still be editable (PL-032)
    taken = [
        other.metadata.name
        for other in submitted.others
        if other.spec.priority == priority and other.metadata.name != config.metadata.name
    ]
    if not taken:
        return None
    return Refusal(
        INVALID,
        f"{_name(config)}: spec.priority: {priority} is already used by PodPlacementConfig {min(taken)}; "
        f"each PodPlacementConfig of a namespace needs its own priority, from 0 to 255",
    )


_RULES: Final[tuple[Callable[[Submitted], Refusal | None], ...]] = (
    _needs_the_cluster_configuration,
    _selector_parses,
    _each_architecture_once,
    _priority_is_free,
)


def judge_cluster_configuration(plugins: Plugins | None) -> Refusal | None:
    """PL-011: no architecture twice, even if the plugin is disabled."""
    scoring = _scoring(plugins)
    return _repeated(scoring, f"ClusterPodPlacementConfig {SINGLETON}") if scoring is not None else None


def judge_removal(configs: Iterable[PodPlacementConfig]) -> Refusal | None:
    """PL-011: the ClusterPodPlacementConfig cannot be deleted while any PodPlacementConfig exists."""
    names = sorted(str(config.metadata.key) for config in configs)
    if not names:
        return None
    return Refusal(
        FORBIDDEN,
        f"ClusterPodPlacementConfig {SINGLETON}: PodPlacementConfigs depend on it: {few(names)}; delete them first",
    )


def shadowed(configs: Iterable[PodPlacementConfig]) -> dict[str, str]:
    """PodPlacementConfigs of one namespace that share a priority with an earlier one: name → name of the one that takes
    precedence (PL-032). Their condition ``Ready`` is False, reason ``ShadowedByPriority``."""
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
