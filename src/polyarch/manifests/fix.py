"""Fixes a file in rounds, until nothing is left to fix.

A repair can enable, change or obsolete another one. So a round applies at most one repair per pod specification,
parses the new text and runs the rules again. The outcome is proven (``proof.py``); if that fails, the file stays as it
was and gets MA904. Positions of remaining findings are those of the new text; :meth:`FixResult.with_places_before` maps
them to the old one.

Pure: a text in, a text out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from polyarch.kube.patches import pointer
from polyarch.manifests.edit.editor import add_documents, check_end, render
from polyarch.manifests.edit.layout import CannotEdit, commented_affinity
from polyarch.manifests.finding import Finding
from polyarch.manifests.operations import (
    Add,
    OperationError,
    Remove,
    Rename,
    TreeOperation,
    is_below,
    rebase,
    segments,
)
from polyarch.manifests.proof import prove
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.documents import unproven
from polyarch.manifests.rules.engine import OBJECT_CHECKS, ObjectCheck, RepairableFinding, lint, lint_source, selected
from polyarch.manifests.rules.options import LintOptions, Selection
from polyarch.manifests.rules.repairs import SharedText, shared_texts
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.rules.suppression import suppressed
from polyarch.manifests.scan.nodes import Document
from polyarch.manifests.scan.pod_specs import PodSpec
from polyarch.manifests.scan.scanning import NO_KUSTOMIZATIONS, Kustomizations, Scan, scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, TextEdit, offset_before, splice


class UnfixedFinding(msgspec.Struct, frozen=True):
    """A finding that was not fixed, and why."""

    finding: Finding
    note: str


class FixRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``polyarch fix``; ``options.fixes`` says what repairs may change."""

    options: LintOptions = LintOptions()
    only: tuple[str, ...] = ()
    """Rules to repair, by id or pattern; empty: all."""
    uncomment: bool = False
    """Uncomment an affinity instead of writing another one beside it."""
    object_checks: tuple[ObjectCheck, ...] = OBJECT_CHECKS
    """Other checks if the bundle that a subscription installs is known."""


def identity(finding: Finding) -> tuple[str, str, str, int]:
    """The same for a finding before and after other findings are fixed, as long as no documents are added."""
    return finding.rule, finding.sub, finding.path, finding.document


@dataclass(frozen=True, eq=False)
class FixResult:
    """A file after its fixes."""

    source: SourceText
    """As it was."""
    text: str
    applied: tuple[Finding, ...] = ()
    refused: tuple[UnfixedFinding, ...] = ()
    remaining: tuple[Finding, ...] = ()
    """Findings of the new text, suppressed ones included."""
    before: tuple[Finding, ...] = ()
    """Findings of the old text, suppressed ones included."""
    operations: dict[int, tuple[TreeOperation, ...]] = field(default_factory=dict)
    """Applied operations in order, by document number."""
    notes: dict[tuple[str, str, str, int], str] = field(default_factory=dict)
    """Why findings of the old text are not fixed, with lines of the old text, by :func:`identity`."""
    added: dict[int, tuple[object, ...]] = field(default_factory=dict)
    """Objects added as documents, by the number of the document before them."""
    rounds: tuple[tuple[TextEdit, ...], ...] = ()
    """The edits of each round, against the text of the round before; added documents come last."""
    unproven: Finding | None = None
    """MA904: the file was left as it was."""

    @property
    def changed(self) -> bool:
        return self.text != self.source.text

    def changes(self) -> Iterator[tuple[int, str, str]]:
        """Every change of a value in order: number of the document, operation and path as in a JSON Patch."""
        for number, operations in sorted(self.operations.items()):
            for operation in operations:
                match operation:
                    case Rename():
                        yield number, "remove", operation.pointer
                        yield number, "add", pointer(*segments(operation.pointer)[:-1], operation.key)
                    case _:
                        yield number, type(operation).__name__.lower(), operation.pointer

    def with_places_before(self) -> "FixResult":
        """The same result with remaining findings at their positions in the old text."""
        if not self.changed:
            return self
        moved = {id(finding): self._before(finding) for finding in self.remaining}
        return replace(
            self,
            remaining=tuple(moved.values()),
            refused=tuple(
                UnfixedFinding(found := moved[id(each.finding)], self.notes.get(identity(found), each.note))
                for each in self.refused
            ),
        )

    def _before(self, finding: Finding) -> Finding:
        start, end = finding.span.start, finding.span.end
        for edits in reversed(self.rounds):
            start, end = offset_before(start, edits), offset_before(end, edits)
        number = _number_before(self.added, finding.document)
        return msgspec.structs.replace(finding, span=self.source.span(start, max(start, end)), document=number)


