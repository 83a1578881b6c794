"""Pods that need CPUs of one NUMA cell, sent through the scheduler of cells; they come and go, no kubelet refuses one.

At most half of the cells are wanted, so none has to wait for long.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from typing import Any, Final

from bench import load
from bench.soak.stage import PUBLIC, Stage
from bench.soak.trial import AWAY, Trial
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import PODS
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.nodes.pods import Pod

SPACE: Final = "soak-cells"
NUMA: Final = "2x8"
SIZES: Final = (2, 3, 4, 5)
MOST: Final = 12
PAUSE: Final = 3.0
WAIT_SECONDS: Final = 120.0
"""How long a pod may wait for its node: a killed scheduler has to come back and to get its Lease."""
MOST_REFUSED: Final = 0.02
"""Of all pods: the share that kubelets may refuse, as an exporter that is killed does not say what is taken."""
IMAGE: Final = f"{PUBLIC}/cells:1"


class Cells:
    """The pods ``cell-0`` …"""

    def __init__(self, trial: Trial, stage: Stage) -> None:
        self._trial, self._stage, self._client = trial, stage, trial.client
        self._born: dict[str, float] = {}
        self._dies: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._late: set[str] = set()

    async def prepare(self) -> None:
        await load.make_namespace(self._client, SPACE)
        await self._stage.push(PUBLIC, ["cells"], ASSUMED_ARCHITECTURES)

    async def churn(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(PAUSE)
            if not self._trial.churning:
                return
            if len(self._born) < MOST:
                await self._create(f"cell-{number:05}")
            for name in [name for name, at in self._dies.items() if at < time.monotonic()][:4]:
                await self._end(name)
            with contextlib.suppress(*AWAY):
                await self._look()

    async def _create(self, name: str) -> None:
        document = _pod(name, self._trial.dice.choice(SIZES))
        if await self._trial.tried("pods for cells", self._client.create(PODS, document, namespace=SPACE)):
            self._born[name] = time.monotonic()
            self._dies[name] = time.monotonic() + self._trial.dice.uniform(15, 90)

    async def _end(self, name: str) -> None:
        with contextlib.suppress(NotFound, *AWAY):
            await self._client.delete(PODS, name, namespace=SPACE)
        self._dies[name] = time.monotonic() + 10

    async def _look(self) -> dict[str, Pod]:
        found = (await self._client.list(PODS, namespace=SPACE, type=Pod)).items
        pods = {each.metadata.name: each for each in found}
        for name in [name for name in self._born if name not in pods]:
            self._born.pop(name)
            self._dies.pop(name)
        for name, pod in pods.items():
            since = self._born.setdefault(name, time.monotonic())  # of a create request that a fault answered
            self._dies.setdefault(name, since)
            if pod.status.phase == "Failed" and name not in self._refused:
                self._refused[name] = f"{pod.spec.node_name}: {pod.status.reason}"
                self._dies[name] = 0.0
            if not pod.spec.node_name and time.monotonic() - since > WAIT_SECONDS and name not in self._late:
                self._late.add(name)
                self._trial.problem("stuck", f"pod {name} of {SPACE}: no node after {WAIT_SECONDS:.0f} s")
        return pods

    async def _waiting(self) -> list[str]:
        return [
            f"pod {name} of {SPACE}: no node" for name, pod in (await self._look()).items() if not pod.spec.node_name
        ]

    async def settle(self) -> None:
        """All have a node; how many were refused; then all go."""
        await self._trial.cleared("stuck", self._waiting, seconds=WAIT_SECONDS)
        made = self._trial.counts["pods for cells"]
        self._trial.counts["pods for cells that a kubelet refused"] = len(self._refused)
        if len(self._refused) > MOST_REFUSED * made:
            reasons = Counter(each.partition(": ")[2] for each in self._refused.values())
            self._trial.problem("wrong", f"kubelets refused {len(self._refused)} of {made} pods for cells: {reasons}")


def _pod(name: str, cpus: int) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "resources": {"limits": {"cpu": str(cpus), "memory": "64Mi"}}}
    spec = {
        "schedulerName": SchedulerSettings().name,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
