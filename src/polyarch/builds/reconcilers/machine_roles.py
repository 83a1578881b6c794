"""Takes away the Role for machine OS images where they are not wanted any more (BD-331).

It is in a namespace of others, in which the operator holds nothing once these builds are off, or made in another one.
What it may do in every namespace is to find and to delete objects of this one name.
"""

from typing import Any, Final, Protocol

import structlog

from polyarch.builds.operator.rights import LEAVING_MACHINE_ROLES, MACHINE_ROLE
from polyarch.kube.errors import Forbidden
from polyarch.kube.owners import DeletesObjects, delete_object
from polyarch.kube.resources import ROLE_BINDINGS, ROLES, Resource
from polyarch.objects import PartialObjectMetadata
from polyarch.operating import names as shared

log = structlog.get_logger(__name__)

RIGHTS: Final = (LEAVING_MACHINE_ROLES,)
"""RBAC rules in the whole cluster."""


class Api(DeletesObjects, Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: type[Any], field_selector: str) -> Any: ...


class MachineRoles:
    """Looks once for each answer to where they are wanted."""

    def __init__(self, client: Api) -> None:
        self._client = client
        self._kept: str | None = None

    async def only_in(self, namespace: str) -> None:
        """Delete Roles and bindings of machine OS images in other namespaces; empty: in every one.

        Raises ``KubernetesError``; then it is looked again. That an older installation does not let it look is none.
        """
        if self._kept == namespace:
            return
        try:
            await self._remove(namespace)
        except Forbidden as error:
            log.warning("rights for machine OS images may be left", problem=str(error))
        self._kept = namespace

    async def _remove(self, namespace: str) -> None:
        for resource in (ROLE_BINDINGS, ROLES):
            found = await self._client.list(
                resource, type=PartialObjectMetadata, field_selector=f"metadata.name={MACHINE_ROLE}"
            )
            for each in found.items:
                metadata = each.metadata
                part = (metadata.labels or {}).get(shared.OPERAND_LABEL)
                if metadata.namespace != namespace and part == shared.BUILDER:
                    await delete_object(self._client, resource, metadata.key, uid=metadata.uid)
                    log.info("took away rights for machine OS images", kind=resource.kind, object=str(metadata.key))
