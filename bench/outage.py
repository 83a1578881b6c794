"""TN-091: nobody added tolerations while 10 000 pods were created; then the role starts and completes them.

A real API server and registry. The role runs as a process of its own; its requests are counted in the audit log, those
for images in the registry's log.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench import load
from bench.measure import AuditLog, Figure, cpu_seconds, resident_mib
from bench.placement import RegistryLog, Say
from polyarch.installation import objects, wait
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, PODS, SERVICE_ACCOUNTS
from polyarch.kube.store import ObjectChange
from polyarch.objects import Pod
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json
from polyarch.sandbox.state import Settings
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

COUNT: Final = 10_000
IMAGES: Final = 4
CONTROL: Final = 2000
"""PATCHes of the control run."""
IN_FLIGHT: Final = 32
"""As many as the role sends at a time."""
ACCOUNT: Final = "taints-bench"
PROGRAM: Final = "import sys; from polyarch.cli import main; sys.exit(main())"
DEADLINE: Final = 600.0


async def _outage(say: Say) -> list[Figure]:
    sandbox = await Sandbox.start(Settings(name="bench-taints", nodes={}, polyarch=False), fresh=True)
    try:
        async with sandbox.client() as client:
            return await _measured(sandbox, client, say)
    finally:
        await sandbox.stop()


async def _measured(sandbox: Sandbox, client: Client, say: Say) -> list[Figure]:
    home = await load.make_namespace(client, "outage")
    images = {f"quay.io/outage/app{number}:1": ["linux/amd64", "linux/arm64"] for number in range(IMAGES)}
    await sandbox.registry.seed(images)
    await _configure(client)
    say(f"{COUNT} pods are created while nobody adds tolerations")
    texts = list(images)
    pods = [load.pod(texts[number % IMAGES]) for number in range(COUNT)]
    await load.drive(client, home, pods, deadline=0.0)
    audit, registry = AuditLog(sandbox.audit_log), RegistryLog(sandbox.registry_log)
    audit.mark()
    completed = _Completed()
    informer: Informer[Pod] = Informer(client, PODS, Pod, selection=ListOptions(namespace=home))
    informer.add_handler(completed.saw)
    watching = asyncio.create_task(informer.run())
    await informer.synced()
    try:
        async with _role(sandbox, client, home) as pid:
            before = cpu_seconds(pid)
            say("the role runs")
            async with asyncio.timeout(DEADLINE):
                await completed.all.wait()
            spent = cpu_seconds(pid) - before
            memory = resident_mib(pid)
        say("a client without any work of its own sends as many PATCHes")
        control = await _patched(client, home, [key.name for key in informer.store])
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    asked = await audit.requests(f"system:serviceaccount:{home}:{ACCOUNT}", namespaces=[home])
    requests = asked["patch pods"]
    manifests = registry.count(lambda line: line.get("method") == "GET" and "/manifests/" in line.get("path", ""))
    seconds = completed.last - completed.first
    return [
        Figure("pods after an outage, completed", (COUNT - 1) / seconds, "pods/s", "TN-091", 100, at_most=False,
               note=f"a client that only sends PATCHes: {control:.0f}/s"),
        Figure("pods after an outage, PATCHes", requests / COUNT, "per pod", "TN-091", 1.0, compared=True),
        Figure("pods after an outage, other requests", (sum(asked.values()) - requests) / COUNT, "per pod",
               note=", ".join(sorted(set(asked) - {"patch pods"}))),
        Figure("pods after an outage, manifests", manifests / IMAGES, "per image", "TN-091", 1, compared=True),
        Figure("pods after an outage, CPU of the role", 1000 * spent / COUNT, "ms/pod", compared=True),
        Figure(f"role taints with {COUNT} unscheduled pods", memory, "MiB", compared=True),
    ]  # fmt: skip


class _Completed:
    """When the pods got their tolerations."""

    def __init__(self) -> None:
        self.all = asyncio.Event()
        self.first = 0.0
        self.last = 0.0
        self._done: set[str] = set()

    def saw(self, change: ObjectChange[Pod]) -> None:
        pod = change.new
        if pod is None or not (pod.metadata.annotations or {}).get(names.TOLERATIONS_ANNOTATION):
            return
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self._done.add(pod.metadata.uid)
        if len(self._done) == COUNT:
            self.all.set()


async def _patched(client: Client, namespace: str, pods: list[str]) -> float:
    """PATCHes per second of a client that knows what to write: what the API server takes on this machine now."""
    names = iter(pods[:CONTROL])
    patch = MergePatch({"metadata": {"annotations": {"bench.test/control": "1"}}})

    async def worker() -> None:
        for name in names:
            await client.patch(PODS, name, patch, namespace=namespace)

    begin = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return CONTROL / (time.perf_counter() - begin)


async def _configure(client: Client) -> None:
    definitions = objects.definitions(InstallationSettings())
    for definition in definitions:
        await client.apply(CRDS, definition)
    await wait.established(client, [definition["metadata"]["name"] for definition in definitions])
    await client.apply(ARCHITECTURE_TAINTS, {
        "apiVersion": ARCHITECTURE_TAINTS.api_version, "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": names.SINGLETON}, "spec": {},
    })  # fmt: skip


@asynccontextmanager
async def _role(sandbox: Sandbox, client: Client, home: str) -> AsyncIterator[int]:
    """The process, once it listens, as a user of its own; what it may do is not the matter here."""
    await client.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}, namespace=home
    )
    binding: dict[str, Any] = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}],
    }
    await client.apply(CLUSTER_ROLE_BINDINGS, binding)
    issued = await client.token(home, ACCOUNT)
    with tempfile.TemporaryDirectory() as folder:
        file, layout = Path(folder) / "kubeconfig", sandbox.layout
        write_json(file, kubeconfig_with_token(ACCOUNT, layout.api_server, layout.pki.ca, issued.token))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, "run", "taints", f"--namespace={home}", f"--kubeconfig={file}"),
            *("--metrics-port=0", "--health-port=0", "--allow-address=127.0.0.0/8"),
            f"--registries-conf={sandbox.registries_conf}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(60):
                json.loads(await process.stdout.readline())
            yield process.pid
        finally:
            process.kill()
            await process.wait()


def outage(say: Say) -> list[Figure]:
    """10 000 pods without tolerations, and a role that starts."""
    return asyncio.run(_outage(say))


SCENARIOS = {"outage": outage}
