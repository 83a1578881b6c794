"""The client: Kubernetes' verbs, typed.

For reads the caller gives the type to decode into: a slim Struct with the fields it needs, or ``dict``. For writes it
gives a document or a patch that it built; an object that was read is never sent back. If a caller does not use the
response of a write, only its metadata is requested. Requests are built in ``requests.py``, sent by ``transport.py`` and
decoded in ``responses.py``.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.kube import requests, responses
from polyarch.kube.credentials import Credentials
from polyarch.kube.errors import NotFound, UnreadableAnswer
from polyarch.kube.patches import MergePatch, Patch
from polyarch.kube.requests import ListOptions, Propagation, Random, Request
from polyarch.kube.resources import Resource
from polyarch.kube.responses import IssuedToken, ListResult, WatchStream, decoder
from polyarch.kube.settings import Configuration
from polyarch.kube.transport import ClientMetrics, Transport, TransportSettings
from polyarch.kube.watch import KubernetesObject, Page
from polyarch.objects import PartialObjectMetadata

if TYPE_CHECKING:  # what a caller gets that names no type (PEP 696)
    from typing_extensions import TypeVar as WithDefault

    T = WithDefault("T", default=dict[str, Any])
    W = WithDefault("W", default=PartialObjectMetadata)
else:
    T, W = TypeVar("T"), TypeVar("W")
O = TypeVar("O", bound=KubernetesObject)  # noqa: E741 - an object, as everywhere in this module

PAGE: Final = 500
LOG_IDLE: Final = 3600.0
"""Seconds in which a container that is followed may log nothing."""


class Client:
    """One API server, one session. ``role`` is part of the User-Agent. Use it as an async context manager.

    Every method raises ``ApiError`` and its subclasses, ``ConnectionFailed``, ``ConfigurationError`` (credentials) or
    ``UnreadableAnswer``. With ``retry=False`` the first failure is final, for callers that retry themselves.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        role: str = "cli",
        clock: Clock | None = None,
        metrics: ClientMetrics | None = None,
        settings: TransportSettings | None = None,
        credentials: Credentials | None = None,
        chance: Random | None = None,
    ) -> None:
        self.configuration = configuration
        self.clock: Clock = clock or SystemClock()
        self._transport = Transport(
            configuration,
            role=role,
            clock=self.clock,
            metrics=metrics,
            settings=settings,
            credentials=credentials,
            chance=chance,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the session and with it all open watches."""
        await self._transport.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        type: type[T] = dict,  # type: ignore[assignment]
        subresource: str = "",
        retry: bool = True,
    ) -> T:
        request = requests.get(resource, name, namespace=namespace, subresource=subresource)
        return await responses.one(self._transport, request, type, retry=retry)

    async def list(
        self,
        resource: Resource,
        *,
        type: type[T] = dict,  # type: ignore[assignment]
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
        resource_version: str = "",
        retry: bool = True,
        keep: Callable[[T], T] | None = None,
    ) -> ListResult[T]:
        """All objects, read in pages of ``limit``. If the continue token expires (410) the list starts again, at most
        three times.

        ``keep``: the part of an object that stays in memory once its page is read.

        ``resource_version`` "0" allows the server's cached, possibly stale, list; "" is a consistent read.
        """
        return await responses.everything(
            self._transport,
            resource,
            ListOptions(namespace, label_selector, field_selector),
            type,
            limit=limit,
            resource_version=resource_version,
            retry=retry,
            keep=keep,
        )

    async def column(self, resource: Resource, name: str) -> dict[str, str]:
        """One column of what ``kubectl get -o wide`` prints of a cluster-scoped kind, by the names of the objects:
        some hundred bytes each, whatever their size. Empty if the API server prints no such column."""
        return await responses.column(self._transport, requests.table(resource), name)

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: type[O], continue_token: str = "", limit: int = PAGE
    ) -> Page[O]:
        """One page for a cache. Objects that do not decode are left out; the caller retries failures."""
        request = requests.list_page(resource, selection, limit=limit, continue_token=continue_token)
        return await responses.page(self._transport, request, type)

    def watch(
        self,
        resource: Resource,
        selection: ListOptions,
        *,
        type: type[O],
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AbstractAsyncContextManager[WatchStream[O]]:
        """One watch, until the server closes it; informers restart it. ``initial_events``: as a streaming list."""
        request = requests.watch(
            resource,
            selection,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            initial_events=initial_events,
        )
        return responses.events(self._transport, request, type, timeout_seconds=timeout_seconds)

    async def log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> str:
        """What a container has logged so far; bytes that are not UTF-8 are replaced."""
        request = requests.log(
            namespace, pod, container=container, previous=previous, tail_lines=tail_lines, limit_bytes=limit_bytes
        )
        return (await self._transport.send(request, accept="*/*")).decode("utf-8", "replace")

    def follow_log(
        self, namespace: str, pod: str, *, container: str = "", since_seconds: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """The lines that a container has logged, and those that it logs until it ends. A line of more than a mebibyte
        is cut. The connection may break off earlier, like that of a watch: ``since_seconds`` is for going on."""
        request = requests.log(namespace, pod, container=container, follow=True, since_seconds=since_seconds)
        return responses.log_lines(self._transport, request, idle=LOG_IDLE)

    async def discover(self, group: str) -> tuple[Resource, ...]:
        """The resources of a group in every version, the preferred version first; empty if there is no such group."""
        return await discover(lambda path: self.raw("GET", path), group)

    async def is_served(self, resource: Resource) -> bool:
        """Whether the API server has this kind, in any version."""
        return await is_served(lambda path: self.raw("GET", path), resource)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        type: type[W] = PartialObjectMetadata,  # type: ignore[assignment]
        dry_run: bool = False,
        retry: bool = True,
    ) -> W:
        """POST. Not retried after a lost response: the object may exist then, and a retry would raise AlreadyExists."""
        request = requests.create(
            resource, document, namespace=namespace, name=name, subresource=subresource, dry_run=dry_run
        )
        return await responses.one(self._transport, request, type, retry=retry)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str = requests.FIELD_MANAGER,
        type: type[W] = PartialObjectMetadata,  # type: ignore[assignment]
        dry_run: bool = False,
        retry: bool = True,
    ) -> W:
        """PATCH, retried after a lost response unless ``retry=False``: our patches test, set or remove."""
        request = requests.patch(
            resource,
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
            field_manager=field_manager,
            dry_run=dry_run,
        )
        return await responses.one(self._transport, request, type, retry=retry)

    async def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        force: bool = True,
        subresource: str = "",
        field_manager: str = requests.FIELD_MANAGER,
        type: type[W] = PartialObjectMetadata,  # type: ignore[assignment]
        dry_run: bool = False,
        retry: bool = True,
    ) -> W:
        """Server-side apply of everything that ``field_manager`` owns; creates the object if it does not exist."""
        request = requests.apply(
            resource,
            document,
            namespace=namespace,
            force=force,
            subresource=subresource,
            field_manager=field_manager,
            dry_run=dry_run,
        )
        return await responses.one(self._transport, request, type, retry=retry)

    async def replace(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        complete: bool = False,
        type: type[W] = PartialObjectMetadata,  # type: ignore[assignment]
        retry: bool = True,
    ) -> W:
        """PUT with ``metadata.resourceVersion`` as a precondition (else Conflict).

        For Leases, and where patches are forbidden: ``complete`` says that the document was read as plain JSON, with
        every field of the object, and changed.
        """
        request = requests.replace(resource, document, namespace=namespace, complete=complete)
        return await responses.one(self._transport, request, type, retry=retry)

    async def scale(self, resource: Resource, name: str, replicas: int, *, namespace: str = "") -> None:
        """Sets ``spec.replicas`` through the scale subresource."""
        change = MergePatch({"spec": {"replicas": replicas}})
        await self._transport.send(requests.patch(resource, name, change, namespace=namespace, subresource="scale"))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        retry: bool = True,
    ) -> None:
        """DELETE. Raises Conflict if a precondition does not hold, NotFound if the object does not exist."""
        request = requests.delete(
            resource,
            name,
            namespace=namespace,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        await self._transport.send(request, retry=retry)

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """DELETE of all objects that match the selectors. Raises ValueError without a selector."""
        request = requests.delete_collection(
            resource,
            ListOptions(namespace, label_selector, field_selector),
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        await self._transport.send(request)

    async def bind(self, namespace: str, pod: str, node: str, uid: str) -> None:
        """Assigns a pod to a node, as a scheduler does."""
        await self._transport.send(requests.bind(namespace, pod, node, uid))

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Evicts a pod. TooManyRequests, if a PodDisruptionBudget does not allow it now, is not retried here."""
        request = requests.evict(namespace, pod, uid=uid, grace_period_seconds=grace_period_seconds, dry_run=dry_run)
        await self._transport.send(request, retry=False)

    async def token(
        self,
        namespace: str,
        service_account: str,
        *,
        audiences: tuple[str, ...] = (),
        expiration_seconds: int = 3600,
        bound_pod: tuple[str, str] | None = None,
    ) -> IssuedToken:
        """Requests a new token for a ServiceAccount; with ``bound_pod`` (name and uid), one that ends with the pod."""
        request = requests.token(
            namespace,
            service_account,
            audiences=audiences,
            expiration_seconds=expiration_seconds,
            bound_pod=bound_pod,
        )
        return await responses.token(self._transport, request)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: bytes | None = None,
        content_type: str = requests.JSON,
        accept: str = requests.JSON,
    ) -> bytes:
        """The response of any path of the server (``/version``, ``/readyz``); ``query`` is already encoded."""
        request = Request(
            method,
            path,
            method.lower(),
            path,
            query=query,
            body=body,
            content_type=content_type,
            idempotent=method != "POST",
        )
        return await self._transport.send(request, accept=accept)


# -- discovery: kinds without a declared resource, and whether a kind is installed -------------------------------------


D = TypeVar("D")
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


async def served_groups(fetch: Fetch) -> frozenset[str]:
    """The API groups that the server has in any version. Raises ``KubernetesError``."""
    return frozenset(group.name for group in (await _read(fetch, "/apis", _Names)).groups)


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


async def _read(fetch: Fetch, path: str, type: type[D]) -> D:
    try:
        found: D = decoder(type)(await fetch(path))
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"{path}: {error}") from None
    return found
