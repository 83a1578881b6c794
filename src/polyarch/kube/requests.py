"""The HTTP request of each verb, as a value: no session, no clock, nothing to mock; and when a request is retried.

A :class:`Request` has all that the transport needs, including whether the request is idempotent and the names for
errors and metrics. Query keys and bodies are those of the Kubernetes API. The field manager is ours, or the one the
caller gives for its part of an object. Pure: time and random numbers are arguments.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec

from polyarch.kube.errors import ApiError, ConnectionFailed, KubernetesError
from polyarch.kube.patches import ApplyPatch, Patch
from polyarch.kube.resources import LEASES, PODS, SERVICE_ACCOUNTS, Resource

FIELD_MANAGER: Final = "polyarch"
JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"

Propagation = Literal["Foreground", "Background", "Orphan"]

_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request to the API server. ``verb``, ``resource`` and ``name`` are for errors and metrics.

    The ``Accept`` header is not part of it: the reader of the response chooses that (``responses.py``).
    """

    method: str
    path: str
    verb: str
    resource: str
    name: str = ""
    query: str = ""
    body: bytes | None = None
    content_type: str = JSON
    idempotent: bool = True


class ListOptions(msgspec.Struct, frozen=True, gc=False):
    """Which objects of a resource; empty strings do not restrict it."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


def get(resource: Resource, name: str, *, namespace: str, subresource: str = "") -> Request:
    path = resource.path(namespace, name, subresource)
    return Request("GET", path, "get", _words(resource, subresource), name)


def list_page(
    resource: Resource,
    selection: ListOptions,
    *,
    limit: int,
    continue_token: str = "",
    resource_version: str = "",
) -> Request:
    """``resource_version`` is for the first page only; the server rejects it together with a continue token."""
    query = _query(
        labelSelector=selection.label_selector,
        fieldSelector=selection.field_selector,
        limit=str(limit) if limit else "",
        **{"continue": continue_token},
        resourceVersion="" if continue_token else resource_version,
    )
    return Request("GET", resource.path(selection.namespace), "list", str(resource), query=query)


def table(resource: Resource, *, field_selector: str = "") -> Request:
    """What ``kubectl get -o wide`` prints, without the objects. From the API server's cache, in one answer."""
    query = _query(includeObject="None", fieldSelector=field_selector, resourceVersion="0")
    return Request("GET", resource.path(""), "list", str(resource), query=query)


def watch(
    resource: Resource,
    selection: ListOptions,
    *,
    resource_version: str,
    timeout_seconds: int,
    initial_events: bool = False,
) -> Request:
    """A watch from ``resource_version``, or, with ``initial_events``, a streaming list (KEP-3157)."""
    streaming = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"} if initial_events else {}
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        timeoutSeconds=str(timeout_seconds),
        labelSelector=selection.label_selector,
        fieldSelector=selection.field_selector,
        resourceVersion=resource_version,
        **streaming,
    )
    return Request("GET", resource.path(selection.namespace), "watch", str(resource), query=query)


def create(
    resource: Resource,
    document: Mapping[str, Any],
    *,
    namespace: str,
    name: str = "",
    subresource: str = "",
    dry_run: bool = False,
) -> Request:
    """POST; with ``name`` and ``subresource``, to a subresource. Not idempotent."""
    return Request(
        "POST",
        resource.path(namespace, name, subresource) if subresource else resource.path(namespace),
        "create",
        _words(resource, subresource),
        name or _name(document),
        query=_write_query(dry_run=dry_run),
        body=_document(document),
        idempotent=False,
    )


def patch(
    resource: Resource,
    name: str,
    change: Patch,
    *,
    namespace: str,
    subresource: str = "",
    field_manager: str = FIELD_MANAGER,
    dry_run: bool = False,
) -> Request:
    force = isinstance(change, ApplyPatch) and change.force
    return Request(
        "PATCH",
        resource.path(namespace, name, subresource),
        "patch",
        _words(resource, subresource),
        name,
        query=_write_query(field_manager, force=force, dry_run=dry_run),
        body=change.body(),
        content_type=change.content_type,
    )


