"""What runs: the images that pods and nodes name, which nobody may delete (BD-231).

Pods are listed only when something is to be deleted, and one list serves several builds: watching all pods of a cluster
would cost more than everything else that the builder does.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from polyarch.builds.controller.watches import Watches
from polyarch.builds.facts.nodes import NODE_IMAGES
from polyarch.clock import Clock
from polyarch.kube.rbac import rule
from polyarch.kube.resources import PODS, Resource

RIGHTS: Final = (rule(PODS, "list"),)
"""RBAC rules in the whole cluster."""
SHARED: Final = 10.0
"""Seconds for which one list of all pods serves several builds."""


class ListsPods(Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: type[Any]) -> Any: ...


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container asks for."""

    image: str = ""


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container runs."""

    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Containers of a pod, of every sort."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a kubelet says of them."""

    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodImages(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a pod says of images."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def texts(self) -> Iterable[str]:
        spec, status = self.spec, self.status
        for wanted in (spec.containers, spec.init_containers, spec.ephemeral_containers):
            yield from (each.image for each in wanted or ())
        for seen in (
            status.container_statuses,
            status.init_container_statuses,
            status.ephemeral_container_statuses,
        ):
            for each in seen or ():
                yield each.image
                yield each.image_id


class RunningImages:
    """For all builds."""

    def __init__(self, client: ListsPods, watches: Watches, clock: Clock) -> None:
        self._client = client
        self._watches = watches
        self._clock = clock
        self._known: tuple[float, tuple[str, ...]] | None = None

    async def texts(self) -> tuple[str, ...]:
        """What pods and nodes say of images, at most some seconds ago."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] > SHARED:
            pods = await self._client.list(PODS, type=PodImages)
            texts = {text for pod in pods.items for text in pod.texts() if text}
            self._known = (now, tuple(sorted(texts)))
        nodes = self._watches.nodes.store.values()
        wanted = ((node.metadata.annotations or {}).get(name, "") for node in nodes for name in NODE_IMAGES)
        return (*self._known[1], *(text for text in wanted if text))
