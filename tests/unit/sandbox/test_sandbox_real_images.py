"""Images made of files of this machine, for real nodes."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.real import cgroups, images, machine
from polyarch.sandbox.real.images import ImageFiles, manifest, of_programs
from polyarch.sandbox.state import Settings
from polyarch.sandbox.versions import host_architecture

pytestmark = pytest.mark.req("SB-017")


def entries(files: ImageFiles) -> dict[str, tarfile.TarInfo]:
    (child,) = manifest(files, "amd64").children
    with tarfile.open(fileobj=io.BytesIO(child.blobs[1])) as archive:
        return {each.name: each for each in archive}


def test_a_program_keeps_the_rights_that_its_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CAPABILITIES", "user.capability")  # only root may write security.capability
    value = bytes((1, 0, 0, 2)) + (1 << 7).to_bytes(4, "little") + bytes(12)
    given = {"plain": 0o644, "program": 0o700, "setuid": 0o4711, "setgid": 0o2755, "capable": 0o755}
    files = {}
    for name, mode in given.items():
        files[f"usr/bin/{name}"] = tmp_path / name
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    os.setxattr(tmp_path / "capable", "user.capability", value)
    found = entries(ImageFiles(files, (), {}))
    modes = {name: oct(found[f"usr/bin/{name}"].mode) for name in given}
    expected = given | {"program": 0o755, "setuid": 0o4755}
    assert modes == {name: oct(mode) for name, mode in expected.items()}
    told = found["usr/bin/capable"].pax_headers["SCHILY.xattr.user.capability"]
    assert told.encode("utf-8", "surrogateescape") == value
    assert {found[each].mode for each in ("tmp", "var/tmp")} == {0o1777}


def test_an_image_of_programs_says_which_one_the_machine_lacks() -> None:
    assert {"bin/sh", "usr/bin/mkdir"} <= of_programs(("mkdir",)).keys()
    with pytest.raises(SandboxError, match="it has no not-there, nor-there"):
        of_programs(("not-there", "mkdir", "nor-there"))


def test_builds_on_real_nodes_need_a_buildah(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "buildah" else f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "plugins", lambda: "/opt/cni/bin")
    monkeypatch.setattr(cgroups, "missing_controllers", list)
    nodes = {host_architecture(): 1}
    machine.check(Settings(real=True, nodes=nodes))
    with pytest.raises(SandboxError, match="apt-get install buildah"):
        machine.check(Settings(real=True, nodes=nodes, builds=True))
