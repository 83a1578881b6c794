"""Settings of placement, merged from defaults, PlacementPolicy and its overrides for namespaces.

Each setting is declared once, as a field of :class:`Settings`: its type, its default, and its :class:`SettingField`,
which says where it stands in a PlacementPolicy, its bounds and what it is for. The CRD's schema, the validation below
and the table in the guide follow from the declaration.

The settings of a namespace are the defaults, overlaid field by field with ``spec`` and then with the first entry of
``overrides`` whose selector matches the Namespace's labels. They are compiled once per change of a watched object, so
an admission only looks one value up. An invalid value (stored under an older schema) counts as absent and is reported
in :attr:`SettingsTable.problems`. Pure."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from polyarch.kube.declared_settings import SettingField, declared_settings, read_settings
from polyarch.objects import ObjectKey
from polyarch.placement.api import (
    WEIGHTS,
    ClusterPodPlacementConfig,
    FallbackArchitecture,
    PlacementPolicy,
    PodPlacementConfig,
    ScoringArchitecture,
    ScoringPlatform,
    override_name,
)
from polyarch.placement.names import CLUSTER_SOURCE, NAMESPACED_SOURCE_PREFIX
from polyarch.platforms import NodeArchitecture, NodeSystem
from polyarch.selectors import InvalidSelector, LabelSelector, Selector, is_listed

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
MINUTE: Final = 60.0
HOUR: Final = 3600.0


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Settings for the pods of one namespace; durations in seconds."""

    mode: Annotated[
        Mode,
        SettingField("mode", "enforce: place pods; audit: only tell on the pod what would be done.", override=True),
    ] = "enforce"
    action: Annotated[
        Action | None,
        SettingField(
            "onUnresolved.action",
            "What happens when retrying ends: hold the pod, use the fallback architectures, or release "
            "it with what is known. Absent: fallback if a fallback architecture is known, else release.",
            override=True,
        ),
    ] = None
    """As configured; the effective action is :attr:`unresolved_action`."""
    retry_window: Annotated[
        float,
        SettingField(
            "onUnresolved.retryWindow", "How long failing images are tried again.", bounds=(5.0, HOUR), override=True
        ),
    ] = 2 * MINUTE
    fallback_architectures: Annotated[
        tuple[NodeArchitecture, ...],
        SettingField(
            "onUnresolved.fallbackArchitectures",
            "Used by action: fallback; empty: the ClusterPodPlacementConfig's.",
            override=True,
        ),
    ] = ()
    """Sorted: the policy's list, else the ClusterPodPlacementConfig's one architecture."""
    hold_limit: Annotated[
        float | None,
        SettingField(
            "onUnresolved.holdLimit",
            "With action: hold, release after so long.",
            bounds=(5.0, 168 * HOUR),
            override=True,
        ),
    ] = None
    """Seconds after which a held pod is released; None: never."""
    inline_enabled: Annotated[
        bool,
        SettingField(
            "inline.enabled", "Place pods at admission, without a gate, where all answers are known.", override=True
        ),
    ] = True
    inline_budget: Annotated[
        float,
        SettingField("inline.budget", "How long an admission may wait for answers.", bounds=(0.0, 2.0), override=True),
    ] = 0.1
    os_constraint: Annotated[
        OSConstraint,
        SettingField(
            "osConstraint",
            "Whether the operating system is constrained as well: never, where images or nodes have several, always.",
            override=True,
        ),
    ] = "auto"
    node_aware: Annotated[
        NodeAwareMode,
        SettingField(
            "nodeAware.mode",
            "report: tell if no node has any of the architectures; narrow: write only those that nodes have.",
        ),
    ] = "off"
    assume_architectures: Annotated[
        tuple[NodeArchitecture, ...],
        SettingField("nodeAware.assumeArchitectures", "Architectures of node pools that may be scaled to zero."),
    ] = ()
    assume_systems: Annotated[
        tuple[NodeSystem, ...],
        SettingField("nodeAware.assumeSystems", "Operating systems of node pools that may be scaled to zero."),
    ] = ()
    excluded_namespaces: Annotated[
        tuple[str, ...],
        SettingField(
            "excludedNamespaces",
            "Namespaces whose pods are left untouched: names, or a prefix followed by *.",
            excluding="mode: audit",
        ),
    ] = ()
    pod_opt_out: Annotated[
        PodOptOut,
        SettingField(
            "podOptOut",
            'Whether the annotation polyarch.dev/skip-placement: "true" leaves a pod alone.',
            override=True,
        ),
    ] = "allowed"
    events: Annotated[
        EventLevel,
        SettingField(
            "events", "How many events pods get: problems only, one per placement, or every step.", override=True
        ),
    ] = "lean"
    sweep_action: Annotated[
        SweepAction,
        SettingField(
            "sweep.action", "off, report them, or evict those that a new pod would place otherwise.", override=True
        ),
    ] = "report"
    sweep_scope: Annotated[
        SweepScope,
        SettingField(
            "sweep.scope", "pending: pods not yet bound; all: also pods on a node that their images do not support."
        ),
    ] = "pending"
    sweep_interval: Annotated[float, SettingField("sweep.interval", "How often.", bounds=(MINUTE, 24 * HOUR))] = (
        10 * MINUTE
    )
    sweep_min_age: Annotated[
        float, SettingField("sweep.minAge", "Younger pods are left alone.", bounds=(30.0, HOUR))
    ] = 2 * MINUTE
    sweep_max_evictions_per_minute: Annotated[
        int, SettingField("sweep.maxEvictionsPerMinute", "Limit of evictions.", bounds=(1, 100))
    ] = 10
    warm_up_enabled: Annotated[
        bool, SettingField("warmUp.enabled", "Inspect the images of workloads before their pods come.")
    ] = False
    warm_up_kinds: Annotated[
        tuple[WarmUpKind, ...], SettingField("warmUp.kinds", "Workloads whose templates are read.")
    ] = get_args(WarmUpKind)
    warm_up_images_per_minute: Annotated[
        int, SettingField("warmUp.imagesPerMinute", "Pace of inspection.", bounds=(1, 600))
    ] = 60
    images_stale_for: Annotated[
        float,
        SettingField(
            "images.staleFor",
            "How old a reading may be that is used while its registry fails.",
            bounds=(0.0, 24 * HOUR),
        ),
    ] = 6 * HOUR
    images_secret_access: Annotated[
        SecretAccess,
        SettingField(
            "images.secretAccess", "byName: pull secrets that pods name are read; none: global credentials only."
        ),
    ] = "byName"
    images_share_readings: Annotated[
        bool,
        SettingField("images.shareReadings", "Keep what is known of public images in a Secret, for all replicas."),
    ] = True
    report_enabled: Annotated[
        bool,
        SettingField("report.enabled", "Keep metrics and the ConfigMap polyarch-report of what could run where."),
    ] = False
    report_interval: Annotated[
        float, SettingField("report.interval", "How often it is made anew.", bounds=(10 * MINUTE, 168 * HOUR))
    ] = HOUR
    operator_namespace: str = ""
    """The operator's own namespace; its pods are never placed."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry."""
    leaving: bool = False
    """Placement is being uninstalled."""
    provisional: bool = False
    """The namespace's labels are unknown and an override might match: gate, do not place inline."""

    @property
    def unresolved_action(self) -> Action:
        """The effective action. ``fallback`` without a fallback architecture is ``hold``."""
        if self.action is None:
            return "fallback" if self.fallback_architectures else "release"
        if self.action == "fallback" and not self.fallback_architectures:
            return "hold"
        return self.action

    @property
    def keeps_refused(self) -> bool:
        """Whether a pod stays gated if the API server rejects its release or an internal error prevents a decision: any
        action but ``release`` asks for a constraint. False while placement is being uninstalled."""
        return self.unresolved_action != "release" and not self.leaving

    @property
    def lacks_fallback(self) -> bool:
        """Condition ``FallbackArchitectureMissing``."""
        return self.action == "fallback" and not self.fallback_architectures

    @property
    def asks_for_nodes(self) -> bool:
        """The platforms of the cluster's nodes decide what is written."""
        return self.node_aware != "off" or self.os_constraint == "auto"

    def excludes(self, namespace: str) -> bool:
        """Whether ``excludedNamespaces`` has this name, or a prefix of it followed by ``*``."""
        return is_listed(namespace, self.excluded_namespaces)

    def deprovisioning(self) -> "Settings":
        """The settings while the CPPC is being deleted: ``hold`` counts as ``release``, the retry window is at most
        60 s, and a rejected release does not keep the gate."""
        action: Action = "release" if self.unresolved_action == "hold" else self.unresolved_action
        window = min(self.retry_window, MINUTE)
        return msgspec.structs.replace(self, action=action, retry_window=window, leaving=True)


