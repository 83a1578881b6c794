"""For which architectures an image is built, and on which nodes. Pure.

A node counts for the architectures of a build whether it is ready or not, cordoned or not, tainted or not: an
architecture does not go because its nodes are rebooted. Where it is built, only nodes count that take pods now."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple

import msgspec

from polyarch.builds.api.formats import BuildTimes, BuiltBy, emulation_hosts
from polyarch.builds.api.resources import Architectures, ArchitectureScheduling, ImageBuildSpec
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    NodeFacts,
    active_execution,
    current_execution,
    own_executions,
    planned_architectures,
    published_architectures,
)
from polyarch.builds.names import CONTROL_PLANE_KEYS
from polyarch.durations import format_duration
from polyarch.selectors import LabelSelector, Selector
from polyarch.tolerations import REPELS, Taint, Toleration, is_tolerated

LINUX: Final = "linux"
_SHOWN: Final = 5


class NodeSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a build is for."""

    counted: tuple[NodeFacts, ...] = ()
    """Their architectures are the build's."""
    unplaced: tuple[str, ...] = ()
    """Names of nodes that nothing says the system or architecture of: they are not counted."""
    instead: str = ""
    """What decided because the selection itself has no node, in words; empty: it has."""


def select_nodes(nodes: Iterable[NodeFacts], wanted: Architectures) -> NodeSelection:
    """The nodes that count; none if there are none and ``empty`` is ``Wait``.

    Raises ``InvalidSelector`` for a selector that the validation refuses.
    """
    living = [each for each in nodes if not each.deleting]
    candidates = [("workers", _workers(living)), ("linux nodes", living)]
    if wanted.node_selector is not None:
        candidates.insert(0, ("", _matching(living, wanted.node_selector)))
    first = candidates[0][1]
    unplaced = tuple(sorted({each.name for each in first if _is_unplaced(each)}))
    for words, chosen in candidates if wanted.empty == "WorkerNodes" else candidates[:1]:
        counted = tuple(each for each in chosen if each.operating_system == LINUX and each.architecture)
        if counted:
            return NodeSelection(counted=counted, unplaced=unplaced, instead="" if chosen is first else words)
    return NodeSelection(unplaced=unplaced)


def deciding_labels(spec: ImageBuildSpec) -> frozenset[str]:
    """The label keys that tell nodes apart for this build: its selectors', and the default selection's."""
    keys = set(CONTROL_PLANE_KEYS)
    if (selector := spec.architectures.node_selector) is not None:
        keys.update(selector.match_labels or ())
        keys.update(each.key for each in selector.match_expressions or ())
    for scheduling in spec.scheduling.per_architecture or ():
        keys.update(scheduling.node_selector or ())
    return frozenset(keys)


def spelled(names: Sequence[str]) -> str:
    """Names for people: all of them if they are few, else the first and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _workers(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    return [each for each in nodes if not any(key in each.labels for key in CONTROL_PLANE_KEYS)]


def _matching(nodes: Iterable[NodeFacts], selector: LabelSelector) -> list[NodeFacts]:
    parsed = Selector.parse(selector)
    return [each for each in nodes if parsed.matches(each.labels)]


def _is_unplaced(node: NodeFacts) -> bool:
    return not node.operating_system or (node.operating_system == LINUX and not node.architecture)


# -- architectures of a build ------------------------------------------------------------------------------------------


ArchitecturesReason = Literal["Resolved", "Settling", "NoNodes", "NodesUnknown"]
"""Reasons of the condition ``ArchitecturesResolved``."""


class ResolvedArchitectures(msgspec.Struct, frozen=True, kw_only=True):
    """The architectures of a build, and why it is these."""

    architectures: tuple[str, ...] = ()
    """D, sorted."""
    newcomers: tuple[str, ...] = ()
    """Architectures all of whose nodes are younger than ``settle``: not in D yet."""
    pending: tuple[str, ...] = ()
    """Architectures of D that wait for another reason to build."""
    dropped: tuple[str, ...] = ()
    """Architectures of the current result that the spec forbids."""
    reason: ArchitecturesReason = "Resolved"
    message: str = ""
    wait: Literal["", "NoNodes", "NodesUnknown"] = ""
    """The reason why nothing can be planned now."""
    requeue_after: float | None = None
    """Seconds until the oldest node of a newcomer is old enough."""
    mismatched: tuple[str, ...] = ()
    """Names of nodes whose labels contradict their status: Warning ``ArchitectureLabelMismatch``."""
    unplaced: tuple[str, ...] = ()
    """Names of nodes that nothing says the architecture of."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The architectures that a result must have to be up to date: D without those that may wait."""
        return tuple(each for each in self.architectures if each not in self.pending)

    @property
    def is_multi(self) -> bool:
        """More than one architecture is wanted: that, and nothing else, makes a build multi-architecture."""
        return len(self.architectures) > 1


