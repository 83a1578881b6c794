"""What a machine must have for real nodes, and the machine that a node believes in (``--numa``)."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout, node
from polyarch.sandbox.nodes.kubelet_files import CPU_FILE, MEMORY_FILE, host_files
from polyarch.sandbox.real import cgroups, emulation
from polyarch.sandbox.real.configuration import CNI_PLUGINS, SYSCTLS
from polyarch.sandbox.state import Settings
from polyarch.sandbox.versions import host_architecture

MOST_NODES: Final = 10
PROGRAMS: Final[Mapping[str, str]] = {
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Program → the package of Debian and Ubuntu that has it."""
BUILD_PROGRAMS: Final = {"buildah": "buildah"}
"""What component builds needs besides: its pods run the machine's own."""
PLUGINS: Final = ("host-local", "loopback", "portmap", "ptp")
PLUGINS_PACKAGE: Final = "containernetworking-plugins"
PAGES: Final = "sys/kernel/mm/hugepages"
DEVICES: Final = ("sys/devices/system/node", "sys/devices/system/cpu", "proc/meminfo")
"""What of a machine a node gets by a mount."""
APPARMOR: Final = Path("/sys/kernel/security/apparmor")
PROFILE: Final = "cri-containerd.apparmor.d"
"""The profile that containerd loads into the kernel when it starts a container and the profile is not there."""
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
LAYOUT: Final = "layout.json"
"""The ``--numa`` that the other files of a node are made from."""


def check(settings: Settings) -> None:
    """Raises SandboxError with what to do if real nodes of these settings cannot run here."""
    own = host_architecture()
    if os.geteuid() != 0:
        raise SandboxError(
            "--real needs root, for network and mount namespaces and control groups of the nodes: "
            "run `sudo polyarch up --real`; without --real, nodes are simulated and need no root"
        )
    foreign = sorted(name for name, count in settings.nodes.items() if count and name != own)
    if problem := next(filter(None, map(emulation.problem, foreign)), ""):
        raise SandboxError(f"--real: this machine runs {own}, and {problem}; write --nodes {own}=2")
    for entry in (found for each in foreign if settings.nodes.get(own) for found in emulation.interpreters(each)):
        raise SandboxError(
            f"--real: this machine runs programs of {' and '.join(foreign)} by itself ({entry}), so its nodes of {own} "
            f"would not refuse them; turn that off until it boots again: `echo 0 | sudo tee {entry}`"
        )
    if not 1 <= sum(settings.nodes.values()) <= MOST_NODES:
        raise SandboxError(f"--real: expected 1 to {MOST_NODES} nodes, for example --nodes {own}=2")
    if settings.numa is not None and settings.numa.devices:
        raise SandboxError(
            "--real --numa: real kubelets know devices from plugins alone: leave devices=… out, and run plugins on the "
            "nodes"
        )
    if settings.numa is not None and settings.numa.pages and not Path("/", PAGES).is_dir():
        raise SandboxError(f"--real --numa: this machine's kernel has no huge pages (/{PAGES}): leave pages=… out")
    programs = {**PROGRAMS, **BUILD_PROGRAMS} if settings.builds else PROGRAMS
    missing = {package: name for name, package in programs.items() if shutil.which(name, path=search_path()) is None}
    if plugins() is None:
        missing[PLUGINS_PACKAGE] = "CNI plugins"
    if any(emulation.emulator(each, search_path()) is None for each in foreign):
        missing[emulation.PACKAGE] = f"a static qemu for programs of {' and '.join(foreign)}"
    if missing:
        what = ", ".join(missing.values())
        raise SandboxError(f"--real needs {what}: on Debian and Ubuntu, `apt-get install {' '.join(sorted(missing))}`")
    if lacking := cgroups.missing_controllers():
        raise SandboxError(f"--real: control groups of this machine lack {', '.join(lacking)}, which kubelets need")


def unload_profile(*, apparmor: Path = APPARMOR, proc: Path = Path("/proc")) -> None:
    """Remove containerd's AppArmor profile, unless a process has it: of the machine's own containers, for example.

    Another containerd of the machine loads it again with its next container.
    """
    try:
        loaded = (apparmor / "profiles").read_text().splitlines()
    except OSError:  # a kernel without AppArmor
        return
    if not any(line.startswith(f"{PROFILE} ") for line in loaded):
        return
    for each in proc.glob("[0-9]*/attr/current"):
        try:
            if each.read_text().startswith(f"{PROFILE} "):
                return
        except OSError:  # it has ended
            continue
    with contextlib.suppress(OSError):  # in a container that may not: then the profile is the machine's
        (apparmor / ".remove").write_text(PROFILE)


def search_path() -> str:
    """``PATH`` with the folders of programs that only root calls, which a user's shell may leave out."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])


def program(name: str) -> str:
    """Its path; :func:`check` has seen that it is there."""
    return shutil.which(name, path=search_path()) or name


def plugins() -> str | None:
    """The folder of the CNI plugins."""
    for folder in CNI_PLUGINS:
        if all((Path(folder) / each).exists() for each in PLUGINS):
            return folder
    return None


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_known(folder: Path, numa: NumaLayout | None) -> bool:
    """Whether the node's files are those of this machine and these settings of its kubelet's managers."""
    try:
        return (folder / LAYOUT).read_bytes() == msgspec.json.encode(numa)
    except FileNotFoundError:
        return False


def forget_managers(folder: Path) -> None:
    """Remove what the kubelet's managers remember of another machine: with it a kubelet does not start."""
    for name in (CPU_FILE, MEMORY_FILE):
        (folder / "lib/kubelet" / name).unlink(missing_ok=True)


def write_files(folder: Path, numa: NumaLayout | None) -> dict[str, str]:
    """Write what a node that boots sees in place of the machine's own files; the path below ``folder`` of each, by its
    target."""
    _write(folder / LAYOUT, msgspec.json.encode(numa).decode())
    _write(folder / "boot_id", f"{uuid.uuid4()}\n")
    found = {BOOT_ID: "boot_id"}
    for name, value in SYSCTLS.items():
        file = folder / "sysctl" / name.replace("/", "-")
        _write(file, f"{value}\n")
        found[f"/proc/sys/{name}"] = str(file.relative_to(folder))
    if numa is None:
        return found
    shutil.rmtree(folder / "machine", ignore_errors=True)
    top = folder / "machine"
    for path, content in host_files(node(numa).machine).items():
        _write(top / path, content)
    for cpu in node(numa).machine.cpus:
        of_zone = top / "sys/devices/system/node" / f"node{cpu.cell}"
        of_cpu = top / "sys/devices/system/cpu" / f"cpu{cpu.id}"
        _write(of_cpu / "online", "1\n")
        (of_zone / f"cpu{cpu.id}").symlink_to(f"../../cpu/cpu{cpu.id}")
        (of_cpu / f"node{cpu.cell}").symlink_to(f"../../node/node{cpu.cell}")
    (top / PAGES).mkdir(parents=True, exist_ok=True)  # empty: the node has no huge pages, whatever the machine has
    shown = (*DEVICES, PAGES) if Path("/", PAGES).is_dir() else DEVICES
    return found | {f"/{path}": f"machine/{path}" for path in shown}


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