class SettingsTable(msgspec.Struct, frozen=True):
    """Settings by namespace labels, compiled once per change of the policy or the CPPC."""

    spec: Settings
    """Without overrides; used for a namespace that does not appear in time."""
    overrides: tuple[tuple[str, Selector, Settings], ...] = ()
    """Name, selector and merged settings of each entry with a valid selector, in the policy's order."""
    problems: tuple[str, ...] = ()
    """One sentence per invalid value; each begins with the field."""
    invalid_overrides: tuple[str, ...] = ()
    """Names of entries whose selector does not parse: condition ``OverrideSelectorInvalid``."""

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
            problems += _no_entries(policy.spec.get("overrides"))
        cluster_fallback = _cluster_fallback(cppc, problems)
        overrides, invalid = [], []
        for index, entry in enumerate(policy.overrides if policy is not None else ()):
            name = override_name(entry)
            where = f"spec.overrides[{index}] ({name})"
            try:
                labels = msgspec.convert(entry.get("namespaceSelector"), LabelSelector | None)
                if labels is None or labels.is_empty:
                    raise ValueError("it is empty and would match every namespace; put that into spec itself")
                selector = Selector.parse(labels)
            except (ValueError, msgspec.ValidationError) as error:  # InvalidSelector is a ValueError
                problems.append(f"{where}.namespaceSelector: {error}")
                invalid.append(name)
                continue
            settings = _with_fallback(_overlay(base, entry, where, problems, override=True), cluster_fallback)
            overrides.append((name, selector, settings))
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
    def asks_for_nodes(self) -> bool:
        """Some namespace's settings ask for nodes."""
        return self.spec.asks_for_nodes or any(settings.asks_for_nodes for _, _, settings in self.overrides)

    @property
    def lacks_fallback(self) -> bool:
        """Some namespace has ``action: fallback`` and no fallback architecture is configured."""
        return self.spec.lacks_fallback or any(settings.lacks_fallback for _, _, settings in self.overrides)


