"""A cache of decisions for equal pods, such as the replicas of a template. Bounded, and pure, like the rules.

Most pods are created by the dozen. What a feature has decided for one of them it decides for the next, as long as the
facts that the decision depends on are the same. At admission equal pods have no name yet and are equal in everything
that rules read: the encoded :class:`PodCacheKey` is the key. Rules get a pod with these fields only, so they cannot
read anything outside it. For pods at admission, not stored ones.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from polyarch.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from polyarch.oci.inspection import Inspection
from polyarch.oci.lru_cache import LRUCache

MAX_KEY_BYTES: Final = 32 * 1024
"""Maximum bytes of a key; what is decided for a larger pod is not remembered."""


class PodCacheKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields of a new pod that a decision can depend on: no name, uid or times."""

    namespace: str
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    owners: list[OwnerReference] | None
    spec: PodSpec

    @classmethod
    def of(cls, pod: Pod, namespace: str) -> "PodCacheKey":
        """``namespace``: from the admission request."""
        metadata = pod.metadata
        return cls(namespace, metadata.labels, metadata.annotations, metadata.owner_references, pod.spec)

    @property
    def key(self) -> bytes:
        return _encode(self)

    @property
    def pod(self) -> Pod:
        metadata = ObjectMeta(labels=self.labels, annotations=self.annotations, owner_references=self.owners)
        return Pod(metadata=metadata, spec=self.spec)


_encode = msgspec.json.Encoder().encode


# -- the cache ---------------------------------------------------------------------------------------------------------

MAX_INSPECTION_ENTRIES: Final = 256
"""Maximum index entries in the answers of a pod; with more, what they led to is not kept."""


class DescribesPod(Protocol):
    """The facts of a feature: a pod that is being admitted, and more."""

    @property
    def pod(self) -> Pod: ...

    @property
    def namespace(self) -> str: ...


F = TypeVar("F", bound=DescribesPod)
D = TypeVar("D")


class DecisionCache(Generic[F, D]):
    """The decisions ``D`` for pods that this process admitted recently; the least recently used is evicted.

    ``decide`` gets the facts, and the pod to take in place of theirs: it has only what rules may read. ``is_current``
    says whether a decision holds for these facts, too. ``weight``: bytes of all keys together.
    """

    def __init__(
        self, decide: Callable[[F, Pod], D], is_current: Callable[[D, F], bool], *, capacity: int, weight: int
    ) -> None:
        self._decide = decide
        self._is_current = is_current
        self._decisions: LRUCache[bytes, D] = LRUCache(capacity, weight=weight)

    def __len__(self) -> int:
        return len(self._decisions)

    def get(self, facts: F) -> D:
        """The decision for an equal pod under the same facts, or a new one."""
        cache_key = PodCacheKey.of(facts.pod, facts.namespace)
        key = cache_key.key
        decision = self._decisions.get(key)
        if decision is not None and self._is_current(decision, facts):
            return decision
        decision = self._decide(facts, cache_key.pod)
        if len(key) <= MAX_KEY_BYTES:
            self._decisions.put(key, decision, weight=len(key))
        return decision


def are_few(inspections: Iterable[Inspection]) -> bool:
    """Whether answers may be kept with what they led to: their size is up to the images' publishers."""
    whole = [each for inspection in inspections for each in (inspection, inspection.last_good) if each is not None]
    return sum(len(each.entries) + len(each.skipped) for each in whole) <= MAX_INSPECTION_ENTRIES
