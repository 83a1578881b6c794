"""The rules for what else a pod says.

They look at label spellings, preferences, tolerations, init containers and passed images.

Pure.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Any

import msgspec
from yaml.nodes import Node

from polyarch.images.constraints import reach, system_of
from polyarch.kube.patches import pointer
from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation
from polyarch.manifests.rules.facts import (
    FindingDraft,
    PodFacts,
    RepairError,
    RuleCheck,
    needs_flag,
    one_operation,
    repair,
)
from polyarch.manifests.rules.options import Taints
from polyarch.manifests.rules.repairs import expression, extend, in_node_affinity
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.nodes import get, is_null, value
from polyarch.manifests.scan.pod_specs import (
    PREFERRED,
    Expression,
    NamedText,
    PodSpec,
    PreferredTerm,
    is_variable,
)
from polyarch.manifests.scan.sets import ARCHITECTURE_KEY, listed, meant_architecture, meant_system, texts
from polyarch.platforms import KNOWN_ARCHITECTURES, KNOWN_SYSTEMS, PlatformSet
from polyarch.selectors import Requirement
from polyarch.tolerations import Taint, Toleration, tolerating, uncovered

# -- MA108: node labels with the prefix beta., in node selectors, required and preferred terms -------------------------


MA108 = Rule(
    id="MA108",
    severity=Severity.WARNING,
    title="A node label is deprecated",
    meaning="kubernetes.io/arch and kubernetes.io/os replace beta.kubernetes.io/arch and beta.kubernetes.io/os.",
    fix="Renames the key, unless both spellings are present.",
)

_BETA = "beta."


def check_deprecated_labels(facts: PodFacts) -> Iterator[FindingDraft]:
    if facts.mistakes:
        return
    entries = facts.pod_spec.node_selector
    for entry in entries:
        key = _current_label(entry.key)
        if key:
            both = any(other.key == key for other in entries)
            yield _deprecated_label_draft(
                facts, entry.key, entry.key_node, entry.pointer, Rename(entry.pointer, key), both=both
            )
    for term in facts.terms:
        for clause in term.expressions:
            key, where = _current_label(clause.key), clause.pointer + pointer("key")
            if key and clause.key_node is not None:
                both = any(other.key == key for other in term.expressions)
                yield _deprecated_label_draft(facts, clause.key, clause.key_node, where, Replace(where, key), both=both)


def _current_label(key: str) -> str:
    """The label that replaces a deprecated one; empty for other labels."""
    return key.removeprefix(_BETA) if key in sets.PLATFORM_KEYS and key.startswith(_BETA) else ""


def _deprecated_label_draft(
    facts: PodFacts, key: str, node: Node, where: str, operation: TreeOperation, *, both: bool
) -> FindingDraft:
    note = "both spellings are present; remove one of them"
    return FindingDraft(
        rule=MA108,
        message=f"{facts.subject} uses the node label {key}, which is deprecated",
        hint=f"use {_current_label(key)}",
        node=node,
        pointer=where,
        repair=Repair((), note=note, document=facts.pod_spec.document.index)
        if both
        else one_operation(facts, operation),
    )


# -- MA110: values of architecture and operating system labels that no node has ----------------------------------------


MA110 = Rule(
    id="MA110",
    severity=Severity.ERROR,
    title="An architecture or operating system is unknown",
    meaning="No node has such a label value. Often it is an alias: x86_64 for amd64, aarch64 for arm64.",
    fix="Replaces an alias or a wrong case with the value that nodes have; removes a duplicate.",
)


def check_unknown_values(facts: PodFacts) -> Iterator[FindingDraft]:
    if facts.mistakes:
        return
    for entry in facts.pod_spec.node_selector:
        if entry.key not in sets.PLATFORM_KEYS or is_variable(entry.value):
            continue
        meant = _meant_value(entry.key, entry.value)
        if meant != entry.value:
            operation = Replace(entry.pointer, meant)
            yield _unknown_value_draft(facts, entry.key, entry.value, meant, entry.value_node, operation)
    for term in facts.terms:
        for clause in term.expressions:
            if clause.key in sets.PLATFORM_KEYS and clause.operator in ("In", "NotIn"):
                yield from _unknown_values(facts, clause)


def _unknown_values(facts: PodFacts, clause: Expression) -> Iterator[FindingDraft]:
    for index, (text, node) in enumerate(zip(clause.values, clause.value_nodes, strict=True)):
        meant = text if is_variable(text) else _meant_value(clause.key, text)
        if meant == text:
            continue
        where = f"{clause.pointer}/values/{index}"
        repeated = any(
            other == meant or (place < index and _meant_value(clause.key, other) == meant)
            for place, other in enumerate(clause.values)
            if place != index
        )
        yield _unknown_value_draft(
            facts, clause.key, text, meant, node, Remove(where) if repeated else Replace(where, meant)
        )


def _meant_value(key: str, text: str) -> str:
    """The known name that the text means, which may be the text itself; empty if there is none."""
    architecture = key in sets.ARCHITECTURE_KEYS
    meant: Callable[[str], str] = meant_architecture if architecture else meant_system
    known = KNOWN_ARCHITECTURES if architecture else KNOWN_SYSTEMS
    name = meant(text)
    return name if name in known else ""


def _unknown_value_draft(
    facts: PodFacts, key: str, text: str, meant: str, node: Node, operation: Remove | Replace
) -> FindingDraft:
    """The finding for one value; ``operation`` is its repair where a name is meant."""
    architecture = key in sets.ARCHITECTURE_KEYS
    kind = "architecture" if architecture else "operating system"
    known = ", ".join(sorted(KNOWN_ARCHITECTURES if architecture else ("linux", "windows")))
    end = f"; use {meant}" if meant else ""
    return FindingDraft(
        rule=MA110,
        message=f"{facts.subject} uses {key} {text!r}, which is no {kind} that node labels have{end}",
        hint=f"write {meant}" if meant else f"write one of {known}",
        node=node,
        pointer=operation.pointer,
        repair=one_operation(facts, operation) if meant else None,
    )


# -- MA111: preferred terms that are invalid or have no effect ---------------------------------------------------------


MA111 = Rule(
    id="MA111",
    severity=Severity.ERROR,
    title="A preferred node affinity term is invalid or has no effect",
    meaning="The weight is missing or not between 1 and 100 (weight); expressions are beside preference instead of in "
    "it (shape); it prefers an architecture that the images lack (unsupported, a warning).",
    fix="Clamps the weight, sets 1 if it is missing; moves the expressions into preference, with weight 50 if "
    "there is none; removes unsupported values.",
    subs=("weight", "shape", "unsupported"),
)

WRAPPED_WEIGHT = 50
"""Weight for expressions without one: the middle of the range."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
"""A text that only its quotes keep from being a weight."""


