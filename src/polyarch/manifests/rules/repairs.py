"""The operations of repairs: required node affinity, replaced architectures, and text that several users share.

Invariant: after :func:`restrict` a node is admitted iff it was admitted before and its platform is in the target. So
user expressions lose only values that no image has; missing expressions are added, and a term is repeated only where
operating systems differ in their architectures.

Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import msgspec
from yaml.nodes import MappingNode, Node, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.edit.draft import SharedEdit, shared_edits, sharing
from polyarch.manifests.edit.layout import CannotEdit
from polyarch.manifests.finding import Repair
from polyarch.manifests.operations import (
    Add,
    OperationError,
    Remove,
    Replace,
    TreeOperation,
    apply,
    ensure,
    is_below,
    read,
    rebase,
)
from polyarch.manifests.rules.facts import FindingDraft, PodFacts, RepairError
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.nodes import Document, get, is_null, item, value
from polyarch.manifests.scan.pod_specs import REQUIRED, TERMS, Expression, KubeObject, LabelEntry, PodSpec, Term
from polyarch.manifests.scan.sets import ARCHITECTURE_KEY, OS_KEY, NodeRequirement, meant_architecture
from polyarch.platforms import NodePlatform
from polyarch.selectors import Requirement

Platforms = frozenset[NodePlatform]


@dataclass(frozen=True)
class RepairGroup:
    """Operating systems with the same architectures: two expressions describe their product."""

    architectures: tuple[str, ...]
    systems: tuple[str, ...]

    @property
    def architecture_clause(self) -> Requirement:
        return Requirement(ARCHITECTURE_KEY, "In", self.architectures)

    @property
    def os_clause(self) -> Requirement:
        return Requirement(OS_KEY, "In", self.systems)

    @property
    def clauses(self) -> tuple[Requirement, ...]:
        return self.architecture_clause, self.os_clause


def groups(platforms: Iterable[NodePlatform]) -> tuple[RepairGroup, ...]:
    """One group if every system has the same architectures, else one for each system, in order."""
    by_system: dict[str, tuple[str, ...]] = {}
    for platform in sorted(platforms):
        by_system[platform.os] = (*by_system.get(platform.os, ()), platform.architecture)
    if len(set(by_system.values())) == 1:
        return (RepairGroup(next(iter(by_system.values())), tuple(by_system)),)
    return tuple(RepairGroup(architectures, (system,)) for system, architectures in by_system.items())


def expression(clause: Requirement) -> dict[str, Any]:
    """The clause as a member of ``matchExpressions``."""
    return {"key": clause.key, "operator": clause.operator, "values": list(clause.values)}


def non_empty(facts: PodFacts) -> tuple[Term, ...]:
    required = facts.pod_spec.required
    return tuple(term for term in required.terms if not term.is_empty) if required else ()


def restrict(
    facts: PodFacts,
    *,
    only: Callable[[Term], bool] = lambda term: True,
    selector: Sequence[NodeRequirement] | None = None,
) -> tuple[TreeOperation, ...]:
    """Make the terms that ``only`` selects admit only the target; create terms if there are none.

    ``selector`` replaces the node selector if another operation of the same repair changes it. Raises
    :class:`RepairError`.
    """
    selector = facts.constraints.selector if selector is None else tuple(selector)
    scope = _Scope(facts.target.platforms, facts.target.considered, tuple(selector))
    terms = non_empty(facts)
    if not terms:
        return (new_terms(facts, scope.new_terms()),)
    operations: list[TreeOperation] = []
    for term in reversed(terms):  # from the end, so that indexes stay those of the text
        if only(term):
            operations += _restrict_term(scope, term)
    return tuple(operations)


def add_systems(facts: PodFacts) -> tuple[TreeOperation, ...]:
    """Add an ``In`` of the systems that the target has to each term without an os constraint (MA106)."""
    scope = _Scope(facts.target.platforms, facts.target.considered, facts.constraints.selector)
    terms = non_empty(facts)
    if not terms:
        return (new_terms(facts, [_term([_systems(scope.reachable(()) or scope.target)])]),)
    operations: list[TreeOperation] = []
    for term in terms:
        if not any(map(sets.is_os_constraint, term.expressions)):
            operations += append(term, [_systems(scope.reachable(term.expressions) or scope.target)])
    return tuple(operations)


def _systems(platforms: Platforms) -> Requirement:
    return Requirement(OS_KEY, "In", tuple(sorted({platform.os for platform in platforms})))


def new_terms(facts: PodFacts, terms: list[dict[str, Any]]) -> TreeOperation:
    """One operation that creates required terms, with the missing mappings above them."""
    required = facts.pod_spec.required
    if required is not None and required.terms:
        raise RepairError("none of its terms matches any node; write the expressions of one")
    return in_node_affinity(facts, (REQUIRED, TERMS), terms)[0]


def in_node_affinity(facts: PodFacts, path: tuple[str, ...], members: list[Any]) -> list[TreeOperation]:
    """Append members to a list in ``nodeAffinity``, creating the missing mappings above it."""
    node, where = facts.pod_spec.affinity
    rest = ("nodeAffinity", *path)
    if is_null(node) and facts.pod_spec.place.refused:
        raise RepairError(facts.pod_spec.place.refused)
    while rest and isinstance(node, MappingNode):
        node, where, rest = get(node, rest[0]), f"{where}/{rest[0]}", rest[1:]
    if not rest:
        return extend(node, where, members)
    if not is_null(node):
        raise RepairError(f"{where} is not a mapping")
    document = facts.pod_spec.document
    if node is None and item(document.root, where.rpartition("/")[0]) is None:
        try:
            return [ensure(document.value, where + pointer(*rest), members)]
        except KeyError as error:
            raise RepairError(f"{error.args[0].rpartition('/')[0]} is not a mapping") from None
    value = reduce(lambda member, segment: {segment: member}, reversed(rest), cast("Any", members))
    return [Add(where, value) if node is None else Replace(where, value)]


def extend(node: Node | None, where: str, members: list[Any]) -> list[TreeOperation]:
    """Append members to the list ``node`` at ``where``, which may be missing, null or empty. Raises
    :class:`RepairError` if it is not a list.
    """
    if node is None:
        return [Add(where, members)]
    if is_null(node) or (isinstance(node, SequenceNode) and not node.value):
        return [Replace(where, members)]
    if not isinstance(node, SequenceNode):
        raise RepairError(f"{where} is not a list")
    return [Add(f"{where}/-", member) for member in members]


def append(term: Term, clauses: Sequence[Requirement]) -> list[TreeOperation]:
    """Add expressions to the end of a term."""
    added = [expression(clause) for clause in clauses]
    return extend(get(term.node, "matchExpressions"), f"{term.pointer}/matchExpressions", added) if added else []


def _term(clauses: Iterable[Requirement]) -> dict[str, Any]:
    return {"matchExpressions": [expression(clause) for clause in clauses]}


@dataclass(frozen=True)
class _Scope:
    """The target, the considered platforms, and the clauses of the node selector."""

    target: Platforms
    considered: Platforms
    selector: tuple[NodeRequirement, ...]

    def admits(self, clauses: Iterable[NodeRequirement]) -> Platforms:
        every = (*self.selector, *clauses)
        return frozenset(each for each in self.considered if all(sets.holds(clause, each) for clause in every))

    def reachable(self, clauses: Iterable[NodeRequirement]) -> Platforms:
        return self.admits(clauses) & self.target

    @property
    def pins_architecture(self) -> bool:
        return any(map(sets.is_architecture_constraint, self.selector))

    def new_terms(self) -> list[dict[str, Any]]:
        reachable = self.reachable(())
        if not reachable:
            raise RepairError("the node selector leaves no platform that all images support")
        return [_term(self.lacking(group, ())) for group in groups(reachable)]

    def lacking(self, group: RepairGroup, own: Sequence[NodeRequirement]) -> list[Requirement]:
        """The clauses that a term with these clauses needs to admit nothing beyond a group."""
        left = self.admits(own)
        constrained = self.pins_architecture or any(map(sets.is_architecture_constraint, own))
        clauses = []
        if not constrained or any(each.architecture not in group.architectures for each in left):
            clauses.append(group.architecture_clause)
        systems = any(map(sets.is_os_constraint, own)) or (constrained and bool(own))
        if not systems or any(each.os not in group.systems for each in left):
            clauses.append(group.os_clause)
        return clauses


def _restrict_term(scope: _Scope, term: Term) -> list[TreeOperation]:
    systems = [clause for clause in term.expressions if clause.key in sets.OS_KEYS]
    usable = frozenset(
        each for each in scope.target if all(sets.holds(clause, each) for clause in (*scope.selector, *systems))
    )
    removed = _superfluous(term, usable)
    own: list[NodeRequirement] = [
        _without(clause, removed.get(index, ())) for index, clause in enumerate(term.expressions)
    ]
    constrained = scope.pins_architecture or any(map(sets.is_architecture_constraint, own))
    left = scope.admits(own)
    if constrained and left <= scope.target:
        additions: list[list[Requirement]] = [[]]
    elif not left & scope.target:
        additions = [_exclude(scope, own, usable or scope.target)]
    else:
        each_group = [scope.lacking(group, own) for group in groups(usable)]
        additions = [clauses for clauses in each_group if scope.reachable([*own, *clauses])]
    operations: list[TreeOperation] = [
        Remove(f"{term.expressions[index].pointer}/values/{place}")
        for index, places in removed.items()
        for place in reversed(places)
    ]
    first, *others = additions
    operations += append(term, first)
    parent, _, index = term.pointer.rpartition("/")
    for offset, clauses in enumerate(others, 1):
        operations.append(Add(f"{parent}/{int(index) + offset}", _copy(term, removed, clauses)))
    return operations


def _superfluous(term: Term, usable: Platforms) -> dict[int, tuple[int, ...]]:
    """The values of ``In`` lists that no usable platform has, by index of the expression; never all of a list."""
    architectures = {platform.architecture for platform in usable}
    found = {}
    for index, clause in enumerate(term.expressions):
        if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In":
            places = tuple(
                place for place, each in enumerate(clause.values) if meant_architecture(each) not in architectures
            )
            if 0 < len(places) < len(clause.values):
                found[index] = places
    return found


def _without(clause: Expression, places: tuple[int, ...]) -> NodeRequirement:
    if not places:
        return clause
    values = tuple(each for place, each in enumerate(clause.values) if place not in places)
    return Requirement(clause.key, clause.operator, values)


def _exclude(scope: _Scope, own: list[NodeRequirement], usable: Platforms) -> list[Requirement]:
    """The clauses that keep a term which admits nothing of the target from matching any node."""
    every = RepairGroup(
        tuple(sorted({each.architecture for each in usable})), tuple(sorted({each.os for each in usable}))
    )
    candidates: list[list[Requirement]] = [[every.architecture_clause]]
    candidates += [list(group.clauses) for group in (every, *groups(usable))]
    return next((each for each in candidates if not scope.admits([*own, *each])), candidates[-1])


def _copy(term: Term, removed: dict[int, tuple[int, ...]], clauses: Sequence[Requirement]) -> dict[str, Any]:
    copy: dict[str, Any] = dict(value(term.node))
    expressions = [dict(each) for each in copy.get("matchExpressions") or () if isinstance(each, dict)]
    for index, places in removed.items():
        values = expressions[index]["values"]
        expressions[index]["values"] = [each for place, each in enumerate(values) if place not in places]
    copy["matchExpressions"] = [*expressions, *map(expression, clauses)]
    return copy


# -- --replace: other architectures for a pod that can run nowhere (MA104) ---------------------------------------------


def replace_architectures(facts: PodFacts) -> tuple[TreeOperation, ...]:
    """Replaces the required architectures with those of the target; raises :class:`RepairError` if another constraint
    (an operating system, an exclusion) still keeps the images from running.
    """
    others = [
        clause
        for clause in facts.constraints.selector
        if clause.key not in sets.ARCHITECTURE_KEYS and clause.key in sets.PLATFORM_KEYS
    ]
    usable = frozenset(each for each in facts.target.platforms if all(sets.holds(clause, each) for clause in others))
    if not usable:
        raise RepairError("its node selector requires an operating system for which the images have no common platform")
    cluster = frozenset(facts.options.platforms)
    if cluster and not usable & cluster:
        raise RepairError("the cluster has no platform that all images support")
    operations: list[TreeOperation] = []
    for term in non_empty(facts):
        systems = [clause for clause in term.expressions if clause.key in sets.OS_KEYS]
        possible = [each for each in usable if all(sets.holds(clause, each) for clause in systems)]
        wanted = sorted({each.architecture for each in possible or usable})
        for clause in term.expressions:
            if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In":
                operations += _values_replaced(clause, wanted)
    entries = facts.selector_architectures
    architectures = sorted({each.architecture for each in usable})
    if entries and len(architectures) == 1:
        operations += [Replace(entry.pointer, architectures[0]) for entry in entries if entry.value != architectures[0]]
    elif entries:
        operations += restrict(facts, only=_says_nothing_of_architectures, selector=others)
        operations += without_entries(facts, entries)
    after = apply(facts.pod_spec.document.value, operations)
    then = sets.constraints_of(_scheduling(facts.pod_spec, after))
    admitted = sets.admitted(then, facts.target.considered)
    if not operations or not admitted & usable & (cluster or usable):
        raise RepairError(
            "what it excludes or requires besides architectures leaves no platform that all images support"
        )
    return tuple(operations)


def _scheduling(pod_spec: PodSpec, document: Any) -> dict[str, Any]:
    """The node selector and affinity that hold for the pods, its own or inherited ones, in a changed document."""
    found: dict[str, Any] = {}
    for key, where in (("nodeSelector", pod_spec.node_selector_field[1]), ("affinity", pod_spec.affinity[1])):
        with suppress(KeyError):
            found[key] = read(document, where)
    return found


def _says_nothing_of_architectures(term: Term) -> bool:
    return not any(map(sets.is_architecture_constraint, term.expressions))


def without_entries(facts: PodFacts, entries: tuple[LabelEntry, ...]) -> list[TreeOperation]:
    """Removes entries of the node selector, or the whole node selector if it would be empty."""
    if len(entries) == len(facts.pod_spec.node_selector):
        return [Remove(entries[0].pointer.rpartition("/")[0])]
    return [Remove(entry.pointer) for entry in entries]


def _values_replaced(clause: Expression, wanted: list[str]) -> list[TreeOperation]:
    """Value by value, so that comments beside the values stay."""
    where, count = f"{clause.pointer}/values", len(clause.values)
    if not count:  # nothing, or something else than a list
        return extend(clause.values_node, where, list(wanted))
    operations: list[TreeOperation] = [
        Replace(f"{where}/{index}", each) for index, each in enumerate(wanted[:count]) if each != clause.values[index]
    ]
    operations += [Add(f"{where}/-", each) for each in wanted[count:]]
    operations += [Remove(f"{where}/{index}") for index in range(count - 1, len(wanted) - 1, -1)]
    return operations


# -- shared text: anchors with several uses, merge keys, affinity that a whole workflow inherits -----------------------
# An edit of shared text changes everything that uses it. So a repair is refused unless each use has a finding of the
# same rule that needs exactly the same edit. What else an alias gives the text to, such as an argument or a volume, has
# no such finding.


Entry = tuple[KubeObject, PodFacts | None, FindingDraft]
Operations = tuple[TreeOperation, ...]
SharedText = tuple[str, str, int, bytes]
"""An edit of a shared node: rule, ``sub``, ``id()`` of the node, and the operations on it."""

_NOTE = "it would change text shared with {other}, which needs a different change; write it out for each first"


def for_all_users(drafts: Iterable[Entry], pods: Iterable[PodFacts]) -> list[Entry]:
    """The drafts, with a refusal in place of each repair that would change more than what the findings of its rule are
    about. A pod specification with several uses has one finding for all of them.
    """
    entries = list(drafts)
    specs = [facts.pod_spec for facts in pods]
    shared = any(subject.document.shared for subject, _, _ in entries)
    if shared:
        entries = [(subject, facts, _at_each_use(facts, draft)) for subject, facts, draft in entries]
    if any(spec.inherited for spec in specs) or len({id(spec.node) for spec in specs}) < len(specs):
        entries = _for_all_heirs(entries, specs)
    return _for_all_uses(entries, specs) if shared else entries


def shared_texts(
    document: Document, operations: Iterable[TreeOperation], rule: str, sub: str
) -> dict[SharedText, SharedEdit]:
    """The edits of shared text among operations. Raises :class:`CannotEdit` where two uses need different ones."""
    found: dict[SharedText, SharedEdit] = {}
    for edit in shared_edits(document, operations):
        wanted = {msgspec.json.encode(each) for each in edit.by_use.values()}
        if len(wanted) > 1:
            raise CannotEdit(sharing(document, edit.node, edit.by_use))
        found[rule, sub, id(edit.node), wanted.pop()] = edit
    return found


def _at_each_use(facts: PodFacts | None, draft: FindingDraft) -> FindingDraft:
    """The draft with the operations below its pod specification for each place that is this pod specification."""
    if facts is None or draft.repair is None or len(facts.pod_spec.uses) == 1:
        return draft
    root, operations = facts.pod_spec.pointer, draft.repair.operations
    within = [each for each in operations if is_below(each.pointer, root)]
    for use in facts.pod_spec.uses:
        if use != root:
            operations += rebase(within, root, use)
    return _with(draft, operations)


def _for_all_heirs(entries: list[Entry], specs: list[PodSpec]) -> list[Entry]:
    """Refuses what other pod specifications inherit, unless each needs exactly the same."""
    wanted = {(id(facts.pod_spec), *_needs(draft)) for _, facts, draft in entries if facts is not None}
    result: list[Entry] = []
    for subject, facts, draft in entries:
        own = facts.pod_spec if facts else None
        others = (spec for spec in specs if spec is not own and _touches(draft.repair, spec, subject.document))
        other = next((spec for spec in others if own is None or (id(spec), *_needs(draft)) not in wanted), None)
        if other is not None:
            draft = _with(draft, (), _NOTE.format(other=f"{other.object.reference} ({other.pointer})"))
        result.append((subject, facts, draft))
    return result


def _for_all_uses(entries: list[Entry], specs: list[PodSpec]) -> list[Entry]:
    """Refuses edits of shared text that some use of it has no finding for. A refusal can take away what another repair
    counts on, so this goes on until all that is left can be written.
    """
    entries = list(entries)
    open_: dict[int, dict[SharedText, SharedEdit]] = {}
    for number, (subject, facts, draft) in enumerate(entries):
        if draft.repair is None or not draft.repair.operations:
            continue
        try:
            found = shared_texts(subject.document, draft.repair.operations, draft.rule.id, draft.sub)
        except CannotEdit as error:
            entries[number] = subject, facts, _with(draft, (), str(error))
        except OperationError:
            continue  # the editor says why
        else:
            open_[number] = found
    while True:
        asked: dict[SharedText, set[str]] = {}
        for found in open_.values():
            for text, edit in found.items():
                asked.setdefault(text, set()).update(edit.by_use)
        refused = {number: note for number in open_ if (note := _unasked(entries[number], open_[number], asked, specs))}
        for number, note in refused.items():
            subject, facts, draft = entries[number]
            entries[number] = subject, facts, _with(draft, (), note)
            del open_[number]
        if not refused:
            return entries


def _unasked(
    entry: Entry, edits: dict[SharedText, SharedEdit], asked: dict[SharedText, set[str]], specs: list[PodSpec]
) -> str:
    """Why a repair is refused: a use of a text that it edits asks for nothing, or for something else; else empty."""
    document = entry[0].document
    for text, edit in edits.items():
        uses = document.uses.get(id(edit.node), ())
        if asked[text] != set(uses):
            unasked = next((use for use in uses if use not in asked[text]), "")
            others = (spec for spec in specs if spec.document is document and spec.object is not entry[0])
            other = next((spec for spec in others if any(is_below(unasked, use) for use in spec.uses)), None)
            said = f"it would change text shared with {other.object.reference}: " if other is not None else ""
            return said + sharing(document, edit.node, [*edit.by_use, *asked[text]])
    return ""


def _touches(repair: Repair | None, spec: PodSpec, document: Document) -> bool:
    if spec.document is not document or repair is None:
        return False
    roots = (*spec.uses, spec.affinity[1], *(entry.pointer for entry in spec.node_selector))
    return any(
        is_below(operation.pointer, root) or is_below(root, operation.pointer)
        for operation in repair.operations
        for root in roots
    )


def _needs(draft: FindingDraft) -> tuple[str, str, bytes]:
    return draft.rule.id, draft.sub, msgspec.json.encode(draft.repair.operations if draft.repair else ())


def _with(draft: FindingDraft, operations: Operations, note: str = "") -> FindingDraft:
    repair = draft.repair or Repair(())
    return replace(draft, repair=Repair(operations, note or repair.note, repair.document))
