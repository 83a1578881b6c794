"""Settings of placement, merged from defaults, PlacementPolicy and its overrides for namespaces (PL-040).

The settings of a namespace are the defaults, overlaid field by field with ``spec`` and then with the first entry of
``overrides`` whose selector matches the Namespace's labels (PL-042). They are compiled once per change of a watched
object, so an admission only looks one value up. An invalid value (stored under an older schema) counts as absent and is
reported in :attr:`SettingsTable.problems`. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from polyarch.durations import parse_duration
from polyarch.placement.api.resources import ClusterPodPlacementConfig, Override, PlacementPolicy, PlacementPolicySpec
from polyarch.selectors import Selector, is_listed

Mode = Literal["enforce", "audit"]
Action = Literal["hold", "fallback", "release"]
OSConstraint = Literal["off", "auto", "always"]
NodeAwareMode = Literal["off", "report", "narrow"]
PodOptOut = Literal["allowed", "forbidden"]
EventLevel = Literal["problems", "lean", "full"]
SweepAction = Literal["off", "report", "evict"]
SweepScope = Literal["pending", "all"]
WarmUpKind = Literal["Deployment", "StatefulSet", "DaemonSet", "CronJob"]
SecretAccess = Literal["byName", "none"]
ScoringArchitecture = Literal["arm64", "amd64", "ppc64le", "s390x"]
WEIGHTS: Final = (1, 100)
"""Lowest and highest weight of a preference (PL-010)."""
FallbackArchitecture = Literal[ScoringArchitecture, ""]
LogVerbosity = Literal["Normal", "Debug", "Trace", "TraceAll"]
Architecture = Literal["amd64", "arm64", "ppc64le", "s390x", "riscv64", "loong64", "arm", "386"]
"""Architectures that a policy may name (PL-040)."""

MINUTE: Final = 60.0
HOUR: Final = 3600.0


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Settings for the pods of one namespace; durations in seconds. The defaults are those of PL-040."""

    mode: Mode = "enforce"
    """PL-130."""
    action: Action | None = None
    """As configured; the effective action is :attr:`unresolved_action`."""
    retry_window: float = 2 * MINUTE
    """PL-330."""
    fallback_architectures: tuple[str, ...] = ()
    """F of PL-232, sorted: the policy's list, else the CPPC's one architecture."""
    hold_limit: float | None = None
    """Seconds after which a held pod is released; None: never."""
    inline_enabled: bool = True
    """PL-110."""
    inline_budget: float = 0.1
    """PL-113."""
    os_constraint: OSConstraint = "auto"
    """PL-215."""
    node_aware: NodeAwareMode = "off"
    """PL-218."""
    assume_architectures: tuple[str, ...] = ()
    """Architectures of node pools that may be scaled to zero (PL-218)."""
    excluded_namespaces: tuple[str, ...] = ()
    """Names, or ``prefix*`` (PL-201)."""
    pod_opt_out: PodOptOut = "allowed"
    """PL-201."""
    events: EventLevel = "lean"
    """PL-710."""
    sweep_action: SweepAction = "report"
    """PL-370."""
    sweep_scope: SweepScope = "pending"
    sweep_interval: float = 10 * MINUTE
    sweep_min_age: float = 2 * MINUTE
    sweep_max_evictions_per_minute: int = 10
    warm_up_enabled: bool = False
    """PL-380."""
    warm_up_kinds: tuple[WarmUpKind, ...] = get_args(WarmUpKind)
    warm_up_images_per_minute: int = 60
    images_stale_for: float = 6 * HOUR
    """PL-407."""
    images_secret_access: SecretAccess = "byName"
    """PL-421."""
    images_share_readings: bool = True
    """PL-410."""
    report_enabled: bool = False
    """RP-030."""
    report_interval: float = HOUR
    operator_namespace: str = ""
    """The operator's own namespace; its pods are never placed (PL-201)."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry (PL-424)."""
    leaving: bool = False
    """Placement is being uninstalled (PL-520)."""
    provisional: bool = False
    """The namespace's labels are unknown and an override might match (PL-117): gate, do not place inline."""

    @property
    def unresolved_action(self) -> Action:
        """The effective action. ``fallback`` without a fallback architecture is ``hold`` (PL-043)."""
        if self.action is None:
            return "fallback" if self.fallback_architectures else "release"
        if self.action == "fallback" and not self.fallback_architectures:
            return "hold"
        return self.action

    @property
    def keeps_refused(self) -> bool:
        """Whether a pod stays gated if the API server rejects its release or an internal error prevents a decision: any
        action but ``release`` asks for a constraint (PL-305, PL-306). False while placement is being uninstalled."""
        return self.unresolved_action != "release" and not self.leaving

    @property
    def lacks_fallback(self) -> bool:
        """Condition ``FallbackArchitectureMissing`` (PL-043)."""
        return self.action == "fallback" and not self.fallback_architectures

    def excludes(self, namespace: str) -> bool:
        """Whether ``excludedNamespaces`` has this name, or a prefix of it followed by ``*`` (PL-201)."""
        return is_listed(namespace, self.excluded_namespaces)

    def deprovisioning(self) -> "Settings":
        """The settings while the CPPC is being deleted: ``hold`` counts as ``release``, the retry window is at most
        60 s, and a rejected release does not keep the gate (PL-520)."""
        action: Action = "release" if self.unresolved_action == "hold" else self.unresolved_action
        window = min(self.retry_window, MINUTE)
        return msgspec.structs.replace(self, action=action, retry_window=window, leaving=True)


