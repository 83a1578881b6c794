"""The operator's webhooks for placement's custom resources: validation, defaults, conversion, and their registration.

Every replica serves the webhooks, and the leader registers them. The rules are pure (``placement_status``,
``placement.api``); this module gathers what a rule needs. A cache may lag behind, so an object is accepted
only after one live read, and denied for a missing ClusterPodPlacementConfig only after one.

Updates that leave ``spec`` as it is are always accepted: an object that an older version accepted can still lose its
finalizers.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, Result
from polyarch.kube.conversion import ConversionRoute, Spoke
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.owners import Owner
from polyarch.kube.patches import MergePatch, Operation, add, pointer
from polyarch.kube.resources import CLUSTER_ROLES, CRDS, DEPLOYMENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from polyarch.kube.store import Store
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.operator import certificates
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import ISSUING, MONITORING, OPTIONAL, Discovery, OperatorNamespace
from polyarch.operator.components import alerts, placement_objects
from polyarch.operator.components.placement_status import (
    Denial,
    ValidationRequest,
    validate_cluster_config,
    validate_config,
    validate_deletion,
)
from polyarch.operator.monitoring import service_monitor
from polyarch.operator.owned_objects import finished, owned
from polyarch.operator.reconciler import WAITING, exists
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import (
    CPPCS,
    PPCS,
    V1ALPHA1,
    ClusterPodPlacementConfig,
    PodPlacementConfig,
    annotations_to_keep,
    to_v1alpha1,
    to_v1beta1,
)

log = structlog.get_logger(__name__)

Document = dict[str, Any]

ALLOWED: Final = AdmissionResponse()
_SINGLETON: Final = ObjectKey("", names.SINGLETON)
KINDS: Final = ((VALIDATING_WEBHOOKS, ""), (MUTATING_WEBHOOKS, ""))
LIVE_READS: Final = 4
"""Reviews at a time for which the API server is asked: anybody who reaches the port can post reviews, and each costs a
list."""
OFF: Final = {"strategy": "None", "webhook": None}


class ResourceWebhooks:
    """The webhooks; ``configuration`` and ``configs`` are the caches of both kinds."""

    def __init__(
        self,
        client: Client,
        configuration: Store[ClusterPodPlacementConfig],
        configs: Store[PodPlacementConfig],
    ) -> None:
        self._client = client
        self._configuration = configuration
        self._configs = configs
        self._live_reads = asyncio.Semaphore(LIVE_READS)

    def routes(self) -> tuple[Route[Any] | ConversionRoute, ...]:
        """Validation of both kinds, the two defaulting webhooks, and the conversion."""
        return (
            _route(
                names.CPPC_WEBHOOK_PATH,
                names.CPPC_WEBHOOK,
                CPPCS,
                ClusterPodPlacementConfig | None,
                self.validate_cluster_config,
                "CREATE",
                "UPDATE",
                "DELETE",
            ),
            _route(
                names.PPC_WEBHOOK_PATH,
                names.PPC_WEBHOOK,
                PPCS,
                PodPlacementConfig,
                self.validate_config,
                "CREATE",
                "UPDATE",
            ),
            _route(names.CPPC_DEFAULTS_PATH, names.CPPC_DEFAULTS, CPPCS, Document, add_finalizer, "CREATE"),
            _route(names.CPPC_KEPT_PATH, names.CPPC_KEPT, CPPCS, Document, keep_values, "UPDATE"),
            conversion_route(),
        )

    async def validate_cluster_config(
        self, request: AdmissionRequest[ClusterPodPlacementConfig | None]
    ) -> AdmissionResponse:
        """A ClusterPodPlacementConfig: its scoring, and whether it may be deleted."""
        if request.operation == "DELETE":
            known = list(self._configs.values())
            if not known:
                known = await self._live("")
            return _response(validate_deletion(known))
        new, old = request.object, request.old_object
        if new is None or (old is not None and old.spec == new.spec):
            return ALLOWED
        return _response(validate_cluster_config(new.spec.plugins))

    async def validate_config(self, request: AdmissionRequest[PodPlacementConfig]) -> AdmissionResponse:
        """A PodPlacementConfig: by the cache first, and by the API server before it is accepted."""
        new, old = request.object, request.old_object
        if old is not None and old.spec == new.spec:
            return ALLOWED
        namespace = request.namespace
        configured = await self._is_configured()
        known = self._configuration.get(_SINGLETON)
        terminating = known is not None and known.metadata.deletion_timestamp is not None
        cached = [config for config in self._configs.values() if config.metadata.namespace == namespace]
        denial = validate_config(ValidationRequest(new, old, cached, configured, terminating))
        if denial is None:
            listed = await self._live(namespace)
            denial = validate_config(ValidationRequest(new, old, listed, configured, terminating))
        return _response(denial)

    async def _is_configured(self) -> bool:
        if self._configuration.get(_SINGLETON) is not None:
            return True
        async with self._live_reads:
            return await exists(self._client, CPPCS, names.SINGLETON)

    async def _live(self, namespace: str) -> list[PodPlacementConfig]:
        """The PodPlacementConfigs of a namespace, or of all, as the API server has them."""
        async with self._live_reads:
            return (await self._client.list(PPCS, type=PodPlacementConfig, namespace=namespace)).items


async def add_finalizer(request: AdmissionRequest[Document]) -> AdmissionResponse:
    """Add the finalizer, so that an object deleted right after its creation leaves no operand behind."""
    found = (request.object.get("metadata") or {}).get("finalizers") or []
    if names.POD_PLACEMENT_FINALIZER in found:
        return ALLOWED
    path = "/metadata/finalizers"
    added = add(f"{path}/-", names.POD_PLACEMENT_FINALIZER) if found else add(path, [names.POD_PLACEMENT_FINALIZER])
    return AdmissionResponse(patch=(added,))


async def keep_values(request: AdmissionRequest[Document]) -> AdmissionResponse:
    """An update through v1alpha1 keeps what that version has only as annotations."""
    new, old = request.object, request.old_object or {}
    if new.get("apiVersion") != V1ALPHA1 or old.get("apiVersion") != V1ALPHA1:
        return ALLOWED
    lost = annotations_to_keep(old, new)
    if not lost:
        return ALLOWED
    operations: list[Operation] = []
    if not (new.get("metadata") or {}).get("annotations"):
        operations.append(add("/metadata/annotations", {}))
    operations += [add(pointer("metadata", "annotations", key), value) for key, value in lost.items()]
    return AdmissionResponse(patch=tuple(operations))


def conversion_route() -> ConversionRoute:
    """v1beta1 is the hub."""
    spoke = Spoke(_in_place(to_v1beta1), _in_place(to_v1alpha1))
    version = V1ALPHA1.rpartition("/")[2]
    return ConversionRoute(path=names.CONVERSION_PATH, name=str(CPPCS), resource=CPPCS, spokes={version: spoke})


def _in_place(convert: Callable[[Document], Document]) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        converted = convert(document)
        document.clear()
        document.update(converted)

    return change


def _route(
    path: str,
    name: str,
    resource: Resource,
    type: Any,
    handler: Callable[[AdmissionRequest[Any]], Awaitable[AdmissionResponse]],
    *operations: str,
) -> Route[Any]:
    return Route(
        path=path,
        name=name,
        type=type,
        handler=handler,
        on_error="deny",
        resource=resource,
        operations=frozenset(operations),
    )


def _response(denial: Denial | None) -> AdmissionResponse:
    if denial is None:
        return ALLOWED
    return AdmissionResponse(allowed=False, code=denial.code, message=denial.message)


# -- registration ------------------------------------------------------------------------------------------------------


class _Spec(msgspec.Struct, frozen=True):
    conversion: Document | None = None


class ConvertedCRD(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition, as far as its conversion goes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def ca_bundle(self) -> str:
        webhook = (self.spec.conversion or {}).get("webhook") or {}
        return str((webhook.get("clientConfig") or {}).get("caBundle") or "")


class RegistrationReconciler:
    """Registers the operator's own webhooks, switches the conversion on, and has Prometheus watch the operator.

    Its only key is :attr:`key`.

    Before the operator serves there are no webhooks, so custom resources can be created at once. The configurations
    belong to the operator's ClusterRole, so that they go with it, however the operator is removed. The conversion is
    part of a CRD that outlives the operator: a process that ends because its Deployment was deleted switches it off.
    Where OLM registers the webhooks, only what Prometheus reads is left. ``sets``: the operator's own objects of
    :data:`KINDS`.
    """

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        namespace: OperatorNamespace,
        discovery: Discovery,
        crds: Informer[ConvertedCRD],
        sets: OperandApplySets,
        secrets: ServingSecrets,
    ) -> None:
        self.key = ObjectKey(settings.namespace, names.OPERATOR)
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._discovery = discovery
        self._crds = crds
        self._sets = sets
        self._secrets = secrets
        self._registers = settings.resource_webhooks == "operator"
        self._converts = False

    async def reconcile(self, key: ObjectKey) -> Result:
        """First who issues certificates, then the webhooks once they can be reached and trusted."""
        if self._namespace.is_terminating:
            return await self._withdraw()
        serves = self._namespace.is_operator_available and self._secrets.is_known
        served = self._discovery.served
        self._sets.serve(served & OPTIONAL)
        documents = certificates.issued(self._settings) if served >= ISSUING and self._registers else []
        if self._registers and self._settings.certificates == "cert-manager" and not documents:
            log.error("cert-manager is to issue the certificates, but its kinds are not served: install it")
        owner = await self._owner()
        if served >= MONITORING:
            own = service_monitor(names.OPERATOR, self._settings), alerts.OPERATOR.document(self._settings.namespace)
            documents += [owned(finished(document), owner) for document in own]
        if not self._registers:
            await self._sets.apply(documents, keeps=lambda _: False)
            return NoRequeue() if self._sets.is_complete else WAITING
        if serves:
            bundle = self._secrets.bundle(self._sets.trusted_ca(VALIDATING_WEBHOOKS, names.OPERATOR))
            documents += placement_objects.resource_webhooks(self._settings, bundle, owner=owner)
        await self._sets.apply(documents, keeps=lambda _: not serves)
        crd = self._crds.store.get(ObjectKey("", str(CPPCS)))
        if serves and crd is not None:
            await self._convert(crd)
        return NoRequeue() if self._sets.is_complete else WAITING

    async def _withdraw(self) -> Result:
        """The Service goes with its namespace: then nobody answers, and no custom resource could be changed."""
        crd = self._crds.store.get(ObjectKey("", str(CPPCS))) if self._registers else None
        if crd is not None and (crd.spec.conversion or {}).get("strategy") == "Webhook":
            await self._switch_off()
        await self._sets.apply([], keeps=lambda _: False)
        return NoRequeue()

    async def _owner(self) -> Owner | None:
        try:
            found = await self._client.get(CLUSTER_ROLES, names.OPERATOR, type=PartialObjectMetadata)
        except NotFound:
            return None
        return Owner.of(CLUSTER_ROLES, found.metadata)

    async def _convert(self, crd: ConvertedCRD) -> None:
        self._converts = True
        wanted = self._conversion(crd)
        annotations = self._annotations(crd.metadata)
        if wanted == crd.spec.conversion and not annotations:
            return
        metadata = {"resourceVersion": crd.metadata.resource_version, "annotations": annotations}
        change = MergePatch({"metadata": metadata, "spec": {"conversion": wanted}})
        await self._client.patch(CRDS, str(CPPCS), change)
        log.info("conversion switched on", definition=str(CPPCS))

    def _conversion(self, crd: ConvertedCRD) -> Document:
        service = {
            "namespace": self._settings.namespace,
            "name": names.OPERATOR,
            "path": names.CONVERSION_PATH,
            "port": 443,
        }
        found = crd.ca_bundle
        managed = self._secrets.managed is not None
        bundle = base64.b64encode(self._secrets.bundle(found)).decode() if managed else found
        client = {"service": service} | ({"caBundle": bundle} if bundle else {})
        return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}

    def _annotations(self, metadata: ObjectMeta) -> dict[str, str | None]:
        """Changes of the annotations by which others inject the CA: only those of the mode in force exist."""
        found, wanted = metadata.annotations or {}, certificates.ca_annotations(self._settings)
        changes: dict[str, str | None] = {name: value for name, value in wanted.items() if found.get(name) != value}
        return changes | {name: None for name in certificates.INJECTIONS if name in found and name not in wanted}

    async def close(self) -> None:
        """Switch the conversion off if the operator is being removed."""
        if not self._converts:
            return
        namespace = self._settings.namespace
        try:
            found = await self._client.get(DEPLOYMENTS, names.OPERATOR, namespace=namespace, type=PartialObjectMetadata)
        except NotFound:
            await self._switch_off()
        except KubernetesError as error:
            log.warning("cannot tell whether the operator is being removed", error=str(error))
        else:
            if found.metadata.deletion_timestamp is not None:  # deleted in the foreground: it goes after its pods
                await self._switch_off()

    async def _switch_off(self) -> None:
        annotations: dict[str, None] = dict.fromkeys(certificates.INJECTIONS)
        change = MergePatch({"metadata": {"annotations": annotations}, "spec": {"conversion": OFF}})
        try:
            await self._client.patch(CRDS, str(CPPCS), change)
        except KubernetesError as error:
            log.warning("conversion not switched off", error=str(error))
        else:
            log.info("conversion switched off", definition=str(CPPCS))
