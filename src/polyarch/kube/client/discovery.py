"""API discovery: for kinds without a declared resource, and to check whether a kind is installed."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from polyarch.kube.client.stream import decoder
from polyarch.kube.errors import NotFound, UnreadableAnswer
from polyarch.kube.resources import Resource

T = TypeVar("T")
Fetch = Callable[[str], Awaitable[bytes]]
"""Takes a path of the server."""


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


async def discover(fetch: Fetch, group: str) -> tuple[Resource, ...]:
    """The resources of every served version, the preferred version first; empty if there is no such group.

    Subresources are left out. Raises ``UnreadableAnswer``, as do all functions here.
    """
    root = f"/apis/{group}" if group else "/api"
    try:
        versions = await _versions(fetch, root) if group else ["v1"]
        found: list[Resource] = []
        for version in versions:
            served = await _read(fetch, f"{root}/{version}", _Entries)
            found += [
                Resource(group, version, entry.name, entry.kind, entry.namespaced)
                for entry in served.resources
                if "/" not in entry.name
            ]
    except NotFound:
        return ()
    return tuple(found)


async def is_served(fetch: Fetch, resource: Resource) -> bool:
    """Whether any version of the kind is served. Raises ``KubernetesError`` if the server cannot tell: a 404 below
    ``/apis`` is no answer, since whatever stands before an API server can send one."""
    if resource.group:
        groups = await _read(fetch, "/apis", _Names)
        paths = [
            f"/apis/{group.name}/{each.version}"
            for group in groups.groups
            if group.name == resource.group
            for each in group.versions
        ]
    else:
        paths = ["/api/v1"]
    for path in paths:
        served = await _read(fetch, path, _Entries)
        if any(entry.name == resource.plural for entry in served.resources):
            return True
    return False


async def _versions(fetch: Fetch, root: str) -> list[str]:
    served = await _read(fetch, root, _Group)
    preferred = served.preferred_version.version if served.preferred_version else ""
    return sorted((entry.version for entry in served.versions), key=lambda version: version != preferred)


async def _read(fetch: Fetch, path: str, type: type[T]) -> T:
    try:
        found: T = decoder(type)(await fetch(path))
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"{path}: {error}") from None
    return found
