"""The kubelet API of all nodes: container logs, read-only.

The API server asks it for ``kubectl logs``, through the sandbox's egress, which leads every node's address to
this one unix socket. Only the API server's own client certificate is accepted. What a real kubelet would also do is
refused with a sentence that says what to use instead.
"""

import asyncio
import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from polyarch.kube.store import Store
from polyarch.objects import ObjectKey
from polyarch.sandbox.certificates import KUBELET_CLIENT, Pki
from polyarch.sandbox.nodes.pods import ContainerStatus, Pod
from polyarch.sandbox.pods import containers
from polyarch.sandbox.pods.programs import POLYARCH_REPOSITORY, is_run
from polyarch.sandbox.pods.runner import PodRunner
from polyarch.sandbox.pods.volumes import PodFolder

POLL_SECONDS: Final = 0.2
CUT_OFF_SECONDS: Final = 0.1
PLAYED: Final = (
    "Nothing was logged: this container is only played. The nodes of a sandbox run those of polyarch's own image "
    f"({POLYARCH_REPOSITORY}), the builds of ImageBuilds, and nothing else.\n"
)


class LogQuery(msgspec.Struct, frozen=True):
    """The options of a log request (core/v1 PodLogOptions); ValueError for one that is malformed."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit: int | None = None
    since: dt.datetime | None = None

    @classmethod
    def parse(cls, query: "dict[str, str]", now: dt.datetime) -> "LogQuery":
        since = None
        if text := query.get("sinceSeconds"):
            since = now - dt.timedelta(seconds=int(text))
        elif text := query.get("sinceTime"):
            since = dt.datetime.fromisoformat(text)
        return cls(
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            timestamps=query.get("timestamps") == "true",
            tail=int(query["tailLines"]) if query.get("tailLines") else None,
            limit=int(query["limitBytes"]) if query.get("limitBytes") else None,
            since=since,
        )


def tls(pki: Pki) -> ssl.SSLContext:
    """Serves with the sandbox's certificate and demands one of the sandbox's CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki.server.certificate, pki.server.key)
    return context


