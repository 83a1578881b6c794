"""MA101: a pod has no architecture constraint, and an image does not run everywhere.

Pure.
"""

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import platform_sets, shortfalls, supported_architectures
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import restrict
from polyarch.manifests.scan.sets import DEFAULT_UNIVERSE, listed

RULE = Rule(
    id="MA101",
    severity=Severity.WARNING,
    title="A pod without an architecture constraint can land where its images do not run",
    meaning="The pod has no architecture constraint, and an image lacks a platform that nodes may have. Nodes may be "
    "linux on amd64, arm64, ppc64le or s390x, unless --platforms names those of the cluster; then the finding "
    "is an error.",
    fix="Adds required node affinity with the architectures and operating systems that all images support.",
)


def draft(facts: PodFacts) -> Draft:
    reason, images = shortfalls(facts, facts.excess)
    usual = ", ".join(sorted(each.architecture for each in DEFAULT_UNIVERSE))
    assumed = "" if facts.options.platforms else f"; nodes may be {usual}, unless --platforms names yours"
    return Draft(
        rule=RULE,
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
