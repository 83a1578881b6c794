"""The unix sockets of a sandbox, in ``sockets/`` of its folder.

The kernel limits the path of a unix socket to 107 bytes. Where the sandbox's folder is deeper, ``sockets`` is a
symbolic link to a private folder of the machine's temporary folder. All processes of the sandbox find it through it.
"""

import os
import shutil
import tempfile
from pathlib import Path

MAXIMUM_PATH_BYTES = 107
LONGEST_NAME = "kubelet.sock"


def prepare(root: Path) -> None:
    """Create the folder of the sockets; again, if the machine has emptied its temporary folder."""
    folder = root / "sockets"
    if _fits(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not folder.is_dir():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.unlink(missing_ok=True)
        short = Path(tempfile.mkdtemp(prefix="polyarch-"))
        if not _fits(short):
            short.rmdir()
            short = Path(tempfile.mkdtemp(prefix="polyarch-", dir="/tmp"))
        folder.symlink_to(short)


def remove(root: Path) -> None:
    """Delete what :func:`prepare` created outside of the sandbox's folder."""
    folder = root / "sockets"
    if folder.is_symlink():
        shutil.rmtree(folder.readlink(), ignore_errors=True)


def egress(root: Path) -> str:
    """Where the API server asks for connections into the cluster (SB-012)."""
    return str((root / "sockets").resolve() / "egress.sock")


def kubelet(root: Path) -> str:
    """Where the kubelet endpoint of all nodes listens (SB-013): TLS, as on port 10250 of a node."""
    return str((root / "sockets").resolve() / LONGEST_NAME)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / LONGEST_NAME)) <= MAXIMUM_PATH_BYTES
