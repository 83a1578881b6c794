"""Nodes and pods of a cluster, read with the permissions of the caller, and the state of a running extender.

The API server reaches the extender's pod for us, and removes the ``Authorization`` header on its way; so the token
also goes in a header of our own. A caller with a certificate and no token asks for a token of the scheduler's
ServiceAccount.

Of several replicas only the one beside the leading scheduler knows what is held for pods that are not bound yet: it is
the one that was asked last. Nothing is written."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.numa.objects import Event, Objects, SeenNode, SeenTopology, is_silent, snapshot
from polyarch.cli.numa.options import SourceOptions
from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.credentials import Credential, Credentials, credentials_of
from polyarch.kube.errors import ApiError, Forbidden, KubernetesError, NotFound, Unauthorized
from polyarch.kube.resources import EVENTS, NODES, PODS, Resource
from polyarch.kube.settings import Configuration
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.extender.state_document import Options, ReservationDocument, State, UnreadableState, read
from polyarch.numa.fit.facts import PodFacts, PodObject
from polyarch.numa.names import SCHEDULER, STATE_PATH, STATUS_PORT
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, SnapshotReservation
from polyarch.objects import ObjectKey, ObjectMeta
from polyarch.quantity import InvalidQuantity

T = TypeVar("T")
CORDONED: Final = "spec.unschedulable=true"
NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"


class SeenCluster(NamedTuple):
    """What was found."""

    snapshot: Snapshot
    """Reservations are those of the extender; there are none if ``options`` is None."""
    objects: Objects
    options: Options | None
    """Of the extender."""
    taken_at: datetime
    namespace: str
    """Of the kubeconfig's context."""
    notes: list[str]
    """What could not be read, and what follows from it."""
    details: list[str]
    """What was answered instead."""


async def read_cluster(
    command: str, client: Client, *, extender_namespace: str | None, sums: bool = True
) -> SeenCluster:
    """``sums``: pods and Nodes matter also where an extender knows the rest. Raises CommandError, and what the client
    raises."""
    notes: list[str] = []
    details: list[str] = []
    state = None
    try:
        state = await read_state(client, client.configuration, extender_namespace)
    except NoExtender as error:
        notes.append(f"without an extender ({error}): reservations are those that one would make now")
        if error.details:
            details.append(error.details)
    now = datetime.now(UTC)
    objects = Objects()
    if state is None or sums:
        objects = await _objects(client, notes)
    try:
        found = snapshot(objects, source="reconstructed", now=now)
    except InvalidQuantity as error:
        raise CouldNotComplete(f"{command}: a pod of the cluster: {error}") from None
    if state is not None:
        live = snapshot_of(state)
        found = _completed(live, found) if sums else _marked(live, await _cordoned(client, notes))
    return SeenCluster(
        snapshot=found,
        objects=objects,
        options=state.options if state is not None else None,
        taken_at=now,
        namespace=client.configuration.namespace,
        notes=notes,
        details=details,
    )


async def _objects(client: Client, notes: list[str]) -> Objects:
    try:
        topologies = (await client.list(TOPOLOGIES, type=SeenTopology)).items
    except NotFound:
        raise CouldNotComplete(
            f"the cluster has no {TOPOLOGIES.plural}.{TOPOLOGIES.group}; install component numa, or give --nrt FILE"
        ) from None
    nodes = await _listed(client, NODES, SeenNode, notes, "sums over nodes are not judged")
    lost = "what they hold and the objects do not show yet is missing"
    pods = await _listed(client, PODS, PodObject, notes, lost, field_selector=NOT_OVER)
    return Objects(topologies=topologies, nodes=nodes or (), pods=pods)


async def _listed(
    client: Client, resource: Resource, type: type[T], notes: list[str], without: str, **selection: Any
) -> list[T] | None:
    try:
        return (await client.list(resource, type=type, **selection)).items
    except Forbidden as error:
        notes.append(f"{resource.plural} not read: {error}; {without}")
        return None


async def _cordoned(client: Client, notes: list[str]) -> Collection[str]:
    """Only these nodes are read: of a large cluster all of them would be many megabytes for one mark."""
    without = "cordoned nodes are not marked"
    nodes = await _listed(client, NODES, SeenNode, notes, without, field_selector=CORDONED)
    return {each.metadata.name for each in nodes or () if each.spec.unschedulable}


def _marked(live: Snapshot, cordoned: Collection[str]) -> Snapshot:
    """The extender's view with the marks that it does not need itself."""
    nodes = (
        msgspec.structs.replace(node, is_cordoned=node.name in cordoned, is_stale=is_silent(node.facts, node.age))
        for node in live.nodes
    )
    return msgspec.structs.replace(live, nodes=tuple(nodes))


def _completed(live: Snapshot, read: Snapshot) -> Snapshot:
    """The extender's view, with what only the objects tell."""
    known = {each.name: each for each in read.nodes}
    nodes = []
    for node in live.nodes:
        seen = known.get(node.name)
        if seen is not None:
            node = msgspec.structs.replace(
                node, residents=seen.residents, is_cordoned=seen.is_cordoned, is_stale=seen.is_stale, age=seen.age
            )
        nodes.append(node)
    return Snapshot(source="live", nodes=tuple(nodes), knows_pods=read.knows_pods)


# -- one pod: its events, and a pod that has ended, which the lists leave out


