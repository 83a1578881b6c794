"""Owner references, and ``Owns``: maps a change of an owned object to its owner's key (KR-051, KR-052). Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from polyarch.kube.resources import Resource
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import Key, ObjectMeta


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The owner of other objects; when it is deleted, Kubernetes deletes them too."""

    resource: Resource
    key: Key
    uid: str

    @classmethod
    def of(cls, resource: Resource, metadata: ObjectMeta) -> "Owner":
        return cls(resource, metadata.key, metadata.uid)

    def reference(self) -> dict[str, Any]:
        """An entry of ``ownerReferences``, with ``controller`` and ``blockOwnerDeletion`` set."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.key.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def owned_by(owner: Owner, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a reference to its owner appended.

    Raises ValueError across namespaces: the garbage collector would not find the owner and would delete the object.
    """
    metadata = document["metadata"]
    if owner.key.namespace and metadata.get("namespace", "") != owner.key.namespace:
        raise ValueError(
            f"{document.get('kind')} {metadata['name']} cannot belong to {owner.resource.kind} {owner.key}: "
            "an owner is in the same namespace or in none"
        )
    references = [*metadata.get("ownerReferences", ()), owner.reference()]
    return {**document, "metadata": {**metadata, "ownerReferences": references}}


class Enqueues(Protocol):
    """The part of a work queue that is used."""

    def add(self, key: Key) -> None: ...


class Owns:
    """Enqueues owners: with ``Owns(WIDGETS)``, a change of an object enqueues the widget that controls it.

    ``deployments.add_handler(Owns(WIDGETS).into(controller.queue))``. The API version in the reference is ignored.
    """

    def __init__(self, owner: Resource) -> None:
        self._owner = owner

    def keys(self, change: Change[Any]) -> tuple[Key, ...]:
        """The owners before and after the change: an owner that lost an object is reconciled too."""
        found = (self._key(each.metadata) for each in (change.old, change.new) if each is not None)
        return tuple(dict.fromkeys(key for key in found if key is not None))

    def into(self, queue: Enqueues) -> Callable[[Change[Any]], None]:
        """An informer handler that enqueues the owners."""

        def handle(change: Change[Any]) -> None:
            for key in self.keys(change):
                queue.add(key)

        return handle

    def _key(self, metadata: ObjectMeta) -> Key | None:
        reference = metadata.controller
        if reference is None or reference.kind != self._owner.kind:
            return None
        if reference.api_version.rpartition("/")[0] != self._owner.group:
            return None
        return Key(metadata.namespace if self._owner.namespaced else "", reference.name)
