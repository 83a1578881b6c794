"""The CustomResourceDefinition of ArchitectureTaints, and the same checks of a file. Pure.

The schema of the spec follows from the declarations of ``settings``. The API server makes all checks without
a webhook of ours. For ``--config FILE`` :func:`validated` makes them: the schema is the API server's own, and its rules
are here once more, in Python, with the same words.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.declared_settings import schema_members
from polyarch.kube.schema import (
    Schema,
    SchemaViolation,
    array,
    column,
    conditions,
    custom_resource,
    departures,
    integer,
    obj,
    rule,
    stored_schema,
    text,
    version,
    without_nulls,
)
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.names import SINGLETON
from polyarch.taints.settings import COMPATIBILITY, RUNS_ITSELF, TAINT_SETTINGS, TaintSettings
from polyarch.tolerations import NO_EXECUTE

GROUPS: Final = {
    "taint": "The taint.",
    "nodes": "Which nodes are managed, and how fast.",
    "pods": "Which pods get tolerations, and what happens to those whose images cannot be read.",
    "daemonSets": "Templates of DaemonSets, whose pods would otherwise be missing on tainted nodes.",
}
"""Descriptions of the objects below ``spec`` that hold settings."""
MAX_BLOCKED: Final = 50
"""Entries of ``status.blockedTemplates``; ``blockedTemplatesTotal`` counts them all."""

NAMED_CLUSTER: Final = f"the only ArchitectureTaints is named {SINGLETON}: set metadata.name to {SINGLETON}"
KEY_MISSING: Final = "spec.taint.key is required with spec.taint.preset: custom; write the key of the taint"
KEY_FORBIDDEN: Final = (
    "spec.taint.key is allowed only with spec.taint.preset: custom; remove it, or set the preset to custom"
)
UNACKNOWLEDGED: Final = (
    "spec.taint.effect: NoExecute evicts running pods that do not tolerate the taint; "
    "set spec.taint.acknowledgeEviction to true, or use NoSchedule"
)
NOTHING_TAINTED: Final = (
    "spec.architectures has only primary architectures, so in mode secondary-only no node would ever be tainted; "
    "add an architecture that is not in spec.primaryArchitectures, or leave spec.architectures empty for all"
)
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
    taint_rules = (
        rule("!has(self.preset) || self.preset != 'custom' || has(self.key)", KEY_MISSING),
        rule("!has(self.key) || self.preset == 'custom'", KEY_FORBIDDEN),
        rule("!has(self.effect) || self.effect != 'NoExecute' || self.acknowledgeEviction", UNACKNOWLEDGED),
    )
    members = schema_members(
        TAINT_SETTINGS, "spec", GROUPS, rules=lambda group: taint_rules if group == "taint" else ()
    )
    return obj(
        members | {"compatibility": COMPATIBILITY},
        description="What is tainted, and which pods tolerate it.",
        rules=[rule(some_secondary, NOTHING_TAINTED)],
        default={},
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
    wrong = [*departures(stored_schema(architecture_taints()), document)]
    yield from wrong
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != SINGLETON:
        yield SchemaViolation("metadata.name", NAMED_CLUSTER)
    if not wrong:  # the API server does not ask the rules about a value of another shape either
        yield from _broken_rules(document.get("spec", {}))


def _broken_rules(spec: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    yield from _taint_problems(spec.get("taint", {}))
    for setting in TAINT_SETTINGS:
        members = spec.get(setting.group, {}) if setting.group else spec
        if setting.member in members:
            yield from setting.broken_rules(members[setting.member])
    for index, entry in enumerate(spec.get("compatibility", ())):
        if entry["node"] in entry["runs"]:
            yield SchemaViolation(f"spec.compatibility[{index}]", RUNS_ITSELF)
    compiled = TaintSettings.of(spec)
    if compiled.given and not compiled.tainted:
        yield SchemaViolation("spec", NOTHING_TAINTED)


def _taint_problems(taint: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    custom = taint.get("preset") == "custom"
    if custom and "key" not in taint:
        yield SchemaViolation("spec.taint", KEY_MISSING)
    if not custom and "key" in taint:
        yield SchemaViolation("spec.taint", KEY_FORBIDDEN)
    if taint.get("effect") == NO_EXECUTE and not taint.get("acknowledgeEviction"):
        yield SchemaViolation("spec.taint", UNACKNOWLEDGED)
