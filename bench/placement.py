"""Placement on the sandbox: bursts, paced load, unknown images, a Deployment, missing images, dry runs, memory.

Each latency is shown with that of a control run of the same pods without the webhook in the same minute, because the
API server itself takes most of the time. CPU time is that of polyarch's own processes; requests are counted in the
audit log (polyarch's identities only), registry requests in the registry's log.
"""

import asyncio
import base64
import contextlib
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import load
from bench.control import fixed_patch, without_webhook
from bench.measure import AuditLog, Figure, cpu_seconds, percentile, resident_mib
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DEPLOYMENTS, MUTATING_WEBHOOKS, NAMESPACES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import loopback_of
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.taints.api import ARCHITECTURE_TAINTS

OURS = "system:serviceaccount:polyarch-system:"
NODES = {"amd64": 4, "arm64": 4, "ppc64le": 1, "s390x": 1}
IMAGES = 40
BURST = 1000
WEBHOOK, CONTROLLER = "web-hook", "controller"
"""Names of their containers."""

TAINTS: dict[str, Any] = {
    "apiVersion": ARCHITECTURE_TAINTS.api_version,
    "kind": ARCHITECTURE_TAINTS.kind,
    "metadata": {"name": "cluster"},
    "spec": {
        "mode": "tolerations",
        "nodes": {"selector": {"matchLabels": {"bench": "none"}}, "atRegistration": "none"},
    },
}
"""Every pod gets tolerations, and no node a taint."""

Say = Callable[[str], None]
_numbers = itertools.count()


class Bench:
    """One sandbox, with the operations that all scenarios need."""

    def __init__(self, sandbox: Sandbox, client: Client, say: Say) -> None:
        self.sandbox = sandbox
        self.client = client
        self.say = say
        self.audit = AuditLog(sandbox.audit_log)
        self.pids = {
            each.container: each.pid for each in sandbox.containers() if each.container in (WEBHOOK, CONTROLLER)
        }

    async def webhook(self) -> tuple[str, str]:
        """Where the webhook listens on this machine, and the name in its certificate."""
        for pod in (await self.client.list(PODS, namespace=DEFAULT_NAMESPACE)).items:
            if pod["metadata"]["name"].startswith(f"{names.WEBHOOK}-"):
                return f"{loopback_of(pod['status']['podIP'])}:9443", f"{names.WEBHOOK}.{DEFAULT_NAMESPACE}.svc"
        raise RuntimeError("there is no pod of the webhook")

    async def retire_operator(self) -> None:
        """The control runs change what the operator would set right again, and its CPU time is not measured."""
        await self.client.patch(
            DEPLOYMENTS, names.OPERATOR, MergePatch({"spec": {"replicas": 0}}), namespace=DEFAULT_NAMESPACE
        )

        async def is_gone() -> bool:
            return all(each.container != "operator" for each in self.sandbox.containers())

        if not await until(is_gone, seconds=60):
            raise RuntimeError("the operator's pod does not end")

    async def namespace(self) -> str:
        return await load.make_namespace(self.client, f"bench-{next(_numbers)}-{time.monotonic_ns() % 10**9}")

    async def images(self, prefix: str, count: int = IMAGES, **description: Any) -> list[str]:
        """Push new images of two platforms; nobody has asked the registry for them yet."""
        described = {
            f"quay.io/{prefix}/app{number}:1": {"platforms": ["linux/amd64", "linux/arm64"], **description}
            for number in range(count)
        }
        await self.sandbox.registry.seed(described)
        return list(described)

    def cpu(self, *roles: str) -> float:
        """CPU seconds that these roles have used; without arguments, all roles."""
        return sum(cpu_seconds(pid) for role, pid in self.pids.items() if role in roles or not roles)

    async def policy(self, spec: dict[str, Any]) -> None:
        """Set the cluster's PlacementPolicy, and wait until the roles know it."""
        await self.client.apply(POLICIES, {
            "apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": names.SINGLETON},
            "spec": spec,
        })  # fmt: skip
        await asyncio.sleep(1)

    async def requests(self, namespace: str) -> tuple[int, int]:
        """(requests without events, events) by polyarch in this namespace since the mark."""
        counts = await self.audit.requests(OURS, namespaces=[namespace])
        events = sum(count for what, count in counts.items() if what.endswith(" events"))
        return sum(counts.values()) - events, events

    async def gone(self, *namespaces: str) -> None:
        """Delete namespaces and wait for it, so that deletions do not load the API server during a measurement."""
        for namespace in namespaces:
            await self.client.delete(NAMESPACES, namespace)
        for namespace in namespaces:
            with contextlib.suppress(NotFound):
                while True:
                    await self.client.get(NAMESPACES, namespace)
                    await asyncio.sleep(0.5)


