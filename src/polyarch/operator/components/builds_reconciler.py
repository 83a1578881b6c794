"""Takes away the Role for machine OS images where they are not wanted any more.

It is in a namespace of others, in which the operator holds nothing once these builds are off, or made in another one.
What it may do in every namespace is to find and to delete objects of this one name."""

import base64
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import structlog

from polyarch import names as shared
from polyarch.builds import names
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import AlreadyExists, Forbidden
from polyarch.kube.informer import Informer, OnDemand
from polyarch.kube.manager import Process
from polyarch.kube.owners import DeletesObjects, delete_object
from polyarch.kube.resources import ROLE_BINDINGS, ROLES, SECRETS, Resource
from polyarch.objects import Key, PartialObjectMetadata
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components.builds_objects import LEAVING_MACHINE_ROLES, MACHINE_ROLE, builds_operands
from polyarch.operator.owned_objects import PART_OF
from polyarch.operator.settings import OLDEST_KUBERNETES, OperatorSettings

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


# -- The lifecycle of the role builder: deployed while it is wanted, then removed.


Document = dict[str, Any]

SINGLETON: Final = Key("", names.ROLE)
SOON: Final = 0.2
"""Seconds until the next pass when a step was taken, or a cache is behind."""
WAITING: Final = 1.0
"""Seconds until the next pass while something is waited for."""
CONTESTED: Final = 30.0
HMAC_BYTES: Final = 32
HMAC_KEY: Final = "key"
"""Key of the Secret's data."""


class CABundle(Protocol):
    """Whose certificates Prometheus is to trust."""

    @property
    def is_known(self) -> bool: ...

    def bundle(self, found: str) -> bytes:
        """The CAs (PEM)."""


class BuildsReconciler:
    """The reconciler and what it watches; its only key is :data:`SINGLETON`.

    ``tainted``: keys of the taints by architecture that nodes have. ``placed``: whether placement is on.
    """

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        home: OperatorNamespace,
        discovery: Discovery,
        sets: OperandApplySets,
        trust: CABundle,
        tainted: Callable[[], tuple[str, ...]],
        placed: Callable[[], bool],
    ) -> None:
        kinds = (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS) if settings.builds == "auto" else ()
        self._objects: tuple[Informer[PartialObjectMetadata], ...] = tuple(
            process.informers.informer(kind, PartialObjectMetadata, required=False) for kind in kinds
        )
        self._client = process.client
        self._settings = settings
        self._home = home
        self._discovery = discovery
        self._sets = sets
        self._trust = trust
        self._tainted = tainted
        self._placed = placed
        self._changed: Callable[..., None] = lambda _: None
        self._key = OnDemand(
            process.informers,
            SECRETS,
            PartialObjectMetadata,
            lambda change: self._changed(change),
            namespace=settings.namespace,
            name=names.HMAC_SECRET,
        )
        self._machine_roles = MachineRoles(process.client)

    def on_change(self, changed: Callable[..., None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""
        self._changed = changed
        for each in self._objects:
            each.add_handler(changed)
        self._sets.add_handler(changed)

    async def reconcile(self, _: Key) -> Result:
        """One pass. Raises ``KubernetesError`` and ``ApplyFailed``."""
        self._sets.serve(self._discovery.served & MONITORING)
        if self._home.is_terminating:
            return await self._remove_from_cluster()
        if not all(each.has_synced for each in self._objects) or self._discovery.cluster is None:
            return After(WAITING)  # nobody knows yet whether there are builds
        machines_off = self._settings.machine_os_in(self._discovery.cluster) == "off"
        await self._machine_roles.only_in("" if machines_off else self._settings.machine_os_namespace)
        return await (self._deploy() if self._is_wanted() else self._remove())

    def _is_wanted(self) -> bool:
        if self._settings.builds != "auto":
            return self._settings.builds == "on"
        cluster = self._discovery.cluster
        if cluster is not None and self._settings.machine_os_in(cluster) != "off":
            return True
        return any(len(each.store) for each in self._objects)

    async def _deploy(self) -> Result:
        cluster = self._discovery.cluster
        if cluster is None or not self._trust.is_known:
            return After(SOON)
        if cluster.version < OLDEST_KUBERNETES:
            needed = ".".join(map(str, OLDEST_KUBERNETES))
            log.warning("the builder is not deployed", problem=f"builds need Kubernetes {needed} or newer")
            return After(CONTESTED)
        if unusable := self._home.problems:  # a change of them begins another pass
            log.error("the builder is not deployed or changed", problems=unusable)
            return Done()
        await self._make_key()
        wanted = builds_operands(
            self._settings,
            cluster,
            tainted=self._tainted(),
            ca_bundle=self._trust.bundle(""),
            registries=self._home.registries,
            placed=self._placed(),
        )
        outcome = await self._sets.apply(wanted, keeps=lambda _: False)
        if outcome.contested:
            return After(CONTESTED)
        return After(WAITING) if outcome.leaving or not self._sets.is_complete else Done()

    async def _make_key(self) -> None:
        """The key of fingerprints of Secrets, wherever there is none: another one builds everything again that they are
        part of, but without one nothing of that is built at all."""
        self._key.want(True)
        if self._key.get(Key(self._settings.namespace, names.HMAC_SECRET)) is not None:
            return
        key = base64.b64encode(secrets.token_bytes(HMAC_BYTES)).decode("ascii")
        document: Document = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": names.HMAC_SECRET, "namespace": self._settings.namespace, "labels": dict(PART_OF)},
            "type": "Opaque",
            "data": {HMAC_KEY: key},
        }
        with suppress(AlreadyExists):
            await self._client.create(SECRETS, document, namespace=self._settings.namespace)
            log.info(
                "made the key of fingerprints of Secrets", secret=f"{self._settings.namespace}/{names.HMAC_SECRET}"
            )

    async def _remove(self) -> Result:
        self._key.want(False)
        if not self._sets.cached():
            return Done()
        found = await self._sets.live()
        if found:
            await self._sets.remove(found)
        return After(WAITING)

    async def _remove_from_cluster(self) -> Result:
        """What does not go with the operator's namespace, while the operator may still delete it."""
        for ref in self._sets.cached():
            if not ref.resource.namespaced:
                await delete_object(self._client, ref.resource, ref.key)
        return Done()
