"""The stock kube-scheduler as a process of a test, with a configuration that polyarch generates, and the other end of
its extender calls: a server that notes what it is asked and answers as it is told."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from numa_fleet import eventually

from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.names import EXTENDER_PORT
from polyarch.operator.components.numa_scheduler_objects import scheduler_configuration, text
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.pods.programs import NAME, SchedulerPodContext, pod_scheduler_configuration, scheduler_command
from polyarch.sandbox.pods.spec import Container

Json = dict[str, Any]


def own_addresses(sandbox: Sandbox, count: int = 1) -> list[str]:
    """Loopback addresses that no pod of the sandbox has."""
    chosen = random.SystemRandom().sample(range(1, 251), count)
    return [f"127.{sandbox.state.pod_network}.249.{each}" for each in chosen]


class Asked:
    """The extender's side. ``filter`` and ``prioritize`` make an answer of a request."""

    def __init__(self, address: str, *, port: int = EXTENDER_PORT) -> None:
        self.address = address
        self.port = port
        self.requests: list[tuple[str, Json]] = []
        self.filter: Callable[[Json], Json] = lambda asked: {"NodeNames": asked["NodeNames"]}
        self.prioritize: Callable[[Json], list[Json]] = lambda asked: []

    @property
    def verbs(self) -> set[str]:
        return {verb for verb, _ in self.requests}

    async def answer(self, request: web.BaseRequest) -> web.Response:
        verb, asked = request.path.rpartition("/")[2], msgspec.json.decode(await request.read())
        self.requests.append((verb, asked))
        found = self.filter(asked) if verb == "filter" else self.prioritize(asked)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Asked"]:
        runner = web.ServerRunner(web.Server(self.answer, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, self.address, self.port).start()
        try:
            yield self
        finally:
            await runner.cleanup()


@asynccontextmanager
async def running(
    program: str, sandbox: Sandbox, settings: SchedulerSettings, folder: Path, *, address: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``program`` with the generated configuration, changed only as every pod's is in the sandbox; its log is
    ``folder/log``."""
    surroundings = SchedulerPodContext(
        program=program, address=address, kubeconfig=str(sandbox.kubeconfig), configuration=str(folder / "config.json")
    )
    generated = text(scheduler_configuration(settings, namespace="kube-system"))
    (folder / "config.json").write_text(pod_scheduler_configuration(generated, surroundings))
    container = Container(NAME, command=[NAME], args=["--config=/etc/kubernetes/config.yaml", "-v=2"])
    arguments = [*scheduler_command(container, {}, {}, surroundings), "--secure-port=0"]
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=dict(os.environ), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def node_of(read: Callable[[], Any]) -> str:
    """The node of a pod, once it has one."""

    async def look() -> str:
        return (await read())["spec"].get("nodeName", "")

    found: str = await eventually(look, bool)
    return found