def pods(images: list[str], count: int) -> list[dict[str, Any]]:
    return [load.pod(images[number % len(images)]) for number in range(count)]


async def warm(bench: Bench) -> list[Figure]:
    """40 known images: a burst of 1000 pods, then 200 at 20 per second. Control runs: both without a webhook, and the
    burst with a webhook that answers a fixed patch."""
    images = await bench.images("warm")
    namespace = await bench.namespace()
    await load.drive(bench.client, namespace, pods(images, len(images)), in_flight=8)
    bench.audit.mark()
    before = bench.cpu()
    burst = await load.drive(bench.client, namespace, pods(images, BURST))
    spent = bench.cpu() - before
    requests, events = await bench.requests(namespace)
    paced = await load.drive(bench.client, namespace, pods(images, 200), per_second=20)
    await bench.gone(namespace)
    async with without_webhook(bench.client):
        control_namespace = await bench.namespace()
        control = await load.drive(bench.client, control_namespace, pods(images, BURST))
        control_paced = await load.drive(bench.client, control_namespace, pods(images, 200), per_second=20)
    await bench.gone(control_namespace)
    return [
        Figure("warm burst, released", burst.per_second, "pods/s", "issue", 330, at_most=False,
               note=f"control {control.per_second:.0f}/s"),
        Figure("warm burst, of the control run", 100 * burst.per_second / control.per_second, "%"),
        Figure("warm burst, p50", percentile(burst.times, 50), "ms", "issue", 150,
               note=f"control {percentile(control.times, 50):.0f} ms"),
        Figure("warm burst, placed at admission", 100 * burst.inline / BURST, "%", "PL-110", 99, at_most=False),
        Figure("warm burst, API requests", requests / BURST, "per pod", "PL-800", 0.0, compared=True,
               note=f"and {events} events"),
        Figure("warm burst, CPU of polyarch", 1000 * spent / BURST, "ms/pod", "PL-801", 0.6, compared=True),
        Figure("warm paced, p50", percentile(paced.times, 50), "ms", "issue", 15,
               note=f"control {percentile(control_paced.times, 50):.1f} ms"),
        Figure("warm paced, p99", percentile(paced.times, 99), "ms", "issue", 40,
               note=f"control {percentile(control_paced.times, 99):.1f} ms"),
        *await _with_go(bench, images, burst),
    ]  # fmt: skip


async def _with_go(bench: Bench, images: list[str], ours: load.Run) -> list[Figure]:
    """The same burst with a webhook in Go that answers a fixed patch; nothing if there is no Go."""
    async with fixed_patch(bench.client, bench.sandbox.pki.webhook_folder) as pid:
        if pid is None:
            bench.say("no Go: the burst is not compared with a webhook in it")
            return []
        namespace = await bench.namespace()
        before = cpu_seconds(pid)
        burst = await load.drive(bench.client, namespace, pods(images, BURST))
        spent = cpu_seconds(pid) - before
    await bench.gone(namespace)
    return [
        Figure("warm burst, released with a fixed patch from Go", burst.per_second, "pods/s",
               note=f"{100 * burst.constrained / BURST:.0f} % patched, p50 {percentile(burst.times, 50):.0f} ms"),
        Figure("warm burst, CPU of that webhook", 1000 * spent / BURST, "ms/pod"),
        Figure("warm burst, of the fixed patch's", 100 * ours.per_second / burst.per_second, "%"),
    ]  # fmt: skip


async def cold(bench: Bench) -> list[Figure]:
    """40 unknown images, 25 pods of each, in one burst."""
    images = await bench.images("cold")
    namespace = await bench.namespace()
    bench.audit.mark()
    before = bench.cpu()
    burst = await load.drive(bench.client, namespace, pods(images, BURST))
    spent = bench.cpu() - before
    requests, events = await bench.requests(namespace)
    await bench.gone(namespace)
    async with without_webhook(bench.client):
        control_namespace = await bench.namespace()
        control = await load.drive(bench.client, control_namespace, pods(images, BURST))
    await bench.gone(control_namespace)
    return [
        Figure("cold burst, released", burst.per_second, "pods/s", "issue", 250, at_most=False,
               note=f"control {control.per_second:.0f}/s"),
        Figure("cold burst, API requests", requests / BURST, "per pod", "PL-800", 1.05, note=f"and {events} events"),
        Figure("cold burst, constrained", 100 * burst.constrained / BURST, "%", "PL-220", 100, at_most=False),
        Figure("cold burst, CPU of polyarch", 1000 * spent / BURST, "ms/pod"),
        Figure("cold burst, not released", len(burst.unreleased), "pods", "PL-330", 0),
    ]  # fmt: skip


