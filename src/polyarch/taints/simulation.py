"""Where pods of a template may run before and after nodes get their taints. Pure.

Only what a taint can change, and what it stands beside, is looked at: nodeSelector, required node affinity, and taints
that keep pods off. Resources, pod affinity and topology spread are ignored, and whoever prints the result says so.

Nodes that are alike for a template count as one: a cluster has many nodes, but few combinations of the labels that a
template asks for with the taints there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.objects import Pod
from polyarch.selectors import InvalidSelector, NodeTerm, admits
from polyarch.tolerations import NO_EXECUTE, NO_SCHEDULE, REPELS, Taint, Toleration, is_tolerated

IGNORED: Final = "resources, pod affinity and topology spread constraints"
"""What the simulation does not look at."""
BY_CONTROLLER: Final = (
    Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect=NO_EXECUTE),
    Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect=NO_EXECUTE),
    Toleration(key="node.kubernetes.io/disk-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/pid-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect=NO_SCHEDULE),
)
"""What the DaemonSet controller adds to its pods (``pkg/controller/daemon/util/daemonset_util.go``)."""


class NodeView(msgspec.Struct, frozen=True):
    """A node, with its taints as they are and as they are planned."""

    name: str
    architecture: str
    labels: Mapping[str, str]
    before: tuple[Taint, ...] = ()
    after: tuple[Taint, ...] = ()


class PodRequirements(msgspec.Struct, frozen=True):
    """What decides where pods of a template may run."""

    node_selector: Mapping[str, str]
    terms: tuple[NodeTerm, ...] | None
    """Of the required node affinity; None: there is none."""
    before: tuple[Toleration, ...] = ()
    after: tuple[Toleration, ...] = ()

    @classmethod
    def of(cls, pod: Pod, added: Iterable[Toleration] = (), *, by_controller: bool = False) -> "PodRequirements":
        """``added``: the tolerations that the pod gets; ``by_controller``: it is a DaemonSet's."""
        required = pod.required
        own = (*(pod.spec.tolerations or ()), *(BY_CONTROLLER if by_controller else ()))
        return cls(
            node_selector=pod.spec.node_selector or {},
            terms=None if required is None else tuple(_parsed(required.node_selector_terms or ())),
            before=own,
            after=(*own, *added),
        )

    @property
    def keys(self) -> frozenset[str]:
        """The labels that it asks for."""
        return frozenset(self.node_selector) | {each.key for term in self.terms or () for each in term.expressions}

    @property
    def names_nodes(self) -> bool:
        """A term selects nodes by name."""
        return any(term.fields for term in self.terms or ())


class FitResult(msgspec.Struct, frozen=True):
    """How many nodes of each architecture take the pods; an architecture without one is absent."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    lost: tuple[str, ...] = ()
    """The architectures for which the template is blocked, sorted."""

    @property
    def is_blocked(self) -> bool:
        return bool(self.lost)


class ClusterView:
    """The nodes of a cluster. Asking about many templates costs little more than about the different ones."""

    def __init__(self, sites: Iterable[NodeView]) -> None:
        self._sites = tuple(sites)
        self._views: dict[frozenset[str], list[_NodeClass]] = {}

    def fate(self, guest: PodRequirements, *, hosts: frozenset[str] | None = None) -> FitResult:
        """What the planned taints do to pods of a template.

        ``hosts``: of a DaemonSet, the architectures on which it has pods now; each of them counts for itself. For
        other templates one node anywhere is enough.
        """
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        for site, number in self._groups(guest):
            if not _admitted(guest, site):
                continue
            if _is_let_in(site.before, guest.before):
                before[site.architecture] += number
            if _is_let_in(site.after, guest.after):
                after[site.architecture] += number
        if hosts is not None:
            lost = {each for each in hosts if before[each] and not after[each]}
        else:
            lost = set() if after else set(before)
        return FitResult(dict(sorted(before.items())), dict(sorted(after.items())), tuple(sorted(lost)))

    def _groups(self, guest: PodRequirements) -> list["_NodeClass"]:
        """The nodes that differ for this guest, each with the number of those like it."""
        if guest.names_nodes:
            return [_NodeClass(site, 1) for site in self._sites]
        keys = guest.keys
        if keys not in self._views:
            alike: dict[object, list[NodeView]] = {}
            for site in self._sites:
                asked = tuple((key, site.labels[key]) for key in sorted(keys) if key in site.labels)
                alike.setdefault((site.architecture, asked, site.before, site.after), []).append(site)
            self._views[keys] = [_NodeClass(sites[0], len(sites)) for sites in alike.values()]
        return self._views[keys]


class _NodeClass(NamedTuple):
    """Nodes that are alike: one of them, and how many there are."""

    site: NodeView
    number: int


def _parsed(terms: Iterable[object]) -> Iterator[NodeTerm]:
    """A term that Kubernetes would refuse matches no node."""
    for term in terms:
        try:
            yield NodeTerm.parse(term)
        except InvalidSelector:
            continue


def _admitted(guest: PodRequirements, site: NodeView) -> bool:
    return admits(guest.terms, site.labels, node_selector=guest.node_selector, node_name=site.name)


def _is_let_in(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> bool:
    return all(is_tolerated(taint, tolerations) for taint in taints if taint.effect in REPELS)
