"""The reconciler of builds: the role ``builder`` is deployed while it is wanted, then removed.

No object turns the role on: the operator's flag ``--builds`` does. With ``auto`` the role runs while there are
ImageBuilds or runs of them, so that the last of them are cleaned up before it goes, and always where machine OS images
are wanted.
"""

import base64
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from polyarch import names as shared
from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, Result
from polyarch.kube.errors import AlreadyExists, Forbidden
from polyarch.kube.informer import Informer, OnDemandInformer
from polyarch.kube.manager import Process
from polyarch.kube.owners import delete_object, held_words
from polyarch.kube.resources import ROLE_BINDINGS, ROLES, SECRETS
from polyarch.objects import ObjectKey, PartialObjectMetadata
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components.builds_objects import FORMER_MACHINE_ROLES, MACHINE_ROLE, builds_operands
from polyarch.operator.owned_objects import PART_OF
from polyarch.operator.reconciler import (
    CONTESTED,
    STEP_TAKEN,
    WAITING,
    after_apply,
    deletions_in_cluster,
    needs_newer_kubernetes,
)
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import OperatorSettings

log = structlog.get_logger(__name__)

RIGHTS: Final = (FORMER_MACHINE_ROLES,)
"""RBAC rules in the whole cluster."""
SINGLETON: Final = ObjectKey("", names.ROLE)
HMAC_BYTES: Final = 32
HMAC_KEY: Final = "key"
"""Key of the Secret's data."""


class BuildsReconciler:
    """Deploys and removes the builder; its only key is :data:`SINGLETON`.

    ``secrets`` know the CA that Prometheus is to trust. ``tainted``: keys of the taints by architecture that nodes
    have. ``placed``: whether placement is on.
    """

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        sets: OperandApplySets,
        secrets: ServingSecrets,
        tainted: Callable[[], tuple[str, ...]],
        placed: Callable[[], bool],
    ) -> None:
        kinds = (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS) if settings.builds == "auto" else ()
        self._objects: tuple[Informer[PartialObjectMetadata], ...] = tuple(
            process.informers.informer(kind, PartialObjectMetadata, required=False) for kind in kinds
        )
        self._client = process.client
        self._settings = settings
        self._namespace = namespace
        self._discovery = discovery
        self._sets = sets
        self._secrets = secrets
        self._tainted = tainted
        self._placed = placed
        self._changed: Callable[..., None] = lambda _: None
        self._hmac_key = OnDemandInformer(
            process.informers,
            SECRETS,
            PartialObjectMetadata,
            lambda change: self._changed(change),
            namespace=settings.namespace,
            name=names.HMAC_SECRET,
        )
        self._machine_roles = MachineRoles(process.client)
        self._held: tuple[str, ...] = ()
        """What finalizers of others hold, as it was told: no object's conditions are about the builder."""

    def on_change(self, changed: Callable[..., None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""
        self._changed = changed
        for informer in self._objects:
            informer.add_handler(changed)
        self._sets.add_handler(changed)

    async def reconcile(self, _: ObjectKey) -> Result:
        """Raises ``KubernetesError`` and ``ApplyFailed``."""
        self._sets.serve(self._discovery.served & MONITORING)
        if self._namespace.is_terminating:
            return await self._remove_from_cluster()
        if not all(informer.has_synced for informer in self._objects) or self._discovery.cluster is None:
            return WAITING  # nobody knows yet whether there are builds
        machine_os_off = self._settings.machine_os_in(self._discovery.cluster) == "off"
        await self._machine_roles.only_in("" if machine_os_off else self._settings.machine_os_namespace)
        return await (self._deploy() if self._is_wanted() else self._remove())

    def _is_wanted(self) -> bool:
        if self._settings.builds != "auto":
            return self._settings.builds == "on"
        cluster = self._discovery.cluster
        if cluster is not None and self._settings.machine_os_in(cluster) != "off":
            return True
        return any(len(informer.store) for informer in self._objects)

    async def _deploy(self) -> Result:
        cluster = self._discovery.cluster
        if cluster is None or not self._secrets.is_known:
            return STEP_TAKEN
        if problem := needs_newer_kubernetes(cluster, "builds"):
            log.warning("the builder is not deployed", problem=problem)
            return CONTESTED
        if unusable := self._namespace.problems:  # a change of these begins another reconcile
            log.error("the builder is not deployed or changed", problems=unusable)
            return NoRequeue()
        await self._make_hmac_key()
        wanted = builds_operands(
            self._settings,
            cluster,
            tainted=self._tainted(),
            ca_bundle=self._secrets.bundle(""),
            registries=self._namespace.registries,
            placed=self._placed(),
        )
        outcome = await self._sets.apply(wanted, keeps=lambda _: False)
        return after_apply(outcome, self._sets)

    async def _make_hmac_key(self) -> None:
        """Make the key of fingerprints of Secrets where there is none: another key builds everything again that the
        Secrets are part of, but without a key nothing of that is built at all."""
        self._hmac_key.want(True)
        if self._hmac_key.get(ObjectKey(self._settings.namespace, names.HMAC_SECRET)) is not None:
            return
        key = base64.b64encode(secrets.token_bytes(HMAC_BYTES)).decode("ascii")
        document: dict[str, Any] = {
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
        self._hmac_key.want(False)
        if not self._sets.cached():
            return NoRequeue()
        found = await self._sets.live()
        held = tuple(words for ref, each in found.items() if (words := held_words(ref.resource, each.metadata, ())))
        if held and held != self._held:
            log.warning("the builder's objects cannot go", held=held)
        self._held = held
        if found:
            await self._sets.remove(found)
        return WAITING

    async def _remove_from_cluster(self) -> Result:
        """Delete what does not go with the operator's namespace, while the operator may still do so."""
        for delete in deletions_in_cluster(self._client, self._sets):
            await delete()
        return NoRequeue()


class MachineRoles:
    """Deletes the Role for machine OS images where these are not wanted any more.

    The Role is in a namespace of others, in which the operator holds nothing once these builds are off, or made in
    another one. What it may do in every namespace is to find and to delete objects of this one name. It looks once for
    each namespace in which they are wanted.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: str | None = None

    async def only_in(self, namespace: str) -> None:
        """Delete Roles and bindings of machine OS images in other namespaces; empty: in every one.

        Raises ``KubernetesError``; then look again. That an older installation does not let it look is no error.
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
            for item in found.items:
                metadata = item.metadata
                part = (metadata.labels or {}).get(shared.OPERAND_LABEL)
                if metadata.namespace != namespace and part == shared.BUILDER:
                    await delete_object(self._client, resource, metadata.key, uid=metadata.uid)
                    log.info("took away rights for machine OS images", kind=resource.kind, object=str(metadata.key))
