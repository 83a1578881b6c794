"""API discovery: for kinds without a declared resource, and to check whether a kind is installed."""

from collections.abc import Awaitable, Callable

import msgspec

from polyarch.kube.client.stream import decoder
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import Resource


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    versions: list[_Version]
    preferred_version: _Version | None = None


class _Name(msgspec.Struct, frozen=True):
    name: str
    versions: list[_Version]


class _Names(msgspec.Struct, frozen=True):
    groups: list[_Name]


class _Entry(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool


class _Entries(msgspec.Struct, frozen=True):
    resources: list[_Entry]


async def discover(fetch: Callable[[str], Awaitable[bytes]], group: str) -> tuple[Resource, ...]:
    """The resources of every served version, the preferred version first; empty if there is no such group.

    ``fetch`` takes a path of the server. Subresources are left out.
    """
    root = f"/apis/{group}" if group else "/api"
    try:
        versions = await _versions(fetch, root) if group else ["v1"]
        found: list[Resource] = []
        for version in versions:
            served: _Entries = decoder(_Entries)(await fetch(f"{root}/{version}"))
            found += [
                Resource(group, version, entry.name, entry.kind, entry.namespaced)
                for entry in served.resources
                if "/" not in entry.name
            ]
    except NotFound:
        return ()
    return tuple(found)


async def is_served(fetch: Callable[[str], Awaitable[bytes]], resource: Resource) -> bool:
    """Whether any version of the kind is served. Raises ``KubernetesError`` if the server cannot tell: a 404 below
    ``/apis`` is no answer, since whatever stands before an API server can send one."""
    if resource.group:
        groups: _Names = decoder(_Names)(await fetch("/apis"))
        paths = [
            f"/apis/{group.name}/{each.version}"
            for group in groups.groups
            if group.name == resource.group
            for each in group.versions
        ]
    else:
        paths = ["/api/v1"]
    for path in paths:
        served: _Entries = decoder(_Entries)(await fetch(path))
        if any(entry.name == resource.plural for entry in served.resources):
            return True
    return False


async def _versions(fetch: Callable[[str], Awaitable[bytes]], root: str) -> list[str]:
    served: _Group = decoder(_Group)(await fetch(root))
    preferred = served.preferred_version.version if served.preferred_version else ""
    return sorted((entry.version for entry in served.versions), key=lambda version: version != preferred)
