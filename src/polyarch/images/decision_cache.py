"""What was decided for equal pods, such as the replicas of a template. Bounded, and pure, like the rules.

Most pods are created by the dozen. What a feature has found for one of them is found again for the next, as long as the
facts that it depends on are the same. At admission equal pods have no name yet and are equal in everything that rules
read: the encoded :class:`Likeness` is the key. Rules get a pod with these fields only, so they cannot read anything
outside it. For pods at admission, not stored ones."""

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
L = TypeVar("L")


class DecisionCache(Generic[F, L]):
    """The series recently admitted by this process, each as a look ``L``; the least recently used is evicted.

    ``make`` looks at facts whose pod is to be taken for the given one, which has only what rules may read. ``holds``
    tells whether a look is the one for these facts, too. ``weight``: bytes of all keys together.
    """

    def __init__(
        self, make: Callable[[F, Pod], L], holds: Callable[[L, F], bool], *, capacity: int, weight: int
    ) -> None:
        self._make = make
        self._holds = holds
        self._looks: LRUCache[bytes, L] = LRUCache(capacity, weight=weight)

    def __len__(self) -> int:
        return len(self._looks)

    def look(self, facts: F) -> L:
        """The look at an equal pod under the same facts, or a new one."""
        likeness = PodCacheKey.of(facts.pod, facts.namespace)
        key = likeness.key
        look = self._looks.get(key)
        if look is not None and self._holds(look, facts):
            return look
        look = self._make(facts, likeness.pod)
        if len(key) <= MAX_KEY_BYTES:
            self._looks.put(key, look, weight=len(key))
        return look


def are_few(answers: Iterable[Inspection]) -> bool:
    """Whether answers may be kept with what they led to: their size is up to the images' publishers."""
    whole = [each for answer in answers for each in (answer, answer.last_good) if each is not None]
    return sum(len(each.entries) + len(each.skipped) for each in whole) <= MAX_INSPECTION_ENTRIES
