"""A build pod on this machine: folders as volumes, real buildah in a user namespace as ``build``, ``push`` as it is.

With profile UserNamespace, the namespace has its own ids, mounts and processes, as with ``hostUsers: false``, and its
own list of emulators (``binfmt_misc`` belongs to a user namespace since Linux 6.7), so nothing of the machine changes.
What a kubelet and a runtime add to that (cgroups, seccomp, dropped capabilities, an image for the container) is not
shown.

With profile Rootless, the processes are root of the machine with the two capabilities that the pod has to give. They
see an image without users, subordinate ids and the programs that map them; volumes belong to root, as a kubelet makes
them.
"""

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from polyarch.builds.jobs import contract
from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import PROFILES, ArchitectureJobSpec

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

ROOTLESS = """
import ctypes, os, sys
NEW_MOUNTS, NEW_PROCESSES, NEW_IPC, MS_REC, MS_PRIVATE, MS_BIND = 0x20000, 0x20000000, 0x8000000, 16384, 1 << 18, 4096
libc = ctypes.CDLL(None, use_errno=True)
def check(done):
    if done:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        os._exit(UNAVAILABLE)
check(libc.unshare(NEW_MOUNTS | NEW_PROCESSES | NEW_IPC))
check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
for name in os.listdir(sys.argv[2]):
    place = b"/usr/bin/" if name.startswith("new") else b"/etc/"
    check(libc.mount(os.path.join(sys.argv[2], name).encode(), place + name.encode(), None, MS_BIND, None))
pid = os.fork()
if pid == 0:
    check(libc.mount(b"proc", b"/proc", b"proc", 0, None))
    os.chdir("/")
    limits = ("--clear-groups", "--inh-caps=-all", "--bounding-set=" + ",+".join(["-all", *sys.argv[3:]]))
    os.execvp("setpriv", ["setpriv", *limits, "/bin/sh", "-c", sys.argv[1]])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
"""
"""Runs a shell as root with no more capabilities than the pod gives."""

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
IMAGE = {
    "passwd": "root:x:0:0::/:/bin/sh\n",
    "group": "root:x:0:\n",
    "subuid": "",
    "subgid": "",
    "newuidmap": "#!/bin/sh\nexit 1\n",
    "newgidmap": "#!/bin/sh\nexit 1\n",
}
"""What a rootless pod sees in place of the machine's: in ``/etc``, and the last two in ``/usr/bin``."""


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

    def build(
        self,
        order: ArchitectureJobSpec,
        files: dict[str, Path] | None = None,
        *,
        secrets: dict[str, str] | None = None,
        without: str = "",
    ) -> Built:
        """Run the init container; ``files`` are put into its context, ``secrets`` (``git/password``) are mounted.

        ``without``: a capability that a rootless pod does not have.
        """
        for name in ("in", "layout", "storage", "context"):
            (self.root / name).mkdir(parents=True)
        inputs = architecture_manifests(order)[0]
        for name, text in inputs["data"].items():
            (self.root / "in" / name).write_text(self._moved(text))
        for name, encoded in inputs.get("binaryData", {}).items():
            (self.root / "in" / name).write_bytes(base64.b64decode(encoded))
        for name, path in (files or {}).items():
            shutil.copy(path, self.root / "context" / name)
        for name, text in (secrets or {}).items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)
        rootless = order.profile == "Rootless"
        self._hand_over(rootless=rootless)
        (container,) = architecture_manifests(order)[-1]["spec"]["template"]["spec"]["initContainers"]
        environment = {each["name"]: self._moved(f"{each['value']}/").rstrip("/") for each in container["env"]}
        command = [self._moved(each) for each in container["command"]]
        ended = self._run_rootless(command, environment, without) if rootless else self._run(command, environment)
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

    def _run_rootless(
        self, command: list[str], environment: dict[str, str], without: str
    ) -> subprocess.CompletedProcess[str]:
        image = self.root.parent / "image"
        image.mkdir()
        for name, text in IMAGE.items():
            (image / name).write_text(text)
            (image / name).chmod(0o755)
        program = ROOTLESS.replace("UNAVAILABLE", str(UNAVAILABLE))
        given = PROFILES["Rootless"].container["capabilities"]["add"]
        capabilities = [each.lower() for each in given if each != without]
        return subprocess.run(
            [sys.executable, "-I", "-c", program, f"exec {' '.join(command)}", str(image), *capabilities],
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

    def _hand_over(self, *, rootless: bool) -> None:
        """The pod's root owns its volumes, and its user may pass through the folders above them.

        A rootless one has emptyDirs as kubelets make them, of the machine's root and writable for all, and a
        termination log of the same kind.
        """
        for path in (self.root, *self.root.rglob("*")):
            if not rootless:
                os.chown(path, FIRST_ID, FIRST_ID)
        if rootless:
            for name in ("layout", "storage", "context"):
                (self.root / name).chmod(0o777)
            log = self.root / "termination-log"
            log.touch()
            log.chmod(0o666)
        for folder in self.root.parents[:-2]:
            folder.chmod(folder.stat().st_mode | 0o111)
