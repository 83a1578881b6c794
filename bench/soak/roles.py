"""The processes of polyarch's pods: found by container, sampled, killed; what they log, and what they ask for.

Requests are those that the API server's audit log names their ServiceAccounts for.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from fault_mortal import BUGS

from bench.soak import report
from bench.soak.report import Sample
from bench.soak.stage import Stage
from bench.soak.trial import AWAY, Trial
from polyarch.kube.client import Client
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, PODS, SERVICE_ACCOUNTS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.sandbox.demo.workloads import ObjectReference, User
from polyarch.sandbox.network import loopback_of
from polyarch.sandbox.operator import ACCOUNTS
from polyarch.sandbox.processes import Record
from polyarch.sandbox.tasks import until

CONTAINERS: Final = {
    "operator": "operator",
    "web-hook": "placement-webhook",
    "controller": "placement-controller",
    "handler": "monitor-handler",
    "node-side": "monitor-node",
    "taints": "taints",
    "builder": "builder",
    "resource-topology-exporter": "numa-exporter",
    "numa-extender": "numa-extender",
    "secondary-scheduler": "numa-scheduler",
}
"""Container → role."""
STOCK: Final = "numa-scheduler"
"""Kubernetes' own program: it is killed and sampled, but its memory and its words are not ours."""
USERS: Final = {
    "polyarch-operator": "operator",
    "pod-placement-web-hook": "placement-webhook",
    "pod-placement-controller": "placement-controller",
    "enoexec-event-handler-controller": "monitor-handler",
    "enoexec-event-daemon": "monitor-node",
    "polyarch-taints": "taints",
    "polyarch-builder": "builder",
    "rte": "numa-exporter",
}
"""ServiceAccount → role. The two programs of the scheduler's pod share one."""
SCHEDULER_USER: Final = "secondary-scheduler"
SAMPLE_SECONDS: Final = 5.0
SCRAPES: Final = 6
"""Every so many samples a process is asked for the number of its tasks, as often as by a Prometheus."""
SCRAPER: Final = "soak-scraper"
SCRAPER_HOME: Final = "kube-system"
TOKEN_SECONDS: Final = 24 * 3600
METRICS: Final = ("metrics", "status")
"""Names of the ports at which roles tell their metrics."""