def _number_before(added: Mapping[int, Sequence[object]], number: int) -> int:
    """The number of a document before documents were added; of an added one that of the document before it."""
    for place in sorted(added):
        if number > place:
            number = max(place, number - len(added[place]))
    return number


# -- rounds of repairs, until nothing is left to fix -------------------------------------------------------------------


ROUNDS = 20
_ORDER = {rule: place for place, rule in enumerate(RULES)}


@dataclass(frozen=True, eq=False)
class _Change:
    """A repair to write in this round, or several that edit the same shared text."""

    problems: tuple[RepairableFinding, ...]
    document: int
    operations: tuple[TreeOperation, ...]
    edits: tuple[TextEdit, ...]
    uncommented: str | None = None


class _VerificationError(Exception):
    pass


def fix(
    source: SourceText,
    answers: ImageInspections,
    request: FixRequest,
    *,
    kustomizations: Kustomizations = NO_KUSTOMIZATIONS,
    mark: Callable[[Iterable[RepairableFinding]], tuple[RepairableFinding, ...]] = tuple,
) -> FixResult:
    """Fixes everything in the file that can be fixed and was requested.

    ``mark`` may suppress problems, for example those of a baseline; suppressed ones are not fixed.
    """
    if is_source(source.path):
        return _fix_source(source, answers, request, mark)
    return _Fixing(source, answers, request, kustomizations, mark).result()


def is_wanted(finding: Finding, only: Sequence[str]) -> bool:
    """Whether ``--only`` matches the finding's rule, or the rule in the ``sub`` of an MA205."""
    chosen = Selection(include=tuple(only))
    names = (finding.rule, finding.sub) if finding.rule == "MA205" else (finding.rule,)
    return not only or any(chosen.selects(name, default=False) for name in names)