def apply(
    resource: Resource,
    document: Mapping[str, Any],
    *,
    namespace: str,
    force: bool = True,
    subresource: str = "",
    field_manager: str = FIELD_MANAGER,
    dry_run: bool = False,
) -> Request:
    """Server-side apply. The name comes from the document; kind and apiVersion are taken from the resource."""
    _mapping(document)
    name = str((document.get("metadata") or {}).get("name") or "")
    if not name:
        raise ValueError(f"a document applied to {resource} needs metadata.name")
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
    change = ApplyPatch(whole, force)
    return patch(
        resource,
        name,
        change,
        namespace=namespace,
        subresource=subresource,
        field_manager=field_manager,
        dry_run=dry_run,
    )


def replace(resource: Resource, document: Mapping[str, Any], *, namespace: str, complete: bool = False) -> Request:
    """PUT with a precondition, for Leases, of which we own everything, and for documents that are ``complete``: read as
    plain JSON, so that fields that we do not know are in them. Losing a race must be an error.
    """
    if resource != LEASES and not complete:
        raise ValueError(f"{resource} is never replaced as a whole; patch or apply the fields that are ours")
    metadata = document.get("metadata") or {}
    if not metadata.get("resourceVersion") or not metadata.get("name"):
        raise ValueError(f"a {resource.kind} is replaced only with metadata.name and metadata.resourceVersion")
    return Request(
        "PUT",
        resource.path(namespace, metadata["name"]),
        "update",
        str(resource),
        metadata["name"],
        query=_write_query(),
        body=_document(document),
    )


def delete(
    resource: Resource,
    name: str,
    *,
    namespace: str,
    uid: str | None = None,
    resource_version: str | None = None,
    propagation: Propagation | None = None,
    grace_period_seconds: int | None = None,
    dry_run: bool = False,
) -> Request:
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options |= delete_options(uid, resource_version, propagation, grace_period_seconds, dry_run)
    return Request("DELETE", resource.path(namespace, name), "delete", str(resource), name, body=_encode(options))


def delete_collection(
    resource: Resource,
    selection: ListOptions,
    *,
    propagation: Propagation | None = None,
    grace_period_seconds: int | None = None,
    dry_run: bool = False,
) -> Request:
    """DELETE of all objects that match a selector; without one it would delete every object of the kind."""
    if not (selection.label_selector or selection.field_selector):
        raise ValueError(f"deleting a collection of {resource} needs a label or field selector")
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options |= delete_options(None, None, propagation, grace_period_seconds, dry_run)
    query = _query(labelSelector=selection.label_selector, fieldSelector=selection.field_selector)
    path = resource.path(selection.namespace)
    return Request("DELETE", path, "deletecollection", str(resource), query=query, body=_encode(options))