POLICY_SETTINGS: Final = declared_settings(Settings)
"""The settings that a PlacementPolicy has, in the order of its schema."""
OVERRIDE_SETTINGS: Final = tuple(setting for setting in POLICY_SETTINGS if setting.field.override)


def _overlay(
    settings: Settings, layer: Mapping[str, Any], where: str, problems: list[str], *, override: bool = False
) -> Settings:
    changes, wrong = read_settings(OVERRIDE_SETTINGS if override else POLICY_SETTINGS, layer, where)
    problems += map(str, wrong)
    return msgspec.structs.replace(settings, **changes)


def _no_entries(overrides: Any) -> list[str]:
    """What :attr:`PlacementPolicy.overrides` leaves out."""
    if overrides is not None and not isinstance(overrides, list):
        return [f"spec.overrides: {overrides!r:.60} is not a list; it counts as empty"]
    return [
        f"spec.overrides[{index}]: {entry!r:.60} is not an object; it is left out"
        for index, entry in enumerate(overrides or ())
        if not isinstance(entry, dict)
    ]


def _cluster_fallback(cppc: ClusterPodPlacementConfig | None, problems: list[str]) -> tuple[str, ...]:
    if cppc is None or not (fallback := cppc.spec.fallback_architecture):
        return ()
    if fallback in (allowed := get_args(FallbackArchitecture)):
        return (fallback,)
    problems.append(
        f"ClusterPodPlacementConfig spec.fallbackArchitecture: {fallback!r} is not one of "
        f"{', '.join(filter(None, allowed))}; it counts as empty"
    )
    return ()


def _with_fallback(settings: Settings, cluster: tuple[str, ...]) -> Settings:
    """The policy's list, else the CPPC's. ``holdLimit`` has no effect where nothing is held."""
    fallback = settings.fallback_architectures or cluster
    limit = settings.hold_limit if settings.action in ("hold", "fallback") else None
    return msgspec.structs.replace(settings, fallback_architectures=fallback, hold_limit=limit)


