"""The machine of a program, from its ELF header.

The header states machine, word size and byte order; an architecture of an image corresponds to exactly one such triple.
The byte order matters because ppc64 and ppc64le share a machine number.

Pure: no I/O. Apart from the search in layers, whose archives a process that builds images does not read.
"""

from typing import NamedTuple

HEADER_SIZE = 20
"""How much of a file :func:`read_machine` needs."""
_MAGIC = b"\x7fELF"


class Machine(NamedTuple):
    """``e_machine``, the class (32 or 64 bits) and the byte order of an ELF file."""

    number: int
    bits: int
    little: bool

    def __str__(self) -> str:
        name = _NAMES.get(self.number, f"machine {self.number}")
        return f"{name} ({self.bits}-bit, {'little' if self.little else 'big'}-endian)"


# System V ABI and its supplements, e_machine.
_NAMES = {
    3: "Intel 80386",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC64",
    22: "S/390",
    40: "ARM",
    43: "SPARC V9",
    62: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}
_EXPECTED = {
    "386": Machine(3, 32, little=True),
    "amd64": Machine(62, 64, little=True),
    "arm": Machine(40, 32, little=True),
    "arm64": Machine(183, 64, little=True),
    "loong64": Machine(258, 64, little=True),
    "mips": Machine(8, 32, little=False),
    "mipsle": Machine(8, 32, little=True),
    "mips64": Machine(8, 64, little=False),
    "mips64le": Machine(8, 64, little=True),
    "ppc64": Machine(21, 64, little=False),
    "ppc64le": Machine(21, 64, little=True),
    "riscv64": Machine(243, 64, little=True),
    "s390x": Machine(22, 64, little=False),
}


_COMPATIBLE = {
    "amd64": (Machine(3, 32, little=True), Machine(62, 32, little=True)),
    "arm64": (Machine(40, 32, little=True),),
    "mips64": (Machine(8, 32, little=False),),
    "mips64le": (Machine(8, 32, little=True),),
    "ppc64": (Machine(20, 32, little=False),),
    "riscv64": (Machine(243, 32, little=True),),
    "s390x": (Machine(22, 32, little=False),),
}


def read_machine(head: bytes) -> Machine | None:
    """The machine of the file that begins with ``head``; None if it is not an ELF file."""
    if len(head) < HEADER_SIZE or not head.startswith(_MAGIC):
        return None
    bits = {1: 32, 2: 64}.get(head[4])
    if bits is None or head[5] not in (1, 2):
        return None
    little = head[5] == 1
    return Machine(int.from_bytes(head[18:20], "little" if little else "big"), bits, little)


def runs_as_well(architecture: str, machine: Machine) -> bool:
    """Whether kernels of the architecture run this other machine's programs, too, where they are built for it and the
    processor has the mode, as those of amd64 run 386."""
    return machine in _COMPATIBLE.get(architecture, ())


def expected_machine(architecture: str) -> Machine | None:
    """The machine of a normalised architecture; None if it is unknown or has no ELF programs."""
    return _EXPECTED.get(architecture)
