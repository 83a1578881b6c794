"""The schema of PlacementPolicy, made from the declarations of its settings and enforced by the API server.

Entries of ``overrides`` have no defaults: a field that they leave out has the value of ``spec``. Pure.
"""

from typing import Any, Final, Literal, get_args, get_origin

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
from polyarch.placement.api.settings import POLICY_SETTINGS, PolicySetting, Settings
from polyarch.placement.names import SINGLETON

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

MAX_NAMESPACES: Final = 256


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
        _members("spec", override=False) | {"overrides": overrides},
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
    return obj(selection | _members(field, override=True), required=("name", "namespaceSelector"))


def _members(where: str, *, override: bool) -> dict[str, Schema]:
    """The settings that ``where`` has, in objects by the first part of their path."""
    members: dict[str, Schema] = {}
    for setting in POLICY_SETTINGS:
        if override and not setting.field.override:
            continue
        group, _, name = setting.field.path.rpartition(".")
        schema = _setting(setting, f"{where}.{setting.field.path}", default=None if override else setting.default)
        if not group:
            members[name] = schema
            continue
        if group not in members:
            rules = _unresolved_rules(f"{where}.{group}", override=override) if group == "onUnresolved" else ()
            members[group] = obj(
                {name: schema}, description=GROUPS[group], rules=rules, default=None if override else {}
            )
        members[group]["properties"][name] = schema
    return members


def _setting(setting: PolicySetting, path: str, *, default: Any) -> Schema:
    kind, description = setting.type, setting.field.description
    low, high = setting.field.bounds
    if get_origin(kind) is Literal:
        return text(description=description, enum=get_args(kind), default=default)
    if get_origin(kind) is tuple:
        allowed = get_args(get_args(kind)[0])
        items = text(enum=allowed) if allowed else _namespace_pattern(path)
        most = len(allowed) or MAX_NAMESPACES
        return array(items, description=description, list_type="set", max_items=most, default=default)
    if kind is bool:
        return boolean(description=description, default=default)
    if kind is float:
        return duration(path, low, high, description=description, default=default)
    return integer(description=description, minimum=int(low), maximum=int(high), default=default)


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


def _namespace_pattern(path: str) -> Schema:
    allowed = rule(
        r"self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') || self.matches('^[a-z0-9][-a-z0-9]*\\*$')",
        f"{path} takes names of namespaces, or a prefix followed by *, such as vendor-*; "
        "* alone would exclude everything: use mode: audit for that",
    )
    return text(max_length=64, rules=(allowed,))
