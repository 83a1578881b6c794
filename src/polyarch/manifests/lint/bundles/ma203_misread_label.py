"""MA203: labels that catalogs do not read as intended.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.bundle.labels import SUPPORTED, AxisLabels
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Remove, Rename, Replace, TreeOperation
from polyarch.manifests.scan.pod_specs import LabelEntry

RULE = Rule(
    id="MA203",
    severity=Severity.ERROR,
    title="A bundle label does not mean what it seems to",
    meaning="The name after the prefix is unknown (unknown), or the value is not supported (value); if the prefix is "
    "used but no name is supported, catalogs show the operator nowhere (hidden).",
    fix="Replaces an alias or a wrong case with the right name.",
    subs=("unknown", "value", "hidden"),
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
    for labels, _ in bundle.labels.both:
        yield from _of_axis(bundle, labels)


def _of_axis(bundle: BundleFacts, labels: AxisLabels) -> Iterator[Draft]:
    axis = labels.axis
    for entry in labels.entries:
        name = labels.name(entry)
        if name not in axis.known:
            meant = axis.meant(name)
            better = f"write {axis.prefix}{meant}" if meant in axis.known else f"name one of the known {axis.plural}"
            yield _label_draft(
                bundle,
                entry,
                sub="unknown",
                message=f"{bundle.subject} has the label {entry.key}, and {name or 'nothing'} is no known {axis.noun}, "
                "so it has no effect",
                hint=f"{better}, or remove the label",
                operations=_renamed(labels, entry, meant),
            )
        if entry.value != SUPPORTED:
            variant = entry.value.strip().lower() == SUPPORTED
            yield _label_draft(
                bundle,
                entry,
                sub="value",
                message=f"{bundle.subject} has the label {entry.key} with the value {entry.value!r}, "
                f"which counts as not {SUPPORTED}",
                hint=f"write {SUPPORTED}, or remove the label",
                operations=(Replace(entry.pointer, SUPPORTED),) if variant else (),
            )
    if labels.hidden:
        entry = labels.entries[0]
        yield _label_draft(
            bundle,
            entry,
            sub="hidden",
            message=f"{bundle.subject} has labels {axis.prefix}*, but none that promises a known {axis.noun}, so "
            f"catalogs show it on no cluster, not even on {axis.default}",
            hint=f"label each supported {axis.noun} with the value {SUPPORTED}, or remove these labels",
            operations=(),
        )


def _renamed(labels: AxisLabels, entry: LabelEntry, meant: str) -> tuple[TreeOperation, ...]:
    """Renames an alias; removes it if the name is present with the same value."""
    if meant not in labels.axis.known:
        return ()
    other = labels.entry(meant)
    if other is None:
        first = next(each for each in labels.entries if labels.axis.meant(labels.name(each)) == meant)
        return (Rename(entry.pointer, labels.axis.prefix + meant),) if first is entry else (Remove(entry.pointer),)
    return (Remove(entry.pointer),) if other.value == entry.value else ()


def _label_draft(
    bundle: BundleFacts, entry: LabelEntry, *, sub: str, message: str, hint: str, operations: tuple[TreeOperation, ...]
) -> Draft:
    return Draft(
        rule=RULE,
        sub=sub,
        message=message,
        hint=hint,
        node=entry.value_node if sub == "value" else entry.key_node,
        pointer=entry.pointer,
        repair=bundle.repair(operations) if operations else None,
    )