class _Event(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A line of the audit log."""

    stage: str = ""
    verb: str = ""
    user: User = User()
    user_agent: str = ""
    object_ref: ObjectReference | None = None


class Roles:
    """All processes of a soak; ``requests`` are those of each role so far, without Leases."""

    def __init__(self, trial: Trial, stage: Stage, token: str) -> None:
        self._trial, self._stage = trial, stage
        self._headers = {"Authorization": f"Bearer {token}"}
        self._logs: dict[str, int] = {}
        self._addresses: dict[int, str] = {}
        self._known: dict[int, Record] = {}
        self._killed: set[int] = set()
        self._audit = stage.sandbox.audit_log
        self._read = self._audit.stat().st_size
        self.requests: Counter[tuple[str, str]] = Counter()
        """By role and ``verb resource``."""
        self.samples: list[Sample] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, trial: Trial, stage: Stage) -> AsyncIterator["Roles"]:
        async with _scraper(trial.client) as token:
            yield cls(trial, stage, token)

    def _processes(self) -> list[tuple[str, Record]]:
        """Role and record of each process that runs now."""
        return [
            (CONTAINERS[record.container], record)
            for record in self._stage.sandbox.containers()
            if record.pod.startswith(f"{DEFAULT_NAMESPACE}/") and record.container in CONTAINERS
        ]

    def kill(self, role: str) -> None:
        """SIGKILL to one process of the role, whichever."""
        found = [record for name, record in self._processes() if name == role]
        if not found:
            self._trial.problem("stuck", f"{role}: no process to be killed")
            return
        record = random.Random(len(self.samples)).choice(found)
        self._killed.add(record.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)

    async def ready(self, *, seconds: float) -> bool:
        """Whether every container of polyarch's pods becomes ready in this time."""

        async def are_ready() -> bool:
            with contextlib.suppress(*AWAY):
                return not any((await self._stage.sandbox.container_problems()).values())
            return False

        return bool(await until(are_ready, seconds=seconds, every=1.0))

    # -- samples -------------------------------------------------------------------------------------------------------

    async def watch(self, gated: Callable[[], int]) -> None:
        """Sample all processes as long as the task lives. ``gated()``: pods that are held now."""
        turn = 0
        while True:
            began = time.monotonic()
            running = self._processes()
            self._ended({record.pid for _, record in running})
            with_tasks = turn % SCRAPES == 0
            tasks = await self._tasks(running) if with_tasks else {}
            for role, record in running:
                self._known[record.pid] = record
                with contextlib.suppress(OSError):  # it ended meanwhile
                    self.samples.append(
                        report.look(record.pid, role, self._trial.now, tasks.get(record.pid, 0.0), gated())
                    )
                if role != STOCK:
                    self._read_log(record)
            self.read_audit()
            for proxy in (self._stage.api, *self._stage.hosts.values()):
                proxy.seen.clear()
            turn += 1
            await asyncio.sleep(max(0.1, SAMPLE_SECONDS - (time.monotonic() - began)))

    def _ended(self, running: set[int]) -> None:
        for pid in [pid for pid in self._known if pid not in running]:
            record = self._known.pop(pid)
            self._read_log(record)
            if pid not in self._killed and record.pod in {each.pod for _, each in self._processes()}:
                self._trial.counts[f"{CONTAINERS[record.container]} ended by itself"] += 1

    def _read_log(self, record: Record) -> None:
        """Lines that tell of mistakes of ours."""
        with contextlib.suppress(FileNotFoundError), Path(record.log).open("rb") as log:
            log.seek(self._logs.get(record.log, 0))
            text = log.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._logs[record.log] = self._logs.get(record.log, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                if any(sign in line for sign in BUGS):
                    self._trial.problem("bug", f"{CONTAINERS[record.container]} logged: {line[:600]}")

    async def _tasks(self, running: list[tuple[str, Record]]) -> dict[int, float]:
        """The number of tasks of each process that tells it."""
        found: dict[int, float] = {}
        await self._find_addresses(running)
        async with aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=3)) as session:
            for _, record in running:
                if not (address := self._addresses.get(record.pid)):
                    continue
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"https://{address}/metrics", ssl=False) as answer:
                        for line in (await answer.text()).splitlines():
                            if line.startswith("polyarch_tasks "):
                                found[record.pid] = float(line.rpartition(" ")[2])
        return found

    async def _find_addresses(self, running: list[tuple[str, Record]]) -> None:
        if all(record.pid in self._addresses for _, record in running):
            return
        with contextlib.suppress(*AWAY):
            found = (await self._trial.client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
            pods = {f"{DEFAULT_NAMESPACE}/{each['metadata']['name']}": each for each in found}
            for _, record in running:
                self._addresses[record.pid] = metrics_of(pods.get(record.pod), record.container)

    # -- requests ------------------------------------------------------------------------------------------------------

    def read_audit(self) -> None:
        """Count what has been added to the log."""
        with self._audit.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._count(msgspec.json.decode(line, type=_Event))

    def _count(self, event: _Event) -> None:
        at = event.object_ref or ObjectReference()
        whole = "ResponseStarted" if event.verb == "watch" else "ResponseComplete"
        if not event.user.username.startswith(ACCOUNTS) or event.stage != whole or at.resource == "leases":
            return
        account = event.user.username.removeprefix(ACCOUNTS)
        if account == SCHEDULER_USER:
            role = "numa-extender" if event.user_agent.startswith("polyarch") else STOCK
        else:
            role = USERS.get(account, account)
        self.requests[role, f"{event.verb} {at.resource}{'/' if at.subresource else ''}{at.subresource}"] += 1

    def total(self) -> Counter[str]:
        """Requests by role."""
        found: Counter[str] = Counter()
        for (role, _), count in self.requests.items():
            found[role] += count
        return found


def metrics_of(pod: dict[str, Any] | None, container: str) -> str:
    """Where a container tells its metrics; empty if it does not."""
    if pod is None or not (address := (pod.get("status") or {}).get("podIP")):
        return ""
    for each in pod["spec"]["containers"]:
        for port in each.get("ports") or ():
            if each["name"] == container and port.get("name") in METRICS:
                return f"{loopback_of(address)}:{port['containerPort']}"
    return ""


@asynccontextmanager
async def _scraper(client: Client) -> AsyncIterator[str]:
    """The token of a ServiceAccount such as a monitoring system has (PL-703)."""
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": SCRAPER, "namespace": SCRAPER_HOME}
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": SCRAPER}
    made = (
        (SERVICE_ACCOUNTS, {}, SCRAPER_HOME),
        (CLUSTER_ROLES, {"rules": [rule]}, ""),
        (CLUSTER_ROLE_BINDINGS, {"roleRef": role, "subjects": [subject]}, ""),
    )
    for resource, content, namespace in made:
        named = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": SCRAPER}}
        await client.apply(resource, named | content, namespace=namespace)
    yield (await client.token(SCRAPER_HOME, SCRAPER, expiration_seconds=TOKEN_SECONDS)).token
    for resource, _, namespace in made:
        await client.delete(resource, SCRAPER, namespace=namespace)
