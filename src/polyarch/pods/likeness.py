"""What the pods of one series have in common, such as the replicas of a template (PL-801).

At admission they have no name yet and are equal in everything that rules read. The encoded likeness is the key by which
a feature remembers what it decided. Rules get a pod with these fields only, so they cannot read anything outside it.
Pure.
"""

from typing import Final

import msgspec

from polyarch.objects import ObjectMeta, OwnerReference, Pod, PodSpec

LONGEST: Final = 32 * 1024
"""Maximum bytes of a key; what is decided for a larger pod is not remembered."""


class Likeness(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields of a new pod that a decision can depend on: no name, uid or times."""

    namespace: str
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    owners: list[OwnerReference] | None
    spec: PodSpec

    @classmethod
    def of(cls, pod: Pod, namespace: str) -> "Likeness":
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