def resolve_architectures(facts: BuildFacts) -> ResolvedArchitectures:
    """The desired architectures. Raises ``InvalidSelector`` for a spec that the validation refuses."""
    wanted = facts.request.spec.architectures
    if facts.nodes is None:
        return _unknown(facts)
    published = published_architectures(current_execution(facts))
    dropped = tuple(sorted(each for each in published if forbids(wanted, each)))
    if wanted.mode == "Explicit":
        listed = _sorted(wanted.names or ())
        message = f"{', '.join(listed)}: what spec.architectures.list says."
        return _resolved(facts, listed, published, ResolvedArchitectures(dropped=dropped, message=message))
    selection = select_nodes(_counting(facts, facts.nodes), wanted)
    settle = BuildTimes.of(facts.request.spec).settle
    ages = _oldest(selection.counted)
    newcomers = _newcomers(facts, ages, published, settle)
    if not selection.counted and wanted.empty == "Wait":
        found: tuple[str, ...] = ()
    else:
        found = _sorted((ages.keys() - newcomers | set(wanted.include or ())) - set(wanted.exclude or ()))
    newcomers -= {*(wanted.include or ()), *(wanted.exclude or ())}
    due = min((ages[each] + settle - facts.now for each in newcomers), default=None)
    resolved = ResolvedArchitectures(
        newcomers=_sorted(newcomers),
        dropped=dropped,
        reason="Settling" if newcomers else "Resolved" if found else "NoNodes",
        message=_message(found, newcomers, selection, wanted, settle, pooled=bool(facts.members)),
        wait="" if found else "NoNodes",
        requeue_after=due,
        mismatched=_sorted(each.name for each in selection.counted if each.mismatch),
        unplaced=selection.unplaced,
    )
    return _resolved(facts, found, published, resolved)


def forbids(wanted: Architectures, architecture: str) -> bool:
    """The spec does not allow this architecture, whatever the nodes are."""
    if wanted.mode == "Explicit":
        return architecture not in (wanted.names or ())
    return architecture in (wanted.exclude or ())


def _counting(facts: BuildFacts, nodes: Iterable[NodeFacts]) -> Iterable[NodeFacts]:
    """The nodes of the pool, where the build is for one."""
    return [each for each in nodes if each.name in facts.members] if facts.members else nodes


def _resolved(
    facts: BuildFacts, found: tuple[str, ...], published: frozenset[str], resolved: ResolvedArchitectures
) -> ResolvedArchitectures:
    postponed = facts.request.spec.architectures.on_new_architecture == "NextBuild" and published
    pending = tuple(each for each in found if postponed and each not in published)
    return msgspec.structs.replace(resolved, architectures=found, pending=pending)


def _unknown(facts: BuildFacts) -> ResolvedArchitectures:
    wanted = facts.request.spec.architectures
    last = wanted.names if wanted.mode == "Explicit" else facts.request.status.get("architectures")
    message = "The nodes of the cluster are not known now, so nothing is planned until they can be listed."
    return ResolvedArchitectures(
        architectures=_sorted(last or ()), reason="NodesUnknown", wait="NodesUnknown", message=message
    )


def _oldest(nodes: tuple[NodeFacts, ...]) -> dict[str, float]:
    """Architecture → creation time of its oldest node."""
    oldest: dict[str, float] = {}
    for node in nodes:
        oldest[node.architecture] = min(node.created, oldest.get(node.architecture, node.created))
    return oldest


def _newcomers(facts: BuildFacts, ages: dict[str, float], published: frozenset[str], settle: float) -> set[str]:
    """Before the first execution nobody is one."""
    if not own_executions(facts):
        return set()
    known = published | planned_architectures(active_execution(facts))
    return {each for each, created in ages.items() if each not in known and facts.now - created < settle}


