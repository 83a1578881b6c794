"""Runs the rules over one file: selection, severities, positions, fingerprints and order (MF-030, MF-041).

A rule knows about one pod specification or one object. What concerns all of them is here: an image that stands in one
object several times is complained about once, deployments of a bundle have ids of their own (MA205), and a repair of
something that the text shares between several users is made only if all of them need the same (MF-053).

Pure: the same file, answers and options give the same findings in the same order.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec

from polyarch.manifests.catalogue import RULES
from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.finding import Finding, Repair, fingerprint
from polyarch.manifests.lint import (
    architectures,
    csv,
    csv_images,
    environment,
    images,
    obsolete,
    overrides,
    preferences,
    systems,
    tolerations,
    unused,
    values,
)
from polyarch.manifests.lint.facts import Draft, ObjectFacts, PodFacts
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.sharing import Entry, for_all_users
from polyarch.manifests.scan.nodes import named_pointer
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import Answers

PodRule = Callable[[PodFacts], Iterable[Draft]]
ObjectRule = Callable[[ObjectFacts], Iterable[Draft]]

POD_RULES: tuple[PodRule, ...] = (
    images.check,
    architectures.check,
    unused.check,
    systems.check,
    values.check,
    preferences.check,
    tolerations.check,
    environment.check_init,
)
OPTIONAL_POD_RULES: tuple[tuple[str, PodRule], ...] = (("MA116", environment.check_passed),)
"""Not even asked unless selected: they need images that nobody resolves otherwise."""
OBJECT_RULES: tuple[ObjectRule, ...] = (
    obsolete.check,
    csv.check,
    csv_images.check,
    csv_images.check_children,
    overrides.check,
)

BUNDLED = frozenset({"MA101", "MA102", "MA103", "MA106", "MA107", "MA109"})
"""Reported as MA205 in the deployments of a ClusterServiceVersion."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A finding, and what would repair it: operations, or the note that says why a program cannot."""

    finding: Finding
    repair: Repair | None = None
    documents: tuple[object, ...] = ()
    """Objects that the repair adds as documents of their own behind the one it changes (MA117)."""
    edits: tuple[Edit, ...] = ()
    """What repairs a file that is no YAML (MA301): splices of its text instead of operations."""


def lint(
    scan: Scan,
    answers: Answers,
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    *,
    object_rules: tuple[ObjectRule, ...] = OBJECT_RULES,
) -> tuple[Problem, ...]:
    """All findings of a file in the order of the text; those about reading the file too.

    ``object_rules`` are others than usual where more is known than the file says (a bundle with its subscription).
    """
    pods = [PodFacts(pod_spec, answers, options) for pod_spec in scan.pod_specs]
    drafts: list[Entry] = [
        (facts.pod_spec.object, facts, _bundled(facts, draft))
        for facts in pods
        for rule in _pod_rules(options)
        for draft in rule(facts)
    ]
    for subject in scan.objects:
        within = ObjectFacts(subject, tuple(each for each in pods if each.pod_spec.object is subject), answers, options)
        drafts += [(subject, None, draft) for rule in object_rules for draft in rule(within)]
    drafts = [each for each in _once(drafts) if _is_selected(options, each[2])]
    if any(draft.repair and draft.repair.operations for _, _, draft in drafts):
        drafts = for_all_users(drafts, pods)
    problems = [_read(finding, options) for finding in scan.problems if selected(options, finding.rule)]
    problems += [problem(scan, subject, draft, options) for subject, _, draft in drafts]
    return tuple(sorted(problems, key=lambda each: each.finding.order))


def _pod_rules(options: LintOptions) -> tuple[PodRule, ...]:
    return (*POD_RULES, *(rule for name, rule in OPTIONAL_POD_RULES if selected(options, name)))


def selected(options: LintOptions, rule: str) -> bool:
    """Whether a rule runs (MF-030): the configured ones only when there is a configuration for them."""
    configured = {"MA112": bool(options.prefer), "MA113": options.taints is not None, "MA008": options.lock is not None}
    default = configured.get(rule, RULES[rule].default)
    return options.selection.selects(rule, default=default)


def _is_selected(options: LintOptions, draft: Draft) -> bool:
    return selected(options, draft.rule) and (draft.rule != "MA205" or selected(options, draft.sub))


def _bundled(facts: PodFacts, draft: Draft) -> Draft:
    if draft.rule not in BUNDLED or facts.pod_spec.object.kind != "ClusterServiceVersion":
        return draft
    severity = draft.severity or RULES[draft.rule].severity
    return replace(draft, rule="MA205", sub=draft.rule, severity=facts.options.severity(draft.rule, severity))


def _once(
    drafts: Iterable[Entry],
) -> Iterator[Entry]:
    """What is wrong with an image is said once for each object."""
    seen: set[tuple[int, str, str]] = set()
    for subject, facts, draft in drafts:
        if draft.rule.startswith("MA0"):
            key = (id(subject), draft.rule, draft.message)
            if key in seen:
                continue
            seen.add(key)
        yield subject, facts, draft


def _read(finding: Finding, options: LintOptions) -> Problem:
    """What scanning found; it has no object to count pointers in, so its place is the file."""
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
    """The finding that a draft about an object of the file becomes."""
    rule, document = RULES[draft.rule], subject.document
    reference = subject.reference
    finding = Finding(
        rule=draft.rule,
        sub=draft.sub,
        severity=options.severity(draft.rule, draft.severity or rule.severity),
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
            draft.rule,
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
