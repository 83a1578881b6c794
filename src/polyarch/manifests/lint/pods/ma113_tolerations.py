"""MA113: a DaemonSet lacks tolerations for nodes tainted by architecture (TN-030 to TN-032).

Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.options import Taints
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import extend
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.nodes import get, value

RULE = Rule(
    id="MA113",
    severity=Severity.WARNING,
    title="A DaemonSet does not tolerate the taint of an architecture it supports",
    meaning="The configuration says that nodes of some architectures are tainted. Without the toleration a DaemonSet "
    "does not run on them.",
    fix="Adds the tolerations.",
    default=False,
)


def check(facts: PodFacts) -> Iterator[Draft]:
    """One finding for all taints of supported architectures that no toleration covers."""
    taints = facts.options.taints
    if taints is None or facts.pod_spec.object.kind != "DaemonSet" or not facts.supported.exact:
        return
    held = [value(node) for node in facts.pod_spec.tolerations]
    missing = [
        architecture
        for architecture in _architectures(facts, taints)
        if not any(covers(toleration, taints, architecture) for toleration in held)
    ]
    if missing:
        named = ", ".join(f"{taints.key}={architecture}:{taints.effect}" for architecture in missing)
        yield Draft(
            rule=RULE,
            message=f"{facts.subject} does not tolerate {named}, though its images support {', '.join(missing)}",
            hint="add the tolerations; without them it does not run on nodes of these architectures",
            node=facts.pod_spec.node,
            pointer=facts.pod_spec.pointer,
            repair=repair(facts, lambda: _added(facts, taints, missing)),
        )


def covers(toleration: Any, taints: Taints, architecture: str) -> bool:
    """As Kubernetes matches tolerations (TN-030); one that expires after ``tolerationSeconds`` does not count."""
    if not isinstance(toleration, Mapping):
        return False
    effect, key, operator = (toleration.get(name) or "" for name in ("effect", "key", "operator"))
    if effect not in ("", taints.effect):
        return False
    if taints.effect == "NoExecute" and toleration.get("tolerationSeconds") is not None:
        return False
    if operator == "Exists":
        return key in ("", taints.key)
    return operator in ("", "Equal") and key == taints.key and (toleration.get("value") or "") == architecture


def _architectures(facts: PodFacts, taints: Taints) -> list[str]:
    """The tainted architectures that the pod may run on, by images, constraints and operating system (TN-031)."""
    systems = {each.os for each in facts.admitted}
    system = facts.supported.os_name or (systems.pop() if len(systems) == 1 else "linux")
    return sorted(
        {
            each.architecture
            for each in facts.admitted
            if each.os == system
            and each in facts.platforms
            and (not taints.architectures or each.architecture in taints.architectures)
        }
    )


def _added(facts: PodFacts, taints: Taints, missing: list[str]) -> list[TreeOperation]:
    facts.check_editable()
    where = f"{facts.pod_spec.pointer}/tolerations"
    node = get(facts.pod_spec.node, "tolerations")
    added = [
        {"key": taints.key, "operator": "Equal", "value": architecture, "effect": taints.effect}
        for architecture in missing
    ]
    return extend(node, where, added)