class _EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """events.k8s.io/v1 Event; older reporters fill in the deprecated members."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""
    reporting_controller: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: _EventSeries | None = None

    @property
    def time(self) -> str:
        last = self.series.last_observed_time if self.series is not None else ""
        return last or self.deprecated_last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


def read_events(command: str, pod: PodFacts, where: SourceOptions) -> list[Event]:
    """The pod's, oldest first; none if they may not be read."""

    async def work(client: Client) -> list[_Event]:
        selector = f"regarding.kind=Pod,regarding.name={pod.name}"
        if pod.uid:
            selector += f",regarding.uid={pod.uid}"
        try:
            return (await client.list(EVENTS, type=_Event, namespace=pod.namespace, field_selector=selector)).items
        except Forbidden:
            return []

    found = asyncio.run(on_cluster(command, where.cluster, work))
    ordered = sorted(found, key=lambda each: (each.time, each.metadata.name))
    told = (Event(each.reason, each.note, each.reporting_controller) for each in ordered)
    return list(dict.fromkeys(told))


def read_pod(command: str, key: ObjectKey, where: SourceOptions) -> PodObject | None:
    """Whatever became of it; None: there is none. Raises CommandError."""

    async def work(client: Client) -> PodObject | None:
        try:
            return await client.get(PODS, key.name, namespace=key.namespace, type=PodObject)
        except NotFound:
            return None

    return asyncio.run(on_cluster(command, where.cluster, work))


# -- the state of a running extender


HEADER: Final = "Polyarch-Authorization"
PODS_OF_SCHEDULER: Final = f"app={SCHEDULER}"
TOKEN_SECONDS: Final = 600
_NO_NODE: Final = "node=-"
"""A query for all but nodes: no node has this name."""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


class NoExtender(Exception):  # noqa: N818 - what is the case
    """The message says in short why no extender answers; ``details`` has what was answered instead."""

    def __init__(self, problem: str, details: str = "") -> None:
        super().__init__(problem)
        self.details = details


class _Forwarding:
    """The user's credentials, with the token once more where the API server leaves it."""

    def __init__(self, own: Credentials, token: str) -> None:
        self._own, self._token = own, token

    async def current(self) -> Credential:
        found = await self._own.current()
        given = next((value for name, value in found.headers if name.lower() == "authorization"), "")
        return Credential((*found.headers, (HEADER, given or f"Bearer {self._token}")), found.certificate)

    async def refused(self, credential: Credential) -> bool:
        return await self._own.refused(credential)


async def read_state(client: Client, configuration: Configuration, namespace: str | None) -> State:
    """Of the extender that a scheduler asked last; of another one if that does not answer. Raises
    :class:`NoExtender`."""
    try:
        pods = (await client.list(PODS, type=_Pod, namespace=namespace or "", label_selector=PODS_OF_SCHEDULER)).items
    except KubernetesError as error:
        raise NoExtender("the pods of the cluster could not be listed", str(error)) from None
    running = sorted(each.metadata.key for each in pods if each.status.phase == "Running")
    if not running:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise NoExtender(f"no pod with label {PODS_OF_SCHEDULER} runs in {where}")
    problems, is_refused = [], False
    for key in await _last_asked_first(client, configuration, running):
        try:
            state = await _state(client, configuration, key)
        except (KubernetesError, UnreadableState) as error:
            problems.append(f"{key}: {error}")
            is_refused = is_refused or isinstance(error, Forbidden | Unauthorized)
        else:
            if not state.problem:
                return state
            problems.append(f"{key}: {state.problem}")
    if is_refused:
        raise NoExtender(f"it refuses this user, who needs get on {STATE_PATH}, and a token", "; ".join(problems))
    raise NoExtender("its pods do not answer", "; ".join(problems))


async def _last_asked_first(
    client: Client, configuration: Configuration, pods: Sequence[ObjectKey]
) -> Sequence[ObjectKey]:
    if len(pods) < 2:
        return pods
    seconds_ago: dict[ObjectKey, float] = {}
    for key in pods:
        try:
            verdicts = (await _state(client, configuration, key, _NO_NODE)).verdicts
        except (KubernetesError, UnreadableState):
            verdicts = ()  # why is told when the whole of it is asked for
        seconds_ago[key] = min((each.seconds_ago for each in verdicts), default=inf)
    return sorted(pods, key=seconds_ago.__getitem__)


async def _state(client: Client, configuration: Configuration, pod: ObjectKey, query: str = "") -> State:
    own = credentials_of(configuration.user, SystemClock())
    has_token = any(name.lower() == "authorization" for name, _ in (await own.current()).headers)
    token = "" if has_token else await _token(client, pod.namespace)
    async with Client(configuration, role="cli", credentials=_Forwarding(own, token)) as through:
        path = f"{PODS.path(pod.namespace, f'https:{pod.name}:{STATUS_PORT}')}/proxy{STATE_PATH}"
        return read(await through.raw("GET", path, query=query))


async def _token(client: Client, namespace: str) -> str:
    try:
        return (await client.token(namespace, SCHEDULER, expiration_seconds=TOKEN_SECONDS)).token
    except ApiError:
        return ""  # the extender says what it thinks of somebody without one


def snapshot_of(state: State) -> Snapshot:
    """What the extender decides from."""
    held: dict[str, list[ReservationDocument]] = defaultdict(list)
    for each in state.reservations:
        held[each.node].append(each)
    nodes = (
        NodeSnapshot(
            facts=each.facts,
            held=_held(held[each.facts.name]),
            is_unexplained=not each.explained,
            is_mispredicted=each.mispredicted,
            age=each.age_seconds,
        )
        for each in state.nodes
    )
    return Snapshot(source="live", nodes=tuple(sorted(nodes, key=lambda each: each.name)))


def _held(found: Sequence[ReservationDocument]) -> tuple[SnapshotReservation, ...]:
    return tuple(
        SnapshotReservation(
            pod=f"{each.namespace}/{each.name}",
            uid=each.uid,
            cells=each.cells,
            is_spread=each.spread,
            memory_groups=each.memory_groups,
        )
        for each in sorted(found, key=lambda each: (each.namespace, each.name, each.uid))
    )
