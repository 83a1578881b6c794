"""The egress proxy's process: ``python -m polyarch.sandbox.egress FOLDER``."""

import asyncio
import contextlib
import errno
import signal
import sys
from pathlib import Path

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.informer import Informers
from polyarch.kube.resources import ENDPOINT_SLICES, SERVICES
from polyarch.sandbox.egress.proxy import Proxy, Streams
from polyarch.sandbox.egress.routing import EndpointSlice, Routes, Service, ToKubelet, ToPod
from polyarch.sandbox.network import sockets
from polyarch.sandbox.network.listeners import is_listening
from polyarch.sandbox.state import Folder


async def serve(folder: Folder) -> None:
    """Answer the API server until SIGTERM or SIGINT; listen only when all Services are known."""
    state = folder.load()
    if state is None:
        raise SystemExit(f"{folder.root}: there is no sandbox here")
    main = asyncio.current_task()
    assert main is not None  # noqa: S101  this coroutine runs in a task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)

    async def dial(route: ToPod | ToKubelet) -> Streams:
        if isinstance(route, ToKubelet):
            return await asyncio.open_unix_connection(sockets.kubelet(folder.root))
        if not is_listening(route.loopback, route.port):
            problem = f"no process of a pod listens on {route.pod}:{route.port}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, problem)
        return await asyncio.open_connection(route.loopback, route.port)

    async with Client(config.load(str(folder.kubeconfig_of("egress"))), role="egress") as client:
        informers = Informers(client)
        services = informers.informer(SERVICES, Service)
        slices = informers.informer(ENDPOINT_SLICES, EndpointSlice)
        routes = Routes(services.store, slices.store, pod_network=state.pod_network)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(informers.run())
            await informers.synced()
            async with Proxy(routes.route, dial).serving(sockets.egress(folder.root)):
                await running


def main(folder: Path) -> int:
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(Folder(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
