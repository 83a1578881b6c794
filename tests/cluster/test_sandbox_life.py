"""A sandbox from its first `up` to its end, through the command line as a user or a script would."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox, opened
from polyarch.sandbox.processes import identify, is_running
from polyarch.sandbox.state import Settings, Taint

pytestmark = pytest.mark.req("SB-010")

PROGRAM = "import sys; from polyarch.cli import main; sys.exit(main())"
SECONDS = 240


class CommandLine:
    """``polyarch``, with its sandboxes in a folder of the test's own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "XDG_STATE_HOME": str(home)}

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == expect, f"{arguments}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def is_told_ill(self, name: str) -> bool:
        """Whether ``polyarch status`` says that not all of a sandbox is healthy."""
        try:
            self("status", "--name", name, expect=1)
        except AssertionError:
            return False
        return True

    def document(self, *arguments: str, expect: int = 0) -> dict[str, Any]:
        found = json.loads(self(*arguments, "-o", "json", expect=expect))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def polyarch(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "state")


def processes(document: dict[str, Any]) -> dict[str, int]:
    return {process["name"]: process["pid"] for process in document["processes"]}


async def keep(document: dict[str, Any], value: str) -> None:
    async with Client(config.load(document["kubeconfig"])) as client:
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"value": value}}
        await client.create(CONFIGMAPS, kept, namespace="default")


async def kept(document: dict[str, Any]) -> str:
    async with Client(config.load(document["kubeconfig"])) as client:
        return str((await client.get(CONFIGMAPS, "kept", namespace="default"))["data"]["value"])


@pytest.mark.req("SB-003")
async def test_state_survives_down_and_up_and_a_dead_component_is_shown_and_brought_back(
    polyarch: CommandLine,
) -> None:
    first = polyarch.document("up", "--name", "life", "--only", "control-plane", "--nodes", "amd64=1,riscv64=2")
    try:
        assert {node["architecture"] for node in first["nodes"]} == {"amd64", "riscv64"}
        assert len(first["nodes"]) == 3
        assert all(process["healthy"] for process in first["processes"])
        await keep(first, "through it all")

        started = {name: identify(name, pid) for name, pid in processes(first).items()}
        stopped = polyarch.document("down", "--name", "life")
        assert stopped == {"schemaVersion": "polyarch.dev/sandbox/v1", "name": "life", "deleted": False}
        assert not [name for name, record in started.items() if record is not None and is_running(record)]
        assert polyarch.document("status", "--name", "life", expect=1)["processes"] == []

        again = polyarch.document("up", "--name", "life", "--only", "control-plane")
        assert again["apiServer"] == first["apiServer"]
        assert again["registry"] == first["registry"]
        assert len(again["nodes"]) == 3, "without the option the fleet is that of the last time"
        assert await kept(again) == "through it all"

        os.kill(processes(again)["kube-scheduler"], signal.SIGKILL)
        broken = polyarch.document("status", "--name", "life", expect=1)
        assert [each["name"] for each in broken["processes"] if not each["healthy"]] == ["kube-scheduler"]
        assert "kube-scheduler" in polyarch("status", "--name", "life", expect=1)

        mended = polyarch.document("up", "--name", "life", "--only", "control-plane", "--nodes", "s390x=1")
        changed = {name for name, pid in processes(mended).items() if processes(again)[name] != pid}
        assert changed == {"kube-scheduler", "nodes"}, "what ran and is as asked was left running"
        assert [node["name"] for node in mended["nodes"]] == ["s390x-1"]

        fresh = polyarch.document("up", "--name", "life", "--only", "control-plane", "--fresh", "--nodes", "")
        assert fresh["nodes"] == []
        with pytest.raises(NotFound, match="kept"):
            await kept(fresh)
    finally:
        polyarch("down", "--name", "life", "--delete")
    assert not (polyarch.home / "polyarch" / "sandbox" / "life").exists()


async def taints(client: Client, name: str) -> set[str]:
    node = await client.get(NODES, name)
    return {taint["key"] for taint in node["spec"].get("taints", ()) if not taint["key"].startswith("node.kube")}


