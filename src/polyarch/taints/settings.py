"""The compiled settings of ArchitectureTaints: what its spec means. Pure.

Compiled once per change. A value that the schema would refuse, in an object of an older schema or in a file, is
replaced by its default, and ``problems`` names it.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

import msgspec

from polyarch.durations import InvalidDuration, parse_duration
from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.selectors import InvalidSelector, Requirement, Selector
from polyarch.taints.api import ArchitectureTaintsSpec
from polyarch.taints.names import ARCH_KEY
from polyarch.tolerations import NO_EXECUTE, Taint, Toleration, tolerating

State = Literal["active", "paused", "removing"]
Mode = Literal["tolerations", "secondary-only", "both"]
Preset = Literal["archaware", "gke", "openshift", "custom"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Ownership = Literal["adopt", "recorded"]
NodeOS = Literal["linux", "windows"]
Rollout = Literal["safe", "immediate"]
AtRegistration = Literal["policy", "none"]
OnUnknown = Literal["gate", "primary-only", "all", "none"]
OnTimeout = Literal["primary-only", "all", "none", "keep"]
OnNoCommon = Literal["admit", "deny"]
Running = Literal["skip", "tolerate"]
ImageChange = Literal["event", "evict", "deny"]
Templates = Literal["reconcile", "admission", "ignore"]

PRESET_KEYS: Final = {
    "archaware": "supported-arch",
    "gke": "kubernetes.io/arch",
    "openshift": "multi-arch.openshift.io/arch",
}
"""Preset → key of the taint."""
ADOPTING: Final = frozenset({"archaware", "custom"})
"""Presets whose ownership is ``adopt`` unless said otherwise."""
PRIMARY_ARCHITECTURES: Final = (1, 8)
PER_MINUTE: Final = (1, 600)
GATE_TIMEOUT: Final = (10.0, 3600.0)
CONCURRENT_ROLLOUTS: Final = (1, 50)
ROLLOUT_TIMEOUT: Final = (1.0, 7 * 24 * 3600.0)
NOTHING: Final = Selector((Requirement(ARCH_KEY, "In", ()),))
"""Matches no labels."""


class TaintSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration means. Sets of architectures are normalised names."""

    state: State = "active"
    mode: Mode = "secondary-only"
    primary: frozenset[str] = frozenset({"amd64"})
    """B."""
    given: frozenset[str] = frozenset()
    """``spec.architectures``; empty: every known one."""
    preset: Preset = "archaware"
    key: str = PRESET_KEYS["archaware"]
    """K."""
    effect: Effect = "NoSchedule"
    """E."""
    ownership: Ownership = "adopt"
    node_selector: Selector | None = None
    """None: all nodes."""
    exclude_control_plane: bool = False
    operating_systems: frozenset[str] = frozenset({"linux"})
    rollout: Rollout = "safe"
    per_minute: int = 60
    at_registration: AtRegistration = "policy"
    namespace_selector: Selector | None = None
    pod_selector: Selector | None = None
    excluded_namespaces: tuple[str, ...] = ()
    """Names and ``prefix-*``."""
    on_unknown: OnUnknown = "gate"
    gate_timeout: float = 300.0
    on_timeout: OnTimeout = "primary-only"
    on_no_common: OnNoCommon = "admit"
    running: Running = "tolerate"
    image_change: ImageChange = "event"
    templates: Templates = "reconcile"
    max_concurrent_rollouts: int = 1
    rollout_timeout: float = 600.0
    compatibility: tuple[tuple[str, frozenset[str]], ...] = ()
    """Node architecture, and the foreign ones that its nodes run."""
    problems: tuple[str, ...] = ()
    """Values that were replaced by their defaults: field, what is wrong, what is used instead."""

    @classmethod
    def of(cls, spec: ArchitectureTaintsSpec) -> "TaintSettings":
        """The settings of a spec; never fails."""
        return _Compiler(spec).settings()

    @property
    def managed(self) -> frozenset[str]:
        """M."""
        return self.given or KNOWN_ARCHITECTURES

    @property
    def tainted(self) -> frozenset[str]:
        """T."""
        return self.managed - self.primary if self.mode == "secondary-only" else self.managed

    def is_tainted(self, architecture: str) -> bool:
        return architecture in self.tainted

    def taint(self, architecture: str) -> Taint:
        """The desired taint of a node of this architecture, if it is in T."""
        return Taint(key=self.key, value=architecture, effect=self.effect)

    def toleration(self, architecture: str) -> Toleration:
        """The toleration that is added for an architecture."""
        return tolerating(self.taint(architecture))


