"""Which machine a program is for."""

import pytest
from image_parts import MACHINES, elf

from polyarch.oci.image.elf import HEADER_SIZE, expected_machine, read_machine
from polyarch.platforms import KNOWN_ARCHITECTURES


@pytest.mark.req("RG-049")
@pytest.mark.parametrize("architecture", sorted(MACHINES))
def test_a_program_is_for_its_architecture_and_no_other(architecture):
    """Machine, word size and byte order tell every pair apart, ppc64 from ppc64le too."""
    machine = read_machine(elf(architecture))
    assert machine == expected_machine(architecture)
    assert [other for other in MACHINES if expected_machine(other) == machine] == [architecture]


@pytest.mark.req("RG-020", "RG-049")
def test_every_known_architecture_but_wasm_has_a_machine():
    """None is silently unchecked."""
    assert {each for each in KNOWN_ARCHITECTURES if expected_machine(each) is None} == {"wasm"}


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x7fELF",
        elf("amd64")[: HEADER_SIZE - 1],
        b"MZ" + elf("amd64")[2:],
        b"\x7fELF\x03" + elf("amd64")[5:],
        b"\x7fELF\x02\x00" + elf("amd64")[6:],
        b"#!/bin/sh\n" + b" " * 50,
        b"\0asm\x01\0\0\0" + bytes(20),
    ],
)
def test_what_is_no_elf_file_has_no_machine(head):
    assert read_machine(head) is None


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("amd64", "x86-64 (64-bit, little-endian)"),
        ("arm64", "AArch64 (64-bit, little-endian)"),
        ("ppc64", "PowerPC64 (64-bit, big-endian)"),
        ("386", "Intel 80386 (32-bit, little-endian)"),
    ],
)
def test_a_machine_is_told_in_words(architecture, words):
    assert str(read_machine(elf(architecture))) == words


def test_an_unknown_machine_is_told_by_its_number():
    head = bytearray(elf("amd64"))
    head[18:20] = (9999).to_bytes(2, "little")
    assert str(read_machine(bytes(head))) == "machine 9999 (64-bit, little-endian)"
