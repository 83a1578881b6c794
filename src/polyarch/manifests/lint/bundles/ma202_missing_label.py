"""MA202: a bundle supports a platform that no label promises.

Pure.
"""

from collections.abc import Iterator

from yaml.nodes import MappingNode

from polyarch.kube.patches import pointer
from polyarch.manifests.bundle.labels import SUPPORTED, AxisLabels, addable
from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Add, ensure
from polyarch.manifests.scan.nodes import get
from polyarch.manifests.scan.sets import texts

RULE = Rule(
    id="MA202",
    severity=Severity.WARNING,
    title="A bundle supports more than its labels promise",
    meaning="Every image supports an architecture or operating system that has no label, so catalogs hide the operator "
    "there.",
    fix="Adds the labels, including the default that the first label takes away.",
    upstream="V3",
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
    for labels, other in bundle.labels.both:
        yield from _of_axis(bundle, labels, other)


def _of_axis(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[Draft]:
    names = addable(bundle.common, labels, other)
    if not names:
        return
    axis = labels.axis
    keys = [axis.prefix + name for name in names]
    untold = [name for name in names if name not in labels.promised]
    known = "whose platforms are known " if bundle.unknown else ""
    node, where = bundle.label_place
    yield Draft(
        rule=RULE,
        message=f"{bundle.subject} has no label for {', '.join(untold)}, which each of its images "
        f"{known}supports, so catalogs hide it there",
        hint=f"add {', '.join(keys)} with the value {SUPPORTED}{_why_the_default(labels, names)}",
        node=node,
        pointer=where,
        platforms=PlatformSets(supported=texts(bundle.common)),
        repair=_additions(bundle, keys),
    )


def _why_the_default(labels: AxisLabels, names: tuple[str, ...]) -> str:
    if labels.entries or labels.axis.default not in names:
        return ""
    return f"; {labels.axis.default} needs a label, too, because it is the default only while there is no other label"


def _additions(bundle: BundleFacts, keys: list[str]) -> Repair:
    if bundle.unknown:
        return bundle.repair((), f"the platforms of {', '.join(bundle.unknown)} are not known")
    subject = bundle.facts.object
    path = f"{subject.pointer}/metadata/labels"
    node = get(subject.metadata, "labels")
    if isinstance(node, MappingNode):
        return bundle.repair(tuple(Add(path + pointer(key), SUPPORTED) for key in keys))
    try:
        return bundle.repair((ensure(subject.document.value, path, dict.fromkeys(keys, SUPPORTED)),))
    except KeyError:
        return bundle.repair((), f"{subject.pointer}/metadata is not a mapping")
