"""The CustomResourceDefinitions of placement.

``make generate`` writes them to ``deploy/crds``, and a test compares. The schema of PlacementPolicy follows from the
declarations of :class:`~polyarch.placement.settings.Settings`; entries of ``overrides`` have no defaults, since a field
that they leave out has the value of ``spec``. A policy is validated by its schema alone, so validation works while our
webhooks are down. Pure.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Final, get_args

from polyarch.durations import format_duration
from polyarch.kube.declared_settings import schema_members
from polyarch.kube.schema import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    Schema,
    array,
    boolean,
    column,
    conditions,
    custom_resource,
    integer,
    label_selector,
    obj,
    rule,
    text,
    version,
)
from polyarch.placement import api
from polyarch.placement.names import SINGLETON
from polyarch.placement.settings import OVERRIDE_SETTINGS, POLICY_SETTINGS, Settings

GROUPS: Final = {
    "onUnresolved": "What happens to pods with images that cannot be inspected.",
    "inline": "Placement at admission.",
    "nodeAware": "Whether the nodes that exist count.",
    "sweep": "The search for pods that the webhook missed.",
    "warmUp": "Inspecting images ahead of time.",
    "images": "How images are read.",
    "report": "The report of what could run where, kept in the cluster.",
}
"""Descriptions of the objects below ``spec`` that hold settings."""


def placement_policy() -> Schema:
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
    retry_window = format_duration(Settings().retry_window)
    inherited = (
        "(has(self.onUnresolved) && has(self.onUnresolved.retryWindow)"
        f" ? self.onUnresolved.retryWindow : '{retry_window}')"
    )
    overrides = array(
        _override(),
        description="Settings for some namespaces; the first entry whose selector matches counts.",
        list_type="map",
        map_keys=("name",),
        max_items=64,
        default=[],
    )
    return obj(
        schema_members(POLICY_SETTINGS, "spec", GROUPS, rules=_rules("spec", override=False))
        | {"overrides": overrides},
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
    selection = {
        "name": text(description="Names the entry in status.", min_length=1, max_length=63),
        "namespaceSelector": label_selector("Namespaces it is for.", rules=(not_empty,)),
    }
    members = schema_members(OVERRIDE_SETTINGS, field, GROUPS, rules=_rules(field, override=True), with_defaults=False)
    return obj(selection | members, required=("name", "namespaceSelector"))


def _rules(where: str, *, override: bool) -> Callable[[str], list[Schema]]:
    """The rules of each object with settings."""
    return lambda group: _unresolved_rules(f"{where}.{group}", override=override) if group == "onUnresolved" else []


def _unresolved_rules(field: str, *, override: bool) -> list[Schema]:
    rules = [
        rule(
            "!has(self.holdLimit) || (has(self.action) && self.action == 'hold')",
            f"{field}.holdLimit is allowed only with {field}.action: hold; set the action or remove the limit",
        )
    ]
    if not override:
        retry_window = format_duration(Settings().retry_window)
        rules.append(
            rule(
                "!has(self.holdLimit) || duration(self.holdLimit) >= "
                f"duration(has(self.retryWindow) ? self.retryWindow : '{retry_window}')",
                f"{field}.holdLimit must not be shorter than {field}.retryWindow (default {retry_window})",
            )
        )
    return rules


# -- all definitions ---------------------------------------------------------------------------------------------------

SCORING_ARCHITECTURES: Final = get_args(api.ScoringArchitecture)


def crds() -> tuple[Schema, ...]:
    """Every CustomResourceDefinition, ordered by name."""
    return (cluster_pod_placement_config(), enoexec_event(), pod_placement_config(), placement_policy())


def cluster_pod_placement_config() -> Schema:
    """v1beta1 is stored; v1alpha1 is served for clients that still use it.

    v1alpha1 has only the fields it ever had; the operator's conversion keeps the others as annotations.
    """
    message = (
        f"the only ClusterPodPlacementConfig is named {SINGLETON}: set metadata.name to {SINGLETON}, "
        "or use a PodPlacementConfig for the pods of one namespace"
    )
    only_one = rule(f"self.metadata.name == '{SINGLETON}'", message)
    spec = {
        "logVerbosity": text(
            description="Log level of all roles; taken over without a roll-out.",
            enum=get_args(api.LogVerbosity),
            default="Normal",
        ),
        "namespaceSelector": label_selector("Namespaces whose pods are placed; absent: all."),
        "plugins": obj(
            {
                "nodeAffinityScoring": _scoring(duplicates_allowed_if_disabled=False),
                "execFormatErrorMonitor": obj(
                    {"enabled": boolean(description="Whether it runs.")},
                    description="Reports binaries that their node cannot run.",
                    required=("enabled",),
                ),
            },
            description="What can be switched on.",
        ),
        "fallbackArchitecture": text(
            description="The architecture for pods with images that cannot be inspected; empty: none.",
            enum=get_args(api.FallbackArchitecture),
            default="",
        ),
    }
    columns = [
        column("Available", '.status.conditions[?(@.type=="Available")].status'),
        column("Progressing", '.status.conditions[?(@.type=="Progressing")].status'),
        column("Degraded", '.status.conditions[?(@.type=="Degraded")].status'),
        column("Since", '.status.conditions[?(@.type=="Progressing")].lastTransitionTime', "date"),
        column("Status", '.status.conditions[?(@.type=="Available")].reason'),
    ]
    description = "Switches placement on for the cluster: pods are constrained to what their images support."
    status = obj({"conditions": conditions()})
    return custom_resource(
        api.CPPCS,
        [
            version(
                "v1alpha1",
                description,
                obj({name: spec[name] for name in ("logVerbosity", "namespaceSelector")}),
                status,
                rules=(only_one,),
                storage=False,
            ),
            version("v1beta1", description, obj(spec), status, rules=(only_one,), columns=columns),
        ],
    )


PREVIEW_MESSAGE: Final = (
    f"PodPlacementConfig of {api.PPCS.group}/v1alpha1 was the cluster-wide configuration of a preview; "
    f"ClusterPodPlacementConfig of {api.CPPCS.api_version}, named {SINGLETON}, replaces it: "
    "polyarch fix FILE rewrites the manifest"
)
"""What a manifest of the first preview is answered with."""


def pod_placement_config() -> Schema:
    """v1alpha1 is there for manifests of the first preview, where the kind was cluster-wide: it takes any spec
    and refuses it with :data:`PREVIEW_MESSAGE`, so nothing is ever stored from it."""
    spec = obj(
        {
            "labelSelector": label_selector("Pods of the namespace it is for; absent or empty: all."),
            "plugins": obj(
                {"nodeAffinityScoring": _scoring(duplicates_allowed_if_disabled=True)},
                description="What applies to these pods.",
            ),
            "priority": integer(
                description="The higher one counts where several match a pod; unique in the namespace.",
                minimum=0,
                maximum=255,
                default=0,
                format="int32",
            ),
        },
        required=("plugins",),
    )
    columns = [
        column("Priority", ".spec.priority", "integer"),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    description = "Soft architecture preferences for some pods of a namespace."
    stored = version(
        "v1beta1", description, spec, obj({"conditions": conditions()}), columns=columns, required=("spec",)
    )
    preview = version(
        "v1alpha1",
        "The cluster-wide configuration of the first preview; replaced by ClusterPodPlacementConfig.",
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        rules=(rule("false", PREVIEW_MESSAGE),),
        storage=False,
        deprecation=PREVIEW_MESSAGE,
    )
    return custom_resource(api.PPCS, [preview, stored])


def enoexec_event() -> Schema:
    status = obj(
        {
            "nodeName": text(description="The node it happened on.", max_length=253, pattern=DNS_SUBDOMAIN),
            "podName": text(description="The pod.", max_length=253, pattern=DNS_SUBDOMAIN),
            "podNamespace": text(description="The pod's namespace.", max_length=63, pattern=DNS_LABEL),
            "containerID": text(
                description="The container, as runtime://64 hexadecimal digits.", pattern=r"^.+://[a-f0-9]{64}$"
            ),
        }
    )
    columns = [
        column("NodeName", ".status.nodeName"),
        column("PodName", ".status.podName"),
        column("PodNamespace", ".status.podNamespace"),
        column("ContainerID", ".status.containerID"),
    ]
    description = "A binary that its node could not run; written and consumed by the exec-format-error monitor."
    return custom_resource(api.ENOEXECEVENTS, [version("v1beta1", description, obj({}), status, columns=columns)])


def _scoring(*, duplicates_allowed_if_disabled: bool) -> Schema:
    # One rule per pair of positions, because a message cannot compute positions within CEL's cost limit. Five positions
    # are enough: there are four architectures, so two of five entries are always equal.
    places = range(len(SCORING_ARCHITECTURES) + 1)
    return obj(
        {
            "enabled": boolean(description="Whether it applies."),
            "platforms": array(
                obj(
                    {
                        "architecture": text(
                            description="The architecture.", enum=SCORING_ARCHITECTURES, max_length=16
                        ),
                        "weight": integer(
                            description="1 to 100.",
                            minimum=api.WEIGHTS[0],
                            maximum=api.WEIGHTS[1],
                            format="int32",
                        ),
                    },
                    required=("architecture", "weight"),
                ),
                description="Architectures that nodes should rather have, each once.",
                min_items=1,
                max_items=16,
            ),
        },
        description="Adds soft preferences for architectures.",
        required=("enabled", "platforms"),
        rules=[
            _apart(first, second, only_if_enabled=duplicates_allowed_if_disabled)
            for first, second in combinations(places, 2)
        ],
    )


def _apart(first: int, second: int, *, only_if_enabled: bool) -> Schema:
    field = "plugins.nodeAffinityScoring.platforms"
    one, other = (f"self.platforms[{place}].architecture" for place in (first, second))
    unless = "!self.enabled || " if only_if_enabled else ""
    return rule(
        f"{unless}size(self.platforms) <= {second} || {one} != {other}",
        f"{field}[{first}] and [{second}] have the same architecture: keep one of them",
        message_expression=(
            f"'{field}[{first}] and [{second}] both have architecture ' + {one} + ': keep one of them'"
        ),
    )
