"""Images made of files of this machine, for real nodes. The layers of polyarch's own are made once, and again when what
they are made of has changed."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.real import cgroups, images, machine
from polyarch.sandbox.real.images import ImageFiles, kept_layer, manifest, of_programs
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


def test_the_builder_image_has_what_newer_versions_of_buildah_look_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "BUILDER_PROGRAMS", ("sleep",))  # not every machine that runs this test has buildah
    helper = tmp_path / "lib/podman/netavark"
    monkeypatch.setattr(images, "NETWORK_HELPERS", (tmp_path / "libexec/podman/netavark", helper))
    without = images.of_builder(tmp_path / "without").files
    assert str(helper).lstrip("/") not in without
    assert any(path.startswith("run/") for path in without), "a rootless build mounts its own files over /run"
    helper.parent.mkdir(parents=True)
    shutil.copy(shutil.which("sleep") or "", helper)
    assert images.of_builder(tmp_path / "with").files[str(helper).lstrip("/")] == helper


def test_builds_on_real_nodes_need_a_buildah(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "buildah" else f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "plugins", lambda: "/opt/cni/bin")
    monkeypatch.setattr(cgroups, "missing_controllers", list)
    nodes = {host_architecture(): 1}
    machine.check(Settings(real=True, nodes=nodes))
    with pytest.raises(SandboxError, match="apt-get install buildah"):
        machine.check(Settings(real=True, nodes=nodes, builds=True))


def content_of(layer: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        files = [each for each in archive if each.isfile()]
        return {each.name: file.read() for each in files if (file := archive.extractfile(each)) is not None}


class Made:
    """A layer of one file, and how often it was made."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "module.py"
        self.source.write_text("a = 1\n")
        self.cache = folder / "cache"
        self.count = 0

    def layer(self, *more: Path) -> bytes:
        def make() -> dict[str, Path]:
            self.count += 1
            return {"opt/module.py": self.source}

        inputs = {"opt/module.py": self.source, **{str(each): each for each in more}}
        return kept_layer(self.cache, inputs, make)


def test_a_layer_is_made_once(tmp_path: Path) -> None:
    made = Made(tmp_path)
    assert content_of(made.layer()) == {"opt/module.py": b"a = 1\n"}
    assert made.layer() == made.layer()
    assert made.count == 1


def test_a_layer_is_made_again_when_an_input_has_changed(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.layer()
    made.source.write_text("a = 12\n")
    assert content_of(made.layer()) == {"opt/module.py": b"a = 12\n"}
    moment = made.source.stat().st_mtime_ns
    made.source.write_text("a = 34\n")  # as long as before
    os.utime(made.source, ns=(moment + 1, moment + 1))
    assert content_of(made.layer()) == {"opt/module.py": b"a = 34\n"}
    (library := tmp_path / "ld.so.cache").touch()
    made.layer(library)
    assert made.count == 4


def test_another_interpreter_has_other_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point names it."""
    made = Made(tmp_path)
    made.layer()
    monkeypatch.setattr(images.sys, "executable", str(tmp_path / "python"))
    made.layer()
    assert made.count == 2


def test_the_layers_that_were_used_last_are_kept(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.layer()
    (first,) = made.cache.glob("layer-*")
    os.utime(first, (1, 1))
    for number in range(images.KEPT_LAYERS):
        (more := tmp_path / f"input-{number}").touch()
        made.layer(more)
    assert len(list(made.cache.iterdir())) == images.KEPT_LAYERS
    assert not first.exists()
