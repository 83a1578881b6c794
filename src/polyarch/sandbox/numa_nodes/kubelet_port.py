"""Port 10250 of the nodes with cells, for the pods of the sandbox: ``/configz``.

A node's own address cannot be dialled on this machine, so the port is open on the loopback address that its pods are
told as their host's (``status.hostIP``). As with a kubelet, the caller shows a bearer token; the API server says whose
it is (TokenReview) and whether that user may ``get`` ``nodes/configz`` (SubjectAccessReview).
"""

import asyncio
import datetime as dt
import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import structlog
from aiohttp import web

from polyarch.clock import Clock
from polyarch.kube.errors import KubernetesError
from polyarch.kube.server import ReviewClient, ScraperAuthorization
from polyarch.sandbox.control_plane.certificates import Pki
from polyarch.sandbox.network.addresses import KUBELET_PORT
from polyarch.sandbox.numa_nodes.account import Kubelet
from polyarch.sandbox.numa_nodes.configuration import configz

log = structlog.get_logger(__name__)

CUT_OFF_SECONDS: Final = 0.1


class KubeletPort:
    """The endpoints of all nodes; ``kubelets`` by the address on which each is asked."""

    def __init__(
        self, kubelets: Mapping[str, Kubelet], client: ReviewClient, *, clock: Clock, port: int = KUBELET_PORT
    ) -> None:
        self._kubelets = dict(kubelets)
        self._port = port
        self._authorizations = {
            kubelet.name: ScraperAuthorization(client, attributes=_attributes(kubelet.name), clock=clock)
            for kubelet in self._kubelets.values()
        }

    async def run(self, context: ssl.SSLContext) -> None:
        """Serve until cancelled."""
        runner = web.ServerRunner(web.Server(self.answer, access_log=None), shutdown_timeout=CUT_OFF_SECONDS)
        await runner.setup()
        try:
            for address in self._kubelets:
                await web.TCPSite(runner, address, self._port, ssl_context=context).start()
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        kubelet = self._kubelets.get(name[0]) if name else None
        if request.path == "/healthz":
            return web.Response(text="ok")
        if kubelet is None or request.path != "/configz":
            return web.Response(status=404, text="404 page not found\n")
        if (refusal := await self._refusal(kubelet, request.headers.get("Authorization", ""))) is not None:
            return refusal
        body = msgspec.json.encode(configz(kubelet.node.configuration))
        return web.Response(body=body, content_type="application/json")

    async def _refusal(self, kubelet: Kubelet, header: str) -> web.Response | None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return web.Response(status=401, text="Unauthorized")
        try:
            verdict = await self._authorizations[kubelet.name].verdict(token.strip())
        except (KubernetesError, TimeoutError) as error:
            log.warning("caller of a kubelet could not be authorised", node=kubelet.name, error=str(error))
            return web.Response(status=500, text="Authorization error")
        if verdict == "unauthenticated":
            return web.Response(status=401, text="Unauthorized")
        if verdict == "forbidden":
            return web.Response(
                status=403, text="Forbidden (verb=get, resource=nodes, subresource(s)=[configz proxy])\n"
            )
        return None


def certified(pki: Pki, addresses: Iterable[str], now: dt.datetime) -> ssl.SSLContext:
    """Serves with a certificate of the cluster's CA that is valid at these addresses."""
    pair = pki.serving("kubelet", pki.folder, now, addresses=addresses)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def _attributes(node: str) -> dict[str, dict[str, str]]:
    return {
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "configz",
            "name": node,
        }
    }
