"""The HTTP side of admission and conversion webhooks: a process's routes, served over TLS (KR-032, KR-053).

HTTP/1.1 and TLS 1.2 or newer only (PL-854); each route limits the body's size, and one deadline covers reading and
deciding. A request that is not a review gets a 4xx and one plain sentence (PL-750). A review always gets HTTP 200:
after any other status the API server would apply its own failure policy, and the user would not learn why.
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
"""Seconds for a review whose URL has no ``timeout``; an API server always sends one."""
LONGEST_TIMEOUT: Final = 30.0


class Answers(Protocol):
    """Answers the reviews of one route, whatever their kind."""

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
    """Routes by path; :meth:`serve` is the request handler of the listener."""

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
    """Seconds that the API server waits, from ``timeout=10s`` in the URL (a Go duration); 10 if it is missing."""
    values = parse_qs(query).get("timeout", [""])
    if not _DURATION.fullmatch(values[-1]):
        return DEFAULT_TIMEOUT
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(values[-1]))
    return min(seconds, LONGEST_TIMEOUT) if seconds > 0 else DEFAULT_TIMEOUT


_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
