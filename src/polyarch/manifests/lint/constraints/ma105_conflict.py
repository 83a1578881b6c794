"""MA105: the images of a pod have no platform in common, or one of them has no platform (MF-022).

Pure.
"""

from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.constraints.wording import in_words
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import texts

RULE = Rule(
    id="MA105",
    severity=Severity.ERROR,
    title="The images of a pod have no platform in common",
    meaning="Each image runs somewhere, but no platform is supported by all of them; or one image has no platform at "
    "all.",
)


def draft(facts: PodFacts) -> Draft:
    conflict = facts.supported.conflict
    names = tuple(dict.fromkeys(image.name for image in conflict))
    if len(conflict) == 1:
        message = f"{facts.subject} can run nowhere: {names[0]} has no platform that a node can have"
        hint = "publish the image for a platform of the cluster, or use another one"
    else:
        each = "; ".join(f"{image.name} has {in_words(image)}" for image in conflict)
        message = f"{facts.subject} can run nowhere: its images have no platform in common ({each})"
        hint = "publish one of these images for a platform of the others, or move it to a pod of its own"
    return Draft(
        rule=RULE,
        message=message,
        hint=hint,
        node=conflict[0].use.node,
        pointer=conflict[0].use.pointer,
        images=names,
        platforms=PlatformSets(admitted=texts(facts.admitted)),
        repair=Repair((), note="the images share no platform", document=facts.pod_spec.document.index),
    )
