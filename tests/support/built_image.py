"""polyarch's image as this machine can build and run it: on a base of Debian's packages, by chroot, as another user.

There is no container runtime here and no registry of base images. So the base is made with mmdebstrap, buildah builds
without a container (chroot isolation), and a process of the image runs in its own mount namespace: its root is the
image's, read-only, its user the image's. What a runtime adds to that (cgroups, seccomp, no network of the host) is not
shown.
"""

import asyncio
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from placement_process import Running

from polyarch.sandbox.binaries import cache_home

ROOT = Path(__file__).parents[2]
BASE = "localhost/python:test"
EPOCH = "1700000000"
SECONDS = 600
KEPT_SECONDS = 7 * 24 * 3600
BASE_FILE = """\
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
RUN = """\
set -e
root=$1 volume=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$volume" "$root/mnt"
mount -o remount,bind,ro "$root"
exec chroot --userspec=65532:65532 "$root" "$@"
"""
"""The shell is the machine's, and it is gone when the program starts."""


class Builder(NamedTuple):
    """buildah with a storage of its own in ``folder``."""

    buildah: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        storage = self.folder / "storage.conf"
        environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"}
        if not storage.exists():
            # vfs copies all files of each step; within a container it may be the only driver.
            for driver in ("overlay", "vfs"):
                paths = f'graphroot = "{self.folder}/images"\nrunroot = "{self.folder}/run"\n'
                storage.write_text(f'[storage]\ndriver = "{driver}"\n{paths}')
                info = subprocess.run([self.buildah, "info"], env=environment, capture_output=True, check=False)
                if info.returncode == 0:
                    break
        return environment

    def __call__(self, *arguments: str | Path) -> str:
        return told([self.buildah, *map(str, arguments)], self.environment, self.folder)

    def base(self, mmdebstrap: str) -> None:
        """An image with Debian's Python and this machine's authorities, as a stand-in for python's slim image."""
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        options = ["--quiet", "--variant=apt", "--include=python3,python3-venv,python3-pip,ca-certificates"]
        if Path(certificates).exists():
            options.append(f"--customize-hook=copy-in {certificates} /etc/ssl/certs")
        packed = kept(lambda new: told([mmdebstrap, *options, release, str(new)], os.environ, self.folder), options)
        shutil.copy(packed, self.folder / "base.tar")
        (self.folder / "Basefile").write_text(BASE_FILE)
        self("build", "--quiet", "--timestamp=0", "--file=Basefile", f"--tag={BASE}", self.folder)
        (self.folder / "base.tar").unlink()

    def polyarch(self, name: str, dist: Path) -> None:
        """What `make image BASE=…` runs."""
        environment = {**self.environment, "SOURCE_DATE_EPOCH": EPOCH, "REVISION": "0" * 40}
        command = [sys.executable, "-m", "tools.image", name, "--base", BASE, "--dist", str(dist)]
        told(command, environment, ROOT)

    def pushed(self, name: str, layout: str) -> str:
        """The digest of an image that is written to an OCI layout in the folder."""
        self("push", "--quiet", f"--digestfile={layout}.digest", name, f"oci:{self.folder / layout}:latest")
        return (self.folder / f"{layout}.digest").read_text()

    def inspected(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self("inspect", "--type=image", name))["OCIv1"])

    def removed(self) -> None:
        self("rm", "--all")
        self("rmi", "--all", "--force")
        shutil.rmtree(self.folder, ignore_errors=True)


def kept(make: Callable[[Path], object], options: Sequence[str]) -> Path:
    """What ``make`` wrote at most a week ago, for Debian's packages take longer to unpack than all the rest."""
    key = hashlib.sha256("\0".join((platform.freedesktop_os_release()["VERSION_CODENAME"], *options)).encode())
    packed = cache_home(os.environ).parent / "tests" / f"base-{platform.machine()}-{key.hexdigest()[:16]}.tar"
    if not packed.exists() or time.time() - packed.stat().st_mtime > KEPT_SECONDS:
        packed.parent.mkdir(parents=True, exist_ok=True)
        new = packed.with_suffix(f".{os.getpid()}.tar")
        make(new)
        new.rename(packed)
    return packed


def told(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-4000:]}"
    return done.stdout


def contained(root: Path, volume: Path, *command: str) -> list[str]:
    """A command within the image: its root read-only, ``volume`` at /mnt, as user 65532, nothing of our environment."""
    return ["env", "-i", "unshare", "--mount", "sh", "-c", RUN, "-", str(root), str(volume), *command]


@asynccontextmanager
async def role(root: Path, volume: Path, *arguments: str) -> AsyncIterator[Running]:
    """A role run from the image; the log is in the volume."""
    with (volume / "role.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *contained(root, volume, "/opt/polyarch/bin/polyarch", "run", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert line, (volume / "role.log").read_text()
        yield Running(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
