"""Nodes of an architecture that the machine has not."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from polyarch.sandbox import versions
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.real import cgroups, emulation, machine
from polyarch.sandbox.real.emulation import EMULATOR, MARKED_AT, NO_PROGRAM
from polyarch.sandbox.registry.images import program
from polyarch.sandbox.state import Settings

pytestmark = pytest.mark.req("SB-021")

HERE = versions.host_architecture()
THERE = {"amd64": "arm64", "arm64": "amd64"}


def interpreter(entries: Sequence[str], content: bytes) -> str:
    """The file that the kernel would start for a program; entries that came last are asked first."""
    for entry in reversed(entries):
        _, _, _, _, magic, mask, path, _ = entry.split(":")
        wanted, compared = (bytes.fromhex(text.replace("\\x", "")) for text in (magic, mask))
        if all(byte & bits == known & bits for byte, known, bits in zip(content, wanted, compared, strict=False)):
            return Path(path).name
    return "the kernel"


def changed(content: bytes, at: int, value: int) -> bytes:
    return content[:at] + bytes([value]) + content[at + 1 :]


@pytest.mark.parametrize(("own", "other"), THERE.items())
def test_the_kernel_gives_programs_to_the_emulator_refuses_its_own_and_runs_marked_ones(own: str, other: str) -> None:
    entries = emulation.entries(other, "/programs", own=own)
    assert len({entry.split(":")[1] for entry in entries}) == len(entries), "names differ"
    of = {each: program(each) for each in ("amd64", "arm64", "386", "arm", "s390x", "ppc64le", "riscv64")}
    expected = dict.fromkeys(of, "the kernel") | {other: EMULATOR, own: NO_PROGRAM}
    expected["386" if own == "amd64" else "arm"] = NO_PROGRAM
    assert {each: interpreter(entries, content) for each, content in of.items()} == expected
    for of_system in range(10):  # what says which system a program is for changes nothing
        assert interpreter(entries, changed(of[own], 7, of_system)) == NO_PROGRAM
        assert interpreter(entries, changed(of[other], 7, of_system)) == EMULATOR
    assert interpreter(entries, changed(of[own], 16, 3)) == NO_PROGRAM, "position-independent"
    assert interpreter(entries, changed(of[own], 16, 1)) == "the kernel", "an object file"
    assert interpreter(entries, changed(of[own], MARKED_AT, emulation.MARK)) == "the kernel"
    assert interpreter(entries, b"#!/bin/sh\n".ljust(64)) == "the kernel"


@pytest.mark.parametrize(
    ("release", "is_enough"),
    {
        "5.10.0-30-amd64": False,
        "6.6.99": False,
        "6.7": True,
        "6.7+": True,
        "6.6+": False,
        "6.7.0-rc1+": True,
        "6.18.44-x": True,
        "7.2.0": True,
    }.items(),
)
def test_only_kernels_with_entries_of_a_user_namespace_emulate(release: str, is_enough: bool) -> None:
    problem = emulation.problem(THERE[HERE], release=release)
    assert (problem == "") == is_enough
    assert is_enough or "Linux 6.7" in problem


@pytest.mark.parametrize("architecture", ["s390x", "riscv64", "ppc64le"])
def test_what_seeded_images_have_no_program_for_is_not_emulated(architecture: str) -> None:
    assert emulation.problem(architecture) == f"{architecture} cannot be emulated: expected {HERE} or {THERE[HERE]}"


def test_marked_copies_differ_in_one_byte_and_are_made_again_for_another_program(tmp_path: Path) -> None:
    source, folder = tmp_path / "runc", tmp_path / "programs"
    source.write_bytes(program(HERE))
    os.utime(source, (1, 1))

    def write() -> Path:
        emulation.write_programs(folder, {"runc": source}, source)
        return folder / "runc"

    content = write().read_bytes()
    assert [at for at, (one, other) in enumerate(zip(content, program(HERE), strict=True)) if one != other] == [
        MARKED_AT
    ]
    assert os.access(folder / "runc", os.X_OK)
    assert {each.name for each in folder.iterdir()} == {"runc", EMULATOR, NO_PROGRAM}
    inode = write().stat().st_ino
    assert write().stat().st_ino == inode, "nothing has changed"
    source.write_bytes(program(HERE) + b"more")
    assert write().read_bytes().endswith(b"more")


def test_a_script_cannot_be_marked(tmp_path: Path) -> None:
    (tmp_path / "runc").write_text("#!/bin/sh\n")
    with pytest.raises(SandboxError, match="is no ELF program"):
        emulation.write_programs(tmp_path / "programs", {"runc": tmp_path / "runc"}, tmp_path / "runc")


def test_an_emulator_that_needs_libraries_in_containers_is_passed_over(tmp_path: Path) -> None:
    name = emulation.EMULATORS[THERE[HERE]]
    for each, content in ((name, b"\x7fELF /lib64/ld-linux-x86-64.so.2"), (f"{name}-static", b"\x7fELF")):
        assert emulation.emulator(THERE[HERE], str(tmp_path)) is None
        (tmp_path / each).write_bytes(content)
        (tmp_path / each).chmod(0o755)
    assert emulation.emulator(THERE[HERE], str(tmp_path)) == tmp_path / f"{name}-static"


@pytest.mark.parametrize(
    ("nodes", "said"),
    {
        "without an emulator": ({HERE: 1, THERE[HERE]: 1}, "apt-get install qemu-user-static"),
        "alone": ({THERE[HERE]: 2}, "a static qemu for programs of"),
        "of a third architecture": ({HERE: 1, "s390x": 1}, f"s390x cannot be emulated: .*; write --nodes {HERE}=2"),
        "too many": ({HERE: 6, THERE[HERE]: 5}, "expected 1 to 10 nodes"),
        "with none of them": ({HERE: 1, THERE[HERE]: 0}, ""),
        "none of a third architecture": ({HERE: 1, "s390x": 0}, ""),
    }.values(),
)
def test_what_emulated_nodes_lack_is_said(
    nodes: Mapping[str, int], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name.startswith("qemu-") else f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "plugins", lambda: str(tmp_path))
    monkeypatch.setattr(cgroups, "missing_controllers", list)
    monkeypatch.setattr(emulation, "interpreters", lambda _: [])
    wanted = Settings(real=True, nodes=dict(nodes))
    if said:
        with pytest.raises(SandboxError, match=said):
            machine.check(wanted)
    else:
        machine.check(wanted)


ENTRY = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: POF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""
"""What the kernel shows of the entry of Debian's package."""