def check_preferred_terms(facts: PodFacts) -> Iterator[FindingDraft]:
    for term in facts.pod_spec.preferred:
        if term.bare is not None:
            yield _misplaced_expressions(facts, term)
        if (term.bare is None or term.weight is not None) and not _is_weight(term):
            yield _invalid_weight(facts, term)
        yield from _unsupported_preference(facts, term)


def _is_weight(term: PreferredTerm) -> bool:
    if term.weight is not None and is_variable(term.weight):
        return True
    weight = _whole_number(term)
    return weight is not None and 1 <= weight <= 100


def _whole_number(term: PreferredTerm) -> int | None:
    """The weight as the API server gets it: JSON has 5 for ``5.0`` and ``5e0``."""
    weight = None if term.weight_node is None else value(term.weight_node)
    if isinstance(weight, float) and weight.is_integer():
        return int(weight)
    return weight if type(weight) is int else None


def _misplaced_expressions(facts: PodFacts, term: PreferredTerm) -> FindingDraft:
    def write() -> Iterator[TreeOperation]:
        facts.check_editable()
        if term.preference is not None:
            raise RepairError("it has a preference, too; merge the two by hand")
        keys = [key for key in ("matchExpressions", "matchFields") if get(term.node, key) is not None]
        members: dict[str, Any] = {key: value(node) for key in keys if (node := get(term.node, key)) is not None}
        yield Add(f"{term.pointer}/preference", members)
        yield from (Remove(f"{term.pointer}/{key}") for key in keys)
        if term.weight_node is None:
            yield Add(f"{term.pointer}/weight", WRAPPED_WEIGHT)
        elif is_null(term.weight_node):
            yield Replace(f"{term.pointer}/weight", WRAPPED_WEIGHT)

    return FindingDraft(
        rule=MA111,
        sub="shape",
        message=f"{facts.subject} has a preferred node affinity term with its expressions beside preference, "
        "so the API server refuses it",
        hint="put matchExpressions into preference, and give a weight from 1 to 100",
        node=term.node,
        pointer=term.pointer,
        repair=repair(facts, write),
    )


