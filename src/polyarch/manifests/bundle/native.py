"""Judging a bundle with the rules that hold everywhere else too (MF-072 to MF-075).

A bundle is its manifests, so the rules of ``polyarch.manifests.lint`` find nearly everything. What they cannot know by
themselves is added here: the subscription that the bundle will be installed with, and the image that it is shipped as.

Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from polyarch.manifests.bundle.loader import Bundle
from polyarch.manifests.bundle.service_version import ServiceVersion
from polyarch.manifests.lint import overrides
from polyarch.manifests.lint.engine import OBJECT_RULES, ObjectRule, Problem, lint, selected
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.overrides import Deployment
from polyarch.manifests.lint.wanted import wanted
from polyarch.manifests.scan.nodes import find, item, text_of, value
from polyarch.manifests.scan.pod_specs import PodSpec
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.suppression import suppressed
from polyarch.oci.answer import Inspection
from polyarch.platforms import NodePlatform

_EXPECTED = NodePlatform("linux", "amd64")


@dataclass(frozen=True)
class BundleImageAnswer:
    """The image that the bundle is shipped as (``--bundle-image``)."""

    text: str
    inspection: Inspection


def images(bundle: Bundle, options: LintOptions = LintOptions()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """The texts to resolve before :func:`validate`, once each, in the order of the manifests."""
    return tuple(dict.fromkeys(text for scan in bundle.scans for text in wanted(scan, options)))


def validate(
    bundle: Bundle,
    answers: Answers,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    *,
    subscriptions: Iterable[Scan] = (),
    bundle_image: BundleImageAnswer | None = None,
) -> tuple[Problem, ...]:
    """Everything that is wrong with the bundle, and with its subscriptions for this bundle; what somebody does not want
    to see has the reason (MF-032).
    """

    def judge_image(facts: ObjectFacts) -> Iterator[Draft]:
        if bundle_image is not None and facts.object is bundle.service_version.object:
            yield from _bundle_image(facts, bundle_image)

    rules = (*object_rules(bundle), judge_image)
    problems = [
        problem
        for scan in (*bundle.scans, *subscriptions)
        for problem in suppressed(
            scan, lint(scan, answers, options, object_rules=rules), selected=lambda rule: selected(options, rule)
        )
    ]
    return tuple(sorted(problems, key=lambda each: each.finding.order))


def object_rules(bundle: Bundle) -> tuple[ObjectRule, ...]:
    """The rules on objects where the bundle is known that a subscription installs: MA209 can say what it takes away,
    and give it back (MF-083).
    """
    deployments = deployments_of(bundle.service_version)

    def judge_override(facts: ObjectFacts) -> Iterator[Draft]:
        return overrides.drafts(facts.object, deployments)

    return (*(rule for rule in OBJECT_RULES if rule is not overrides.check), judge_override)


def deployments_of(service_version: ServiceVersion) -> list[Deployment]:
    """What OLM applies a subscription's config to."""
    return [Deployment(_name(service_version, each), value(each.node)) for each in service_version.pod_specs]


def _name(service_version: ServiceVersion, pod_spec: PodSpec) -> str:
    """Of the deployment; its index in the list where it has none."""
    subject = service_version.object
    path = pod_spec.pointer.removesuffix("/spec/template/spec")
    node = item(subject.document.root, path)
    return f"deployment {text_of(find(node, 'name')) or path.rpartition('/')[2]}"


def _bundle_image(facts: ObjectFacts, image: BundleImageAnswer) -> Iterator[Draft]:
    """MA208: catalogue tools expect the image of a bundle to be a single one, whatever the operator runs on."""
    platforms = image.inspection.node_platforms
    if len(image.inspection.entries) <= 1 and platforms in ((), (_EXPECTED,)):
        return
    listed = ", ".join(map(str, image.inspection.platforms))
    yield Draft(
        rule="MA208",
        message=f"the bundle image {image.text} of {facts.object.reference} has {listed}, and catalogue tools expect "
        f"{_EXPECTED} alone",
        hint=f"build the bundle image for {_EXPECTED}; it is data and runs nowhere",
        node=facts.object.node,
        pointer=facts.object.pointer,
        images=(image.text,),
    )
