"""MA102: the architecture constraints admit a platform that an image lacks.

Pure.
"""

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import architecture_place, platform_sets, shortfalls
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import restrict
from polyarch.manifests.scan.sets import listed

RULE = Rule(
    id="MA102",
    severity=Severity.ERROR,
    title="A pod admits platforms that its images lack",
    meaning="The architecture constraints admit a platform that an image is not built for.",
    fix="Removes values that no image supports; adds an In expression where that is not enough.",
)


def draft(facts: PodFacts) -> Draft:
    reason, images = shortfalls(facts, facts.excess)
    node, where = architecture_place(facts, facts.excess)
    return Draft(
        rule=RULE,
        message=f"{facts.subject} admits {listed(facts.excess)}, but {reason}",
        hint=f"remove the platforms that the images lack, which leaves {listed(facts.admitted - facts.excess)}, "
        "or publish the images for them",
        node=node,
        pointer=where,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )
