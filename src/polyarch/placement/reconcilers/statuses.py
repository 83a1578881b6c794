"""Writes the status of PodPlacementConfigs and of the PlacementPolicy (PL-030, PL-032, PL-033, PL-041).

A pass is about one namespace, or about the policy, and writes only what differs. The numbers of held and unplaced pods
come from the controllers' leader, at most every 30 s.
"""

from collections.abc import Callable
from typing import Any, Final

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import NotFound
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import LEASES
from polyarch.kube.store import Change
from polyarch.objects import Condition, Key, PartialObjectMetadata, Unstructured
from polyarch.placement import names
from polyarch.placement.api import POLICIES, PPCS, LeaderNotes
from polyarch.placement.operator.status import readiness
from polyarch.placement.reconcilers.observation import SINGLETON, Observation

COUNTING: Final = 30.0
"""Seconds between two writes of the numbers of pods."""


class StatusReconciler:
    """Keys: a namespace of PodPlacementConfigs as ``Key(namespace, "")``, and ``SINGLETON`` for the policy.

    ``left_out``: called when the controllers' leader tells of other facts that it does without.
    """

    def __init__(
        self,
        client: Client,
        observation: Observation,
        *,
        home: str,
        clock: Clock,
        left_out: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._observation = observation
        self._home = home
        self._clock = clock
        self._left_out = left_out
        self._notes = LeaderNotes()
        self._asked_at: float | None = None

    def listen(self, queue: WorkQueue[Key]) -> None:
        """Enqueues what a change is about."""

        def configs_changed(change: Change[Unstructured]) -> None:
            queue.add(Key(change.key.namespace, ""))

        def policy_changed(*_: object) -> None:
            queue.add(SINGLETON)

        self._observation.config_documents.add_handler(configs_changed)
        for informer in (self._observation.policy_documents, self._observation.documents):
            informer.add_handler(policy_changed)
        self._observation.namespaces_changed = policy_changed

    @property
    def notes(self) -> LeaderNotes:
        """What the controllers' leader last reported."""
        return self._notes

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        if key == SINGLETON:
            return await self._policy()
        return await self._configs(key.namespace)

    async def _configs(self, namespace: str) -> Result:
        several = [each for each in self._observation.configs.store.values() if each.metadata.namespace == namespace]
        for name, condition in readiness.of_configs(several).items():
            document = self._observation.config_documents.store.get(Key(namespace, name))
            if document is None or document.metadata.deletion_timestamp is not None:
                continue
            status = {"conditions": self._merged(condition, document)}
            await apply_status(self._client, PPCS, document, status, writes=self._observation.config_documents.writes)
        return Done()

    async def _policy(self) -> Result:
        observation = self._observation
        policy, document = observation.policies.store.get(SINGLETON), observation.policy_documents.store.get(SINGLETON)
        observation.want_namespaces(bool(policy is not None and policy.overrides))
        await self._ask()
        if policy is None or document is None or document.metadata.deletion_timestamp is not None:
            return After(COUNTING)
        table = observation.policy
        condition = readiness.of_policy(table, configured=observation.configuration is not None)
        status: dict[str, Any] = {
            "observedGeneration": document.metadata.generation,
            "conditions": self._merged(condition, document),
            "heldPods": self._notes.held,
            "unplacedPods": self._notes.unplaced,
        }
        if policy.overrides:
            labels = [each.metadata.labels or {} for each in observation.namespaces]
            status["overrides"] = readiness.matched(policy, table, labels)
        await apply_status(self._client, POLICIES, document, status, writes=observation.policy_documents.writes)
        return After(COUNTING)

    async def _ask(self) -> None:
        """Reads what the controllers' leader reports, unless that was done shortly before."""
        now = self._clock.monotonic()
        if self._observation.configuration is None:
            self._notes, self._asked_at = LeaderNotes(), None
            return
        if self._asked_at is not None and now - self._asked_at < COUNTING - 1:
            return
        self._asked_at = now
        before = self._notes.left_out
        try:
            lease = await self._client.get(
                LEASES, names.CONTROLLER_LEASE, namespace=self._home, type=PartialObjectMetadata
            )
        except NotFound:
            self._notes = LeaderNotes()
        else:
            self._notes = LeaderNotes.of(lease.metadata.annotations)
        if self._notes.left_out != before:
            self._left_out()

    def _merged(self, condition: Condition, document: Unstructured) -> list[dict[str, Any]]:
        return merged(
            [condition],
            document.status.get("conditions"),
            generation=document.metadata.generation,
            now=self._clock.now(),
        )
