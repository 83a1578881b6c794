"""Nothing of a cluster with real nodes is left on the machine, however its start ended."""

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.processes import is_running
from polyarch.sandbox.real import cgroups
from polyarch.sandbox.real.configuration import SYSCTLS
from polyarch.sandbox.real.emulation import EMULATORS
from polyarch.sandbox.real.machine import APPARMOR, check, search_path
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.sandbox.versions import host_architecture

pytestmark = [pytest.mark.req("SB-017"), pytest.mark.timeout(300)]

KILLED_AFTER = (0.3, 1.0, 2.5, 4.0, 6.0, 9.0, 13.0)
"""Seconds of a start: from its first process to the pods of polyarch."""


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": search_path()}).stdout


def processes(home: Path) -> set[str]:
    """Those that name the folder of the test's sandboxes, or see other mounts or another network than we do."""
    found = set()
    ours = {kind: Path(f"/proc/self/ns/{kind}").readlink() for kind in ("mnt", "net")}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            elsewhere = any((each / "ns" / kind).readlink() != own for kind, own in ours.items())
        except OSError:  # it has ended, or is not for us to see
            continue
        if (elsewhere or str(home) in command) and command:
            found.add(f"{each.name} {command[:200]}")
    return found


def user_namespaces() -> Iterator[str]:
    for each in Path("/proc").glob("[0-9]*/ns/user"):
        with contextlib.suppress(OSError):  # it has ended
            yield str(each.readlink())


def is_ours(mount: str, home: Path) -> bool:
    """Of the temporary folder a sandbox has nothing but its own, and others may mount there meanwhile."""
    point = Path(mount.split()[1])
    return home in point.parents or Path(tempfile.gettempdir()) not in point.parents


def lines(path: Path) -> set[str]:
    """None of a file that the kernel does not have."""
    return set(path.read_text().splitlines()) if path.exists() else set()


def words(path: Path) -> set[str]:
    return {word for line in lines(path) for word in line.split()}


def machine(home: Path) -> Mapping[str, object]:
    """What a node could leave behind."""
    namespaces = set(said("lsns", "--noheadings", "--type", "net", "--output", "NS").split())
    return {
        "processes": processes(home),
        "network namespaces": namespaces,
        "user namespaces": set(user_namespaces()),
        "mounts": {line for line in Path("/proc/self/mounts").read_text().splitlines() if is_ours(line, home)},
        "interfaces": set(said("ip", "-o", "link").splitlines()),
        "routes": said("ip", "route", "show", "table", "all"),
        "rules": [line for line in said("iptables-save").splitlines() if not line.startswith(("#", ":"))],
        "cgroups": {str(path) for pattern in ("", "*/") for path in cgroups.ROOT.glob(f"{pattern}polyarch-traces-*")},
        "controllers": words(cgroups.ROOT / "cgroup.subtree_control"),
        "profiles": lines(APPARMOR / "profiles"),
        "settings": {name: Path(f"/proc/sys/{name}").read_text() for name in SYSCTLS},
        "folders": {
            path
            for path in (
                "/var/lib/kubelet",
                "/var/lib/containerd",
                "/run/containerd",
                "/var/lib/cni",
                "/opt/containerd",
                "/usr/libexec/kubernetes",
            )
            if Path(path).exists()
        },
        "traces": {path.name for path in Path("/sys/kernel/tracing").glob("instances/*")},
        "interpreters": {path.name for path in Path("/proc/sys/fs/binfmt_misc").glob("*")},
    }


def left_since(before: Mapping[str, object], home: Path) -> dict[str, object]:
    """What is there now and was not before; what others have ended meanwhile does not count."""
    found: dict[str, object] = {}
    for what, now in machine(home).items():
        then = before[what]
        more = now - then if isinstance(now, set) and isinstance(then, set) else now if now != then else None
        if more:
            found[what] = more
    return found


