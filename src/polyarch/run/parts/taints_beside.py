"""Taints in the operator's process, beside placement: each feature learns of the other what concerns it (TN-003).

Features do not import each other. Placement's Deployments tolerate the taint, and the webhook of taints is for the pods
that placement's does not see.
"""

from collections.abc import Callable, Mapping
from typing import Any

from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.resources import MUTATING_WEBHOOKS
from polyarch.objects import Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import Discovery, OperatorNamespace
from polyarch.operator.components.placement_reconciler import PlacementInformers
from polyarch.operator.components.taints_reconciler import TaintsReconciler, TaintsUninstaller
from polyarch.operator.components.taints_status import PlacementScope
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.selectors import InvalidSelector, Selector
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import NOTHING


class PlacementBeside:
    """Placement as taints sees it."""

    def __init__(self, observation: PlacementInformers, operands: OperandApplySets) -> None:
        self._observation = observation
        self._operands = operands

    @property
    def configuration(self) -> PlacementScope | None:
        """What the ClusterPodPlacementConfig and the policy say; None without the former."""
        found, policy = self._observation.configuration, self._observation.policy.spec
        if found is None:
            return None
        selector = found.spec.namespace_selector
        try:
            namespaces = Selector.parse(selector) if selector is not None else None
        except InvalidSelector:
            namespaces = NOTHING
        return PlacementScope(namespaces=namespaces, excluded=policy.excluded_namespaces, audits=policy.mode == "audit")

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """The entry of the pod webhook's configuration, as the API server has it."""
        found = self._operands.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        if found is None or found.metadata.deletion_timestamp is not None:
            return None
        registered: list[dict[str, Any]] = found.document.get("webhooks") or []
        return registered[0] if registered else None


class OperatedTaints:
    """The reconciler of taints and what it watches. ``placed``: the operands of placement, whose kinds are the same."""

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        home: OperatorNamespace,
        discovery: Discovery,
        observation: PlacementInformers,
        placed: OperandApplySets,
        sets: OperandApplySets,
        secrets: ServingSecrets,
    ) -> None:
        self._objects: Informer[Unstructured] = process.informer(ARCHITECTURE_TAINTS, Unstructured)
        self._sets = sets
        client, clock = process.client, process.clock
        self.reconciler = TaintsReconciler(
            client,
            settings,
            self._objects,
            home=home,
            discovery=discovery,
            sets=sets,
            trust=secrets,
            placement=PlacementBeside(observation, placed),
            farewell=TaintsUninstaller(client, process.informers, sets, home=settings.namespace, clock=clock),
            clock=clock,
        )

    def on_change(self, changed: Callable[..., None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""
        self._objects.add_handler(changed)
        self._sets.add_handler(changed)