def _message(
    found: tuple[str, ...],
    newcomers: set[str],
    selection: NodeSelection,
    wanted: Architectures,
    settle: float,
    *,
    pooled: bool,
) -> str:
    selected = wanted.node_selector is not None
    chosen = "linux nodes that spec.architectures.nodeSelector matches" if selected else "linux nodes that are workers"
    chosen = "linux nodes of the pool" if pooled else chosen
    if not found and not newcomers and selection.counted and wanted.exclude:
        there = ", ".join(sorted({each.architecture for each in selection.counted}))
        excluded = f"spec.architectures.exclude names all that the {chosen} have ({there})"
        sentences = [f"No architecture is left: {excluded}; exclude fewer, or add nodes of another one"]
    elif found or selection.counted:
        whose = f"all {selection.instead}, as there are no {chosen}" if selection.instead else f"the {chosen}"
        edited = ", with what include and exclude say" if wanted.include or wanted.exclude else ""
        sentences = [f"{', '.join(found) or 'none'}: the architectures of {whose}{edited}"]
    else:
        sentences = [f"There are no {chosen}; add one, or name architectures in spec.architectures.list"]
    if newcomers:
        names = ", ".join(sorted(newcomers))
        sentences.append(f"{names} counts once a node of it is {format_duration(settle)} old")
    if selection.unplaced:
        sentences.append(
            f"Not counted, as neither status.nodeInfo nor a label says what they run: {spelled(selection.unplaced)}"
        )
    return ". ".join(sentences) + "."


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


# -- where an architecture is built ------------------------------------------------------------------------------------


class BuildHost(msgspec.Struct, frozen=True, kw_only=True):
    """Where an architecture is built."""

    execution: BuiltBy
    architecture: str
    """The architecture of the nodes that its Job runs on."""
    why: str = ""


class ProfileChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The security profile that ``Auto`` stands for, and why."""

    name: Literal["UserNamespace", "Rootless"]
    why: str


def host_of(facts: BuildFacts, architecture: str) -> BuildHost:
    """By the strategy of the spec. ``Native`` never builds elsewhere, whatever the nodes are."""
    spec = facts.request.spec
    native = BuildHost(execution="Native", architecture=architecture, why=f"nodes of {architecture} build it")
    if spec.strategy == "Native" or (
        spec.strategy == "PreferNative" and _is_possible(facts, architecture, architecture)
    ):
        return native
    hosts = emulation_hosts(spec)
    there = next((each for each in hosts if _is_possible(facts, architecture, each)), None)
    if there is None and spec.strategy == "PreferNative":
        why = f"no node of {architecture} is available, and none of {', '.join(hosts)} to emulate it: it waits"
        return BuildHost(execution="Native", architecture=architecture, why=why)
    host = there or hosts[0]
    if host == architecture:
        return native
    because = "the strategy is Emulated" if spec.strategy == "Emulated" else f"no node of {architecture} is available"
    why = f"{because}; {host} is the first of emulation.hosts with a node for it"
    if there is None:
        why = f"{because}; no host of emulation.hosts has a node for it, so it waits for {host}"
    return BuildHost(execution="Emulated", architecture=host, why=why)


def is_available(facts: BuildFacts, architecture: str) -> bool:
    """A Ready, schedulable linux node of the architecture exists, whether a Job fits there or not."""
    return any(_available(facts.nodes, architecture))


def auto_profile(facts: BuildFacts, architecture: str, host: str) -> ProfileChoice:
    """What ``securityProfile: Auto`` is for the Job of ``architecture`` on nodes of ``host``: never Privileged."""
    handler = _handler(facts, architecture)
    nodes = [each for each in _linux(facts.nodes, host) if each.schedulable]
    lacking = [each for each in nodes if handler not in each.user_namespaces]
    runtime = f"runtime handler {handler}" if handler else "the default runtime handler"
    if lacking:
        oldest = min(lacking, key=lambda each: (each.created, each.name))
        return ProfileChoice(name="Rootless", why=f"{runtime} of node {oldest.name} reports no user namespaces")
    if nodes:
        return ProfileChoice(name="UserNamespace", why=f"{runtime} of every {host} node reports user namespaces")
    return ProfileChoice(name="UserNamespace", why=f"there is no {host} node yet that could be without user namespaces")


def explained_profile(facts: BuildFacts, architecture: str, host: str) -> str:
    """The profile of the Job of ``architecture`` on nodes of ``host``, and why it is that one."""
    asked = facts.request.spec.builder.security_profile
    if asked in ("UserNamespace", "Rootless", "Privileged"):
        return f"{asked}: spec.builder.securityProfile"
    chosen = auto_profile(facts, architecture, host)
    return f"{chosen.name}: {chosen.why}"


def node_without_user_namespaces(facts: BuildFacts, architecture: str, host: str) -> str:
    """A node that could take the pod of a Job of ``architecture`` and whose runtime reports no user namespaces; empty
    if there is none. Its kubelet would try for ever to start a pod that wants one."""
    handler = _handler(facts, architecture)
    nodes = _possible(facts, architecture, host)
    return min((each.name for each in nodes if handler not in each.user_namespaces), default="")


def _handler(facts: BuildFacts, architecture: str) -> str:
    """The runtime handler of the pod of a Job; empty for the default one."""
    named = scheduling_of(facts, architecture).runtime_class_name
    return facts.runtime_handlers.get(named) or named


def scheduling_of(facts: BuildFacts, architecture: str) -> ArchitectureScheduling:
    """``scheduling.perArchitecture`` of the architecture, empty if it has none."""
    named = facts.request.spec.scheduling.per_architecture or ()
    return next((each for each in named if each.architecture == architecture), ArchitectureScheduling())


def _is_possible(facts: BuildFacts, architecture: str, host: str) -> bool:
    return any(_possible(facts, architecture, host))


def _possible(facts: BuildFacts, architecture: str, host: str) -> Iterator[NodeFacts]:
    """The nodes that could take the pod of a Job now."""
    scheduling = scheduling_of(facts, architecture)
    selector = scheduling.node_selector or {}
    tolerations = [msgspec.convert(each, Toleration) for each in scheduling.tolerations or ()]
    return (
        node
        for node in _available(facts.nodes, host)
        if _selects(selector, node) and _covers(facts.settings.arch_taint_keys, host, tolerations, node)
    )


def _available(nodes: Iterable[NodeFacts] | None, architecture: str) -> Iterator[NodeFacts]:
    return (each for each in _linux(nodes, architecture) if each.ready and each.schedulable)


def _linux(nodes: Iterable[NodeFacts] | None, architecture: str) -> Iterator[NodeFacts]:
    return (
        each
        for each in nodes or ()
        if each.operating_system == LINUX and each.architecture == architecture and not each.deleting
    )


def _selects(selector: Mapping[str, str], node: NodeFacts) -> bool:
    return all(node.labels.get(key) == value for key, value in selector.items())


def _covers(arch_keys: Iterable[str], host: str, tolerations: list[Toleration], node: NodeFacts) -> bool:
    """Jobs tolerate the architecture taints of their host and what the spec says."""
    known = frozenset(arch_keys)
    for key, value, effect in node.taints:
        if effect not in REPELS or (key in known and value == host):
            continue
        if not is_tolerated(Taint(key=key, value=value, effect=effect), tolerations):
            return False
    return True


# -- all nodes of a cluster --------------------------------------------------------------------------------------------


Labels = frozenset[str]
"""The label keys that a view tells nodes apart by: ``selection.deciding_labels``."""


_SLACK: Final = 16
"""Outdated ages that a group may hold on top of as many as it has nodes."""


class NodeChangeEffect(msgspec.Struct, frozen=True):
    """The views that a change of a node made a difference to."""

    membership: frozenset[Labels] = frozenset()
    """There is a kind of node that was not there before, or one is gone: D may be another."""
    availability: frozenset[Labels] = frozenset()
    """Views in which other nodes are Ready, schedulable or tainted: Jobs may go elsewhere."""


class NodeIndex:
    """The nodes by name. Those that are being deleted are none."""

    def __init__(self, nodes: Iterable[NodeFacts] = ()) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._systems: Counter[tuple[str, str]] = Counter()
        self._views: dict[Labels, _View] = {}
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: NodeFacts) -> NodeChangeEffect:
        """The node as it is now."""
        if node.deleting:
            return self.remove(node.name)
        old = self._nodes.get(node.name)
        if old == node:
            return NodeChangeEffect()
        self._nodes[node.name] = node
        return self._change(old, node)

    def remove(self, name: str) -> NodeChangeEffect:
        """The node is gone."""
        old = self._nodes.pop(name, None)
        return self._change(old, None) if old is not None else NodeChangeEffect()

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures of all linux nodes, sorted."""
        return tuple(sorted({architecture for system, architecture in self._systems if system == LINUX}))

    def sample(self, labels: Labels) -> tuple[NodeFacts, ...]:
        """Nodes that decide as all of them do for a build that tells nodes apart by these labels, the oldest first.

        The same value as before if nothing changed.
        """
        view = self._views.get(labels)
        if view is None:
            view = self._views[labels] = _View(labels, self._nodes.values())
        return view.sample()

    def keep(self, wanted: Collection[Labels]) -> None:
        """Forgets the views that no build needs any more."""
        for labels in [each for each in self._views if each not in wanted]:
            del self._views[labels]

    def _change(self, old: NodeFacts | None, new: NodeFacts | None) -> NodeChangeEffect:
        for node, step in ((old, -1), (new, 1)):
            if node is not None and node.architecture:
                place = node.operating_system, node.architecture
                self._systems[place] += step
                if not self._systems[place]:
                    del self._systems[place]
        changed = {labels: view.change(old, new) for labels, view in self._views.items()}
        return NodeChangeEffect(
            membership=frozenset(labels for labels, (members, _) in changed.items() if members),
            availability=frozenset(labels for labels, (_, available) in changed.items() if available),
        )


