"""Pods that kubelets refuse for their zones, on random machines: some with the stock scheduler, none with ours.

``POLYARCH_TEST_SEED`` repeats a run whose seed is printed above its tables; ``POLYARCH_TEST_PODS=200`` has that many
pods for each scheduler instead of 40."""

import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from device_plugin import plugged_in
from kubelet_real_pods import SEED, decided, decision, random_pod
from numa_fleet import Fleet

from polyarch.cli.output.tables import Row, table
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.kubelet_model.layout import node as layout_node
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.real.cgroups import Cgroups
from polyarch.sandbox.tasks import until

MACHINES = {
    "two zones": "2x8",
    "four zones": "4x4,memory=24Gi",
    "sub-NUMA clustering": "4x4,sockets=2,threads=2,memory=24Gi",
    "CXL": "2x8,cpuless=16Gi",
    "devices": "2x8,devices=example.com/nic:2,devices=example.com/gpu:1",
}
PODS_EACH, WAVE = int(os.environ.get("POLYARCH_TEST_PODS", "40")), 8
STOCK, OURS = "default-scheduler", "topo-aware-scheduler"
UNALIGNED = "TopologyAffinityError"
HEADER = ("MACHINE", "SCHEDULER", "PODS", "ADMITTED", UNALIGNED, "OTHERWISE REFUSED", "WAITING", "OF THESE NEEDLESSLY")
QUIET_SECONDS = 2.0
LATE_SECONDS = 60.0
"""In which the scheduler is to see what has become free."""

pytestmark = [pytest.mark.req("NS-164"), pytest.mark.timeout(600 + 20 * PODS_EACH)]
Machines = Callable[[NumaLayout], Awaitable[Fleet]]


@pytest.fixture
async def machines(cluster: Sandbox, client: Client) -> AsyncIterator[Machines]:
    """Makes the nodes of the shared cluster others; their devices are there until the end of the test."""
    with contextlib.ExitStack() as plugins:

        async def become(layout: NumaLayout) -> Fleet:
            settings = msgspec.structs.replace(cluster.state.settings, numa=msgspec.structs.replace(layout, devices=()))
            sandbox = await Sandbox.start(settings, home=cluster.folder.root.parent)
            devices = layout_node(layout).machine.devices
            fleet = Fleet(sandbox, client, devices)
            nodes = [name for name, _, _ in await sandbox.nodes()]
            if devices:
                plugins.enter_context(plugged_in([fleet.kubelet(node) for node in nodes], devices))
            await fleet.follows(*nodes)
            return fleet

        yield become


@pytest.fixture(scope="module")
def unaligned() -> Iterator[Counter[str]]:
    """How many pods of the stock scheduler were refused, by machine; on one machine it may have been lucky."""
    found: Counter[str] = Counter()
    yield found
    assert len(found) < len(MACHINES) or found.total(), f"seed {SEED}: nothing to be better than"


