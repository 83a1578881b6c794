"""What a pod admits against what its images support: MA101, MA102, MA104, MA105 and MA107.

At most one of the five is reported for a pod specification, because the later ones follow from the earlier: the chain
in :func:`check` is the order (MF-020). Where the node affinity is such that no node at all can match, whatever its
platform, MA107 says why, instead of MA104 saying that.

Pure.
"""

from collections.abc import Iterable, Iterator

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint import replacing
from polyarch.manifests.lint.facts import Draft, PodFacts, needs_flag, repair
from polyarch.manifests.lint.terms import restrict
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Required, Term
from polyarch.manifests.scan.sets import SupportedImage, listed, texts
from polyarch.platforms import NodePlatform


def check(facts: PodFacts) -> Iterator[Draft]:
    """The first of the five that applies, and empty terms besides (MF-020)."""
    if facts.supported.neutral:
        return
    required = facts.pod_spec.required
    blank = [term for term in required.terms if term.is_empty] if required else []
    hopeless = required is not None and len(blank) == len(required.terms)
    if not hopeless:
        yield from (_empty_term(facts, term, every=False) for term in blank)
    if emptied_by_os_name(facts):
        return
    if not facts.supported.unrestricted:
        yield no_common_platform(facts)
    elif required is not None and not required.terms:
        yield _no_terms(facts, required)
    elif hopeless:
        yield from (_empty_term(facts, term, every=True) for term in blank)
    elif not facts.admitted & _within(facts):
        yield _never_admitted(facts)
    elif facts.excess:
        without = terms_without_architecture(facts)
        if without:
            yield _mixed(facts, without)
        elif facts.has_architectures:
            yield _too_much(facts)
        elif not facts.pod_spec.is_patch and not facts.pod_spec.node_name:  # what is patched may have the constraint
            yield _unconstrained(facts)


def emptied_by_os_name(facts: PodFacts) -> bool:
    """Whether ``spec.os.name`` alone leaves nothing: that is MA115's to say."""
    supported = facts.supported
    if not supported.os_name or not supported.unrestricted or supported.unrestricted.is_everything:
        return False
    if facts.admitted & frozenset(supported.platforms):
        return False
    return bool(facts.admitted & frozenset(supported.unrestricted))


def _within(facts: PodFacts) -> frozenset[NodePlatform]:
    return facts.admitted if facts.platforms.is_everything else frozenset(facts.platforms)


def terms_without_architecture(facts: PodFacts) -> tuple[Term, ...]:
    """The terms that forgot what their neighbours say; nothing if all say it, none does, or the node selector does."""
    required = facts.pod_spec.required
    if required is None or facts.selector_architectures:
        return ()
    terms = [term for term in required.terms if not term.is_empty]
    without = [term for term in terms if not any(map(sets.is_architecture_constraint, term.expressions))]
    return tuple(without) if len(without) < len(terms) else ()


def platform_sets(facts: PodFacts, *, missing: Iterable[NodePlatform] = ()) -> PlatformSets:
    supported = () if facts.platforms.is_everything else texts(facts.platforms)
    return PlatformSets(texts(facts.admitted), supported, texts(facts.excess), texts(missing))


def shortfalls(facts: PodFacts, wanted: Iterable[NodePlatform]) -> tuple[str, tuple[str, ...]]:
    """Which images lack some of the wanted platforms, as the second half of a sentence and by name."""
    wanted = frozenset(wanted)
    lacking = {
        image.name: f"{image.name} has {_has(image)}"
        for image, platforms in facts.supported.constraining
        if any(each not in platforms for each in wanted)
    }
    if not lacking:
        return f"spec.os.name is {facts.supported.os_name}", ()
    return "; ".join(lacking.values()), tuple(lacking)


def _has(image: SupportedImage) -> str:
    return f"only {listed(image.platforms)}" if image.platforms else "no platform"