class _Group:
    """Nodes that make no difference among each other but by their age."""

    __slots__ = ("_ages", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self._ages: list[tuple[float, str]] = []
        """A heap, which may hold nodes that are gone or were put again."""

    def add(self, node: NodeFacts) -> None:
        self.nodes[node.name] = node
        heappush(self._ages, _age(node))
        if len(self._ages) > 2 * len(self.nodes) + _SLACK:
            self._ages = [_age(each) for each in self.nodes.values()]
            heapify(self._ages)

    def drop(self, node: NodeFacts) -> None:
        del self.nodes[node.name]

    @property
    def oldest(self) -> NodeFacts:
        while True:
            created, name = self._ages[0]
            node = self.nodes.get(name)
            if node is not None and node.created == created:
                return node
            heappop(self._ages)


class _Keys(NamedTuple):
    """What a node is grouped by."""

    member: tuple[Hashable, ...]
    """What decides about D."""
    group: tuple[Hashable, ...]
    """What decides about Jobs as well."""


class _View:
    """The nodes by group, for one set of labels."""

    def __init__(self, labels: Labels, nodes: Iterable[NodeFacts]) -> None:
        self._labels = tuple(sorted(labels))
        self._groups: dict[tuple[Hashable, ...], _Group] = {}
        self._members: Counter[tuple[Hashable, ...]] = Counter()
        self._sample: tuple[NodeFacts, ...] | None = None
        for node in nodes:
            self.change(None, node)

    def sample(self) -> tuple[NodeFacts, ...]:
        if self._sample is None:
            self._sample = tuple(sorted((group.oldest for group in self._groups.values()), key=_age))
        return self._sample

    def change(self, old: NodeFacts | None, new: NodeFacts | None) -> tuple[bool, bool]:
        """Whether there are other members now, and whether there are other groups."""
        self._sample = None
        before = self._keys(old) if old is not None else None
        after = self._keys(new) if new is not None else None
        appeared = self._join(new, after) if new is not None and after is not None and after != before else None
        vanished = self._leave(old, before) if old is not None and before is not None and after != before else None
        if new is not None and after is not None and after == before:
            self._groups[after.group].add(new)
        changes = [each for each in (appeared, vanished) if each is not None]
        return any(member for member, _ in changes), any(group for _, group in changes)

    def _join(self, node: NodeFacts, keys: _Keys) -> tuple[bool, bool]:
        self._members[keys.member] += 1
        group = self._groups.setdefault(keys.group, _Group())
        group.add(node)
        return self._members[keys.member] == 1, len(group.nodes) == 1

    def _leave(self, node: NodeFacts, keys: _Keys) -> tuple[bool, bool]:
        self._members[keys.member] -= 1
        group = self._groups[keys.group]
        group.drop(node)
        gone = not self._members[keys.member], not group.nodes
        if gone[0]:
            del self._members[keys.member]
        if gone[1]:
            del self._groups[keys.group]
        return gone

    def _keys(self, node: NodeFacts) -> _Keys | None:
        """None for a node that no build is for; one that a message names is a group of its own."""
        if node.operating_system not in ("", LINUX):
            return None
        named = node.name if node.mismatch or not (node.operating_system and node.architecture) else ""
        values = tuple(node.labels.get(key) for key in self._labels)
        member = (node.operating_system, node.architecture, values, named)
        return _Keys(member, (*member, node.ready, node.schedulable, node.taints, node.user_namespaces))


def _age(node: NodeFacts) -> tuple[float, str]:
    return node.created, node.name