class SettingsTable(msgspec.Struct, frozen=True):
    """Settings by namespace labels, compiled once per change of the policy or the CPPC."""

    spec: Settings
    """Without overrides; used for a namespace that does not appear in time (PL-117)."""
    overrides: tuple[tuple[str, Selector, Settings], ...] = ()
    """Name, selector and merged settings of each entry with a valid selector, in the policy's order."""
    problems: tuple[str, ...] = ()
    """One sentence per invalid value; each begins with the field."""
    invalid_overrides: tuple[str, ...] = ()
    """Names of entries whose selector does not parse: condition ``OverrideSelectorInvalid`` (PL-041)."""

    @classmethod
    def of(
        cls,
        policy: PlacementPolicy | None,
        cppc: ClusterPodPlacementConfig | None,
        *,
        operator_namespace: str,
        short_names_searched: bool = False,
    ) -> "SettingsTable":
        """The table for these objects; both may be absent."""
        problems: list[str] = []
        base = Settings(operator_namespace=operator_namespace, short_names_searched=short_names_searched)
        if policy is not None:
            base = _overlay(base, policy.spec, "spec", problems)
        cluster_fallback = _cluster_fallback(cppc, problems)
        overrides, invalid = [], []
        for index, entry in enumerate((policy.spec.overrides if policy is not None else None) or ()):
            where = f"spec.overrides[{index}] ({entry.name})"
            try:
                if entry.namespace_selector is None or entry.namespace_selector.is_empty:
                    raise ValueError("it is empty and would match every namespace; put that into spec itself")
                selector = Selector.parse(entry.namespace_selector)
            except ValueError as error:  # InvalidSelector is one
                problems.append(f"{where}.namespaceSelector: {error}")
                invalid.append(entry.name)
                continue
            settings = _with_fallback(_overlay(base, entry, where, problems), cluster_fallback)
            overrides.append((entry.name, selector, settings))
        spec = _with_fallback(base, cluster_fallback)
        return cls(spec, tuple(overrides), tuple(problems), tuple(invalid))

    def of_namespace(self, labels: Mapping[str, str] | None) -> Settings:
        """Settings of a namespace with these labels; None: its Namespace is not in the cache (yet)."""
        if labels is None:
            return self._provisional()
        for _, selector, settings in self.overrides:
            if selector.matches(labels):
                return settings
        return self.spec

    def override_of(self, labels: Mapping[str, str]) -> str | None:
        """The name of the entry that applies, for ``status.overrides`` and ``explain``."""
        return next((name for name, selector, _ in self.overrides if selector.matches(labels)), None)

    def _provisional(self) -> Settings:
        possible = [self.spec, *(settings for _, _, settings in self.overrides)]
        if len(possible) == 1 or all(settings.mode == "audit" for settings in possible):
            return self.spec
        forbidden = any(settings.pod_opt_out == "forbidden" for settings in possible)
        holds = any(settings.unresolved_action == "hold" for settings in possible)
        return msgspec.structs.replace(
            self.spec,
            provisional=True,
            mode="enforce",
            pod_opt_out="forbidden" if forbidden else "allowed",
            action="hold" if holds else self.spec.action,
        )

    @property
    def lacks_fallback(self) -> bool:
        """Some namespace has ``action: fallback`` and no fallback architecture is configured (PL-043)."""
        return self.spec.lacks_fallback or any(settings.lacks_fallback for _, _, settings in self.overrides)


Check = Callable[[Any], Any]


def _one_of(kind: Any) -> Check:
    allowed = get_args(kind)

    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, allowed))}")
        return value

    return check


def _some_of(kind: Any) -> Check:
    allowed = get_args(kind)

    def check(values: Any) -> Any:
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            raise ValueError(f"{', '.join(map(repr, unknown))} is none of {', '.join(map(repr, allowed))}")
        return tuple(sorted(set(values)))

    return check


def _duration(low: float, high: float) -> Check:
    def check(text: Any) -> Any:
        seconds = parse_duration(text)
        if not low <= seconds <= high:
            raise ValueError(f"{text!r} is outside {low:g} to {high:g} seconds")
        return seconds

    return check


