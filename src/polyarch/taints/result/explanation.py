"""What ``polyarch explain`` says of a pod's tolerations: per architecture of the cluster's nodes the taint, what covers
it or nothing, and the decision (TN-084). Made of the decision that admission and controller make. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from polyarch.objects import Node
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import PodDecision
from polyarch.taints.decide.node_taints import decide_node
from polyarch.taints.decide.rules import Case
from polyarch.tolerations import Taint, Toleration, covers

Json = dict[str, Any]


def explain_tolerations(case: Case, decision: PodDecision, nodes: Iterable[Node]) -> Json:
    """The member ``tolerations`` of a pod's entry in the document ``polyarch.dev/explain/v1``."""
    return {
        "reason": decision.reason.value,
        "message": decision.message,
        "outcome": decision.outcome.value,
        "architectures": list(decision.architectures),
        "adds": list(decision.added),
        "nodes": [_row(case, decision, *counted) for counted in _counted(nodes, case.settings)],
    }


def _counted(nodes: Iterable[Node], settings: TaintSettings) -> list[tuple[str, int, int]]:
    """Architecture, its nodes, and those that carry the taint."""
    total: Counter[str] = Counter()
    tainted: Counter[str] = Counter()
    for node in nodes:
        found = decide_node(node, settings)
        total[found.architecture] += 1
        tainted[found.architecture] += found.carried
    return [(name, total[name], tainted[name]) for name in sorted(total) if name]


def _row(case: Case, decision: PodDecision, architecture: str, nodes: int, tainted: int) -> Json:
    settings = case.settings
    taint = settings.taint(architecture) if settings.is_tainted(architecture) else None
    covering = _covering(case, taint) if taint is not None else None
    return {
        "architecture": architecture,
        "nodes": nodes,
        "taint": str(taint) if taint is not None else None,
        "tainted": tainted,
        "toleratedBy": msgspec.to_builtins(covering) if covering is not None else None,
        "added": architecture in decision.added,
    }


def _covering(case: Case, taint: Taint) -> Toleration | None:
    return next((each for each in case.pod.spec.tolerations or () if covers(each, taint)), None)
