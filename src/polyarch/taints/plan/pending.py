"""Which pods nothing but a taint of ours keeps pending (TN-026).

A pod counts if it waits for a node, does not tolerate a taint of ours, has not opted out, and would find a node if that
taint were not there: one that its node selector, its required node affinity and all other taints admit. Resources and
the like are not looked at: a pod that they keep pending is one that finds a node by these rules. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from polyarch.objects import Node, Pod
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.eligibility import Circumstances, is_terminating, opted_out
from polyarch.taints.decide.node_taints import architecture_of
from polyarch.taints.plan.simulation import Guest, Landscape, Site
from polyarch.tolerations import REPELS, Taint, is_tolerated

Pending = Mapping[str, Mapping[str, str]]
"""Architecture whose taint it is → uid of the pod → its namespace and name."""


class KnowsUnscheduled(Protocol):
    """Who watches the pods without a node."""

    def pods(self) -> Iterable[Pod] | None:
        """All of them; None: not known yet."""


def pending_because_of_taints(
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    settings: TaintSettings,
    labels_of: Callable[[str], Mapping[str, str] | None],
) -> Pending:
    """The pods among ``pods``, which have no node. ``labels_of`` gives the labels of a Namespace, if they are known."""
    if settings.effect not in REPELS:
        return {}
    fleet = list(nodes)
    carried = {taint.value for node in fleet for taint in node.spec.taints or () if _is_ours(taint, settings)}
    taints = [settings.taint(each) for each in sorted(carried)]
    suspects = [pod for pod in pods if _is_suspect(pod, taints, settings, labels_of)]
    if not suspects:
        return {}
    landscape = Landscape(_sites(fleet, settings))
    found: dict[str, dict[str, str]] = {}
    for pod in suspects:
        fate = landscape.fate(Guest.of(pod))
        for architecture in fate.before if fate.is_blocked else ():
            found.setdefault(architecture, {})[pod.metadata.uid] = str(pod.metadata.key)
    return found


def _is_suspect(
    pod: Pod,
    taints: Iterable[Taint],
    settings: TaintSettings,
    labels_of: Callable[[str], Mapping[str, str] | None],
) -> bool:
    if pod.spec.node_name or pod.spec.scheduling_gates:
        return False
    if all(is_tolerated(taint, pod.spec.tolerations) for taint in taints):
        return False
    namespace = pod.metadata.namespace
    labels = labels_of(namespace) or {}
    case = Circumstances(pod=pod, namespace=namespace, namespace_labels=labels, settings=settings, is_new=False)
    return not is_terminating(case) and not opted_out(case)


def _is_ours(taint: Taint, settings: TaintSettings) -> bool:
    """It is one that nodes get by the settings, whoever put it there."""
    return (taint.key, taint.effect) == (settings.key, settings.effect) and settings.is_tainted(taint.value)


def _sites(nodes: Iterable[Node], settings: TaintSettings) -> Iterator[Site]:
    """The nodes with all their taints, and (as they were before) without ours."""
    for node in nodes:
        taints = tuple(node.spec.taints or ())
        others = tuple(taint for taint in taints if not _is_ours(taint, settings))
        yield Site(
            name=node.metadata.name,
            architecture=architecture_of(node),
            labels=node.metadata.labels or {},
            before=others,
            after=taints,
        )
