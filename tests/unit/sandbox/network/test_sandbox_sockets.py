"""Paths of the sandbox's unix sockets (SB-012): the kernel takes at most 107 bytes."""

import socket
from pathlib import Path

import pytest

from polyarch.sandbox.network import sockets
from polyarch.sandbox.state import Folder


def listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    return True


@pytest.mark.parametrize("depth", [0, 12], ids=["an ordinary folder", "a deep folder"])
def test_sb_012_a_socket_fits_however_deep_the_sandboxs_folder_is(tmp_path: Path, depth: int) -> None:
    root = tmp_path.joinpath(*["twelve-bytes"] * depth, "trial")
    sockets.prepare(root)
    sockets.prepare(root)
    assert sockets.egress(root) != sockets.kubelet(root)
    assert listens(sockets.egress(root))
    assert listens(sockets.kubelet(root))
    folder = Path(sockets.egress(root)).parent
    assert folder.stat().st_mode & 0o077 == 0
    Folder(root).delete()
    assert not folder.exists()


def test_sb_012_the_sockets_come_back_after_the_machine_emptied_its_temporary_folder(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["twelve-bytes"] * 12)
    sockets.prepare(root)
    first = Path(sockets.egress(root)).parent
    first.rmdir()
    sockets.prepare(root)
    assert listens(sockets.egress(root))
    sockets.remove(root)
