"""What the operator says about placement's custom resources: conditions, and the denials of its webhooks. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal, get_args

import msgspec

from polyarch.kube.managed_fields import FieldConflict
from polyarch.kube.resources import few
from polyarch.objects import Condition
from polyarch.operator.operands import MAX_PROBLEMS, RolloutStatus, first_problems, shortened
from polyarch.operator.settings import OLDEST_KUBERNETES, ClusterCapabilities
from polyarch.placement import names
from polyarch.placement.api import (
    WEIGHTS,
    ClusterPodPlacementConfig,
    LogVerbosity,
    NodeAffinityScoring,
    PlacementPolicy,
    Plugins,
    PodPlacementConfig,
    ScoringArchitecture,
    override_name,
)
from polyarch.placement.names import SINGLETON
from polyarch.placement.settings import (
    INVALID_SELECTOR,
    SettingsTable,
    precedence,
    selector_problem,
)

# -- conditions of the ClusterPodPlacementConfig -----------------------------------------------------------------------


# They are computed in every reconcile, also while the object is being deleted. Order and reasons are those that
# existing tools know.

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
DEPROVISIONING: Final = "Deprovisioning"
CONTROLLER_NOT_ROLLED_OUT: Final = "PodPlacementControllerNotRolledOut"
WEBHOOK_NOT_ROLLED_OUT: Final = "PodPlacementWebhookNotRolledOut"
NOT_CONFIGURED: Final = "MutatingWebhookConfigurationNotAvailable"
UNREACHABLE: Final = "PodPlacementWebhookUnreachable"
"""A reason only: tools that know the conditions expect these and no others."""
ALL_READY: Final = "AllComponentsReady"


class PlacementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one reconcile of placement has found."""

    controller: RolloutStatus
    webhook: RolloutStatus
    configured: bool
    """The pod webhook's configuration exists."""
    unreachable: tuple[str, ...] = ()
    """Why the pod webhook cannot be called, or not by its right rules, although all that exists; as sentences."""
    deleting: bool = False
    """The ClusterPodPlacementConfig has a deletion timestamp."""
    gated_pods: int | None = None
    """Pods that still carry our gate; None: not counted."""
    waiting_for: str = ""
    """What else an uninstall waits for, or what it could not do, as a sentence."""
    problems: tuple[str, ...] = ()
    """What is wrong although pods may be available, each with what to do about it."""


def conditions(facts: PlacementFacts) -> tuple[Condition, ...]:
    """All conditions, in the order that tools know."""
    broken = _broken(facts)
    reason = "".join(broken) or ALL_READY
    why = "; ".join(broken.values())
    stands = facts.configured and facts.controller.available and facts.webhook.available
    available = stands and UNREACHABLE not in broken
    progressing = not facts.deleting and not (
        facts.configured and facts.controller.up_to_date and facts.webhook.up_to_date
    )
    degraded = not facts.deleting and (not available or bool(facts.problems))
    found = [
        _condition(AVAILABLE, available, reason, why or "every component is ready"),
        _condition(PROGRESSING, progressing, reason, why if progressing else "nothing is being changed"),
        _condition(
            DEGRADED,
            degraded,
            "Degraded" if degraded else "NotDegraded",
            "; ".join([*([why] if not available else ()), *first_problems(facts.problems)]) if degraded else "",
        ),
        _condition(
            DEPROVISIONING,
            facts.deleting,
            "Deprovisioning" if facts.deleting else "NotDeprovisioning",
            _terminating(facts) if facts.deleting else "",
        ),
    ]
    for kind, ready in (
        (CONTROLLER_NOT_ROLLED_OUT, "PodPlacementController"),
        (WEBHOOK_NOT_ROLLED_OUT, "PodPlacementWebhook"),
    ):
        word = "NotReady" if kind in broken else "Ready"
        found.append(_condition(kind, kind in broken, ready + word, broken.get(kind, "")))
    found.append(_condition(NOT_CONFIGURED, NOT_CONFIGURED in broken, reason, broken.get(NOT_CONFIGURED, "")))
    return tuple(found)


def _broken(facts: PlacementFacts) -> dict[str, str]:
    """Why placement does not work: the last three conditions that are True, and whether the webhook can be called."""
    found = {}
    for kind, name, rollout in (
        (CONTROLLER_NOT_ROLLED_OUT, names.CONTROLLER, facts.controller),
        (WEBHOOK_NOT_ROLLED_OUT, names.WEBHOOK, facts.webhook),
    ):
        if not (rollout.available and rollout.up_to_date):
            found[kind] = f"Deployment {name}: {rollout.summary}"
    if not facts.configured:
        found[NOT_CONFIGURED] = (
            "the pod webhook is not registered"
            if facts.deleting
            else "the pod webhook is registered once both Deployments are available"
        )
    if facts.unreachable and not facts.deleting:
        why = "; ".join(facts.unreachable[:MAX_PROBLEMS])
        found[UNREACHABLE] = f"new pods are not placed: {why}"
    return found


