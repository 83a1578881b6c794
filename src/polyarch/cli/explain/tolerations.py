"""The part of an explanation that is about taints: decided by the rules of admission and controller."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from polyarch.cli.explain.pods import Configuration, GivenPod
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.oci.inspection import Inspection
from polyarch.taints.decision import TolerationLookupProgress
from polyarch.taints.events import explain_tolerations
from polyarch.taints.node_rules import architecture_of
from polyarch.taints.pod_rules import Case, PodFacts, Waited, decide, decide_after, examine


class TolerationExplainer(NamedTuple):
    """A pod that is decided about once its images are known."""

    configuration: Configuration
    case: Case
    age: float | None
    """Seconds since a stored pod was created; None: it is being admitted."""

    def explained(self, answers: Mapping[str, Inspection]) -> dict[str, Any]:
        """The member of the pod's entry."""
        if self.age is None:
            decision = decide(self.case, answers, TolerationLookupProgress.FIRST)
        else:
            decision = decide_after(self.case, answers, Waited(self.age))
        return explain_tolerations(self.case, decision, self.configuration.machines)


def tolerated(given: GivenPod, configuration: Configuration, *, age: float | None = None) -> TolerationExplainer | None:
    """None if no ArchitectureTaints is given."""
    settings = configuration.taints
    if settings is None:
        return None
    existing = frozenset(filter(None, map(architecture_of, configuration.machines)))
    facts = PodFacts(
        pod=given.pod,
        namespace=given.namespace,
        settings=settings,
        namespace_labels=configuration.namespaces.get(given.namespace, {}),
        existing=existing,
        stored=age is not None,
        is_own=given.namespace == DEFAULT_NAMESPACE,
    )
    return TolerationExplainer(configuration, examine(facts), age)
