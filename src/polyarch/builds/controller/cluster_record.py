"""ConfigMap ``polyarch-architectures``: the architectures of the cluster's linux nodes, for people and tools (BD-048).

It lies in the builder's own namespace and is written only when it says something else. Nothing of ours reads it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from polyarch.builds import names
from polyarch.builds.controller.watches import RecordObject
from polyarch.builds.keys import canonical
from polyarch.kube.controller import Done, Result
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, Resource
from polyarch.objects import Key, PartialObjectMetadata

RIGHTS: Final = (
    rule(CONFIGMAPS, "get", "list", "watch", "patch", names=[names.ARCHITECTURES_CONFIGMAP]),
    rule(CONFIGMAPS, "create"),
)
"""RBAC rules in the builder's namespace."""


class Applies(Protocol):
    """The part of the client that is needed here."""

    async def apply(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


def document(namespace: str, architectures: tuple[str, ...]) -> dict[str, Any]:
    """The ConfigMap as it should be."""
    content = {"architectures": list(architectures), "multiArchitecture": len(architectures) > 1, "schema": 1}
    return {
        "metadata": {
            "name": names.ARCHITECTURES_CONFIGMAP,
            "namespace": namespace,
            "labels": {names.MANAGED_BY: names.MANAGER},
        },
        "data": {names.ARCHITECTURES_FILE: canonical.encode(content).decode()},
    }


class ClusterRecord:
    """``stored`` is the ConfigMap in the cache; ``architectures`` those of the nodes, None while they are not known."""

    def __init__(
        self,
        client: Applies,
        namespace: str,
        *,
        stored: Callable[[Key], RecordObject | None],
        architectures: Callable[[], tuple[str, ...] | None],
        wrote: Callable[[Key, str], None],
    ) -> None:
        self.key = Key(namespace, names.ARCHITECTURES_CONFIGMAP)
        self._client = client
        self._stored = stored
        self._architectures = architectures
        self._wrote = wrote

    async def reconcile(self, key: Key) -> Result:
        """Writes the ConfigMap if it says something else."""
        architectures = self._architectures()
        if architectures is None:
            return Done()
        wanted = document(key.namespace, architectures)
        stored = self._stored(key)
        text = stored.data.architectures if stored is not None and stored.data is not None else None
        if text != wanted["data"][names.ARCHITECTURES_FILE]:
            made = await self._client.apply(CONFIGMAPS, wanted, namespace=key.namespace)
            self._wrote(key, made.metadata.resource_version)
        return Done()
