"""A build pod on this machine: folders as volumes, real buildah in a user namespace as ``build``, ``push`` as it is.

The user namespace has its own ids, mounts and processes, as with ``hostUsers: false``, and its own list of emulators
(``binfmt_misc`` belongs to a user namespace since Linux 6.7), so nothing of the machine changes. What a kubelet and a
runtime add to that (cgroups, seccomp, dropped capabilities, an image for the container) is not shown.
"""

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from polyarch.builds.jobs import contract
from polyarch.builds.jobs.architecture_job import manifests
from polyarch.builds.jobs.order import ArchitectureOrder

SECONDS = 300
FIRST_ID, IDS = 100_000, 65_536

ENTER = """
import ctypes, os, sys
NEW_USER, NEW_MOUNTS, NEW_PROCESSES, NEW_IPC = 0x10000000, 0x20000, 0x20000000, 0x8000000
ready, go = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    if ctypes.CDLL(None).unshare(NEW_USER | NEW_MOUNTS | NEW_PROCESSES | NEW_IPC):
        os._exit(120)
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    os.setgroups([])
    os.setgid(0)
    os.setuid(0)
    inner = os.fork()
    if inner == 0:
        os.execve("/bin/sh", ["/bin/sh", "-c", sys.argv[1]], dict(os.environ))
    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 255)
os.close(ready[1])
if os.read(ready[0], 1):
    for ids in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{ids}", "w") as file:
            file.write("0 FIRST IDS")
    os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""".replace("FIRST", str(FIRST_ID)).replace("IDS", str(IDS))
"""Runs a shell as root of a new user namespace. Its ids are not those that own this interpreter, hence the shell."""

PREPARE = """
mount -t proc proc /proc &&
mount -t tmpfs tmpfs /var/lib/containers &&
"""
AARCH64 = (
    r":qemu-aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:"
)
"""As Debian registers it."""
UNAVAILABLE = 121


class Built(NamedTuple):
    """How ``build`` ended."""

    code: int
    output: str
    layout: Path
    message: str


class BuildPod:
    """The volumes of a pod, in ``folder``. ``emulator``: an interpreter of arm64 programs that its kernel knows."""

    def __init__(self, folder: Path, *, emulator: str = "", flags: str = "F") -> None:
        self.root = folder / "polyarch"
        self._emulator, self._flags = emulator, flags

    def build(self, order: ArchitectureOrder, files: dict[str, Path] | None = None) -> Built:
        """Run the init container; ``files`` are put into its context."""
        for name in ("in", "layout", "storage", "context"):
            (self.root / name).mkdir(parents=True)
        inputs = manifests(order)[0]
        for name, text in inputs["data"].items():
            (self.root / "in" / name).write_text(self._moved(text))
        for name, encoded in inputs.get("binaryData", {}).items():
            (self.root / "in" / name).write_bytes(base64.b64decode(encoded))
        for name, path in (files or {}).items():
            shutil.copy(path, self.root / "context" / name)
        self._hand_over()
        (container,) = manifests(order)[-1]["spec"]["template"]["spec"]["initContainers"]
        environment = {each["name"]: self._moved(f"{each['value']}/").rstrip("/") for each in container["env"]}
        ended = self._run([self._moved(each) for each in container["command"]], environment)
        message = self.root / "termination-log"
        return Built(
            ended.returncode,
            ended.stdout,
            self.root / "layout" / "image",
            message.read_text() if message.exists() else "",
        )

    def _run(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        emulation = ""
        if self._emulator:
            registered = f"printf '%s' '{AARCH64}{self._emulator}:{self._flags}' >/proc/sys/fs/binfmt_misc/register"
            emulation = f"mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && {registered} &&"
        script = f"{{ {PREPARE} {emulation} :; }} || exit {UNAVAILABLE}\nexec {' '.join(command)}"
        return subprocess.run(
            [sys.executable, "-I", "-c", ENTER, script],
            env={"PATH": os.environ["PATH"], **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def _moved(self, text: str) -> str:
        """Text with this folder in place of ``/polyarch``."""
        return text.replace(f"{contract.ROOT}/", f"{self.root}/")

    def _hand_over(self) -> None:
        """The pod's root owns its volumes, and may pass through the folders above them."""
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, FIRST_ID, FIRST_ID)
        for folder in self.root.parents[:-2]:
            folder.chmod(folder.stat().st_mode | 0o111)