def _count(low: int, high: int) -> Check:
    def check(value: Any) -> Any:
        if not low <= value <= high:
            raise ValueError(f"{value} is outside {low} to {high}")
        return value

    return check


def _namespaces(patterns: Any) -> Any:
    if "*" in patterns:
        raise ValueError("'*' alone would exclude every namespace; use mode: audit for that")
    return tuple(patterns)


def _as_is(value: Any) -> Any:
    return value


RETRY_WINDOW: Final = (5.0, HOUR)
MAX_HOLD: Final = 168 * HOUR
MAX_BUDGET: Final = 2.0
SWEEP_INTERVAL: Final = (MINUTE, 24 * HOUR)
SWEEP_MIN_AGE: Final = (30.0, HOUR)
MAX_EVICTIONS: Final = (1, 100)
IMAGES_PER_MINUTE: Final = (1, 600)
MAX_STALE: Final = 24 * HOUR
REPORT_INTERVAL: Final = (10 * MINUTE, 168 * HOUR)

_LEAVES: Final[tuple[tuple[tuple[str, ...], str, Check], ...]] = (
    (("mode",), "mode", _one_of(Mode)),
    (("on_unresolved", "action"), "action", _one_of(Action)),
    (("on_unresolved", "retry_window"), "retry_window", _duration(*RETRY_WINDOW)),
    (("on_unresolved", "fallback_architectures"), "fallback_architectures", _some_of(Architecture)),
    (("on_unresolved", "hold_limit"), "hold_limit", _duration(RETRY_WINDOW[0], MAX_HOLD)),
    (("inline", "enabled"), "inline_enabled", _as_is),
    (("inline", "budget"), "inline_budget", _duration(0.0, MAX_BUDGET)),
    (("os_constraint",), "os_constraint", _one_of(OSConstraint)),
    (("node_aware", "mode"), "node_aware", _one_of(NodeAwareMode)),
    (("node_aware", "assume_architectures"), "assume_architectures", _some_of(Architecture)),
    (("excluded_namespaces",), "excluded_namespaces", _namespaces),
    (("pod_opt_out",), "pod_opt_out", _one_of(PodOptOut)),
    (("events",), "events", _one_of(EventLevel)),
    (("sweep", "action"), "sweep_action", _one_of(SweepAction)),
    (("sweep", "scope"), "sweep_scope", _one_of(SweepScope)),
    (("sweep", "interval"), "sweep_interval", _duration(*SWEEP_INTERVAL)),
    (("sweep", "min_age"), "sweep_min_age", _duration(*SWEEP_MIN_AGE)),
    (("sweep", "max_evictions_per_minute"), "sweep_max_evictions_per_minute", _count(*MAX_EVICTIONS)),
    (("warm_up", "enabled"), "warm_up_enabled", _as_is),
    (("warm_up", "kinds"), "warm_up_kinds", _some_of(WarmUpKind)),
    (("warm_up", "images_per_minute"), "warm_up_images_per_minute", _count(*IMAGES_PER_MINUTE)),
    (("images", "stale_for"), "images_stale_for", _duration(0.0, MAX_STALE)),
    (("images", "secret_access"), "images_secret_access", _one_of(SecretAccess)),
    (("images", "share_readings"), "images_share_readings", _as_is),
    (("report", "enabled"), "report_enabled", _as_is),
    (("report", "interval"), "report_interval", _duration(*REPORT_INTERVAL)),
)
"""Path of each field in ``spec`` and in an entry of ``overrides``, its setting, and its validation."""


def _overlay(settings: Settings, layer: PlacementPolicySpec | Override, where: str, problems: list[str]) -> Settings:
    changes: dict[str, Any] = {}
    for path, name, check in _LEAVES:
        value: Any = layer
        for member in path:
            value = getattr(value, member, None)
        if value is None:
            continue
        try:
            changes[name] = check(value)
        except ValueError as error:
            field = ".".join(map(_camel, path))
            problems.append(f"{where}.{field}: {error}; the value below it applies")
    return msgspec.structs.replace(settings, **changes)


def _camel(member: str) -> str:
    first, *rest = member.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _cluster_fallback(cppc: ClusterPodPlacementConfig | None, problems: list[str]) -> tuple[str, ...]:
    if cppc is None or not cppc.spec.fallback_architecture:
        return ()
    try:
        return (_one_of(FallbackArchitecture)(cppc.spec.fallback_architecture),)
    except ValueError as error:
        problems.append(f"ClusterPodPlacementConfig spec.fallbackArchitecture: {error}; it counts as empty")
        return ()


def _with_fallback(settings: Settings, cluster: tuple[str, ...]) -> Settings:
    """PL-232: the policy's list, else the CPPC's. ``holdLimit`` has no effect where nothing is held."""
    fallback = settings.fallback_architectures or cluster
    limit = settings.hold_limit if settings.action in ("hold", "fallback") else None
    return msgspec.structs.replace(settings, fallback_architectures=fallback, hold_limit=limit)
