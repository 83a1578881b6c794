"""What is known about the templates of all DaemonSets, for the status and for who taints nodes (TN-014, TN-025). Pure.

A template is *covered* if nothing is to be added to it, or if its DaemonSet opted out or is not selected. One that
waits for its turn is not covered yet, and one with unknown images is blocked.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.objects import Condition, Key, Node, Pod
from polyarch.taints.decide.decision import PodDecision, Reason
from polyarch.taints.decide.node_taints import architecture_of
from polyarch.taints.plan.simulation import Guest, Landscape, Site
from polyarch.taints.result.contribution import AS_EXPECTED, DAEMON_SETS_COVERED

MOST_SHOWN: Final = 50
"""Entries of ``status.blockedTemplates`` (TN-014)."""
NAMED: Final = 5


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """One DaemonSet."""

    key: Key
    pod: Pod
    """As its template describes it."""
    reason: Reason
    lacking: tuple[str, ...] = ()
    """Architectures for which a toleration is to be added, or may be when the missing answers are there; sorted."""
    is_unknown: bool = False
    """An answer is missing."""
    is_pending: bool = False
    """It may be there in a moment: its image has neither answered nor failed."""

    @property
    def is_blocked(self) -> bool:
        """Nobody knows what it should tolerate, or no node can run it."""
        return self.is_unknown or self.reason is Reason.NO_COMMON_ARCHITECTURE

    @property
    def entry(self) -> dict[str, Any]:
        """In ``status.blockedTemplates``."""
        return {
            "kind": "DaemonSet",
            "namespace": self.key.namespace,
            "name": self.key.name,
            "architectures": list(self.lacking),
            "reason": self.reason.value,
        }


def verdict_of(
    key: Key, pod: Pod, decision: PodDecision, possible: Iterable[str], *, is_pending: bool = False
) -> Verdict:
    """``possible``: the tainted architectures that the known answers leave to the template."""
    unknown = bool(decision.unresolved)
    return Verdict(
        key=key,
        pod=pod,
        reason=Reason.ARCHITECTURE_UNKNOWN if unknown else decision.reason,
        lacking=tuple(sorted(possible)) if unknown else decision.added,
        is_unknown=unknown,
        is_pending=unknown and is_pending,
    )


def uncovered(verdicts: Iterable[Verdict], architecture: str, nodes: Iterable[Node]) -> list[str]:
    """The DaemonSets with pods on nodes of that architecture whose templates would get none there any more.

    Their pods are not looked at: the DaemonSet controller has one on every node that takes it (TN-062).
    """
    lacking = [each for each in verdicts if architecture in each.lacking]
    if not lacking:
        return []
    landscape = Landscape(_sites(nodes, architecture))
    return [str(each.key) for each in lacking if landscape.fate(Guest.of(each.pod, by_controller=True)).before]


def _sites(nodes: Iterable[Node], architecture: str) -> Iterator[Site]:
    for node in nodes:
        if architecture_of(node) == architecture:
            taints = tuple(node.spec.taints or ())
            yield Site(node.metadata.name, architecture, node.metadata.labels or {}, before=taints, after=taints)


def fields(verdicts: Iterable[Verdict]) -> Mapping[str, Any]:
    """Members of the status."""
    blocked = sorted((each for each in verdicts if each.is_blocked), key=lambda each: each.key)
    return {
        "blockedTemplates": [each.entry for each in blocked[:MOST_SHOWN]],
        "blockedTemplatesTotal": len(blocked),
    }


def condition(verdicts: Iterable[Verdict]) -> Condition:
    """``DaemonSetsCovered``."""
    several = sorted((each for each in verdicts if each.lacking or each.is_unknown), key=lambda each: each.key)
    if not several:
        return Condition(DAEMON_SETS_COVERED, "True", AS_EXPECTED)
    unknown = [each for each in several if each.is_unknown]
    named = ", ".join(str(each.key) for each in (unknown or several)[:NAMED])
    more = f" and {len(unknown or several) - NAMED} more" if len(unknown or several) > NAMED else ""
    if unknown:
        message = f"images of these DaemonSets are not known: {named}{more}; their Warnings say why"
        return Condition(DAEMON_SETS_COVERED, "False", "ArchitectureUnknown", message)
    message = f"templates of these DaemonSets still lack tolerations: {named}{more}"
    return Condition(DAEMON_SETS_COVERED, "False", "TemplatesPending", message)
