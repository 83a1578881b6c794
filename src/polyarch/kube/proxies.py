"""Which proxy stands between us and a server: ``proxy-url`` of the kubeconfig, else the environment's, as in kubectl.

The rules for ``NO_PROXY`` are Go's, as the same variables serve kubectl: host names match themselves and what ends in
them, addresses match themselves and their networks, ``*`` is everything, and loopback is never sent to a proxy.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def from_environment(server: str, environ: Mapping[str, str]) -> str:
    """The proxy's URL for ``server``, or an empty string."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    if not proxy or _direct(parts.hostname or "", parts.port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    return proxy if "://" in proxy else "http://" + proxy


def _direct(host: str, port: int | None, no_proxy: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for raw in no_proxy.split(","):
        entry = raw.strip().lower()
        if entry == "*":
            return True
        if address is not None and "/" in entry:
            try:
                if address in ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
        name, _, entry_port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if not name or (entry_port and entry_port != str(port)):
            continue
        suffix = name.removeprefix("*").removeprefix(".")
        if host == suffix and not name.startswith((".", "*")):
            return True
        if address is None and host.endswith("." + suffix):
            return True
    return False