@pytest.mark.req("SB-004")
async def test_nodes_are_kept_as_asked_whatever_happens_to_them(tmp_path: Path) -> None:
    """A deleted node comes back; a changed --taint takes the old one with it and leaves those of others alone; the pods
    of a node that leaves go with it."""
    registries_conf, more = tmp_path / "registries.conf", '[[registry]]\nlocation = "mine.example"\n'
    registries_conf.write_text("")
    settings = Settings(
        name="kept",
        nodes={"amd64": 2},
        taints=(Taint("*", "first", "", "NoSchedule"),),
        polyarch=False,
        seed_images=False,
        registries_conf=str(registries_conf),
    )
    async with opened(settings, home=tmp_path) as sandbox, sandbox.client() as client:
        assert await taints(client, "amd64-1") == {"first"}
        before = (await client.get(NODES, "amd64-2"))["metadata"]["uid"]
        await client.delete(NODES, "amd64-2")
        async with asyncio.timeout(30):
            while {"amd64-1", "amd64-2"} != {name for name, _, ready in await sandbox.nodes() if ready}:
                await asyncio.sleep(0.1)
        assert (await client.get(NODES, "amd64-2"))["metadata"]["uid"] != before
        assert await taints(client, "amd64-2") == {"first"}

        foreign = {"key": "foreign", "effect": "NoSchedule"}
        mine = (await client.get(NODES, "amd64-1"))["spec"]["taints"]
        await client.patch(NODES, "amd64-1", MergePatch({"spec": {"taints": [*mine, foreign]}}))
        # As if `up` had been interrupted right after it had noted what it was asked for.
        changed = msgspec.structs.replace(settings, taints=(Taint("*", "second", "", "NoSchedule"),))
        sandbox.folder.save(msgspec.structs.replace(sandbox.state, settings=changed))
        first = sandbox.records()
        await Sandbox.start(changed, home=tmp_path)
        assert await taints_of(client, "amd64-1", {"second", "foreign"})
        assert await taints_of(client, "amd64-2", {"second"})
        assert [name for name, record in sandbox.records().items() if record != first[name]] == ["nodes"]

        second = sandbox.records()
        registries_conf.write_text(more)
        await Sandbox.start(changed, home=tmp_path)
        restarted = [name for name, record in sandbox.records().items() if record != second[name]]
        assert restarted == ["nodes"], "the file's content has changed, not its name"

        pod = {
            "metadata": {"name": "stranded"},
            "spec": {"nodeName": "amd64-2", "containers": [{"name": "a", "image": "a"}]},
        }
        await create_pod(client, pod)
        await Sandbox.start(msgspec.structs.replace(changed, nodes={"amd64": 1}), home=tmp_path)
        async with asyncio.timeout(20):  # garbage collection would take more than a minute
            while (await client.list(PODS, namespace="default")).items:
                await asyncio.sleep(0.1)
        assert [name for name, _, _ in await sandbox.nodes()] == ["amd64-1"]


async def create_pod(client: Client, pod: dict[str, Any]) -> None:
    """In ``default``, once its ServiceAccount is there."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, namespace="default")
            except Forbidden:
                await asyncio.sleep(0.2)
            else:
                return


async def taints_of(client: Client, name: str, wanted: set[str]) -> bool:
    async with asyncio.timeout(30):
        while await taints(client, name) != wanted:
            await asyncio.sleep(0.1)
    return True


@pytest.mark.req("SB-003")
async def test_two_sandboxes_stand_side_by_side(tmp_path: Path, sandbox: Sandbox) -> None:
    settings = Settings(name="beside", nodes={}, polyarch=False, seed_images=False)
    async with opened(settings, home=tmp_path) as other:
        assert other.api_server != sandbox.api_server
        assert not {record.pid for record in other.records().values()} & {
            record.pid for record in sandbox.records().values()
        }
        await keep({"kubeconfig": str(other.kubeconfig)}, "here only")
        with pytest.raises(NotFound, match="kept"):
            await kept({"kubeconfig": str(sandbox.kubeconfig)})
        assert all(each.healthy for each in await sandbox.health())
    assert not (tmp_path / "beside").exists()


@pytest.mark.req("SB-008")
def test_a_sandbox_ends_with_the_process_that_owns_it_even_if_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, time\n"
        "from pathlib import Path\n"
        "from polyarch.sandbox.cluster import Sandbox\n"
        "from polyarch.sandbox.state import Settings, Taint\n"
        "settings = Settings(name='owned', nodes={}, polyarch=False, seed_images=False)\n"
        f"started = asyncio.run(Sandbox.start(settings, owner=os.getpid(), home=Path({str(tmp_path)!r})))\n"
        "print(*(record.pid for record in started.records().values()), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        records = [record for pid in pids if (record := identify("", pid)) is not None]
        assert len(records) == len(pids) > 5
        owner.kill()
        owner.wait()
    deadline = time.monotonic() + 60
    while (left := [record for record in records if is_running(record)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    while (tmp_path / "owned").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not (tmp_path / "owned").exists()


def containers(document: dict[str, Any]) -> list[str]:
    """Names of the containers of polyarch's pods that are healthy."""
    return sorted(each["container"] for each in document["processes"] if each["pod"] and each["healthy"])


