"""The addresses of a sandbox and the kernel's table of listeners."""

import socket
from pathlib import Path

import pytest

from polyarch.sandbox import network
from polyarch.sandbox.network import free_pod_network, is_listening, listeners

pytestmark = pytest.mark.req("SB-008")


@pytest.mark.req("SB-012")
def test_a_pod_listens_on_loopback_at_its_own_numbers() -> None:
    assert network.loopback_of("10.244.0.7") == "127.244.0.7"
    assert network.loopback_of(network.pod_address(62_499, network=101)) == "127.101.249.250"


@pytest.mark.req("SB-012")
@pytest.mark.parametrize(
    "other", ["10.96.0.1", "10.250.0.1", "10.99.0.1", "11.244.0.1", "10.244.0", "localhost", "::1"]
)
def test_only_a_pods_address_has_a_loopback_address(other: str) -> None:
    with pytest.raises(ValueError, match="not the address of a pod"):
        network.loopback_of(other)


@pytest.mark.req("SB-012")
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.96.0.1", "service"),
        ("10.96.255.255", "service"),
        ("10.97.0.0", "none"),
        ("10.244.3.1", "pod"),
        ("10.250.0.1", "node"),
        ("192.168.0.1", "none"),
        ("127.0.0.1", "none"),
        ("169.254.169.254", "none"),
        ("example.com", "none"),
    ],
)
def test_ranges_of_services_pods_and_nodes_do_not_meet(address: str, kind: str) -> None:
    found = {
        "service": network.is_service(address),
        "pod": network.is_pod(address),
        "node": network.is_node(address),
    }
    assert [name for name, holds in found.items() if holds] == ([] if kind == "none" else [kind])


@pytest.mark.req("SB-012")
def test_pods_of_another_sandbox_are_not_ours() -> None:
    assert network.is_pod("10.244.0.1", network=244)
    assert not network.is_pod("10.244.0.1", network=101)


@pytest.mark.req("SB-012")
def test_the_table_of_the_kernel_is_read() -> None:
    table = (Path(__file__).parent / "proc-net-tcp.txt").read_text(encoding="ascii")
    assert list(listeners(table.splitlines())) == [("127.244.0.7", 8081), ("0.0.0.0", 22)]


@pytest.mark.req("SB-012")
def test_connections_which_come_after_the_listeners_are_not_read() -> None:
    """Of thousands of connections the kernel would have to write each, for every call of a webhook."""
    lines = (Path(__file__).parent / "proc-net-tcp.txt").read_text(encoding="ascii").splitlines()
    table = iter([*lines, *["a line that is not like the others"] * 3])
    assert len(list(listeners(table))) == 2
    assert len(list(table)) == 3


@pytest.mark.req("SB-012")
def test_a_server_on_all_addresses_is_not_taken_for_a_pod() -> None:
    with socket.create_server(("127.244.249.1", 0)) as pod, socket.create_server(("0.0.0.0", 0)) as wildcard:
        assert is_listening("127.244.249.1", pod.getsockname()[1])
        assert not is_listening("127.244.249.1", wildcard.getsockname()[1])


@pytest.mark.req("SB-003")
def test_sandboxes_side_by_side_have_pod_networks_of_their_own() -> None:
    with socket.create_server(("127.120.0.1", 0)):
        last = set(network.POD_NETWORKS) - {120, 121}
        assert free_pod_network(last) == 121