@dataclass(eq=False)
class _Fixing:
    """The state of fixing one file."""

    source: SourceText
    answers: ImageInspections
    request: FixRequest
    kustomizations: Kustomizations
    mark: Callable[[Iterable[RepairableFinding]], tuple[RepairableFinding, ...]]
    applied: list[Finding] = field(default_factory=list)
    impossible: dict[tuple[str, str, str, int], str] = field(default_factory=dict)
    """Why the editor could not write a repair in the last round, by the finding's identity: what another repair has
    written since may have made it possible.
    """
    uncommented: set[tuple[int, str]] = field(default_factory=set)
    """Document number and pointer of the pod specifications whose affinity was uncommented."""
    operations: dict[int, tuple[TreeOperation, ...]] = field(default_factory=dict)
    rounds: list[tuple[TextEdit, ...]] = field(default_factory=list)
    added: dict[int, tuple[object, ...]] = field(default_factory=dict)

    def result(self) -> FixResult:
        text = self.source.text
        earlier = {text}
        read: list[Scan] = []
        before: tuple[RepairableFinding, ...] | None = None
        notes: dict[tuple[str, str, str, int], str] = {}
        try:
            for _ in range(ROUNDS):
                found = self._scan(text)
                read.append(found)
                problems = self._problems(found)
                changes = self._changes(found, problems)
                if before is None:
                    before = problems
                    notes = {identity(each.finding): each.repair.note for each in problems if each.repair}
                    notes |= self.impossible
                if not changes:
                    break
                text = self._written(found, changes)
                if text in earlier:
                    rules = sorted({problem.finding.rule for change in changes for problem in change.problems})
                    raise _VerificationError(f"the fixes of {' and '.join(rules)} change nothing, or undo each other")
                earlier.add(text)
            else:
                found = self._scan(text)
                problems = self._problems(found)
            if any(self.added.values()):
                text = self._with_additions(text)
                found = self._scan(text)
                problems = self._problems(found)
            self._prove(text, read[0], found)
        except _VerificationError as failure:
            return _unproven(self.source, before or (), str(failure))
        return FixResult(
            source=self.source,
            text=text,
            applied=tuple(self.applied),
            refused=tuple(self._refusals(problems)),
            remaining=tuple(problem.finding for problem in problems),
            before=tuple(problem.finding for problem in before or ()),
            operations=self.operations,
            notes={key: note for key, note in notes.items() if note},
            added=self.added,
            rounds=tuple(self.rounds),
        )

    def _scan(self, text: str) -> Scan:
        return scan(self.source.replaced(text), kustomizations=self.kustomizations)

    def _problems(self, found: Scan) -> tuple[RepairableFinding, ...]:
        options = self.request.options
        problems = lint(found, self.answers, options, object_checks=self.request.object_checks)
        if self.uncommented:
            # Values from a comment are scaffolding: they may be replaced and widened without the flags.
            free = msgspec.structs.replace(options.fixes, widen=True, replace=True)
            options = msgspec.structs.replace(options, fixes=free)
            freed = lint(found, self.answers, options, object_checks=self.request.object_checks)
            repairs = {
                identity(each.finding): each for each in freed if self._pod_key(found, each.finding) in self.uncommented
            }
            problems = tuple(repairs.get(identity(problem.finding), problem) for problem in problems)
        return self.mark(suppressed(found, problems, selected=lambda rule: selected(options, rule)))

    def _changes(self, found: Scan, problems: Iterable[RepairableFinding]) -> list[_Change]:
        """The repairs of this round: one per pod specification, and none that overlaps another."""
        taken: set[tuple[int, str]] = set()
        touched: dict[int, list[str]] = {}
        equal: set[tuple[int, bytes]] = set()
        changes: list[_Change] = []
        self.impossible = {}
        for group in _by_shared_text(found, sorted(self._candidates(problems), key=_place_in_order)):
            keys = {self._pod_key(found, problem.finding) for problem in group}
            change = None if keys & taken else self._change(found, group)
            if change is None:
                continue
            same = (change.document, msgspec.json.encode(change.operations))
            places = [_touched(operation) for operation in change.operations]
            others = touched.setdefault(change.document, [])
            if same in equal:
                self.applied += [problem.finding for problem in group]
            elif not any(_overlap(one, other) for one in places for other in others):
                equal.add(same)
                others += places
                taken |= keys
                changes.append(change)
        return changes

    def _candidates(self, problems: Iterable[RepairableFinding]) -> Iterator[RepairableFinding]:
        for problem in problems:
            finding = problem.finding
            if finding.suppressed is not None or not is_wanted(finding, self.request.only):
                continue
            if problem.repair and problem.repair.operations:
                yield problem

    def _change(self, found: Scan, group: Sequence[RepairableFinding]) -> _Change | None:
        """The repairs as edits; None if the editor cannot write them, with the reason in ``impossible``."""
        repairs = [problem.repair for problem in group if problem.repair is not None]
        document = found.document(repairs[0].document)
        if self.request.uncomment and len(group) == 1:
            change = self._uncommented(found, group[0], document)
            if change is not None:
                return change
        once = {msgspec.json.encode(repair.operations): repair.operations for repair in repairs}
        operations = tuple(operation for own in once.values() for operation in own)
        try:
            if self._additions(group):
                check_end(document)
            edits = render(found.source, document, operations)
        except (CannotEdit, OperationError) as error:
            self.impossible |= {identity(problem.finding): str(error) for problem in group}
            return None
        return _Change(tuple(group), document.index, operations, edits)

    def _uncommented(self, found: Scan, problem: RepairableFinding, document: Document) -> _Change | None:
        pod_spec = _pod_spec(found, problem.finding)
        if pod_spec is None or problem.repair is None:
            return None
        if (document.index, pod_spec.pointer) in self.uncommented or id(pod_spec.node) in document.merged:
            return None
        if set(document.uses.get(id(pod_spec.node), pod_spec.uses)) != set(pod_spec.uses):
            return None
        where = f"{pod_spec.pointer}/affinity"
        if not any(isinstance(each, Add) and each.pointer == where for each in problem.repair.operations):
            return None
        commented = commented_affinity(document, pod_spec.pointer)
        if commented is None:
            return None
        operations = (Add(where, commented.value),)
        for use in pod_spec.uses:
            if use != pod_spec.pointer:
                operations += rebase(operations[:1], pod_spec.pointer, use)  # type: ignore[assignment]
        return _Change((problem,), document.index, operations, (commented.edit,), uncommented=pod_spec.pointer)

    def _written(self, found: Scan, changes: Sequence[_Change]) -> str:
        """The text after the changes of a round."""
        edits: list[TextEdit] = []
        for number in sorted({change.document for change in changes}):
            document = found.document(number)
            own = [change for change in changes if change.document == number]
            own, written = _together(found.source, document, own)
            operations = tuple(operation for change in own for operation in change.operations)
            edits += written
            self.operations[number] = self.operations.get(number, ()) + operations
            for change in own:
                self.applied += [problem.finding for problem in change.problems]
                self.added[number] = (*self.added.get(number, ()), *self._additions(change.problems))
                if change.uncommented is not None:
                    self.uncommented.add((number, change.uncommented))
        self.rounds.append(tuple(edits))
        return splice(found.source.text, edits)

    def _additions(self, problems: Iterable[RepairableFinding]) -> list[object]:
        """The documents that repairs add, without those that are added already."""
        known = [each for objects in self.added.values() for each in objects]
        return [each for problem in problems for each in problem.documents if each not in known]

    def _prove(self, text: str, before: Scan, after: Scan) -> None:
        if text == self.source.text:
            return
        documents = None if after.syntax or after.template is not None else (before.documents, after.documents)
        uncommented = bool(self.uncommented)
        problem = prove(self.source, text, self.operations, self.added, documents=documents, uncommented=uncommented)
        if problem is not None:
            raise _VerificationError(problem)

    def _with_additions(self, text: str) -> str:
        self.added = {number: objects for number, objects in self.added.items() if objects}
        edits = add_documents(self.source.replaced(text), self.added)
        self.rounds.append(edits)
        return splice(text, edits)

    def _pod_key(self, found: Scan, finding: Finding) -> tuple[int, str]:
        pod_spec = _pod_spec(found, finding)
        return finding.document, pod_spec.pointer if pod_spec is not None else finding.path

    def _refusals(self, problems: Iterable[RepairableFinding]) -> Iterator[UnfixedFinding]:
        for problem in problems:
            finding = problem.finding
            if finding.suppressed is not None or not is_wanted(finding, self.request.only):
                continue
            before = msgspec.structs.replace(finding, document=_number_before(self.added, finding.document))
            note = self.impossible.get(identity(before)) or (problem.repair.note if problem.repair else "")
            if note:
                yield UnfixedFinding(finding, note)
            elif problem.repair and problem.repair.operations:
                yield UnfixedFinding(finding, f"it is still there after {ROUNDS} rounds; run polyarch fix again")


