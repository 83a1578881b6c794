"""The operator's webhooks for custom resources: validation, defaults and conversion (PL-011, PL-012, PL-013, PL-031).

Every replica serves them. The rules are pure (``operator.validation``, ``api.conversion``); this module gathers what a
rule needs. A cache may lag behind, so an object is accepted only after one live read, and a refusal for a missing
ClusterPodPlacementConfig is given only after one.

Updates that leave ``spec`` as it is are always accepted: an object that an older version accepted can still lose its
finalizers.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route
from polyarch.kube.conversion import ConversionRoute, Spoke
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import Operation, add, pointer
from polyarch.kube.resources import Resource
from polyarch.kube.store import Store
from polyarch.objects import Key, PartialObjectMetadata
from polyarch.placement import names
from polyarch.placement.api import CPPCS, PPCS, ClusterPodPlacementConfig, PodPlacementConfig
from polyarch.placement.conversion import V1ALPHA1, annotations_to_keep, to_v1alpha1, to_v1beta1
from polyarch.placement.operator.validation import (
    Refusal,
    Submitted,
    judge,
    judge_cluster_configuration,
    judge_removal,
)

Document = dict[str, Any]

ALLOWED: Final = AdmissionResponse()
_SINGLETON: Final = Key("", names.SINGLETON)


class Reads(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def list(self, resource: Resource, *, type: type[PodPlacementConfig], namespace: str = "") -> Any: ...


class ResourceWebhooks:
    """The routes; ``configuration`` and ``configs`` are the caches of both kinds."""

    def __init__(
        self,
        client: Reads,
        configuration: Store[ClusterPodPlacementConfig],
        configs: Store[PodPlacementConfig],
    ) -> None:
        self._client = client
        self._configuration = configuration
        self._configs = configs

    def routes(self) -> tuple[Route[Any] | ConversionRoute, ...]:
        """Validation of both kinds, the two defaulting webhooks, and the conversion."""
        return (
            _route(
                names.CPPC_WEBHOOK_PATH,
                names.CPPC_WEBHOOK,
                CPPCS,
                ClusterPodPlacementConfig | None,
                self.judge_configuration,
                "CREATE",
                "UPDATE",
                "DELETE",
            ),
            _route(
                names.PPC_WEBHOOK_PATH,
                names.PPC_WEBHOOK,
                PPCS,
                PodPlacementConfig,
                self.judge_config,
                "CREATE",
                "UPDATE",
            ),
            _route(names.CPPC_DEFAULTS_PATH, names.CPPC_DEFAULTS, CPPCS, Document, add_finalizer, "CREATE"),
            _route(names.CPPC_KEPT_PATH, names.CPPC_KEPT, CPPCS, Document, keep_values, "UPDATE"),
            conversion_route(),
        )

    async def judge_configuration(
        self, request: AdmissionRequest[ClusterPodPlacementConfig | None]
    ) -> AdmissionResponse:
        """PL-011."""
        if request.operation == "DELETE":
            known = list(self._configs.values())
            if not known:
                known = (await self._client.list(PPCS, type=PodPlacementConfig)).items
            return _answer(judge_removal(known))
        new, old = request.object, request.old_object
        if new is None or (old is not None and old.spec == new.spec):
            return ALLOWED
        return _answer(judge_cluster_configuration(new.spec.plugins))

    async def judge_config(self, request: AdmissionRequest[PodPlacementConfig]) -> AdmissionResponse:
        """PL-031: by the cache first, and by the API server before it is accepted."""
        new, old = request.object, request.old_object
        if old is not None and old.spec == new.spec:
            return ALLOWED
        namespace = request.namespace
        configured = await self._is_configured()
        known = self._configuration.get(_SINGLETON)
        leaving = known is not None and known.metadata.deletion_timestamp is not None
        cached = [config for config in self._configs.values() if config.metadata.namespace == namespace]
        refusal = judge(Submitted(new, old, cached, configured, leaving))
        if refusal is None:
            listed = (await self._client.list(PPCS, type=PodPlacementConfig, namespace=namespace)).items
            refusal = judge(Submitted(new, old, listed, configured, leaving))
        return _answer(refusal)

    async def _is_configured(self) -> bool:
        if self._configuration.get(_SINGLETON) is not None:
            return True
        try:
            await self._client.get(CPPCS, names.SINGLETON, type=PartialObjectMetadata)
        except NotFound:
            return False
        return True


async def add_finalizer(request: AdmissionRequest[Document]) -> AdmissionResponse:
    """PL-013: so that an object deleted right after its creation leaves no operand behind."""
    found = (request.object.get("metadata") or {}).get("finalizers") or []
    if names.POD_PLACEMENT_FINALIZER in found:
        return ALLOWED
    path = "/metadata/finalizers"
    added = add(f"{path}/-", names.POD_PLACEMENT_FINALIZER) if found else add(path, [names.POD_PLACEMENT_FINALIZER])
    return AdmissionResponse(patch=(added,))


async def keep_values(request: AdmissionRequest[Document]) -> AdmissionResponse:
    """PL-012: an update through v1alpha1 keeps what that version has only as annotations."""
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
    """PL-012: v1beta1 is the hub."""
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


def _answer(refusal: Refusal | None) -> AdmissionResponse:
    if refusal is None:
        return ALLOWED
    return AdmissionResponse(allowed=False, code=refusal.code, message=refusal.message)
