"""CRI-O on a real node in place of containerd, as a user of the distribution would install it beside the same runc."""

import asyncio
import os
import sys
from pathlib import Path

from real_kubelets import eventually, keeper

from polyarch.kube.client import Client
from polyarch.kube.resources import NODES
from polyarch.objects import Unstructured
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.namespaces import entering
from polyarch.sandbox.processes import Command, Record
from polyarch.sandbox.real import configuration, machine
from polyarch.sandbox.real.cgroups import Cgroups
from polyarch.sandbox.real.nodes import CONTAINERD, KUBELET, process_name
from polyarch.sandbox.registry.seed import PUBLIC_HOSTS

FOLDER = "/var/lib/crio"
"""All that CRI-O has on a node, as programs of the node see it."""
SOCKET = "/run/crio/crio.sock"

PINNS = """\
#!/bin/sh
# CRI-O's program for namespaces that outlive processes, of which only the source is in its Go module.
while [ $# -gt 0 ]; do
  case $1 in
  -d) folder=$2; shift ;;
  -f) name=$2; shift ;;
  -s) shift ;;
  --ipc | --uts | --net) kinds="$kinds ${1#--}" ;;
  esac
  shift
done
for kind in $kinds; do
  mkdir -p "$folder/${kind}ns" && : > "$folder/${kind}ns/$name" || exit 1
  unshare "--$kind=$folder/${kind}ns/$name" true || exit 1
done
"""
RUNC = """\
#!{python}
# CRI-O limits huge pages of every container, and not every kernel has a control group for that.
import json, os, sys
words = sys.argv[1:]
if "create" in words and not os.path.isdir("/sys/fs/cgroup/hugetlb"):
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        document = json.load(file)
    document.get("linux", {}).get("resources", {}).pop("hugepageLimits", None)
    with open(path, "w") as file:
        json.dump(document, file)
os.execv("{runc}", ["{runc}", *words])
"""


def settings(conmon: str) -> str:
    return f"""\
[crio]
root = "{FOLDER}/storage"
runroot = "/run/crio/storage"
storage_driver = "overlay"
log_dir = "/var/log/pods"
version_file = "/run/crio/version"
version_file_persist = "{FOLDER}/version"
clean_shutdown_file = "{FOLDER}/clean"
[crio.api]
listen = "{SOCKET}"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{FOLDER}/pinns"
namespaces_dir = "/run/crio/ns"
container_exits_dir = "/run/crio/exits"
container_attach_socket_dir = "/run/crio/attach"
hooks_dir = []
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "{FOLDER}/runc"
runtime_root = "/run/crio/runc"
monitor_path = "{conmon}"
monitor_cgroup = "pod"
[crio.image]
signature_policy = "{FOLDER}/policy.json"
pause_image = "{configuration.PAUSE}"
pause_command = ""
[crio.network]
network_dir = "{configuration.CNI}/net.d"
plugin_dirs = ["{machine.plugins()}"]
"""


def registries() -> str:
    """Every public name leads to the sandbox's registry, as in containerd's ``hosts.toml``."""
    found = ((host, f"{configuration.REGISTRY}/{host}") for host in PUBLIC_HOSTS)
    return "".join(f'[[registry]]\nprefix = "{host}"\nlocation = "{place}"\n' for host, place in found)


def write_files(folder: Path, conmon: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "crio.conf").write_text(settings(conmon))
    (folder / "registries.conf").write_text(registries())
    (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    for name, text in (
        ("pinns", PINNS),
        ("runc", RUNC.replace("{python}", sys.executable).replace("{runc}", machine.program("runc"))),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


async def use_crio(sandbox: Sandbox, client: Client, node: str, *, crio: str, conmon: str) -> None:
    """Give the node, on which no pod runs yet, CRI-O for its runtime; ``crio`` and ``conmon`` are the programs."""
    records, inside = sandbox.records(), keeper(sandbox, node)
    own = sandbox.folder.root / "nodes" / node / "lib"
    write_files(own / "crio", conmon)
    kubelet = records[process_name(node, KUBELET)]
    words = Path(f"/proc/{kubelet.pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    await processes.stop([kubelet, records[process_name(node, CONTAINERD)]], records=sandbox.folder.records)
    changed = own / "kubelet/config.yaml"
    changed.write_text(changed.read_text().replace(configuration.CONTAINERD_SOCKET, SOCKET))
    groups = Cgroups(sandbox.name)

    def start(program: str, *arguments: str, **more: str) -> Record:
        """Recorded in the place of what the sandbox started."""
        name = process_name(node, program)
        command = Command(
            name=name,
            arguments=groups.joining(groups.host_of(node), entering(inside, arguments)),
            environment={**os.environ, "PATH": machine.search_path(), **more},
            log=str(sandbox.folder.log(name)),
        )
        return processes.start(command, records=sandbox.folder.records)

    options = ["--config", f"{FOLDER}/crio.conf", "--config-dir", "", "--registries-conf", f"{FOLDER}/registries.conf"]
    runtime = start(CONTAINERD, crio, *options, SSL_CERT_FILE=f"{configuration.CONTAINERD}/ca.crt")
    socket = Path(f"/proc/{inside}/root{SOCKET}")

    async def listens() -> bool:
        if not processes.is_running(runtime):
            raise processes.failure(runtime, "ended while starting")
        return await asyncio.to_thread(socket.exists)

    await eventually(listens, "CRI-O does not start")
    start(KUBELET, *words)

    async def is_used() -> bool:
        status = (await client.get(NODES, node, type=Unstructured)).document["status"]
        ready = [each["status"] for each in status["conditions"] if each["type"] == "Ready"]
        return status["nodeInfo"]["containerRuntimeVersion"].startswith("cri-o://") and ready == ["True"]

    await eventually(is_used, "the node does not become ready with CRI-O")
