"""Runs the rules over one file: selection, severities, positions, fingerprints and order (MF-030, MF-041).

A rule sees one pod specification or one object. This module does what concerns all rules: an image used several times
in one object is reported once, deployments of a bundle are reported as MA205, and a repair of text that several users
share is kept only if all of them need the same one (MF-053).

Pure: the same file, answers and options give the same findings in the same order.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
from yaml.nodes import Node

from polyarch.manifests.bundle.service_version import KIND
from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.finding import Finding, Repair, fingerprint
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts, related_places
from polyarch.manifests.lint.bundles.ma205_deployment import bundled
from polyarch.manifests.lint.catalogue import BUNDLE_RULES, DOCUMENT_RULES, IMAGE_RULES, OBJECT_RULES, POD_RULES, RULES
from polyarch.manifests.lint.constraints import precedence
from polyarch.manifests.lint.facts import Draft, ObjectFacts, PodFacts
from polyarch.manifests.lint.images.image_place import places_of
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.writing.sharing import Entry, for_all_users
from polyarch.manifests.scan.nodes import named_pointer
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import Answers

PodCheck = Callable[[PodFacts], Iterable[Draft]]
ObjectCheck = Callable[[ObjectFacts], Iterable[Draft]]


def check_images(facts: PodFacts) -> Iterator[Draft]:
    """MA001 to MA011."""
    for place in places_of(facts):
        for rule in IMAGE_RULES:
            yield from rule.check(place)


def check_bundle(facts: ObjectFacts) -> Iterator[Draft]:
    """The rules for bundles, for a whole ClusterServiceVersion; a patch of one is skipped."""
    if facts.object.kind != KIND or facts.object.patched_by is not None:
        return
    bundle = BundleFacts(facts)
    for place in related_places(bundle):
        for rule in IMAGE_RULES:
            yield from rule.check(place)
    for each in BUNDLE_RULES:
        yield from each.check(bundle)


OBJECT_CHECKS: tuple[ObjectCheck, ...] = (check_bundle, *(rule.check for rule in OBJECT_RULES))


@dataclass(frozen=True, eq=False)
class Problem:
    """A finding and its repair: operations, or a note that says why there is no automatic fix."""

    finding: Finding
    repair: Repair | None = None
    documents: tuple[object, ...] = ()
    """Objects that the repair adds as documents after the one it changes (MA117)."""
    edits: tuple[Edit, ...] = ()
    """Repair of a file that is not YAML (MA301): splices of its text instead of operations."""


def lint(
    scan: Scan,
    answers: Answers,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    *,
    object_checks: tuple[ObjectCheck, ...] = OBJECT_CHECKS,
) -> tuple[Problem, ...]:
    """All findings of a file in text order, those about reading the file included.

    The caller replaces ``object_checks`` if it knows more than the file says (a bundle with its subscription).
    """
    pods = [PodFacts(pod_spec, answers, options) for pod_spec in scan.pod_specs]
    drafts: list[Entry] = []
    for facts in pods:
        with _naming(facts.pod_spec.object, facts.pod_spec.node):
            drafts += [
                (facts.pod_spec.object, facts, bundled(facts, draft))
                for check in _pod_checks(options)
                for draft in check(facts)
            ]
    for subject in scan.objects:
        within = ObjectFacts(subject, tuple(each for each in pods if each.pod_spec.object is subject), answers, options)
        with _naming(subject, subject.node):
            drafts += [(subject, None, draft) for check in object_checks for draft in check(within)]
    drafts = [each for each in _once(drafts) if _is_selected(options, each[2])]
    if any(draft.repair and draft.repair.operations for _, _, draft in drafts):
        drafts = for_all_users(drafts, pods)
    read = (finding for rule in DOCUMENT_RULES for finding in rule.check(scan))
    problems = [_read(finding, options) for finding in read if selected(options, finding.rule)]
    problems += [problem(scan, subject, draft, options) for subject, _, draft in drafts]
    return tuple(sorted(problems, key=lambda each: each.finding.order))


@contextmanager
def _naming(subject: KubeObject, node: Node) -> Iterator[None]:
    """An error in a rule, which is a bug, says what it was looking at."""
    try:
        yield
    except Exception as error:
        error.add_note(f"line {subject.document.source.place(subject.document.start(node))[0]}, {subject.reference}")
        raise


def _pod_checks(options: LintOptions) -> tuple[PodCheck, ...]:
    """Rules that run only on request are left out otherwise: they need images that are not resolved then."""
    chosen = (rule.check for rule in POD_RULES if rule.RULE.default or selected(options, rule.RULE.id))
    return (check_images, precedence.check, *chosen)


def selected(options: LintOptions, rule: str) -> bool:
    """Whether a rule runs (MF-030); rules that need a configuration run only with it."""
    configured = {"MA112": bool(options.prefer), "MA113": options.taints is not None, "MA008": options.lock is not None}
    default = configured.get(rule, RULES[rule].default)
    return options.selection.selects(rule, default=default)


def _is_selected(options: LintOptions, draft: Draft) -> bool:
    return selected(options, draft.rule.id) and (draft.rule.id != "MA205" or selected(options, draft.sub))


def _once(drafts: Iterable[Entry]) -> list[Entry]:
    """Reports each problem of an image once per object, with the repairs of all its places."""
    found: dict[tuple[int, str, str], Entry] = {}
    for number, (subject, facts, draft) in enumerate(drafts):
        of_image = draft.rule.id.startswith("MA0")
        key = (id(subject), draft.rule.id, draft.message) if of_image else (number, "", "")
        if key in found:
            first = found[key][2]
            if first.repair and draft.repair and first.repair.operations and draft.repair.operations:
                more = (each for each in draft.repair.operations if each not in first.repair.operations)
                both = msgspec.structs.replace(first.repair, operations=(*first.repair.operations, *more))
                found[key] = (*found[key][:2], replace(first, repair=both))
        else:
            found[key] = subject, facts, draft
    return list(found.values())


def _read(finding: Finding, options: LintOptions) -> Problem:
    """A problem of the scan; without an object for a pointer, its fingerprint uses the file."""
    mark = fingerprint(
        finding.rule,
        finding.sub,
        subject=finding.object,
        file=finding.file,
        document=finding.document,
        named_path=finding.path,
    )
    severity = options.severity(finding.rule, finding.severity)
    return Problem(msgspec.structs.replace(finding, severity=severity, fingerprint=mark))


def problem(scan: Scan, subject: KubeObject, draft: Draft, options: LintOptions) -> Problem:
    """Turns a draft about an object of the file into a finding."""
    rule, document = draft.rule, subject.document
    reference = subject.reference
    finding = Finding(
        rule=rule.id,
        sub=draft.sub,
        severity=options.severity(rule.id, draft.severity or rule.severity),
        message=draft.message,
        hint=draft.hint,
        file=scan.source.path,
        span=document.span(draft.node),
        object=reference,
        path=draft.pointer,
        document=document.index,
        images=draft.images,
        platforms=draft.platforms,
        fixable=bool(draft.repair and draft.repair.operations),
        fingerprint=fingerprint(
            rule.id,
            draft.sub,
            subject=reference,
            file=scan.source.path,
            document=document.index,
            named_path=named_pointer(document.root, draft.pointer),
            images=draft.images,
        ),
        origin=subject.origin,
        upstream=rule.upstream,
    )
    return Problem(finding, draft.repair, draft.documents)
