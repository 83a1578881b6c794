"""The schema of PlacementPolicy: every field of PL-040 with its bounds and default, enforced by the API server.

Bounds and defaults come from the constants that ``settings`` uses, so the two cannot differ. Entries of ``overrides``
have no defaults: a field that they leave out has the value of ``spec`` (PL-042). Pure.
"""

from typing import Final, get_args

from polyarch.durations import format_duration
from polyarch.kube.schema import (
    Schema,
    array,
    boolean,
    column,
    conditions,
    custom_resource,
    duration,
    integer,
    label_selector,
    obj,
    rule,
    text,
    version,
)
from polyarch.placement.api import resources as api
from polyarch.placement.api import settings
from polyarch.placement.api.settings import Settings
from polyarch.placement.names import SINGLETON

DEFAULTS: Final = Settings()


def placement_policy() -> Schema:
    """PL-040, PL-041."""
    only_one = rule(
        f"self.metadata.name == '{SINGLETON}'",
        f"the only PlacementPolicy is named {SINGLETON}: set metadata.name to {SINGLETON} "
        "and use spec.overrides for some namespaces",
    )
    status = obj(
        {
            "observedGeneration": integer(description="The generation it speaks of.", format="int64", minimum=0),
            "conditions": conditions(),
            "overrides": array(
                obj(
                    {
                        "name": text(description="The entry of spec.overrides."),
                        "matchedNamespaces": integer(description="Namespaces it applies to.", minimum=0),
                    },
                    required=("name", "matchedNamespaces"),
                ),
                description="What each override applies to.",
                list_type="map",
                map_keys=("name",),
            ),
            "heldPods": integer(description="Pods that action: hold keeps gated.", minimum=0),
            "unplacedPods": integer(description="Pods that the sweep found without a decision.", minimum=0),
        }
    )
    columns = [
        column("Mode", ".spec.mode"),
        column("OnUnresolved", ".spec.onUnresolved.action"),
        column("Inline", ".spec.inline.enabled", "boolean"),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    description = "How placement behaves; optional, absent means the defaults. The only one is named cluster."
    stored = version("v1alpha1", description, _policy_spec(), status, rules=(only_one,), columns=columns)
    return custom_resource(api.POLICIES, [stored], short_names=("plp",))


def _policy_spec() -> Schema:
    retry_window = format_duration(DEFAULTS.retry_window)
    inherited = (
        "(has(self.onUnresolved) && has(self.onUnresolved.retryWindow)"
        f" ? self.onUnresolved.retryWindow : '{retry_window}')"
    )
    return obj(
        {
            "mode": _mode(DEFAULTS.mode),
            "onUnresolved": _on_unresolved("spec.onUnresolved", defaults=True),
            "inline": _inline("spec.inline", defaults=True),
            "osConstraint": _os_constraint(DEFAULTS.os_constraint),
            "nodeAware": obj(
                {
                    "mode": text(
                        description="report: tell if no node has any of the architectures; "
                        "narrow: write only those that nodes have.",
                        enum=get_args(settings.NodeAwareMode),
                        default=DEFAULTS.node_aware,
                    ),
                    "assumeArchitectures": _architectures(
                        "Architectures of node pools that may be scaled to zero.", []
                    ),
                },
                description="Whether the nodes that exist count.",
                default={},
            ),
            "excludedNamespaces": _excluded_namespaces(),
            "podOptOut": _pod_opt_out(DEFAULTS.pod_opt_out),
            "events": _events(DEFAULTS.events),
            "sweep": _sweep(),
            "warmUp": _warm_up(),
            "images": _images(),
            "report": _report(),
            "overrides": array(
                _override(),
                description="Settings for some namespaces; the first entry whose selector matches counts.",
                list_type="map",
                map_keys=("name",),
                max_items=64,
                default=[],
            ),
        },
        default={},
        rules=[
            rule(
                "!has(self.overrides) || self.overrides.all(o, !has(o.onUnresolved) || !has(o.onUnresolved.holdLimit)"
                " || duration(o.onUnresolved.holdLimit) >= duration("
                f"has(o.onUnresolved.retryWindow) ? o.onUnresolved.retryWindow : {inherited}))",
                "spec.overrides[].onUnresolved.holdLimit must not be shorter than the retryWindow that applies there",
            )
        ],
    )


def _override() -> Schema:
    field = "spec.overrides[]"
    not_empty = rule(
        "(has(self.matchLabels) && size(self.matchLabels) > 0)"
        " || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        f"{field}.namespaceSelector must not be empty: an entry for every namespace belongs in spec itself",
    )
    return obj(
        {
            "name": text(description="Names the entry in status.", min_length=1, max_length=63),
            "namespaceSelector": label_selector("Namespaces it is for.", rules=(not_empty,)),
            "mode": _mode(None),
            "onUnresolved": _on_unresolved(f"{field}.onUnresolved", defaults=False),
            "inline": _inline(f"{field}.inline", defaults=False),
            "osConstraint": _os_constraint(None),
            "podOptOut": _pod_opt_out(None),
            "events": _events(None),
            "sweep": obj({"action": _sweep_action(None)}, description="The search for pods that the webhook missed."),
        },
        required=("name", "namespaceSelector"),
    )


def _mode(default: str | None) -> Schema:
    return text(
        description="enforce: place pods; audit: only tell on the pod what would be done.",
        enum=get_args(settings.Mode),
        default=default,
    )


def _on_unresolved(field: str, *, defaults: bool) -> Schema:
    low, high = settings.RETRY_WINDOW
    retry_window = format_duration(DEFAULTS.retry_window)
    rules = [
        rule(
            "!has(self.holdLimit) || (has(self.action) && self.action == 'hold')",
            f"{field}.holdLimit is allowed only with {field}.action: hold; set the action or remove the limit",
        )
    ]
    if defaults:
        rules.append(
            rule(
                "!has(self.holdLimit) || duration(self.holdLimit) >= "
                f"duration(has(self.retryWindow) ? self.retryWindow : '{retry_window}')",
                f"{field}.holdLimit must not be shorter than {field}.retryWindow (default {retry_window})",
            )
        )
    return obj(
        {
            "action": text(
                description="What happens when retrying ends: hold the pod, use the fallback architectures, or release "
                "it with what is known. Absent: fallback if a fallback architecture is known, else release.",
                enum=get_args(settings.Action),
            ),
            "retryWindow": duration(
                f"{field}.retryWindow",
                low,
                high,
                description="How long failing images are tried again.",
                default=DEFAULTS.retry_window if defaults else None,
            ),
            "fallbackArchitectures": _architectures(
                "Used by action: fallback; empty: the ClusterPodPlacementConfig's.", [] if defaults else None
            ),
            "holdLimit": duration(
                f"{field}.holdLimit", low, settings.MAX_HOLD, description="With action: hold, release after so long."
            ),
        },
        description="What happens to pods with images that cannot be inspected.",
        rules=rules,
        default={} if defaults else None,
    )


def _inline(field: str, *, defaults: bool) -> Schema:
    return obj(
        {
            "enabled": boolean(
                description="Place pods at admission, without a gate, where all answers are known.",
                default=DEFAULTS.inline_enabled if defaults else None,
            ),
            "budget": duration(
                f"{field}.budget",
                0.0,
                settings.MAX_BUDGET,
                description="How long an admission may wait for answers.",
                default=DEFAULTS.inline_budget if defaults else None,
            ),
        },
        description="Placement at admission.",
        default={} if defaults else None,
    )


def _os_constraint(default: str | None) -> Schema:
    return text(
        description="Whether the operating system is constrained as well: never, where it matters, always.",
        enum=get_args(settings.OSConstraint),
        default=default,
    )


def _pod_opt_out(default: str | None) -> Schema:
    return text(
        description='Whether the annotation polyarch.dev/skip-placement: "true" leaves a pod alone.',
        enum=get_args(settings.PodOptOut),
        default=default,
    )


def _events(default: str | None) -> Schema:
    return text(
        description="How many events pods get: problems only, one per placement, or every step.",
        enum=get_args(settings.EventLevel),
        default=default,
    )


def _sweep_action(default: str | None) -> Schema:
    return text(
        description="off, report them, or evict those that a new pod would place otherwise.",
        enum=get_args(settings.SweepAction),
        default=default,
    )


def _architectures(description: str, default: list[str] | None) -> Schema:
    return array(
        text(enum=get_args(settings.Architecture)),
        description=description,
        list_type="set",
        max_items=len(get_args(settings.Architecture)),
        default=default,
    )


def _excluded_namespaces() -> Schema:
    allowed = rule(
        r"self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') || self.matches('^[a-z0-9][-a-z0-9]*\\*$')",
        "spec.excludedNamespaces takes names of namespaces, or a prefix followed by *, such as vendor-*; "
        "* alone would exclude everything: use mode: audit for that",
    )
    return array(
        text(max_length=64, rules=(allowed,)),
        description="Namespaces whose pods are left untouched: names, or a prefix followed by *.",
        list_type="set",
        max_items=256,
        default=[],
    )


def _sweep() -> Schema:
    return obj(
        {
            "action": _sweep_action(DEFAULTS.sweep_action),
            "scope": text(
                description="pending: pods not yet bound; all: also pods on a node that their images do not support.",
                enum=get_args(settings.SweepScope),
                default=DEFAULTS.sweep_scope,
            ),
            "interval": duration(
                "spec.sweep.interval",
                *settings.SWEEP_INTERVAL,
                description="How often.",
                default=DEFAULTS.sweep_interval,
            ),
            "minAge": duration(
                "spec.sweep.minAge",
                *settings.SWEEP_MIN_AGE,
                description="Younger pods are left alone.",
                default=DEFAULTS.sweep_min_age,
            ),
            "maxEvictionsPerMinute": integer(
                description="Limit of evictions.",
                minimum=settings.MAX_EVICTIONS[0],
                maximum=settings.MAX_EVICTIONS[1],
                default=DEFAULTS.sweep_max_evictions_per_minute,
            ),
        },
        description="The search for pods that the webhook missed.",
        default={},
    )


def _warm_up() -> Schema:
    return obj(
        {
            "enabled": boolean(
                description="Inspect the images of workloads before their pods come.", default=DEFAULTS.warm_up_enabled
            ),
            "kinds": array(
                text(enum=get_args(settings.WarmUpKind)),
                description="Workloads whose templates are read.",
                list_type="set",
                max_items=len(get_args(settings.WarmUpKind)),
                default=get_args(settings.WarmUpKind),
            ),
            "imagesPerMinute": integer(
                description="Pace of inspection.",
                minimum=settings.IMAGES_PER_MINUTE[0],
                maximum=settings.IMAGES_PER_MINUTE[1],
                default=DEFAULTS.warm_up_images_per_minute,
            ),
        },
        description="Inspecting images ahead of time.",
        default={},
    )


def _images() -> Schema:
    return obj(
        {
            "staleFor": duration(
                "spec.images.staleFor",
                0.0,
                settings.MAX_STALE,
                description="How old a reading may be that is used while its registry fails.",
                default=DEFAULTS.images_stale_for,
            ),
            "secretAccess": text(
                description="byName: pull secrets that pods name are read; none: global credentials only.",
                enum=get_args(settings.SecretAccess),
                default=DEFAULTS.images_secret_access,
            ),
            "shareReadings": boolean(
                description="Keep what is known of public images in a Secret, for all replicas.",
                default=DEFAULTS.images_share_readings,
            ),
        },
        description="How images are read.",
        default={},
    )


def _report() -> Schema:
    return obj(
        {
            "enabled": boolean(
                description="Keep metrics and the ConfigMap polyarch-report of what could run where.",
                default=DEFAULTS.report_enabled,
            ),
            "interval": duration(
                "spec.report.interval",
                *settings.REPORT_INTERVAL,
                description="How often it is made anew.",
                default=DEFAULTS.report_interval,
            ),
        },
        description="The report of what could run where, kept in the cluster.",
        default={},
    )