def _invalid_weight(facts: PodFacts, term: PreferredTerm) -> FindingDraft:
    where = f"{term.pointer}/weight"

    def write() -> Iterator[TreeOperation]:
        facts.check_editable()
        if term.weight_node is None:
            yield Add(where, 1)
        elif is_null(term.weight_node):
            yield Replace(where, 1)
        elif term.weight is None:
            raise RepairError("it is not a number; write one from 1 to 100")
        elif (number := _whole_number(term)) is not None or _INTEGER.fullmatch(term.weight):
            yield Replace(where, min(max(int(term.weight) if number is None else number, 1), 100))
        else:
            raise RepairError(f"{term.weight!r} is no whole number; write one from 1 to 100")

    weight = "" if term.weight_node is None or term.weight is None else f" {json.dumps(value(term.weight_node))}"
    missing = is_null(term.weight_node)
    return FindingDraft(
        rule=MA111,
        sub="weight",
        message=f"{facts.subject} has a preferred node affinity term "
        + ("without a weight" if missing else f"with a weight{weight} that is no whole number from 1 to 100"),
        hint="give a weight from 1 to 100",
        node=term.weight_node or term.node,
        pointer=term.pointer if term.weight_node is None else where,
        repair=repair(facts, write),
    )


def _unsupported_preference(facts: PodFacts, term: PreferredTerm) -> Iterator[FindingDraft]:
    if term.preference is None or facts.platforms.is_everything or not facts.platforms:
        return
    supported = facts.platforms.architectures()
    found = [
        (clause, place)
        for clause in term.preference.expressions
        if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In"
        for place, text in enumerate(clause.values)
        if (meant := meant_architecture(text)) in KNOWN_ARCHITECTURES and meant not in supported
    ]
    if not found:
        return
    architectures = ", ".join(sorted({meant_architecture(clause.values[place]) for clause, place in found}))
    first, place = found[0]
    yield FindingDraft(
        rule=MA111,
        sub="unsupported",
        severity=Severity.WARNING,
        message=f"{facts.subject} prefers {architectures}, which its images do not support",
        hint=f"they support {', '.join(supported)}",
        node=first.value_nodes[place],
        pointer=f"{first.pointer}/values/{place}",
        repair=repair(facts, lambda: _without_unsupported(facts, term, found)),
    )


def _without_unsupported(
    facts: PodFacts, term: PreferredTerm, found: list[tuple[Expression, int]]
) -> list[TreeOperation]:
    """Removes the values; the term if its list would be empty; the list of terms if it would be empty."""
    _ = facts.target  # raises unless P is known
    for clause in {id(clause): clause for clause, _ in found}.values():
        if sum(other is clause for other, _ in found) == len(clause.values):
            only = len(facts.pod_spec.preferred) == 1
            return [Remove(term.pointer.rpartition("/")[0] if only else term.pointer)]
    return [Remove(f"{clause.pointer}/values/{place}") for clause, place in reversed(found)]


# -- MA112: a pod lacks a preference that the configuration asks for ---------------------------------------------------


MA112 = Rule(
    id="MA112",
    severity=Severity.INFO,
    title="A configured preference is missing",
    meaning="The configuration prefers an architecture, the images support it, and no preferred term names it.",
    fix="Adds a preferred term with the configured weight.",
    flag="--prefer",
    default=False,
)


