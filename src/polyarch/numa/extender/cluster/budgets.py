"""The disruption budgets of the cluster, for the order of victims (NS-121).

The eviction API has the last word; but whoever asks it pod by pod has evicted some before it hears that another stays.
"""

from polyarch.clock import Clock
from polyarch.kube.informer import Informer, WatchClient
from polyarch.kube.resources import POD_DISRUPTION_BUDGETS
from polyarch.numa.scheduling.preemption.budgets import Budget, BudgetObject, budget


class BudgetCache:
    """Kept current by a watch of its own."""

    def __init__(self, client: WatchClient, *, clock: Clock) -> None:
        self._informer = Informer(client, POD_DISRUPTION_BUDGETS, BudgetObject, clock=clock)

    async def known(self) -> list[Budget]:
        """All that cover pods; waits until they were listed once."""
        await self._informer.synced()
        found = (budget(each) for each in self._informer.store.values())
        return [each for each in found if each is not None]

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._informer.run()
