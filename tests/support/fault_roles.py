"""Polyarch's processes as the fault suite runs them: killed, stopped and started by the tests themselves.

They speak to the API server and to registries through fault proxies, with tokens of their own ServiceAccounts. Webhooks
stand behind a balancer that does what a Service does: a new connection goes to a replica that takes it.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from fault_mortal import bugs
from own_roles import ACCOUNTS, CONTROLLER, GLOBAL_PULL_SECRET, WEBHOOK

from polyarch.kube.client import Client
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json
from polyarch.sandbox.state import LOOPBACK, NAMESPACE

PROGRAM = "import sys; from polyarch.cli import main; sys.exit(main())"
START_SECONDS = 60.0
TOKEN_SECONDS = 24 * 3600
SCRAPER = "scraper"
ASK = aiohttp.ClientTimeout(total=3.0)


class Replica:
    """One process of polyarch."""

    def __init__(
        self, role: str, process: asyncio.subprocess.Process, log: Path, *, scraper: str, tls: ssl.SSLContext
    ) -> None:
        """``scraper``: the token of somebody who may read metrics; ``tls`` trusts the role's certificate."""
        self.role = role
        self.process = process
        self.log = log
        self.said: dict[str, str] = {}
        self._scraper = scraper
        self._tls = tls

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def listen(self) -> None:
        """Reads the line that says where it listens."""
        assert self.process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await self.process.stdout.readline()
        assert line, f"{self.role} does not start:\n{self.log.read_text()[-3000:]}"
        self.said = json.loads(line)

    async def is_ready(self) -> bool:
        return (await self._get(f"{self.said['health']}/readyz"))[0] == 200

    async def is_alive(self) -> bool:
        return (await self._get(f"{self.said['health']}/healthz"))[0] == 200

    async def ready(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not await self.is_ready():
                await asyncio.sleep(0.05)

    async def metric(self, name: str) -> float:
        """The value of one sample, given as it is printed: name and labels."""
        _, text = await self._get(f"{self.said['metrics']}/metrics")
        for line in text.splitlines():
            if line.startswith(name) and line[len(name) : len(name) + 1] == " ":
                return float(line.rpartition(" ")[2])
        return 0.0

    async def _get(self, url: str) -> tuple[int, str]:
        try:
            headers = {"Authorization": f"Bearer {self._scraper}"}
            async with (
                aiohttp.ClientSession(timeout=ASK, headers=headers) as session,
                session.get(url, ssl=self._tls) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, str(error)

    def used(self) -> tuple[float, float]:
        """Seconds of CPU since its start, and MiB of resident memory."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL: nothing is given back, nothing is drained."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """SIGTERM, as a roll-out ends it."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await self.process.wait()


class Balancer:
    """Forwards connections byte for byte to the replicas in turn; one that refuses is passed over."""

    def __init__(self) -> None:
        self.backends: list[tuple[str, int]] = []
        self.url = ""
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.url = f"https://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def use(self, addresses: Sequence[str]) -> None:
        """Admission addresses of the replicas that are ready now."""
        parts = [urlsplit(address) for address in addresses]
        self.backends = [(part.hostname or LOOPBACK, part.port or 443) for part in parts]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the balancer; the server's own callback would report it as an error
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(len(self.backends)):
            self._turn += 1
            host, port = self.backends[self._turn % len(self.backends)]
            try:
                back_reader, back_writer = await asyncio.open_connection(host, port)
            except OSError:
                continue
            try:
                await _both(_pump(reader, back_writer), _pump(back_reader, writer))
            finally:
                back_writer.transport.abort()
            return


async def _both(*pumps: Coroutine[Any, Any, None]) -> None:
    """Until either direction has ended."""
    tasks = [asyncio.create_task(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


class Fleet:
    """All replicas of a test run. ``ensure`` brings back those that a test has ended."""

    def __init__(self, sandbox: Sandbox, client: Client, api_server: str, registries_conf: Path, folder: Path) -> None:
        self._sandbox = sandbox
        self._client = client
        self._api_server = api_server
        self._registries_conf = registries_conf
        self._registries = registries_conf.read_text()
        self._folder = folder
        self._count = 0
        self._scraper = ""
        self._tls = ssl.create_default_context(cafile=str(sandbox.pki.webhook_folder / "ca.crt"))
        self.replicas: list[Replica] = []
        self.balancer = Balancer()

    @property
    def webhooks(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role == WEBHOOK and replica.is_running]

    @property
    def controllers(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role == CONTROLLER and replica.is_running]

    def also_at(self, hosts: Mapping[str, str]) -> None:
        """Replicas started from now on find these hosts at these addresses, without TLS, beside those of all tests."""
        more = (f'[[registry]]\nprefix = "{host}"\nlocation = "{at}"\ninsecure = true\n' for host, at in hosts.items())
        self._registries_conf.write_text(self._registries + "".join(more))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        async with self.balancer:
            try:
                self._scraper = await self._who_may_read_metrics()
                yield self
            finally:
                for replica in self.replicas:
                    if replica.is_running:
                        replica.go_on()
                    await replica.kill()

    async def _who_may_read_metrics(self) -> str:
        """The token of a ServiceAccount such as a monitoring system has."""
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        subject = {"kind": "ServiceAccount", "name": SCRAPER, "namespace": NAMESPACE}
        role = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": SCRAPER}
        for resource, content, namespace in (
            (SERVICE_ACCOUNTS, {}, NAMESPACE),
            (CLUSTER_ROLES, {"rules": [rule]}, ""),
            (CLUSTER_ROLE_BINDINGS, {"roleRef": role, "subjects": [subject]}, ""),
        ):
            named = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": SCRAPER}}
            await self._client.apply(resource, named | content, namespace=namespace)
        return (await self._client.token(NAMESPACE, SCRAPER, expiration_seconds=TOKEN_SECONDS)).token

    async def others(self, *, program: str = PROGRAM, errors: Path | None = None) -> list[Replica]:
        """A webhook and two controllers that are started so, in place of all that stand."""
        for replica in (*self.webhooks, *self.controllers):
            await replica.end()
        started = [await self.start(role, program=program, errors=errors) for role in (WEBHOOK, CONTROLLER, CONTROLLER)]
        for replica in started:
            await replica.ready()
        self.balance()
        await self.leader()
        return started

    async def ensure(self, *, webhooks: int = 1, controllers: int = 2) -> None:
        """So many replicas that are ready, and one of the controllers leads."""
        missing = [WEBHOOK] * (webhooks - len(self.webhooks)) + [CONTROLLER] * (controllers - len(self.controllers))
        started = [await self.start(role) for role in missing]
        for replica in started:
            await replica.ready()
        for replica in self.webhooks[webhooks:] + self.controllers[controllers:]:
            await replica.end()
        self.balance()
        await self.leader()

    def balance(self, *, without: Replica | None = None) -> None:
        self.balancer.use([replica.said["admission"] for replica in self.webhooks if replica is not without])

    async def roll_out(self, replica: Replica) -> None:
        """SIGTERM, and as with EndpointSlices new connections go elsewhere once it says that it is not ready."""
        ending = asyncio.create_task(replica.end())
        async with asyncio.timeout(START_SECONDS):
            while await replica.is_ready():
                await asyncio.sleep(0.05)
        self.balance(without=replica)
        await ending

    async def start(self, role: str, *, program: str = PROGRAM, errors: Path | None = None) -> Replica:
        """A further replica, once it listens; it need not be ready. ``errors``: where it logs instead of its file."""
        self._count += 1
        name = f"{role}-{self._count}"
        token = await self._client.token(NAMESPACE, ACCOUNTS[role], expiration_seconds=TOKEN_SECONDS)
        kubeconfig = self._folder / f"{name}.kubeconfig"
        authority = str(self._sandbox.ca)
        write_json(kubeconfig, kubeconfig_with_token(role, self._api_server, authority, token.token))
        flags = [
            f"--namespace={NAMESPACE}",
            f"--kubeconfig={kubeconfig}",
            "--metrics-port=0",
            "--health-port=0",
            f"--registries-conf={self._registries_conf}",
            # One address, so that there are others on loopback that must not be reached.
            f"--allow-address={LOOPBACK}/32",
            f"--global-pull-secret-namespace={NAMESPACE}",
            f"--global-pull-secret-name={GLOBAL_PULL_SECRET}",
        ]
        if role == WEBHOOK:
            flags += ["--port=0", f"--cert-dir={self._sandbox.pki.webhook_folder}"]
        log = self._folder / f"{name}.log"
        log.touch()
        with (errors or log).open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", program, "run", role, *flags), stdout=asyncio.subprocess.PIPE, stderr=output
            )
        replica = Replica(role, process, log, scraper=self._scraper, tls=self._tls)
        self.replicas.append(replica)
        await replica.listen()
        return replica

    async def leader(self, *, seconds: float = 30.0) -> Replica:
        """The controller that leads, once one does."""
        async with asyncio.timeout(seconds):
            while True:
                for replica in self.controllers:
                    if await replica.metric('polyarch_leader{lease="ppc-controllers-208d7abd.multiarch.openshift.io"}'):
                        return replica
                await asyncio.sleep(0.2)

    def bugs(self) -> list[str]:
        """What the logs tell of mistakes of ours."""
        return bugs(self.logs())

    def logs(self) -> str:
        """All that was logged, to look for what must not be there."""
        return "".join(replica.log.read_text(errors="replace") for replica in self.replicas)