class History:
    """Random pods in waves on the same nodes, with one scheduler."""

    def __init__(self, client: Client, namespace: str, fleet: Fleet, model: Node, scheduler: str, seed: str) -> None:
        self._client, self._namespace, self._fleet = client, namespace, fleet
        self._ours = scheduler == OURS
        chance = random.Random(seed)
        names = [f"pod-{number:03}" for number in range(PODS_EACH)]
        self._waves = [names[first : first + WAVE] for first in range(0, PODS_EACH, WAVE)]
        self._documents = {name: random_pod(chance, name, model, schedulerName=scheduler) for name in names}
        self._ends = {name: number // WAVE + chance.choice((1, 1, 1, 2, 3)) for number, name in enumerate(names)}
        """The wave with which a pod is deleted."""
        self._probed = chance.sample(names, len(names))
        self.seen: dict[str, str] = {}
        """What became of each pod: ``admitted``, ``waiting``, or the kubelet's reason."""
        self.needless: dict[str, str] = {}
        """Pods that waited although a kubelet would have admitted them, with what their scheduler said."""

    async def play(self, nodes: Sequence[str]) -> None:
        for number, names in enumerate(self._waves):
            await self._delete([name for name, end in self._ends.items() if end == number])
            for name in names:
                await self._client.create(PODS, self._documents[name], namespace=self._namespace)
            if self._ours and number == len(self._waves) // 2:
                self._kill_scheduler(nodes)
            await self._settle()
            waiting = [name for name in self._probed if self.seen.get(name) == "waiting" and self._ends[name] > number]
            for name in waiting[:2] if self._ours else ():
                await self._probe(name, nodes)
        await self._delete(list(self._documents))
        await self._fleet.follows(*nodes)

    def row(self, machine: str, scheduler: str) -> tuple[str, ...]:
        counts = Counter(self.seen.values())
        refused = len(self.seen) - counts["admitted"] - counts["waiting"]
        amounts = (
            len(self.seen),
            counts["admitted"],
            counts[UNALIGNED],
            refused - counts[UNALIGNED],
            counts["waiting"],
        )
        return (machine, scheduler, *map(str, amounts), str(len(self.needless)) if self._ours else "")

    async def _states(self) -> dict[str, str]:
        pods = (await self._client.list(PODS, namespace=self._namespace)).items
        return {pod["metadata"]["name"]: _state(pod) for pod in pods}

    async def _settle(self) -> None:
        """Wait until each pod is where it stays, or has been tried in vain, and nothing changes any more."""
        found: dict[str, str] = {}
        since = 0.0

        async def are_settled() -> bool:
            nonlocal found, since
            now = await self._states()
            since = since + 0.25 if now == found else 0.0
            found = now
            return "" not in now.values() and since >= QUIET_SECONDS

        assert await until(are_settled, seconds=240, every=0.25), f"pods are on their way for ever: {found}"
        self.seen.update(found)

    async def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(NotFound):
                await self._client.delete(PODS, name, namespace=self._namespace, grace_period_seconds=0)

        async def are_gone() -> bool:
            return not set(names) & set(await self._states())

        assert await until(are_gone, seconds=180)

    async def _probe(self, name: str, nodes: Sequence[str]) -> None:
        """Whether a pod waits needlessly. Another one that waits may get the place for which a kubelet would have
        admitted this one, so the kubelets are asked once more in the end."""
        if not await self._is_admitted(name, nodes):
            return

        async def is_placed() -> bool:
            return (await self._states())[name] == "admitted"

        if await until(is_placed, seconds=LATE_SECONDS):
            self.seen[name] = "admitted"
        elif await self._is_admitted(name, nodes):
            pod = await self._client.get(PODS, name, namespace=self._namespace)
            self.needless[name] = str(pod["status"].get("conditions"))

    async def _is_admitted(self, name: str, nodes: Sequence[str]) -> bool:
        """Whether a kubelet would admit it: the kubelets themselves say so of a pod like it."""
        is_admitted = False
        for node in nodes:
            document = self._documents[name]
            probe = f"probe-{name}"
            spec = {**document["spec"], "nodeName": node}
            copy = {**document, "metadata": {"name": probe}, "spec": spec}
            await self._client.create(PODS, copy, namespace=self._namespace)
            is_admitted |= not (await decided(self._client, self._namespace, [probe]))[probe]
            await self._delete([probe])
        return is_admitted

    def _kill_scheduler(self, nodes: Sequence[str]) -> None:
        """Both containers of its pod, with what they know."""
        pids = Cgroups(self._fleet.sandbox.name).processes(*nodes)
        killed = [pid for pid in pids if {b"kube-scheduler", b"numa-extender"} & _words(pid)]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert len(killed) >= 2


def _words(pid: int) -> set[bytes]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return set()
    return {word.rpartition(b"/")[2] for word in words}


def _state(pod: Mapping[str, Any]) -> str:
    """``waiting``: its scheduler has tried; empty: nobody has decided yet."""
    if (reason := decision(pod)) is not None:
        return reason or "admitted"
    if pod["spec"].get("nodeName"):
        return ""
    conditions = pod.get("status", {}).get("conditions") or ()
    is_tried = any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)
    return "waiting" if is_tried else ""


def layout_of(machine: str) -> NumaLayout:
    """With settings of the kubelet by chance."""
    chance = random.Random(f"{SEED} {machine}")
    options = [f"scope={chance.choice(('container', 'pod'))}"]
    options.append(f"policy={chance.choice(('single-numa-node', 'single-numa-node', 'restricted'))}")
    if "threads" in MACHINES[machine]:
        options.append(f"full-pcpus-only={chance.choice(('true', 'false'))}")
    if "sockets" in MACHINES[machine]:
        options.append(f"prefer-closest-numa-nodes={chance.choice(('true', 'false'))}")
    return NumaLayout.parse(",".join((MACHINES[machine], *options)))


@pytest.mark.parametrize("machine", MACHINES)
async def test_kubelets_refuse_pods_of_the_stock_scheduler_and_none_of_ours(
    machines: Machines,
    client: Client,
    namespace: str,
    machine: str,
    unaligned: Counter[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = layout_of(machine)
    fleet = await machines(layout)
    nodes = [name for name, _, _ in await fleet.sandbox.nodes()]
    rows = []
    played = {}
    for scheduler in (STOCK, OURS):
        played[scheduler] = History(client, namespace, fleet, layout_node(layout), scheduler, f"{SEED} {machine}")
        await played[scheduler].play(nodes)
        rows.append(Row(played[scheduler].row(machine, scheduler)))
    with capsys.disabled():
        sys.stdout.write(f"\nseed {SEED}; {layout.text}\n{table(HEADER, rows)}")
    stock, ours = Counter(played[STOCK].seen.values()), Counter(played[OURS].seen.values())
    unaligned[machine] = stock[UNALIGNED]
    assert ours.keys() <= {"admitted", "waiting"}, f"seed {SEED}"
    assert not played[OURS].needless, f"seed {SEED}"
