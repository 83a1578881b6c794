"""PL-502, PL-810: what a role costs from its start to its rest, against what its requests and limits were derived from.

A sandbox runs all of them. Every container is killed once and its kubelet starts it again, into a control group of its
own: CPU until it is ready, and memory once it has rested. The start has compiled bytecode, as the image has it. Then
all are started once more with the CPU that they request and no more, which is what a busy node leaves them (root only).

Each round of the control does nothing of polyarch's: it imports modules of Python's own library. Machines that are
shared are not equally fast from one minute to the next, so starts are compared as so many rounds of the control.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from bench.cgroups import ProcessCgroup, proportional_mib
from bench.measure import Figure, resident_mib
from bench.runtime import Say
from bench.soak.stage import MONITOR
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.operands import IDLE_MEMORY_MIB, START_CPU_SECONDS, STARTUP_MARGIN, STARTUP_SECONDS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.quantity import thousandths
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.pods.containers import records_of
from polyarch.sandbox.processes import is_running, load
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.names import SINGLETON as TAINTS

SECONDS: Final = float(STARTUP_SECONDS)
REST: Final = 30.0
"""Seconds between the last start and the look at memory."""
SETTLED: Final = 15.0
"""Seconds without a change among the processes, before the first restart."""
CPU_BUDGET: Final = 1.0
MEMORY_BUDGETS: Final = {"operator": 50.0, "node-side": 30.0, "numa-extender": 45.0}
"""The extender is the only one that loads numpy."""
USUAL_MEMORY_BUDGET: Final = 40.0
ROUNDS: Final = 3
"""Imports of a role, and rounds of the control; the least of them counts."""
PROGRAMS: Final = {
    "operator": ("role_process", "operator"),
    "web-hook": ("role_process", "placement_webhook"),
    "controller": ("role_process", "placement_controller"),
    "node-side": ("role_process", "exec_monitor", "polyarch.placement.exec_monitor_node"),
    "handler": ("role_process", "exec_monitor", "polyarch.placement.exec_monitor_handler"),
    "taints": ("role_process", "taints"),
    "builder": ("role_process", "builder"),
    "resource-topology-exporter": ("numa_process", "numa_exporter"),
    "numa-extender": ("numa_process", "numa_extender"),
}
"""Container → module of ``polyarch.cli.roles``, of ``polyarch.run``, and what that imports when it runs."""
CONTROL: Final = "import argparse, asyncio, email.message, http.client, json, logging, ssl, typing, urllib.request"
PROFILE: Final = """
import importlib._bootstrap as bootstrap, json, sys, time
clock, load, inner, own = time.process_time_ns, bootstrap._load_unlocked, [0], {}
def measured(spec):
    begin = clock()
    inner.append(0)
    try:
        return load(spec)
    finally:
        taken = clock() - begin
        own[spec.name] = taken - inner.pop()
        inner[-1] += taken
bootstrap._load_unlocked = measured
%s
print(json.dumps([clock(), own]))
"""
"""Prints the CPU time of the process, and of each module without what it imports; nanoseconds."""


def start(say: Say) -> list[Figure]:
    figures = [figure for container in PROGRAMS for figure in _imports(container, say)]
    return [*figures, *asyncio.run(_start(say))]


# -- imports -----------------------------------------------------------------------------------------------------------


def _imports(container: str, say: Say) -> list[Figure]:
    program, role, *more = PROGRAMS[container]
    modules = (
        "polyarch.cli.roles.pod_start",
        "polyarch.run.libraries",
        f"polyarch.cli.roles.{program}",
        f"polyarch.run.{role}",
        *more,
    )
    seconds, packages = _least("import " + ", ".join(modules))
    greatest = ", ".join(f"{name} {taken * 1000:.0f}" for name, taken in packages.most_common(6))
    say(f"{container}: {seconds * 1000:.0f} ms of CPU for imports")
    return [Figure(f"imports of {container}", seconds * 1000, "ms CPU", note=f"of that {greatest}")]


def _least(code: str) -> tuple[float, Counter[str]]:
    """CPU seconds of a program that imports, and of its packages; Python's own modules are one."""
    runs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-P", "-c", PROFILE % code]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    seconds = min(total for total, _ in runs) / 1e9
    packages: Counter[str] = Counter()
    for name in runs[-1][1]:
        top = name.partition(".")[0]
        top = "Python" if top in sys.stdlib_module_names else top
        packages[top] += min(own.get(name, 0) for _, own in runs) / 1e9
    return seconds, packages


def control() -> float:
    """CPU seconds of one round of the control."""
    return _least(CONTROL)[0]


# -- starts ------------------------------------------------------------------------------------------------------------


