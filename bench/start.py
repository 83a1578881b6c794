"""PL-502: the CPU that each role takes until it is ready, against what its request was derived from.

Every container of polyarch is killed once in a sandbox that runs all of them; its kubelet starts it again. What is
measured is a start with compiled bytecode, as the image has it.
"""

import asyncio
import os
import signal
from typing import Final

from bench.measure import Figure, cpu_seconds
from bench.runtime import Say
from bench.soak.stage import MONITOR
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.operands import START_CPU_SECONDS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.names import SINGLETON as TAINTS

SECONDS: Final = 180.0


def start(say: Say) -> list[Figure]:
    return asyncio.run(_start(say))


async def _start(say: Say) -> list[Figure]:
    name = f"bench-start-{os.getpid()}"
    settings = Settings(name=name, nodes={"amd64": 1}, numa=NumaLayout.parse("2x4"), replicas=1, builds=True)
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    try:
        async with sandbox.client() as client:
            await client.patch(CPPCS, names.SINGLETON, MergePatch(MONITOR))
            await client.create(
                ARCHITECTURE_TAINTS,
                {
                    "apiVersion": ARCHITECTURE_TAINTS.api_version,
                    "kind": ARCHITECTURE_TAINTS.kind,
                    "metadata": {"name": TAINTS},
                    "spec": {},
                },
            )
            return [await _restarted(sandbox, client, each, say) for each in START_CPU_SECONDS]
    finally:
        await sandbox.delete()


async def _restarted(sandbox: Sandbox, client: Client, container: str, say: Say) -> Figure:
    def pid() -> int:
        return next((each.pid for each in sandbox.containers() if each.container == container), 0)

    async def ready(restarts: int = 0) -> bool:
        pods = (await client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
        statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", ())]
        return any(
            each["name"] == container and each["ready"] and each["restartCount"] >= restarts for each in statuses
        )

    for restarts in (0, 1):
        if restarts:
            os.kill(pid(), signal.SIGKILL)
        if not await until(lambda restarts=restarts: ready(restarts), seconds=SECONDS, every=0.1):
            raise RuntimeError(f"{container} is not ready after {SECONDS:.0f} s")
    seconds = cpu_seconds(pid())
    say(f"{container}: {seconds:.2f} s of CPU until it was ready")
    return Figure(f"start of {container}", seconds, "s CPU", "PL-502", START_CPU_SECONDS[container], compared=True)


SCENARIOS: Final = {"start": start}
