"""The CustomResourceDefinition of ArchitectureTaints, and the same checks of a file. Pure.

Bounds, words and defaults are those of ``settings``, so the two cannot differ. The API server makes all checks without
a webhook of ours. For ``--config FILE`` :func:`validated` makes them: the schema is the API server's own, and its rules
are here once more, in Python, with the same words.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from polyarch.durations import format_duration, parse_duration
from polyarch.kube.schema import (
    LABEL_FORM,
    LABEL_KEY,
    LABEL_KEY_LENGTH,
    Schema,
    SchemaViolation,
    array,
    boolean,
    cel_text,
    checked_label_selector,
    column,
    conditions,
    custom_resource,
    departures,
    duration,
    integer,
    obj,
    rule,
    text,
    version,
    without_nulls,
)
from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.selectors import InvalidSelector, Selector
from polyarch.taints import settings
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints, ArchitectureTaintsSpec
from polyarch.taints.names import SINGLETON
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import NO_EXECUTE

DEFAULTS: Final = TaintSettings()
ARCHITECTURES: Final = tuple(sorted(KNOWN_ARCHITECTURES))
MAX_BLOCKED: Final = 50
"""Entries of ``status.blockedTemplates``; ``blockedTemplatesTotal`` counts them all."""

NAMED_CLUSTER: Final = f"the only ArchitectureTaints is named {SINGLETON}: set metadata.name to {SINGLETON}"
KEY_MISSING: Final = "spec.taint.key is required with spec.taint.preset: custom; write the key of the taint"
KEY_FORBIDDEN: Final = (
    "spec.taint.key is allowed only with spec.taint.preset: custom; remove it, or set the preset to custom"
)
KEY_INVALID: Final = f"spec.taint.key is not the key of a taint: {LABEL_FORM}"
UNACKNOWLEDGED: Final = (
    "spec.taint.effect: NoExecute evicts running pods that do not tolerate the taint; "
    "set spec.taint.acknowledgeEviction to true, or use NoSchedule"
)
NOTHING_TAINTED: Final = (
    "spec.architectures has only primary architectures, so in mode secondary-only no node would ever be tainted; "
    "add an architecture that is not in spec.primaryArchitectures, or leave spec.architectures empty for all"
)
RUNS_ITSELF: Final = (
    "spec.compatibility[].runs has the architecture of its own node; remove it there: nodes run their own programs"
)
EXCLUDED_FORM: Final = (
    "spec.pods.excludeNamespaces takes names of namespaces, or a prefix followed by *, such as vendor-*; "
    "* alone would exclude everything: use state: paused for that"
)
NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAMESPACE_PREFIX: Final = r"^[a-z0-9][-a-z0-9]*\*$"
STILL_TAINTED: Final = (
    "spec.taint.key and spec.taint.preset cannot change while nodes carry the taint with the old key: "
    "run `polyarch taint clean` first"
)


def crds() -> tuple[Schema, ...]:
    """Every CustomResourceDefinition of taints."""
    return (architecture_taints(),)


def architecture_taints() -> Schema:
    # Optional fields have defaults, so only an object that was never admitted could lack one.
    unchanged = (
        "self.spec.taint.preset == oldSelf.spec.taint.preset"
        " && (has(self.spec.taint.key) ? self.spec.taint.key : '')"
        " == (has(oldSelf.spec.taint.key) ? oldSelf.spec.taint.key : '')"
    )
    no_taints = (
        "!has(oldSelf.status) || !has(oldSelf.status.nodes) || !has(oldSelf.status.nodes.tainted)"
        " || oldSelf.status.nodes.tainted == 0"
    )
    rules = (
        rule(f"self.metadata.name == '{SINGLETON}'", NAMED_CLUSTER),
        rule(f"self.spec.state == 'removing' || ({unchanged}) || {no_taints}", STILL_TAINTED),
    )
    columns = [
        column("Mode", ".spec.mode"),
        column("Key", ".status.key"),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        column("Nodes", ".status.nodes.summary"),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    description = (
        "Taints nodes with their architecture and gives pods the tolerations that their images justify. "
        "The only one is named cluster."
    )
    stored = version(ARCHITECTURE_TAINTS.version, description, _spec(), _status(), rules=rules, columns=columns)
    return custom_resource(ARCHITECTURE_TAINTS, [stored], short_names=("archtaints",))


def _spec() -> Schema:
    # A default is itself checked by the rules, before its members have theirs: hence has().
    some_secondary = (
        "!has(self.mode) || self.mode != 'secondary-only' || size(self.architectures) == 0"
        " || self.architectures.exists(a, !(a in self.primaryArchitectures))"
    )
    least, most = settings.PRIMARY_ARCHITECTURES
    return obj(
        {
            "state": text(
                description="active; paused: nodes keep their taints, no toleration is added, and gates are lifted; "
                "removing: taints and gates are removed, and stay away.",
                enum=get_args(settings.State),
                default=DEFAULTS.state,
            ),
            "mode": text(
                description="secondary-only: nodes outside primaryArchitectures are tainted, so that a pod nobody "
                "looked at stays on the primary ones; tolerations: all managed nodes are; both: like tolerations, and "
                "condition AffinityCovered tells whether placement constrains the same pods.",
                enum=get_args(settings.Mode),
                default=DEFAULTS.mode,
            ),
            "primaryArchitectures": _architectures(
                "Architectures that pods run on unless their images say more.",
                default=sorted(DEFAULTS.primary),
                min_items=least,
                max_items=most,
            ),
            "architectures": _architectures(
                "Architectures whose nodes are managed; empty: all.", default=sorted(DEFAULTS.given)
            ),
            "taint": _taint(),
            "nodes": _nodes(),
            "pods": _pods(),
            "daemonSets": _daemon_sets(),
            "compatibility": array(
                obj(
                    {
                        "node": text(description="Architecture of the nodes.", enum=ARCHITECTURES),
                        "runs": _architectures("Other architectures whose programs they run.", min_items=1),
                    },
                    required=("node", "runs"),
                    rules=[rule("!(self.node in self.runs)", RUNS_ITSELF)],
                ),
                description="Nodes that run programs of another architecture, such as arm64 nodes that run arm.",
                list_type="map",
                map_keys=("node",),
                max_items=len(ARCHITECTURES),
                default=[],
            ),
        },
        description="What is tainted, and which pods tolerate it.",
        rules=[rule(some_secondary, NOTHING_TAINTED)],
        default={},
    )


def _taint() -> Schema:
    qualified = rule(f"size(self) <= {LABEL_KEY_LENGTH} && self.matches({cel_text(LABEL_KEY)})", KEY_INVALID)
    keys = ", ".join(f"{preset}: {key}" for preset, key in settings.PRESET_KEYS.items())
    return obj(
        {
            "preset": text(
                description=f"The key of the taint ({keys}; custom: spec.taint.key). Its value is the architecture.",
                enum=get_args(settings.Preset),
                default=DEFAULTS.preset,
            ),
            "key": text(description="With preset custom, the key.", max_length=LABEL_KEY_LENGTH, rules=[qualified]),
            "effect": text(
                description="Effect of the taint; NoExecute needs acknowledgeEviction.",
                enum=get_args(settings.Effect),
                default=DEFAULTS.effect,
            ),
            "acknowledgeEviction": boolean(
                description="With NoExecute: yes, running pods that do not tolerate the taint may be evicted.",
                default=False,
            ),
            "ownership": text(
                description="Which taints polyarch changes and removes. adopt: all with the key and an architecture as "
                "value; recorded: only "
                "those in the node's annotation. Absent: recorded for gke and openshift, else adopt.",
                enum=get_args(settings.Ownership),
            ),
        },
        description="The taint.",
        rules=[
            rule("!has(self.preset) || self.preset != 'custom' || has(self.key)", KEY_MISSING),
            rule("!has(self.key) || self.preset == 'custom'", KEY_FORBIDDEN),
            rule("!has(self.effect) || self.effect != 'NoExecute' || self.acknowledgeEviction", UNACKNOWLEDGED),
        ],
        default={},
    )


def _nodes() -> Schema:
    return obj(
        {
            "selector": checked_label_selector("spec.nodes.selector", "Nodes that are managed; absent: all."),
            "excludeControlPlane": boolean(
                description="Leave nodes of the control plane alone.", default=DEFAULTS.exclude_control_plane
            ),
            "operatingSystems": array(
                text(enum=get_args(settings.NodeOS)),
                description="Operating systems whose nodes are managed.",
                list_type="set",
                min_items=1,
                max_items=len(get_args(settings.NodeOS)),
                default=sorted(DEFAULTS.operating_systems),
            ),
            "rollout": text(
                description="safe: the first node of an architecture is tainted once admission works and DaemonSets "
                "tolerate it; immediate: at once.",
                enum=get_args(settings.Rollout),
                default=DEFAULTS.rollout,
            ),
            "perMinute": integer(
                description="Most taints written in a minute.",
                minimum=settings.PER_MINUTE[0],
                maximum=settings.PER_MINUTE[1],
                default=DEFAULTS.per_minute,
            ),
            "atRegistration": text(
                description="policy: a MutatingAdmissionPolicy taints new nodes as they register, where the API "
                "server has it; none: they are tainted once they are seen.",
                enum=get_args(settings.AtRegistration),
                default=DEFAULTS.at_registration,
            ),
        },
        description="Which nodes are managed, and how fast.",
        default={},
    )


def _pods() -> Schema:
    allowed = f"self.matches({cel_text(NAMESPACE)}) || self.matches({cel_text(NAMESPACE_PREFIX)})"
    return obj(
        {
            "namespaceSelector": checked_label_selector(
                "spec.pods.namespaceSelector", "Namespaces whose pods get tolerations; absent: all."
            ),
            "podSelector": checked_label_selector("spec.pods.podSelector", "Pods that get tolerations; absent: all."),
            "excludeNamespaces": array(
                text(max_length=64, rules=[rule(allowed, EXCLUDED_FORM)]),
                description="Namespaces whose pods are left untouched: names, or a prefix followed by *.",
                list_type="set",
                max_items=256,
                default=list(DEFAULTS.excluded_namespaces),
            ),
            "onUnknown": text(
                description="While an image cannot be read: gate: the pod waits; primary-only: it tolerates the "
                "primary architectures; all: all of them; none: nothing, and it is completed later.",
                enum=get_args(settings.OnUnknown),
                default=DEFAULTS.on_unknown,
            ),
            "gateTimeout": duration(
                "spec.pods.gateTimeout",
                *settings.GATE_TIMEOUT,
                description="How long a pod waits.",
                default=DEFAULTS.gate_timeout,
            ),
            "onTimeout": text(
                description="After gateTimeout, as onUnknown; keep: the pod goes on waiting.",
                enum=get_args(settings.OnTimeout),
                default=DEFAULTS.on_timeout,
            ),
            "onNoCommon": text(
                description="Pods whose images have no architecture in common: admit them, or deny them at admission.",
                enum=get_args(settings.OnNoCommon),
                default=DEFAULTS.on_no_common,
            ),
            "running": text(
                description="tolerate: pods that run get tolerations, too; skip. Absent: tolerate for preset "
                "archaware, else skip; NoExecute always tolerates.",
                enum=get_args(settings.Running),
            ),
            "imageChange": text(
                description="When a new image no longer supports an architecture that the pod tolerates: event only, "
                "evict the pod, or deny the change.",
                enum=get_args(settings.ImageChange),
                default=DEFAULTS.image_change,
            ),
        },
        description="Which pods get tolerations, and what happens to those whose images cannot be read.",
        default={},
    )


def _daemon_sets() -> Schema:
    return obj(
        {
            "templates": text(
                description="reconcile: templates get tolerations at admission, and existing ones one after another; "
                "admission: only at admission; ignore: never.",
                enum=get_args(settings.Templates),
                default=DEFAULTS.templates,
            ),
            "maxConcurrentRollouts": integer(
                description="DaemonSets that replace their pods at the same time because polyarch changed them.",
                minimum=settings.CONCURRENT_ROLLOUTS[0],
                maximum=settings.CONCURRENT_ROLLOUTS[1],
                default=DEFAULTS.max_concurrent_rollouts,
            ),
            "rolloutTimeout": duration(
                "spec.daemonSets.rolloutTimeout",
                *settings.ROLLOUT_TIMEOUT,
                description="When a rollout counts as slow.",
                default=DEFAULTS.rollout_timeout,
            ),
        },
        description="Templates of DaemonSets, whose pods would otherwise be missing on tainted nodes.",
        default={},
    )


def _architectures(
    description: str, *, default: list[str] | None = None, min_items: int | None = None, max_items: int | None = None
) -> Schema:
    return array(
        text(enum=ARCHITECTURES),
        description=description,
        list_type="set",
        min_items=min_items,
        max_items=max_items or len(ARCHITECTURES),
        default=default,
    )


def _status() -> Schema:
    def count(description: str) -> Schema:
        return integer(description=description, minimum=0)

    architecture = obj(
        {
            "name": text(description="The architecture."),
            "nodes": count("Managed nodes."),
            "tainted": count("Nodes that carry the taint."),
            "waiting": count("Nodes whose taint has to wait."),
            "reason": text(description="What they wait for."),
        },
        required=("name",),
    )
    template = obj(
        {
            "kind": text(description="Kind of the workload."),
            "namespace": text(description="Its namespace."),
            "name": text(description="Its name."),
            "architectures": array(text(), description="Tainted architectures whose toleration it lacks, or may lack."),
            "reason": text(description="Why it is blocked."),
        },
        required=("kind", "name"),
    )
    return obj(
        {
            "observedGeneration": integer(description="The generation it speaks of.", format="int64", minimum=0),
            "key": text(description="The key of the taint."),
            "architectures": array(
                architecture, description="The nodes by architecture.", list_type="map", map_keys=("name",)
            ),
            "nodes": obj(
                {
                    "managed": count("Nodes that are managed."),
                    "tainted": count("Nodes that carry their taint, or another one of polyarch's."),
                    "skipped": count("Nodes that are not managed."),
                    "unknown": count("Nodes whose architecture is not known."),
                    "summary": text(description="Nodes that carry a taint, and those that are to carry one, as 3/5."),
                },
                description="How many nodes.",
            ),
            "pods": obj(
                {
                    "gated": count("Pods that wait for their tolerations."),
                    "unknown": count("Pods with images that cannot be read."),
                    "blocked": count("Pods that no node can run."),
                },
                description="How many unscheduled pods.",
            ),
            "blockedTemplates": array(
                template,
                description="DaemonSets whose images cannot be read, or that no node can run.",
                max_items=MAX_BLOCKED,
            ),
            "blockedTemplatesTotal": count("How many there are in all."),
            "conditions": conditions(),
        },
        description="What was found.",
    )


# -- the same checks of a file -----------------------------------------------------------------------------------------


class InvalidTaintsConfiguration(ValueError):  # noqa: N818 - what is the case
    """The object would be refused; ``problems`` are all the reasons, each with its field."""

    def __init__(self, problems: tuple[SchemaViolation, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def validated(document: Any) -> ArchitectureTaints:
    """The object that a file contains. Raises :class:`InvalidConfiguration`; whoever starts a process says which file
    and exits 2."""
    if problems := tuple(_problems(document)):
        raise InvalidTaintsConfiguration(problems)
    return msgspec.convert(without_nulls(document), ArchitectureTaints)


def _problems(document: Any) -> Iterator[SchemaViolation]:
    if not isinstance(document, Mapping):
        yield SchemaViolation("", f"the file must contain one {ARCHITECTURE_TAINTS.kind}, not {document!r:.60}")
        return
    document = without_nulls(document)
    for field, wanted in (("apiVersion", ARCHITECTURE_TAINTS.api_version), ("kind", ARCHITECTURE_TAINTS.kind)):
        if document.get(field) != wanted:
            yield SchemaViolation(field, f"must be {wanted}, not {document.get(field)!r:.60}")
    stored: Schema = architecture_taints()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    wrong = [*departures(stored, document)]
    yield from wrong
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != SINGLETON:
        yield SchemaViolation("metadata.name", NAMED_CLUSTER)
    if not wrong:  # the API server does not ask the rules about a value of another shape either
        yield from _broken_rules(document.get("spec", {}))


def _broken_rules(spec: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    taint, nodes, pods = (spec.get(name, {}) for name in ("taint", "nodes", "pods"))
    yield from _taint_problems(taint)
    for field, holder, member in (
        ("spec.nodes.selector", nodes, "selector"),
        ("spec.pods.namespaceSelector", pods, "namespaceSelector"),
        ("spec.pods.podSelector", pods, "podSelector"),
    ):
        yield from _selector_problems(field, holder.get(member, {}))
    for index, name in enumerate(pods.get("excludeNamespaces", ())):
        if not any(re.fullmatch(form, name, re.ASCII) for form in (NAMESPACE, NAMESPACE_PREFIX)):
            yield SchemaViolation(f"spec.pods.excludeNamespaces[{index}]", EXCLUDED_FORM)
    yield from _duration_problems("spec.pods.gateTimeout", pods.get("gateTimeout"), settings.GATE_TIMEOUT)
    rollout_timeout = spec.get("daemonSets", {}).get("rolloutTimeout")
    yield from _duration_problems("spec.daemonSets.rolloutTimeout", rollout_timeout, settings.ROLLOUT_TIMEOUT)
    for index, each in enumerate(spec.get("compatibility", ())):
        if each["node"] in each["runs"]:
            yield SchemaViolation(f"spec.compatibility[{index}]", RUNS_ITSELF)
    compiled = settings.TaintSettings.of(msgspec.convert(spec, ArchitectureTaintsSpec))
    if compiled.given and not compiled.tainted:
        yield SchemaViolation("spec", NOTHING_TAINTED)


def _taint_problems(taint: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    key, custom = taint.get("key"), taint.get("preset", DEFAULTS.preset) == "custom"
    if custom and key is None:
        yield SchemaViolation("spec.taint", KEY_MISSING)
    if not custom and key is not None:
        yield SchemaViolation("spec.taint", KEY_FORBIDDEN)
    if key is not None and re.fullmatch(LABEL_KEY, key, re.ASCII) is None:
        yield SchemaViolation("spec.taint.key", KEY_INVALID)
    if taint.get("effect") == NO_EXECUTE and not taint.get("acknowledgeEviction"):
        yield SchemaViolation("spec.taint", UNACKNOWLEDGED)


def _selector_problems(field: str, selector: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    try:
        Selector.parse(selector)
    except InvalidSelector as error:
        yield SchemaViolation(f"{field}.{error.field}" if error.field else field, error.problem)


def _duration_problems(field: str, text: str | None, bounds: tuple[float, float]) -> Iterator[SchemaViolation]:
    least, most = bounds
    if text is not None and not least <= parse_duration(text) <= most:
        yield SchemaViolation(field, f"must be a duration from {format_duration(least)} to {format_duration(most)}")