async def _start(say: Say) -> list[Figure]:
    name = f"bench-start-{os.getpid()}"
    settings = Settings(name=name, nodes={"amd64": 1}, numa=NumaLayout.parse("2x4"), replicas=1, builds=True)
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    groups = {container: ProcessCgroup(f"polyarch-{name}-{container}") for container in START_CPU_SECONDS}
    try:
        async with sandbox.client() as client:
            await client.patch(CPPCS, names.SINGLETON, MergePatch(MONITOR))
            taints = {"apiVersion": ARCHITECTURE_TAINTS.api_version, "kind": ARCHITECTURE_TAINTS.kind}
            await client.create(ARCHITECTURE_TAINTS, {**taints, "metadata": {"name": TAINTS}, "spec": {}})
            starts = Starts(sandbox, client, groups, say)
            await starts.settle()
            figures = [figure for each in groups for figure in await starts.measure(each)]
            await asyncio.sleep(REST)
            figures += [starts.memory(each) for each in groups]
            if all(group.is_counted for group in groups.values()):
                figures += await starts.throttled()
            return figures
    finally:
        await sandbox.delete()
        for group in groups.values():
            group.close()


class Starts:
    """The containers of the sandbox, each with the control group that its process is moved to when it starts."""

    def __init__(self, sandbox: Sandbox, client: Client, groups: Mapping[str, ProcessCgroup], say: Say) -> None:
        self._sandbox, self._client, self._groups, self._say = sandbox, client, groups, say

    async def settle(self) -> None:
        """Wait until all are ready and none has been replaced for a while: settings have arrived everywhere."""
        for container in self._groups:
            await self._until_ready(container, 0)
        known, since = self._pids(), time.monotonic()
        while time.monotonic() - since < SETTLED:
            await asyncio.sleep(1)
            if known != (now := self._pids()):
                known, since = now, time.monotonic()

    async def measure(self, container: str) -> list[Figure]:
        """CPU of one start."""
        await self._until_ready(container, 0)
        group, spent = self._groups[container], self._groups[container].cpu_seconds
        await self._restart(container)
        await self._until_ready(container, 1)
        seconds, round_ = spent(), await asyncio.to_thread(control)
        self._say(
            f"{container}: {seconds:.2f} s of CPU until it was ready, {seconds / round_:.1f} rounds of the control"
        )
        note = "" if group.is_counted else "of the process, not of a control group"
        return [
            Figure(f"start of {container}", seconds, "s CPU", "PL-502", CPU_BUDGET, note=note),
            Figure(f"start of {container} in rounds", seconds / round_, "× control", "PL-502", compared=True),
        ]

    def memory(self, container: str) -> Figure:
        group = self._groups[container]
        working, resident = group.working_set_mib(), resident_mib(group.pid)
        shares = proportional_mib(group.pid)
        self._say(f"{container}: working set {working:.1f} MiB, resident {resident:.1f}, proportional {shares:.1f}")
        budget = MEMORY_BUDGETS.get(container, USUAL_MEMORY_BUDGET)
        note = f"resident {resident:.1f}, proportional {shares:.1f}; recorded {IDLE_MEMORY_MIB[container]}"
        return Figure(f"working set of {container}", working, "MiB", "PL-810", budget, compared=True, note=note)

    async def throttled(self) -> list[Figure]:
        """Seconds until each is ready with the CPU that it requests, all at once: together they request little."""
        requested = await self._requested()

        async def taken(container: str) -> float:
            await self._restart(container, requested[container])
            begin = time.monotonic()  # the kubelet has waited before that
            return await self._until_ready(container, 2) - begin

        seconds_taken = await asyncio.gather(*map(taken, self._groups))
        figures = []
        for container, seconds in zip(self._groups, seconds_taken, strict=True):
            self._say(f"{container}: ready after {seconds:.0f} s with {requested[container] * 1000:.0f}m")
            limit = STARTUP_SECONDS / STARTUP_MARGIN
            figures.append(Figure(f"start of {container} at its request", seconds, "s", "PL-502", limit))
        return figures

    async def _requested(self) -> dict[str, float]:
        """Cores by container."""
        pods = (await self._client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
        specs = [each for pod in pods for each in pod["spec"]["containers"]]
        return {each["name"]: thousandths(each["resources"]["requests"]["cpu"], "up") / 1000 for each in specs}

    async def _restart(self, container: str, cores: float | None = None) -> None:
        """End its process and wait for the next, which goes to the group at once."""
        group, before = self._groups[container], self._pid(container)
        if group.is_counted and cores is not None:
            group.throttle(cores)
        os.kill(before, signal.SIGKILL)
        while (pid := self._pid(container)) in (0, before):  # noqa: ASYNC110 - the sandbox is another process
            await asyncio.sleep(0.001)
        group.hold(pid)

    def _pid(self, container: str) -> int:
        return self._pids().get(container, 0)

    def _pids(self) -> dict[str, int]:
        records = load(records_of(self._sandbox.folder.root)).values()
        return {each.container: each.pid for each in records if is_running(each)}

    async def _until_ready(self, container: str, restarts: int) -> float:
        """When it was, by the monotonic clock."""

        async def ready() -> bool:
            pods = (await self._client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
            statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", ())]
            return any(
                each["name"] == container and each["ready"] and each["restartCount"] >= restarts for each in statuses
            )

        if not await until(ready, seconds=SECONDS, every=0.2):
            raise RuntimeError(f"{container} is not ready after {SECONDS:.0f} s")
        return time.monotonic()


SCENARIOS: Final = {"start": start}
