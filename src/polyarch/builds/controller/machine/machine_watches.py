"""What the builder watches of machine OS builds, while there is anything to watch (BD-002, BD-260).

The kinds belong to others: where they are not served, nothing is watched and the role is ready all the same. Of a
MachineConfig only what keys are made of is kept, since a rendered one may be as large as a request can be.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import structlog

from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.material import trust
from polyarch.kube.informer import Informer, Shares
from polyarch.kube.rbac import rule
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.objects import ObjectMeta, Unstructured

log = structlog.get_logger(__name__)

RIGHTS: Final = (
    rule((vocabulary.CONFIGS, vocabulary.BUILDS, vocabulary.POOLS, vocabulary.RENDERED), "get", "list", "watch"),
    rule(vocabulary.CONTROLLER_CONFIGS, "list", "watch"),
)
"""RBAC rules in the whole cluster."""
NAMESPACE_RIGHTS: Final = (rule(DEPLOYMENTS, "list", "watch"),)
"""RBAC rules in the namespace of machine OS builds."""
BY_CONFIG: Final = "config"


class RenderedSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What of a MachineConfig enters keys and names (BD-074)."""

    os_image_url: str = msgspec.field(default="", name="osImageURL")
    base_os_extensions_container_image: str = msgspec.field(default="", name="baseOSExtensionsContainerImage")
    kernel_type: str | None = None
    extensions: list[str] | None = None
    kernel_arguments: list[str] | None = None


class RenderedObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A MachineConfig."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RenderedSpec = RenderedSpec()

    @property
    def document(self) -> dict[str, Any]:
        """As stored, without what is not kept."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class ControllerConfigSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The CAs that nodes trust in addition, in base64."""

    additional_trust_bundle: str | None = None


class ControllerConfigObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A ControllerConfig, as far as builds depend on it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerConfigSpec = ControllerConfigSpec()

    @property
    def trust(self) -> str:
        """The CAs (PEM); what cannot be read is none."""
        found = trust.bundle(self.spec.additional_trust_bundle or "")
        if found is None:
            log.warning("the additional trust bundle of nodes cannot be read", controller_config=self.metadata.name)
        return found or ""


class DeploymentSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How many replicas are wanted."""

    replicas: int | None = None


class DeploymentObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Deployment, as far as it is wanted at all."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()

    @property
    def is_wanted(self) -> bool:
        return self.spec.replicas is None or self.spec.replicas > 0


class MachineWatches:
    """The informers of machine OS builds. None of them keeps the role from being ready."""

    def __init__(self, informers: Shares, namespace: str, *, has_controller: bool) -> None:
        """``has_controller``: ControllerConfigs are served."""
        self.namespace = namespace
        self.configs: Informer[Unstructured] = informers.informer(vocabulary.CONFIGS, Unstructured, required=False)
        self.builds: Informer[Unstructured] = informers.informer(vocabulary.BUILDS, Unstructured, required=False)
        self.pools: Informer[Unstructured] = informers.informer(vocabulary.POOLS, Unstructured, required=False)
        self.rendered: Informer[RenderedObject] = informers.informer(
            vocabulary.RENDERED, RenderedObject, required=False
        )
        self.stock: Informer[DeploymentObject] = informers.informer(
            DEPLOYMENTS,
            DeploymentObject,
            required=False,
            namespace=namespace,
            field_selector=f"metadata.name={vocabulary.STOCK_DEPLOYMENT}",
        )
        self._controllers: Informer[ControllerConfigObject] | None = None
        if has_controller:
            self._controllers = informers.informer(
                vocabulary.CONTROLLER_CONFIGS,
                ControllerConfigObject,
                required=False,
                field_selector=f"metadata.name={vocabulary.CONTROLLER_CONFIG}",
            )
        self.builds.store.add_index(BY_CONFIG, _controller_of)

    @property
    def every(self) -> tuple[Informer[Any], ...]:
        controllers = (self._controllers,) if self._controllers is not None else ()
        return (self.configs, self.builds, self.pools, self.rendered, self.stock, *controllers)

    @property
    def trust(self) -> str:
        """The CAs (PEM) that nodes trust in addition."""
        found = self._controllers.store.values() if self._controllers is not None else ()
        return next((each.trust for each in found), "")

    @property
    def are_known(self) -> bool:
        """Whether nothing is missing in the caches that names or decisions are made of."""
        return all(each.has_synced and each.problem is None for each in self.every)

    @property
    def stock_builder(self) -> str:
        """The Deployment that does the same work, if it is wanted (BD-260); empty: there is none."""
        wanted = any(each.is_wanted for each in self.stock.store.values())
        return f"{self.namespace}/{vocabulary.STOCK_DEPLOYMENT}" if wanted else ""


def _controller_of(build: Unstructured) -> Iterable[str]:
    owner = build.metadata.controller
    return (owner.uid,) if owner is not None else ()
