"""What the extender answers, without input or output: the books of its mode, and what was said last of each pod.

The books are either reservations by cell (``cell_books``: exact, advise) or the plugin's pessimistic cache
(``plugin_books``: compat). Mutable, for one task.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import MOST_CHOSEN, NodeState, ReservationDocument, Verdict
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.waking.rejected import Waking

_MOST_VERDICTS: Final = 1000
"""Pods whose last answer is kept for ``explain``."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to filter."""

    names: Sequence[str]
    """Of nodes that are answered, in the order of the question."""
    failed: Mapping[str, str] = {}
    """Why each other node will not do."""
    kinds: Mapping[str, int] = {}
    """How many nodes each kind of reason rules out."""
    fitting: int = 0
    """Nodes that would do, whether they are answered or not."""


class Books(Protocol):
    """What a mode keeps. ``now`` is monotonic."""

    freed: list[Callable[[str], None]]
    """Called with the name of a node that may have more room than before."""

    def node(self, name: str) -> NodeFacts | None: ...

    def names(self) -> Iterable[str]: ...

    def node_seen(self, facts: NodeFacts, now: float) -> None:
        """The Node or its object is new, or has changed."""
        ...

    def node_gone(self, name: str, now: float) -> None: ...

    def pod_seen(self, pod: PodFacts, now: float) -> None: ...

    def pod_gone(self, uid: str, now: float) -> None: ...

    def start(self, now: float, unix: float) -> None:
        """Everything was listed."""
        ...

    def tick(self, now: float) -> None:
        """Once per second or so."""
        ...

    def filter(self, pod: PodFacts, names: Sequence[str], now: float, *, is_ours: bool) -> Found: ...

    def fits(self, pod: PodFacts, name: str, now: float) -> bool:
        """Whether it does now; what is held for the pod itself does not stand in its way."""
        ...

    def scores(self, pod: PodFacts, names: Sequence[str]) -> Mapping[str, int]:
        """0 – 100; nodes that do not fit may be missing."""
        ...

    def secure(self, pod: PodFacts, node: str, now: float) -> str:
        """Before the pod is bound there: why it cannot be; empty: its cells are reserved (NS-088)."""
        ...

    def bound(self, pod: PodFacts, node: str, now: float) -> None:
        """We have bound it ourselves."""
        ...

    def node_state(self, name: str, now: float) -> NodeState: ...

    def reservations(self, now: float) -> list[ReservationDocument]: ...

    def count(self, state: str) -> int:
        """Reservations in this state (``held``, ``bound``, ``spread``)."""
        ...


class Engine:
    """See the module's docstring."""

    def __init__(self, settings: ExtenderSettings, books: Books, metrics: ExtenderMetrics) -> None:
        self.settings: Final = settings
        self.books: Final = books
        self._metrics = metrics
        self._verdicts: OrderedDict[str, tuple[float, Verdict]] = OrderedDict()
        self._asked: OrderedDict[str, PodFacts] = OrderedDict()
        self._waking = Waking()
        books.freed.append(self._waking.freed)

    def filter(self, pod: PodFacts, names: Sequence[str], now: float) -> Found:
        """Which of these nodes; what is chosen is reserved in the same step (NS-082)."""
        is_ours = pod.scheduler_name == self.settings.scheduler_name
        if not is_ours:
            self._metrics.stranger()
        found = self.books.filter(pod, names, now, is_ours=is_ours)
        self._metrics.filtered(found.fitting, found.kinds)
        if found.names or not names:
            self._waking.forget(pod.uid)
        else:
            self._waking.rejected(pod, now)
        self._remember(pod, names, found, now)
        return found

    def prioritize(self, pod: PodFacts, names: Sequence[str]) -> list[tuple[str, int]]:
        """0 – 100 for each."""
        scores = self.books.scores(pod, names)
        return [(name, scores.get(name, 0)) for name in names]

    def asked(self, uid: str) -> PodFacts | None:
        """The pod as a filter call had it lately."""
        return self._asked.get(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._verdicts.pop(uid, None)
        self._asked.pop(uid, None)
        self._waking.forget(uid)

    def roomy(self, now: float) -> str:
        """A node on which a pod fits now that was rejected before; empty: none (NS-140)."""
        return self._waking.woken(now, lambda pod, name: self.books.fits(pod, name, now))

    def verdicts(self, now: float) -> list[Verdict]:
        """The last answers, oldest first."""
        return [
            msgspec.structs.replace(verdict, seconds_ago=round(now - since, 1))
            for since, verdict in self._verdicts.values()
        ]

    def _remember(self, pod: PodFacts, names: Sequence[str], found: Found, now: float) -> None:
        verdict = Verdict(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            seconds_ago=0.0,
            asked=len(names),
            chosen=tuple(found.names[:MOST_CHOSEN]),
            fitting=found.fitting,
            rejected=found.kinds,
        )
        for memory, value in ((self._verdicts, (now, verdict)), (self._asked, pod)):
            memory.pop(pod.uid, None)
            memory[pod.uid] = value  # type: ignore[assignment]
            if len(memory) > _MOST_VERDICTS:
                memory.popitem(last=False)