class KubeletApi:
    """The endpoint; :meth:`run` serves it."""

    def __init__(self, pods: Store[Pod], runner: PodRunner, *, now: Callable[[], dt.datetime]) -> None:
        self._pods = pods
        self._runner = runner
        self._now = now

    async def run(self, socket: str, context: ssl.SSLContext) -> None:
        """Serve on this unix socket until cancelled."""
        server = web.Server(self.answer, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=CUT_OFF_SECONDS)
        await runner.setup()
        try:
            await web.UnixSite(runner, socket, ssl_context=context).start()
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        if not is_api_server(certificate):
            return web.Response(status=403, text="only the API server may ask the nodes; use kubectl\n")
        match request.path.strip("/").split("/"):
            case ["containerLogs", namespace, pod, container] if request.method == "GET":
                return await self._logs(request, ObjectKey(namespace, pod), container)
            case ["exec" | "attach" | "run" as verb, namespace, pod, *_]:
                return web.Response(status=400, text=self._refused(verb, ObjectKey(namespace, pod)))
            case ["portForward", namespace, pod, *_]:
                return web.Response(status=400, text=self._refused("port-forward", ObjectKey(namespace, pod)))
            case ["healthz"]:
                return web.Response(text="ok")
            case _:
                return web.Response(status=404, text="the nodes of a sandbox serve container logs only\n")

    def _refused(self, verb: str, key: ObjectKey) -> str:
        pod = self._pods.get(key)
        if pod is None or not _is_run(pod):
            return f"{verb} is not possible: pod {key} is only played, there is no process of it"
        match verb:
            case "attach":
                return f"attach is not possible in the sandbox; use `kubectl logs -f -n {key.namespace} {key.name}`"
            case "port-forward":
                address = "127." + pod.status.pod_ip.partition(".")[2]
                return f"port-forward is not needed in the sandbox: the pod listens on {address} of this machine"
            case _:
                folder = self._runner.folder(pod.metadata.uid).root
                return (
                    f"{verb} is not possible in the sandbox: pod {key} is a process of this machine, which "
                    f"`polyarch status` lists; its files are in {folder}"
                )

    async def _logs(self, request: web.BaseRequest, key: ObjectKey, container: str) -> web.StreamResponse:
        pod = self._pods.get(key)
        if pod is None:
            return web.Response(status=404, text=f'pod "{key.name}" not found')
        try:
            query = LogQuery.parse(dict(request.query), self._now())
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        if not any(is_run(each.image) for each in [*pod.init_containers, *pod.containers] if each.name == container):
            return web.Response(text=PLAYED)
        attempt = last_attempt(self._runner.folder(pod.metadata.uid), container)
        if attempt is None:
            return web.Response(
                status=400,
                text=f'container "{container}" in pod "{key.name}" is waiting to start: {_why(pod, container)}',
            )
        if query.previous:
            attempt -= 1
        path = self._runner.folder(pod.metadata.uid).log(container, attempt)
        if not path.exists():
            text = f'previous terminated container "{container}" in pod "{key.name}" not found'
            return web.Response(status=400, text=text)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await self._send(response, path, query, pod, container, attempt)
        await response.write_eof()
        return response

    async def _send(
        self, response: web.StreamResponse, path: Path, query: LogQuery, pod: Pod, container: str, attempt: int
    ) -> None:
        left = query.limit
        start = _started_at(pod, container, previous=query.previous) or self._now()
        reader = containers.LogReader(path, start=start, timestamps=query.timestamps)
        with reader:
            chosen = reader.begin(tail=query.tail, since=query.since)
            while True:
                for line in chosen:
                    if left is not None:
                        line = line[:left]
                        left -= len(line)
                    await response.write(line)
                    if left == 0:
                        return
                # Looked at before the last read, so that nothing is lost between the two.
                over = not query.follow or query.previous or self._is_over(pod, container, attempt)
                chosen = reader.more(over=over)
                if over and not chosen:
                    return
                if not chosen:
                    await asyncio.sleep(POLL_SECONDS)

    def _is_over(self, pod: Pod, container: str, attempt: int) -> bool:
        """Whether this start of the container has ended: nothing more will be logged."""
        seen = self._runner.observed(pod.metadata.uid).get(container)
        return seen is None or seen.attempt != attempt or seen.exit is not None


def is_api_server(certificate: object) -> bool:
    """Whether the peer's certificate (``SSLSocket.getpeercert``) is the one that the API server shows to kubelets."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    return any(pair == ("commonName", KUBELET_CLIENT) for names in subject for pair in names)


def last_attempt(folder: PodFolder, container: str) -> int | None:
    """The number of the container's last start that has a log; None if it never started."""
    paths = folder.log(container, 0).parent.glob(f"{container}.*.log")
    numbers = (path.name.removeprefix(f"{container}.").removesuffix(".log") for path in paths)
    return max((int(number) for number in numbers if number.isdigit()), default=None)


def _is_run(pod: Pod) -> bool:
    return any(is_run(each.image) for each in [*pod.init_containers, *pod.containers])


def _status_of(pod: Pod, container: str) -> ContainerStatus | None:
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    return next((each for each in statuses if each.name == container), None)


def _why(pod: Pod, container: str) -> str:
    status = _status_of(pod, container)
    waiting = status.state.waiting if status is not None else None
    return waiting.reason if waiting is not None else "ContainerCreating"


def _started_at(pod: Pod, container: str, *, previous: bool) -> dt.datetime | None:
    status = _status_of(pod, container)
    if status is None:
        return None
    state = status.last_state if previous else status.state
    found = state.running or state.terminated or status.last_state.terminated
    return dt.datetime.fromisoformat(found.started_at) if found is not None and found.started_at else None
