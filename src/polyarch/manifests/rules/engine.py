"""Runs the rules over one file: selection, severities, positions, fingerprints and order.

A rule sees one pod specification or one object. This module does what concerns all rules: an image used several times
in one object is reported once, deployments of a bundle are reported as MA205, and a repair of text that several users
share is kept only if all of them need the same one.

Pure: the same file, answers and options give the same findings in the same order.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
from yaml.nodes import Node

from polyarch.manifests.bundle import KIND, ServiceVersion
from polyarch.manifests.finding import NO_OBJECT, Finding, Repair, fingerprint
from polyarch.manifests.rules import constraints
from polyarch.manifests.rules.bundles import BundleFacts, bundled, related_places
from polyarch.manifests.rules.catalogue import (
    BUNDLE_RULES,
    DOCUMENT_RULES,
    IMAGE_RULES,
    OBJECT_RULES,
    POD_RULES,
    RULES,
    SOURCE_RULES,
)
from polyarch.manifests.rules.facts import FindingDraft, ObjectFacts, PodFacts
from polyarch.manifests.rules.images import places_of
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.pods import passed_images
from polyarch.manifests.rules.repairs import Entry, for_all_users
from polyarch.manifests.rules.source_files import SourceFinding
from polyarch.manifests.scan.nodes import named_pointer
from polyarch.manifests.scan.pod_specs import KubeObject
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, TextEdit
from polyarch.oci.reference import InvalidReference, parse

PodCheck = Callable[[PodFacts], Iterable[FindingDraft]]
ObjectCheck = Callable[[ObjectFacts], Iterable[FindingDraft]]


def check_images(facts: PodFacts) -> Iterator[FindingDraft]:
    """MA001 to MA011."""
    for place in places_of(facts):
        for rule in IMAGE_RULES:
            yield from rule.check(place)


def check_bundle(facts: ObjectFacts) -> Iterator[FindingDraft]:
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
class RepairableFinding:
    """A finding and its repair: operations, or a note that says why there is no automatic fix."""

    finding: Finding
    repair: Repair | None = None
    documents: tuple[object, ...] = ()
    """Objects that the repair adds as documents after the one it changes (MA117)."""
    edits: tuple[TextEdit, ...] = ()
    """Repair of a file that is not YAML (MA301): splices of its text; the operations are on its instructions."""


def lint(
    scan: Scan,
    answers: ImageInspections,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    *,
    object_checks: tuple[ObjectCheck, ...] = OBJECT_CHECKS,
) -> tuple[RepairableFinding, ...]:
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
    chosen = (rule.check for rule in POD_RULES if rule.rule.default or selected(options, rule.rule.id))
    return (check_images, constraints.check_constraints, *chosen)


def selected(options: LintOptions, rule: str) -> bool:
    """Whether a rule runs; rules that need a configuration run only with it."""
    configured = {"MA112": bool(options.prefer), "MA113": options.taints is not None, "MA008": options.lock is not None}
    default = configured.get(rule, RULES[rule].default)
    return options.selection.selects(rule, default=default)


def _is_selected(options: LintOptions, draft: FindingDraft) -> bool:
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


def _read(finding: Finding, options: LintOptions) -> RepairableFinding:
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
    return RepairableFinding(msgspec.structs.replace(finding, severity=severity, fingerprint=mark))


def problem(scan: Scan, subject: KubeObject, draft: FindingDraft, options: LintOptions) -> RepairableFinding:
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
    return RepairableFinding(finding, draft.repair, draft.documents)


# -- build files and code (MA3xx) --------------------------------------------------------------------------------------


def lint_source(
    source: SourceText,
    answers: ImageInspections,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
) -> tuple[RepairableFinding, ...]:
    """The findings of one build file or Go file, in order; repairs are edits of its text."""
    return tuple(
        _problem(source, hit, options)
        for rule in SOURCE_RULES
        if selected(options, rule.rule.id)
        for hit in rule.check(source, answers, options)
    )


def _problem(source: SourceText, hit: SourceFinding, options: LintOptions) -> RepairableFinding:
    rule = hit.rule
    span = source.span(hit.start, hit.end)
    finding = Finding(
        rule=rule.id,
        severity=options.severity(rule.id, rule.severity),
        message=hit.message,
        hint=hit.hint,
        file=source.path,
        span=span,
        images=hit.images,
        fixable=bool(hit.edits),
        fingerprint=_mark(source, hit),
        upstream=rule.upstream,
    )
    repair = Repair(hit.operations, note=hit.note) if hit.note or hit.operations else None
    return RepairableFinding(finding, repair, edits=hit.edits)


def _mark(source: SourceText, hit: SourceFinding) -> str:
    """Fingerprint by the text of the line, which stays the same while other lines move."""
    line = source.text[source.line_start(hit.start) : source.line_end(hit.start)].strip()
    return fingerprint(
        hit.rule.id, "", subject=NO_OBJECT, file=source.path, document=0, named_path=line, images=hit.images
    )


# -- the images that must be resolved before the rules can run ---------------------------------------------------------


def wanted(scan: Scan, options: LintOptions) -> tuple[str, ...]:
    """The image texts that the rules look up in ``sets.ImageInspections``, in order, each once."""
    return tuple(dict.fromkeys(_wanted(scan, options)))


def _wanted(scan: Scan, options: LintOptions) -> Iterator[str]:
    passed = selected(options, "MA116")
    for pod_spec in scan.pod_specs:
        yield from (use.resolved_text for use in pod_spec.images if use.resolved_text)
        if passed:
            yield from (image.text for image in passed_images(pod_spec))
    for subject in scan.objects:
        if subject.kind == KIND:
            own = (pod_spec for pod_spec in scan.pod_specs if pod_spec.object is subject)
            bundle = ServiceVersion.of(subject, own)
            yield from (image.text for image in bundle.images if image.is_in("variable", "related"))


def wanted_indexes(images: Iterable[str]) -> dict[str, str]:
    """For each text with tag and digest, the reference by tag: its answer, the index that the digest may be a child of,
    belongs into ``ImageInspections.indexes`` (MA004). Texts with a digest alone have none.
    """
    found = {}
    for text in images:
        if "@" not in text:
            continue
        try:
            reference = parse(text)
        except InvalidReference:
            continue
        if reference.tag is not None and reference.digest is not None:
            found[text] = msgspec.structs.replace(reference, digest=None).canonical
    return found
