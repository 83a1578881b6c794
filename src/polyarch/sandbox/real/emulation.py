"""Emulated nodes: of an architecture that the machine has not. Its programs run there, and the machine's do not.

Kubelet and runtime of such a node are programs of the machine that say they run on the other architecture. The runtime
is in a user namespace with a ``binfmt_misc`` of its own, which Linux has from 6.7 on. Its first entry gives programs of
the node's architecture to qemu; the others give programs of the machine's to a file that is no program, so they fail
with ENOEXEC as on a machine that lacks their architecture. What the runtime itself needs is copied and marked in a byte
of the ELF header that nobody reads, and these entries leave marked programs alone. They end with the namespace; neither
the machine nor other nodes see them.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.versions import host_architecture

EMULATORS: Final = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}
"""Program by the architecture of an emulated node: those of which seeded images have a program."""
PACKAGE: Final = "qemu-user-static"
FIRST_KERNEL: Final = (6, 7)
PROGRAMS: Final = "programs"
"""Folder of the marked copies, in containerd's of the node."""
EMULATOR: Final = "emulator"
NO_PROGRAM: Final = "no-program"
BINFMT: Final = "/run/binfmt_misc"
MACHINE: Final = Path("/proc/sys/fs/binfmt_misc")
IPTABLES: Final = ("iptables", "ip6tables", "iptables-save", "iptables-restore", "ip6tables-save", "ip6tables-restore")
"""What the CNI plugin for host ports calls."""
IDENTITY: Final = "0 0 4294967294"
"""Every user of the machine is the same one in the namespace. One is left out, because by this containerd and runc see
that they are in a user namespace, and do without what cannot be done there."""
MARKED_AT: Final = 9
"""The first of seven bytes of padding in an ELF header."""
MARK: Final = 0x70
_MASK: Final = b"\xff" * 7 + b"\x00\x00\xff" + bytes(6) + b"\xfe\xff\xff\xff"
"""Of a header: any system (byte 7) and version of it (8), no mark, any other padding; type 2 or 3."""
_KINDS: Final = {"amd64": ((2, 0x3E), (1, 0x3E), (1, 0x03)), "arm64": ((2, 0xB7), (1, 0x28))}
"""Class and machine in the headers of the programs that a kernel of this architecture executes; its own first."""


def problem(architecture: str, *, release: str = "") -> str:
    """Empty, or why this machine cannot have a node of this architecture; ``release`` is that of its kernel."""
    if {architecture, host_architecture()} - EMULATORS.keys():
        others = " or ".join(each for each in EMULATORS if each != host_architecture())
        return f"{architecture} cannot be emulated: expected {host_architecture()} or {others}"
    known = tuple(map(int, re.findall(r"\d+", release or os.uname().release)[:2]))
    if known < FIRST_KERNEL:
        wanted = ".".join(map(str, FIRST_KERNEL))
        return f"nodes of {architecture} need Linux {wanted}, whose user namespaces have a binfmt_misc of their own"
    return ""


def interpreters(architecture: str, folder: Path = MACHINE) -> list[Path]:
    """The entries of the machine's own ``binfmt_misc`` by which all of its nodes run programs of this architecture."""
    wanted = _header(*_KINDS[architecture][0])
    found = []
    for entry in sorted(folder.glob("*")):
        try:
            lines = entry.read_text(encoding="utf-8").splitlines()
        except OSError:  # ``register`` can only be written
            continue
        said = dict(line.split(" ", 1) for line in lines if " " in line)
        magic, offset = bytes.fromhex(said.get("magic", "")), int(said.get("offset", "0"))
        mask = bytes.fromhex(said.get("mask", "")) or b"\xff" * len(magic)
        pairs = zip(wanted[offset:], magic, mask, strict=False)
        if magic and "enabled" in lines and all(byte & bits == known & bits for byte, known, bits in pairs):
            found.append(entry)
    return found


def emulator(architecture: str, path: str) -> Path | None:
    """The static qemu for programs of this architecture, looked for in the folders ``path``; a dynamic one would look
    for its libraries in containers."""
    for name in (f"{EMULATORS[architecture]}-static", EMULATORS[architecture]):
        found = shutil.which(name, path=path)
        if found is not None and b"/ld-linux" not in Path(found).read_bytes()[:4096]:
            return Path(found)
    return None


def write_programs(folder: Path, programs: Mapping[str, Path], qemu: Path) -> None:
    """Marked copies of these programs and the emulator, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in {**programs, EMULATOR: qemu}.items():
        _mark(source, folder / name)
    no_program = folder / NO_PROGRAM
    no_program.write_text("")
    no_program.chmod(0o755)


def _mark(source: Path, target: Path) -> None:
    known = source.stat()
    if target.exists() and target.stat().st_mtime_ns == known.st_mtime_ns:
        return
    content = bytearray(source.read_bytes())
    if content[:4] != b"\x7fELF":
        raise SandboxError(f"{source} is no ELF program, and an emulated node runs no scripts")
    content[MARKED_AT] = MARK
    made = target.with_name(f".{target.name}")
    made.write_bytes(content)
    made.chmod(0o755)
    os.utime(made, ns=(known.st_mtime_ns, known.st_mtime_ns))
    made.replace(target)


def entries(architecture: str, folder: str, *, own: str) -> list[str]:
    """What is written to ``register`` of ``binfmt_misc``, in this order; ``folder`` is that of the marked programs.

    Flags: the file is opened now (F), and programs keep their first argument (P).
    """
    mask = _escaped(_MASK)
    refused = [
        f":{own}-{number}:M::{_escaped(_header(*kind))}:{mask}:{folder}/{NO_PROGRAM}:F"
        for number, kind in enumerate(_KINDS[own])
    ]
    return [f":{architecture}:M::{_escaped(_header(*_KINDS[architecture][0]))}:{mask}:{folder}/{EMULATOR}:PF", *refused]


def _header(size: int, machine: int) -> bytes:
    """Of an unmarked program, lowest byte first; the numbers after the padding are type and machine."""
    return b"\x7fELF" + bytes([size, 1, 1]) + bytes(9) + (2).to_bytes(2, "little") + machine.to_bytes(2, "little")


def _escaped(content: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in content)


def map_users(pid: int) -> None:
    """Map the users and groups of the user namespace that this process keeps."""
    for kind in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{kind}").write_text(IDENTITY, encoding="ascii")


def mounts(architecture: str, folder: str, *, own: str) -> str:
    """The shell's program that makes the entries, in the node's user and mount namespaces. ``printf`` is the shell's
    own: after the last entry nothing without a mark starts there."""
    return "\n".join(
        [
            "set -e",
            f"mkdir -p {BINFMT}",
            f"mount -t binfmt_misc binfmt_misc {BINFMT}",
            *(f"printf %s '{each}' > {BINFMT}/register" for each in entries(architecture, folder, own=own)),
        ]
    )
