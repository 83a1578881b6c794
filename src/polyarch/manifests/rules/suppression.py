"""Suppressions: annotations and comments that silence a finding, with a reason.

An annotation ``ignore-check.polyarch.dev/<ID>: reason`` applies to its object. A comment ``# polyarch:ignore <ID>
reason`` applies to its line if it follows something there, otherwise to the next line; in Go code it starts with
``//``. Both need a reason, for those who find them years later. A suppression that matches nothing is reported
(MA903), so that none outlives the finding it was written for.

Pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
from yaml.nodes import Node, ScalarNode

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import NO_OBJECT, Finding, ObjectReference, Span
from polyarch.manifests.operations import is_below
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.documents import unmatched
from polyarch.manifests.rules.engine import RepairableFinding
from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.nodes import entries, find, item, text_of
from polyarch.manifests.scan.scanning import Scan

PREFIX = "ignore-check.polyarch.dev/"
_WORD = "polyarch:ignore"
_BEHIND_THE_SIGN = (
    r"[ \t]*polyarch:ignore(?:[ \t]+(?P<ids>[A-Za-z0-9]+(?:[ \t]*,[ \t]*[A-Za-z0-9]+)*))?(?P<reason>[^\r\n]*)"
)
_COMMENT = re.compile(rf"(?:^|(?<=[ \t]))#{_BEHIND_THE_SIGN}", re.MULTILINE)
_GO_COMMENT = re.compile(rf"//{_BEHIND_THE_SIGN}")


@dataclass(eq=False)
class Suppression:
    """One suppressed rule, and where it is suppressed."""

    rule: str
    reason: str
    span: Span
    what: str
    """Its name in messages."""
    lines: frozenset[int] = frozenset()
    """For a comment: the lines it applies to."""
    document: int = 0
    subject: str | None = None
    """For an annotation: the pointer of its object."""
    object: ObjectReference = NO_OBJECT
    used: bool = field(default=False, compare=False)

    @property
    def problem(self) -> str:
        """Why it is invalid; empty if it is valid."""
        if self.rule not in RULES:
            return f"there is no rule {self.rule or 'named'}"
        return "" if self.reason else "it gives no reason"

    def fits(self, finding: Finding) -> bool:
        if self.problem or self.rule not in (finding.rule, finding.sub):
            return False
        if self.subject is None:
            return finding.span.line in self.lines
        return finding.document == self.document and is_below(finding.path, self.subject)


def suppressed(
    scan: Scan, problems: Iterable[RepairableFinding], *, selected: Callable[[str], bool] = lambda rule: True
) -> tuple[RepairableFinding, ...]:
    """The problems, marked where they are suppressed, and an MA903 for each suppression that matches none.

    A suppression of a rule that did not run (``selected``) is not reported: whether it matches is unknown.
    """
    found = tuple(problems)
    given = suppressions(scan)
    if not given:
        return found
    marked = []
    for problem in found:
        fitting = [each for each in given if each.fits(problem.finding)]
        for each in fitting:
            each.used = True
        if fitting:
            finding = msgspec.structs.replace(problem.finding, suppressed=fitting[0].reason)
            problem = replace(problem, finding=finding)
        marked.append(problem)
    if selected("MA903"):
        unused = [each for each in given if not each.used and (each.problem or selected(each.rule))]
        marked += [RepairableFinding(_unused(scan, each)) for each in unused]
    return tuple(sorted(marked, key=lambda problem: problem.finding.order))


def suppressions(scan: Scan) -> list[Suppression]:
    """All suppressions of a file, annotations first."""
    text = scan.source.text
    found = list(_annotations(scan)) if PREFIX in text else []
    return [*found, *_comments(scan)] if _WORD in text else found


def _annotations(scan: Scan) -> Iterator[Suppression]:
    """Those of objects, and of pod templates for their pods."""
    places = [(subject, subject.node, subject.pointer) for subject in scan.objects]
    known = {(subject.document.index, subject.pointer) for subject in scan.objects}
    for pod_spec in scan.pod_specs:
        outer = pod_spec.pointer.rpartition("/")[0]
        template = item(pod_spec.document.root, outer)
        if template is not None and (pod_spec.document.index, outer) not in known:
            known.add((pod_spec.document.index, outer))
            places.append((pod_spec.object, template, outer))
    for subject, node, where in places:
        for key, key_node, member in entries(find(node, "metadata", "annotations")):
            if key.startswith(PREFIX):
                yield Suppression(
                    rule=key.removeprefix(PREFIX),
                    reason=(text_of(member) or "").strip(),
                    span=subject.document.span(key_node),
                    what=f"annotation {key}",
                    document=subject.document.index,
                    subject=where,
                    object=subject.reference,
                )


def _comments(scan: Scan) -> Iterator[Suppression]:
    source = scan.source
    within = _scalars(scan)
    places: list[tuple[int, re.Match[str]]] = []
    alone: set[int] = set()
    for match in (_GO_COMMENT if source.path.endswith(".go") else _COMMENT).finditer(source.text):
        if any(start <= match.start() < end for start, end in within):
            continue
        line, column = source.place(match.start())
        places.append((line, match))
        if not source.line(line)[: column - 1].strip():
            alone.add(line)
    for line, match in places:
        following = line + 1
        while following in alone:  # consecutive comments apply to the same line
            following += 1
        lines = frozenset({following if line in alone else line})
        rules = [text.strip() for text in (match["ids"] or "").split(",")]
        for rule in rules:
            yield Suppression(
                rule=rule,
                reason=match["reason"].strip(),
                span=source.span(match.start(), match.end()),
                what=f"comment {_WORD} {rule}".rstrip(),
                lines=lines,
            )


def _scalars(scan: Scan) -> list[tuple[int, int]]:
    """The regions of scalars, in which ``#`` starts no comment."""
    found: list[tuple[int, int]] = []
    for document in scan.documents:
        stack: list[Node] = [document.root]
        visited: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in visited:
                continue
            visited.add(id(node))
            if isinstance(node, ScalarNode) and _WORD in node.value:
                found.append((document.start(node), document.end(node)))
            stack += children(node)
    return found


def _unused(scan: Scan, suppression: Suppression) -> Finding:
    reason = suppression.problem or "there is no such finding here"
    hints = {"it gives no reason": "write a reason after the rule", "": "remove it"}
    path = f"{suppression.subject}{pointer('metadata', 'annotations')}" if suppression.subject is not None else ""
    return unmatched(
        f"the {suppression.what} suppresses nothing: {reason}",
        hints.get(suppression.problem, "name a rule that polyarch lint --rules lists"),
        file=scan.source.path,
        span=suppression.span,
        mark=suppression.rule,
        object=suppression.object,
        path=path,
        document=suppression.document,
    )
