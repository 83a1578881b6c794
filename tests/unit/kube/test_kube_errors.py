"""Status objects and connection failures as typed errors, and which of them are worth another try."""

import msgspec
import pytest

from polyarch.kube import errors
from polyarch.kube.errors import ApiError, ConnectionFailed, Invalid, StatusCause, error_for
from polyarch.kube.requests import Retries, backoff, delay
from polyarch.kube.resources import PODS


@pytest.mark.req("KR-002")
@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (413, "RequestEntityTooLarge", errors.TooLarge),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (500, "ServerTimeout", errors.ServerTimeout),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.ServerTimeout),
        (418, "", errors.BadRequest),
    ],
)
def test_a_status_becomes_the_type_callers_ask_for(code, reason, kind):
    body = msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": "because"})
    error = error_for(code, body, verb="patch", resource=PODS, name="web")
    assert type(error) is kind
    assert error.status == code
    assert "patch pods web" in str(error)
    assert "because" in str(error)


@pytest.mark.req("KR-002")
def test_an_existing_object_is_no_conflict():
    """`except Conflict` around a create must not swallow AlreadyExists."""
    assert not issubclass(errors.AlreadyExists, errors.Conflict)


@pytest.mark.req("KR-002")
def test_causes_of_invalid_are_kept():
    details = {"causes": [{"field": "spec.x", "reason": "FieldValueInvalid", "message": "no"}], "name": "web"}
    error = error_for(422, msgspec.json.encode({"reason": "Invalid", "details": details}))
    assert [(cause.field, cause.message) for cause in error.causes] == [("spec.x", "no")]
    assert error.name == "web"


@pytest.mark.req("KR-002")
@pytest.mark.parametrize("body", [b"<html>\n<h1>Bad gateway</h1>", b"", b"[]", b"\xff\xfe", b'{"code": "x"}'])
def test_an_answer_of_something_in_between_is_an_error_too(body):
    """Proxies answer with HTML, or nothing."""
    error = error_for(502, body, verb="get", resource=PODS)
    assert type(error) is errors.Unavailable
    assert "HTTP 502" in str(error)


@pytest.mark.req("KR-002")
def test_retry_after_comes_from_the_header_or_the_details():
    body = msgspec.json.encode({"code": 429, "details": {"retryAfterSeconds": 7}})
    assert error_for(429, body).retry_after == 7
    assert error_for(429, body, retry_after=2).retry_after == 2
    assert error_for(429, b"{}").retry_after is None


REFUSED = ConnectionFailed("refused", sent=False)
RESET = ConnectionFailed("reset", sent=True)
CERTIFICATE = ConnectionFailed("certificate", sent=False, permanent=True)


@pytest.mark.req("KR-002")
@pytest.mark.parametrize(
    ("error", "idempotent", "again"),
    [
        (ApiError(429), True, True),
        (ApiError(429), False, True),
        (ApiError(500), True, True),
        (ApiError(503), True, True),
        (ApiError(503), False, False),
        (ApiError(400), True, False),
        (ApiError(401), True, False),
        (ApiError(403), True, False),
        (ApiError(404), True, False),
        (ApiError(409), True, False),
        (ApiError(410), True, False),
        (ApiError(422), True, False),
        (RESET, True, True),
        (RESET, False, False),
        (REFUSED, False, True),
        (CERTIFICATE, True, False),
        (errors.UnreadableAnswer("?"), True, False),
        (errors.ConfigurationError("f", "x", "y"), True, False),
    ],
)
def test_what_is_tried_again(error, idempotent, again):
    """429 always, resets and 5xx only where twice is the same as once, other 4xx never."""
    wait = delay(error, idempotent=idempotent, attempt=0, elapsed=0, retries=Retries(), random=lambda: 0.5)
    assert (wait is not None) == again


@pytest.mark.req("KR-002")
def test_a_server_that_is_not_there_is_not_waited_for():
    waits = [
        delay(REFUSED, idempotent=True, attempt=attempt, elapsed=0, retries=Retries(), random=lambda: 0.5)
        for attempt in range(3)
    ]
    assert waits[0] is not None
    assert waits[2] is None


@pytest.mark.req("KR-002")
def test_no_wait_begins_that_would_pass_the_deadline():
    slow_down = ApiError(429, retry_after=10)
    retries = Retries(deadline=30)
    assert delay(slow_down, idempotent=True, attempt=0, elapsed=19, retries=retries, random=lambda: 0.0) == 10
    assert delay(slow_down, idempotent=True, attempt=0, elapsed=21, retries=retries, random=lambda: 0.0) is None


@pytest.mark.req("KR-002")
def test_never_before_the_servers_own_word_and_with_jitter_on_top():
    slow_down = ApiError(429, retry_after=3)
    waits = {
        delay(slow_down, idempotent=True, attempt=4, elapsed=0, retries=Retries(), random=lambda value=value: value)
        for value in (0.0, 0.5, 0.99)
    }
    assert min(waits) == 3
    assert len(waits) == 3


@pytest.mark.req("KR-002")
def test_backoff_doubles_has_full_jitter_and_a_cap():
    assert [backoff(n, base=0.5, cap=4, random=lambda: 1.0) for n in range(5)] == [0.5, 1, 2, 4, 4]
    assert backoff(3, base=0.5, cap=4, random=lambda: 0.0) == 0
    assert backoff(10_000, base=0.5, cap=4, random=lambda: 1.0) == 4


@pytest.mark.req("PL-501")
@pytest.mark.parametrize(
    ("message", "field", "expected"),
    [
        ('Service "a" is invalid: spec.ports[0].port: Invalid value', "spec.ports[0].port", True),
        ("services \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no", "", False),
        ('admission webhook "a.example.com" denied the request: spec.ports: Forbidden', "spec.ports", False),
    ],
    ids=["validation", "a policy", "a webhook that answers as validation does"],
)
def test_refusals_of_validation_are_told_from_those_of_policies(message: str, field: str, expected: bool) -> None:
    refused = Invalid(422, reason="Invalid", message=message, causes=(StatusCause("", message, field),))
    assert refused.is_of_validation is expected
    assert not Invalid(422, reason="Invalid", message=message).is_of_validation