ROLES = ["controller", "operator", "web-hook"]


@pytest.mark.req("SB-014")
async def test_polyarch_in_the_sandbox_survives_down_and_follows_its_settings(
    polyarch: CommandLine, tmp_path: Path
) -> None:
    """Installed, stopped and started, reconfigured, a process of it killed, uninstalled, installed again."""
    own = tmp_path / "registries.conf"
    own.write_text('[[registry]]\nprefix = "mine.example"\nlocation = "127.0.0.1:9/mine"\ninsecure = true\n')
    command = ("up", "--name", "whole")
    try:
        first = polyarch.document(*command, "--nodes", "arm64=2", "--taint", "*:reserved=me:NoSchedule")
        assert containers(first) == ROLES, "a taint of every node does not keep polyarch away"
        async with Client(config.load(first["kubeconfig"])) as client:
            policy = {
                "apiVersion": POLICIES.api_version,
                "kind": POLICIES.kind,
                "metadata": {"name": "cluster"},
                "spec": {"events": "full"},
            }
            await client.create(POLICIES, policy)

        polyarch("down", "--name", "whole")
        again = polyarch.document(*command)
        assert containers(again) == ROLES
        async with Client(config.load(again["kubeconfig"])) as client:
            assert (await client.get(POLICIES, "cluster"))["spec"]["events"] == "full", "custom resources stay"

        changed = polyarch.document(*command, "--replicas", "2", "--registries-conf", str(own))
        assert containers(changed) == sorted(ROLES * 2)
        async with Client(config.load(changed["kubeconfig"])) as client:
            mounted = await client.get(CONFIGMAPS, "polyarch-registries", namespace="polyarch-system")
        assert "mine.example" in mounted["data"]["registries.conf"]
        assert "docker.io" in mounted["data"]["registries.conf"]
        reading = [each for each in changed["processes"] if each["container"] in {"web-hook", "controller"}]
        await within(60, lambda: all(map(has_mirror, reading)))

        (halted, *_) = [each["pid"] for each in changed["processes"] if each["container"] == "controller"]
        os.kill(halted, signal.SIGSTOP)  # a killed one might be back before it is asked
        await within(60, lambda: polyarch.is_told_ill("whole"))
        os.kill(halted, signal.SIGKILL)
        await within(60, lambda: containers(polyarch.document(*command)) == sorted(ROLES * 2))

        bare = polyarch.document(*command, "--only", "control-plane")
        assert not [each for each in bare["processes"] if each["pod"]]
        async with Client(config.load(bare["kubeconfig"])) as client:
            assert not (await client.list(MUTATING_WEBHOOKS)).items
            with pytest.raises(NotFound):
                await client.get(NAMESPACES, "polyarch-system")

        assert containers(polyarch.document(*command, "--replicas", "1")) == ROLES
    finally:
        polyarch("down", "--name", "whole", "--delete")


def has_mirror(process: dict[str, Any]) -> bool:
    volumes = Path(process["log"]).parents[1] / "volumes"
    return any("mine.example" in path.read_text() for path in volumes.glob("*/registries.conf"))


async def within(seconds: float, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds} s"
        await asyncio.sleep(0.5)


@pytest.mark.req("SB-014")
def test_polyarch_needs_a_node_that_can_run_it(polyarch: CommandLine) -> None:
    polyarch("up", "--name", "nowhere", "--nodes", "riscv64=1", expect=3)
    polyarch("down", "--name", "nowhere", expect=3)
