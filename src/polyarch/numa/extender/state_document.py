"""What the extender knows, as one versioned document: ``GET /numa/state``.

``polyarch numa top`` and ``explain`` read it, and decide from it with the same functions as the extender itself.
Amounts are whole thousandths, as everywhere in a decision. Members may be added within a version. Pure."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from polyarch.numa.fit.facts import Amounts, NodeFacts

VERSION: Final = "polyarch.dev/numa-state.v1"

ReservationState = Literal["held", "bound"]


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node."""

    facts: NodeFacts
    reserved: Mapping[int, Amounts] = {}
    """By zone; spread reservations are in every zone."""
    explained: bool = True
    """The fingerprint of its object is that of the pods that are known to be on it."""
    mispredicted: bool = False
    """New reservations are spread, since the last ones were not where they were expected."""
    age_seconds: float | None = None
    """Since the present version of its object came; None: there is none."""


class ReservationDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is reserved for one pod on one node."""

    namespace: str
    name: str
    uid: str
    node: str
    state: ReservationState
    cells: Mapping[int, Amounts] = {}
    memory_groups: tuple[tuple[int, ...], ...] = ()
    """Sets of zones whose memory is given out together because of it."""
    spread: bool = False
    """No zone is predicted: the amounts are taken from every zone, and ``cells`` has them once per zone."""
    age_seconds: float = 0.0


class LastFilterResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was answered last for one pod."""

    namespace: str
    name: str
    uid: str
    seconds_ago: float
    asked: int
    """Nodes of the question."""
    chosen: tuple[str, ...] = ()
    """Nodes of the answer; at most as many as are told here (:data:`MOST_CHOSEN`)."""
    fitting: int = 0
    rejected: Mapping[str, int] = {}
    """Nodes by kind of the reason."""
    error: str = ""


MOST_CHOSEN: Final = 16


class CacheState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One watch."""

    objects: int
    stale_seconds: float = 0.0
    problem: str = ""


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What decisions depend on beside the cluster."""

    mode: str = "exact"
    scheduler_name: str = ""
    strategy: str = "LeastAllocated"
    weights: Mapping[str, int] = {}
    restricted: str = "filter"
    best_effort: str = "score"
    unknown_nodes: str = "pass"
    candidates: int = 1
    reservations: bool = True
    evicts: bool | None = None
    """Whether pods of lower priority are evicted for others; None: an extender that does not say."""


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document."""

    version: str = VERSION
    problem: str = ""
    """Why it does not answer at present; empty: it does."""
    options: Options
    caches: Mapping[str, CacheState] = {}
    nodes: tuple[NodeState, ...] = ()
    reservations: tuple[ReservationDocument, ...] = ()
    verdicts: tuple[LastFilterResult, ...] = ()


class UnreadableState(ValueError):  # noqa: N818 - what is the case
    """The text is no state of a version that is known."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(State).decode


class _Versioned(msgspec.Struct, frozen=True):
    version: str = ""


def document(state: State) -> bytes:
    return _encode(state)


def read(text: bytes) -> State:
    """Raises :class:`UnreadableState`, which names the version that was found."""
    try:
        found = msgspec.json.decode(text, type=_Versioned).version
        if found != VERSION:
            raise UnreadableState(f"the state is of version {found or 'none'!r}, expected {VERSION}")
        return _decode(text)
    except msgspec.DecodeError as error:
        raise UnreadableState(f"the state of the extender cannot be read: {error}") from None