def _unconstrained(facts: PodFacts) -> Draft:
    reason, images = shortfalls(facts, facts.excess)
    return Draft(
        rule="MA101",
        severity=Severity.ERROR if facts.options.platforms else None,
        message=f"{facts.subject} admits {listed(facts.excess)}, but {reason}",
        hint=f"require kubernetes.io/arch in {_architectures(facts)} by node affinity, "
        "or publish the image for the other platforms",
        node=facts.pod_spec.node,
        pointer=facts.pod_spec.pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def _too_much(facts: PodFacts) -> Draft:
    reason, images = shortfalls(facts, facts.excess)
    node, where = architecture_place(facts, facts.excess)
    return Draft(
        rule="MA102",
        message=f"{facts.subject} admits {listed(facts.excess)}, but {reason}",
        hint=f"take out what the images lack, so that {listed(facts.admitted - facts.excess)} "
        "remains, or publish them for it",
        node=node,
        pointer=where,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def architecture_place(facts: PodFacts, excess: Iterable[NodePlatform]) -> tuple[Node, str]:
    """The value that names an architecture to blame; else the first architecture constraint."""
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


def _never_admitted(facts: PodFacts) -> Draft:
    places = [(entry.value_node, entry.pointer) for entry in (*facts.selector_architectures, *facts.selector_systems)]
    places += [
        (clause.node, clause.pointer)
        for clause in facts.expressions
        if sets.is_architecture_constraint(clause) or sets.is_os_constraint(clause)
    ]
    node, where = next(iter(places), (facts.pod_spec.node, facts.pod_spec.pointer))
    names = tuple(dict.fromkeys(image.name for image, _ in facts.supported.constraining))
    return Draft(
        rule="MA104",
        message=f"{facts.subject} can run nowhere: it admits {listed(facts.admitted)}, "
        f"but {', '.join(names)} {'has' if len(names) == 1 else 'have in common'} only {listed(facts.platforms)}",
        hint=f"ask for {_architectures(facts)} (polyarch fix --replace), or use an image built for what is asked for",
        node=node,
        pointer=where,
        images=names,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: replacing.replace(facts))
        if facts.options.fixes.replace
        else needs_flag(facts, "--replace", "writes what the images support instead"),
    )


def no_common_platform(facts: PodFacts) -> Draft:
    """MA105: the images of the pod exclude each other, or one of them runs nowhere."""
    conflict = facts.supported.conflict
    names = tuple(dict.fromkeys(image.name for image in conflict))
    if len(conflict) == 1:
        message = f"{facts.subject} can run nowhere: {names[0]} has no platform that a node can have"
        hint = "publish the image for a platform of the cluster, or use another one"
    else:
        each = "; ".join(f"{image.name} has {_has(image)}" for image in conflict)
        message = f"{facts.subject} can run nowhere: its images have no platform in common ({each})"
        hint = "publish one of these images for a platform of the others, or move it to a pod of its own"
    return Draft(
        rule="MA105",
        message=message,
        hint=hint,
        node=conflict[0].use.node,
        pointer=conflict[0].use.pointer,
        images=names,
        platforms=PlatformSets(admitted=texts(facts.admitted)),
        repair=Repair((), note="no platform would do", document=facts.pod_spec.document.index),
    )


def _mixed(facts: PodFacts, without: tuple[Term, ...]) -> Draft:
    indexes = [term.pointer.rpartition("/")[2] for term in without]
    which = f"term {indexes[0]} says" if len(indexes) == 1 else f"terms {', '.join(indexes)} say"
    reason, images = shortfalls(facts, facts.excess)
    chosen = {term.pointer for term in without}
    return Draft(
        rule="MA107",
        sub="mixed",
        message=f"{facts.subject} requires architectures in some node affinity terms, but {which} nothing "
        f"of them and so {listed(facts.excess)} is admitted, while {reason}",
        hint="terms are alternatives: each needs the architecture expression",
        node=without[0].node,
        pointer=without[0].pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts, only=lambda term: term.pointer in chosen)),
    )


def _empty_term(facts: PodFacts, term: Term, *, every: bool) -> Draft:
    index = term.pointer.rpartition("/")[2]
    effect = "so no node at all matches" if every else "so it is never the alternative it seems to be"
    return Draft(
        rule="MA107",
        sub="empty-term",
        severity=Severity.ERROR if every else Severity.WARNING,
        message=f"{facts.subject} has an empty node affinity term (term {index}), which matches nothing, {effect}",
        hint="remove the term or say in it what is meant",
        node=term.node,
        pointer=term.pointer,
        platforms=platform_sets(facts),
    )


def _no_terms(facts: PodFacts, required: Required) -> Draft:
    return Draft(
        rule="MA107",
        sub="no-terms",
        severity=Severity.ERROR,
        message=f"{facts.subject} requires node affinity without any nodeSelectorTerms; the API server refuses it",
        hint=f"add a term, for example kubernetes.io/arch in {_architectures(facts)}",
        node=required.terms_node or required.node,
        pointer=required.terms_pointer if required.terms_node is not None else required.pointer,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def _architectures(facts: PodFacts) -> str:
    if facts.platforms.is_everything:
        return "the architectures meant"
    return ", ".join(facts.platforms.architectures())
