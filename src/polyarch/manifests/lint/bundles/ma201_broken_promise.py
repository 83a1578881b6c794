"""MA201: a label promises a platform that an image lacks.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.bundle.labels import AxisLabels, keeps
from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts, in_words
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Remove
from polyarch.manifests.scan.pod_specs import LabelEntry
from polyarch.manifests.scan.sets import texts

RULE = Rule(
    id="MA201",
    severity=Severity.ERROR,
    title="A bundle promises an architecture or operating system that an image lacks",
    meaning="A label operatorframework.io/arch.* or os.* says supported, but an image of the bundle lacks that "
    "platform.",
    fix="Removes the label.",
    flag="--remove-labels",
    upstream="V2",
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
    for labels, other in bundle.labels.both:
        yield from _of_axis(bundle, labels, other)


def _of_axis(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[Draft]:
    axis = labels.axis
    for name in labels.promised:
        entry = labels.entry(name)
        breaking = [(image, each) for image, each in bundle.judged if not keeps(each, name, labels, other)]
        if entry is None and labels is bundle.labels.systems:
            # The default linux: an image with linux but none of the architectures breaks their promise instead.
            breaking = [(image, each) for image, each in breaking if name not in each.systems()]
        if not breaking:
            continue
        node, where = (entry.key_node, entry.pointer) if entry else bundle.label_place
        names = tuple(image.text for image, _ in breaking)
        label = f"the label {axis.prefix}{name}" if entry else f"no label {axis.prefix}*, which means {name},"
        has = "; ".join(f"{image.text} has {in_words(platforms)}" for image, platforms in breaking)
        yield Draft(
            rule=RULE,
            message=f"{bundle.subject} has {label} and promises {name}, but {has}",
            hint=f"publish the images for {name}, or remove the label (polyarch fix --remove-labels)"
            if entry
            else f"publish the images for {name}, or label the {axis.plural} that they have",
            node=node,
            pointer=where,
            images=names,
            platforms=PlatformSets(supported=() if bundle.common.is_everything else texts(bundle.common)),
            repair=_removal(bundle, labels, other, entry),
        )


def _removal(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels, entry: LabelEntry | None) -> Repair | None:
    if entry is None:
        return None
    if not bundle.facts.options.fixes.remove_labels:
        return bundle.repair((), "--remove-labels removes the label")
    default = labels.axis.default
    last = len(labels.entries) == 1
    if last and (
        labels.name(entry) == default or not all(keeps(each, default, labels, other) for _, each in bundle.judged)
    ):
        return bundle.repair((), f"without any label {labels.axis.prefix}* the bundle would promise {default}")
    return bundle.repair((Remove(entry.pointer),))
