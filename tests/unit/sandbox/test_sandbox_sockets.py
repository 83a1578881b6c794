"""Paths of the sandbox's unix sockets: the kernel takes at most 107 bytes."""

import socket
from pathlib import Path

import pytest

from polyarch.sandbox.network import egress_socket, kubelet_socket, prepare_sockets, remove_sockets
from polyarch.sandbox.state import Folder


def listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    return True


@pytest.mark.req("SB-012")
@pytest.mark.parametrize("depth", [0, 12], ids=["an ordinary folder", "a deep folder"])
def test_a_socket_fits_however_deep_the_sandboxs_folder_is(tmp_path: Path, depth: int) -> None:
    root = tmp_path.joinpath(*["twelve-bytes"] * depth, "trial")
    prepare_sockets(root)
    prepare_sockets(root)
    assert egress_socket(root) != kubelet_socket(root)
    assert listens(egress_socket(root))
    assert listens(kubelet_socket(root))
    folder = Path(egress_socket(root)).parent
    assert folder.stat().st_mode & 0o077 == 0
    Folder(root).delete()
    assert not folder.exists()


@pytest.mark.req("SB-012")
def test_the_sockets_come_back_after_the_machine_emptied_its_temporary_folder(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["twelve-bytes"] * 12)
    prepare_sockets(root)
    first = Path(egress_socket(root)).parent
    first.rmdir()
    prepare_sockets(root)
    assert listens(egress_socket(root))
    remove_sockets(root)
