"""The machine that real nodes are on."""

from pathlib import Path

import pytest

from polyarch.sandbox.real.machine import PROFILE, unload_profile

pytestmark = pytest.mark.req("SB-017")

OTHERS = "crun (unconfined)\nbuildah (unconfined)\n"


@pytest.fixture
def apparmor(tmp_path: Path) -> Path:
    folder = tmp_path / "apparmor"
    folder.mkdir()
    (folder / ".remove").touch()
    (folder / "profiles").write_text(f"{OTHERS}{PROFILE} (enforce)\n")
    return folder


def process(proc: Path, pid: int, profile: str) -> None:
    current = proc / str(pid) / "attr/current"
    current.parent.mkdir(parents=True)
    current.write_text(f"{profile}\n")


def test_the_profile_of_containers_is_removed_when_nothing_has_it(apparmor: Path, tmp_path: Path) -> None:
    process(tmp_path / "proc", 1, "unconfined")
    process(tmp_path / "proc", 77, f"{PROFILE}.other (enforce)")
    unload_profile(apparmor=apparmor, proc=tmp_path / "proc")
    assert (apparmor / ".remove").read_text() == PROFILE


def test_containers_of_the_machine_keep_the_profile(apparmor: Path, tmp_path: Path) -> None:
    process(tmp_path / "proc", 1, "unconfined")
    process(tmp_path / "proc", 77, f"{PROFILE} (enforce)")
    unload_profile(apparmor=apparmor, proc=tmp_path / "proc")
    assert (apparmor / ".remove").read_text() == ""


def test_a_kernel_without_apparmor_or_without_the_profile_is_left_alone(apparmor: Path, tmp_path: Path) -> None:
    unload_profile(apparmor=tmp_path / "missing", proc=tmp_path)
    (apparmor / "profiles").write_text(OTHERS)
    unload_profile(apparmor=apparmor, proc=tmp_path)
    assert (apparmor / ".remove").read_text() == ""


def test_whoever_may_not_change_profiles_leaves_them(apparmor: Path, tmp_path: Path) -> None:
    (apparmor / ".remove").unlink()
    (apparmor / ".remove").mkdir()
    unload_profile(apparmor=apparmor, proc=tmp_path)
