"""Everything that an API server has, reduced to metadata: what an uninstall left behind (IN-003).

Kinds come from the server's own discovery, so nothing is forgotten: kinds of other operators and aggregated API servers
are included.
"""

from typing import Final

import msgspec

from polyarch.installation.asking import together
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, MethodNotAllowed, NotFound, UnreadableAnswer
from polyarch.kube.resources import CONFIGMAPS, SERVICE_ACCOUNTS, Ref, Resource
from polyarch.objects import ObjectMeta, PartialObjectMetadata

DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
LEFT_OUT: Final = ("events", "endpoints", "componentstatuses")
"""Events expire by themselves; the others are deprecated and say nothing that other kinds do not."""
IN_EVERY_NAMESPACE: Final = frozenset({(CONFIGMAPS, "kube-root-ca.crt"), (SERVICE_ACCOUNTS, "default")})
"""Objects that Kubernetes makes in each namespace."""


class Found(msgspec.Struct, frozen=True):
    """One object."""

    ref: Ref
    metadata: ObjectMeta

    def __str__(self) -> str:
        return str(self.ref)


class Survey(msgspec.Struct, frozen=True):
    """All objects, and the kinds that could not be listed, with the reason."""

    found: tuple[Found, ...]
    unread: dict[str, str]

    def since(self, earlier: "Survey") -> tuple[Found, ...]:
        """Objects that were not there earlier, whatever the version of their kind."""
        known = {_identity(each) for each in earlier.found}
        return tuple(each for each in self.found if _identity(each) not in known)


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    scope: str
    verbs: list[str] = []
    response_kind: _Kind | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str
    resources: list[_Resource] = []
    freshness: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    versions: list[_Version] = []


class _Groups(msgspec.Struct, frozen=True):
    items: list[_Group]


async def survey(client: Client) -> Survey:
    """Every object of every kind that can be listed. Takes about 100 requests."""
    resources, unread = await kinds(client)

    async def listed(resource: Resource) -> list[Found]:
        try:
            page = await client.list(resource, type=PartialObjectMetadata)
        except (NotFound, MethodNotAllowed):
            return []  # gone since it was discovered, or not listable after all
        except (ApiError, UnreadableAnswer) as error:
            unread[str(resource)] = str(error)
            return []
        return [Found(Ref(resource, each.metadata.key), each.metadata) for each in page.items]

    found = await together(listed(resource) for resource in resources)
    ordered = sorted((each for some in found for each in some), key=lambda each: (str(each.ref.resource), each.ref.key))
    return Survey(tuple(ordered), unread)


async def kinds(client: Client) -> tuple[list[Resource], dict[str, str]]:
    """Every kind that can be listed, in the version that the server prefers; then groups that could not be read."""
    found: dict[tuple[str, str], Resource] = {}
    unread: dict[str, str] = {}
    for path in ("/api", "/apis"):
        body = await client.raw("GET", path, accept=DISCOVERY)
        try:
            groups = msgspec.json.decode(body, type=_Groups).items
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(f"get {path}: no aggregated discovery, which Kubernetes 1.30 has: {error}") from None
        for group in groups:
            for version in group.versions:
                if version.freshness == "Stale":
                    unread[f"{version.version}.{group.metadata.name}"] = "its API server does not answer"
                for each in version.resources:
                    if "list" in each.verbs and each.resource not in LEFT_OUT:
                        made = _resource(group.metadata.name, version.version, each)
                        found.setdefault((made.group, made.plural), made)
    return list(found.values()), unread


def _resource(group: str, version: str, each: _Resource) -> Resource:
    kind = each.response_kind.kind if each.response_kind is not None else ""
    return Resource(group, version, each.resource, kind, namespaced=each.scope == "Namespaced")


def _identity(found: Found) -> tuple[str, str, str, str]:
    resource, key = found.ref
    return resource.group, resource.plural, key.namespace, key.name
