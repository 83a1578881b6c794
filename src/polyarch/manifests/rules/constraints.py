"""The rules for the platforms that a pod admits, compared with those that its images support.

MA101 to MA107, MA109, MA115 and MA118. A pod specification gets at most one of MA105, MA104, MA107, MA102 and MA101;
:func:`check_constraints` says which.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import Add, TreeOperation
from polyarch.manifests.rules import repairs
from polyarch.manifests.rules.facts import (
    FindingDraft,
    PodFacts,
    RepairError,
    RuleCheck,
    needs_flag,
    one_operation,
    repair,
)
from polyarch.manifests.rules.repairs import add_systems, non_empty, restrict, without_entries
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import RequiredNodeAffinity, Term
from polyarch.manifests.scan.sets import DEFAULT_UNIVERSE, SupportedImage, listed, meant_architecture, texts
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform

# -- MA105, MA104, MA107, MA102 and MA101: a pod specification gets at most one ----------------------------------------
# The chain is the order; the later rules follow from the earlier ones. If the node affinity can match no node of any
# platform, MA107 explains why, instead of MA104.


def check_constraints(facts: PodFacts) -> Iterator[FindingDraft]:
    """The first of the five that applies, and empty terms besides."""
    if facts.supported.neutral:
        return
    if facts.is_open:
        if not facts.supported.unrestricted:
            yield conflict_draft(facts)
        elif facts.pod_spec.constrained_elsewhere and facts.excess:
            yield elsewhere_draft(facts)
        return
    required = facts.pod_spec.required
    blank = [term for term in required.terms if term.is_empty] if required else []
    hopeless = required is not None and len(blank) == len(required.terms)
    if not hopeless:
        yield from (empty_term(facts, term, every=False) for term in blank)
    if emptied_by_os_name(facts):
        return
    if not facts.supported.unrestricted:
        yield conflict_draft(facts)
    elif required is not None and not required.terms:
        yield no_terms(facts, required)
    elif hopeless:
        yield empty_term(facts, blank[0], every=True)
    elif not facts.admitted & _within(facts):
        yield nowhere_draft(facts)
    elif facts.excess:
        without = terms_without_architecture(facts)
        if without:
            yield mixed(facts, without)
        elif facts.has_architectures:
            yield excess_draft(facts)
        elif (
            not facts.pod_spec.is_part and not facts.pod_spec.node_name
        ):  # the patched resource may have the constraint
            yield unconstrained_draft(facts)


def emptied_by_os_name(facts: PodFacts) -> bool:
    """Whether ``spec.os.name`` alone excludes every platform; MA115 reports that."""
    supported = facts.supported
    if not supported.os_name or not supported.unrestricted or supported.unrestricted.is_everything:
        return False
    if facts.admitted & frozenset(supported.platforms):
        return False
    return bool(facts.admitted & frozenset(supported.unrestricted))


def _within(facts: PodFacts) -> frozenset[NodePlatform]:
    return facts.admitted if facts.platforms.is_everything else frozenset(facts.platforms)


# -- MA101: a pod has no architecture constraint, and an image does not run everywhere ---------------------------------


MA101 = Rule(
    id="MA101",
    severity=Severity.WARNING,
    title="A pod without an architecture constraint can land where its images do not run",
    meaning="The pod has no architecture constraint, and an image lacks a platform that nodes may have. Nodes may be "
    f"linux on {', '.join(ASSUMED_ARCHITECTURES)}, unless --platforms names those of the cluster; then the finding "
    "is an error. Information for an object whose pods get their constraints elsewhere, such as a Tekton Task.",
    fix="Adds required node affinity with the architectures and operating systems that all images support.",
)


def unconstrained_draft(facts: PodFacts) -> FindingDraft:
    reason, images = shortfalls(facts, facts.excess)
    usual = ", ".join(sorted(each.architecture for each in DEFAULT_UNIVERSE))
    assumed = "" if facts.options.platforms else f"; nodes may be {usual}, unless --platforms names yours"
    return FindingDraft(
        rule=MA101,
        severity=Severity.ERROR if facts.options.platforms else None,
        message=f"{facts.subject} admits {listed(facts.excess)}, but {reason}",
        hint=f"require kubernetes.io/arch in {supported_architectures(facts)} with node affinity, "
        f"or publish the image for the other platforms{assumed}",
        node=facts.pod_spec.node,
        pointer=facts.pod_spec.pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def elsewhere_draft(facts: PodFacts) -> FindingDraft:
    """Of an object whose pods get their constraints from others: that is all that can be said of it."""
    reason, images = shortfalls(facts, facts.excess)
    return FindingDraft(
        rule=MA101,
        severity=None if facts.options.platforms else Severity.INFO,
        message=f"{facts.subject} does not run everywhere: {reason}, and {facts.pod_spec.apart}",
        hint=f"require kubernetes.io/arch in {supported_architectures(facts)} there, "
        "or publish the image for the other platforms",
        node=facts.pod_spec.images[0].node,
        pointer=facts.pod_spec.images[0].pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=Repair((), note=facts.pod_spec.apart, document=facts.pod_spec.document.index),
    )


# -- MA102: the architecture constraints admit a platform that an image lacks ------------------------------------------


MA102 = Rule(
    id="MA102",
    severity=Severity.ERROR,
    title="A pod admits platforms that its images lack",
    meaning="The architecture constraints admit a platform that an image is not built for.",
    fix="Removes values that no image supports; adds an In expression where that is not enough.",
)


def excess_draft(facts: PodFacts) -> FindingDraft:
    reason, images = shortfalls(facts, facts.excess)
    node, where = architecture_place(facts, facts.excess)
    return FindingDraft(
        rule=MA102,
        message=f"{facts.subject} admits {listed(facts.excess)}, but {reason}",
        hint=f"remove the platforms that the images lack, which leaves {listed(facts.admitted - facts.excess)}, "
        "or publish the images for them",
        node=node,
        pointer=where,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


# -- MA103: an architecture constraint excludes platforms that every image supports ------------------------------------
# A linux pod that cannot use the windows entry of an image loses nothing. MA109 reports the pods whose node selector
# alone names an architecture.


MA103 = Rule(
    id="MA103",
    severity=Severity.INFO,
    title="A pod excludes platforms that its images support",
    meaning="The architecture constraints exclude a platform that nodes may have and every image supports.",
    fix="Adds the missing architectures to the In lists.",
    flag="--widen",
)


def check_unused_platforms(facts: PodFacts) -> Iterator[FindingDraft]:
    """Needs an exact P."""
    unused = unused_platforms(facts)
    if unused and not only_in_selector(facts):
        message = f"{facts.subject} excludes {listed(unused)}, which its images support"
        hint = "add the architectures, unless they are excluded on purpose (polyarch fix --widen)"
        node, where = architecture_place(facts, ())
        yield FindingDraft(
            rule=MA103,
            message=message,
            hint=hint,
            node=node,
            pointer=where,
            platforms=platform_sets(facts, missing=unused),
            repair=widening(facts, _widened_lists),
        )


def only_in_selector(facts: PodFacts) -> bool:
    """Whether the node selector alone names architectures."""
    return bool(facts.selector_architectures) and not facts.architecture_expressions


def widening(facts: PodFacts, write: Callable[[PodFacts], Iterable[TreeOperation]]) -> Repair:
    """A repair that needs ``--widen``."""
    if facts.options.fixes.widen:
        return repair(facts, lambda: write(facts))
    return needs_flag(facts, "--widen", "adds every platform that its images support")


def unused_platforms(facts: PodFacts) -> frozenset[NodePlatform]:
    platforms = facts.platforms
    if not facts.has_architectures or not facts.supported.exact or platforms.is_everything or facts.is_open:
        return frozenset()
    useful = frozenset(platforms) & facts.universe
    if not useful & facts.admitted:  # MA104 or MA105 says more
        return frozenset()
    free = facts.constraints.without_architectures()
    return frozenset(each for each in useful - facts.admitted if free.admits(each))


def _widened_lists(facts: PodFacts) -> list[TreeOperation]:
    """Adds the missing architectures to the In lists; what NotIn excludes is taken as intended."""
    if facts.selector_architectures:
        raise RepairError("its nodeSelector names an architecture, too; remove that first")
    unused = unused_platforms(facts) & facts.target.platforms
    operations: list[TreeOperation] = []
    for term in non_empty(facts):
        constraints = [clause for clause in term.expressions if sets.is_architecture_constraint(clause)]
        if any(clause.operator != "In" for clause in constraints):
            continue
        others = [clause for clause in term.expressions if clause.key in sets.OS_KEYS]
        wanted = sorted({each.architecture for each in unused if all(sets.holds(clause, each) for clause in others)})
        for clause in constraints:
            known = set(map(meant_architecture, clause.values))
            operations += [Add(f"{clause.pointer}/values/-", each) for each in wanted if each not in known]
    if not operations:
        raise RepairError("they are excluded by another operator than In, which is taken as intended")
    return operations


# -- MA104: the pod admits no platform that all of its images support --------------------------------------------------


MA104 = Rule(
    id="MA104",
    severity=Severity.ERROR,
    title="A pod requires platforms that its images lack",
    meaning="No platform is both admitted by the constraints of the pod and supported by all of its images: the pod "
    "can run nowhere.",
    fix="Replaces the required architectures with the supported ones.",
    flag="--replace",
)


def nowhere_draft(facts: PodFacts) -> FindingDraft:
    places = [(entry.value_node, entry.pointer) for entry in (*facts.selector_architectures, *facts.selector_systems)]
    places += [
        (clause.node, clause.pointer)
        for clause in facts.expressions
        if sets.is_architecture_constraint(clause) or sets.is_os_constraint(clause)
    ]
    node, where = next(iter(places), (facts.pod_spec.node, facts.pod_spec.pointer))
    names = tuple(dict.fromkeys(image.name for image, _ in facts.supported.constraining))
    return FindingDraft(
        rule=MA104,
        message=f"{facts.subject} can run nowhere: {_why_nowhere(facts, names)}",
        hint=f"require {supported_architectures(facts)} (polyarch fix --replace), "
        + ("or use an image built for the required architecture" if facts.admitted else "and nothing that excludes it"),
        node=node,
        pointer=where,
        images=names,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: repairs.replace_architectures(facts))
        if facts.options.fixes.replace
        else needs_flag(facts, "--replace", "writes the architectures that the images support instead"),
    )


def _why_nowhere(facts: PodFacts, names: Sequence[str]) -> str:
    if not facts.admitted:
        return "its node selector and required node affinity admit no platform"
    have = "has only" if len(names) == 1 else "have in common only"
    return f"it admits {listed(facts.admitted)}, but {', '.join(names)} {have} {listed(facts.platforms)}"


# -- MA105: the images of a pod have no platform in common, or one of them has no platform -----------------------------


MA105 = Rule(
    id="MA105",
    severity=Severity.ERROR,
    title="The images of a pod have no platform in common",
    meaning="Each image runs somewhere, but no platform is supported by all of them; or one image has no platform at "
    "all.",
)


def conflict_draft(facts: PodFacts) -> FindingDraft:
    conflict = facts.supported.conflict
    names = tuple(dict.fromkeys(image.name for image in conflict))
    if len(conflict) == 1:
        message = f"{facts.subject} can run nowhere: {names[0]} has no platform that a node can have"
        hint = "publish the image for a platform of the cluster, or use another one"
    else:
        each = "; ".join(f"{image.name} has {in_words(image)}" for image in conflict)
        message = f"{facts.subject} can run nowhere: its images have no platform in common ({each})"
        hint = "publish one of these images for a platform of the others, or move it to a pod of its own"
    return FindingDraft(
        rule=MA105,
        message=message,
        hint=hint,
        node=conflict[0].use.node,
        pointer=conflict[0].use.pointer,
        images=names,
        platforms=PlatformSets(admitted=texts(facts.admitted)),
        repair=Repair((), note="the images share no platform", document=facts.pod_spec.document.index),
    )


# -- MA106: a pod requires an architecture but no operating system -----------------------------------------------------


MA106 = Rule(
    id="MA106",
    severity=Severity.INFO,
    title="A pod requires an architecture but no operating system",
    meaning="kubernetes.io/arch does not imply an operating system: windows nodes are amd64, too. A warning if nodes "
    "may have another system than linux.",
    fix="Adds an In expression for kubernetes.io/os to each term.",
)


def check_missing_system(facts: PodFacts) -> Iterator[FindingDraft]:
    unsaid = facts.has_architectures and not facts.selector_systems and not facts.supported.neutral
    if unsaid and not facts.pod_spec.is_part and not facts.is_open:
        terms = non_empty(facts)
        if not terms or not all(any(map(sets.is_os_constraint, term.expressions)) for term in terms):
            yield _without_system(facts)


def _without_system(facts: PodFacts) -> FindingDraft:
    platforms = facts.platforms
    systems = "linux" if platforms.is_everything or not platforms else ", ".join(platforms.systems())
    mixed = any(each.os != "linux" for each in facts.universe)
    node, where = architecture_place(facts, ())
    return FindingDraft(
        rule=MA106,
        severity=Severity.WARNING if mixed else None,
        message=f"{facts.subject} requires an architecture but no operating system",
        hint=f"also require kubernetes.io/os in {systems}",
        node=node,
        pointer=where,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: add_systems(facts)),
    )


# -- MA107: node affinity terms do not mean what they seem to ----------------------------------------------------------


MA107 = Rule(
    id="MA107",
    severity=Severity.ERROR,
    title="Node affinity terms do not mean what they seem to",
    meaning="Terms are alternatives. A term without an architecture expression, beside terms with one, admits every "
    "architecture (mixed); an empty term matches no node (empty-term, a warning unless all are empty); without "
    "any term the API server refuses the pod (no-terms).",
    fix="mixed: adds the expressions to the terms without. no-terms: adds a term.",
    subs=("mixed", "empty-term", "no-terms"),
)


def mixed(facts: PodFacts, without: tuple[Term, ...]) -> FindingDraft:
    indexes = [term.pointer.rpartition("/")[2] for term in without]
    which = f"term {indexes[0]} has" if len(indexes) == 1 else f"terms {', '.join(indexes)} have"
    reason, images = shortfalls(facts, facts.excess)
    chosen = {term.pointer for term in without}
    return FindingDraft(
        rule=MA107,
        sub="mixed",
        message=f"{facts.subject} requires architectures in some node affinity terms, but {which} none "
        f"and so {listed(facts.excess)} is admitted, while {reason}",
        hint="terms are alternatives: each needs the architecture expression",
        node=without[0].node,
        pointer=without[0].pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts, only=lambda term: term.pointer in chosen)),
    )


def empty_term(facts: PodFacts, term: Term, *, every: bool) -> FindingDraft:
    index = term.pointer.rpartition("/")[2]
    effect = "so no node at all matches" if every else "so it has no effect"
    return FindingDraft(
        rule=MA107,
        sub="empty-term",
        severity=Severity.ERROR if every else Severity.WARNING,
        message=f"{facts.subject} has an empty node affinity term (term {index}), which matches nothing, {effect}",
        hint="remove the term, or write its expressions",
        node=term.node,
        pointer=term.pointer,
        platforms=platform_sets(facts),
    )


def no_terms(facts: PodFacts, required: RequiredNodeAffinity) -> FindingDraft:
    return FindingDraft(
        rule=MA107,
        sub="no-terms",
        severity=Severity.ERROR,
        message=f"{facts.subject} requires node affinity without any nodeSelectorTerms; the API server refuses it",
        hint=f"add a term, for example kubernetes.io/arch in {supported_architectures(facts)}",
        node=required.terms_node or required.node,
        pointer=required.terms_pointer if required.terms_node is not None else required.pointer,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def terms_without_architecture(facts: PodFacts) -> tuple[Term, ...]:
    """The terms without an architecture, if others have one and the node selector has none."""
    required = facts.pod_spec.required
    if required is None or facts.selector_architectures:
        return ()
    terms = [term for term in required.terms if not term.is_empty]
    without = [term for term in terms if not any(map(sets.is_architecture_constraint, term.expressions))]
    return tuple(without) if len(without) < len(terms) else ()


# -- MA109: as MA103, for a node selector, which can name one architecture only ----------------------------------------


MA109 = Rule(
    id="MA109",
    severity=Severity.INFO,
    title="A node selector excludes platforms that the images support",
    meaning="As MA103, for a pod whose nodeSelector alone names the architecture. nodeSelector can name one "
    "architecture; node affinity can name several.",
    fix="Replaces the nodeSelector entry with required node affinity for every supported architecture.",
    flag="--widen",
)


def check_node_selector(facts: PodFacts) -> Iterator[FindingDraft]:
    """Needs an exact P."""
    unused = unused_platforms(facts)
    if unused and only_in_selector(facts):
        entry = facts.selector_architectures[0]
        node, where = architecture_place(facts, ())
        yield FindingDraft(
            rule=MA109,
            message=f"{facts.subject} requires {entry.key} {entry.value} in nodeSelector, "
            f"but its images also support {listed(unused)}",
            hint="nodeSelector can name one architecture; node affinity can name all (polyarch fix --widen)",
            node=node,
            pointer=where,
            platforms=platform_sets(facts, missing=unused),
            repair=widening(facts, _moved_to_affinity),
        )


def _moved_to_affinity(facts: PodFacts) -> list[TreeOperation]:
    """The node selector's architecture as node affinity with every architecture."""
    entries = facts.selector_architectures
    others = [clause for clause in facts.constraints.selector if clause.key not in sets.ARCHITECTURE_KEYS]
    return [*restrict(facts, selector=others), *without_entries(facts, entries)]


