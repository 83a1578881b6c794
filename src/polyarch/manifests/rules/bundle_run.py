"""Runs the rules over several files at once: a bundle or a catalog.

The rules for single files find most problems of a bundle. This module adds what they cannot know: the subscription
that installs the bundle, and the image that it is shipped as.

Pure.
"""

from collections.abc import Iterable, Iterator

from polyarch.manifests.bundle import Bundle, ServiceVersion
from polyarch.manifests.rules import bundles
from polyarch.manifests.rules.bundles import BundleImageAnswer
from polyarch.manifests.rules.engine import (
    OBJECT_CHECKS,
    ObjectCheck,
    RepairableFinding,
    lint,
    problem,
    selected,
    wanted,
)
from polyarch.manifests.rules.facts import FindingDraft, ObjectFacts
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.subscriptions import MA210, Deployment, check_catalog, check_overrides, override_drafts
from polyarch.manifests.rules.suppression import suppressed
from polyarch.manifests.scan.nodes import find, item, text_of, value
from polyarch.manifests.scan.pod_specs import PodSpec
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import ImageInspections


def images(bundle: Bundle, options: LintOptions = LintOptions()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """The texts to resolve before :func:`validate`, once each, in the order of the manifests."""
    return tuple(dict.fromkeys(text for scan in bundle.scans for text in wanted(scan, options)))


def validate(
    bundle: Bundle,
    answers: ImageInspections,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    *,
    subscriptions: Iterable[Scan] = (),
    bundle_image: BundleImageAnswer | None = None,
) -> tuple[RepairableFinding, ...]:
    """All problems of the bundle and of its subscriptions; suppressed ones have the reason."""

    def judge_image(facts: ObjectFacts) -> Iterator[FindingDraft]:
        if bundle_image is not None and facts.object is bundle.service_version.object:
            yield from bundles.check_bundle_image(facts, bundle_image)

    checks = (*object_checks(bundle), judge_image)
    problems = [
        problem
        for scan in (*bundle.scans, *subscriptions)
        for problem in suppressed(
            scan, lint(scan, answers, options, object_checks=checks), selected=lambda rule: selected(options, rule)
        )
    ]
    return tuple(sorted(problems, key=lambda each: each.finding.order))


def object_checks(bundle: Bundle) -> tuple[ObjectCheck, ...]:
    """The checks of objects if the bundle that a subscription installs is known: MA209 can then name and restore the
    lost constraint.
    """
    deployments = deployments_of(bundle.service_version)

    def judge_override(facts: ObjectFacts) -> Iterator[FindingDraft]:
        return override_drafts(facts.object, deployments)

    return (*(check for check in OBJECT_CHECKS if check is not check_overrides), judge_override)


def deployments_of(service_version: ServiceVersion) -> list[Deployment]:
    """The deployments to which OLM applies a subscription's config."""
    return [Deployment(_name(service_version, each), value(each.node)) for each in service_version.pod_specs]


def _name(service_version: ServiceVersion, pod_spec: PodSpec) -> str:
    """Of the deployment; its index in the list where it has none."""
    subject = service_version.object
    path = pod_spec.pointer.removesuffix("/spec/template/spec")
    node = item(subject.document.root, path)
    return f"deployment {text_of(find(node, 'name')) or path.rpartition('/')[2]}"


def lint_catalog(scans: Iterable[Scan], options: LintOptions = LintOptions()) -> tuple[RepairableFinding, ...]:  # noqa: B008 - frozen
    """MA210 for every package of the catalogs in these files, in their order."""
    if not selected(options, MA210.id):
        return ()
    owner = {id(subject): scan for scan in scans for subject in scan.objects}
    found = check_catalog(subject for scan in dict.fromkeys(owner.values()) for subject in scan.objects)
    problems = [problem(owner[id(subject)], subject, draft, options) for subject, draft in found]
    return tuple(sorted(problems, key=lambda each: each.finding.order))