def check_missing_preferences(facts: PodFacts) -> Iterator[FindingDraft]:
    prefer = facts.options.prefer
    if not prefer or facts.platforms.is_everything or not facts.supported.exact or facts.is_open:
        return
    usable = {each.architecture for each in facts.admitted if each in facts.platforms}
    option = f"--prefer {','.join(f'{architecture}={weight}' for architecture, weight in prefer.items())}"
    for architecture, weight in prefer.items():
        if architecture not in usable or architecture in _preferred_architectures(facts):
            continue
        term = {
            "weight": weight,
            "preference": {"matchExpressions": [expression(Requirement(ARCHITECTURE_KEY, "In", (architecture,)))]},
        }
        yield FindingDraft(
            rule=MA112,
            message=f"{facts.subject} does not prefer {architecture}, which the configuration prefers "
            f"with weight {weight}",
            hint=f"add a preferred term for kubernetes.io/arch {architecture} (polyarch fix {option})",
            node=facts.pod_spec.node,
            pointer=facts.pod_spec.pointer,
            repair=_preference_added(facts, term)
            if facts.options.fixes.prefer
            else needs_flag(facts, option, "adds the preferred term"),
        )


def _preference_added(facts: PodFacts, term: dict[str, Any]) -> Repair:
    def write() -> list[TreeOperation]:
        facts.check_editable()
        return in_node_affinity(facts, (PREFERRED,), [term])

    return repair(facts, write)


def _preferred_architectures(facts: PodFacts) -> set[str]:
    return {
        meant_architecture(text)
        for term in facts.pod_spec.preferred
        for part in (term.preference, term.bare)
        if part is not None
        for clause in part.expressions
        if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In"
        for text in clause.values
    }


# -- MA113: a DaemonSet lacks tolerations for nodes tainted by architecture --------------------------------------------


MA113 = Rule(
    id="MA113",
    severity=Severity.WARNING,
    title="A DaemonSet does not tolerate the taint of an architecture it supports",
    meaning="The configuration says that nodes of some architectures are tainted. Without the toleration a DaemonSet "
    "does not run on them.",
    fix="Adds the tolerations.",
    default=False,
)


def check_tolerations(facts: PodFacts) -> Iterator[FindingDraft]:
    """One finding for all taints of supported architectures that no toleration covers."""
    taints = facts.options.taints
    if taints is None or facts.pod_spec.object.kind != "DaemonSet" or not facts.supported.exact:
        return
    wanted = (Taint(key=taints.key, value=each, effect=taints.effect) for each in _tainted_architectures(facts, taints))
    missing = uncovered(wanted, _written_tolerations(facts))
    if missing:
        supported = ", ".join(taint.value for taint in missing)
        yield FindingDraft(
            rule=MA113,
            message=f"{facts.subject} does not tolerate {', '.join(map(str, missing))}, though its images support "
            f"{supported}",
            hint="add the tolerations; without them it does not run on nodes of these architectures",
            node=facts.pod_spec.node,
            pointer=facts.pod_spec.pointer,
            repair=repair(facts, lambda: _tolerations_added(facts, missing)),
        )


def _written_tolerations(facts: PodFacts) -> tuple[Toleration, ...]:
    """The tolerations that are written; one of another shape than Kubernetes', which it refuses, covers nothing."""
    return tuple(read for node in facts.pod_spec.tolerations if (read := toleration_of(value(node))) is not None)


def toleration_of(document: Any) -> Toleration | None:
    """The toleration that a manifest says, where null counts as absent; None if it says none."""
    if not isinstance(document, Mapping):
        return None
    try:
        given = {key: each for key, each in document.items() if each is not None}
        found = msgspec.convert(given, Toleration)
    except msgspec.ValidationError:
        return None
    return found if found.key or found.operator == "Exists" else None  # the API server refuses any other without a key


def _tainted_architectures(facts: PodFacts, taints: Taints) -> list[str]:
    """The tainted architectures that the pod may run on, as the role ``taints`` judges them."""
    may_run = facts.admitted.__contains__
    found = reach(
        facts.platforms,
        system=system_of(facts.supported.os_name, may_run),
        admits=may_run,
        neutral={each.architecture for each in facts.admitted},
    )
    return sorted(found.intersection(taints.architectures) if taints.architectures else found)