async def gated(bench: Bench) -> list[Figure]:
    """Placement at admission is off: 1000 pods of known images, each gated, decided and released by the controller."""
    images = await bench.images("gated")
    warming = await bench.namespace()
    await load.drive(bench.client, warming, pods(images, len(images)), in_flight=8)
    await bench.policy({"inline": {"enabled": False}, "events": "problems"})
    namespace = await bench.namespace()
    try:
        bench.audit.mark()
        before = bench.cpu(CONTROLLER)
        run = await load.drive(bench.client, namespace, pods(images, BURST))
        spent = bench.cpu(CONTROLLER) - before
        requests, events = await bench.requests(namespace)
    finally:
        await bench.client.delete(POLICIES, names.SINGLETON)
    await bench.gone(warming, namespace)
    return [
        Figure("gated burst, released", run.per_second, "pods/s"),
        Figure("gated burst, CPU of the controller", 1000 * spent / BURST, "ms/pod", "PL-801", 1.5, compared=True),
        Figure("gated burst, API requests", requests / BURST, "per pod", "PL-800", 1.05, compared=True,
               note=f"and {events} events"),
        Figure("gated burst, constrained", 100 * run.constrained / BURST, "%", "PL-220", 100, at_most=False),
    ]  # fmt: skip


async def deployment(bench: Bench) -> list[Figure]:
    """A Deployment of 1000 replicas of an unknown image, and its control run."""
    [image] = await bench.images("rollout", 1)
    bench.audit.mark()
    watched, namespace = await roll_out(bench, image)
    requests, events = await bench.requests(namespace)
    await bench.gone(namespace)
    async with without_webhook(bench.client):
        control, control_namespace = await roll_out(bench, image)
    await bench.gone(control_namespace)
    return [
        Figure("Deployment of 1000, cold, released", watched.per_second, "pods/s", "issue", 350, at_most=False,
               note=f"control {control.per_second:.0f}/s"),
        Figure("Deployment of 1000, of the control run", 100 * watched.per_second / control.per_second, "%"),
        Figure("Deployment of 1000, API requests", requests / BURST, "per pod", "PL-800", 1.05,
               note=f"and {events} events"),
        Figure("Deployment of 1000, constrained", 100 * watched.constrained / BURST, "%", "PL-220", 100, at_most=False),
    ]  # fmt: skip


async def roll_out(bench: Bench, image: str) -> tuple[load.Run, str]:
    """Create the Deployment and wait until all its pods are released; also returns their namespace."""
    namespace = await bench.namespace()
    template = load.pod(image)
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "many"},
        "spec": {
            "replicas": BURST,
            "selector": {"matchLabels": {"app": "load"}},
            "template": {"metadata": {"labels": {"app": "load"}}, "spec": dict(template["spec"])},
        },
    }
    document["spec"]["template"]["spec"].pop("terminationGracePeriodSeconds")  # type: ignore[index]
    run = await load.watch_released(
        bench.client, namespace, BURST, start=lambda: bench.client.create(DEPLOYMENTS, document, namespace=namespace)
    )
    return run, namespace


async def missing(bench: Bench) -> list[Figure]:
    """200 pods of an image that does not exist; the policy releases all of them within a minute."""
    namespace = await bench.namespace()
    image = f"quay.io/nobody/missing{next(_numbers)}:1"
    log = RegistryLog(bench.sandbox.registry_log)
    run = await load.drive(bench.client, namespace, pods([image], 200), deadline=60)
    asked = log.count(lambda line: "nobody/missing" in line.get("path", ""))
    await bench.gone(namespace)
    return [
        Figure("200 pods of a missing image, registry requests", asked, "requests", "PL-331", 10, compared=True),
        Figure("200 pods of a missing image, not released", len(run.unreleased), "pods", "PL-330", 0),
    ]


async def dry_runs(bench: Bench) -> list[Figure]:
    """400 server-side dry runs by one user must not slow down the pods of others."""
    images = await bench.images("dry", 4)
    namespace = await bench.namespace()
    await load.drive(bench.client, namespace, pods(images, 4), in_flight=4)
    alone = await load.drive(bench.client, namespace, pods(images, 100), in_flight=4)

    async def dry(number: int) -> None:
        image = f"quay.io/dry/unknown{number}:1"
        await bench.client.create(PODS, load.pod(image), namespace=namespace, dry_run=True)

    async def flood() -> None:
        for start in range(0, 400, 32):
            await asyncio.gather(*(dry(number) for number in range(start, min(400, start + 32))))

    flooding = asyncio.create_task(flood())
    beside = await load.drive(bench.client, namespace, pods(images, 100), in_flight=4)
    await flooding
    await bench.gone(namespace)
    ratio = percentile(beside.times, 50) / max(percentile(alone.times, 50), 1e-9)
    return [
        Figure("beside 400 dry runs, placed at admission", beside.inline, "of 100 pods", "PL-109", 100, at_most=False),
        Figure("beside 400 dry runs, p50", ratio, "times alone", note="the API server is busy with them too"),
    ]