# -- scoring: preferred node affinity ----------------------------------------------------------------------------------
# Sources are the enabled ``nodeAffinityScoring`` plugins: those of matching PodPlacementConfigs (by priority
# descending, then name ascending), then that of the ClusterPodPlacementConfig. They are compiled once per change of
# such an object.

INVALID_SELECTOR: Final = "InvalidLabelSelector"
"""Logged for a PodPlacementConfig that matches no pod because of its selector."""


class ScoringSource(msgspec.Struct, frozen=True, gc=False):
    """One enabled plugin. Without ``selector`` it applies to every pod."""

    name: str
    platforms: tuple[tuple[str, int], ...]
    """Architecture and weight, in the object's order."""
    selector: Selector | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it applies to a pod with these labels, of which ours are left out."""
        return self.selector is None or self.selector.matches(labels)


class PreferenceEntry(msgspec.Struct, frozen=True, gc=False):
    """One platform of one scoring source, and whether it was skipped."""

    architecture: str
    weight: int
    source: str
    skipped: bool = False

    def __str__(self) -> str:
        return f"{self.architecture}:{self.weight}:{self.source}" + (":skipped" if self.skipped else "")


class ScoringTable(msgspec.Struct, frozen=True):
    """The sources of every namespace."""

    cluster: tuple[ScoringSource, ...] = ()
    namespaced: Mapping[str, tuple[ScoringSource, ...]] = msgspec.field(default_factory=dict)
    """By namespace; the cluster's source is the last of each."""
    problems: Mapping[ObjectKey, str] = msgspec.field(default_factory=dict)
    """PodPlacementConfigs with an invalid selector, which match no pod."""

    @classmethod
    def of(cls, cppc: ClusterPodPlacementConfig | None, ppcs: Iterable[PodPlacementConfig]) -> "ScoringTable":
        """The table for these objects; an absent CPPC counts as not enabled."""
        cluster: tuple[ScoringSource, ...] = ()
        if cppc is not None and (platforms := _enabled_platforms(cppc)) is not None:
            cluster = (ScoringSource(CLUSTER_SOURCE, platforms),)
        sources: dict[str, list[ScoringSource]] = {}
        problems: dict[ObjectKey, str] = {}
        for ppc in sorted(ppcs, key=precedence):
            try:
                selector = None if ppc.spec.label_selector is None else Selector.parse(ppc.spec.label_selector)
            except InvalidSelector as error:
                problems[ppc.metadata.key] = str(error)
                continue
            if (platforms := _enabled_platforms(ppc)) is not None:
                name = NAMESPACED_SOURCE_PREFIX + ppc.metadata.name
                sources.setdefault(ppc.metadata.namespace, []).append(ScoringSource(name, platforms, selector))
        return cls(cluster, {namespace: (*own, *cluster) for namespace, own in sources.items()}, problems)

    def of_namespace(self, namespace: str) -> tuple[ScoringSource, ...]:
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
    """Sort key: priority descending, then name ascending, so equal priorities have a fixed order."""
    return -ppc.spec.priority, ppc.metadata.name


def _enabled_platforms(config: ClusterPodPlacementConfig | PodPlacementConfig) -> tuple[tuple[str, int], ...] | None:
    plugins = config.spec.plugins
    scoring = plugins.node_affinity_scoring if plugins is not None else None
    if scoring is None or not scoring.enabled:
        return None
    return tuple((each.architecture, each.weight) for each in scoring.platforms or () if _is_valid_platform(each))


def _is_valid_platform(platform: ScoringPlatform) -> bool:
    """Whether the API server accepts it; an older schema may have admitted an invalid one."""
    return platform.architecture in get_args(ScoringArchitecture) and WEIGHTS[0] <= platform.weight <= WEIGHTS[1]


def preferences(
    sources: Iterable[ScoringSource], *, already_preferred: bool
) -> tuple[tuple[tuple[str, int], ...], tuple[PreferenceEntry, ...]]:
    """The preferred terms to add as (architecture, weight), and every platform of every source: added or skipped.

    The first source that names an architecture sets its weight. If the user's view has an architecture preference,
    nothing is added, not even for other architectures. Identical entries are listed once.
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
