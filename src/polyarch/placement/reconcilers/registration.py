"""Registers the operator's own webhooks, and switches the conversion on (PL-011 to PL-013, PL-031, PL-540, PL-541).

Before the operator serves there are none, so custom resources can be created at once. The configurations belong to the
operator's ClusterRole, so that they go with it, however the operator is removed. The conversion is part of a CRD that
outlives the operator: a process that ends because its Deployment was deleted switches it off (PL-520).
"""

import base64
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.client import Client
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.owners import Owner
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CLUSTER_ROLES, CRDS, DEPLOYMENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata
from polyarch.operating import serving
from polyarch.operating.keeping.discovery import ISSUING, Discovery
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.placement.operator import webhooks
from polyarch.placement.reconcilers.serving_secrets import ServingSecrets

log = structlog.get_logger(__name__)

Document = dict[str, Any]
KINDS: Final = ((VALIDATING_WEBHOOKS, ""), (MUTATING_WEBHOOKS, ""))
OFF: Final = {"strategy": "None", "webhook": None}


class _Spec(msgspec.Struct, frozen=True):
    conversion: Document | None = None


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition, as far as its conversion goes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def ca_bundle(self) -> str:
        webhook = (self.spec.conversion or {}).get("webhook") or {}
        return str((webhook.get("clientConfig") or {}).get("caBundle") or "")


class RegistrationReconciler:
    """The reconciler; its only key is :attr:`key`. ``sets``: the operator's own objects of :data:`KINDS`."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        home: Home,
        discovery: Discovery,
        definitions: Informer[Definition],
        sets: OperandSets,
        secrets: ServingSecrets,
    ) -> None:
        self.key = Key(settings.namespace, names.OPERATOR)
        self._client = client
        self._settings = settings
        self._home = home
        self._discovery = discovery
        self._definitions = definitions
        self._sets = sets
        self._secrets = secrets
        self._converts = False

    async def reconcile(self, key: Key) -> Result:
        """One pass: who issues certificates first, then the webhooks once they can be reached and trusted."""
        if self._home.is_terminating:
            return await self._withdraw()
        serves = self._home.is_operator_available and self._secrets.is_known
        served = self._discovery.served & ISSUING
        self._sets.serve(served)
        documents = serving.issued(self._settings) if served >= ISSUING else []
        if self._settings.certificates == "cert-manager" and not documents:
            log.error("cert-manager is to issue the certificates, but its kinds are not served: install it")
        if serves:
            found = self._sets.get(VALIDATING_WEBHOOKS, names.OPERATOR)
            registered = (found.document.get("webhooks") if found is not None else None) or [{}]
            bundle = self._secrets.bundle(str((registered[0].get("clientConfig") or {}).get("caBundle") or ""))
            documents += webhooks.resource_webhooks(self._settings, bundle, owner=await self._owner())
        await self._sets.apply(documents, keeps=lambda _: not serves)
        definition = self._definitions.store.get(Key("", str(CPPCS)))
        if serves and definition is not None:
            await self._convert(definition)
        return Done() if self._sets.is_complete else After(1.0)

    async def _withdraw(self) -> Result:
        """The Service goes with its namespace: then nobody answers, and no custom resource could be changed."""
        definition = self._definitions.store.get(Key("", str(CPPCS)))
        if definition is not None and (definition.spec.conversion or {}).get("strategy") == "Webhook":
            await self._switch_off()
        await self._sets.apply([], keeps=lambda _: False)
        return Done()

    async def _owner(self) -> Owner | None:
        try:
            found = await self._client.get(CLUSTER_ROLES, names.OPERATOR, type=PartialObjectMetadata)
        except NotFound:
            return None
        return Owner.of(CLUSTER_ROLES, found.metadata)

    async def _convert(self, definition: Definition) -> None:
        self._converts = True
        wanted = self._conversion(definition)
        annotations = self._annotations(definition.metadata)
        if wanted == definition.spec.conversion and not annotations:
            return
        metadata = {"resourceVersion": definition.metadata.resource_version, "annotations": annotations}
        change = MergePatch({"metadata": metadata, "spec": {"conversion": wanted}})
        await self._client.patch(CRDS, str(CPPCS), change)
        log.info("conversion switched on", definition=str(CPPCS))

    def _conversion(self, definition: Definition) -> Document:
        service = {
            "namespace": self._settings.namespace,
            "name": names.OPERATOR,
            "path": names.CONVERSION_PATH,
            "port": 443,
        }
        found = definition.ca_bundle
        managed = self._secrets.managed is not None
        bundle = base64.b64encode(self._secrets.bundle(found)).decode() if managed else found
        client = {"service": service} | ({"caBundle": bundle} if bundle else {})
        return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}

    def _annotations(self, metadata: ObjectMeta) -> dict[str, str | None]:
        """Changes of the annotations by which others inject the CA; only those of the mode in force exist (PL-541)."""
        found, wanted = metadata.annotations or {}, serving.ca_annotations(self._settings)
        changes: dict[str, str | None] = {name: value for name, value in wanted.items() if found.get(name) != value}
        return changes | {name: None for name in serving.INJECTIONS if name in found and name not in wanted}

    async def close(self) -> None:
        """Switches the conversion off if the operator is being removed."""
        if not self._converts:
            return
        home = self._settings.namespace
        try:
            found = await self._client.get(DEPLOYMENTS, names.OPERATOR, namespace=home, type=PartialObjectMetadata)
        except NotFound:
            await self._switch_off()
        except KubernetesError as error:
            log.warning("cannot tell whether the operator is being removed", error=str(error))
        else:
            if found.metadata.deletion_timestamp is not None:  # deleted in the foreground: it goes after its pods
                await self._switch_off()

    async def _switch_off(self) -> None:
        annotations: dict[str, None] = dict.fromkeys(serving.INJECTIONS)
        change = MergePatch({"metadata": {"annotations": annotations}, "spec": {"conversion": OFF}})
        try:
            await self._client.patch(CRDS, str(CPPCS), change)
        except KubernetesError as error:
            log.warning("conversion not switched off", error=str(error))
        else:
            log.info("conversion switched off", definition=str(CPPCS))
