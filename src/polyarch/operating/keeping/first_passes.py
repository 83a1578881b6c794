"""Whether a leader has looked at everything: what it finds as its predecessor left it is its own word from then on.

Whoever waits for an operator after changed settings (``polyarch install --wait``) cannot tell "it has nothing to do"
from "it has not begun" by the objects. The leader says it in its Lease.
"""

from collections.abc import Awaitable, Callable, Iterable

from polyarch.kube.controller import Result
from polyarch.objects import Key

Reconcile = Callable[[Key], Awaitable[Result]]


class FirstPasses:
    """The first passes of these controllers. One that fails does not count, nor does one that ends with ``not_yet``:
    it waits for a cache, or its own write."""

    def __init__(self, names: Iterable[str], *, not_yet: Result) -> None:
        self._missing = set(names)
        self._not_yet = not_yet

    @property
    def are_over(self) -> bool:
        return not self._missing

    def of(self, name: str, reconcile: Reconcile) -> Reconcile:
        """The same reconciler, watched."""

        async def watched(key: Key) -> Result:
            result = await reconcile(key)
            if result != self._not_yet:
                self._missing.discard(name)
            return result

        return watched
