"""Serving webhooks of admission and conversion: the routes of a process over TLS (KR-032, KR-053).

HTTP/1.1 and TLS 1.2 or newer only (PL-854), bodies up to what the route takes, one deadline over reading and deciding
together. What is not a review gets a plain sentence and a 4xx (PL-750); a review always gets HTTP 200, since anything
else would make the API server apply its own failure policy without a word to the user.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import parse_qs

from aiohttp import web

from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.metrics import ADMISSION_SECONDS, Metrics
from polyarch.kube.serving.listener import JSON_HEADERS, BodyTooLarge, read_body, text
from polyarch.kube.serving.reviews import (
    AdmissionRequest,
    AdmissionResponse,
    Failure,
    NotAReview,
    Route,
)

__all__ = ["AdmissionRequest", "AdmissionResponse", "Failure", "Route", "Webhooks"]

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds a review has where the URL does not say; an API server always says."""
LONGEST_TIMEOUT: Final = 30.0


class Answers(Protocol):
    """Answers the reviews of one route, whatever they are about."""

    async def answer(self, body: bytes, *, timeout: float, arrived_at: float) -> bytes: ...


class Serves(Protocol):
    """A route: ``reviews.Route`` for admission, ``conversion.ConversionRoute``. ``max_body`` is in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def max_body(self) -> int: ...

    def answers(self, clock: Clock) -> Answers: ...


class Webhooks:
    """Routes by path; :meth:`serve` is the handler of their server."""

    def __init__(self, routes: Sequence[Serves], *, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        self._clock = clock or SystemClock()
        seconds = (metrics or Metrics()).histogram(
            "polyarch_admission_seconds",
            "Time from a review's arrival to its answer",
            ("route",),
            buckets=ADMISSION_SECONDS,
        )
        self._routes: dict[str, tuple[Answers, int, Callable[[float], None]]] = {
            route.path: (route.answers(self._clock), route.max_body, seconds.labels(route.name).observe)
            for route in routes
        }

    async def serve(self, request: web.BaseRequest) -> web.Response:
        """Answers one request; see the module's docstring."""
        path, _, query = request.raw_path.partition("?")
        found = self._routes.get(path)
        if found is None:
            return text(404, f"nothing is served at {path[:200]!r}; reviews go to {', '.join(self._routes)}")
        if request.method != "POST":
            return text(405, f"{path} takes reviews by POST, not {request.method}", Allow="POST")
        reviewer, max_body, observe = found
        arrived_at = self._clock.monotonic()
        timeout = timeout_of(query)
        try:
            body = await read_body(request, max_body, timeout)
            answer = await reviewer.answer(body, timeout=timeout, arrived_at=arrived_at)
        except BodyTooLarge:
            return text(413, f"the body is larger than the {max_body} bytes that are read")
        except TimeoutError:
            return text(408, f"the body did not arrive within {timeout:g} s")
        except NotAReview as problem:
            return text(400, str(problem))
        observe(self._clock.monotonic() - arrived_at)
        return web.Response(body=answer, headers=JSON_HEADERS)


@functools.lru_cache(maxsize=64)
def timeout_of(query: str) -> float:
    """Seconds the API server waits, from ``timeout=10s`` in the URL (a Go duration); without it, 10."""
    values = parse_qs(query).get("timeout", [""])
    if not _DURATION.fullmatch(values[-1]):
        return DEFAULT_TIMEOUT
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(values[-1]))
    return min(seconds, LONGEST_TIMEOUT) if seconds > 0 else DEFAULT_TIMEOUT


_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
