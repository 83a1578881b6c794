"""One PATCH from one version of an object, and what the API server's response means (PL-303 to PL-305, TN-024, TN-043).

Such a patch begins with a ``test`` of the resourceVersion, so that a change by somebody else is never overwritten. Both
a failed ``test`` and an invalid value are HTTP 422 and must be told apart: the first means that the object changed, the
second that this PATCH can never succeed.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from polyarch.kube.client.jsonpatch import Operation
from polyarch.kube.client.patches import JsonPatch
from polyarch.kube.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubernetesError,
    NotFound,
    ServerTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from polyarch.kube.resources import Resource
from polyarch.model.meta import Key, PartialObjectMetadata


class Patches(Protocol):
    """The part of the client that is needed here."""

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


class Written(Enum):
    """How a PATCH ended."""

    DONE = "done"
    MOVED_ON = "moved on"
    """The object has changed since it was read, or is gone; its next watch event requeues it."""
    REFUSED = "refused"
    """Rejected by validation, a webhook or RBAC: the same PATCH would be rejected again. Also if a webhook reverts all
    of it: then nothing is stored, and no watch event follows."""
    UNANSWERED = "unanswered"
    """The client's retries ended without an answer; the PATCH itself may be valid."""
    UNREACHED = "unreached"
    """The same, but not for a reason of this object: the API server is down, or starting and without its RBAC rules."""


class Undone(KubernetesError):  # noqa: N818 - the result of a write
    """The API server accepted the write but stored nothing."""


class Write(NamedTuple):
    """How a PATCH ended, with the API server's error if it did not succeed."""

    result: Written
    error: KubernetesError | None = None
    version: str = ""
    """The object's resourceVersion after a success."""

    @property
    def refusal(self) -> str:
        """The refusal in a few words, for people."""
        if isinstance(self.error, ApiError):
            return f"HTTP {self.error.status}"
        return "undone by a webhook" if isinstance(self.error, Undone) else "no answer"


async def write(
    client: Patches,
    resource: Resource,
    key: Key,
    operations: tuple[Operation, ...],
    version: str,
    *,
    is_connected: Callable[[], bool] = lambda: True,
) -> Write:
    """Sends the operations as one PATCH. One of them tests the resourceVersion, which is ``version``.

    ``is_connected``: whether the watch of these objects works. While it does not, a 403 or 5xx says nothing about this
    one: a starting API server rejects every request until it has loaded its RBAC rules.
    """
    written = await _write(client, resource, key, operations, version)
    if written.result is Written.UNANSWERED or isinstance(written.error, Forbidden):
        away = isinstance(written.error, ConnectionFailed) or not is_connected()
        return written._replace(result=Written.UNREACHED) if away else written
    return written


async def _write(
    client: Patches, resource: Resource, key: Key, operations: tuple[Operation, ...], version: str
) -> Write:
    try:
        written = await client.patch(resource, key.name, JsonPatch(operations), namespace=key.namespace)
    except (NotFound, Conflict) as error:
        return Write(Written.MOVED_ON, error)
    except Invalid as error:
        return Write(Written.MOVED_ON if error.is_failed_test else Written.REFUSED, error)
    except (TooManyRequests, ServerTimeout, Unavailable, Unauthorized) as error:
        return Write(Written.UNANSWERED, error)
    except ApiError as error:
        return Write(Written.REFUSED, error)
    except KubernetesError as error:
        return Write(Written.UNANSWERED, error)
    if written.metadata.resource_version == version:
        return Write(Written.REFUSED, Undone(f"{resource.kind} {key}: a webhook of the cluster undid the write"))
    return Write(Written.DONE, version=written.metadata.resource_version)