def _unproven(source: SourceText, problems: Sequence[RepairableFinding], problem: str) -> FixResult:
    """The file as it was, with the reason and all its findings."""
    finding = unproven(source, problem)
    findings = (finding, *(each.finding for each in problems))
    return FixResult(
        source=source,
        text=source.text,
        remaining=findings,
        before=tuple(each.finding for each in problems),
        unproven=finding,
    )


def _fix_source(
    source: SourceText,
    answers: ImageInspections,
    request: FixRequest,
    mark: Callable[[Iterable[RepairableFinding]], tuple[RepairableFinding, ...]],
) -> FixResult:
    """Fixes a build file: its repairs are edits of lines, and operations on its instructions."""
    options = request.options
    applied: list[Finding] = []
    operations: tuple[TreeOperation, ...] = ()
    rounds: list[tuple[TextEdit, ...]] = []

    def problems_of(text: SourceText) -> tuple[RepairableFinding, ...]:
        found = lint_source(text, answers, options)
        return mark(suppressed(Scan(text), found, selected=lambda rule: selected(options, rule)))

    def is_asked(problem: RepairableFinding) -> bool:
        return problem.finding.suppressed is None and is_wanted(problem.finding, request.only)

    now, before = source, problems_of(source)
    for _ in range(ROUNDS):
        wanted = [problem for problem in problems_of(now) if problem.edits and is_asked(problem)]
        if not wanted:
            break
        applied.append(wanted[0].finding)
        operations += wanted[0].repair.operations if wanted[0].repair is not None else ()
        rounds.append(tuple(wanted[0].edits))
        now = source.replaced(splice(now.text, wanted[0].edits))
    left = problems_of(now)
    problem = prove(source, now.text, {0: operations}) if now.text != source.text else None
    if problem is not None:
        return _unproven(source, before, problem)
    return FixResult(
        source=source,
        text=now.text,
        applied=tuple(applied),
        operations={0: operations} if operations else {},
        refused=tuple(
            UnfixedFinding(each.finding, each.repair.note)
            for each in left
            if each.repair is not None and each.repair.note and is_asked(each)
        ),
        remaining=tuple(problem.finding for problem in left),
        before=tuple(problem.finding for problem in before),
        rounds=tuple(rounds),
    )