def _tolerations_added(facts: PodFacts, missing: tuple[Taint, ...]) -> list[TreeOperation]:
    facts.check_editable()
    where = f"{facts.pod_spec.pointer}/tolerations"
    added = [msgspec.to_builtins(tolerating(taint)) for taint in missing]
    return extend(get(facts.pod_spec.node, "tolerations"), where, added)


# -- MA114: an init container or sidecar excludes nodes on which the other containers run ------------------------------


MA114 = Rule(
    id="MA114",
    severity=Severity.INFO,
    title="An init container limits where the pod can run",
    meaning="An init container or sidecar supports fewer platforms than the regular containers together.",
)


def check_init_containers(facts: PodFacts) -> Iterator[FindingDraft]:
    if facts.pod_spec.is_part:  # the regular containers may be in the patched resource
        return
    ordinary = [image for image in facts.supported.images if image.use.role == "container"]
    if len(ordinary) == len(facts.supported.images) or any(image.platforms is None for image in ordinary):
        return
    common = reduce(
        and_, (image.platforms for image in ordinary if image.platforms is not None), PlatformSet.EVERYTHING
    )
    if common.is_everything or not common:
        return
    for image in facts.supported.images:
        if image.use.role == "init" and image.platforms is not None:
            missing = [each for each in common if each not in image.platforms]
            if missing:
                yield FindingDraft(
                    rule=MA114,
                    message=f"{facts.subject} could run on {listed(missing)}, "
                    f"but the image {image.name} of its init container {image.use.container} lacks it",
                    hint="publish the image of the init container for the platforms of the other containers",
                    node=image.use.node,
                    pointer=image.use.pointer,
                    images=(image.name,),
                    platforms=PlatformSets(supported=texts(image.platforms), missing=texts(missing)),
                )


# -- MA116: images that a container gets by variable or argument and starts later --------------------------------------


MA116 = Rule(
    id="MA116",
    severity=Severity.INFO,
    title="An image passed by variable or argument supports fewer platforms than the pod",
    meaning="An image that an operator is given as RELATED_IMAGE_*, *_IMAGE or --*image=, and starts later, cannot run "
    "everywhere that the operator can.",
    default=False,
)

VARIABLE = re.compile(r"RELATED_IMAGE_.*|.*_IMAGE", re.DOTALL)

_ARGUMENT = re.compile(r"(--[A-Za-z0-9_.-]*image)=(\S+)", re.ASCII)


def check_passed_images(facts: PodFacts) -> Iterator[FindingDraft]:
    platforms = facts.platforms
    if platforms.is_everything or not facts.supported.exact:
        return
    for image in passed_images(facts.pod_spec):
        has = facts.answers.of(image.text).platforms
        missing = [each for each in platforms if has is not None and each not in has]
        if has is not None and missing:
            yield FindingDraft(
                rule=MA116,
                message=f"{facts.subject} supports {listed(missing)}, but {image.text} of {image.name} "
                f"has only {listed(has)}",
                hint="publish the image for these platforms, or keep the pods that use it off them",
                node=image.node,
                pointer=image.pointer,
                images=(image.text,),
                platforms=PlatformSets(supported=texts(has), missing=texts(missing)),
            )


def passed_images(pod_spec: PodSpec) -> Iterator[NamedText]:
    """Values of variables ``RELATED_IMAGE_*`` and ``*_IMAGE``, and arguments ``--…image=…`` by option."""
    for use in pod_spec.images:
        if use.role == "volume":
            continue
        yield from (each for each in use.environment if VARIABLE.fullmatch(each.name))
        for each in use.arguments:
            match = _ARGUMENT.fullmatch(each.text)
            if match:
                yield each._replace(name=match[1], text=match[2])


# -- the rules of this module ------------------------------------------------------------------------------------------


POD_RULES = (
    RuleCheck(MA108, check_deprecated_labels),
    RuleCheck(MA110, check_unknown_values),
    RuleCheck(MA111, check_preferred_terms),
    RuleCheck(MA112, check_missing_preferences),
    RuleCheck(MA113, check_tolerations),
    RuleCheck(MA114, check_init_containers),
    RuleCheck(MA116, check_passed_images),
)
RULES = tuple(each.rule for each in POD_RULES)
