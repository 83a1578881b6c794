"""What kube-scheduler sends its extender and reads of it. Pure.

The keys are the names of Go's fields, since the types of ``k8s.io/kube-scheduler/extender/v1`` have no tags. Only names
of nodes are exchanged: 5 000 nodes as objects would be 100 MB per pod."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from polyarch.numa.fit.facts import PodFacts, PodObject, pod_facts
from polyarch.quantity import InvalidQuantity

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a request."""
MOST_MESSAGES: Final = 16
"""Different ones in an answer, so that the scheduler's event groups the nodes."""
LONGEST_MESSAGE: Final = 200
OTHER_REASONS: Final = "node cannot hold the pod in its NUMA cells"
NOT_BY_NAME: Final = "set nodeCacheCapable: true for this extender"
STEPS: Final = 10
"""Of the scheduler's scores of extenders, 0 – 10; ours are 0 – 100."""


class InvalidRequest(ValueError):  # noqa: N818 - what is the case
    """The body is no question; the message is one sentence for the log of the scheduler."""


class ExtenderArgs(msgspec.Struct, frozen=True):
    """Which of these nodes; ``problem``: what keeps it from being answered."""

    pod: PodFacts
    names: tuple[str, ...]
    """Each once, in the order of the request."""
    problem: str = ""


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """By node, the uids of pods without which the other filters of the scheduler let the pod pass."""

    pod: PodFacts
    victims: Mapping[str, frozenset[str]]
    problem: str = ""


class ExtenderBindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The pod that is to be bound, and where."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = ""


_NOTHING: Final = msgspec.Raw(b"null")


class _Question(msgspec.Struct, frozen=True, rename="pascal"):
    pod: PodObject | None = None
    nodes: msgspec.Raw = _NOTHING
    node_names: list[str] | None = None


class _ProposedPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(default="", name="UID")


class _ProposedVictims(msgspec.Struct, frozen=True, rename="pascal"):
    pods: list[_ProposedPod] | None = None


class _PreemptionQuestion(msgspec.Struct, frozen=True, rename="pascal"):
    pod: PodObject | None = None
    node_name_to_victims: msgspec.Raw = _NOTHING
    node_name_to_meta_victims: dict[str, _ProposedVictims | None] | None = None


class _Answer(msgspec.Struct, frozen=True, rename="pascal"):
    node_names: list[str]
    failed_nodes: Mapping[str, str]
    failed_and_unresolvable_nodes: Mapping[str, str]
    error: str = ""


class _Host(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class _Bound(msgspec.Struct, frozen=True, rename="pascal"):
    error: str


_decode: Final = msgspec.json.Decoder(_Question).decode
_decode_preemption: Final = msgspec.json.Decoder(_PreemptionQuestion).decode
_decode_binding: Final = msgspec.json.Decoder(ExtenderBindingArgs).decode
_encode: Final = msgspec.json.Encoder().encode


_Asked = TypeVar("_Asked", _Question, _PreemptionQuestion)


def question(body: bytes) -> ExtenderArgs:
    """Raises :class:`InvalidRequest`."""
    asked, pod = _read(_decode, body, "ExtenderArgs")
    by_object = asked.node_names is None and bytes(asked.nodes) != b"null"
    return ExtenderArgs(pod, tuple(dict.fromkeys(asked.node_names or ())), NOT_BY_NAME if by_object else "")


def preemption_question(body: bytes) -> ExtenderPreemptionArgs:
    """Raises :class:`InvalidRequest`."""
    asked, pod = _read(_decode_preemption, body, "ExtenderPreemptionArgs")
    by_object = asked.node_name_to_meta_victims is None and bytes(asked.node_name_to_victims) != b"null"
    victims = {
        node: frozenset(each.uid for each in found.pods or ())
        for node, found in (asked.node_name_to_meta_victims or {}).items()
        if found is not None
    }
    return ExtenderPreemptionArgs(pod, victims, NOT_BY_NAME if by_object else "")


def _read(decode: Callable[[bytes], _Asked], body: bytes, kind: str) -> tuple[_Asked, PodFacts]:
    try:
        asked = decode(body)
        if asked.pod is None:
            raise InvalidRequest(f"the request has no Pod: send {kind} of kube-scheduler")
        return asked, pod_facts(asked.pod)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidQuantity) as error:
        raise InvalidRequest(f"the request cannot be read: {error}") from None


def bind_question(body: bytes) -> ExtenderBindingArgs:
    """Raises :class:`InvalidRequest`."""
    try:
        asked = _decode_binding(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the request cannot be read: {error}") from None
    if not (asked.pod_name and asked.pod_namespace and asked.pod_uid and asked.node):
        raise InvalidRequest("the request names no pod or node: send ExtenderBindingArgs of kube-scheduler")
    return asked


def fitting(names: Iterable[str], failed: Mapping[str, str]) -> bytes:
    """The nodes that will do, and why others do not. For the scheduler these are unresolvable: its dry run of
    preemption would find nobody to evict, as the sums of these nodes do."""
    return _encode(_Answer(list(names), {}, grouped(failed)))


def problem(sentence: str) -> bytes:
    """No answer to a filter: the scheduler tries the pod again."""
    return _encode(_Answer([], {}, {}, sentence))


NO_CANDIDATES: Final = _encode({"NodeNameToMetaVictims": {}})
"""The answer to each question about victims: the scheduler evicts nobody."""


def priorities(scores: Iterable[tuple[str, int]]) -> bytes:
    return _encode([_Host(name, max(0, min(100, score)) // STEPS) for name, score in scores])


def bound(error: str = "") -> bytes:
    """``error``: why it is not."""
    return _encode(_Bound(error))


def grouped(failed: Mapping[str, str]) -> dict[str, str]:
    """The messages cut to their length; of too many the rarest become one."""
    cut = {node: _cut(message) for node, message in failed.items()}
    counts = Counter(cut.values())
    if len(counts) <= MOST_MESSAGES:
        return cut
    kept = set(sorted(counts, key=lambda message: (-counts[message], message))[: MOST_MESSAGES - 1])
    return {node: message if message in kept else OTHER_REASONS for node, message in cut.items()}


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