def _terminating(facts: PlacementFacts) -> str:
    count = facts.gated_pods
    gated = "" if count is None else f"{count} pod{'' if count == 1 else 's'} still gated"
    return "; ".join(part for part in (gated, facts.waiting_for) if part) or "placement is being removed"


def _condition(type: str, is_so: bool, reason: str, message: str) -> Condition:
    status: Literal["True", "False"] = "True" if is_so else "False"
    return Condition(type, status, reason, shortened(message))


def contested(fields: Iterable[tuple[object, FieldConflict]]) -> tuple[str, ...]:
    """Problems: fields that another manager keeps taking back. The objects are an apply set's refs."""
    return tuple(
        f"{ref}: {conflict.manager} keeps changing {conflict.field}, which is left alone for now; "
        f"stop one of the two from setting it"
        for ref, conflict in fields
    )


def repeated(fields: Iterable[tuple[object, FieldConflict]]) -> tuple[str, ...]:
    """Problems: fields that another manager takes back too slowly to be left alone for it."""
    return tuple(
        f"{ref}: {conflict.manager} has changed {conflict.field} five times within an hour, and it was put right each "
        f"time; stop it from setting that"
        for ref, conflict in fields
    )


def put_right(ref: object, taken: Iterable[FieldConflict]) -> str:
    """Why the webhook cannot be called: somebody has just changed what it is called by."""
    changes = [f"{conflict.manager} changed {conflict.field}" for conflict in taken]
    return f"{ref}: {', '.join(changes) or 'somebody changed or deleted it'}; it is being put right"


def refused(ref: object, failure: object) -> str:
    """An operand that the API server refuses."""
    return f"{ref} could not be changed: {failure}"


def left_out(resources: Mapping[str, str]) -> tuple[str, ...]:
    """Problems: facts that decisions are made without, by resource, each with the API server's words."""
    return tuple(
        f"pods are placed without {resource}, which the policy asks for: {words}"
        for resource, words in resources.items()
    )


def unusable(problems: Iterable[str]) -> tuple[str, ...]:
    """Problems: settings that the roles would refuse as they start."""
    return tuple(f"nothing is deployed or changed until this is corrected: {problem}" for problem in problems)


def version_problem(cluster: ClusterCapabilities) -> tuple[str, ...]:
    """A problem if Kubernetes is too old to deploy anything."""
    if cluster.version >= OLDEST_KUBERNETES:
        return ()
    found, needed = (".".join(map(str, version)) for version in (cluster.version, OLDEST_KUBERNETES))
    return (f"this is Kubernetes {found}, and placement needs {needed} or newer: nothing is deployed",)


def refused_webhook(message: str) -> tuple[str, ...]:
    """A problem: the API server refused the pod webhook's configuration."""
    stays = "the API server refused the pod webhook's configuration, so the one in force stays"
    return (f"{stays}; correct spec.namespaceSelector: {message}",)


# -- ``Ready`` of PodPlacementConfigs and of the PlacementPolicy -------------------------------------------------------


READY: Final = "Ready"
Reason = Literal[
    "Valid",
    "InvalidLabelSelector",
    "ShadowedByPriority",
    "NoClusterPodPlacementConfig",
    "OverrideSelectorInvalid",
    "FallbackArchitectureMissing",
]
"""Reasons of ``Ready``. The guide has a table of them."""


def of_configs(configs: Iterable[PodPlacementConfig]) -> dict[str, Condition]:
    """``Ready`` of each PodPlacementConfig of one namespace, by its name."""
    listed = list(configs)
    before = shadowed(listed)
    return {config.metadata.name: _of_config(config, before) for config in listed}


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
    """``Ready`` of the PlacementPolicy. ``configured``: the ClusterPodPlacementConfig exists."""
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
    counts = {override_name(entry): 0 for entry in policy.overrides}
    for labels in namespaces:
        if (name := table.override_of(labels)) is not None:
            counts[name] += 1
    return [{"name": name, "matchedNamespaces": count} for name, count in counts.items()]


def ignored_values(configuration: ClusterPodPlacementConfig) -> tuple[str, ...]:
    """Values of a stored ClusterPodPlacementConfig that the schema no longer allows: their defaults apply."""
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


# -- validation --------------------------------------------------------------------------------------------------------


# The CRD schemas validate one object by itself. The rules here need other objects: priorities are unique in a
# namespace, a ClusterPodPlacementConfig exists, and it is not deleted while PodPlacementConfigs depend on it. Each
# message names the object and field, the value found, what is allowed and the next step.

BAD_REQUEST: Final = 400
INVALID: Final = 422
FORBIDDEN: Final = 403