def delete_options(
    uid: str | None = None,
    resource_version: str | None = None,
    propagation: Propagation | None = None,
    grace_period_seconds: int | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The fields of meta/v1 DeleteOptions that are set; if a precondition does not hold the answer is Conflict."""
    preconditions = {
        key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
    }
    options: dict[str, Any] = {}
    if preconditions:
        options["preconditions"] = preconditions
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def bind(namespace: str, pod: str, node: str, uid: str) -> Request:
    """``pods/binding``, as a scheduler does. The uid prevents binding a new pod of the same name."""
    document = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return create(PODS, document, namespace=namespace, name=pod, subresource="binding")


def evict(
    namespace: str,
    pod: str,
    *,
    uid: str | None = None,
    grace_period_seconds: int | None = None,
    dry_run: bool = False,
) -> Request:
    """``pods/eviction``, which respects PodDisruptionBudgets: TooManyRequests if one does not allow it now."""
    document: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    options = delete_options(uid, grace_period_seconds=grace_period_seconds, dry_run=dry_run)
    if options:
        document["deleteOptions"] = options
    return create(PODS, document, namespace=namespace, name=pod, subresource="eviction", dry_run=dry_run)


def token(
    namespace: str,
    service_account: str,
    *,
    audiences: tuple[str, ...] = (),
    expiration_seconds: int = 3600,
    bound_pod: tuple[str, str] | None = None,
) -> Request:
    """``serviceaccounts/token`` (TokenRequest). Idempotent, since a second token does no harm."""
    spec: dict[str, Any] = {"expirationSeconds": expiration_seconds}
    if audiences:
        spec["audiences"] = list(audiences)
    if bound_pod is not None:
        name, uid = bound_pod
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    request = create(SERVICE_ACCOUNTS, document, namespace=namespace, name=service_account, subresource="token")
    return msgspec.structs.replace(request, idempotent=True)


def log(
    namespace: str,
    pod: str,
    *,
    container: str = "",
    previous: bool = False,
    tail_lines: int | None = None,
    limit_bytes: int | None = None,
    follow: bool = False,
    since_seconds: int | None = None,
) -> Request:
    query = _query(
        container=container,
        follow="true" if follow else "",
        previous="true" if previous else "",
        sinceSeconds="" if since_seconds is None else str(since_seconds),
        tailLines="" if tail_lines is None else str(tail_lines),
        limitBytes="" if limit_bytes is None else str(limit_bytes),
    )
    return Request("GET", PODS.path(namespace, pod, "log"), "get", "pods/log", pod, query=query)


def _query(**parameters: str) -> str:
    return urlencode([(key, value) for key, value in parameters.items() if value])


@cache
def _write_query(field_manager: str = FIELD_MANAGER, *, force: bool = False, dry_run: bool = False) -> str:
    """The query of a write; there are few, so they are cached for speed."""
    return _query(fieldManager=field_manager, force="true" if force else "", dryRun="All" if dry_run else "")


def _words(resource: Resource, subresource: str) -> str:
    """The resource as in RBAC rules: ``pods/eviction``, ``deployments.apps/scale``."""
    return f"{resource}/{subresource}" if subresource else str(resource)


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    return str((metadata or {}).get("name") or (metadata or {}).get("generateName") or "")


def _document(document: Mapping[str, Any]) -> bytes:
    return _encode(_mapping(document))


def _mapping(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document that the caller built. A Struct was read, perhaps without some fields: never sent back."""
    if not isinstance(document, Mapping):
        raise TypeError(f"only documents built as mappings are sent; {type(document).__name__} is a type for reading")
    return document


# -- retries -----------------------------------------------------------------------------------------------------------


# 429 is retried for every verb, because the server has not started the request. So is a failed connect, but only a few
# times: how to handle an absent server is the caller's decision. 5xx and lost responses are retried only for idempotent
# requests. Any other 4xx is an answer, not a failure. Backoff has full jitter, so that a thousand clients of a
# restarted server do not return at the same time.

Random = Callable[[], float]
"""A function that returns a number in [0, 1), uniformly distributed."""


class Retries(msgspec.Struct, frozen=True):
    """Limits of retries. ``deadline`` counts from the first attempt; a wait beyond it is not started."""

    deadline: float = 30.0
    base: float = 0.1
    cap: float = 5.0
    connect_attempts: int = 3


def backoff(attempt: int, *, base: float, cap: float, random: Random) -> float:
    """Full jitter: uniform between 0 and ``base`` doubled ``attempt`` times, at most ``cap`` seconds."""
    return random() * min(cap, base * 2.0 ** min(attempt, 32))


def delay(
    error: KubernetesError, *, idempotent: bool, attempt: int, elapsed: float, retries: Retries, random: Random
) -> float | None:
    """Seconds to wait before the next attempt; None if the error is final. ``attempt`` counts from 0."""
    if not _worth_it(error, idempotent, attempt, retries):
        return None
    wait = backoff(attempt, base=retries.base, cap=retries.cap, random=random)
    if isinstance(error, ApiError) and error.retry_after is not None:
        # Never before the server's Retry-After; the jitter on top spreads the clients that all got the same one.
        wait += error.retry_after
    return wait if elapsed + wait <= retries.deadline else None


def _worth_it(error: KubernetesError, idempotent: bool, attempt: int, retries: Retries) -> bool:
    if isinstance(error, ConnectionFailed):
        if error.permanent:
            return False
        if not error.sent:
            return attempt + 1 < retries.connect_attempts
        return idempotent
    if isinstance(error, ApiError):
        return error.status == 429 or (error.status >= 500 and idempotent)
    return False
