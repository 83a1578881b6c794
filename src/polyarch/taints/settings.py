"""The settings of ArchitectureTaints: what its spec means. Pure.

Each setting is declared once, as a field of :class:`TaintSettings`: its type, its default, and its
:class:`~polyarch.kube.declared_settings.SettingField`; schema, checks and the table in the guide follow. Settings are
compiled once per change. A value that the schema would refuse, in an object of an older schema or in a file, counts as
absent, and ``problems`` names it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from polyarch.kube.declared_settings import SettingField, declared_settings, read_settings
from polyarch.kube.schema import array, departures, obj, rule, text, without_nulls
from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.selectors import Selector
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


def usual_ownership(key: str) -> Ownership:
    """Whose taints with this key are: archaware-controller's are adopted, for polyarch takes its place. Any other key
    may be a provider's or a team's, so only what polyarch has recorded is its own."""
    return "adopt" if key == PRESET_KEYS["archaware"] else "recorded"


ARCHITECTURES: Final = tuple(sorted(KNOWN_ARCHITECTURES))


class TaintSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration means. Sets of architectures are normalised names; durations are in seconds."""

    state: Annotated[
        State,
        SettingField(
            "state",
            "active; paused: nodes keep their taints, no toleration is added, and gates are lifted; "
            "removing: taints and gates are removed, and stay away.",
        ),
    ] = "active"
    mode: Annotated[
        Mode,
        SettingField(
            "mode",
            "secondary-only: nodes outside primaryArchitectures are tainted, so that a pod nobody "
            "looked at stays on the primary ones; tolerations: all managed nodes are; both: like tolerations, and "
            "condition AffinityCovered tells whether placement constrains the same pods.",
        ),
    ] = "secondary-only"
    primary: Annotated[
        frozenset[str],
        SettingField(
            "primaryArchitectures",
            "Architectures that pods run on unless their images say more.",
            bounds=(1, 8),
            names=ARCHITECTURES,
        ),
    ] = frozenset({"amd64"})
    """B."""
    given: Annotated[
        frozenset[str],
        SettingField("architectures", "Architectures whose nodes are managed; empty: all.", names=ARCHITECTURES),
    ] = frozenset()
    """``spec.architectures``; empty: every known one."""
    preset: Annotated[
        Preset,
        SettingField(
            "taint.preset",
            f"The key of the taint ({', '.join(f'{preset}: {key}' for preset, key in PRESET_KEYS.items())}; "
            "custom: spec.taint.key). Its value is the architecture.",
        ),
    ] = "archaware"
    key: Annotated[str, SettingField("taint.key", "With preset custom, the key.", derived=True)] = PRESET_KEYS[
        "archaware"
    ]
    """K."""
    effect: Annotated[
        Effect, SettingField("taint.effect", "Effect of the taint; NoExecute needs acknowledgeEviction.")
    ] = "NoSchedule"
    """E."""
    eviction_acknowledged: Annotated[
        bool,
        SettingField(
            "taint.acknowledgeEviction",
            "With NoExecute: yes, running pods that do not tolerate the taint may be evicted.",
        ),
    ] = False
    ownership: Annotated[
        Ownership,
        SettingField(
            "taint.ownership",
            "Which taints polyarch changes and removes. adopt: all with the key and an architecture as value; "
            "recorded: only those in the node's annotation. Absent: adopt for the key of archaware, else recorded.",
            derived=True,
        ),
    ] = "adopt"
    node_selector: Annotated[
        Selector | None, SettingField("nodes.selector", "Nodes that are managed; absent: all.")
    ] = None
    exclude_control_plane: Annotated[
        bool, SettingField("nodes.excludeControlPlane", "Leave nodes of the control plane alone.")
    ] = False
    operating_systems: Annotated[
        frozenset[NodeOS],
        SettingField("nodes.operatingSystems", "Operating systems whose nodes are managed.", bounds=(1, 0)),
    ] = frozenset({"linux"})
    rollout: Annotated[
        Rollout,
        SettingField(
            "nodes.rollout",
            "safe: the first node of an architecture is tainted once admission works and DaemonSets "
            "tolerate it; immediate: at once.",
        ),
    ] = "safe"
    per_minute: Annotated[int, SettingField("nodes.perMinute", "Most taints written in a minute.", bounds=(1, 600))] = (
        60
    )
    at_registration: Annotated[
        AtRegistration,
        SettingField(
            "nodes.atRegistration",
            "policy: a MutatingAdmissionPolicy taints new nodes as they register, where the API "
            "server has it; none: they are tainted once they are seen.",
        ),
    ] = "policy"
    namespace_selector: Annotated[
        Selector | None,
        SettingField("pods.namespaceSelector", "Namespaces whose pods get tolerations; absent: all."),
    ] = None
    pod_selector: Annotated[
        Selector | None, SettingField("pods.podSelector", "Pods that get tolerations; absent: all.")
    ] = None
    excluded_namespaces: Annotated[
        tuple[str, ...],
        SettingField(
            "pods.excludeNamespaces",
            "Namespaces whose pods are left untouched: names, or a prefix followed by *.",
            excluding="state: paused",
        ),
    ] = ()
    on_unknown: Annotated[
        OnUnknown,
        SettingField(
            "pods.onUnknown",
            "While an image cannot be read: gate: the pod waits; primary-only: it tolerates the "
            "primary architectures; all: all of them; none: nothing, and it is completed later.",
        ),
    ] = "gate"
    gate_timeout: Annotated[float, SettingField("pods.gateTimeout", "How long a pod waits.", bounds=(10.0, 3600.0))] = (
        300.0
    )
    on_timeout: Annotated[
        OnTimeout, SettingField("pods.onTimeout", "After gateTimeout, as onUnknown; keep: the pod goes on waiting.")
    ] = "primary-only"
    on_no_common: Annotated[
        OnNoCommon,
        SettingField(
            "pods.onNoCommon",
            "Pods whose images have no architecture in common: admit them, or deny them at admission.",
        ),
    ] = "admit"
    running: Annotated[
        Running,
        SettingField(
            "pods.running",
            "tolerate: pods that run get tolerations, too; skip. Absent: tolerate for preset "
            "archaware, else skip; NoExecute always tolerates.",
            derived=True,
        ),
    ] = "tolerate"
    image_change: Annotated[
        ImageChange,
        SettingField(
            "pods.imageChange",
            "When a new image no longer supports an architecture that the pod tolerates: event only, "
            "evict the pod, or deny the change.",
        ),
    ] = "event"
    templates: Annotated[
        Templates,
        SettingField(
            "daemonSets.templates",
            "reconcile: templates get tolerations at admission, and existing ones one after another; "
            "admission: only at admission; ignore: never.",
        ),
    ] = "reconcile"
    max_concurrent_rollouts: Annotated[
        int,
        SettingField(
            "daemonSets.maxConcurrentRollouts",
            "DaemonSets that replace their pods at the same time because polyarch changed them.",
            bounds=(1, 50),
        ),
    ] = 1
    rollout_timeout: Annotated[
        float,
        SettingField("daemonSets.rolloutTimeout", "When a rollout counts as slow.", bounds=(1.0, 7 * 24 * 3600.0)),
    ] = 600.0
    compatibility: tuple[tuple[str, frozenset[str]], ...] = ()
    """Node architecture, and the foreign ones that its nodes run."""
    problems: tuple[str, ...] = ()
    """Values that were replaced by their defaults: field, what is wrong, what is used instead."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "TaintSettings":
        """The settings of a spec; never fails."""
        given, wrong = read_settings(TAINT_SETTINGS, spec)
        problems = [str(problem) for problem in wrong]
        found, usual = cls(**given), cls()
        preset, key, effect = found.preset, found.key, found.effect
        if effect == NO_EXECUTE and not found.eviction_acknowledged:
            effect = "NoSchedule"
            problems.append(
                "spec.taint.effect is NoExecute, which evicts running pods; NoSchedule is used until "
                "spec.taint.acknowledgeEviction is true"
            )
        if preset == "custom" and "key" not in given:
            preset = usual.preset
            problems.append(f"spec.taint.key is missing, which preset custom needs; {usual.key} is used")
        key = PRESET_KEYS.get(preset, key)
        by_preset: Running = "tolerate" if preset == "archaware" else "skip"
        return msgspec.structs.replace(
            found,
            preset=preset,
            key=key,
            effect=effect,
            ownership=given.get("ownership", usual_ownership(key)),
            running="tolerate" if effect == NO_EXECUTE else given.get("running", by_preset),
            compatibility=_compatibility(spec.get("compatibility"), problems),
            problems=tuple(problems),
        )

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


TAINT_SETTINGS: Final = declared_settings(TaintSettings)
"""The settings that an ArchitectureTaints has, in the order of its schema, but for ``compatibility``."""


RUNS_ITSELF: Final = (
    "spec.compatibility[].runs has the architecture of its own node; remove it there: nodes run their own programs"
)
COMPATIBILITY: Final = array(
    obj(
        {
            "node": text(description="Architecture of the nodes.", enum=ARCHITECTURES),
            "runs": array(
                text(enum=ARCHITECTURES),
                description="Other architectures whose programs they run.",
                list_type="set",
                min_items=1,
                max_items=len(ARCHITECTURES),
            ),
        },
        required=("node", "runs"),
        rules=[rule("!(self.node in self.runs)", RUNS_ITSELF)],
    ),
    description="Nodes that run programs of another architecture, such as arm64 nodes that run arm.",
    list_type="map",
    map_keys=("node",),
    max_items=len(ARCHITECTURES),
    default=[],
)
"""The schema of ``spec.compatibility``."""


def _compatibility(entries: Any, problems: list[str]) -> tuple[tuple[str, frozenset[str]], ...]:
    entries = without_nulls(entries or [])
    problems += (f"{wrong}; it is left out" for wrong in departures(COMPATIBILITY, entries, "spec.compatibility"))
    return tuple(
        (entry["node"], frozenset(entry["runs"]))
        for entry in (entries if isinstance(entries, list) else ())
        if not any(departures(COMPATIBILITY, [entry]))
    )
