"""The state of a running extender, through the API server (NS-087).

The API server reaches the extender's pod for us, and takes the ``Authorization`` header away on its way; so the token
also goes in a header of our own. Whoever has a certificate and no token asks for one of the scheduler's ServiceAccount.

Of several replicas only the one beside the leading scheduler knows what is held for pods that are not bound yet: it is
the one that was asked last.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Final

import msgspec

from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.credentials import Credential, Credentials, credentials_of
from polyarch.kube.errors import ApiError, Forbidden, KubernetesError, Unauthorized
from polyarch.kube.resources import PODS
from polyarch.kube.settings import Configuration
from polyarch.numa.extender.state_document import ReservationDocument, State, UnreadableState, read
from polyarch.numa.names import SCHEDULER, STATE_PATH, STATUS_PORT
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, SnapshotReservation
from polyarch.objects import Key, ObjectMeta

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


async def _last_asked_first(client: Client, configuration: Configuration, pods: Sequence[Key]) -> Sequence[Key]:
    if len(pods) < 2:
        return pods
    seconds_ago: dict[Key, float] = {}
    for key in pods:
        try:
            verdicts = (await _state(client, configuration, key, _NO_NODE)).verdicts
        except (KubernetesError, UnreadableState):
            verdicts = ()  # why is told when the whole of it is asked for
        seconds_ago[key] = min((each.seconds_ago for each in verdicts), default=inf)
    return sorted(pods, key=seconds_ago.__getitem__)


async def _state(client: Client, configuration: Configuration, pod: Key, query: str = "") -> State:
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
