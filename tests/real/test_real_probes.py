"""Starts of polyarch's roles on nodes that give each pod exactly the CPU that it requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_kubelets import Document, cgroup_of, eventually, is_ready, pod_document, pod_of, pods_of, statuses

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.operands import START_CPU_SECONDS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.quantity import thousandths
from polyarch.sandbox import operator
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.versions import host_architecture
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.names import SINGLETON as TAINTS

pytestmark = pytest.mark.timeout(1200)

HERE = "docker.io/library/nginx:1.27"
PERIOD = 100_000
"""Microseconds: the period of a kubelet's CPU quotas."""
START_SECONDS = 300.0
"""What startup probes allow."""
STEADY_SECONDS = 90.0
"""More than liveness probes need to end a container."""


class Throttle:
    """Gives each new pod of polyarch what its containers request, and nothing beyond, from its start."""

    def __init__(self, sandbox: Sandbox, client: Client, before: set[str]) -> None:
        self._sandbox = sandbox
        self._client = client
        self._before = before
        self.ready_after: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._held: list[Path] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for pod in await pods_of(self._client):
                uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
                if uid in self._since:
                    if is_ready(pod):
                        self.ready_after.setdefault(name, loop.time() - self._since[uid])
                elif uid not in self._before and self._set(pod):
                    self._since[uid] = loop.time()
            await asyncio.sleep(0.1)

    def lift(self) -> None:
        """From pods that are left as they are; one with a limit of its own is deleted."""
        for group in self._held:
            if group.is_dir():
                write_quota(group, None)

    def _set(self, pod: Document) -> bool:
        """False if the pod, or the container that has a limit of its own, has no control group yet."""
        group = cgroup_of(self._sandbox, pod["metadata"]["uid"], "cpu")
        if group is None:
            return False
        if any("cpu" in each["resources"].get("limits", {}) for each in pod["spec"]["containers"]):
            # A group may not have less than a group in it is given, so the container gets less when it has its own.
            limited = [each for each in group.iterdir() if each.is_dir() and is_limited(each)]
            for each in limited:
                write_quota(each, requested(pod))
            return bool(limited)
        write_quota(group, requested(pod))
        self._held.append(group)
        return True


def write_quota(group: Path, cores: float | None) -> None:
    if (quota := group / "cpu.cfs_quota_us").exists():
        quota.write_text("-1" if cores is None else str(round(cores * PERIOD)))
    else:
        (group / "cpu.max").write_text(f"{'max' if cores is None else round(cores * PERIOD)} {PERIOD}")


def is_limited(group: Path) -> bool:
    if (quota := group / "cpu.cfs_quota_us").exists():
        return int(quota.read_text()) > 0
    return not (group / "cpu.max").read_text().startswith("max")


def requested(pod: Document) -> float:
    """The CPUs that all containers of a pod request."""
    amounts = [each["resources"]["requests"]["cpu"] for each in pod["spec"]["containers"]]
    return sum(thousandths(each, "up") for each in amounts) / 1000


async def set_monitor(client: Client, *, enabled: bool) -> None:
    patch = MergePatch({"spec": {"plugins": {"execFormatErrorMonitor": {"enabled": enabled}}}})
    await client.patch(CPPCS, names.SINGLETON, patch)


@pytest.fixture
async def roles(client: Client) -> AsyncIterator[None]:
    """The monitor, and the role of taints, which leaves nodes of their architecture without one."""
    taints = {"apiVersion": ARCHITECTURE_TAINTS.api_version, "kind": ARCHITECTURE_TAINTS.kind}
    spec = {"primaryArchitectures": [host_architecture()]}
    await set_monitor(client, enabled=True)
    await client.create(ARCHITECTURE_TAINTS, {**taints, "metadata": {"name": TAINTS}, "spec": spec})
    yield
    await set_monitor(client, enabled=False)
    await client.delete(ARCHITECTURE_TAINTS, TAINTS)

    async def are_gone() -> bool:
        try:
            await client.get(ARCHITECTURE_TAINTS, TAINTS)
        except NotFound:
            return True
        return False

    await eventually(are_gone, "the taints are not removed")


@pytest.mark.req("PL-502")
async def test_every_role_starts_and_stays_on_exactly_what_it_requests(
    cluster: Sandbox, client: Client, namespace: str, roles: None
) -> None:
    before: dict[str, Document] = {}

    async def are_there() -> bool:
        before.clear()
        before.update({each["metadata"]["uid"]: each for each in await pods_of(client)})
        there = {each["name"] for pod in before.values() for each in pod["spec"]["containers"]}
        return there >= START_CPU_SECONDS.keys() and all(map(is_ready, before.values()))

    await eventually(are_there, "polyarch is not ready")
    throttle = Throttle(cluster, client, set(before))
    throttling = asyncio.create_task(throttle.run())
    try:
        for each in before.values():
            try:
                await client.delete(PODS, each["metadata"]["name"], namespace=DEFAULT_NAMESPACE)
            except NotFound:
                continue
        found: list[Document] = []

        async def have_started() -> bool:
            found[:] = await pods_of(client)
            old = {each["metadata"]["uid"] for each in found} & before.keys()
            return not old and len(found) >= len(before) and all(map(is_ready, found))

        def told() -> str:
            return str({each["metadata"]["name"]: statuses(each) for each in found if not is_ready(each)})

        await eventually(have_started, told, START_SECONDS)
        await operator.until_asked(client)
        await client.create(PODS, pod_document("app", {"name": "app", "image": HERE}), namespace=namespace)

        async def runs() -> bool:
            return is_ready(await pod_of(client, namespace, "app"))

        await eventually(runs, "no pod is placed")
        labels = (await pod_of(client, namespace, "app"))["metadata"]["labels"]
        assert labels[names.SCHEDULING_GATE_LABEL] == names.REMOVED
        await asyncio.sleep(STEADY_SECONDS)
        steady = await pods_of(client)
        assert {each["metadata"]["uid"] for each in steady} == {each["metadata"]["uid"] for each in found}
        assert all(is_ready(each) for each in steady)
        counts = {each["metadata"]["name"]: [of["restartCount"] for of in statuses(each).values()] for each in steady}
        assert {count for of_pod in counts.values() for count in of_pod} == {0}, counts
    finally:
        throttling.cancel()
        await asyncio.gather(throttling, return_exceptions=True)
        throttle.lift()
    for name, seconds in sorted(throttle.ready_after.items()):
        print(f"{name}: ready {seconds:.0f} s after its control group was made")  # noqa: T201 - facts of the run
