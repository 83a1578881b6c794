"""The bind verb: the pod has its cells before its Binding is created (NS-088)."""

import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.numa.extender.engine import Engine
from polyarch.numa.extender.wire import BindQuestion

log = structlog.get_logger(__name__)


class Binding:
    """Called by the service, one pod at a time or several."""

    def __init__(self, client: Client, engine: Engine, *, clock: Clock) -> None:
        self._client = client
        self._engine = engine
        self._clock = clock

    async def bind(self, asked: BindQuestion) -> str:
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
