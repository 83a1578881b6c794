"""Addresses inside a sandbox, and the loopback address on which a pod's process listens (SB-008, SB-012). Pure.

Services, nodes and pods have addresses of private ranges that are never dialled. A pod that is run (SB-011) listens on
loopback at the address with the same three last numbers: pod 10.244.0.7 on 127.244.0.7. So many pods can use the same
port of one machine. All sandboxes of a machine share its loopback range, therefore each has a pod network of its own:
the second number of its pods' addresses.
"""

import ipaddress

SERVICE_RANGE = "10.96.0.0/16"
NODE_NETWORK = 250
POD_NETWORKS = range(100, 250)
DEFAULT_POD_NETWORK = 244
KUBELET_PORT = 10_250
PER_OCTET = 250

_SERVICES = ipaddress.IPv4Network(SERVICE_RANGE)


def node_address(number: int) -> str:
    """The InternalIP of the node with this number, counted from 0."""
    return f"10.{NODE_NETWORK}.{number // PER_OCTET}.{number % PER_OCTET + 1}"


def pod_address(number: int, *, network: int = DEFAULT_POD_NETWORK) -> str:
    """``status.podIP`` number ``number``; after 62 500 addresses they repeat."""
    return f"10.{network}.{number // PER_OCTET % PER_OCTET}.{number % PER_OCTET + 1}"


def loopback_of(pod: str) -> str:
    """Where the process of the pod with this address listens; ValueError if it is not the address of a pod."""
    if not is_pod(pod):
        raise ValueError(f"{pod} is not the address of a pod of a sandbox")
    return "127." + pod.partition(".")[2]


def loopback_on_node(node: str, *, network: int) -> str:
    """Where the process of a pod on the host's network listens: beside the loopback addresses of the pod network."""
    third, _, last = node.partition(".")[2].partition(".")[2].partition(".")
    return f"127.{network}.{PER_OCTET + int(third) % 6}.{last}"


def is_pod(address: str, *, network: int | None = None) -> bool:
    """Whether it is a pod's address: in this pod network, or in any."""
    return _second(address) in (POD_NETWORKS if network is None else (network,))


def is_node(address: str) -> bool:
    return _second(address) == NODE_NETWORK


def is_service(address: str) -> bool:
    """Whether it is in the range of ClusterIPs."""
    parsed = _parse(address)
    return parsed is not None and parsed in _SERVICES


def _second(address: str) -> int | None:
    """The second number of an address 10.x.y.z; None for every other text."""
    parsed = _parse(address)
    return parsed.packed[1] if parsed is not None and parsed.packed[0] == 10 else None


def _parse(text: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None
