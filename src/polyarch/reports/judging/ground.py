"""The nodes of a cluster as ground for pods: what keeps a template off every node of a target, each by its path and
value (RP-010).

Where the target has nodes, these decide, by the scheduler's rules on all their labels and taints. Where it has none
yet, only what a pod says of platforms counts: which other labels the nodes will have, nobody knows.

Taints of a node's condition (``node.kubernetes.io/…``: not ready, cordoned) pass: they exclude nothing here. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from polyarch.images.constraints import PLATFORM_KEYS, constraints_of
from polyarch.objects import NodeSelector, NodeSelectorTerm, Pod
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Reason
from polyarch.reports.facts.cluster import NodeFact, target_name
from polyarch.reports.wording import excludes
from polyarch.taints.simulation import BY_CONTROLLER, Guest, Landscape, Site
from polyarch.tolerations import REPELS, Taint, Toleration, uncovered

REQUIRED: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_ANYTHING: Final = (Toleration(operator="Exists"),)


class Ground:
    """The nodes, by target."""

    def __init__(self, nodes: Iterable[NodeFact]) -> None:
        nodes = tuple(nodes)
        self._numbers = Counter(node.platform for node in nodes)
        self._landscape = Landscape(map(_site, nodes))
        self._taints = {
            platform: _common(_lasting(node) for node in nodes if node.platform == platform)
            for platform in self._numbers
        }

    def nodes(self, target: NodePlatform) -> int:
        """How many there are of a platform."""
        return self._numbers[target]

    def obstacles(
        self,
        pod: Pod,
        target: NodePlatform,
        *,
        path: str,
        added: Iterable[Toleration] = (),
        by_controller: bool = False,
    ) -> tuple[Reason, ...]:
        """What keeps the pod off every node of the target; empty if one takes it.

        ``added``: tolerations that the pod gets when it is created. ``by_controller``: it is a DaemonSet's.
        """
        stated = pod.spec.os.name if pod.spec.os is not None else ""
        if stated and stated != target.os:
            return (_reason("OperatingSystem", target, f"{path}.os.name", stated, "it is for {value}"),)
        if not self.nodes(target):
            return tuple(_without_nodes(pod, target, path))
        own = (*(pod.spec.tolerations or ()), *(BY_CONTROLLER if by_controller else ()), *added)
        guest = Guest.of(pod)
        if self._takes(Guest(guest.node_selector, guest.terms, own), target):
            return ()
        return tuple(self._why(guest, own, pod, target, path))

    def _takes(self, guest: Guest, target: NodePlatform) -> bool:
        return bool(self._landscape.fate(guest).before.get(target_name(target)))

    def _why(
        self, guest: Guest, own: tuple[Toleration, ...], pod: Pod, target: NodePlatform, path: str
    ) -> Iterator[Reason]:
        found = False
        for key, value in guest.node_selector.items():
            if not self._takes(Guest({key: value}, None, _ANYTHING), target):
                found = True
                yield _selected(key, value, target, path)
        if not self._takes(Guest({}, guest.terms, _ANYTHING), target):
            found = True
            yield _required(pod, target, path)
        if not self._takes(Guest({}, None, own), target):
            found = True
            taints = uncovered(self._taints[target], own)
            value = ", ".join(map(str, taints)) or "different taints on different nodes"
            yield _reason(
                "TaintNotTolerated", target, f"{path}.tolerations", value,
                "it does not tolerate the taints of every {target} node: {value}",
            )  # fmt: skip
        if not found:
            yield _reason(
                "NoNodeAdmits", target, path, "",
                "no {target} node fits its nodeSelector, required affinity and tolerations together",
            )  # fmt: skip


def _without_nodes(pod: Pod, target: NodePlatform, path: str) -> Iterator[Reason]:
    constraints = constraints_of(pod)
    if constraints.admits(target):
        return
    found = False
    for key, value in constraints.selector.items():
        if value != (target.architecture if key.endswith("/arch") else target.os):
            found = True
            yield _selected(key, value, target, path)
    if not found:
        yield _required(pod, target, path)


def _selected(key: str, value: str, target: NodePlatform, path: str) -> Reason:
    message = (
        f"its nodeSelector asks for {key}={value}"
        if key in PLATFORM_KEYS
        else f"no {target_name(target)} node has {key}={value}, which its nodeSelector asks for"
    )
    return Reason("NodeSelector", message, f"{path}.nodeSelector[{key}]", value)


def _required(pod: Pod, target: NodePlatform, path: str) -> Reason:
    value = spelled(pod.required)
    return Reason("RequiredAffinity", excludes(target_name(target), value), f"{path}.{REQUIRED}", value)


def _reason(code: str, target: NodePlatform, path: str, value: str, message: str) -> Reason:
    return Reason(code, message.replace("{target}", target_name(target)).replace("{value}", value), path, value)


def names_platforms(reason: Reason) -> bool:
    """Whether the workload itself says that it is meant for other platforms."""
    if reason.code == "RequiredAffinity":
        return any(key in reason.value for key in PLATFORM_KEYS)
    return reason.code == "OperatingSystem" or (
        reason.code == "NodeSelector" and any(f"[{key}]" in reason.path for key in PLATFORM_KEYS)
    )


def spelled(required: NodeSelector | None) -> str:
    """Required affinity on one line: ``kubernetes.io/arch In (amd64) or …``."""
    terms = (required.node_selector_terms if required is not None else None) or ()
    return " or ".join(map(_term, terms)) or "no term, which matches no node"


def _term(term: NodeSelectorTerm) -> str:
    parts = []
    for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
        values = f" ({', '.join(each.values)})" if each.values else ""
        parts.append(f"{each.key} {each.operator}{values}")
    return " and ".join(parts) or "an empty term, which matches no node"


def _site(node: NodeFact) -> Site:
    return Site(node.name, target_name(node.platform), node.labels, before=_lasting(node))


def _lasting(node: NodeFact) -> tuple[Taint, ...]:
    return tuple(each for each in node.taints if each.effect in REPELS and not each.key.startswith(_PASSING))


def _common(several: Iterable[tuple[Taint, ...]]) -> tuple[Taint, ...]:
    """The taints that every one of the nodes has."""
    first, *rest = ({(each.key, each.value, each.effect): each for each in taints} for taints in several)
    shared: Mapping[tuple[str, str, str], Taint] = first
    for each in rest:
        shared = {key: taint for key, taint in shared.items() if key in each}
    return tuple(shared[key] for key in sorted(shared))
