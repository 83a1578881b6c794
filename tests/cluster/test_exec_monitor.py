"""The exec-format-error monitor with a real API server and exactly its rights, and with the kernel of this machine.

The kernel's part needs root and tracefs; where there is none, the node side has to say so.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import own_roles
import pytest
from audited import Audited
from fake_node import FakeNode
from placement_cluster import labels, until
from placement_process import PROGRAM, Running, start

from polyarch.clock import SystemClock
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import granted
from polyarch.kube.resources import EVENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, by_kind
from polyarch.operator.components import placement_objects
from polyarch.operator.owned_objects import RolePermissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import ENOEXECEVENTS
from polyarch.placement.exec_monitor_node import (
    INITIAL_PID_NAMESPACE,
    TRACE_EVENTS,
    NodeAgent,
    NodeAgentMetrics,
    PodAttribution,
    Reporter,
)
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock, write_json

pytestmark = pytest.mark.req("PL-600", "PL-602", "PL-603", "PL-605", "PL-703")

LABEL = "multiarch.openshift.io/exec-format-error"
SECONDS = 60


class Monitor:
    """A namespace with the monitor's ServiceAccounts and rights, a node without kubelet, and a pod on it."""

    def __init__(self, sandbox: Sandbox, client: Client, home: str, folder: Path) -> None:
        self.sandbox = sandbox
        self.client = client
        self.home = home
        self.folder = folder
        self.node = f"node-{home}"
        self.id = secrets.token_hex(32)
        self.uid = ""

    def rights(self, account: str) -> RolePermissions:
        return placement_objects.monitor_permissions(OperatorSettings(namespace=self.home), ClusterCapabilities())[
            account
        ]

    def rules(self, account: str) -> tuple[Any, ...]:
        allowed = self.rights(account)
        return (*allowed.cluster, *allowed.namespaces[self.home])

    def audited(self, account: str) -> Audited:
        return Audited(self.sandbox, f"system:serviceaccount:{self.home}:{account}")

    async def install(self) -> None:
        """The same rules under cluster-wide names of this test's own, as tests run side by side."""
        for account in (names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON):
            metadata = {"name": account}
            document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
            await self.client.create(SERVICE_ACCOUNTS, document, namespace=self.home)
            allowed, who = self.rights(account), [(self.home, account)]
            documents = granted(account, allowed.namespaces[self.home], who, namespace=self.home)
            if allowed.cluster:
                documents += granted(f"{account}-{self.home}", allowed.cluster, who)
            for each in documents:
                resource = by_kind(each["apiVersion"], each["kind"])
                await self.client.create(resource, each, namespace=each["metadata"].get("namespace", ""))
        node = {"name": self.node, "labels": {names.ARCH_KEY: "arm64"}}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": node})

    async def remove(self) -> None:
        await self.client.delete(NODES, self.node)
        for account in (names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON):
            for kind in ("ClusterRole", "ClusterRoleBinding"):
                with contextlib.suppress(NotFound):
                    resource = by_kind("rbac.authorization.k8s.io/v1", kind)
                    await self.client.delete(resource, f"{account}-{self.home}")

    async def pod(self, name: str) -> None:
        """A pod whose only container has the id of this test."""
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": self.node, "containers": [{"name": "app", "image": "quay.io/monitor/app:1"}]},
        }
        created = await self.client.create(PODS, document, namespace=self.home, type=dict)
        self.uid = created["metadata"]["uid"]
        status = {"name": "app", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status["containerID"] = f"containerd://{self.id}"
        patch = MergePatch({"status": {"containerStatuses": [status]}})
        await self.client.patch(PODS, name, patch, namespace=self.home, subresource="status")

    @contextlib.asynccontextmanager
    async def agent(self, node: str) -> AsyncIterator[Client]:
        """A client with the token of the node side's pod on a node."""
        name, account = f"agent-{secrets.token_hex(4)}", names.ENOEXEC_DAEMON
        containers = [{"name": "a", "image": "quay.io/monitor/app:1"}]
        spec = {"nodeName": node, "serviceAccountName": account, "containers": containers}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        created = await self.client.create(PODS, document, namespace=self.home, type=dict)
        issued = await self.client.token(self.home, account, bound_pod=(name, created["metadata"]["uid"]))
        async with self.client_of(account, issued.token) as client:
            yield client

    @contextlib.asynccontextmanager
    async def client_of(self, account: str, token: str) -> AsyncIterator[Client]:
        file, layout = self.folder / f"{secrets.token_hex(4)}.kubeconfig", self.sandbox.layout
        write_json(file, kubeconfig_with_token(account, layout.api_server, layout.pki.ca, token))
        async with Client(config.load(str(file)), role="tests") as client:
            yield client

    async def labels(self, pod: str) -> dict[str, str]:
        return labels(await self.client.get(PODS, pod, namespace=self.home))

    async def told(self, pod: str) -> list[dict[str, Any]]:
        """The monitor's events about a pod."""
        found = (await self.client.list(EVENTS, namespace=self.home)).items
        ours = "polyarch.dev/exec-monitor"
        return [each for each in found if each["regarding"]["name"] == pod and each.get("reportingController") == ours]

    async def report(self, name: str, *, namespace: str = "", **status: str) -> None:
        """As a node side writes it; without status nothing but the object."""
        place = namespace or self.home
        document = {"apiVersion": ENOEXECEVENTS.api_version, "kind": ENOEXECEVENTS.kind, "metadata": {"name": name}}
        await self.client.create(ENOEXECEVENTS, document, namespace=place)
        if status:
            facts = {
                "nodeName": self.node,
                "podName": "app",
                "podNamespace": self.home,
                "containerID": f"containerd://{self.id}",
                **status,
            }
            patch = MergePatch({"status": facts})
            await self.client.patch(ENOEXECEVENTS, name, patch, namespace=place, subresource="status")

    async def is_consumed(self, name: str) -> bool:
        try:
            await self.client.get(ENOEXECEVENTS, name, namespace=self.home)
        except NotFound:
            return True
        return False

    async def token(self, account: str) -> str:
        return (await self.client.token(self.home, account)).token

    async def kubeconfig(self, account: str) -> Path:
        layout = self.sandbox.layout
        path = self.folder / f"{account}.json"
        write_json(path, kubeconfig_with_token(account, layout.api_server, layout.pki.ca, await self.token(account)))
        return path

    async def flags(self, account: str, *more: str) -> list[str]:
        path = await self.kubeconfig(account)
        ports = ("--port=0", "--metrics-port=0", "--health-port=0")
        return ["run", "exec-monitor", f"--namespace={self.home}", f"--kubeconfig={path}", *ports, *more]

    @asynccontextmanager
    async def handler(self) -> AsyncIterator[Running]:
        """The handler, ended in order."""
        log = self.folder / "handler.log"
        certificates = f"--cert-dir={self.sandbox.layout.pki.webhook_folder}"
        flags = await self.flags(names.ENOEXEC_HANDLER, "--side=handler", certificates)
        async with _running(await start(log, *flags, output=asyncio.subprocess.PIPE), log) as running:
            yield running

    @asynccontextmanager
    async def node_side(self, node: FakeNode) -> AsyncIterator[Metrics]:
        """The node side on a node in a folder, with its own rights; all but the kernel is real."""
        account = names.ENOEXEC_DAEMON
        metrics = Metrics()
        mine = NodeAgentMetrics(metrics)
        clock = SystemClock()
        async with Client(config.load(str(await self.kubeconfig(account))), role="exec-monitor") as client:
            reporter = Reporter(
                client,
                namespace=self.home,
                node=self.node,
                clock=clock,
                count=lambda result: mine.results[result].inc(),
            )
            attribution = PodAttribution(proc=node.proc, logs=node.logs, now=clock.monotonic)
            side = NodeAgent(attribution, reporter, instance=node.instance, metrics=mine, clock=clock)
            tasks = [asyncio.create_task(each) for each in (side.run(), reporter.run())]
            try:
                await until(lambda: _is(metrics, "polyarch_exec_monitor_up", 1))
                yield metrics
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _is(metrics: Metrics, name: str, value: float, **labels: str) -> bool:
    return metrics.registry.get_sample_value(name, labels) == value


@asynccontextmanager
async def _running(process: asyncio.subprocess.Process, log: Path) -> AsyncIterator[Running]:
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
        assert line, log.read_text()
        running = Running(process, json.loads(line))
        await until(running.ready)
        yield running
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        print(log.read_text())  # noqa: T201 - for whoever reads why a test failed


@pytest.fixture
async def monitor(sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Monitor]:
    """Handlers see the ENoExecEvents of all namespaces, so only one test at a time has any."""
    async with file_lock(sandbox.folder.root / ".enoexecevents.lock"):
        await own_roles.install(client)
        monitor = Monitor(sandbox, client, namespace, tmp_path)
        await monitor.install()
        try:
            yield monitor
        finally:
            await monitor.remove()


@pytest.mark.req("PL-550", "PL-606", "PL-610")
async def test_a_failed_exec_is_told_on_the_pod_with_exactly_these_rights(monitor, client, tmp_path):
    """From the node's trace to the pod: event, label, nothing left; PL-550: no 403, and no rule that is never used."""
    node = FakeNode(tmp_path / "node")
    await monitor.pod("app")
    node.process(4711, f"/kubepods/burstable/pod{monitor.uid}/{monitor.id}")
    node.pod(monitor.home, "app", monitor.uid)
    handling, reporting = (monitor.audited(each) for each in (names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON))
    elsewhere = f"{monitor.home}-b"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
    try:
        async with monitor.handler() as handler:
            async with monitor.node_side(node) as metrics:
                node.fails(4711)
                await until(lambda: _is(metrics, "polyarch_exec_format_errors_total", 1, result="reported"))
            await until(lambda: monitor.told("app"))
            await until(lambda: monitor.is_consumed(f"{monitor.uid}-{monitor.id}"))
            assert (await monitor.labels("app"))[LABEL] == "true"
            (event,) = await monitor.told("app")
            assert (event["type"], event["reason"]) == ("Warning", "ExecFormatError")
            assert event["regarding"]["uid"] == monitor.uid
            assert event["note"] == (
                f"Container app ran a program that node {monitor.node} (arm64) cannot execute (exec format error):"
                " a binary for another architecture, or a script without a #! line."
            )
            await monitor.report("again", podName="app")  # the same once more: counted in the event's series
            await until(lambda: monitor.is_consumed("again"))
            await monitor.report("stray", namespace=elsewhere, podName="app")

            async def is_labelled() -> bool:
                stray = await client.get(ENOEXECEVENTS, "stray", namespace=elsewhere)
                return labels(stray).get("multiarch.openshift.io/enoexec-event-error") == "wrong-namespace"

            await until(is_labelled)
            assert await _scraped(handler, await monitor.token(names.ENOEXEC_HANDLER)) == 403
    finally:
        await client.delete(NAMESPACES, elsewhere)
    for audited, account in ((handling, names.ENOEXEC_HANDLER), (reporting, names.ENOEXEC_DAEMON)):
        assert await audited.refused() == []
        assert await audited.not_allowed(monitor.rules(account)) == []
        assert await audited.never_used(monitor.rules(account)) == []
    writes = [each for each in await handling.requests() if each.startswith("patch pods ")]
    assert writes == ["patch pods app"], "one PATCH, none for a pod that has the label"


async def _scraped(running: Running, token: str) -> int:
    """Who may scrape is asked of the API server; this one may not."""
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{running.said['metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
        return answer.status


@pytest.mark.req("PL-610")
async def test_reports_about_nothing_that_is_there_are_deleted_and_no_pod_is_labelled(monitor, client):
    """Gone pods, gone nodes, pods of the same name on another node."""
    await monitor.pod("app")
    async with monitor.handler():
        await monitor.report("gone-pod", podName="nobody")
        await monitor.report("wrong-node", nodeName="another")
        await monitor.report("no-status")
        for name in ("gone-pod", "wrong-node"):
            await until(lambda name=name: monitor.is_consumed(name))
        await asyncio.sleep(1)
        assert not await monitor.is_consumed("no-status"), "its status may still come"
        late = MergePatch(
            {
                "status": {
                    "nodeName": monitor.node,
                    "podName": "app",
                    "podNamespace": monitor.home,
                    "containerID": f"unknown://{monitor.id}",
                }
            }
        )
        await client.patch(ENOEXECEVENTS, "no-status", late, namespace=monitor.home, subresource="status")
        await until(lambda: monitor.is_consumed("no-status"))
        await until(lambda: monitor.told("app"))
    (event,) = await monitor.told("app")
    assert event["note"].startswith("Container app ran a program"), "the node side need not know the runtime"


@pytest.mark.req("PL-611")
async def test_a_node_side_reports_what_happens_on_its_own_node_alone(monitor, client):
    """With the token of one node's agent: reports about another node, and reports of another node's agent."""
    documents = placement_objects.node_policy(
        OperatorSettings(namespace=monitor.home), ClusterCapabilities(version=(1, 32))
    )
    policy, bound = documents
    name = policy["metadata"]["name"] = bound["metadata"]["name"] = f"monitor-{monitor.home}"
    bound["spec"]["policyName"] = name
    other = f"other-{monitor.home}"
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": other}})
    for each in documents:
        await client.create(by_kind(each["apiVersion"], each["kind"]), each)
    try:
        async with monitor.agent(monitor.node) as own, monitor.agent(other) as foreign:

            async def refused(agent: Client, event: str, **status: str | None) -> bool:
                facts = {"podName": "app", "podNamespace": monitor.home, "containerID": f"x://{monitor.id}", **status}
                patch = MergePatch({"status": facts})
                try:
                    await agent.patch(ENOEXECEVENTS, event, patch, namespace=monitor.home, subresource="status")
                except Forbidden as error:
                    return "the monitor" in str(error)
                return False

            async def created(agent: Client, event: str) -> None:
                kind = {"apiVersion": ENOEXECEVENTS.api_version, "kind": ENOEXECEVENTS.kind}
                await agent.create(ENOEXECEVENTS, {**kind, "metadata": {"name": event}}, namespace=monitor.home)

            async def in_force() -> bool:
                event = f"probe-{secrets.token_hex(4)}"
                await created(own, event)
                return await refused(own, event, nodeName=other)

            await until(in_force)
            for event in ("forged", "real", "theirs"):
                await created(own if event != "theirs" else foreign, event)
            assert await refused(own, "forged", nodeName=other)
            assert await refused(own, "forged", nodeName=f"{monitor.node}x")
            assert not await refused(own, "real", nodeName=monitor.node)
            assert await refused(own, "real", nodeName=other)
            assert not await refused(foreign, "theirs", nodeName=other)
            assert await refused(own, "theirs", nodeName=monitor.node), "a report of another node's agent"
            assert await refused(own, "theirs", nodeName=other)
            assert await refused(own, "theirs", nodeName=None)
            unbound = await monitor.token(names.ENOEXEC_DAEMON)
            async with monitor.client_of(names.ENOEXEC_DAEMON, unbound) as nowhere:
                assert await refused(nowhere, "forged", nodeName=monitor.node), "a token that names no node"
    finally:
        for each in documents:
            await client.delete(by_kind(each["apiVersion"], each["kind"]), name)
        await client.delete(NODES, other)


@pytest.mark.req("PL-530", "PL-610")
async def test_a_standby_handles_events_when_the_leader_has_gone(monitor):
    """The Lease is given back, and reports wait in the API server meanwhile."""
    await monitor.pod("app")
    async with monitor.handler():
        pass
    await monitor.report("waiting", podName="app")
    async with monitor.handler():
        await until(lambda: monitor.is_consumed("waiting"))
    assert (await monitor.labels("app"))[LABEL] == "true"


# -- the kernel of this machine ----------------------------------------------------------------------------------------

FAILING = """
    import ctypes, os, sys, time

    procs, program = sys.argv[1:]
    ctypes.CDLL(None).prctl(15, b"runc", 0, 0, 0)  # PR_SET_NAME

    def child(work):
        if (pid := os.fork()) == 0:
            work()
            os._exit(0)
        os.waitpid(pid, 0)

    def container():
        with open(procs, "w") as file:
            file.write(str(os.getpid()))
        child(first_program)

    def first_program():
        time.sleep(0.3)  # runc's child waits, too, until its container is started
        try:
            os.execv(program, [program])
        except OSError as error:
            assert error.errno == 8, error
        os._exit(0)  # at once: nothing is left in /proc when the trace is read

    child(container)
"""
"""As runc starts a container: a fork in the container's cgroup, which fails to execute its program and ends."""

IDLE = 10.0
"""Seconds for which the CPU of an idle node side is measured."""
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""uid 0 without any capability, as the DaemonSet's pods."""


@contextmanager
def _mounted(folder: Path) -> Iterator[str]:
    """tracefs mounted in a folder; yields why the kernel's events cannot be seen there, or ""."""
    folder.mkdir()
    if str(Path("/proc/self/ns/pid").readlink()) != INITIAL_PID_NAMESPACE:
        yield "this machine is a container with a pid namespace of its own"
        return
    done = subprocess.run(["mount", "-t", "tracefs", "nodev", str(folder)], capture_output=True, text=True, check=False)
    try:
        yield "" if done.returncode == 0 else done.stderr.strip() or "mount failed"
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def _cgroup(uid: str, container: str) -> Iterator[Path]:
    """A cgroup that is called like a container's."""
    roots = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/pids")]
    root = next(each for each in roots if (each / "cgroup.procs").exists())
    top = root / f"polyarch-{secrets.token_hex(4)}"
    folders = [top, top / f"pod{uid}", top / f"pod{uid}" / container]
    for each in folders:
        each.mkdir()
    try:
        yield folders[-1]
    finally:
        for each in reversed(folders):
            each.rmdir()


@pytest.mark.req("PL-601", "PL-604", "PL-631", "PL-810", "PL-900")
async def test_the_kernel_of_this_machine_reports_a_program_that_it_cannot_execute(monitor, tmp_path):
    """The node side as in its pod, uid 0 without capabilities; a process that is gone; then nothing is left in tracefs.

    No runtime is asked anything. Where tracefs cannot be mounted, it has to stay up and say so: this test then tells on
    the terminal what is missing.
    """
    await monitor.pod("app")
    (tmp_path / "pods" / f"{monitor.home}_app_{monitor.uid}").mkdir(parents=True)
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF of nowhere")
    program.chmod(0o755)
    tracing, log = tmp_path / "tracing", tmp_path / "node.log"
    async with monitor.handler():
        with _mounted(tracing) as missing:
            flags = await monitor.flags(
                names.ENOEXEC_DAEMON,
                *("--side=node", f"--node-name={monitor.node}", f"--tracefs={tracing}"),
                f"--pod-logs={tmp_path / 'pods'}",
            )
            before = () if missing else WITHOUT_RIGHTS
            with log.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    *(*before, sys.executable, "-c", PROGRAM, *flags), stdout=asyncio.subprocess.PIPE, stderr=errors
                )
            async with _running(process, log) as node:
                if missing:
                    print(f"\nNOT TESTED with the kernel: {missing}", file=sys.__stderr__)
                    assert await _metric(node, "polyarch_exec_monitor_up") == 0
                    assert log.read_text().count("exec format errors of this node are not seen") == 1
                    return
                assert await _metric(node, "polyarch_exec_monitor_up") == 1
                with _cgroup(monitor.uid, monitor.id) as cgroup:
                    script = (sys.executable, "-c", textwrap.dedent(FAILING), str(cgroup / "cgroup.procs"))
                    runc = await asyncio.create_subprocess_exec(*script, str(program))
                    assert await runc.wait() == 0
                await until(lambda: monitor.told("app"))
                assert (await monitor.labels("app"))[LABEL] == "true"
                assert await _metric(node, 'polyarch_exec_format_errors_total{result="reported"}') == 1
                assert _status(process.pid)["CapEff"] == "0000000000000000"
                before_idle = _cpu_seconds(process.pid)
                await asyncio.sleep(IDLE)
                idle = (_cpu_seconds(process.pid) - before_idle) / IDLE
                resident = int(_status(process.pid)["VmRSS"].split()[0]) / 1024
                print(f"node side: {resident:.1f} MiB resident, {idle:.3%} of a core when idle")  # noqa: T201 - the figures, with -s
                assert resident <= 45, "PL-810"
                assert idle <= 0.002, "PL-810"
                assert len(_instances(tracing, process.pid)) == 1
            assert _instances(tracing, process.pid) == []


HOLDER = """
import os, select, sys
from pathlib import Path

import structlog

from polyarch.placement.exec_monitor_node import open_instance

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
with open_instance([Path(sys.argv[1])]) as instance:
    pipe = os.open(instance.pipe, os.O_RDONLY | os.O_NONBLOCK)
    print(instance.folder.name, flush=True)
    for command in sys.stdin:
        if command == "restore\\n":
            print(*instance.restore(), flush=True)
            continue
        seen = False
        while not seen and select.select([pipe], [], [], 5)[0]:
            seen = any(b"-" + command.strip().encode() in line for line in os.read(pipe, 65536).splitlines())
        print(seen, flush=True)
    os.close(pipe)
"""
"""A monitor that says whether it sees the failed exec of a process, or what it had to switch on again."""


class Holder:
    """A process with :data:`HOLDER`."""

    def __init__(self, tracing: Path) -> None:
        command = (sys.executable, "-c", HOLDER, str(tracing))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self.folder = tracing / "instances" / self._answers.readline().strip()

    def sees(self, pid: int) -> bool:
        """Whether an exec of this process is in the trace; what comes before it is skipped."""
        return self._ask(str(pid)) == "True"

    def restore(self) -> set[str]:
        return set(self._ask("restore").split())

    def _ask(self, command: str) -> str:
        self._commands.write(f"{command}\n")
        self._commands.flush()
        return self._answers.readline().strip()

    def send(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)

    def end(self) -> None:
        """As told by SIGKILL before, or in order."""
        with contextlib.suppress(BrokenPipeError):
            self._commands.close()
        self._process.wait(10)
        self._answers.close()


@pytest.mark.req("PL-601")
def test_monitors_that_share_a_kernel_neither_blind_each_other_nor_leave_anything(tmp_path):
    """Two installations, a pod that hangs beside its successor, and a monitor that is killed again and again."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF of nowhere")
    program.chmod(0o755)

    def failed() -> int:
        command = (sys.executable, "-S", "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", program)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert "Exec format error" in process.communicate()[1]
        return process.pid

    with _mounted(tracing := tmp_path / "tracing") as missing, contextlib.ExitStack() as stack:
        if missing:
            print(f"\nNOT TESTED with the kernel: {missing}", file=sys.__stderr__)
            return

        def holder() -> Holder:
            process = Holder(tracing)
            stack.callback(process.end)
            return process

        first, second = holder(), holder()
        pid = failed()
        assert first.sees(pid)
        assert second.sees(pid)

        second.send(signal.SIGSTOP)
        third = holder()
        pid = failed()
        assert first.sees(pid)
        assert third.sees(pid)
        assert second.folder.is_dir(), "it may go on"
        second.send(signal.SIGCONT)
        assert second.sees(pid)

        killed = [second, third]
        for process in killed:
            process.send(signal.SIGKILL)
            process.end()
        for _ in range(4):
            killed.append(holder())
            assert [each.folder.is_dir() for each in killed] == [False] * (len(killed) - 1) + [True]
            killed[-1].send(signal.SIGKILL)
            killed[-1].end()
        assert first.sees(failed())

        (first.folder / "events" / "enable").write_text("0")
        assert first.restore() == set(TRACE_EVENTS)
        assert first.sees(failed())
        (first.folder / "tracing_on").write_text("0")
        assert first.restore() == {"tracing_on"}
        last = holder()
        with concurrent.futures.ThreadPoolExecutor(6) as starting:  # at the same moment
            many = list(starting.map(lambda _: holder(), range(6)))
        pid = failed()
        assert all(each.sees(pid) for each in many)
        for each in (first, last, *many):
            each.end()
        assert not any(each.folder.exists() for each in (first, last, *many, *killed))


def _instances(tracing: Path, pid: int) -> list[str]:
    return [each.name for each in (tracing / "instances").glob(f"polyarch-exec-{pid}-*")]


async def _metric(running: Running, name: str) -> float:
    url = f"{running.said['metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")))


def _cpu_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds in the file."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