def _together(source: SourceText, document: Document, changes: list[_Change]) -> tuple[list[_Change], list[TextEdit]]:
    """The edits of several changes of a document, rendered together; if that is impossible, those of the first change
    alone.
    """
    uncommented = [change for change in changes if change.uncommented is not None]
    others = [change for change in changes if change.uncommented is None]
    edits = [edit for change in uncommented for edit in change.edits]
    if not others:
        return uncommented, edits
    try:
        written = render(source, document, [each for change in others for each in change.operations])
        splice(source.text, [*edits, *written])
    except (CannotEdit, OperationError, ValueError):
        first = changes[0]
        return [first], list(first.edits)
    return [*uncommented, *others], [*edits, *written]


def _pod_spec(found: Scan, finding: Finding) -> PodSpec | None:
    """The pod specification of a finding, if any."""
    fitting = [
        pod_spec
        for pod_spec in found.pod_specs
        if pod_spec.document.index == finding.document and is_below(finding.path, pod_spec.pointer)
    ]
    return max(fitting, key=lambda pod_spec: len(pod_spec.pointer), default=None)


def _by_shared_text(found: Scan, problems: Sequence[RepairableFinding]) -> list[list[RepairableFinding]]:
    """The problems in the same order, with those together whose repairs edit the same shared text alike: one cannot be
    written without the other.
    """
    groups: dict[int, list[RepairableFinding]] = {number: [problem] for number, problem in enumerate(problems)}
    group_of: dict[SharedText, int] = {}
    for number, problem in enumerate(problems):
        repair, finding = problem.repair, problem.finding
        if repair is None or not found.document(repair.document).shared:
            continue
        try:
            texts = shared_texts(found.document(repair.document), repair.operations, finding.rule, finding.sub)
        except (CannotEdit, OperationError):
            continue
        joined = sorted({number, *(group_of[text] for text in texts if text in group_of)})
        for other in joined[1:]:
            groups[joined[0]] += groups.pop(other)
        group_of |= {text: joined[0] for text, group in group_of.items() if group in joined}
        group_of |= dict.fromkeys(texts, joined[0])
    return list(groups.values())


def _place_in_order(problem: RepairableFinding) -> tuple[int, tuple[str, int, int, str, str, str]]:
    """The order of the list of rules."""
    finding = problem.finding
    rule = finding.sub if finding.rule == "MA205" and finding.sub in _ORDER else finding.rule
    return _ORDER[rule], finding.order


def _touched(operation: TreeOperation) -> str:
    """The pointer that no other repair of the round may touch: for an added or removed element the whole list, because
    later indexes change.
    """
    parent, _, last = operation.pointer.rpartition("/")
    moves = isinstance(operation, Add | Remove) and (last == "-" or last.isdigit())
    return parent if moves else operation.pointer


def _overlap(one: str, other: str) -> bool:
    return is_below(one, other) or is_below(other, one)
