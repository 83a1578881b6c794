"""MA104: the pod admits no platform that all of its images support.

Pure.
"""

from collections.abc import Sequence

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import platform_sets, supported_architectures
from polyarch.manifests.lint.facts import Draft, PodFacts, needs_flag, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing import replacing
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import listed

RULE = Rule(
    id="MA104",
    severity=Severity.ERROR,
    title="A pod requires platforms that its images lack",
    meaning="No platform is both admitted by the constraints of the pod and supported by all of its images: the pod "
    "can run nowhere.",
    fix="Replaces the required architectures with the supported ones.",
    flag="--replace",
)


def draft(facts: PodFacts) -> Draft:
    places = [(entry.value_node, entry.pointer) for entry in (*facts.selector_architectures, *facts.selector_systems)]
    places += [
        (clause.node, clause.pointer)
        for clause in facts.expressions
        if sets.is_architecture_constraint(clause) or sets.is_os_constraint(clause)
    ]
    node, where = next(iter(places), (facts.pod_spec.node, facts.pod_spec.pointer))
    names = tuple(dict.fromkeys(image.name for image, _ in facts.supported.constraining))
    return Draft(
        rule=RULE,
        message=f"{facts.subject} can run nowhere: {_why(facts, names)}",
        hint=f"require {supported_architectures(facts)} (polyarch fix --replace), "
        + ("or use an image built for the required architecture" if facts.admitted else "and nothing that excludes it"),
        node=node,
        pointer=where,
        images=names,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: replacing.replace(facts))
        if facts.options.fixes.replace
        else needs_flag(facts, "--replace", "writes the architectures that the images support instead"),
    )


def _why(facts: PodFacts, names: Sequence[str]) -> str:
    if not facts.admitted:
        return "its node selector and required node affinity admit no platform"
    have = "has only" if len(names) == 1 else "have in common only"
    return f"it admits {listed(facts.admitted)}, but {', '.join(names)} {have} {listed(facts.platforms)}"
