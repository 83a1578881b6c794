"""What can go wrong between us and an API server, as few types as callers tell apart.

The API server answers failures with a ``Status`` object; its ``reason`` is the machine-readable word, and where a proxy
in between answered instead, the HTTP status has to do. Which of these are worth another try is KR-002's business
(``retry.py``), not the error's.
"""
# ruff: noqa: N818  (the names are the API server's own words, as in every client library)

from typing import Final

import msgspec

from polyarch.kube.resources import Resource


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """``status.details.causes[]``: for Invalid, one field each."""

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
    """Base of both: the API server said no, or could not be asked."""


class ApiError(KubernetesError):
    """The API server refused a request. The text says verb, resource and name, then the server's own message."""

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
    """400: the request makes no sense to the server."""


class Unauthorized(ApiError):
    """401: the server does not know who asks; credentials are wrong, expired or missing."""


class Forbidden(ApiError):
    """403: known, but not allowed; or refused by an admission plugin or webhook."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class MethodNotAllowed(ApiError):
    """405: the resource does not have this verb."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) did not hold, or another manager owns an applied field."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name is there. Not a :class:`Conflict`."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooLarge(ApiError):
    """413: the server does not take a body of this size."""


NO_FIT: Final = "the server rejected our request due to an error in our request"
"""All that the API server says of a JSON patch which does not fit the object; nothing of the ``test`` that failed."""


class Invalid(ApiError):
    """422: the object, or a JSON patch's ``test``, did not hold; ``causes`` name the fields."""

    @property
    def is_failed_test(self) -> bool:
        """Whether the JSON patch did not fit the object, and not that what would come of it is refused.

        Validation names the fields in its causes and a webhook itself in the message; what is left is a patch that does
        not fit. Of a patch that begins with tests that means that the object is not the one it was made for.
        """
        return self.message.startswith(NO_FIT) and not any(cause.field for cause in self.causes)


class TooManyRequests(ApiError):
    """429: slow down (``retry_after`` seconds); for an eviction: a PodDisruptionBudget does not allow it now."""


class ServerTimeout(ApiError):
    """The server gave up in time (reasons ServerTimeout, Timeout; 504)."""


class Unavailable(ApiError):
    """Any other 5xx: the server, or something before it, cannot answer now."""


class ConnectionFailed(KubernetesError):
    """No answer: refused, reset, cut off or not in time.

    ``sent``: the request may have been carried out. ``permanent``: it will fail in the same way again (certificates).
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
    """What a kubeconfig, the pod's service account or a credential plugin gives us cannot be used.

    ``path`` is the file (or what stands for it), ``field`` the place in it, ``hint`` the next action.
    """

    def __init__(self, path: str, field: str, problem: str, hint: str = "") -> None:
        where = ": ".join(part for part in (path, field) if part)
        super().__init__(f"{where}: {problem}{f' ({hint})' if hint else ''}")
        self.path = path
        self.field = field
        self.problem = problem
        self.hint = hint


class UnreadableAnswer(KubernetesError):
    """The server answered 2xx with something that does not decode as the type asked for."""


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
    """The typed error of an HTTP failure; a body that is no Status (a proxy's HTML) is quoted, shortened."""
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
    """The typed error of a Status object; ``code`` is the HTTP status where there was one."""
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
