"""The smallest program of each architecture, for telling whether a node can run it (BD-147).

An emulated build shows one to the kernel inside an empty chroot before any line of the user's runs there: without a
registered emulator, or with one that is not loaded beforehand (flag F of binfmt_misc) and so is not found inside, it
does not start. Each is an ELF header, one program header, and the call ``exit(0)``: some 130 bytes that anybody can
check against the instruction set's manual, so nothing has to be compiled, downloaded or trusted.
"""

from typing import Final, Literal

import msgspec

from polyarch.oci.layers.elf import Machine, expected_machine

ADDRESS: Final = 0x400000
"""Where it is loaded: above what kernels forbid, aligned to the largest page (64 KiB)."""
_ALIGNMENT: Final = 0x10000
_EXECUTABLE, _LOAD, _READ_EXECUTE = 2, 1, 5


class _Exit(msgspec.Struct, frozen=True):
    """``exit(0)`` on one architecture: its instructions, and what ``e_flags`` has to say."""

    code: str
    """As the manuals write the instructions, in hexadecimal; words of 4 bytes are stored in the machine's order."""
    flags: int = 0
    bytewise: bool = False
    """The instructions are of many lengths and stand in the order of their bytes."""


_EXITS: Final = {
    # xor %ebx,%ebx; mov $1,%eax; int $0x80
    "386": _Exit("31db b801000000 cd80", bytewise=True),
    # xor %edi,%edi; mov $60,%eax; syscall
    "amd64": _Exit("31ff b83c000000 0f05", bytewise=True),
    # mov r0,#0; mov r7,#1; svc 0 (EABI 5)
    "arm": _Exit("e3a00000 e3a07001 ef000000", flags=0x05000000),
    # mov x0,#0; mov x8,#93; svc 0
    "arm64": _Exit("d2800000 d2800ba8 d4000001"),
    # ori $a0,$zero,0; ori $a7,$zero,93; syscall 0 (double-float ABI)
    "loong64": _Exit("03800004 0381740b 002b0000", flags=0x43),
    # li $a0,0; li $v0,4001; syscall (o32, MIPS32r2)
    "mips": _Exit("24040000 24020fa1 0000000c", flags=0x70001000),
    "mipsle": _Exit("24040000 24020fa1 0000000c", flags=0x70001000),
    # li $a0,0; li $v0,5058; syscall (n64, MIPS64r2)
    "mips64": _Exit("24040000 240213c2 0000000c", flags=0x80000000),
    "mips64le": _Exit("24040000 240213c2 0000000c", flags=0x80000000),
    # li r3,0; li r0,1; sc (ELFv2, whose entry point is code and no descriptor)
    "ppc64": _Exit("38600000 38000001 44000002", flags=2),
    "ppc64le": _Exit("38600000 38000001 44000002", flags=2),
    # li a0,0; li a7,93; ecall
    "riscv64": _Exit("00000513 05d00893 00000073"),
    # lghi %r2,0; svc 1
    "s390x": _Exit("a7290000 0a01", bytewise=True),
}


def probe(architecture: str) -> bytes | None:
    """A program of the architecture that ends with status 0; None for one that is not known here."""
    known, machine = _EXITS.get(architecture), expected_machine(architecture)
    if known is None or machine is None:
        return None
    return _program(machine, known)


def _program(machine: Machine, known: _Exit) -> bytes:
    order: Literal["little", "big"] = "little" if machine.little else "big"
    wide = machine.bits == 64
    header_size, segment_size = (64, 56) if wide else (52, 32)
    code = _instructions(known, little=machine.little)
    size = header_size + segment_size + len(code)

    def half(value: int) -> bytes:
        return value.to_bytes(2, order)

    def word(value: int) -> bytes:
        return value.to_bytes(4, order)

    def address(value: int) -> bytes:
        return value.to_bytes(8 if wide else 4, order)

    identity = b"\x7fELF" + bytes([2 if wide else 1, 1 if machine.little else 2, 1]) + bytes(9)
    header = (
        identity
        + half(_EXECUTABLE)
        + half(machine.number)
        + word(1)
        + address(ADDRESS + header_size + segment_size)
        + address(header_size)
        + address(0)
        + word(known.flags)
        + half(header_size)
        + half(segment_size)
        + half(1)
        + half(0) * 3
    )
    place = address(0) + address(ADDRESS) * 2 + address(size) * 2
    if wide:
        segment = word(_LOAD) + word(_READ_EXECUTE) + place + address(_ALIGNMENT)
    else:
        segment = word(_LOAD) + place + word(_READ_EXECUTE) + address(_ALIGNMENT)
    return header + segment + code


def _instructions(known: _Exit, *, little: bool) -> bytes:
    parts = [bytes.fromhex(part) for part in known.code.split()]
    return b"".join(part[::-1] if little and not known.bytewise else part for part in parts)
