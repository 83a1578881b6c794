"""All reservations of the cluster (NS-100 – NS-113, NS-150): what the filter, the watches and the time do to them.

Pure: each method is told the time (monotonic seconds) and returns what changed, so that whoever keeps an own sum of
free amounts can follow. An event costs as much as its node has pods. Not for several threads.

A pod is *held* from the filter on, *bound* from the moment it is seen on its node, and settled once the node's object
shows it. Before :meth:`Ledger.start` events are only noted: pods and nodes may be listed in any order.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.ledger.account import Account, free
from polyarch.numa.scheduling.ledger.options import LedgerOptions, Rules
from polyarch.numa.scheduling.ledger.reservations import NOTHING, Cells, Change, Finding, Groups, Reason, Reservation

USUAL: Final = LedgerOptions()
SILENCE: Final = 300.0
"""Seconds after an admission until an exporter that has not shown the pod is told of (NS-107)."""


class Silent(msgspec.Struct, frozen=True):
    """An exporter that has not shown a pod for long."""

    node: str
    seconds: float
    """Since the admission of the pod that has waited longest."""


class Ledger:
    """See the module's docstring."""

    def __init__(self, rules: Rules, options: LedgerOptions = USUAL) -> None:
        self._rules: Final = rules
        self._options: Final = options
        self._accounts: Final[dict[str, Account]] = {}
        self._lost: Final[set[str]] = set()
        """Nodes that are not there, or not yet, with an account."""
        self._home: Final[dict[str, str]] = {}
        """The node of each bound pod by uid."""
        self._held: Final[dict[str, tuple[str, ...]]] = {}
        """The nodes on which something is held for a pod that was not seen bound."""
        self._waiting: Final[set[str]] = set()
        """Nodes with pods that are not settled."""
        self._deadlines: Final[list[tuple[float, str, str]]] = []
        """When, node, uid of a pod that is held; without uid: the node is reviewed."""
        self._findings: Final[list[Finding]] = []
        self._events = 0
        self._is_started = False

    # -- asking --------------------------------------------------------------------------------------------------------

    def free(self, node: NodeFacts) -> Mapping[int, Amounts]:
        """Available minus reserved, by cell, never below 0 (NS-100)."""
        return free(node, self.reserved(node.name))

    def reserved(self, node: str) -> Cells:
        """The sums of all reservations. A view: do not keep it."""
        account = self._accounts.get(node)
        return account.reserved if account is not None else NOTHING

    def groups(self, node: str) -> Groups:
        """``memory_groups`` of all reservations, for whoever decides about the node."""
        account = self._accounts.get(node)
        return account.groups if account is not None else ()

    def reservations(self, node: str) -> Mapping[str, Reservation]:
        """By uid of the pod. A view."""
        account = self._accounts.get(node)
        return account.entries if account is not None else {}

    def all_reservations(self) -> Iterator[Reservation]:
        return (entry for account in self._accounts.values() for entry in account.entries.values())

    def held(self, uid: str) -> Sequence[Reservation]:
        """What is held for a pod, or bound by :meth:`bind`, until it is seen on its node."""
        return [self._accounts[node].entries[uid] for node in self._held.get(uid, ())]

    def placed(self, uid: str) -> Cells | None:
        """The cells that a bound pod is predicted to hold, also after it settled. None: nobody knows."""
        account = self._accounts.get(self._home.get(uid, ""))
        resident = account.residents.get(uid) if account is not None else None
        return resident.placed if resident is not None else None

    def is_settled(self, uid: str) -> bool:
        """The pod is bound, and its node's object shows it."""
        account = self._accounts.get(self._home.get(uid, ""))
        resident = account.residents.get(uid) if account is not None else None
        return resident is not None and resident.is_shown

    def is_explained(self, node: str) -> bool | None:
        """Whether a set of pods was found for the node's object; None: it has none, or it was not looked for yet."""
        account = self._accounts.get(node)
        if account is None or account.version is None or not self._is_started:
            return None
        return account.explanation is not None

    def is_current(self, node: str) -> bool:
        """The node's object shows no pod that has left. Without a fingerprint that explains it nobody knows."""
        account = self._accounts.get(node)
        if account is None or account.version is None or account.explanation is None or not self._is_started:
            return False
        return not (account.explanation.departed or account.explanation.with_ended)

    def is_distrusted(self, node: str, now: float) -> bool:
        """New reservations of the node are spread (NS-109)."""
        account = self._accounts.get(node)
        return account is not None and account.is_distrusted(now)

    def silent(self, now: float) -> list[Silent]:
        """Nodes whose exporter has not shown a pod :data:`SILENCE` seconds after its admission."""
        found = []
        for name in sorted(self._waiting):
            admitted = [each.admitted for each in self._accounts[name].unsettled if each.admitted is not None]
            if admitted and now - min(admitted) >= SILENCE:
                found.append(Silent(name, now - min(admitted)))
        return found

    def findings(self) -> list[Finding]:
        """What was found since the last call."""
        found = list(self._findings)
        self._findings.clear()
        return found

    def is_certain(self, pod: PodFacts, decision: Decision, now: float) -> bool:
        """Whether the kubelet will admit the pod although others are on their way to the node: a node that fits and is
        not certain yet is so again once its object shows them."""
        account = self._accounts.get(decision.node)
        return not self._options.is_on or account is None or account.is_certain(pod, decision, now)

    # -- the scheduler -------------------------------------------------------------------------------------------------

    def hold(
        self, pod: PodFacts, decisions: Iterable[Decision], now: float, *, ttl: float | None = None
    ) -> list[Change]:
        """The nodes that a filter has chosen; what was held for the pod before is released (NS-101). A pod that is
        bound already keeps what it has."""
        changes = self.drop(pod.uid, "again")
        if not self._options.is_on or pod.uid in self._home:
            return changes
        seconds = ttl if ttl is not None else self._options.ttl_with_claims if pod.has_claims else self._options.ttl
        nodes = []
        for decision in decisions:
            made = self._account(decision.node).hold(pod, decision, now, now + seconds)
            if made:
                nodes.append(decision.node)
                changes += made
                heapq.heappush(self._deadlines, (now + seconds, decision.node, pod.uid))
        if nodes:
            self._held[pod.uid] = tuple(nodes)
        return changes

    def drop(self, uid: str, reason: Reason) -> list[Change]:
        """Release what is held for a pod that was not seen bound."""
        return [change for node in self._held.pop(uid, ()) for change in self._accounts[node].release(uid, reason)]

    def bind(self, uid: str, node: str) -> list[Change]:
        """We have bound the pod ourselves, and it was not seen there yet (NS-088)."""
        nodes = self._held.get(uid, ())
        if node not in nodes:
            return []
        changes = self._accounts[node].bind(uid, "seen")
        for other in nodes:
            if other != node:
                changes += self._accounts[other].release(uid, "other-node")
        self._held[uid] = (node,)
        return changes

    # -- the watches ---------------------------------------------------------------------------------------------------

    def pod_seen(self, pod: PodFacts, now: float) -> list[Change]:
        """A pod as it is now."""
        self._events += 1
        if not pod.node_name:
            return self.drop(pod.uid, "ended") if pod.has_ended else []
        changes: list[Change] = []
        if self._home.get(pod.uid, pod.node_name) != pod.node_name:
            changes += self.pod_gone(pod.uid, now)
        account = self._account(pod.node_name)
        if pod.has_ended:
            changes += self.drop(pod.uid, "ended")
            changes += account.end(pod, now)
        else:
            for node in self._held.pop(pod.uid, ()):
                if node != pod.node_name:
                    changes += self._accounts[node].release(pod.uid, "other-node")
            changes += account.see(pod, now, self._events)
        self._home[pod.uid] = account.name
        return changes + self._review(account, now)

    def pod_gone(self, uid: str, now: float) -> list[Change]:
        """The pod was deleted."""
        self._events += 1
        changes = self.drop(uid, "deleted")
        account = self._accounts.get(self._home.pop(uid, ""))
        if account is not None:
            changes += account.leave(uid, now)
            changes += self._review(account, now)
        return changes

    def topology_seen(self, node: NodeFacts, now: float) -> list[Change]:
        """The node's object, settings or allocatable amounts; also without an object. A version counts once."""
        self._events += 1
        account = self._account(node.name)
        self._lost.discard(node.name)
        changes = account.show(node, now, self._events)
        return changes + self._review(account, now)

    def node_gone(self, name: str) -> list[Change]:
        """The Node was deleted."""
        self._events += 1
        account = self._accounts.get(name)
        if account is None:
            return []
        changes = account.lose()
        for change in changes:
            self._let_go(change.reservation)
        self._waiting.discard(name)
        self._lost.add(name)
        return changes

    def exporter_seen(self, node: str, *, is_ready: bool, now: float) -> None:
        """The exporter's pod on this node (NS-107)."""
        account = self._account(node)
        if not is_ready:
            account.exporter_ready_since = None
        elif account.exporter_ready_since is None:
            account.exporter_ready_since = now

    def distrust(self, node: str, now: float) -> None:
        """The kubelet has refused a pod: what we know of its cells is wrong (NS-109)."""
        self._account(node).distrust(now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def start(self, now: float, unix: float) -> list[Change]:
        """Everything was listed; ``unix`` is the time that ``startTime`` of pods is compared with (NS-150)."""
        self._is_started = True
        changes: list[Change] = []
        for account in self._accounts.values():
            account.begin(now, unix)
            changes += self._review(account, now)
        return changes

    def tick(self, now: float) -> list[Change]:
        """Once per second or so: what time has ended."""
        changes: list[Change] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, name, uid = heapq.heappop(self._deadlines)
            account = self._accounts.get(name)
            if account is None:
                continue
            if not uid:
                account.review_at = None
                changes += self._review(account, now)
            elif (entry := account.entries.get(uid)) is not None and _has_expired(entry, now):
                changes += account.release(uid, "ttl")
                self._let_go(entry)
        for name in [name for name in self._lost if self._accounts[name].is_over(now)]:
            self._lost.discard(name)
            del self._accounts[name]
        return changes

    def _review(self, account: Account, now: float) -> list[Change]:
        if not self._is_started:
            return []
        changes = account.review(now)
        self._findings.extend(account.findings)
        account.findings.clear()
        if account.unsettled:
            self._waiting.add(account.name)
        else:
            self._waiting.discard(account.name)
        again = account.next_review(now)
        if again is not None and (account.review_at is None or again < account.review_at):
            account.review_at = again
            heapq.heappush(self._deadlines, (again, account.name, ""))
        return changes

    def _account(self, name: str) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(name, self._rules, self._options)
            self._lost.add(name)
        return account

    def _let_go(self, entry: Reservation) -> None:
        left = tuple(node for node in self._held.get(entry.uid, ()) if node != entry.node)
        if left:
            self._held[entry.uid] = left
        else:
            self._held.pop(entry.uid, None)


def _has_expired(entry: Reservation, now: float) -> bool:
    return entry.expires is not None and entry.expires <= now
