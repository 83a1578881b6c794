"""``python -m tools.release.krew``: the archives and the manifest with which krew installs ``kubectl polyarch``.

An archive has the launcher ``deploy/krew/kubectl-polyarch`` and every package that polyarch needs, as wheels of the
lock for one platform and for each Python in ``PYTHONS``: nothing is downloaded or compiled where it is installed. What
is the same for every Python is there once, in ``packages/any``. The same commit makes the same bytes.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

import polyarch
from polyarch.cli.output.documents import manifest_text

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "deploy" / "krew"
DOWNLOADS: Final = "https://github.com/polyarch/polyarch/releases/download"
LAUNCHER: Final = "kubectl-polyarch"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""What uv calls the platforms for which all packages have wheels; docs/design/installation.md says which have not."""
LEFT_OUT: Final = ("RECORD", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")
"""Files of an installation that tell where it was made."""


def requirements(wheel: Path) -> str:
    """What is installed: the lock of the image without what only a long-running process gains from, and the wheel."""
    lock = (ROOT / "deploy" / "image" / "requirements.lock").read_text()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    plain = re.sub(r"^uvloop==.*\n(?:    .*\n)+", "", lock, flags=re.MULTILINE)
    return f"{plain}{wheel.resolve()} --hash=sha256:{digest}\n"


def install(uv: Path, listed: Path, target: Path, *, platform: str, python: str) -> None:
    """The packages for a platform and a Python that need not be this one."""
    options = ["--only-binary", ":all:", "--require-hashes", "--no-deps", "--link-mode", "copy"]
    chosen = ["--python", sys.executable, "--python-platform", PLATFORMS[platform], "--python-version", python]
    subprocess.run([uv, "pip", "install", "-q", "--target", target, *chosen, *options, "-r", listed], check=True)
    shutil.rmtree(target / "bin", ignore_errors=True)
    (target / ".lock").unlink(missing_ok=True)
    for information in target.glob("*.dist-info"):
        for name in LEFT_OUT:
            (information / name).unlink(missing_ok=True)


def arrange(trees: Mapping[str, Path], packages: Path) -> None:
    """Move what all of ``trees`` (by Python) have alike to ``any``, the rest to a folder of its Python."""
    alike = set.intersection(*({(each.name, _digest(each)) for each in tree.iterdir()} for tree in trees.values()))
    # The launcher tells by the folders which Pythons there are, so one alone has a folder, too.
    shared = {name for name, _ in alike} if len(trees) > 1 else set()
    for python, tree in trees.items():
        for each in sorted(tree.iterdir()):
            place = packages / ("any" if each.name in shared else f"python{python}")
            place.mkdir(parents=True, exist_ok=True)
            if not (place / each.name).exists():
                shutil.move(each, place / each.name)


def _digest(path: Path) -> str:
    content = hashlib.sha256()
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.is_file():
            content.update(f"{each.relative_to(path)}\0{each.stat().st_size}\0".encode() + each.read_bytes())
    return content.hexdigest()


def pack(folder: Path, archive: Path, *, epoch: int) -> str:
    """A tar.gz that tells nothing of when, where and by whom it was made; returns its SHA-256."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        entry.mode = 0o755 if entry.name == LAUNCHER else 0o644
        return entry

    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def manifest(version: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """The plugin's manifest; ``digests`` are those of the archives, by platform."""
    document: dict[str, Any] = yaml.safe_load((SOURCE / "polyarch.yaml").read_text())
    document["spec"]["version"] = f"v{version}"
    document["spec"]["platforms"] = [
        {
            "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))},
            "uri": f"{DOWNLOADS}/v{version}/{archive_name(version, platform)}",
            "sha256": digest,
            "bin": LAUNCHER,
        }
        for platform, digest in digests.items()
    ]
    return document


def archive_name(version: str, platform: str) -> str:
    return f"kubectl-polyarch-{version}-{platform}.tar.gz"


def build(
    uv: Path, wheel: Path, target: Path, *, platforms: Sequence[str], pythons: Sequence[str], epoch: int
) -> dict[str, str]:
    """Write an archive per platform into ``target``; returns their digests."""
    digests = {}
    for platform in platforms:
        with tempfile.TemporaryDirectory() as temporary:
            work, trees = Path(temporary), {}
            (work / "requirements.txt").write_text(requirements(wheel))
            for python in pythons:
                trees[python] = work / python
                install(uv, work / "requirements.txt", trees[python], platform=platform, python=python)
            plugin = work / "plugin"
            arrange(trees, plugin / "packages")
            shutil.copy(SOURCE / LAUNCHER, plugin)
            shutil.copyfile(ROOT / "LICENSE", plugin / "LICENSE")
            digests[platform] = pack(plugin, target / archive_name(polyarch.__version__, platform), epoch=epoch)
    return digests


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release.krew", description="Build the kubectl plugin.")
    parser.add_argument("--uv", type=Path, required=True, help="the program uv")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where `make dist` put the wheel")
    parser.add_argument("--platform", action="append", choices=PLATFORMS, help="may be repeated (default: all)")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="may be repeated (default: all)")
    given = parser.parse_args(arguments)
    wheels = sorted(given.dist.glob("polyarch-*.whl"))
    if len(wheels) != 1:
        print(f"{given.dist} has {len(wheels)} wheels of polyarch and should have one: make dist", file=sys.stderr)
        return 2
    target = given.dist / "krew"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    chosen = {"platforms": given.platform or tuple(PLATFORMS), "pythons": given.python or PYTHONS}
    digests = build(given.uv.absolute(), wheels[0], target, epoch=epoch, **chosen)
    (target / "polyarch.yaml").write_text(manifest_text([manifest(polyarch.__version__, digests)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
