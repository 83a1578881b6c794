"""Sends the PATCH of a pod and classifies the API server's response (PL-303 to PL-305).

Both a failed ``test`` and an invalid value are HTTP 422 and must be told apart: the first means that the pod changed,
the second that this PATCH can never succeed.
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
from polyarch.kube.resources import PODS, Resource
from polyarch.model.meta import Key, PartialObjectMetadata


class WritesPods(Protocol):
    """What is needed of the client."""

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


class Written(Enum):
    """How a PATCH ended."""

    DONE = "done"
    MOVED_ON = "moved on"
    """The pod is not the one that was decided about; its next event brings it back (PL-304)."""
    REFUSED = "refused"
    """By validation, a webhook or for want of a right: the same PATCH would be refused again. Also if a webhook undoes
    all of it: then nothing is stored, and no event tells of it."""
    UNANSWERED = "unanswered"
    """The client gave up repeating it; nothing is known against the PATCH."""
    UNREACHED = "unreached"
    """The same, and it is not the pod's business: the API server is away, or so new that it does not know us yet."""


class Undone(KubernetesError):  # noqa: N818 - what became of the write
    """The API server accepted the write and stored nothing."""


class Write(NamedTuple):
    """How a PATCH ended, and the API server's error if it did not succeed."""

    result: Written
    error: KubernetesError | None = None

    @property
    def refusal(self) -> str:
        """The refusal in two words, for the pod itself."""
        if isinstance(self.error, ApiError):
            return f"HTTP {self.error.status}"
        return "undone by a webhook" if isinstance(self.error, Undone) else "no answer"


async def write_pod(
    client: WritesPods, key: Key, operations: tuple[Operation, ...], version: str, *, is_connected: Callable[[], bool]
) -> Write:
    """Sends the operations as one PATCH. The first of them test uid and resourceVersion, which is ``version``.

    ``is_connected``: whether we see pods at all. A 403 or a 5xx while we do not says nothing of this pod: an API server
    that begins refuses everybody until it has read its roles.
    """
    write = await _write(client, key, operations, version)
    if write.result is Written.UNANSWERED or isinstance(write.error, Forbidden):
        away = isinstance(write.error, ConnectionFailed) or not is_connected()
        return write._replace(result=Written.UNREACHED) if away else write
    return write


async def _write(client: WritesPods, key: Key, operations: tuple[Operation, ...], version: str) -> Write:
    try:
        written = await client.patch(PODS, key.name, JsonPatch(operations), namespace=key.namespace)
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
        return Write(Written.REFUSED, Undone(f"pod {key}: a webhook of the cluster undid the write"))
    return Write(Written.DONE)
