"""The folder of a pod that is run, ``pods/<uid>/`` of the sandbox, and its volumes in it (SB-011).

Files of volumes are replaced all at once, as kubelets do: a file is a symbolic link to ``..data/file``, and ``..data``
one to a folder that is never changed. A reader sees all the old files or all the new ones.
"""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from polyarch.sandbox.files import write_private
from polyarch.sandbox.pods.environment import Missing
from polyarch.sandbox.pods.spec import Container, HostPath, PodDocument, Volume
from polyarch.sandbox.pods.volumes import File, projection

DATA = "..data"


class PodFolder:
    """The paths of one pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubeconfig = root / "kubeconfig"

    def volume(self, name: str) -> Path:
        return self.root / "volumes" / name

    def log(self, container: str, attempt: int) -> Path:
        return self.root / "logs" / f"{container}.{attempt}.log"

    def configuration(self, container: str) -> Path:
        """A configuration file that was changed for this machine."""
        return self.root / "configurations" / container

    def termination(self, container: str) -> Path:
        return self.root / "termination" / container

    @property
    def fate(self) -> Path:
        """Where a process of the pod says what shall become of it."""
        return self.root / "fate"

    def mounts(self, pod: PodDocument, container: Container, host: Path) -> dict[str, str]:
        """mountPath → folder on this machine; also the container's termination log."""
        volumes = {volume.name: volume for volume in pod.spec.volumes or ()}
        found = {container.termination_message_path: str(self.termination(container.name))}
        for mount in container.volume_mounts or ():
            volume = volumes[mount.name]
            path = host_path(volume.host_path, host) if volume.host_path is not None else self.volume(mount.name)
            found[mount.mount_path] = str(path / mount.sub_path) if mount.sub_path else str(path)
        return found

    def prepare_start(self, container: Container, attempt: int) -> Path:
        """Empty its termination log, delete logs older than the previous attempt; return where it logs."""
        write_private(self.termination(container.name), b"")
        log = self.log(container.name, attempt)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log(container.name, attempt - 2).unlink(missing_ok=True)
        return log

    def delete(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def make_volume(folder: PodFolder, volume: Volume, host: Path) -> None:
    """Create what is not filled from objects: an emptyDir, or what a hostPath names. Raises Missing."""
    if volume.empty_dir is not None:
        folder.volume(volume.name).mkdir(parents=True, exist_ok=True)
    elif volume.host_path is not None:
        _check_host_path(volume.host_path, host)
    elif projection(volume) is None:
        raise Missing(f'volume "{volume.name}": the nodes of the sandbox have no volumes of this kind')


def host_path(volume: HostPath, host: Path) -> Path:
    """A node's files are below ``host``; ``..`` leads nowhere, as the API server refuses it."""
    return host / PurePosixPath(volume.path).relative_to("/")


def _check_host_path(volume: HostPath, host: Path) -> None:
    path = host_path(volume, host)
    match volume.type or "":
        case "" | "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        case "FileOrCreate":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        case "Directory" if path.is_dir():
            pass
        case "File" if path.is_file():
            pass
        case "Socket" if path.is_socket():
            pass
        case other:
            raise Missing(f"hostPath type check failed: {volume.path} is not a {other}; the node's files are in {host}")


def fill(folder: Path, files: Mapping[str, File]) -> bool:
    """Make these the files of the folder; False if they were already."""
    if _read(folder) == {path: file.content for path, file in files.items()}:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    content = folder / f"..{secrets.token_hex(8)}"
    content.mkdir()
    for path, file in files.items():
        target = content / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    link, partial = folder / DATA, folder / f"{DATA}_tmp"
    before = link.readlink() if link.is_symlink() else None
    partial.unlink(missing_ok=True)
    partial.symlink_to(content.name)
    partial.replace(link)
    names = {PurePosixPath(path).parts[0] for path in files}
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    if before is not None:
        shutil.rmtree(folder / before, ignore_errors=True)
    return True


def _read(folder: Path) -> dict[str, bytes] | None:
    """The present files; None if the folder was never filled."""
    root = folder / DATA
    if not root.is_dir():
        return None
    real = root.resolve()
    return {str(path.relative_to(real)): path.read_bytes() for path in real.rglob("*") if path.is_file()}