@pytest.mark.parametrize(
    ("entry", "architectures"),
    {
        "Debian's": (ENTRY, {"arm64"}),
        "of all ELF programs": (ENTRY.replace(ENTRY.splitlines()[4], "magic 7f454c46"), {"amd64", "arm64"}),
        "without a mask": ("enabled\noffset 18\nmagic b700\n", {"arm64"}),
        "turned off": (ENTRY.replace("enabled", "disabled"), set()),
        "of another architecture": (ENTRY.replace("0200b700", "02001600"), set()),
        "by the name's ending": ("enabled\ninterpreter /usr/bin/cli\nflags: \nextension .exe\n", set()),
        "the list's own status": ("enabled\n", set()),
    }.values(),
)
def test_what_the_machine_emulates_by_itself_is_known(entry: str, architectures: set[str], tmp_path: Path) -> None:
    (tmp_path / "qemu-some").write_text(entry)
    assert {each for each in emulation.EMULATORS if emulation.interpreters(each, tmp_path)} == architectures


def test_a_machine_that_runs_the_other_programs_by_itself_would_not_refuse_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulation, "interpreters", lambda _: [tmp_path / "qemu-it"])
    with pytest.raises(SandboxError, match=r"echo 0 \| sudo tee .*/qemu-it"):
        machine.check(Settings(real=True, nodes={HERE: 1, THERE[HERE]: 1}))
    with pytest.raises(SandboxError, match="expected 1 to 10 nodes"):  # the next thing that is looked at
        machine.check(Settings(real=True, nodes={THERE[HERE]: 11}))


def test_only_sandboxes_with_emulated_nodes_need_the_programs_of_these() -> None:
    plain = {each.name for each in versions.with_real_nodes([HERE])}
    both = {each.name for each in versions.with_real_nodes([HERE, THERE[HERE]])}
    assert both - plain == {each.name for each in versions.emulated_node_programs(THERE[HERE])}
    older = versions.of_version(versions.emulated_node_programs("arm64"), "1.30.14")
    assert {each.name: each.version for each in older} == {
        "kubelet-arm64": "1.30.14",
        f"containerd-{versions.CONTAINERD}-arm64": versions.CONTAINERD,
        f"containerd-shim-runc-v2-{versions.CONTAINERD}": versions.CONTAINERD,
    }