class Denial(msgspec.Struct, frozen=True):
    """A denial by a validating webhook; ``code`` is the HTTP status that the client sees."""

    code: int
    message: str


class ValidationRequest(msgspec.Struct, frozen=True):
    """A PodPlacementConfig that is created or updated, with the objects it is validated against."""

    config: PodPlacementConfig
    old: PodPlacementConfig | None
    """None: it is created."""
    others: Sequence[PodPlacementConfig]
    """All PodPlacementConfigs of its namespace, with or without itself. A cache may lag behind, so the caller lists
    them from the API server once before it accepts."""
    cluster_configured: bool
    """A ClusterPodPlacementConfig exists."""
    cluster_terminating: bool = False
    """It is being deleted, which waits until there are no PodPlacementConfigs any more."""


def validate_config(request: ValidationRequest) -> Denial | None:
    """The first violated rule; None: the object is valid."""
    found = (rule(request) for rule in _RULES)
    return next((denial for denial in found if denial is not None), None)


def _needs_the_cluster_configuration(request: ValidationRequest) -> Denial | None:
    if request.cluster_configured and request.cluster_terminating and request.old is None:
        return Denial(
            BAD_REQUEST,
            f"{_name(request.config)}: the ClusterPodPlacementConfig {SINGLETON} is being deleted, so it would have "
            f"no effect; wait until it is gone, and create it again first",
        )
    if request.cluster_configured:
        return None
    return Denial(
        BAD_REQUEST,
        f"{_name(request.config)}: there is no ClusterPodPlacementConfig, so it would have no effect; "
        f"create the ClusterPodPlacementConfig {SINGLETON} first",
    )


def _selector_parses(request: ValidationRequest) -> Denial | None:
    problem = selector_problem(request.config)
    if problem is None:
        return None
    return Denial(INVALID, f"{_name(request.config)}: spec.labelSelector: {problem}; correct it, or leave it out")


def _each_architecture_once(request: ValidationRequest) -> Denial | None:
    scoring = _scoring(request.config.spec.plugins)
    if scoring is None or not scoring.enabled:
        return None
    return _repeated(scoring, _name(request.config))


def _priority_is_free(request: ValidationRequest) -> Denial | None:
    config, old = request.config, request.old
    priority = config.spec.priority
    if old is not None and old.spec.priority == priority:
        return None  # two created at the same time may share a priority, and must still be editable
    taken = [
        other.metadata.name
        for other in request.others
        if other.spec.priority == priority and other.metadata.name != config.metadata.name
    ]
    if not taken:
        return None
    return Denial(
        INVALID,
        f"{_name(config)}: spec.priority: {priority} is already used by PodPlacementConfig {min(taken)}; "
        f"each PodPlacementConfig of a namespace needs its own priority, from 0 to 255",
    )


_RULES: Final[tuple[Callable[[ValidationRequest], Denial | None], ...]] = (
    _needs_the_cluster_configuration,
    _selector_parses,
    _each_architecture_once,
    _priority_is_free,
)


def validate_cluster_config(plugins: Plugins | None) -> Denial | None:
    """No architecture may stand twice, even if the plugin is disabled."""
    scoring = _scoring(plugins)
    return _repeated(scoring, f"ClusterPodPlacementConfig {SINGLETON}") if scoring is not None else None


def validate_deletion(configs: Iterable[PodPlacementConfig]) -> Denial | None:
    """The ClusterPodPlacementConfig cannot be deleted while any PodPlacementConfig exists."""
    names = sorted(str(config.metadata.key) for config in configs)
    if not names:
        return None
    return Denial(
        FORBIDDEN,
        f"ClusterPodPlacementConfig {SINGLETON}: PodPlacementConfigs depend on it: {few(names)}; delete them first",
    )


def shadowed(configs: Iterable[PodPlacementConfig]) -> dict[str, str]:
    """PodPlacementConfigs of one namespace that share a priority with an earlier one: name → name of the one that takes
    precedence. Their condition ``Ready`` is False, reason ``ShadowedByPriority``."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for config in sorted(configs, key=precedence):
        before = first.setdefault(config.spec.priority, config.metadata.name)
        if before != config.metadata.name:
            found[config.metadata.name] = before
    return found


def _scoring(plugins: Plugins | None) -> NodeAffinityScoring | None:
    return plugins.node_affinity_scoring if plugins is not None else None


def _repeated(scoring: NodeAffinityScoring, subject: str) -> Denial | None:
    field = "spec.plugins.nodeAffinityScoring.platforms"
    for (one, first), (other, second) in combinations(enumerate(scoring.platforms or ()), 2):
        if first.architecture == second.architecture:
            return Denial(
                INVALID,
                f"{subject}: {field}[{one}] and [{other}] both have architecture {first.architecture}: keep one",
            )
    return None


def _name(config: PodPlacementConfig) -> str:
    return f"PodPlacementConfig {config.metadata.key}"
