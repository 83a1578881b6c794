"""The listener that kube-scheduler asks: filter, prioritize, preempt and bind below ``/numa``.

Filter calls are answered one at a time in the order in which they came, since each reserves what the next one must see;
the other verbs wait for none. Whatever is wrong is said in ``Error``: the scheduler puts the pod back and tries again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.connections import BodyTooLarge, read_body
from polyarch.kube.errors import KubernetesError
from polyarch.kube.server import JSON_HEADERS, text
from polyarch.numa.extender import wire
from polyarch.numa.extender.engine import Engine
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.settings import VERB_SECONDS
from polyarch.numa.extender.wire import ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs, InvalidRequest

log = structlog.get_logger(__name__)

ROOT: Final = "/numa"
TOO_LATE: Final = f"no answer within {VERB_SECONDS:g} s; the pod is tried again"

Problem = Callable[[], str]
"""Why nothing can be answered at present; empty: it can."""
Arrives = Callable[[], Awaitable[None]]
"""Returns when what others did before this call is known."""


class Rejections(Protocol):
    """Hears of pods that have to wait."""

    def rejected(self, asked: ExtenderArgs, now: float) -> None:
        """None of these nodes will do, by their zones alone."""
        ...

    def proposed(self, asked: ExtenderPreemptionArgs, now: float) -> None:
        """Without these pods, sums and other filters would let the pod pass."""
        ...


class PodBinder:
    """Called by the service, one pod at a time or several."""

    def __init__(self, client: Client, engine: Engine, *, clock: Clock) -> None:
        self._client = client
        self._engine = engine
        self._clock = clock

    async def bind(self, asked: ExtenderBindingArgs) -> str:
        """Why the pod is not bound; empty: it is."""
        pod = self._engine.asked(asked.pod_uid)
        if pod is None:
            return f"pod {asked.pod_namespace}/{asked.pod_name} was not asked for: it has to pass filter first"
        if problem := self._engine.books.secure(pod, asked.node, self._clock.monotonic()):
            return problem
        try:
            await self._client.bind(asked.pod_namespace, asked.pod_name, asked.node, asked.pod_uid)
        except KubernetesError as error:
            log.warning("pod is not bound", pod=pod.full_name, node=asked.node, error=str(error))
            return str(error)
        self._engine.books.bound(pod, asked.node, self._clock.monotonic())
        return ""


class Service:
    """The request handler of the extender's listener."""

    def __init__(
        self,
        engine: Engine,
        *,
        metrics: ExtenderMetrics,
        clock: Clock,
        problem: Problem,
        arrives: Arrives,
        binds: PodBinder | None = None,
        rejections: tuple[Rejections, ...] = (),
    ) -> None:
        """``binds``: None, the verb is not served."""
        self._engine = engine
        self._metrics = metrics
        self._clock = clock
        self._problem = problem
        self._arrives = arrives
        self._binds = binds
        self._rejections = rejections
        self._turn = asyncio.Lock()
        verbs: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }
        if binds is not None:
            verbs["bind"] = self._bind
        self._verbs: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = verbs

    async def serve(self, request: BaseRequest) -> Response:
        """One request, by its path."""
        root, _, verb = request.path.rpartition("/")
        handler = self._verbs.get(verb) if root == ROOT else None
        if handler is None:
            there = ", ".join(f"{ROOT}/{each}" for each in self._verbs)
            return text(404, f"nothing is served at {request.path[:200]!r}; there are {there}")
        if request.method != "POST":
            return text(405, f"{request.path} is called with POST", Allow="POST")
        since = self._clock.monotonic()
        try:
            async with deadline(self._clock, VERB_SECONDS):
                body = await read_body(request, wire.LARGEST, VERB_SECONDS)
                answer = await handler(body)
        except BodyTooLarge:
            return text(413, f"the request is larger than {wire.LARGEST} bytes")
        except InvalidRequest as error:
            return text(400, str(error))
        except TimeoutError:
            log.warning("no answer in time", verb=verb, seconds=VERB_SECONDS)
            answer = self._failed(verb, TOO_LATE)
        except Exception as error:
            log.exception("verb failed", verb=verb)
            answer = self._failed(verb, f"the extender failed: {type(error).__name__}; its log has more")
        self._metrics.answered(verb, seconds=self._clock.monotonic() - since)
        return Response(body=answer, headers=JSON_HEADERS)

    async def _filter(self, body: bytes) -> bytes:
        asked = wire.question(body)
        async with self._turn:  # whoever waits longest is next
            if problem := asked.problem or self._problem():
                return wire.problem(problem)
            await self._arrives()
            now = self._clock.monotonic()
            found = self._engine.filter(asked.pod, asked.names, now)
        if not found.names and asked.names:
            for each in self._rejections:
                each.rejected(asked, now)
        return wire.fitting(found.names, found.failed)

    async def _prioritize(self, body: bytes) -> bytes:
        """The scheduler ignores what goes wrong here, and so does the answer: nodes without a difference."""
        asked = wire.question(body)
        if asked.problem or self._problem():
            return wire.priorities((name, 0) for name in asked.names)
        return wire.priorities(self._engine.prioritize(asked.pod, asked.names))

    async def _preempt(self, body: bytes) -> bytes:
        """The scheduler evicts nobody, whatever it proposes: who has to go is decided and evicted elsewhere."""
        asked = wire.preemption_question(body)
        if not (asked.problem or self._problem()):
            for each in self._rejections:
                each.proposed(asked, self._clock.monotonic())
        return wire.NO_CANDIDATES

    async def _bind(self, body: bytes) -> bytes:
        asked = wire.bind_question(body)
        if self._binds is None:
            raise InvalidRequest("binding is turned off: start the extender with --bind")
        return wire.bound(self._problem() or await self._binds.bind(asked))

    def _failed(self, verb: str, sentence: str) -> bytes:
        """As each verb says that there is no answer."""
        if verb == "filter":
            return wire.problem(sentence)
        if verb == "preempt":
            return wire.NO_CANDIDATES
        return wire.bound(sentence) if verb == "bind" else wire.priorities(())