# -- MA115: spec.os.name contradicts the images or the node constraints ------------------------------------------------


MA115 = Rule(
    id="MA115",
    severity=Severity.ERROR,
    title="spec.os.name contradicts the images or the node constraints",
    meaning="The kubelet rejects a pod whose spec.os.name is not the operating system of its node.",
)


def check_os_name(facts: PodFacts) -> Iterator[FindingDraft]:
    system = facts.supported.os_name
    if not system:
        return
    node = facts.pod_spec.os_name_node
    lacking = tuple(
        dict.fromkeys(
            image.name
            for image, platforms in facts.supported.constraining
            if platforms and system not in platforms.systems()
        )
    )
    reasons = []
    if lacking:
        reasons.append(f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no platform for it")
    if facts.admitted and not facts.is_open and not _admits_system(facts, system):
        reasons.append(f"its node constraints admit only {listed(facts.admitted)}")
    if node is not None and reasons:
        yield FindingDraft(
            rule=MA115,
            message=f"{facts.subject} has spec.os.name {system}, but {' and '.join(reasons)}",
            hint="correct spec.os.name, or what contradicts it",
            node=node,
            pointer=f"{facts.pod_spec.pointer}/os/name",
            images=lacking,
            platforms=platform_sets(facts),
        )


def _admits_system(facts: PodFacts, system: str) -> bool:
    """Whether a node of the system could be admitted, also where the universe has none."""
    architectures = {each.architecture for each in facts.universe} | {"amd64"}
    return any(facts.constraints.admits(NodePlatform(system, architecture)) for architecture in architectures)


# -- MA118: a node selector or node affinity that the API server refuses -----------------------------------------------
# What is refused is not interpreted: the other rules on constraints are silent until it is corrected.


MA118 = Rule(
    id="MA118",
    severity=Severity.ERROR,
    title="A node constraint is invalid",
    meaning="The API server refuses the node selector or the node affinity: an operator that does not exist, values "
    "that are no list or no texts, a mapping in place of a list, a field that terms do not have.",
    fix="Writes the operator in its case, one value as a list, numbers and booleans in quotes; the rest has no fix.",
)


def check_invalid_constraints(facts: PodFacts) -> Iterator[FindingDraft]:
    document = facts.pod_spec.document.index
    for mistake in facts.mistakes:
        if mistake.operation is not None:
            correction = one_operation(facts, mistake.operation)
        else:
            correction = Repair((), note="only its author knows what is meant", document=document)
        yield FindingDraft(
            rule=MA118,
            message=f"{facts.subject} has an invalid node constraint, which the API server refuses: {mistake.what}",
            hint="correct it; until then nothing else is said of what the pod requires",
            node=mistake.node,
            pointer=mistake.pointer,
            repair=correction,
        )


# -- parts of messages: platform sets, which image lacks what, and the value at fault ----------------------------------


def platform_sets(facts: PodFacts, *, missing: Iterable[NodePlatform] = ()) -> PlatformSets:
    supported = () if facts.platforms.is_everything else texts(facts.platforms)
    return PlatformSets(texts(facts.admitted), supported, texts(facts.excess), texts(missing))


def shortfalls(facts: PodFacts, wanted: Iterable[NodePlatform]) -> tuple[str, tuple[str, ...]]:
    """Which images lack some of the wanted platforms, as the second half of a sentence and by name."""
    wanted = frozenset(wanted)
    lacking = {
        image.name: f"{image.name} has {in_words(image)}"
        for image, platforms in facts.supported.constraining
        if any(each not in platforms for each in wanted)
    }
    if not lacking:
        return f"spec.os.name is {facts.supported.os_name}", ()
    return "; ".join(lacking.values()), tuple(lacking)


def in_words(image: SupportedImage) -> str:
    return f"only {listed(image.platforms)}" if image.platforms else "no platform"


def supported_architectures(facts: PodFacts) -> str:
    if facts.platforms.is_everything:
        return "the architectures meant"
    return ", ".join(facts.platforms.architectures())


def architecture_place(facts: PodFacts, excess: Iterable[NodePlatform]) -> tuple[Node, str]:
    """The value that names an excess architecture; else the first architecture constraint."""
    blamed = {each.architecture for each in excess} - {each.architecture for each in facts.admitted - facts.excess}
    for clause in facts.architecture_expressions:
        for place, (text, node) in enumerate(zip(clause.values, clause.value_nodes, strict=True)):
            if clause.operator == "In" and sets.meant_architecture(text) in blamed:
                return node, f"{clause.pointer}/values/{place}"
    for entry in facts.selector_architectures:
        return entry.value_node, entry.pointer
    for clause in facts.architecture_expressions:
        return clause.node, clause.pointer
    return facts.pod_spec.node, facts.pod_spec.pointer


# -- the rules of this module ------------------------------------------------------------------------------------------


POD_RULES = (
    RuleCheck(MA103, check_unused_platforms),
    RuleCheck(MA109, check_node_selector),
    RuleCheck(MA106, check_missing_system),
    RuleCheck(MA115, check_os_name),
    RuleCheck(MA118, check_invalid_constraints),
)
ONE_OF = (MA105, MA104, MA107, MA102, MA101)
"""``check_constraints`` chooses at most one of these for a pod specification."""
RULES = (*(each.rule for each in POD_RULES), *ONE_OF)
