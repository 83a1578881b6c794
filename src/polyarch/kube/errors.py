"""Errors of requests to an API server, as few types as callers need to tell apart; and which exceptions are new.

The API server describes a failure in a ``Status`` object, whose ``reason`` is for programs; if a proxy answered
instead, the HTTP status decides. Which errors are retried is up to ``requests.py``.
"""

from types import TracebackType
from typing import Final

import msgspec

from polyarch.kube.resources import Resource

# ruff: noqa: N818  (the names are the API server's own words, as in every client library)


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """``status.details.causes[]``; for Invalid, one per field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.details`` (meta/v1 StatusDetails)."""

    name: str | None = None
    kind: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True, gc=False):
    """meta/v1 Status: the body of every failure, and the object of a watch's ERROR event."""

    status: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


class KubernetesError(Exception):
    """Base class: the API server refused a request, or could not be asked."""


class ApiError(KubernetesError):
    """The API server refused a request. The text has verb, resource and name, then the server's own message."""

    def __init__(
        self,
        status: int,
        *,
        reason: str = "",
        message: str = "",
        causes: tuple[StatusCause, ...] = (),
        retry_after: float | None = None,
        verb: str = "",
        resource: str = "",
        name: str = "",
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        self.verb = verb
        self.resource = resource
        self.name = name
        super().__init__(self._text())

    def _text(self) -> str:
        what = " ".join(part for part in (self.verb, self.resource, self.name) if part)
        said = self.message or self.reason or "the API server gave no message"
        return f"{what or 'request'}: HTTP {self.status}{f' {self.reason}' if self.reason else ''}: {said}"


class BadRequest(ApiError):
    """400: the server does not understand the request."""


class Unauthorized(ApiError):
    """401: credentials are wrong, expired or missing."""


class Forbidden(ApiError):
    """403: the user is known but not allowed; or an admission plugin or webhook denied the request."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) did not hold, or another manager owns an applied field."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name exists. Not a :class:`Conflict`."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooLarge(ApiError):
    """413: the request's body is too large for the server."""


NO_FIT: Final = "the server rejected our request due to an error in our request"
"""The API server's whole message for a JSON patch that does not fit the object; a failed ``test`` is not mentioned."""
BY_WEBHOOK: Final = "admission webhook "
"""How the API server's message begins if a webhook refused, whatever else the webhook answered."""


class Invalid(ApiError):
    """422: the object is invalid, or a JSON patch's ``test`` failed; ``causes`` name the fields."""

    @property
    def is_failed_test(self) -> bool:
        """Whether the JSON patch did not fit the object, as opposed to a patched object that was rejected.

        Validation names the fields in ``causes``, and a webhook names itself in the message; otherwise the patch did
        not fit. If the patch begins with tests, the object has then changed since the patch was made.
        """
        return self.message.startswith(NO_FIT) and not any(cause.field for cause in self.causes)

    @property
    def is_of_validation(self) -> bool:
        """Whether the API server's own validation refused the object, as opposed to an admission policy or webhook.

        Both may answer with 422. A policy names no field, and a webhook may, but names itself.
        """
        named = bool(self.causes) and all(cause.field for cause in self.causes)
        return named and not self.message.startswith(BY_WEBHOOK)


class TooManyRequests(ApiError):
    """429: retry after ``retry_after`` seconds; for an eviction, a PodDisruptionBudget does not allow it now."""


class ServerTimeout(ApiError):
    """The server timed out (reasons ServerTimeout, Timeout; 504)."""


class Unavailable(ApiError):
    """Any other 5xx: the server, or a proxy in front of it, cannot answer now."""


class ConnectionFailed(KubernetesError):
    """No response: the connection was refused, reset or cut off, or timed out.

    ``sent``: the server may have carried out the request. ``permanent``: a retry would fail in the same way
    (certificates).
    """

    def __init__(
        self,
        problem: str,
        *,
        host: str = "",
        verb: str = "",
        resource: str = "",
        sent: bool = True,
        permanent: bool = False,
    ) -> None:
        what = " ".join(part for part in (verb, resource) if part)
        super().__init__(f"{what or 'request'}: no answer from {host or 'the API server'}: {problem}")
        self.problem = problem
        self.host = host
        self.sent = sent
        self.permanent = permanent


class ConfigurationError(KubernetesError):
    """A kubeconfig, the pod's service account or a credential plugin provides something that cannot be used.

    ``path`` is the file (or its substitute), ``field`` the field in it, ``hint`` the next action.
    """

    def __init__(self, path: str, field: str, problem: str, hint: str = "") -> None:
        where = ": ".join(part for part in (path, field) if part)
        super().__init__(f"{where}: {problem}{f' ({hint})' if hint else ''}")
        self.path = path
        self.field = field
        self.problem = problem
        self.hint = hint


class UnreadableAnswer(KubernetesError):
    """The server answered 2xx with a body that does not decode into the requested type."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
    504: ServerTimeout,
}
# Reason words win over the number: AlreadyExists shares 409, ServerTimeout comes as 500 with a Retry-After,
# and an ERROR event of a watch may carry a reason only.
_BY_REASON: Final[dict[str, type[ApiError]]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
    "TooManyRequests": TooManyRequests,
}
_decode_status = msgspec.json.Decoder(Status).decode


def error_for(
    code: int,
    body: bytes,
    *,
    retry_after: float | None = None,
    verb: str = "",
    resource: Resource | str = "",
    name: str = "",
) -> ApiError:
    """The typed error of an HTTP failure; a body that is not a Status (a proxy's HTML) is quoted, shortened."""
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status(message=" ".join(body[:400].decode("utf-8", "replace").split()))
    return error_of(status, code=code, retry_after=retry_after, verb=verb, resource=resource, name=name)


def error_of(
    status: Status,
    *,
    code: int = 0,
    retry_after: float | None = None,
    verb: str = "",
    resource: Resource | str = "",
    name: str = "",
) -> ApiError:
    """The typed error of a Status object; ``code`` is the HTTP status if there was one."""
    number = code or status.code or 500
    kind = _BY_REASON.get(status.reason or "") or _BY_STATUS.get(number)
    if kind is None:
        kind = Unavailable if number >= 500 else BadRequest if number >= 400 else ApiError
    details = status.details or StatusDetails()
    if retry_after is None and details.retry_after_seconds:
        retry_after = float(details.retry_after_seconds)
    return kind(
        number,
        reason=status.reason or "",
        message=status.message or "",
        causes=tuple(details.causes or ()),
        retry_after=retry_after,
        verb=verb,
        resource=str(resource),
        name=name or details.name or "",
    )


# -- causes: a traceback is logged once per cause, not once per object -------------------------------------------------


class SeenErrors:
    """Remembers exceptions by type and line, up to ``limit`` of them; beyond that none counts as new."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._known: set[tuple[str, str, int]] = set()

    def is_new(self, error: BaseException) -> bool:
        """True the first time that an exception of this type comes from this line."""
        cause = (type(error).__name__, *_place(error.__traceback__))
        if cause in self._known or len(self._known) >= self._limit:
            return False
        self._known.add(cause)
        return True


def _place(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