class _Compiler:
    def __init__(self, spec: ArchitectureTaintsSpec) -> None:
        self._spec = spec
        self._problems: list[str] = []

    def settings(self) -> TaintSettings:
        spec, usual = self._spec, TaintSettings()
        taint, nodes, pods, sets = spec.taint, spec.nodes, spec.pods, spec.daemon_sets
        preset = self._one_of("spec.taint.preset", taint.preset, Preset, usual.preset)
        effect = self._one_of("spec.taint.effect", taint.effect, Effect, usual.effect)
        if effect == NO_EXECUTE and not taint.acknowledge_eviction:
            effect = "NoSchedule"
            self._problems.append(
                "spec.taint.effect is NoExecute, which evicts running pods; NoSchedule is used until "
                "spec.taint.acknowledgeEviction is true"
            )
        key = PRESET_KEYS.get(preset, taint.key)
        if not key:
            preset, key = usual.preset, usual.key
            self._problems.append(f"spec.taint.key is missing, which preset custom needs; {key} is used")
        by_preset = "adopt" if preset in ADOPTING else "recorded"
        ownership = self._one_of("spec.taint.ownership", taint.ownership or by_preset, Ownership, by_preset)
        running = pods.running or ("tolerate" if preset == "archaware" else "skip")
        running = self._one_of("spec.pods.running", running, Running, "skip")
        systems = nodes.operating_systems if nodes.operating_systems is not None else ["linux"]
        return TaintSettings(
            state=self._one_of("spec.state", spec.state, State, usual.state),
            mode=self._one_of("spec.mode", spec.mode, Mode, usual.mode),
            primary=self._known("spec.primaryArchitectures", spec.primary_architectures) or usual.primary,
            given=self._known("spec.architectures", spec.architectures),
            preset=preset,
            key=key,
            effect=effect,
            ownership=ownership,
            node_selector=self._selector("spec.nodes.selector", nodes.selector),
            exclude_control_plane=nodes.exclude_control_plane,
            operating_systems=frozenset(systems) & frozenset(get_args(NodeOS)),
            rollout=self._one_of("spec.nodes.rollout", nodes.rollout, Rollout, usual.rollout),
            per_minute=self._within("spec.nodes.perMinute", nodes.per_minute, *PER_MINUTE),
            at_registration=self._one_of(
                "spec.nodes.atRegistration", nodes.at_registration, AtRegistration, usual.at_registration
            ),
            namespace_selector=self._selector("spec.pods.namespaceSelector", pods.namespace_selector),
            pod_selector=self._selector("spec.pods.podSelector", pods.pod_selector),
            excluded_namespaces=tuple(pods.exclude_namespaces or ()),
            on_unknown=self._one_of("spec.pods.onUnknown", pods.on_unknown, OnUnknown, usual.on_unknown),
            gate_timeout=min(
                max(self._seconds("spec.pods.gateTimeout", pods.gate_timeout, usual.gate_timeout), GATE_TIMEOUT[0]),
                GATE_TIMEOUT[1],
            ),
            on_timeout=self._one_of("spec.pods.onTimeout", pods.on_timeout, OnTimeout, usual.on_timeout),
            on_no_common=self._one_of("spec.pods.onNoCommon", pods.on_no_common, OnNoCommon, usual.on_no_common),
            running="tolerate" if effect == NO_EXECUTE else running,
            image_change=self._one_of("spec.pods.imageChange", pods.image_change, ImageChange, usual.image_change),
            templates=self._one_of("spec.daemonSets.templates", sets.templates, Templates, usual.templates),
            max_concurrent_rollouts=self._within(
                "spec.daemonSets.maxConcurrentRollouts", sets.max_concurrent_rollouts, *CONCURRENT_ROLLOUTS
            ),
            rollout_timeout=self._seconds(
                "spec.daemonSets.rolloutTimeout", sets.rollout_timeout, usual.rollout_timeout
            ),
            compatibility=tuple(
                (each.node, self._known("spec.compatibility[].runs", each.runs)) for each in spec.compatibility or ()
            ),
            problems=tuple(self._problems),
        )

    def _one_of(self, field: str, value: str, kind: object, usual: str) -> Any:
        if value in get_args(kind):
            return value
        self._problems.append(f"{field} {value[:40]!r} is not one of {', '.join(get_args(kind))}; {usual} is used")
        return usual

    def _known(self, field: str, values: Iterable[str] | None) -> frozenset[str]:
        found = frozenset(values or ())
        if unknown := sorted(found - KNOWN_ARCHITECTURES):
            self._problems.append(f"{field}: {', '.join(unknown)[:80]} is not an architecture, and is left out")
        return found & KNOWN_ARCHITECTURES

    def _selector(self, field: str, selector: object) -> Selector | None:
        if selector is None:
            return None
        try:
            return Selector.parse(selector)
        except InvalidSelector as error:
            self._problems.append(f"{field}.{error.field}: {error.problem}; it selects nothing")
            return NOTHING

    def _seconds(self, field: str, text: str, usual: float) -> float:
        try:
            return parse_duration(text)
        except InvalidDuration as error:
            self._problems.append(f"{field}: {error}")
            return usual

    def _within(self, field: str, value: int, least: int, most: int) -> int:
        if not least <= value <= most:
            self._problems.append(f"{field} is {value}; between {least} and {most} is possible")
        return min(max(value, least), most)