def up(home: Path, name: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "polyarch", "up", "--real", "--name", name, *more]
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.fixture
def name(home: Path) -> Iterator[str]:
    """Of a sandbox that is gone after the test, whatever becomes of this."""
    name = f"traces-{secrets.token_hex(3)}"
    yield name
    down(home, name)


def down(home: Path, name: str) -> None:
    command = [sys.executable, "-m", "polyarch", "down", "--delete", "--name", name]
    ended = subprocess.run(command, env={**os.environ, "XDG_STATE_HOME": str(home)}, capture_output=True, check=False)
    assert ended.returncode == 0 or b"there is no sandbox" in ended.stderr, ended.stderr.decode()


def test_a_cluster_that_was_used_leaves_nothing(home: Path, name: str) -> None:
    before = machine(home)
    starting = up(home, name, "--nodes", f"{host_architecture()}=1")
    _, problem = starting.communicate()
    assert starting.returncode == 0, problem.decode()
    there = machine(home)
    assert all(there[each] != before[each] for each in ("processes", "network namespaces", "cgroups"))
    unchanged = ("mounts", "interfaces", "routes", "rules", "settings", "folders")
    assert {each: there[each] for each in unchanged} == {each: before[each] for each in unchanged}
    down(home, name)
    assert left_since(before, home) == {}
    assert not (home / "polyarch/sandbox" / name).exists()


@pytest.mark.req("SB-021")
@pytest.mark.parametrize("is_killed", [False, True], ids=["down", "killed"])
async def test_a_cluster_with_an_emulated_node_leaves_nothing(home: Path, name: str, is_killed: bool) -> None:
    before, nodes = machine(home), dict.fromkeys(EMULATORS, 1)
    try:
        check(Settings(real=True, nodes=nodes))
    except SandboxError as error:
        pytest.skip(str(error))
    named = ",".join(f"{each}={count}" for each, count in nodes.items())
    starting = up(home, name, "--nodes", named, "--only", "control-plane")

    async def is_made() -> bool:
        return starting.poll() is not None or set(user_namespaces()) != before["user namespaces"]

    assert await until(is_made, seconds=120)
    if is_killed:
        starting.kill()
    _, problem = starting.communicate()
    assert is_killed or starting.returncode == 0, problem.decode()
    there = machine(home)
    assert there["user namespaces"] != before["user namespaces"]
    assert there["interpreters"] == before["interpreters"]
    down(home, name)
    assert left_since(before, home) == {}


@pytest.mark.parametrize("seconds", KILLED_AFTER)
async def test_a_start_that_is_killed_leaves_nothing_that_down_does_not_find(
    home: Path, name: str, seconds: float
) -> None:
    before = machine(home)
    starting = up(home, name, "--nodes", f"{host_architecture()}=1")
    await asyncio.sleep(seconds)
    starting.kill()
    starting.communicate()
    down(home, name)
    assert left_since(before, home) == {}


async def test_processes_of_nodes_that_are_killed_are_started_again(home: Path, name: str) -> None:
    before = machine(home)
    starting = up(home, name, "--only", "control-plane", "--nodes", f"{host_architecture()}=1")
    _, problem = starting.communicate()
    assert starting.returncode == 0, problem.decode()
    sandbox = Sandbox.attach(name, home=home / "polyarch/sandbox")
    node = f"{host_architecture()}-1"
    for process in (f"{node}-kubelet", f"{node}-containerd", f"{node}-namespaces", "gateway"):
        record = sandbox.records()[process]
        os.kill(record.pid, 9)
        while is_running(record):
            await asyncio.sleep(0.01)
        starting = up(home, name, "--only", "control-plane", "--nodes", f"{host_architecture()}=1")
        _, problem = starting.communicate()
        assert starting.returncode == 0, f"{process}: {problem.decode()}"
        assert [each for each in await sandbox.health() if not each.healthy] == []

        async def is_ready() -> bool:
            return [ready for _, _, ready in await sandbox.nodes()] == [True]

        assert await until(is_ready, seconds=30), f"{process}: its node is not ready"
    down(home, name)
    assert left_since(before, home) == {}
