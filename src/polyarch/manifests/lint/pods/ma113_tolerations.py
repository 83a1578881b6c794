"""MA113: a DaemonSet lacks tolerations for nodes tainted by architecture (TN-030 to TN-032).

Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from polyarch.images.constraints import reach, system_of
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.options import Taints
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import extend
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.nodes import get, value
from polyarch.tolerations import Taint, Toleration, tolerating, uncovered

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
    wanted = (Taint(key=taints.key, value=each, effect=taints.effect) for each in _architectures(facts, taints))
    missing = uncovered(wanted, _held(facts))
    if missing:
        supported = ", ".join(taint.value for taint in missing)
        yield Draft(
            rule=RULE,
            message=f"{facts.subject} does not tolerate {', '.join(map(str, missing))}, though its images support "
            f"{supported}",
            hint="add the tolerations; without them it does not run on nodes of these architectures",
            node=facts.pod_spec.node,
            pointer=facts.pod_spec.pointer,
            repair=repair(facts, lambda: _added(facts, missing)),
        )


def _held(facts: PodFacts) -> tuple[Toleration, ...]:
    """The tolerations that are written; one of another shape than Kubernetes', which it refuses, covers nothing."""
    return tuple(read for node in facts.pod_spec.tolerations if (read := toleration_of(value(node))) is not None)


def toleration_of(document: Any) -> Toleration | None:
    """The toleration that a manifest says, where null counts as absent; None if it says none."""
    if not isinstance(document, Mapping):
        return None
    try:
        given = {key: each for key, each in document.items() if each is not None}
        return msgspec.convert(given, Toleration)
    except msgspec.ValidationError:
        return None


def _architectures(facts: PodFacts, taints: Taints) -> list[str]:
    """The tainted architectures that the pod may run on, as the role ``taints`` judges them (TN-031)."""
    may_run = facts.admitted.__contains__
    found = reach(
        facts.platforms,
        system=system_of(facts.supported.os_name, may_run),
        admits=may_run,
        neutral={each.architecture for each in facts.admitted},
    )
    return sorted(found.intersection(taints.architectures) if taints.architectures else found)


def _added(facts: PodFacts, missing: tuple[Taint, ...]) -> list[TreeOperation]:
    facts.check_editable()
    where = f"{facts.pod_spec.pointer}/tolerations"
    added = [msgspec.to_builtins(tolerating(taint)) for taint in missing]
    return extend(get(facts.pod_spec.node, "tolerations"), where, added)