async def memory(bench: Bench) -> list[Figure]:
    """Resident memory with 10 000 gated pods."""
    await bench.policy({"onUnresolved": {"action": "hold", "retryWindow": "5s"}, "events": "problems"})
    namespace = await bench.namespace()
    image = f"quay.io/nobody/held{next(_numbers)}:1"
    run = await load.drive(bench.client, namespace, pods([image], 10_000), deadline=0.0)
    await asyncio.sleep(20)
    held = resident_mib(bench.pids[CONTROLLER])
    webhook = resident_mib(bench.pids[WEBHOOK])
    return [
        Figure(f"controller with {run.pods} gated pods", held, "MiB", "PL-810", 120, compared=True),
        Figure("webhook after that", webhook, "MiB", "PL-810", 110, compared=True),
    ]


REVIEWS = 6000


async def reviews(bench: Bench) -> list[Figure]:
    """The webhook alone: 16 concurrent reviews of 10 KiB over TLS, sent by another process. Then the same with
    ArchitectureTaints, so that each pod gets tolerations, too: the run before is the control run."""
    [image] = await bench.images("reviews", 1)
    address, name = await bench.webhook()
    registered = await bench.client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    ca = bench.sandbox.folder.root / "webhook-ca.crt"
    ca.write_bytes(base64.b64decode(registered["webhooks"][0]["clientConfig"]["caBundle"]))
    path = registered["webhooks"][0]["clientConfig"]["service"]["path"]
    pid = bench.pids[WEBHOOK]

    async def run(count: int) -> dict[str, float]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.reviews", f"{address}{path}", name, str(ca), "default", image, str(count),
            "16",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
        measured: dict[str, float] = msgspec.json.decode(output)
        return measured

    async def spent_on() -> tuple[dict[str, float], float]:
        """What was measured, and the milliseconds of CPU that a review took."""
        await run(200)
        before = cpu_seconds(pid)
        measured = await run(REVIEWS)
        return measured, 1000 * (cpu_seconds(pid) - before) / REVIEWS

    measured, alone = await spent_on()
    await bench.client.create(ARCHITECTURE_TAINTS, TAINTS)
    try:
        await asyncio.sleep(2)  # the webhook watches it, and then the namespaces
        tolerated, together = await spent_on()
    finally:
        await bench.client.delete(ARCHITECTURE_TAINTS, TAINTS["metadata"]["name"])
    return [
        Figure("webhook, CPU of a review", alone, "ms", "PL-801", 0.4, compared=True),
        Figure("webhook, reviews", measured["per_second"], "per second", "issue", 1800, at_most=False),
        Figure("webhook, p50 at 16 in flight", measured["p50_ms"], "ms"),
        Figure("webhook, reviews answered with a patch", 100 * measured["patched"] / measured["reviews"], "%",
               "PL-110", 100, at_most=False),
        Figure("webhook, CPU that tolerations add to a review", together - alone, "ms", "TN-091", 0.1),
        Figure("webhook, reviews answered with tolerations", 100 * tolerated["tolerated"] / tolerated["reviews"], "%",
               "TN-040", 100, at_most=False),
    ]  # fmt: skip


class RegistryLog:
    """Requests in the registry's log since this object was created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def count(self, matches: Callable[[dict[str, Any]], bool]) -> int:
        with self._path.open("rb") as log:
            log.seek(self._offset)
            return sum(1 for line in log if line.endswith(b"\n") and matches(msgspec.json.decode(line)))


SCENARIOS = {
    "reviews": reviews,
    "warm": warm,
    "cold": cold,
    "gated": gated,
    "deployment": deployment,
    "missing": missing,
    "dry-runs": dry_runs,
    "memory": memory,
}


async def run(wanted: list[str], say: Say) -> list[Figure]:
    """Run the scenarios on a sandbox of their own; ``memory`` gets a fresh one."""
    figures: list[Figure] = []
    for group in ([name for name in wanted if name != "memory"], [name for name in wanted if name == "memory"]):
        if group:
            figures += await _run_together(group, say)
    return figures


async def _run_together(wanted: list[str], say: Say) -> list[Figure]:
    sandbox = await Sandbox.start(Settings(name="bench", nodes=NODES), fresh=True)
    figures: list[Figure] = []
    try:
        async with sandbox.client() as client:
            bench = Bench(sandbox, client, say)
            await bench.retire_operator()
            idle = sum(resident_mib(pid) for pid in bench.pids.values())
            if wanted != ["memory"]:
                figures.append(Figure("webhook and controller, idle", idle, "MiB", "issue", 120, compared=True))
            for name in wanted:
                say(name)
                try:
                    figures += await SCENARIOS[name](bench)
                except ApiError as error:
                    say(f"{name}: {error}")
                    raise
    finally:
        await sandbox.stop()
    return figures
