"""MA205: findings of the rules for pods in a deployment of a bundle.

It has an id of its own because operator-sdk's validator has one check for all of them; ``sub`` names the rule.

Pure.
"""

from dataclasses import replace

from polyarch.manifests.bundle.service_version import KIND
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA205",
    severity=Severity.ERROR,
    title="A deployment of a bundle does not match its images",
    meaning="One of MA101, MA102, MA103, MA106, MA107 and MA109 in a deployment of a ClusterServiceVersion; sub names "
    "the rule, and its severity applies.",
    fix="As for the rule that sub names.",
    subs=("MA101", "MA102", "MA103", "MA106", "MA107", "MA109"),
    upstream="V5",
)


def bundled(facts: PodFacts, draft: Draft) -> Draft:
    """The draft as MA205, if it is of a rule that MA205 stands for, in a ClusterServiceVersion."""
    base = draft.rule
    if base.id not in RULE.subs or facts.pod_spec.object.kind != KIND:
        return draft
    severity = facts.options.severity(base.id, draft.severity or base.severity)
    return replace(draft, rule=RULE, sub=base.id, severity=severity)
