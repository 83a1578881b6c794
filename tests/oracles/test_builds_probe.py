"""The programs that tell whether a node can emulate an architecture."""

import platform
import subprocess
from pathlib import Path

import pytest

from polyarch.builds.jobs.script import _EXITS, emulation_check
from polyarch.oci.image.elf import expected_machine, read_machine

QEMU = {
    "386": "i386",
    "amd64": "x86_64",
    "arm64": "aarch64",
    "loong64": "loongarch64",
    "mips64le": "mips64el",
    "mipsle": "mipsel",
}
OWN = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@pytest.mark.req("BD-147")
@pytest.mark.parametrize("architecture", _EXITS)
def test_each_is_a_program_of_its_architecture(architecture: str) -> None:
    program = emulation_check(architecture)
    assert program is not None
    assert read_machine(program) == expected_machine(architecture)
    assert len(program) < 160


@pytest.mark.req("BD-147")
@pytest.mark.parametrize("architecture", _EXITS)
def test_each_ends_with_status_0(architecture: str, tmp_path, peer) -> None:
    """Run by the kernel where it is its own, else by an emulator."""
    program = emulation_check(architecture)
    assert program is not None
    path = tmp_path / "probe"
    path.write_bytes(program)
    path.chmod(0o755)
    command = [str(path)]
    if architecture != OWN:
        folder = Path(peer("qemu-aarch64-static")).parent
        command = [str(folder / f"qemu-{QEMU.get(architecture, architecture)}-static"), *command]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.req("BD-147")
def test_an_unknown_architecture_has_none() -> None:
    assert emulation_check("vax") is None
