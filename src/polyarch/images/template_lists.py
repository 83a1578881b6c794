"""The templates of autoscalers and clouds that a cluster has: each kind is listed once, where the API server has it."""

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from polyarch.images.node_templates import KINDS, Json, TemplateKind
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import Resource
from polyarch.kube.responses import ListResult


class TemplateClient(Protocol):
    """The part of the client that is needed here."""

    async def discover(self, group: str) -> tuple[Resource, ...]: ...

    async def list(self, resource: Resource, *, type: Any) -> ListResult[Any]: ...


class FoundTemplates(NamedTuple):
    """The templates of one kind in a cluster."""

    kind: TemplateKind
    resource: Resource
    documents: tuple[Json, ...] = ()
    problem: str = ""
    """Why they could not be read."""


async def read_templates(api: TemplateClient, groups: Collection[str] | None = None) -> list[FoundTemplates]:
    """The templates of every kind that the API server has, each in its preferred version.

    ``groups``: those that are served, where the caller knows. Raises ``KubernetesError``, but not where one kind may
    not be read.
    """
    found: list[FoundTemplates] = []
    wanted = [each for each in dict.fromkeys(kind.group for kind in KINDS) if groups is None or each in groups]
    served = {group: await api.discover(group) for group in wanted}
    for kind in KINDS:
        resource = next((each for each in served.get(kind.group, ()) if each.kind == kind.kind), None)
        if resource is None:
            continue
        try:
            documents = (await api.list(resource, type=dict)).items
        except (Forbidden, NotFound) as error:
            found.append(FoundTemplates(kind, resource, problem=str(error)))
        else:
            found.append(FoundTemplates(kind, resource, tuple(documents)))
    return found
